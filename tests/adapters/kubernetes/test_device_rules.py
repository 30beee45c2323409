"""A GPU out and its node at work, on a real cluster with a fake DRA driver: the right device, and no other, ever."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.core.limits import Limit
from nhc.marks.policy.devices import DEVICE, DeviceSettings
from nhc.marks.policy.mark_decision import Policy
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced, node_path
from nhc_adapters.kubernetes.controller.controller import Controller
from nhc_adapters.kubernetes.controller.http_server import metrics
from nhc_adapters.kubernetes.devices.rules import NO_EXECUTE, NO_SCHEDULE, TAINT
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from tests.adapters.kubernetes.test_controller import Running, cordoned, marked, settings
from tests.support.dra import Cluster, device, gpu
from tests.support.kube import Kube, environment
from tests.support.waiting import until

KEEP = DeviceSettings(DEVICE)


@pytest.fixture
def cluster(kube: Kube) -> Iterator[Cluster]:
    made = Cluster(kube)
    yield made
    made.close()


@contextlib.contextmanager
def running(cluster: Cluster, *, devices: DeviceRuleSettings | None = None, **more: Any) -> Iterator[Running]:
    chosen = settings(cluster.kube, devices=devices or DeviceRuleSettings(KEEP), **more)
    controller = Running(cluster.kube, chosen)
    controller.start()
    try:
        yield controller
    finally:
        controller.close()


def known(controller: Controller, node: str) -> bool:
    """Whether the controller has the node's devices, so that a fault of one is its own."""
    assert controller.rounds.devices is not None
    return controller.rounds.devices.view.watch.settled.is_set() and bool(
        controller.rounds.devices.view.watch.slices.names(node)
    )


def test_a_device_at_fault_is_taken_out_and_its_node_stays_at_work(cluster: Cluster) -> None:
    node = cluster.node()
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 3)
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        rule = cluster.rules(node)[0]
        assert rule["spec"]["taint"]["key"] == TAINT
        assert rule["spec"]["taint"]["value"] == "GpuEccUncorrectable"
        assert rule["metadata"]["annotations"]["nhc/mark"].startswith(
            "NHC: [node] check_gpu_ecc: gpu3: uncorrectable errors"
        )
        assert not marked(cluster.kube)
        assert not cordoned(cluster.kube, node)
        until(lambda: "nhc_kubernetes_devices_out 1" in metrics(controller))
        cluster.heal(node)
        until(lambda: cluster.out(node) == {})


def test_the_node_is_marked_where_no_rule_can_answer_the_fault(cluster: Cluster) -> None:
    bare, plugin, both = cluster.kube.node("bare", fake=False), "", cluster.node("both")
    plugin = cluster.node("plugin", capacity={"nvidia.com/gpu": "8"})
    with running(cluster) as controller:
        until(lambda: known(controller, both))
        cluster.fail(bare, 1)  # no ResourceSlice has it
        cluster.fail(plugin, 1)  # its device plugin would go on giving it out
        cluster.fail(both, 1, 2)  # two of its devices: the node's
        until(lambda: marked(cluster.kube) == {bare, plugin, both})
        assert cluster.rules() == []


def test_a_fault_whose_tag_was_cut_off_is_the_nodes(cluster: Cluster) -> None:
    node = cluster.node()
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 1, also=" [device: 0000:11:00.0 GPU-")
        until(lambda: marked(cluster.kube) == {node})
        assert cluster.rules() == []


def test_a_rule_follows_its_device_when_the_driver_names_it_anew(cluster: Cluster) -> None:
    node = cluster.node()
    driver = cluster.drivers[node]
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 3)
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        driver.withdraw()  # the plugin starts anew, and the numbers have changed
        until(lambda: not controller.rounds.devices.view.watch.slices.names(node))  # type: ignore[union-attr]
        assert cluster.out(node) == {"gpu-3": NO_SCHEDULE}
        driver.publish([device(f"gpu-{7 - minor}", gpu(node, minor)) for minor in range(8)])
        until(lambda: cluster.out(node) == {"gpu-4": NO_SCHEDULE})
        assert not marked(cluster.kube)


def test_a_mig_device_goes_out_with_its_gpu_and_so_does_a_second_name(cluster: Cluster) -> None:
    node = cluster.node()
    parts = [
        device("gpu-2-mig-3g40gb-0", gpu(node, 2)._replace(pci="", uuid="MIG-0"), parent=gpu(node, 2).uuid),
        device("gpu-vfio-2", gpu(node, 2)._replace(uuid="")),
    ]
    cluster.drivers[node].publish([*cluster.drivers[node].gpus(), *parts])
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 2)
        wanted = {"gpu-2", "gpu-2-mig-3g40gb-0", "gpu-vfio-2"}
        until(lambda: set(cluster.out(node)) == wanted)
        cluster.heal(node)
        until(lambda: cluster.out(node) == {})


