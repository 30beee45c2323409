"""Frame sizes of ports, bonds and VLANs."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all

NET = "/sys/class/net"


def port(name, mtu=1500, carrier="1"):
    return {
        f"{NET}/{name}/type": "1\n", f"{NET}/{name}/flags": "0x1003\n", f"{NET}/{name}/carrier": f"{carrier}\n",
        f"{NET}/{name}/mtu": f"{mtu}\n", f"{NET}/{name}/device/": "", f"{NET}/{name}/uevent": f"INTERFACE={name}\n",
    }  # fmt: skip


def bond(name, *ports, mtu=1500):
    files = {f"{NET}/{name}/type": "1\n", f"{NET}/{name}/bonding/": "", f"{NET}/{name}/mtu": f"{mtu}\n"}
    return {**files, **{f"{NET}/{name}/lower_{each}": Symlink(f"../{each}") for each in ports}}


def vlan(name, lower, mtu=1500):
    return {f"{NET}/{name}/uevent": f"DEVTYPE=vlan\nINTERFACE={name}\n", f"{NET}/{name}/mtu": f"{mtu}\n",
            f"{NET}/{name}/lower_{lower}": Symlink(f"../{lower}")}  # fmt: skip


def test_all_as_wanted():
    host = FakeHost({**port("eno1", 9000), **port("eno2", 9000), **bond("bond0", "eno1", "eno2", mtu=9000)})

    assert judge(host, "check_eth_mtu -m 9000").verdict is Verdict.OK
    assert [(o.verdict, o.reason, o.target) for o in judge_all(host, "check_eth_mtu -m 1500 eno2")] == [
        (Verdict.CRIT, "MtuMismatch", "eno2")
    ]


def test_a_port_that_is_smaller_than_its_bond():
    host = FakeHost({**port("eno1", 9000), **port("eno2", 1500), **bond("bond0", "eno1", "eno2", mtu=9000)})

    found = judge_all(host, "check_eth_mtu")
    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.WARN, "MtuInconsistent", "bond0")]
    assert "eno2 below it 1500" in found[0].message


@pytest.mark.parametrize(("size", "expected"), [(1500, Verdict.OK), (9000, Verdict.OK), (9001, Verdict.WARN)])
def test_a_vlan_may_be_smaller_than_what_carries_it_and_not_larger(size, expected):
    host = FakeHost({**port("eno1", 9000), **vlan("eno1.12", "eno1", size)})

    assert judge(host, "check_eth_mtu").verdict is expected


def test_a_port_without_a_link_is_not_judged_unless_it_is_named():
    host = FakeHost({**port("eno1", 9000), **port("eno2", 1500, carrier="0")})

    assert judge(host, "check_eth_mtu -m 9000").verdict is Verdict.OK
    assert judge(host, "check_eth_mtu -m 9000 eno2").reason == "MtuMismatch"


def test_nothing_to_judge():
    assert judge(FakeHost(), "check_eth_mtu -m 9000").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_eth_mtu eno7").reason == "NoSuchInterface"
    assert judge(FakeHost({**port("eno1"), f"{NET}/eno1/mtu": "junk"}), "check_eth_mtu").reason == "Unreadable"
