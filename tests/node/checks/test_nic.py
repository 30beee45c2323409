"""What RDMA ports are for, and one that has no link beside its peers."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.checks.nic import default_interfaces, roles
from tests.support.judge import judge, judge_all
from tests.support.nvml.fake import ADDRESSES, pci_tree
from tests.support.rdma import device

ROUTE = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "{}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
LOCAL = "{}\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
DOWN = {"state": "1: DOWN", "phys": "2: Polling"}


def placed(name, address, root, **kind):
    """An RDMA device on the PCI bus."""
    at = f"/sys/devices/pci0000:{root}/{address}"
    files = device(name, **kind)
    moved = {path.replace(f"/sys/class/infiniband/{name}/device", at): text for path, text in files.items()}
    return {**moved, f"/sys/class/infiniband/{name}/device": Symlink(f"../../../devices/pci0000:{root}/{address}")}


def node(down=(), second=(), route="eth0", flat=False, gpus=True, **more):
    """Eight GPUs with an adapter each on its root, two adapters for storage and one dual-port card on another root."""
    tree = pci_tree() if gpus else {"/proc/bus/pci/devices": ""}
    files = {}
    for index, gpu in enumerate(ADDRESSES):
        root = "00" if flat else gpu[5:7]
        if gpus:
            tree = {path.replace(f"/sys/bus/pci/devices/{gpu}", f"/sys/devices/pci0000:{root}/{gpu}"): text
                    for path, text in tree.items()}  # fmt: skip
            files[f"/sys/bus/pci/devices/{gpu}"] = Symlink(f"../../../devices/pci0000:{root}/{gpu}")
        nic = f"0000:{root if not flat else f'1{index}'}:08.0"
        files |= placed(f"mlx5_{index}", nic, root, netdev=f"ib{index}", **(DOWN if index in down else {}))
    root = "00" if flat else "f0"
    for index in (8, 9):
        kind = {"board": "MT_0000000225", "layer": "Ethernet", "netdev": f"st{index}"}
        files |= placed(f"mlx5_{index}", f"0000:f{index}:00.0", root, rate=100, **kind)
    for function in (0, 1):
        kind = {"board": "MT_0000000111", "layer": "Ethernet", "netdev": f"eth{function}"}
        kind |= DOWN if function in second else {}
        files |= placed(f"mlx5_1{function}", f"0000:e1:00.{function}", root, rate=100, **kind)
    return FakeHost({**tree, **files, "/proc/net/route": ROUTE + DEFAULT.format(route) + LOCAL.format("ib0"), **more})


def by_role(host):
    found = {}
    for one in roles(host):
        found.setdefault(one.role, []).append(one.port.device)
    return found


COMPUTE = [f"mlx5_{index}" for index in range(8)]


def test_by_place_on_the_bus_and_default_route():
    told = {"compute": COMPUTE, "storage": ["mlx5_8", "mlx5_9", "mlx5_11"], "management": ["mlx5_10"]}
    assert by_role(node()) == told
    bond = {f"/sys/class/net/{name}/x": "" for name in ("bond0.7/lower_bond0", "bond0/lower_eth0", "bond0/lower_eth1")}
    assert default_interfaces(node(route="bond0.7", **bond)) == {"bond0.7", "bond0", "eth0", "eth1"}
    assert by_role(node(route="bond0.7", **bond))["management"] == ["mlx5_10", "mlx5_11"]


def test_a_virtual_machine_shows_one_root_and_the_most_of_a_model_are_for_compute():
    assert by_role(node(flat=True)) == by_role(node())
    assert by_role(node(gpus=False))["storage"][:8] == COMPUTE  # no accelerator: nothing computes over the fabric


def test_ipv6_has_a_default_route_too():
    six = {"/proc/net/ipv6_route": f"{'0' * 32} 00 {'0' * 32} 00 fe80{'0' * 28} 00000400 1 0 00000003     eth0\n"
           f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 1 0 00200200       lo\n"}  # fmt: skip
    assert default_interfaces(FakeHost(six)) == {"eth0"}


@pytest.mark.parametrize(
    ("down", "second", "targets"),
    [
        ((), (), []),
        ((3,), (), ["mlx5_3:1"]),
        ((3, 4, 5), (), ["mlx5_3:1", "mlx5_4:1", "mlx5_5:1"]),
        ((0, 1, 2, 3), (), []),  # half of them: nobody can say which half is right
        ((), (1,), []),  # the second port of a card that has no peer
    ],
)
def test_a_port_without_a_link_beside_its_peers(down, second, targets):
    found = judge_all(node(down, second), "check_nic_roles")
    assert [(o.reason, o.target) for o in found if o.verdict is Verdict.WARN] == [("NicNoLink", t) for t in targets]
    critical = judge_all(node(down, second), "check_nic_roles -c")
    assert [o.target for o in critical if o.verdict is Verdict.CRIT] == targets


def test_second_ports_that_nobody_cables_are_no_fault():
    files = {}
    for index in range(4):
        for function in (0, 1):
            kind = DOWN if function else {}
            files |= placed(f"mlx5_{2 * index + function}", f"0000:{index + 10}:00.{function}", f"{index + 10}", **kind)
    assert judge(FakeHost(files), "check_nic_roles").verdict is Verdict.OK


def test_without_rdma_there_is_nothing_to_judge():
    assert judge(FakeHost(), "check_nic_roles").reason == "NoRdmaPort"
