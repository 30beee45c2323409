"""What the client and those who use it do when the connection to the API server goes wrong."""

from __future__ import annotations

import threading
import time
from typing import Any, Iterator

import pytest

from nhc.marks.ports.adapter import Effect, Mark
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.api.events import WARNING, EventRecorder
from nhc_adapters.kubernetes.api.reflector import Reflector
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, Condition
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from nhc_adapters.kubernetes.sink import Reporter
from tests.support.kube import Kube
from tests.support.waiting import until
from tests.support.wire import Fault, Wire, error, gone, page, reset, silent, slow

FAULT = Mark("check_gpu_lost: gpu3: fell off the bus")


@pytest.fixture
def wire(plane: Any) -> Iterator[Wire]:
    with Wire(plane) as spoiled:
        yield spoiled


@pytest.fixture
def client(kube: Kube, wire: Wire) -> Client:
    return kube.client(kube.plane.token, wire.url, retry_for=10.0, read_timeout=1.0)


@pytest.mark.parametrize(
    "fault",
    [
        reset(),
        reset(after=True),
        error(429, "TooManyRequests", "slow down"),
        error(500, "InternalError", "etcd is thinking"),
        error(503, "ServiceUnavailable", "starting"),
        page(502),
        slow(0.3),
        silent(),
    ],
    ids=["reset", "reset after the act", "429", "500", "503", "a proxy's page", "slow", "half-open"],
)
def test_a_mark_gets_through_once_whatever_the_connection_does(
    kube: Kube, wire: Wire, client: Client, fault: Fault
) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(client)
    wire.next(fault, "PATCH", f"/nodes/{node}")

    (applied,) = adapter.mark({node: FAULT})

    after = kube.get(node)
    assert applied.effect in (Effect.CHANGED, Effect.UNCHANGED)
    assert after["spec"]["unschedulable"] is True
    assert [taint["key"] for taint in after["spec"]["taints"]].count("nhc/unhealthy") == 1
    assert after["metadata"]["annotations"]["nhc/set"].count("nhc/unhealthy") == 1
    assert adapter.mark({node: FAULT})[0].effect is Effect.UNCHANGED


def test_a_server_that_says_when_to_come_back_is_obeyed(wire: Wire, client: Client) -> None:
    wire.next(error(429, "TooManyRequests", "slow down", retry_after=1), "GET", "/version")
    begin = time.monotonic()

    client.get("/version")

    assert time.monotonic() - begin >= 1.0
    assert wire.count("GET", "/version") == 2


def test_a_conflict_is_looked_at_anew_and_solved(kube: Kube, wire: Wire, client: Client) -> None:
    node = kube.node(fake=False)
    wire.next(error(409, "Conflict", "the object has been modified"), "PATCH", node, times=3)

    (applied,) = Kubernetes(client).mark({node: FAULT})

    assert applied.effect is Effect.CHANGED
    assert wire.count("PATCH", node) >= 4  # the cluster's own controllers may have changed the new node besides


def test_an_error_that_no_retry_helps_is_said_at_once(kube: Kube, wire: Wire, client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.patch(node_path("nobody"), {}, MERGE_PATCH)
    assert caught.value.status == 404
    assert wire.count("PATCH") == 1


def test_a_server_that_stays_away_is_given_up_in_time(kube: Kube, wire: Wire) -> None:
    client = kube.client(kube.plane.token, wire.url, retry_for=0.5)
    wire.down(True)
    begin = time.monotonic()

    with pytest.raises(Unreachable) as caught:
        client.get("/version")

    assert time.monotonic() - begin < 40
    assert "\n" not in str(caught.value)


class Followed:
    """A reflector in a thread, and what it told."""

    def __init__(self, client: Client, prefix: str, **options: Any) -> None:
        self.told: list[tuple[str, bool]] = []
        self.stop = threading.Event()
        self.reflector = Reflector(client, "/api/v1/nodes", self._changed, selector=f"test={prefix}", **options)
        self.thread = threading.Thread(target=self.reflector.run, args=(self.stop,), daemon=True)
        self.thread.start()
        assert self.reflector.synced.wait(60)

    def _changed(self, name: str, item: Any) -> None:
        self.told.append((name, item is not None))

    def has(self, name: str) -> bool:
        return name in self.reflector.objects


@pytest.mark.parametrize("trouble", ["hang up", "gone", "half-open", "429", "500"])
def test_a_watch_that_breaks_misses_nothing(kube: Kube, wire: Wire, trouble: str) -> None:
    client = kube.client(kube.plane.token, wire.url, read_timeout=5.0)
    first = kube.node("first", fake=False)
    spoil = {"gone": gone(), "half-open": silent(), "429": error(429), "500": error(500)}.get(trouble)
    followed = Followed(client, kube.prefix, idle=1.0 if trouble == "half-open" else 60.0, retry=0.05)
    until(lambda: wire.count("GET", "watch=1") == 1)
    if spoil is not None:
        wire.next(spoil, "GET", "watch=1")
    wire.hang_up()

    second = kube.node("second", fake=False)
    kube.admin.delete(node_path(first))

    until(lambda: followed.has(second) and not followed.has(first))
    assert (first, False) in followed.told
    assert followed.reflector.lists == (2 if trouble in ("gone", "429", "500") else 1)
    followed.stop.set()


def test_a_server_that_forgets_every_fresh_list_is_not_listed_without_a_pause(
    kube: Kube, wire: Wire, client: Client
) -> None:
    kube.node("first", fake=False)
    wire.next(gone(), "GET", "watch=1", times=5)
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 5:
                self.set()
            return self.is_set()

    reflector = Reflector(client, "/api/v1/nodes", lambda name, item: None, selector=f"test={kube.prefix}", retry=0.05)
    reflector.run(Stop())
    assert (pauses, reflector.lists) == ([0.0, 0.05, 0.1, 0.2, 0.4], 5)


# The agent's side.


def bad(reason: str = "Xid79") -> Condition:
    return Condition("NhcHealthy", FALSE, reason, "gpu3: fell off the bus")


def test_a_node_speaks_again_when_the_server_is_back_and_says_what_is_so_then(kube: Kube, wire: Wire) -> None:
    node = kube.node(fake=False)
    client = kube.client(kube.plane.token, wire.url, retry_for=0.2)
    reporter = Reporter(client, node, [load("nhc")])
    reporter.start()
    reporter.say([Condition("NhcHealthy", TRUE, "NhcHealthy", "fine")])
    until(lambda: kube.condition(node, "NhcHealthy") is not None)
    wire.down(True)

    for number in range(500):
        reporter.say([bad(f"Reason{number}"), Condition("NhcGpuProblem", TRUE, f"R{number}", "x")])
    until(lambda: reporter.error)
    wire.down(False)

    until(lambda: (kube.condition(node, "NhcHealthy") or {}).get("reason") == "Reason499")
    assert reporter.recorder.waiting <= 256
    reporter.close()


def test_an_event_is_made_once_though_its_answer_was_lost(kube: Kube, wire: Wire, client: Client) -> None:
    node = kube.node(fake=False)
    recorder = EventRecorder(client, "nhc-agent")
    wire.next(reset(after=True), "POST", "/events")

    recorder.say(WARNING, node, "Xid79", "fell off the bus")
    recorder.flush()

    found = list(kube.admin.items("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}"))
    assert [event["reason"] for event in found].count("Xid79") == 1