def test_ceilings_count_devices_and_a_hold_keeps_its_node_as_it_is(cluster: Cluster) -> None:
    one, two, held = (cluster.node(name) for name in ("one", "two", "held"))
    cluster.client.patch(node_path(held), {"metadata": {"annotations": {"nhc/hold": "under test"}}}, MERGE_PATCH)
    with running(cluster, policy=Policy().with_ceiling(Limit(nodes=1))) as controller:
        until(lambda: all(known(controller, node) for node in (one, two, held)))
        cluster.fail(held, 1)
        until(lambda: controller.says("left alone: nhc/hold: under test"))
        cluster.fail(one, 1)
        until(lambda: cluster.out(one) == {"gpu-1": NO_SCHEDULE})
        cluster.fail(two, 1)
        until(lambda: controller.says("1 of 24 devices in the fleet are out, at most 1"))
        assert cluster.out(two) == cluster.out(held) == {}
        cluster.heal(one)
        until(lambda: controller.rounds.devices is not None and cluster.out(one) == {})
        until(lambda: cluster.out(two) == {"gpu-1": NO_SCHEDULE}, 15)  # before it is due by itself


def test_what_a_lapse_of_the_lease_left_undone_for_a_device_is_done_when_it_is_back(cluster: Cluster) -> None:
    node = cluster.node()
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        until(controller.leading.is_set)
        held = controller.context.allowed
        looked: list[int] = []
        controller.context.allowed = lambda: bool(looked.append(1))
        cluster.fail(node, 3)
        until(lambda: looked)
        assert cluster.rules() == []
        controller.context.allowed = held
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})


def test_a_dry_run_says_which_device_it_would_take_out(cluster: Cluster) -> None:
    node = cluster.node()
    with running(cluster, apply=False) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 3)
        until(lambda: controller.says(f"dry run: would mark {node}/{gpu(node, 3).pci}: check_gpu_ecc"))
        assert cluster.rules() == []


def test_a_node_that_is_gone_takes_its_rules_along_and_others_rules_are_left(cluster: Cluster) -> None:
    node, other = cluster.node("n1"), cluster.node("n2")
    name = f"{cluster.kube.prefix}-mine"
    theirs = {"key": "example.com/maintenance", "effect": "NoSchedule"}
    cluster.client.post(
        cluster.api.rule_path(),
        {
            "apiVersion": f"resource.k8s.io/{cluster.api.rules}",
            "kind": "DeviceTaintRule",
            "metadata": {"name": name},
            "spec": {"deviceSelector": {"pool": other, "device": "gpu-3"}, "taint": theirs},
        },
    )
    try:
        with running(cluster) as controller:
            until(lambda: known(controller, node) and known(controller, other))
            cluster.fail(node, 3)
            cluster.fail(other, 3)
            until(lambda: cluster.out(node) and cluster.out(other))
            cluster.client.delete(node_path(node))
            until(lambda: cluster.out(node) == {})
            cluster.heal(other)
            until(lambda: cluster.out(other) == {})
            assert cluster.client.get(cluster.api.rule_path(name))["spec"]["taint"]["key"] == theirs["key"]
    finally:
        cluster.client.delete(cluster.api.rule_path(name))


def test_the_scheduler_avoids_the_device_and_whoever_holds_it_keeps_it(cluster: Cluster) -> None:
    node = cluster.node(fake=True, count=2)
    cluster.kube.ready(node)
    cluster.claim("before", gpu(node, 0).uuid)
    cluster.pod("before", "before")
    cluster.running("before")
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 0)
        until(lambda: cluster.out(node) == {"gpu-0": NO_SCHEDULE})
        cluster.claim("other", gpu(node, 1).uuid)
        cluster.pod("other", "other")
        cluster.running("other")
        assert cluster.kube.phase("before") == "Running"
        cluster.client.delete(f"/api/v1/namespaces/{cluster.kube.namespace}/pods/before")
        cluster.claim("after", gpu(node, 0).uuid)
        cluster.pod("after", "after")
        about = ("-n", cluster.kube.namespace, "--field-selector", "involvedObject.name=after")
        until(lambda: "cannot allocate all claims" in cluster.kube.plane.kubectl("get", "events", *about).stdout)
        assert cluster.holds("after") == []
        cluster.heal(node)
        cluster.running("after")
        assert cluster.holds("after") == [f"{node}/gpu-0"]


