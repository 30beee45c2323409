"""The agent's sink on a real API server: what the node's conditions say while the agent comes, goes and is cut off."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.core.system import kernel_ring
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.sink import sink
from tests.agent.conftest import Running
from tests.support.kube import Kube
from tests.support.require import need
from tests.support.waiting import until
from tests.support.wire import Wire


@pytest.fixture
def node(kube: Kube) -> str:
    return kube.node(fake=False)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Any]:
    running = Running(tmp_path)
    yield running
    running.stop()


def configure(agent: Any, kube: Kube, node: str, good: Path, url: str = "", kernel_log: str = "false") -> None:
    kubeconfig = agent.directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(kube.plane.config(kube.plane.token, url)))
    agent.configure(
        f"* |every 200ms| check_file_test -e {good}\n",
        f'[sinks.kubernetes]\nkubeconfig = "{kubeconfig}"\nnode = "{node}"\n',
        agent=f"kernel-log = {kernel_log}",
    )


def status(kube: Kube, node: str, kind: str = "NhcHealthy") -> str:
    found = kube.condition(node, kind)
    return found["status"] if found else ""


def test_a_fault_is_a_condition_and_an_event_and_its_end_too(kube: Kube, agent: Any, node: str, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text("")
    configure(agent, kube, node, good)
    agent.start()
    until(lambda: status(kube, node) == "True")
    good.unlink()
    until(lambda: status(kube, node) == "False")
    assert kube.condition(node, "NhcHealthy")["reason"] == "FileTestFailed"
    good.write_text("")
    until(lambda: status(kube, node) == "True")

    def events() -> set[str]:
        found = kube.admin.items("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}")
        return {event["type"] for event in found if event["source"]["component"] == "nhc-agent"}

    until(lambda: events() == {"Normal", "Warning"})


def test_a_restart_leaves_the_condition_s_time_alone(kube: Kube, agent: Any, node: str, tmp_path: Path) -> None:
    configure(agent, kube, node, tmp_path / "never")
    agent.start()
    until(lambda: status(kube, node) == "False")
    since = kube.condition(node, "NhcHealthy")["lastTransitionTime"]
    agent.stop()
    for path in agent.state.iterdir():  # it remembers nothing, as in a container that was started anew
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    agent.start()
    until(lambda: agent.status()["sinks"]["kubernetes"]["problem"] == "")
    agent.nhc("agent", "check")
    assert status(kube, node) == "False"
    assert kube.condition(node, "NhcHealthy")["lastTransitionTime"] == since


def test_what_only_the_kernel_log_told_stands_until_it_is_acknowledged(
    kube: Kube, agent: Any, node: str, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    good.write_text("")
    kube.set_condition(node, "NhcGpuProblem", "True", "Xid79", "gpu3 fell off the bus")
    kube.set_condition(node, "NhcStorageProblem", "True", "DiskFull", "a check will tell")
    kube.set_condition(node, "Foreign", "True", "Theirs", "not ours")
    configure(agent, kube, node, good)
    agent.start()
    until(lambda: status(kube, node, "NhcStorageProblem") == "False")
    assert status(kube, node, "NhcHealthy") == "False"
    assert status(kube, node, "NhcGpuProblem") == "True"
    assert agent.status()["inherited"] == ["condition/Xid79"]
    assert agent.nhc("ack", "agent", "condition/Xid79").returncode == 0
    until(lambda: status(kube, node, "NhcHealthy") == "True")
    assert kube.condition(node, "Foreign")["reason"] == "Theirs"


def test_while_the_server_is_away_nothing_piles_up_and_what_is_so_is_written_on_its_return(
    kube: Kube, agent: Any, node: str, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    good.write_text("")
    with Wire(kube.plane) as wire:
        configure(agent, kube, node, good, wire.url)
        agent.start()
        until(lambda: status(kube, node) == "True")
        wire.down(True)
        good.unlink()
        until(lambda: agent.report()["verdict"] == "CRIT")
        assert agent.get("/healthz")[0] == 200
        for _ in range(1):  # back and forth: only the last word counts
            good.write_text("")
            until(lambda: agent.report()["verdict"] == "OK")
            good.unlink()
            until(lambda: agent.report()["verdict"] == "CRIT")
        assert status(kube, node) == "True"
        wire.down(False)
        until(lambda: status(kube, node) == "False", within=60)


@pytest.mark.usefixtures("kernel_log_alone")
def test_a_kernel_line_is_a_condition_in_a_moment(kube: Kube, agent: Any, node: str, tmp_path: Path) -> None:
    need("kmsg", os.access(kernel_ring.KMSG, os.W_OK), "this user may not write to the kernel log")
    good = tmp_path / "good"
    good.write_text("")
    configure(agent, kube, node, good, kernel_log="true")
    agent.start()
    until(lambda: agent.status()["sinks"]["kubernetes"]["problem"] == "")
    agent.nhc("ack", "agent", "--all")
    agent.nhc("agent", "check")
    device = f"0000:{random.randrange(16, 255):02x}:00"
    began = time.monotonic()
    kernel_ring.write(f"NVRM: Xid (PCI:{device}): 79, pid=1, GPU has fallen off the bus. (nhc-drill)", 3)
    until(lambda: status(kube, node, "NhcGpuProblem") == "True", every=0.002)
    assert time.monotonic() - began < 30
    agent.nhc("ack", "agent", f"xid/79/{device}.0")
    until(lambda: status(kube, node, "NhcGpuProblem") == "False")


@pytest.mark.parametrize("allowed", [[], ["get"]], ids=["nothing", "reading alone"])
def test_an_agent_without_its_rights_is_not_delivering_until_it_has_them(
    kube: Kube, agent: Any, node: str, tmp_path: Path, allowed: list[str]
) -> None:
    name = f"{kube.prefix}-agent"
    role = {
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": allowed or [""]}],
    }
    account = {"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}
    base = "/apis/rbac.authorization.k8s.io/v1"
    kube.admin.post(f"{base}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    kube.admin.post(
        f"{base}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [account]}
    )
    try:
        good = tmp_path / "good"
        good.write_text("")
        kubeconfig = agent.directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(kube.plane.config(kube.token("default", kube.namespace))))
        agent.configure(
            f"* |every 200ms| check_file_test -e {good}\n",
            f'[sinks.kubernetes]\nkubeconfig = "{kubeconfig}"\nnode = "{node}"\n',
            agent="kernel-log = false",
        )
        agent.start()

        def problem() -> str:
            return str(agent.status()["sinks"]["kubernetes"]["problem"])

        until(lambda: "403 Forbidden" in problem(), within=60)
        every = {"apiGroups": [""], "resources": ["nodes", "nodes/status", "events"], "verbs": ["*"]}
        kube.admin.put(f"{base}/clusterroles/{name}", {**role, "rules": [every]})
        until(lambda: problem() == "" and status(kube, node) == "True", within=60)
    finally:
        kube.admin.delete(f"{base}/clusterrolebindings/{name}")
        kube.admin.delete(f"{base}/clusterroles/{name}")


def test_an_agent_whose_token_is_not_taken_is_not_delivering_until_it_has_another(
    kube: Kube, agent: Any, node: str, tmp_path: Path
) -> None:
    """401, which a token gets that has run out, is as bad as the 403 of a missing right; the file may be renewed."""
    good, token = tmp_path / "good", agent.directory / "token"
    good.write_text("")
    token.write_text("run-out")
    config = kube.plane.config("")
    config["users"][0]["user"] = {"tokenFile": str(token)}
    kubeconfig = agent.directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    agent.configure(
        f"* |every 200ms| check_file_test -e {good}\n",
        f'[sinks.kubernetes]\nkubeconfig = "{kubeconfig}"\nnode = "{node}"\n',
        agent="kernel-log = false",
    )
    agent.start()

    def problem() -> str:
        return str(agent.status()["sinks"]["kubernetes"]["problem"])

    until(lambda: "401 Unauthorized" in problem(), within=60)
    assert status(kube, node) == ""
    token.write_text(kube.plane.token)
    until(lambda: problem() == "" and status(kube, node) == "True", within=60)


@pytest.mark.parametrize(("written", "meant"), [("90", 90.0), ("500ms", 0.5), ("30m", 1800.0), ("1.5h", 5400.0)])
def test_the_sinks_heartbeat_is_a_duration_as_everywhere(
    kube: Kube, tmp_path: Path, written: str, meant: float
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(kube.plane.config(kube.plane.token)))
    made = sink({"kubeconfig": str(kubeconfig), "heartbeat": written}, "n1", lambda line: None)
    assert made.reporter.conditions.heartbeat == meant
    made.close()
    with pytest.raises(AdapterError, match=r"sinks\.kubernetes\.heartbeat: .*soon"):
        sink({"kubeconfig": str(kubeconfig), "heartbeat": "soon"}, "n1", lambda line: None)
