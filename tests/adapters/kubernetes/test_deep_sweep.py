# ruff: noqa: E501 (lines as tools print them)
"""Whole sweeps on a real Kubernetes plane with 48 nodes: culprits named, real work first, each kind of workload.

The control plane, its scheduler and its Job controller are real; the kubelet is the tests' own and runs the pods' commands;
the tool is fake. nhc runs as the account of adapters/kubernetes/deep, with its rights alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.deep.commands.deep_sweep import suspicion
from nhc.lab.testing.runners import RunnerContract, RunnerWorld
from nhc.marks.ports.adapter import SettingError
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import NodeRun
from nhc.store import deep
from nhc.store import job_restarts as store_jobs
from nhc.store.connect import open_store
from nhc_adapters.kubernetes.api.access import Access, ClusterTls, Credentials
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client
from nhc_adapters.kubernetes.deep_launch import DeepSettings, KubernetesLauncher
from tests.support.group_runs import at_work, group_run, is_running, result
from tests.support.kube import REPOSITORY, environment, started
from tests.support.pod_kubelet import kubelet
from tests.support.ports import free_port
from tests.support.published import install, published, remove
from tests.support.waiting import until
from tests.support.wire import Wire
from tests.support.workload_operators import DEFINITIONS, Operators

COUNT = 48
NODES = [f"n{number:03}" for number in range(1, COUNT + 1)]
SLOW = "n042"
SPACE = "nhc-deep"
WITHIN = 45.0
"""Seconds in which a real pod gets its node although a test is on it: the grace period of 5, and what a loaded machine adds."""

# Prints as nccl-tests does; slow wherever SLOW takes part. While `hold` is there it runs on.
TOOL = r"""#!/bin/sh
while [ -e %(place)s/hold ]; do sleep 0.2; done
[ "${NODE_RANK:-0}" = 0 ] || exit 0
speed=380.00
rank=0
echo "# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20"
for node in $NHC_NODES; do
    echo "#  Rank  $rank Group  0 Pid  1484$rank on  $node    device  0 [0000:1b:00] NVIDIA H100 80GB HBM3"
    [ $node = %(slow)s ] && speed=20.00
    rank=$((rank + 1))
done
time=$((8589934592 / 1000 / ${speed%%%%.*}))
echo "x:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
echo "x:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
echo "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
echo "  8589934592    2147483648     float     sum      -1    $time  $speed  $speed      0    $time  $speed  $speed      0"
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : $speed"
"""


class Site:
    """The plane, its nodes and kubelet, and `nhc deep` as a process with the account's rights."""

    def __init__(self, plane: Any, place: Path) -> None:
        self.plane, self.place = plane, place
        self.admin = self._client(plane.token)
        self.token = self.token_of("nhc-deep")
        self.kubeconfig = place / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(plane.config(self.token)))
        self.children: list[subprocess.Popen[str]] = []
        self.settings = {"image": "registry.example.org/tests:1", "resources": "nvidia.com/gpu=8",
                         "kubeconfig": str(self.kubeconfig)}  # fmt: skip

    def _client(self, token: str) -> Client:
        access = Access(self.plane.url, "default", ClusterTls(str(self.plane.ca)), source="test",
                        credentials=Credentials(token))  # fmt: skip
        return Client(access, connections=8)

    def token_of(self, account: str) -> str:
        """A token of an account of the namespace."""
        base = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{account}/token"
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.admin.post(base, spec)["status"]["token"])

    def launcher(self, **more: str) -> KubernetesLauncher:
        return KubernetesLauncher({**self.settings, **more})

    def url(self, name: str) -> str:
        return f"sqlite:///{self.place}/{name}.db"

    def sweep(self, name: str, *words: str, nodes: str = "", most: int = 100) -> subprocess.Popen[str]:
        given = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        which = ["-w", nodes] if nodes else []
        new = [] if "--go-on" in words else [*which, "--launcher", "kubernetes", "--tasks", "1", "--floor", "300",
                                             "--most", str(most), *given]  # fmt: skip
        tool = [] if "--go-on" in words else ["--", "fake-tool"]
        child = subprocess.Popen(
            [sys.executable, "-m", "nhc", "deep", "sweep", "--every", "0.5s", "--store", self.url(name), *new, *words, *tool],
            env=environment(HOME=str(self.place)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def ended(self, child: subprocess.Popen[str], within: float = 300) -> tuple[int, str, str]:
        out, err = child.communicate(timeout=within)
        assert "Traceback" not in err, err
        return child.returncode, out, err

    def rows(self, name: str) -> list[deep.SweepTest]:
        if not (self.place / f"{name}.db").exists():
            return []
        store = open_store(self.url(name), create=False)
        with store.read() as connection:
            rows = [row for one in deep.newest_sweeps(connection) for row in deep.tests_of(connection, one.id)]
        store.close()
        return rows

    def pods(self, phase: str = "") -> list[dict[str, Any]]:
        found = list(self.admin.items(f"/api/v1/namespaces/{SPACE}/pods"))
        return [pod for pod in found if not phase or pod["status"].get("phase") == phase]

    def left(self) -> list[str]:
        """What stands in the namespace of ours."""
        return [f"{kind}/{one['metadata']['name']}"
                for kind, path in (("jobs", "apis/batch/v1"), ("services", "api/v1"), ("pods", "api/v1"))
                for one in self.admin.items(f"/{path}/namespaces/{SPACE}/{kind}")]  # fmt: skip

    def real_pod(self, name: str, node: str) -> str:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        body = {
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
            },
        }  # fmt: skip
        self.admin.post("/api/v1/namespaces/default/pods", body)
        return f"/api/v1/namespaces/default/pods/{name}"


@pytest.fixture(scope="module")
def deep_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with started(tmp_path_factory.mktemp("deep-plane"), kwok=False, lifecycle=False) as plane:
        place = tmp_path_factory.mktemp("deep")
        (place / "bin").mkdir()
        (place / "bin/fake-tool").write_text(TOOL % {"place": place, "slow": SLOW})
        (place / "bin/fake-tool").chmod(0o755)
        plane.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "adapters/kubernetes/deep"))
        made = Site(plane, place)
        with kubelet(plane, made.admin, SPACE, place / "pods", f"{place}/bin:/usr/bin:/bin") as own:
            for name in NODES:
                made.admin.post("/api/v1/nodes", own.node(name, {"nvidia.com/gpu": "8"}))
                # The node controller, which is not there, would take the taint not-ready off Ready nodes.
                made.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE_PATCH)
            try:
                yield made
            finally:
                (place / "hold").unlink(missing_ok=True)
                for child in made.children:
                    if child.poll() is None:
                        child.kill()
                        child.wait(60)
                    for stream in (child.stdout, child.stderr):
                        if stream is not None:
                            stream.close()
        made.admin.close()


