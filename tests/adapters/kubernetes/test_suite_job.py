"""The verify step's deep suite by a pinned Job, on a real control plane: the loop, its Jobs, the real `nhc deep run`.

The kubelet is the tests' own: it runs the pod's command and serves its log through the API server. The suite's tool is
fake, and so is the one who repairs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import pytest

from nhc.core.model import DeviceId
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc.marks.ports.runner import NodeRun, NotStarted, RunPhase, RunState
from nhc.remedy.actuators import Actuators
from nhc.remedy.proving import ProofOrder, SuiteProver, proof_run, read_proof, report_in, suite_run
from nhc.remedy.remedy_file import parse
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RepairerSettings
from nhc.store import attempts, deep, episodes
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, node_path
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.repair.job_runner import JobProgram, JobRunner, job_name, manifest
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace
from tests.adapters.test_slurm_gate import TOOL
from tests.support.kube import REPOSITORY, Kube
from tests.support.kube_remedy import ends, settings
from tests.support.new_store import new_store
from tests.support.pod_kubelet import PodKubelet, kubelet
from tests.support.waiting import until

INSTANCE = "aws:///us-east-1a/i-1"


class Repairs:
    """Reboots a node of the plane; what it does besides, a test says."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.sent: List[Rung] = []
        self.rebooted = ""
        self.cures = lambda _rung: None

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return "" if rung in (Rung.REBOOT, Rung.POWER_CYCLE) else "no"

    def look(self, machine: Machine) -> Sighting:
        return Sighting(0.0, machine.node, self._boot(machine.node))

    def send(self, order: Order) -> Sent:
        self.sent.append(order.rung)
        self.cures(order.rung)
        body = {"status": {"nodeInfo": {"bootID": f"boot-{order.key}"}}}
        self.kube.admin.patch(f"{node_path(order.machine.node)}/status", body, STRATEGIC)
        self.rebooted = order.machine.node
        return Sent(Answer.ACCEPTED, "sent")

    def agent(self) -> None:
        """The agent of the node that was rebooted says that it is well."""
        if self.rebooted:
            self.kube.set_condition(self.rebooted, "NhcHealthy", "True", "NodeIsHealthy")

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        done = self._boot(order.machine.node) != before.boot
        return Progress(Stage.DONE if done else Stage.WORKING, "as its boot id says")

    def rights(self) -> Sequence[Right]:
        return ()

    def _boot(self, node: str) -> str:
        return str(self.kube.get(node)["status"].get("nodeInfo", {}).get("bootID", ""))


