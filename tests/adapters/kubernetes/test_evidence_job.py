"""Evidence of a node by a pinned Job whose log is read: on a real control plane, with the program that runs there."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import EvidenceBudget, EvidenceSource, Exhibit, Rung
from nhc.remedy.cases import EpisodeCase
from nhc.remedy.detail import Detail
from nhc.remedy.gather import Gatherer
from nhc.store import episodes, evidence
from nhc_adapters.kubernetes.nodes.drain import DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.pods import pod_name, workload
from nhc_adapters.kubernetes.repair.repairer import KubernetesJobs, needed, pieces_in
from nhc_adapters.node.hand.evidence import NAMES, collect
from nhc_adapters.node.hand.look import LocalNode
from tests.adapters.kubernetes.test_manifests import MANIFESTS
from tests.adapters.kubernetes.test_repair_jobs import IMAGE, JobWorld, account
from tests.support.gpu_node import GpuNode
from tests.support.kube import Kube
from tests.support.new_store import new_store
from tests.support.waiting import until
from tests.support.wire import Wire

BUDGET = EvidenceBudget(1 << 20, 60.0)


@pytest.fixture
def world(kube: Kube, tmp_path: Path) -> Iterator[JobWorld]:
    with Wire(kube.plane) as wire:
        made = JobWorld(kube, wire, tmp_path, Rung.REBOOT)
        with made.kubelet:
            yield made


def shown(world: JobWorld, budget: EvidenceBudget) -> tuple[List[Exhibit], str]:
    """What was collected, and what is said of the rest."""
    found: List[Exhibit] = []
    try:
        found.extend(world.repairer.evidence(world.machine, budget))
    except AdapterError as error:
        return found, str(error)
    return found, ""


def hang(gpus: GpuNode, name: str) -> None:
    """A command that does not come back, as a driver's in trouble."""
    command = gpus.path / name
    command.unlink()
    command.write_text("#!/bin/sh\nexec sleep 600\n")
    command.chmod(0o755)


def test_what_the_node_shows_is_kept_as_the_episode_s_evidence(world: JobWorld, tmp_path: Path) -> None:
    """By the account of the published rights, over the loop's own collector, into the store."""
    assert isinstance(world.repairer, EvidenceSource)
    store = new_store(str(tmp_path))
    gatherer = Gatherer(
        store, lambda _node: [("kubernetes", world.repairer)], BUDGET, str(tmp_path / "evidence"), 3600.0
    )
    with store.write() as connection:
        row, _new = episodes.open_episode(
            connection, world.machine.node, "gpu lost", action="reboot", state="evidence", now=1.0, by="test"
        )
    until(lambda: gatherer.collected(EpisodeCase(row, Detail()), world.machine), 60.0)
    with store.read() as connection:
        rows = evidence.of_episode(connection, row.id)
    store.close()
    assert {one.name for one in rows} == {f"kubernetes/{name}" for name in NAMES}
    assert not [one for one in rows if one.message]
    files = {one.name.partition("/")[2]: tmp_path / "evidence" / one.sha256[:2] / one.sha256 for one in rows}
    kept = {name: file.read_bytes() for name, file in files.items()}
    assert kept["kernel.txt"] == b"what journalctl says\n"
    assert kept["nvidia-bug-report.log.gz"] == b"\x1f\x8b bug report"
    assert world.kubelet.started == []  # nothing was repaired
    assert world.calls() == []
    (job,) = world.jobs()
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (60, 600)
    pod = job["spec"]["template"]["metadata"]
    policies = (MANIFESTS / "remedy/remedy.yaml").read_text()  # whose pods speak with nobody
    (rule,) = [one["spec"] for one in yaml.safe_load_all(policies) if one["metadata"]["name"] == "nhc-repair"]
    (wanted,) = rule["podSelector"]["matchExpressions"]
    assert pod["labels"][wanted["key"]] in wanted["values"]


def test_what_came_before_the_program_was_killed_is_kept_and_the_rest_is_said(world: JobWorld) -> None:
    hang(world.gpus, "nvidia-smi")
    log = world.gpus.base / "logs" / world.kube.namespace

    busy: List[str] = []

    def kill() -> None:
        until(lambda: [file for file in log.glob("*/*") if file.read_text().count("\n") >= 2], 60.0)
        busy.append(world.repairer.look(world.machine).doing)  # a collection that is late holds up no repair,
        pods = list(world.kube.admin.items(f"/api/v1/namespaces/{world.kube.namespace}/pods"))
        busy.extend(pod_name(pod) for pod in workload(pods))  # and is no work that a drain waits for
        busy.extend(sort_pods(pods, DrainRules()).block)
        world.kubelet.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    found, said = shown(world, BUDGET)
    killer.join(60)
    assert [one.name for one in found] == ["kernel.txt", "dmesg.txt"]
    assert "did not come to its end: its pod ended with 137" in said
    assert busy == [""]


