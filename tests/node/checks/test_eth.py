"""Ethernet ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.ethernet import parse_ethtool_best
from tests.support.judge import judge, judge_all

ETHTOOL = """\
Settings for eno1:
\tSupported ports: [ FIBRE ]
\tSupported link modes:   1000baseKX/Full
\t                        10000baseKR/Full
\t                        25000baseCR/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  100000baseCR4/Full
\tSpeed: 25000Mb/s
"""


def port(name, carrier="1", speed="25000", flags="0x1003", duplex="full", ups=1, downs=0, driver="mlx5_core", **counts):
    base = f"/sys/class/net/{name}"
    counters = {"rx_packets": 0, "tx_packets": 0, "rx_errors": 0, "tx_errors": 0, **counts}
    return {
        f"{base}/type": "1\n", f"{base}/flags": f"{flags}\n", f"{base}/carrier": f"{carrier}\n",
        f"{base}/speed": f"{speed}\n", f"{base}/duplex": f"{duplex}\n",
        f"{base}/carrier_up_count": f"{ups}\n", f"{base}/carrier_down_count": f"{downs}\n",
        f"{base}/device/driver": Symlink(f"../../../bus/pci/drivers/{driver}"),
        **{f"{base}/statistics/{key}": f"{value}\n" for key, value in counters.items()},
    }  # fmt: skip


LOOPBACK = {"/sys/class/net/lo/type": "772\n", "/sys/class/net/docker0/type": "1\n"}
UNUSED = port("eno2", carrier="0", ups=0)
DOWN = port("eno3", carrier="", flags="0x1002", ups=0)


def test_carrier():
    host = FakeHost({**LOOPBACK, **port("eno1"), **UNUSED, **DOWN})

    assert judge(host, "check_eth_carrier").message == "1 Ethernet interface with carrier"
    assert judge(host, "check_eth_carrier eno1").verdict is Verdict.OK
    assert judge(host, "check_eth_carrier eno2").reason == "NoCarrier"
    assert judge(host, "check_eth_carrier eno3").reason == "InterfaceDown"
    assert judge(host, "check_eth_carrier eno9").reason == "NoSuchInterface"


def test_a_port_that_lost_its_carrier():
    host = FakeHost({**port("eno1"), **port("eno2", carrier="0", ups=1, downs=1)})

    assert [(o.verdict, o.target) for o in judge_all(host, "check_eth_carrier")] == [(Verdict.CRIT, "eno2")]


def test_no_port_linked():
    assert judge(FakeHost(UNUSED), "check_eth_carrier").verdict is Verdict.CRIT


@pytest.mark.parametrize("line", ["check_eth_carrier", "check_eth_speed", "check_eth_errors"])
def test_no_ethernet_is_skipped(line):
    assert judge(FakeHost(LOOPBACK), line).reason == "NoEthernet"


def test_speed_against_what_the_port_can_do():
    def node(speed):
        return FakeHost(port("eno1", speed=speed), {"ethtool eno1": ETHTOOL})

    assert judge(node("25000"), "check_eth_speed").verdict is Verdict.OK
    found = judge(node("10000"), "check_eth_speed")
    assert (found.verdict, found.message) == (Verdict.CRIT, "eno1 runs at 10000 Mb/s, 25000 expected")
    assert judge(node("-1"), "check_eth_speed").reason == "SpeedUnknown"


def test_speed_by_option():
    host = FakeHost(port("eno1", speed="10000"))

    assert judge(host, "check_eth_speed").reason == "NoExpectation"
    assert judge(host, "check_eth_speed -m 10G eno1").verdict is Verdict.OK
    assert judge(host, "check_eth_speed -m 25000").verdict is Verdict.CRIT
    assert judge(FakeHost(port("eno1", duplex="half")), "check_eth_speed -m 1G").reason == "HalfDuplex"
    with pytest.raises(BadArguments, match="link speed"):
        judge(host, "check_eth_speed -m fast")


def test_virtual_interfaces_have_no_speed():
    host = FakeHost(port("eth0", speed="-1", driver="virtio_net"))

    assert judge(host, "check_eth_speed").verdict is Verdict.SKIP


def test_errors_are_a_share_of_the_packets():
    host = FakeHost(port("eno1"))
    judge(host, "check_eth_errors")
    host.system.uptime += 300
    for path, text in port("eno1", rx_packets=9800, rx_errors=200).items():
        if "statistics" in path:
            host.write(path, text)

    found = judge(host, "check_eth_errors")
    assert (found.verdict, found.reason, found.target) == (Verdict.WARN, "EthernetErrors", "eno1")
    assert "2.00 % of received packets" in found.message
    assert judge(host, "check_eth_errors -c 2").verdict is Verdict.CRIT
    assert judge(host, "check_eth_errors -w 5").verdict is Verdict.OK
    assert judge(host, "check_eth_errors -n 100k").verdict is Verdict.OK


def test_errors_of_long_ago_are_no_news():
    host = FakeHost(port("eno1", rx_packets=10**6, rx_errors=10**6))
    host.system.uptime = 10**9

    assert judge(host, "check_eth_errors").verdict is Verdict.OK


def test_flaps():
    host = FakeHost(port("eno1", downs=2, ups=3))
    host.system.uptime = 10**6
    assert judge(host, "check_eth_errors").verdict is Verdict.OK
    host.system.uptime += 120
    host.write("/sys/class/net/eno1/carrier_down_count", "5\n")

    assert judge(host, "check_eth_errors").reason == "LinkFlaps"
    assert judge(host, "check_eth_errors -f 0").verdict is Verdict.OK


def test_statistics_that_cannot_be_read():
    assert judge(FakeHost(port("eno1", rx_packets="junk")), "check_eth_errors").verdict is Verdict.UNKNOWN


def test_best_supported_mode():
    assert parse_ethtool_best(ETHTOOL) == 25000
    assert parse_ethtool_best("Settings for eth0:\n\tSupported link modes:   Not reported\n") is None


@pytest.mark.thorough
@given(st.text())
def test_parser_never_fails(text):
    parse_ethtool_best(text)
    parse_ethtool_best("Supported link modes:" + text)


def test_one_statistic_that_cannot_be_read_does_not_vanish():
    host = FakeHost({**port("eno1"), "/sys/class/net/eno1/statistics/rx_errors": Symlink("/proc/self/mem")})
    found = judge(host, "check_eth_errors")
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "Unreadable", "eno1")
    assert "EIO" in found.message
