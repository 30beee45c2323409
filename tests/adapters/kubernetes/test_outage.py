"""An outage: its cause by its name, logged once, and its end."""

from __future__ import annotations

import socket
import time
from typing import Iterator

import pytest
import urllib3

from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import Unreachable, plain
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.controller.controller import Controller
from tests.adapters.kubernetes.test_controller import settings
from tests.support.kube import Kube
from tests.support.waiting import until
from tests.support.wire import Wire, error


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield int(listening.getsockname()[1])


def said_of(url: str) -> str:
    client = Client(Access(url), retry_for=0.05, read_timeout=0.2)
    with pytest.raises(Unreachable) as caught:
        client.get("/version")
    return str(caught.value).removeprefix(f"{url}: ")


@pytest.mark.thorough
def test_nobody_there_no_such_name_and_silence_are_three_things(deaf: int) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        assert said_of(f"http://127.0.0.1:{held.getsockname()[1]}") == "connection refused: nothing listens there"
    assert said_of(f"http://127.0.0.1:{deaf}") == "no answer in time"
    # Where DNS itself is away, that is said instead: a resolver is not a test's to choose.
    assert said_of("http://no-such-host.invalid:80") in (
        "no such host",
        "the name cannot be resolved for now: DNS gives no answer",
    )


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "the name cannot be resolved for now"),
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError("timed out"), "no answer in time"),
    ],
)
def test_an_error_is_told_by_what_caused_it_however_deep_it_is(cause: Exception, said: str) -> None:
    middle = urllib3.exceptions.NewConnectionError(None, "x")  # type: ignore[arg-type]
    middle.__cause__ = cause
    outer = urllib3.exceptions.MaxRetryError(None, "/", middle)  # type: ignore[arg-type]
    assert said in plain(outer)


def test_several_that_fail_for_one_cause_are_one_line_and_the_last_that_works_again_another() -> None:
    said: list[str] = []
    now = [0.0]
    outages = Outages(said.append, "the API server", lambda: now[0])
    for _time in range(3):
        outages.failed("the nodes", "connection refused")
        outages.failed("the Lease", "connection refused")
    outages.failed("the nodes", "503: starting")
    outages.works("the Lease")
    assert outages.standing() == {"the nodes": "503: starting"}
    now[0] = 200.0
    outages.works("the nodes")
    outages.works("the nodes")
    assert said == [
        "the nodes fails: connection refused",
        "the nodes fails: 503: starting",
        "the API server works again after 3m20s",
    ]
    outages.failed("the nodes", "connection refused")  # another outage
    assert len(said) == 4


def test_a_controller_says_once_why_the_server_is_away_and_once_that_it_is_back(kube: Kube) -> None:
    node = kube.node(fake=False)
    said: list[str] = []
    with Wire(kube.plane) as wire:
        client = kube.client(kube.plane.token, wire.url, connections=8, retry_for=0.2)
        lease = Lease(client, kube.namespace, every=0.1, duration=3.0, renew_within=2.0)
        controller = Controller(client, settings(kube), lease=lease, log=said.append)
        controller.nodes._retry = 0.1
        controller.start()
        try:
            until(controller.leading.is_set)
            until(lambda: controller.unready() == "")
            wire.next(error(503, "ServiceUnavailable", "the server is starting"), times=-1)
            wire.hang_up()
            until(lambda: len(controller.outages.standing()) >= 2)
            assert "fails: " in controller.unready()
            until(lambda: not controller.leading.is_set())
            wire.clear()
            until(lambda: controller.unready() == "", within=60)
            until(controller.leading.is_set)
            kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
            until(lambda: kube.get(node)["spec"].get("unschedulable"))
        finally:
            controller.close()
    failures = [line.partition(" fails: ")[2] for line in said if " fails: " in line]
    assert "503 ServiceUnavailable: the server is starting" in failures
    assert len(failures) == len(set(failures))  # each cause once, whoever met it and however often
    assert sum(line.startswith("the API server works again after ") for line in said) >= 1


def test_while_the_server_is_away_no_agent_is_silent(kube: Kube) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "NhcHealthy", "True")
    said: list[str] = []
    with Wire(kube.plane) as wire:
        client = kube.client(kube.plane.token, wire.url, connections=8, retry_for=0.2)
        lease = Lease(client, kube.namespace, every=0.1, duration=3.0, renew_within=2.0)
        controller = Controller(client, settings(kube, silent_after=6.0), lease=lease, log=said.append)
        controller.nodes._retry, controller.nodes.gap = 0.1, 1.0
        controller.start()
        try:
            until(lambda: controller.rounds.fleet.judgement(node))
            wire.next(error(503, "ServiceUnavailable", "the server is starting"), times=-1)
            wire.hang_up()
            until(lambda: not controller.leading.is_set())
            heard = (kube.condition(node, "NhcHealthy") or {})["lastHeartbeatTime"]
            until(lambda: time.time() - from_utc(heard) > 7.0)
            wire.clear()
            until(controller.leading.is_set)
            until(lambda: controller.nodes.current)

            kube.set_condition(node, "NhcHealthy", "True")  # the agent could not write it before
            seen = kube.get(node)["metadata"]["resourceVersion"]
            until(lambda: controller.nodes.objects[node]["metadata"]["resourceVersion"] == seen)

            assert not [line for line in said if "nothing heard" in line]
            until(lambda: (kube.condition(node, "NhcHealthy") or {}).get("reason") == "NoReport")  # silent by now
        finally:
            controller.close()


def test_a_mark_that_is_refused_again_and_again_is_logged_once(kube: Kube) -> None:
    node = kube.node(fake=False)
    said: list[str] = []
    with Wire(kube.plane) as wire:
        client = kube.client(kube.plane.token, wire.url, connections=8)
        controller = Controller(client, settings(kube), lease=Lease(client, kube.namespace), log=said.append)
        refused = error(422, "Invalid", "denied by the policy site-guard")
        wire.next(refused, "PATCH", f"/nodes/{node}", times=-1)
        controller.start()
        try:
            kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
            until(lambda: controller.operations.counts["mark_failed"] >= 3)
            assert [line for line in said if "site-guard" in line] == [
                f"{node}: mark failed: 422 Invalid: denied by the policy site-guard"
            ]
            wire.clear()
            until(lambda: f"{node}: mark: check_kmsg: Xid 79" in said)
        finally:
            controller.close()
