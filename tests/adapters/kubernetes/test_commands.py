"""`nhc kubernetes ...` as a person uses it, against a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nhc.core.model import Action, CheckResult, Report, crit, ok
from nhc.core.render.json import render
from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.client import STRATEGIC
from tests.support.kube import Kube, environment
from tests.support.waiting import until


@pytest.fixture
def nhc(kube: Kube, tmp_path: Path) -> Any:
    config = kube.kubeconfig(tmp_path)

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "nhc", *words]
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment(KUBECONFIG=str(config)),
            timeout=60,
        )

    return run


def scope(kube: Kube) -> list[str]:
    return ["--set", f"selector=test={kube.prefix}", "--set", f"namespace={kube.namespace}"]


def report(node: str, *outcomes: Any) -> str:
    results = tuple(CheckResult("check_gpu_lost", one) for one in outcomes)
    return render(Report(node, "boot", time.time(), 0.1, results))


SICK = crit("GpuLost", "fell off the bus", target="gpu3", action=Action.REBOOT)


def test_from_a_report_to_a_mark_and_back(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)

    assert nhc("kubernetes", "publish", stdin=report(node, SICK)).stdout.startswith(
        f"{node}: NhcHealthy=False NhcGpuProblem=True"
    )
    dry = nhc("sync", "kubernetes", *scope(kube))
    assert f"would mark  {node}  check_gpu_lost: gpu3: fell off the bus" in dry.stdout
    assert "1 to do, dry run" in dry.stdout
    assert not kube.get(node)["spec"].get("unschedulable")

    done = nhc("sync", "kubernetes", "--apply", *scope(kube))
    assert (done.returncode, done.stderr) == (0, "")
    assert kube.get(node)["spec"]["unschedulable"] is True
    header, line, counts = nhc("status", "kubernetes", *scope(kube)).stdout.splitlines()
    assert header.split()[:4] == ["NODE", "VERDICT", "STATE", "SINCE"]
    assert line.split()[:3] == [node, "CRIT", "Ready,SchedulingDisabled"]
    assert line[header.index("MARKED BY") :].split()[:2] == ["nhc", "GpuLost"]
    assert line[header.index("DETAILS") :].startswith("check_gpu_lost: gpu3: fell off the bus")
    assert counts == "1 nodes, 1 sick, 1 marked by nhc"

    nhc("kubernetes", "publish", stdin=report(node, ok()))
    assert f"clear  {node}  healthy again" in nhc("sync", "kubernetes", "--apply", *scope(kube)).stdout
    assert not kube.get(node)["spec"].get("unschedulable")


def test_sync_tells_machines_what_it_did(kube: Kube, nhc: Any) -> None:
    nodes = [kube.node(f"n{number}", fake=False) for number in range(3)]
    for node in nodes:
        kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")

    told = json.loads(nhc("sync", "kubernetes", "--apply", "--set", "max-marked=2", "-f", "json", *scope(kube)).stdout)

    assert (told["dry_run"], told["nodes"]) == (False, 3)
    assert [one["effect"] for one in told["remedies"]] == ["changed", "changed"]
    assert [one["node"] for one in told["withheld"]] == [nodes[2]]


def test_status_says_why_since_when_and_what_withholds_a_mark(kube: Kube, nhc: Any) -> None:
    sick, held, silent, well = (kube.node(name, fake=False) for name in ("a-sick", "b-held", "c-silent", "d-well"))
    hour_ago = utc(time.time() - 3600)
    for node, status in ((sick, "False"), (held, "False"), (silent, "True"), (well, "True")):
        kube.set_condition(node, "NhcHealthy", status, "Xid79" if status == "False" else "", "check_kmsg: Xid 79")
    times = {"type": "NhcHealthy", "lastTransitionTime": hour_ago}
    for node, more in ((sick, {}), (silent, {"lastHeartbeatTime": hour_ago})):
        kube.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [{**times, **more}]}}, STRATEGIC)
    kube.plane.kubectl("annotate", "node", held, "nhc/hold=memory test")

    rows = {
        row["node"]: row
        for row in json.loads(nhc("status", "kubernetes", "-f", "json", "--set", "max-marked=0", *scope(kube)).stdout)
    }

    assert (rows[sick]["reasons"], rows[sick]["since"]) == (["Xid79"], hour_ago)
    assert rows[sick]["details"] == ["check_kmsg: Xid 79"]
    assert rows[sick]["withheld"] == "mark: 0 of 4 nodes in the fleet are out, at most 0"
    assert rows[held]["hold"] == "nhc/hold: memory test"
    assert (rows[silent]["verdict"], rows[silent]["reasons"]) == ("UNKNOWN", ["NoReport"])
    assert rows[silent]["since"] == hour_ago
    assert (rows[well]["verdict"], rows[well]["reasons"], rows[well]["withheld"]) == ("OK", [], "")

    text = nhc("status", "kubernetes", "--set", "max-marked=0", *scope(kube)).stdout
    line = next(line for line in text.splitlines() if line.startswith(sick))
    assert "1h" in line
    assert "withheld: mark: " in line
    assert well not in text
    assert text.splitlines()[-1].startswith("4 nodes, 2 sick, 0 marked by nhc, ")
    assert "due: mark" in nhc("status", "kubernetes", "--set", "max-marked=100%", *scope(kube)).stdout


def test_two_never_act_at_once(kube: Kube, nhc: Any) -> None:
    from nhc_adapters.kubernetes.api.lease import Lease

    Lease(kube.admin, kube.namespace, holder="the-controller", duration=60.0).attempt()
    refused = nhc("sync", "kubernetes", "--apply", *scope(kube))
    assert refused.returncode == 3
    assert "the-controller holds the lease" in refused.stderr
    assert nhc("sync", "kubernetes", *scope(kube)).returncode == 0  # a dry run may always look


def test_a_drain_shows_what_it_would_do_then_does_it(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("alone", node)

    dry = nhc("kubernetes", "drain", node)
    assert f"in the way: {kube.namespace}/alone: nothing would start it again" in dry.stdout
    assert kube.pods() == ["alone"]
    done = nhc("kubernetes", "drain", "--apply", "--force", "--reason", "new DIMM", node)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{node}: 1 evicted, 0 left" in done.stdout
    assert kube.pods() == []
    assert "new DIMM" in kube.get(node)["metadata"]["annotations"]["nhc/mark"]

    assert nhc("kubernetes", "uncordon", node).stdout == f"{node}: changed\n"
    assert not kube.get(node)["spec"].get("unschedulable")
    kube.plane.kubectl("cordon", node)
    assert nhc("kubernetes", "uncordon", node).returncode == 1
    assert kube.get(node)["spec"]["unschedulable"] is True


def test_deep_checks_gate_a_node_in_hyperpods_words(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)
    key = "sagemaker.amazonaws.com/deep-health-check-status"

    def shown() -> tuple[str, bool]:
        found = kube.get(node)
        taints = {taint["key"] for taint in found["spec"].get("taints") or ()}
        return found["metadata"]["labels"][key], "sagemaker.amazonaws.com/node-health-status" in taints

    nhc("kubernetes", "state", "--set", "vocabularies=hyperpod", "checking", node)
    assert shown() == ("InProgress", True)
    nhc("kubernetes", "state", "--set", "vocabularies=hyperpod", "passed", node)
    assert shown() == ("Passed", False)
    refused = nhc("kubernetes", "state", "passed", node)
    assert refused.returncode == 2
    assert "they know: checking, faulty, healthy" in refused.stderr


@pytest.mark.parametrize("words", [["sync", "kubernetes", "--apply"], ["serve", "kubernetes"]])
def test_a_bad_pattern_is_one_line_at_the_start(kube: Kube, nhc: Any, tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "kubernetes.toml"
    path.write_text("[podlogs]\nnamespaces = ['a']\npatterns = ['CUDA error (']\n")
    done = nhc(*words, "--settings", str(path), *scope(kube))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{path}:3: podlogs.patterns: 'CUDA error (' is no pattern" in done.stderr


def test_an_acknowledged_finding_ends(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "NhcJobDeviceError", "True", "DeviceErrorInPodLog", "invalid device ordinal")
    assert "NhcJobDeviceError" in nhc("ack", "kubernetes", "--by", "alice", node).stdout
    after = kube.condition(node, "NhcJobDeviceError") or {}
    assert (after["status"], after["reason"]) == ("False", "Acknowledged")
    assert after["message"] == "by alice; was: invalid device ordinal"


@pytest.mark.parametrize("kind", ["NhcHealthy", "Ready", "NhcAllocatableProblem"])
def test_what_says_how_a_node_is_now_cannot_be_acknowledged(kube: Kube, nhc: Any, kind: str) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, kind, "True")
    refused = nhc("ack", "kubernetes", "--condition", kind, node)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"{kind} cannot be acknowledged" in refused.stderr
    assert (kube.condition(node, kind) or {})["status"] == "True"


def test_the_controller_ends_cleanly_on_a_signal_and_leaves_its_lease(kube: Kube, tmp_path: Path) -> None:
    config = kube.kubeconfig(tmp_path)
    node = kube.node(fake=False)
    argv = [sys.executable, "-m", "nhc", "serve", "kubernetes", "--apply", "--set", "max-marked=100%", *scope(kube)]
    log = tmp_path / "log"
    with log.open("w") as output, subprocess.Popen(
        argv, stdout=output, stderr=subprocess.STDOUT, cwd=tmp_path, env=environment(KUBECONFIG=str(config))
    ) as process:  # fmt: skip
        kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
        until(lambda: kube.get(node)["spec"].get("unschedulable"))
        until(lambda: f"{node}: mark: check_kmsg: Xid 79" in log.read_text())  # once the server has answered
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()
    lease = kube.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{kube.namespace}/leases/nhc-controller")
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sync", "kubernetes", "--set", "vocabularies=klingon"], 2, "no vocabulary 'klingon'"),
        (["sync", "kubernetes", "--set", "faults=A=Maybe"], 2, "not True, False or Unknown"),
        (["sync", "kubernetes", "--set", "max-marked=lots"], 2, "--set.max-marked: "),
        (["sync", "kubernetes", "--settings", "/nowhere.toml"], 2, "/nowhere.toml: No such file"),
        (["sync", "kubernetes", "--kubeconfig", "/nowhere"], 3, "kubeconfig /nowhere: no such file"),
        (["kubernetes", "publish", "-r", "/nowhere.json"], 2, "/nowhere.json: No such file"),
    ],
)
def test_bad_input_is_one_line(nhc: Any, words: list[str], status: int, said: str) -> None:
    done = nhc(*words)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["kubernetes", "drain"],
        ["kubernetes", "drain", "--apply"],
        ["kubernetes", "uncordon"],
        ["ack", "kubernetes"],
        ["kubernetes", "state", "checking"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_node_that_there_is_not_is_a_failure_and_the_others_are_served(
    kube: Kube, nhc: Any, words: list[str]
) -> None:
    node = kube.node(fake=False)
    done = nhc(*words, "typo", node)
    assert done.returncode == 1
    assert "typo" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    if "drain" not in words:
        assert node in done.stdout


def test_a_report_of_a_node_that_there_is_not_is_one_line(kube: Kube, nhc: Any) -> None:
    done = nhc("kubernetes", "publish", stdin=report("typo", ok()))
    assert (done.returncode, done.stderr) == (1, "nhc kubernetes: typo: there is no such node (--node names one)\n")


@pytest.mark.parametrize(
    ("given", "status"), [("90", 0), ("1h", 0), ("1.5m", 0), ("500ms", 0), ("soon", 2), ("-5s", 2), ("1y", 2)]
)
def test_a_drains_times_are_read_as_everywhere(kube: Kube, nhc: Any, given: str, status: int) -> None:
    done = nhc("kubernetes", "drain", "--deadline", given, "--grace", given, kube.node(fake=False))
    assert done.returncode == status
    assert (f"'{given}' is not a duration" in done.stderr) == (status == 2)