def test_the_slow_one_of_48_nodes_is_named_and_nothing_is_left(deep_plane: Site) -> None:
    leaves = "".join(f"n[{first:03}-{first + 7:03}] spine/leaf{first // 8 + 1}\n" for first in range(1, COUNT, 8))
    (deep_plane.place / "topology").write_text(leaves)
    status, out, err = deep_plane.ended(deep_plane.sweep(
        "whole", "-f", "json", "--topology", str(deep_plane.place / "topology"), "--limit", "2m", nodes="n[001-048]"))  # fmt: skip

    assert status == 1, err
    found = json.loads(out)
    assert [(blame["culprit"], blame["names"]) for blame in found["blames"]] == [("node", [SLOW])], err
    assert found["nodes"] == {**dict.fromkeys(NODES, "passed"), SLOW: "failed"}
    first = [test for test in found["tests"] if test["turn"] == 1]
    assert len(first) == COUNT // 2
    assert all(test["value"] in (20.0, 380.0) for test in found["tests"])
    until(lambda: deep_plane.left() == [], 240, 0.5)  # the garbage collector of the plane takes 20 objects a second


def test_a_real_pod_takes_its_node_within_seconds_and_the_test_says_nothing(deep_plane: Site) -> None:
    (deep_plane.place / "hold").touch()
    child = deep_plane.sweep("preempted", nodes="n[001-006]")
    until(lambda: len(deep_plane.pods("Running")) == 6, 60)
    begun = time.monotonic()
    path = deep_plane.real_pod("train", "n003")
    until(lambda: deep_plane.admin.get(path)["spec"].get("nodeName") == "n003", 60)
    took = time.monotonic() - begun
    until(lambda: any(row.nodes == "n003 n004" and row.state == "unknown" for row in deep_plane.rows("preempted")), 60)
    (deep_plane.place / "hold").unlink()
    deep_plane.admin.delete(path, {"gracePeriodSeconds": 0})

    status, out, err = deep_plane.ended(child)

    assert took < WITHIN
    assert status == 0, err  # it was tested again, once the node was idle
    assert "6 passed" in out
    lost = next(row for row in deep_plane.rows("preempted") if row.nodes == "n003 n004" and row.state == "unknown")
    assert lost.why == "preempted or cancelled: it left no completion marker"
    sys.__stderr__.write(f"\na real pod had its node after {took:.1f} s\n") if sys.__stderr__ else None