class Site:
    """One node of the plane with nhc and a suite in its image."""

    def __init__(self, kube: Kube, place: Path, kube_let: PodKubelet) -> None:
        self.kube, self.place = kube, place
        self.node = f"{kube.prefix}-sick"
        body = kube_let.node(self.node, {})
        body["metadata"]["labels"]["test"] = kube.prefix
        body["spec"] = {"providerID": INSTANCE}
        body["status"]["nodeInfo"] = {"bootID": "boot-0"}
        kube.admin.post("/api/v1/nodes", body)
        kube.nodes.append(self.node)
        self.config = str(kube.kubeconfig(place))
        (place / "triad").write_text(TOOL.format(place=place))
        (place / "suite.conf").write_text(
            f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {place}/triad --floor 10\n"
        )
        (place / "bin/nhc").write_text(
            f"#!/bin/sh\nexport NHC_DEEP_DIR={place}/deep NHC_STATE_DIR={place}/state NHC_KUBECONFIG={self.config}\n"
            f"export PYTHONPATH={REPOSITORY}:{REPOSITORY}/adapters\n"
            f"[ -e {place}/status ] && exit $(cat {place}/status)\n"
            "echo 'nhc deep run: a line of stderr' >&2\n"
            f'exec {sys.executable} -m nhc "$@"\n'
        )
        for name in ("triad", "bin/nhc"):
            (place / name).chmod(0o755)
        self.suite = str(place / "suite.conf")

    def runner(self, **more: str) -> JobRunner:
        given = {"image": "nhc@sha256:" + "0" * 64, "namespace": self.kube.namespace, "kubeconfig": self.config,
                 "nhc": "nhc", "service-account": "default", **more}  # fmt: skip
        return JobRunner(given, {})

    def order(self, since: float = 1.0, number: int = 0) -> ProofOrder:
        machine = Machine(self.node, INSTANCE, boot_id="before-the-repair")
        return ProofOrder(machine, self.suite, since, 60.0, number=number)

    def ended(self, run: NodeRun, runner: Optional[JobRunner] = None) -> RunState:
        """Started, where it was not, and followed to its end."""
        runner = runner or self.runner()
        runner.start(run)
        seen: List[RunState] = []

        def over() -> bool:
            seen.append(runner.poll([run])[run.key])
            return seen[-1].phase in (RunPhase.ENDED, RunPhase.LOST, RunPhase.STOPPED)

        until(over, 60, what="the run to end")
        return seen[-1]

    def report(self, number: int = 0, since: float = 1.0) -> Dict[str, Any]:
        """What a suite's run reports."""
        found: Dict[str, Any] = json.loads(report_in(self.ended(suite_run(self.order(since, number))).output))
        return found

    def taken_out(self) -> None:
        """The node as the loop has it: marked by nhc, cordoned."""
        mark = {"metadata": {"annotations": {"nhc/mark": "{}"}}, "spec": {"unschedulable": True}}
        self.kube.admin.patch(node_path(self.node), mark, MERGE_PATCH)

    def jobs(self) -> List[Dict[str, Any]]:
        path = f"/apis/batch/v1/namespaces/{self.kube.namespace}/jobs"
        return sorted(self.kube.admin.items(path), key=lambda one: str(one["metadata"]["name"]))

    def runs(self) -> int:
        path = self.place / "runs"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def site(kube: Kube, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    with kubelet(kube.plane, kube.admin, kube.namespace, tmp_path, path) as running:
        yield Site(kube, tmp_path, running)


def test_a_failed_suite_leads_to_the_next_repair_and_a_passed_one_back_into_service(site: Site, kube: Kube) -> None:
    (site.place / "slow").touch()
    repairs = Repairs(kube)
    repairs.cures = lambda rung: (site.place / "slow").unlink() if rung is Rung.POWER_CYCLE else None
    adapter = Adapter({"NHC_KUBECONFIG": site.config})
    adapter.cluster.selector = f"test={kube.prefix}"
    store, runner = new_store(str(site.place)), site.runner()
    prover = SuiteProver(store, runner, 60.0)
    actuators = Actuators(
        adapter, Repairers([RepairerEntry(RepairerSettings("test", "test"), repairs)], (), (adapter,)), workers=0
    )
    wanted = settings(
        "reboot", "power-cycle", verify=f'healthy-for = "0s"\nsuite = "{site.suite}"\nsuite-limit = "60s"'
    )
    loop = repair_loop(store, wanted, actuators, reports=adapter.condition_reports,
                            suite=prover)  # fmt: skip
    kube.set_condition(site.node, "NhcHealthy", "False", "Xid95", "check_gpu_xid: Xid 95 on gpu3 [action: reboot]")

    try:
        until(ends(loop, store, repairs.agent), 120.0, 0.2)
        with store.read() as connection:
            (row,) = episodes.list_episodes(connection)
            tries = attempts.attempts_of(connection, row.id)
            kept = {one.verdict for one in deep.history(connection, site.node)}
    finally:
        store.close()
        adapter.close()
        runner.close()
    assert row.state == "returned"
    assert [(one.rung, one.outcome) for one in tries] == [("reboot", "succeeded"), ("power-cycle", "succeeded")]
    assert repairs.sent == [Rung.REBOOT, Rung.POWER_CYCLE]
    assert not kube.get(site.node)["spec"].get("unschedulable")
    assert kept >= {"CRIT", "OK"}
    assert (len(site.jobs()), site.runs()) == (2, 3)  # what is slow is measured again
    for job in site.jobs():
        assert job["spec"]["template"]["spec"]["nodeName"] == site.node


def test_whoever_asks_again_follows_the_run_or_reads_its_report_and_starts_none(site: Site) -> None:
    site.taken_out()
    (site.place / "hold").touch()
    run = suite_run(site.order())
    for _two in range(2):
        site.runner().start(run)
    until(site.runs, 60, what="the suite to run")
    (site.place / "hold").unlink()
    assert [site.report()["host"] for _three in range(3)] == [site.node] * 3
    assert (site.runs(), len(site.jobs())) == (1, 1)
    site.report(since=2.0)
    assert (site.runs(), len(site.jobs())) == (1, 2), "a kept report of the node stands for another run"


def test_a_suite_runs_beside_no_pod_but_its_own(site: Site, kube: Kube) -> None:
    site.taken_out()
    path = "/api/v1/namespaces/default/pods"
    work = {
        "metadata": {"name": kube.prefix},
        "spec": {"nodeName": site.node, "containers": [{"name": "c", "image": "i"}]},
    }
    kube.admin.post(path, work)
    try:
        said = site.report()
    finally:
        kube.admin.delete(f"{path}/{kube.prefix}", {"gracePeriodSeconds": 0})
    assert said["verdict"] == "UNKNOWN"
    assert "work runs on" in json.dumps(said)
    assert site.runs() == 0
    assert site.report(number=1)["verdict"] == "OK"


def test_a_run_whose_report_is_gone_is_lost_and_the_next_finds_what_the_node_has_kept(site: Site, kube: Kube) -> None:
    site.taken_out()
    site.report()
    for name in kube.pods():
        kube.admin.delete(f"/api/v1/namespaces/{kube.namespace}/pods/{name}", {"gracePeriodSeconds": 0})
    until(lambda: kube.pods() == [], 60)
    assert site.ended(suite_run(site.order())).phase is RunPhase.LOST
    assert site.report(number=1)["host"] == site.node
    assert (len(site.jobs()), site.runs()) == (2, 1)


def test_a_log_that_the_node_has_lost_is_no_report(site: Site, kube: Kube) -> None:
    site.taken_out()
    site.report()
    (log,) = (site.place / kube.namespace).glob("*/suite")
    log.write_text("unable to retrieve container logs for containerd://1234")  # the kubelet's words, status 200
    assert report_in(site.ended(suite_run(site.order())).output) == ""
    assert site.report(number=1)["host"] == site.node
    assert (len(site.jobs()), site.runs()) == (2, 1)


def test_a_program_that_cannot_begin_is_said_with_its_status(site: Site) -> None:
    (site.place / "status").write_text("2")
    state = site.ended(suite_run(site.order()))
    assert (state.phase, state.status, state.output) == (RunPhase.ENDED, 2, "")


def test_no_pod_is_sent_to_another_machine_or_to_a_kubelet_that_is_not_ready(site: Site, kube: Kube) -> None:
    other = site.order()._replace(machine=Machine(site.node, "aws:///us-east-1a/i-2"))
    with pytest.raises(NotStarted, match="not aws:///us-east-1a/i-2") as error:
        site.runner().start(suite_run(other))
    assert not error.value.later
    kube.set_condition(site.node, "Ready", "False", "KubeletNotReady")
    with pytest.raises(NotStarted, match=r"kubelet of .* is not ready") as error:
        site.runner().start(suite_run(site.order()))
    assert error.value.later
    assert site.jobs() == []


def test_a_log_that_may_not_be_read_is_said_and_nothing_is_run_again(site: Site, kube: Kube) -> None:
    """An account with the rights of repairs alone."""
    site.taken_out()
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "patch"]},
             {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]  # fmt: skip
    subject = [{"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kube.namespace}"
    kube.admin.post(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    kube.admin.post(f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subject})
    nodes = {"metadata": {"name": kube.prefix},
             "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}  # fmt: skip
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    kube.admin.post(f"{rbac}/clusterroles", nodes)
    kube.admin.post(f"{rbac}/clusterrolebindings", {
        "metadata": {"name": kube.prefix}, "subjects": subject,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kube.prefix},
    })  # fmt: skip
    (site.place / "few").mkdir()
    few = str(kube.kubeconfig(site.place / "few", kube.token("default", kube.namespace)))
    runner, run = site.runner(kubeconfig=few), suite_run(site.order())
    for _again in range(2):
        runner.start(run)
        until(lambda: "cannot be read" in runner.poll([run])[run.key].why, 60, what="the log to be refused")
        assert runner.poll([run])[run.key].phase is RunPhase.UNKNOWN
    assert len(site.jobs()) == 1
    missing = [right.name for right in site.runner(kubeconfig=few).rights() if not right.granted]
    assert len(missing) == 1
    assert "pods/log" in missing[0]


def test_a_job_proves_one_gpu_of_a_node_that_works_on(site: Site) -> None:
    """A machine without a GPU says that it has none, under this check's name: that proves nothing."""
    order = ProofOrder(Machine(site.node, INSTANCE), "", 1.0, 60.0, DeviceId("0000:3b:00.0", "GPU-3"))
    text = report_in(site.ended(proof_run(order, 0)).output)
    assert read_proof(text, site.node).passed is None
    (result,) = json.loads(text)["results"]
    assert (result["check"], result["verdict"]) == ("check_gpu_proof", "SKIP")
    assert result["line"].startswith("check_gpu_proof -d GPU-3 -s ")
    (job,) = site.jobs()
    assert job["spec"]["template"]["spec"]["nodeName"] == site.node


ORDER = ProofOrder(Machine("n1"), "quick", 1000.25, 60.0)
PLACE = JobPlace("nhc-system", "image")


def test_a_job_is_named_by_its_run_and_what_looks_like_a_variable_is_none() -> None:
    run = suite_run(ORDER)
    assert job_name(run) != job_name(suite_run(ORDER._replace(number=1)))
    assert len(job_name(run._replace(key="K" * 64))) <= 63
    made = manifest(run._replace(argv=("{nhc}", "$(HOME)", "$1")), PLACE, JobProgram("/opt/nhc"))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/opt/nhc", "$$(HOME)", "$1"]


def test_the_pod_is_the_gates() -> None:
    """The same rights, namespaces and folders as adapters/kubernetes/overlays/gate gives a suite."""
    import yaml

    text = (REPOSITORY / "adapters/kubernetes/overlays/gate/daemonset.yaml").read_text()
    gate = yaml.safe_load(text)["spec"]["template"]["spec"]
    pod = manifest(suite_run(ORDER), PLACE, JobProgram())["spec"]["template"]["spec"]
    for key in ("hostPID", "hostNetwork", "dnsPolicy", "priorityClassName", "tolerations",
                "terminationGracePeriodSeconds"):  # fmt: skip
        assert pod[key] == gate[key], key
    assert pod["volumes"] == [one for one in gate["volumes"] if one["name"] != "settings"]
    (ours,), (theirs,) = pod["containers"], gate["containers"]
    assert ours["volumeMounts"] == [one for one in theirs["volumeMounts"] if one["name"] != "settings"]
    assert {**theirs["securityContext"], "runAsNonRoot": False} == ours["securityContext"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "image: missing"),
        ({"image": "i", "keep": "soon"}, "keep: 'soon' is not a duration"),
        ({"image": "i", "pull-policy": "Often"}, "pull-policy: 'Often' is not one of"),
        ({"image": "i", "imgae": "i"}, "imgae: there is no such key"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(given: Dict[str, str], said: str) -> None:
    with pytest.raises(AdapterError) as error:
        JobRunner(given)
    assert said in str(error.value)


def test_the_job_is_chosen_by_its_table_and_both_tables_are_refused() -> None:
    text = '[verify]\nsuite = "quick"\n[verify.job]\nimage = "i"\n'
    found = parse(text).verify
    assert (found.runner, found.runner_settings) == ("job", {"image": "i"})
    assert parse('[verify]\nsuite = "quick"\n').verify.runner == "ssh"
    with pytest.raises(SettingsError, match=r"remedy.toml:3: verify.job: stands beside verify.ssh"):
        parse(text + '[verify.ssh]\nuser = "nhc"\n')