def test_pods_are_evicted_from_the_device_alone_after_a_dry_run(cluster: Cluster) -> None:
    node = cluster.node(fake=True, count=2)
    cluster.kube.ready(node)
    for number in (0, 1):
        cluster.claim(f"c{number}", gpu(node, number).uuid)
        cluster.pod(f"p{number}", f"c{number}")
    for number in (0, 1):
        cluster.running(f"p{number}")
    with running(cluster, devices=DeviceRuleSettings(KEEP, NO_EXECUTE)) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 0)
        until(lambda: cluster.out(node) == {"gpu-0": NO_EXECUTE}, 60)
        until(lambda: cluster.kube.pods() == ["p1"], 60)
        assert controller.says("NoExecute: the dry run says: ")
        until(lambda: len(cluster.rules(node)) == 1)  # the one that asked is gone
        assert cluster.rules(node)[0]["metadata"]["annotations"]["nhc/would-evict"] == "1 pods"


def test_more_pods_than_the_settings_allow_are_not_evicted(cluster: Cluster) -> None:
    node = cluster.node(fake=True, count=1)
    cluster.kube.ready(node)
    cluster.claim("shared", gpu(node, 0).uuid)
    for name in ("a", "b"):
        cluster.pod(name, "shared")
    for name in ("a", "b"):
        cluster.running(name)
    with running(cluster, devices=DeviceRuleSettings(KEEP, NO_EXECUTE, evict_most=1)) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 0)
        until(lambda: controller.says("NoExecute withheld: 2 pods would be evicted, at most 1"), 60)
        until(lambda: len(cluster.rules(node)) == 1)
        assert cluster.out(node) == {"gpu-0": NO_SCHEDULE}
        assert cluster.kube.pods() == ["a", "b"]