def test_a_sweep_killed_midway_goes_on_and_makes_no_test_twice(deep_plane: Site) -> None:
    (deep_plane.place / "hold").touch()
    child = deep_plane.sweep("killed", nodes="n[041-046]")
    until(lambda: len(deep_plane.pods("Running")) == 6, 60)
    uids = {pod["metadata"]["uid"] for pod in deep_plane.pods()}
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    (deep_plane.place / "hold").unlink()
    until(lambda: len(deep_plane.pods("Succeeded")) == 6, 60)  # they end without us, and their output stays

    status, out, err = deep_plane.ended(deep_plane.sweep("killed", "--go-on", "1"))

    assert status == 1, err
    assert f"{SLOW}: bad with 2 proven partners" in out
    assert all(row.state in ("good", "bad") for row in deep_plane.rows("killed"))
    assert len([row for row in deep_plane.rows("killed") if row.turn == 1]) == 3
    assert len(uids) == 6
    until(lambda: deep_plane.left() == [], 60, 0.5)


def fail_a_job(site: Site, nodes: list[str], bad: str) -> None:
    """A Job of one pod a node, of which one fails: its controller deletes the others. The test plays its kubelet."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    pod = {
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }  # fmt: skip
    spec = {"parallelism": len(nodes), "completions": len(nodes), "backoffLimit": 0, "template": {"spec": pod}}
    site.admin.post("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "train"}, "spec": spec})

    def pods() -> dict[str, Any]:
        found = site.admin.items("/api/v1/namespaces/default/pods", labelSelector="job-name=train")
        return {pod["spec"].get("nodeName"): pod for pod in found}

    until(lambda: set(pods()) == set(nodes), 60)
    path = "/api/v1/namespaces/default/pods/{}".format(pods()[bad]["metadata"]["name"])
    site.admin.patch(f"{path}/status", {"status": {"phase": "Failed"}}, MERGE_PATCH)

    until(lambda: set(pods()) == {bad}, 60)


def test_the_nodes_of_a_failed_job_are_tested_together_its_suspect_with_a_proven_partner(deep_plane: Site) -> None:
    fail_a_job(deep_plane, ["n041", SLOW, "n043", "n044"], "n043")
    log = deep_plane.place / "train.log"
    log.write_text(
        "[rank0]: step 12 loss 2.5\n[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    name, url = "Job/default/train", deep_plane.url("failed")
    watch = [sys.executable, "-m", "nhc", "job", "watch", str(log), "--nodes", "n[041-044]", "--per-node", "1",
             "--job", name, "--store", url]  # fmt: skip
    said = subprocess.run(watch, env=environment(HOME=str(deep_plane.place)), capture_output=True, text=True, check=False,
                          timeout=60)  # fmt: skip
    assert f"nhc deep sweep --job {name} --store {url}\n" in said.stdout, said.stderr

    seen_by_job_run(url, "of another of this name, before", "n060")
    status, out, err = deep_plane.ended(deep_plane.sweep("failed", "--job", name, "-f", "json"))

    assert status == 1, err
    assert f"job {name}: n[041-044] by kubernetes and nhc job watch; first {SLOW}\n" in err
    found = json.loads(out)
    assert found["nodes"] == {"n041": "passed", SLOW: "failed", "n043": "passed", "n044": "passed"}
    assert min(test["turn"] for test in found["tests"] if SLOW in test["nodes"].split()) == 2
    until(lambda: deep_plane.left() == [], 60, 0.5)

    # Who may not read jobs has the store; `nhc serve job` knows best, if it is this very object that it saw.
    blind = deep_plane.place / "blind"
    blind.write_text(json.dumps(deep_plane.plane.config(deep_plane.token_of("default"))))
    uid = deep_plane.admin.get("/apis/batch/v1/namespaces/default/jobs/train")["metadata"]["uid"]
    seen_by_job_run(url, uid, "n050")
    store = open_store(url)
    whole = suspicion(name, "kubernetes", deep_plane.settings, store)
    unasked = suspicion(name, "kubernetes", {**deep_plane.settings, "kubeconfig": str(blind)}, store)
    store.close()
    assert (whole.nodes, whole.source) == (("n043", "n050"), "kubernetes and nhc serve job")
    assert unasked.nodes == ("n050",)
    assert unasked.source.startswith("nhc serve job (kubernetes could not be asked: ")
    assert "403 Forbidden" in unasked.source


def seen_by_job_run(url: str, uid: str, nodes: str) -> None:
    """The Job `train` in the store, as `nhc serve job` keeps it."""
    store = open_store(url)
    with store.write() as connection:
        store_jobs.watch(connection, store_jobs.WatchedJob(
            0, "kubernetes", "Job", "default", "train", uid, "", "running", "0.0", nodes, 1, 3, "", "", 1.0, 1.0, None))  # fmt: skip
    store.close()


# The launcher by itself.


def tool(group: str, key: str, *nodes: str) -> NodeRun:
    return group_run(group, nodes, ("fake-tool",), key)


def test_a_test_asked_for_twice_is_made_once_and_ended_once(deep_plane: Site) -> None:
    launcher = deep_plane.launcher()
    (deep_plane.place / "hold").touch()
    try:
        run = tool("twice", "k1", "n030", "n031")
        assert launcher.start(run) == launcher.start(run) == "job/nhc-twice-k1"
        until(lambda: is_running(launcher, run))
        assert sorted(pod["spec"]["nodeName"] for pod in deep_plane.pods()) == ["n030", "n031"]
        assert launcher.idle(["n030", "n031", "n032", "none"]) == {"n032"}
        launcher.stop(run)
        launcher.stop(run)
        until(lambda: not at_work(launcher, run) and deep_plane.pods() == [])
        assert result(launcher, run) is None
    finally:
        (deep_plane.place / "hold").unlink()
        launcher.finish("twice")
        launcher.finish("twice")
    until(lambda: deep_plane.left() == [], 60, 0.5)


class LauncherWorld(RunnerWorld):
    forgets_stopped = True

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.machines = (Machine(NODES[-1]),)

    def runner(self, **more: str) -> KubernetesLauncher:
        return self.site.launcher(kind="job", **more)

    def unreachable(self) -> KubernetesLauncher:
        text = self.site.kubeconfig.read_text()
        (self.folder / "nobody").write_text(text.replace(self.site.plane.url, f"https://127.0.0.1:{free_port()}"))
        return self.runner(kubeconfig=str(self.folder / "nobody"))


class TestLauncher(RunnerContract):
    @pytest.fixture
    def world(self, deep_plane: Site, tmp_path: Path) -> Iterator[LauncherWorld]:
        world = LauncherWorld(deep_plane, tmp_path)
        yield world
        world.runner().finish("contract")
        until(lambda: deep_plane.left() == [], 60, 0.5)


def test_a_node_is_not_idle_for_a_cordon_a_taint_or_its_kubelet(deep_plane: Site) -> None:
    launcher, many = deep_plane.launcher(), NODES[10:35]
    paths = [f"/api/v1/nodes/{name}" for name in many[:3]]
    taint = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
    deep_plane.admin.patch(paths[0], {"spec": {"unschedulable": True}}, STRATEGIC)
    deep_plane.admin.patch(paths[1], {"spec": {"taints": [taint]}}, STRATEGIC)
    silent = {"type": "Ready", "status": "Unknown"}
    deep_plane.admin.patch(f"{paths[2]}/status", {"status": {"conditions": [silent]}}, STRATEGIC)
    assert launcher.idle(many) == set(many[3:])
    assert launcher.idle(many[:4]) == {many[3]}
    tolerant = deep_plane.launcher(tolerations="dedicated=training:NoSchedule")
    assert tolerant.idle(many[:4]) == {many[1], many[3]}


def test_the_account_can_do_no_more_than_its_work(deep_plane: Site) -> None:
    who = f"--as=system:serviceaccount:{SPACE}:nhc-deep"

    def may(*words: str) -> bool:
        said = deep_plane.plane.kubectl("auth", "can-i", *words, who, check=False)
        return bool(said.stdout.strip() == "yes")

    assert may("create", "jobs.batch", "-n", SPACE)
    assert may("get", "pods", "--subresource=log", "-n", SPACE)
    assert not may("create", "jobs.batch", "-n", "default")
    for words in (("patch", "nodes"), ("delete", "pods", "-n", SPACE), ("get", "secrets", "-n", SPACE),
                  ("create", "pods", "-n", SPACE), ("create", "pods", "--subresource=exec", "-n", SPACE),
                  ("get", "pods", "--subresource=log", "-n", "default")):  # fmt: skip
        assert not may(*words), words


@pytest.mark.parametrize(("given", "said"), [
    ({}, "image: missing"), ({"imag": "x"}, "imag: there is no such key"),
    ({"image": "x", "kind": "pod"}, "kind: 'pod' is not one of auto"),
    ({"image": "x", "resources": "gpu"}, "'gpu' is not NAME=QUANTITY"), ({"image": "x", "port": "0"}, "port: 0 is too small"),
    ({"image": "x", "resources": "nvidia.com/gpu=8,x=-1"}, "'x=-1' is not NAME=QUANTITY"),
    ({"image": "x", "tolerations": "a=b:Never"}, "'a=b:Never' is not KEY"), ({"image": "x", "ttl": "soon"}, "ttl: "),
    ({"image": "x", "namespace": "Deep"}, "namespace: 'Deep' is not"), ({"image": "x", "host-network": "maybe"}, "host-network: 'maybe' is neither"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        read(DeepSettings, given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_a_reading_of_settings_gives() -> None:
    found = read(DeepSettings, {"image": "x", "resources": "nvidia.com/gpu=8, cpu=500m", "grace": "2s",
                                "tolerations": "nvidia.com/gpu, a=b:NoExecute, c:NoSchedule"})  # fmt: skip
    assert found.resources == {"nvidia.com/gpu": "8", "cpu": "500m"}
    assert found.devices == ["nvidia.com/gpu"]
    assert found.grace == 2
    assert found.tolerations == (
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
        {"key": "c", "operator": "Exists", "effect": "NoSchedule"},
    )


class OneNode:
    """The API server's answers about one node with a taint, and no pods."""

    def find(self, path: str) -> dict[str, Any]:
        taint = {"key": "dedicated", "value": "research", "effect": "NoSchedule"}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": {"name": path.rpartition("/")[2]}, "spec": {"taints": [taint]}, "status": ready}

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize(
    ("tolerations", "idle"),
    [("dedicated=training:NoSchedule", set()), ("dedicated=research:NoSchedule", {"n1"}), ("dedicated", {"n1"})],
)
def test_a_node_whose_taint_has_another_value_is_not_idle(tolerations: str, idle: set[str]) -> None:
    """A test's pod would wait there for ever."""
    launcher = KubernetesLauncher({"image": "x", "tolerations": tolerations}, OneNode())  # type: ignore[arg-type]
    assert launcher.idle(["n1"]) == idle


