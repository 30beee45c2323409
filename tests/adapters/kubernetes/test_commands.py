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

from nhc.model import Action, CheckResult, Report, crit, ok
from nhc.render.json import render
from tests.support.kube import Kube, environment, eventually


@pytest.fixture
def nhc(kube: Kube, tmp_path: Path) -> Any:
    config = kube.kubeconfig(tmp_path)

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "nhc", "kubernetes", *words]
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
    return ["--selector", f"test={kube.prefix}", "--namespace", kube.namespace]


def report(node: str, *outcomes: Any) -> str:
    results = tuple(CheckResult("check_gpu_lost", one) for one in outcomes)
    return render(Report(node, "boot", time.time(), 0.1, results))


SICK = crit("GpuLost", "fell off the bus", target="gpu3", action=Action.REBOOT)


def test_from_a_report_to_a_mark_and_back(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)

    assert nhc("publish", stdin=report(node, SICK)).stdout.startswith(f"{node}: NhcHealthy=False NhcGpuProblem=True")
    dry = nhc("sync", *scope(kube))
    assert f"would mark {node}: check_gpu_lost: gpu3: fell off the bus" in dry.stdout
    assert "say --apply" in dry.stdout
    assert not kube.get(node)["spec"].get("unschedulable")

    done = nhc("sync", "--apply", *scope(kube))
    assert (done.returncode, done.stderr) == (0, "")
    assert kube.get(node)["spec"]["unschedulable"] is True
    shown = nhc("status", *scope(kube)).stdout
    assert f"{node}  CRIT  " in shown
    assert "[nhc]" in shown

    nhc("publish", stdin=report(node, ok()))
    assert f"clear {node}: healthy again" in nhc("sync", "--apply", *scope(kube)).stdout
    assert not kube.get(node)["spec"].get("unschedulable")


def test_sync_tells_machines_what_it_did(kube: Kube, nhc: Any) -> None:
    nodes = [kube.node(f"n{number}", fake=False) for number in range(3)]
    for node in nodes:
        kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")

    told = json.loads(nhc("sync", "--apply", "--max-marked", "2", "-f", "json", *scope(kube)).stdout)

    assert (told["dry_run"], told["nodes"]) == (False, 3)
    assert [one["effect"] for one in told["remedies"]] == ["changed", "changed"]
    assert [one["node"] for one in told["withheld"]] == [nodes[2]]


def test_two_never_act_at_once(kube: Kube, nhc: Any) -> None:
    from nhc_adapters.kubernetes.lease import Lease

    Lease(kube.admin, kube.namespace, holder="the-controller", duration=60.0).attempt()
    refused = nhc("sync", "--apply", *scope(kube))
    assert refused.returncode == 3
    assert "the-controller holds the lease" in refused.stderr
    assert nhc("sync", *scope(kube)).returncode == 0  # a dry run may always look


def test_a_drain_shows_what_it_would_do_then_does_it(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("alone", node)

    dry = nhc("drain", node)
    assert f"in the way: {kube.namespace}/alone: nothing would start it again" in dry.stdout
    assert kube.pods() == ["alone"]
    done = nhc("drain", "--apply", "--force", "--reason", "new DIMM", node)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{node}: 1 evicted, 0 left" in done.stdout
    assert kube.pods() == []
    assert "new DIMM" in kube.get(node)["metadata"]["annotations"]["nhc/mark"]

    assert nhc("uncordon", node).stdout == f"{node}: changed\n"
    assert not kube.get(node)["spec"].get("unschedulable")
    kube.plane.kubectl("cordon", node)
    assert nhc("uncordon", node).returncode == 1
    assert kube.get(node)["spec"]["unschedulable"] is True


def test_deep_checks_gate_a_node_in_hyperpods_words(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)
    key = "sagemaker.amazonaws.com/deep-health-check-status"

    def shown() -> tuple[str, bool]:
        found = kube.get(node)
        taints = {taint["key"] for taint in found["spec"].get("taints") or ()}
        return found["metadata"]["labels"][key], "sagemaker.amazonaws.com/node-health-status" in taints

    nhc("state", "--vocabulary", "hyperpod", "checking", node)
    assert shown() == ("InProgress", True)
    nhc("state", "--vocabulary", "hyperpod", "passed", node)
    assert shown() == ("Passed", False)
    refused = nhc("state", "passed", node)
    assert refused.returncode == 2
    assert "they know: checking, faulty, healthy" in refused.stderr


def test_an_acknowledged_finding_ends(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "NhcJobDeviceError", "True", "DeviceErrorInPodLog", "invalid device ordinal")
    assert "NhcJobDeviceError" in nhc("ack", "--by", "alice", node).stdout
    after = kube.condition(node, "NhcJobDeviceError") or {}
    assert (after["status"], after["reason"]) == ("False", "Acknowledged")
    assert after["message"] == "by alice; was: invalid device ordinal"


def test_the_controller_ends_cleanly_on_a_signal_and_leaves_its_lease(kube: Kube, tmp_path: Path) -> None:
    config = kube.kubeconfig(tmp_path)
    node = kube.node(fake=False)
    argv = [sys.executable, "-m", "nhc", "kubernetes", "controller", "--apply", "--max-marked", "100%", *scope(kube)]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=environment(KUBECONFIG=str(config)),
    ) as process:
        kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
        eventually(lambda: kube.get(node)["spec"].get("unschedulable"))
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"{node}: mark: check_kmsg: Xid 79" in said
    assert "Traceback" not in said
    lease = kube.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{kube.namespace}/leases/nhc-controller")
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["sync", "--vocabulary", "klingon"], 2, "no vocabulary 'klingon'"),
        (["sync", "--condition", "A=Maybe"], 2, "not True, False or Unknown"),
        (["sync", "--max-marked", "lots"], 2, "--max-marked: "),
        (["sync", "--settings", "/nowhere.toml"], 2, "/nowhere.toml: No such file"),
        (["sync", "--kubeconfig", "/nowhere"], 3, "kubeconfig /nowhere: no such file"),
        (["publish", "-r", "/nowhere.json"], 2, "/nowhere.json: No such file"),
    ],
)
def test_bad_input_is_one_line(nhc: Any, words: list[str], status: int, said: str) -> None:
    done = nhc(*words)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