def nhc(cluster: Cluster, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nhc", *arguments]
    kubeconfig = str(cluster.kube.kubeconfig(tmp_path))
    return subprocess.run(
        [*argv, "--kubeconfig", kubeconfig], capture_output=True, text=True, check=False, env=environment()
    )


def test_a_person_puts_a_device_back_until_its_fault_has_ended(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.node()
    settings_file = tmp_path / "kubernetes.toml"
    settings_file.write_text(
        f'apply = true\nselector = "test={cluster.kube.prefix}"\nnamespace = "{cluster.kube.namespace}"\n'
        '[devices]\nkeep = "device"\n'
    )
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 3)
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        shown = json.loads(
            nhc(cluster, tmp_path, "status", "kubernetes", "-s", str(settings_file), "-f", "json").stdout
        )
        (one,) = shown[0]["devices"]
        assert (one["device"], one["names"], one["effect"]) == (gpu(node, 3).pci, ["gpu-3"], NO_SCHEDULE)

        done = nhc(cluster, tmp_path, "kubernetes", "release-device", node, "gpu-3", "--by", "Ann")
        assert done.returncode == 0, done.stderr
        assert f"{node}/gpu-3: released; was: check_gpu_ecc" in done.stdout
        cluster.fail(node, 3, also=" again")  # the same fault
        until(lambda: "again" in json.dumps(controller.nodes.objects[node]))
        assert cluster.out(node) == {"gpu-3": "None"}
        text = nhc(cluster, tmp_path, "status", "kubernetes", "-s", str(settings_file)).stdout
        assert "released: by Ann at " in text
        cluster.fail(node, 3, reason="GpuLost")  # another
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        nhc(cluster, tmp_path, "kubernetes", "release-device", node, gpu(node, 3).pci)
        cluster.heal(node)
        until(lambda: cluster.out(node) == {})
        cluster.fail(node, 3)
        until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        assert nhc(cluster, tmp_path, "kubernetes", "release-device", node, "gpu-5").returncode == 1
    done = nhc(
        cluster,
        tmp_path,
        "doctor",
        "kubernetes",
        "-s",
        str(settings_file),
        "--set",
        f"namespace={cluster.kube.namespace}",
    )
    assert "1 nodes publish 8 devices" in done.stdout


def test_what_the_driver_says_is_another_witness(cluster: Cluster) -> None:
    node = cluster.node()
    fatal = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    app = {"key": "gpu.nvidia.com/xid", "value": "109", "effect": "None"}
    harsh = {"key": "gpu.nvidia.com/xid", "value": "31", "effect": "NoSchedule"}
    taints = {1: fatal, 2: app, 3: harsh}
    cluster.drivers[node].publish(
        [
            device(f"gpu-{minor}", gpu(node, minor), taints=[taints[minor]] if minor in taints else ())
            for minor in range(8)
        ]
    )
    with running(cluster) as controller:
        until(lambda: known(controller, node))
        cluster.fail(node, 1, reason="Xid79")
        until(lambda: cluster.out(node) == {"gpu-1": NO_SCHEDULE})
        assert cluster.rules(node)[0]["metadata"]["annotations"]["nhc/witness"] == "gpu.nvidia.com/xid=79 (NoSchedule)"
        report = controller.rounds.fleet.judgement(node).report
        said = [one.outcome.message for one in report.results if one.check == "kubernetes_device_taint"]
        assert any("nhc says that Xid 31 is no fault of the device" in one for one in said)
        cluster.fail(node, 2, reason="Xid109")
        until(lambda: controller.says("nhc says that Xid 109 is fatal"))
        assert set(cluster.out(node)) <= {"gpu-1"}
        assert not marked(cluster.kube)


# Death at each step.


@pytest.mark.parametrize("dies", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("answered", [False, True], ids=["before the server has it", "before the answer is read"])
def test_a_controller_killed_at_any_step_is_taken_over_with_the_right_rules(
    cluster: Cluster, tmp_path: Path, dies: str, answered: bool
) -> None:
    node = cluster.node()
    script = tmp_path / "dying.py"
    script.write_text(f"""
import os, signal, sys
import urllib3
request = urllib3.PoolManager.request
def dying(self, method, url, *rest, **more):
    if method == {dies!r} and "devicetaintrules" in url:
        if {answered}:
            request(self, method, url, *rest, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    return request(self, method, url, *rest, **more)
urllib3.PoolManager.request = dying
from nhc.cli.main import main
sys.exit(main(sys.argv[1:]))
""")
    chosen = tmp_path / "kubernetes.toml"
    chosen.write_text(
        f'apply = true\nselector = "test={cluster.kube.prefix}"\nnamespace = "{cluster.kube.namespace}"\n'
        '[devices]\nkeep = "device"\neffect = "NoExecute"\n'
    )
    kubeconfig = str(cluster.kube.kubeconfig(tmp_path))
    argv = [
        sys.executable,
        str(script),
        "serve",
        "kubernetes",
        "--settings",
        str(chosen),
        "--kubeconfig",
        kubeconfig,
    ]
    if dies == "DELETE":  # deletes come at the end of the dry run, and when the fault has ended
        with running(cluster) as controller:
            until(lambda: known(controller, node))
            cluster.fail(node, 3)
            until(lambda: cluster.out(node) == {"gpu-3": NO_SCHEDULE})
        cluster.heal(node)
    else:
        cluster.fail(node, 3)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, env=environment(), stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is not None, 60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    lease = namespaced(cluster.kube.namespace, "leases", "nhc-controller", "apis/coordination.k8s.io/v1")
    cluster.kube.admin.patch(lease, {"spec": {"leaseDurationSeconds": 1}}, MERGE_PATCH)  # not the 15 of the dead one
    with running(cluster, devices=DeviceRuleSettings(KEEP, NO_EXECUTE)):
        cluster.fail(node, 3)
        until(lambda: cluster.out(node) == {"gpu-3": NO_EXECUTE}, 60)
        until(lambda: len(cluster.rules(node)) == 1)
        cluster.heal(node)
        until(lambda: cluster.rules(node) == [])
    assert not marked(cluster.kube)


def test_fifty_faults_of_sixteen_hundred_devices_take_out_these_fifty(cluster: Cluster) -> None:
    nodes = [cluster.node(f"n{number:03}") for number in range(200)]
    bad = {node: number % 8 for number, node in enumerate(nodes[::4])}
    with running(cluster) as controller:
        until(lambda: all(known(controller, node) for node in nodes), 60)
        for node, minor in bad.items():
            cluster.fail(node, minor)
        until(lambda: len(cluster.rules()) == 50, 60)
        wanted = {node: gpu(node, minor) for node, minor in bad.items()}
        for rule in cluster.rules():
            selected = rule["spec"]["deviceSelector"]
            identity = wanted[selected["pool"]]
            assert selected["device"] == f"gpu-{bad[selected['pool']]}"
            assert rule["metadata"]["annotations"]["nhc/device-id"] == f"{identity.pci} {identity.uuid}"
        # Half of the drivers start anew, with other numbers, while the other half of the faults end.
        for node in list(bad)[:25]:
            cluster.drivers[node].publish([device(f"gpu-{7 - minor}", gpu(node, minor)) for minor in range(8)])
        cluster.heal(*list(bad)[25:])
        until(lambda: len(cluster.rules()) == 25, 60)
        until(lambda: all(cluster.out(node) == {f"gpu-{7 - bad[node]}": NO_SCHEDULE} for node in list(bad)[:25]), 60)
        assert not marked(cluster.kube)