# With an operator.

FAKE_MPI = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --allow-run-as-root) shift ;;
        -np|--map-by|--bind-to) shift 2 ;;
        *) break ;;
    esac
done
exec "$@"
"""


@pytest.fixture
def operators(deep_plane: Site) -> Iterator[Operators]:
    kinds = [published(name) for name in DEFINITIONS]
    install(deep_plane.admin, kinds)
    for name, text in (("mpirun", FAKE_MPI), ("sleep-worker", "#!/bin/sh\nexec sleep 600\n")):
        (deep_plane.place / "bin" / name).write_text(text)
        (deep_plane.place / "bin" / name).chmod(0o755)
    running = Operators(deep_plane.admin, SPACE)
    yield running
    running.close()
    remove(deep_plane.admin, kinds)
    assert running.problems == []


@pytest.fixture
def wire(deep_plane: Site) -> Iterator[Wire]:
    """To the API server, which refuses what holds a field that its kind does not have."""
    with Wire(deep_plane.plane, strict=True) as between:
        yield between


@pytest.mark.parametrize(("kind", "word"), [("auto", "mpijob"), ("jobset", "jobset")])
def test_a_test_is_an_object_of_the_operator_that_is_there(
    deep_plane: Site, operators: Operators, wire: Wire, kind: str, word: str
) -> None:
    kubeconfig = deep_plane.place / "strict"
    kubeconfig.write_text(json.dumps(deep_plane.plane.config(deep_plane.token, wire.url)))
    launcher = deep_plane.launcher(kind=kind, kubeconfig=str(kubeconfig))
    (deep_plane.place / "hold").touch()
    try:
        run, second = tool(word, "k1", "n041", SLOW), tool(word, "k2", "n044", "n045")
        assert launcher.start(run) == f"{word}/nhc-{word}-k1"
        until(lambda: is_running(launcher, run), 60, 0.2)
        assert launcher.idle(["n041", SLOW, "n043"]) == {"n043"}
        (deep_plane.place / "hold").unlink()
        until(lambda: not at_work(launcher, run), 60, 0.2)
        found = result(launcher, run)
        assert found is not None
        assert found.status == 0
        assert "# Avg bus bandwidth    : 20.00" in found.output
        (deep_plane.place / "hold").touch()
        launcher.start(second)
        until(lambda: is_running(launcher, second), 60, 0.2)
        launcher.stop(second)
        until(lambda: launcher.idle(["n044", "n045"]) == {"n044", "n045"}, 60, 0.5)
        assert result(launcher, second) is None
    finally:
        (deep_plane.place / "hold").unlink(missing_ok=True)
        launcher.finish(word)
    until(lambda: deep_plane.left() == [], 60, 0.5)