def test_a_node_that_starts_no_pod_costs_its_budget_and_no_more(kube: Kube, tmp_path: Path) -> None:
    with Wire(kube.plane) as wire:
        world = JobWorld(kube, wire, tmp_path, Rung.REBOOT)  # its kubelet does not run
        found, said = shown(world, EvidenceBudget(1000, 3.0))
        assert found == []
        assert "did not come to its end: its time is over" in said
        kube.set_condition(world.machine.node, "Ready", "False", "KubeletNotReady")
        assert "is not ready: it would start no pod" in shown(world, BUDGET)[1]
        assert "not aws" in shown_of_stranger(world)
        assert len(world.jobs()) == 1


def shown_of_stranger(world: JobWorld) -> str:
    with pytest.raises(AdapterError) as error:
        list(world.repairer.evidence(world.stranger(), BUDGET))
    return str(error.value)


def test_a_log_that_may_not_be_read_is_said_and_doctor_names_the_rule(
    world: JobWorld, kube: Kube, tmp_path: Path
) -> None:
    for path in ("rolebindings", "roles"):
        kube.admin.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kube.namespace}/{path}/repairs")
    role = "/apis/rbac.authorization.k8s.io/v1"
    for path in ("clusterrolebindings", "clusterroles"):
        kube.admin.delete(f"{role}/{path}/{kube.prefix}-repairs")
    kube.admin.delete(f"/api/v1/namespaces/{kube.namespace}/serviceaccounts/repairs")
    token = account(kube, needed(kube.namespace, False))
    config = tmp_path / "few"
    config.write_text(json.dumps(kube.plane.config(token, world.wire.url, kube.namespace)))
    given = {"image": IMAGE, "namespace": kube.namespace, "kubeconfig": str(config)}
    few = KubernetesJobs(given, {}, 10.0)
    with pytest.raises(AdapterError, match=r"the log of the pod .* cannot be read: .*forbidden"):
        list(few.evidence(world.machine, BUDGET))
    (missing,) = [right.message for right in few.rights() if not right.granted]
    assert '{apiGroups: [""], resources: [pods/log], verbs: [get]}' in missing
    off = KubernetesJobs({**given, "evidence": "no"}, {}, 10.0)
    assert list(off.evidence(world.machine, BUDGET)) == []
    assert [right for right in off.rights() if not right.granted] == []


def line(name: str, content: bytes, **more: Any) -> str:
    return json.dumps({"piece": name, "content": base64.b64encode(zlib.compress(content)).decode(), **more})


@pytest.mark.thorough
def test_the_pieces_of_a_log_are_unpacked_within_the_budget() -> None:
    log = "\n".join((
        "a warning of Python", line("kernel.txt", b"a" * 60), line("passwd", b"root"), "{broken",
        line("kernel.txt", b"again"), line("dmesg.txt", b"b" * (64 << 20)), line("dcgm.txt", b"c"),
        '{"piece": "amd-smi.txt", "content": "AAAA"}', '{"piece": "nvidia-smi.txt", "problem": "no such \\u001b[2J"}',
        '{"looked_for": 6}',
    ))  # fmt: skip
    found = pieces_in(log, 100)
    assert found.content == {
        "kernel.txt": (b"a" * 60, False), "dmesg.txt": (b"b" * 40, True), "dcgm.txt": (b"", True),
        "amd-smi.txt": (b"", True),
    }  # fmt: skip
    assert found.whole
    assert "\x1b" not in found.problems["nvidia-smi.txt"]
    cut = pieces_in(log[: log.index("looked_for") - 2], 100)
    assert not cut.whole
    assert pieces_in(line("kernel.txt", b"a" * 999)[:-20] + '"}', 100).content == {}


@pytest.mark.thorough
@given(st.lists(st.one_of(
    st.text(), st.sampled_from(["{", "{}", '{"piece": []}', '{"piece": "dmesg.txt"}', line("dmesg.txt", b"x" * 500)]),
    st.builds(line, st.sampled_from([*NAMES, "x"]), st.binary(max_size=200)),
), max_size=12), st.integers(0, 300))  # fmt: skip
def test_no_log_is_more_than_its_budget(lines: List[str], size: int) -> None:
    found = pieces_in("\n".join(lines), size)
    assert sum(len(content) for content, _cut in found.content.values()) <= size
    assert set(found.content) <= set(NAMES)


@pytest.mark.thorough
def test_the_program_keeps_to_the_size_and_says_what_it_cannot_give(tmp_path: Path) -> None:
    gpus = GpuNode(tmp_path / "node")
    gpus.gpus(2)
    gpus.note("fail-dmesg---time-format", "dmesg: read kernel buffer failed: Operation not permitted")
    node = LocalNode(str(gpus.root), (), str(gpus.path))
    lines = list(collect(node, 30, 60.0))
    assert [one["piece"] for one in lines] == list(NAMES)
    found = pieces_in("\n".join(json.dumps(one) for one in lines), 1000)
    assert found.content["kernel.txt"] == (b"what journalctl says\n", False)
    assert sum(len(content) for content, _cut in found.content.values()) <= 30
    assert "Operation not permitted" in found.problems["dmesg.txt"]
    assert "budget" in found.problems["nvidia-bug-report.log.gz"]
    assert {str(one.get("problem", ""))[:10] for one in collect(node, 1000, 0.0)} == {"the budget"}
