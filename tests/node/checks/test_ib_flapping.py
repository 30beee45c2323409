"""Flapping links, from logs with every kind of time stamp and from counters: Azure's check without its defects."""

import gzip
import os
import time

import pytest

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.carrier import parse_losses
from tests.support.judge import judge, judge_all
from tests.support.rdma import device

NOW = 1_700_000_000.0
IB = device("mlx5_ib0", netdev="ib0")
LOG = "/var/log/syslog"


def iso(when):
    return time.strftime("%Y-%m-%dT%H:%M:%S.123456+00:00", time.gmtime(when))


def bsd(when):
    return time.strftime("%b %e %H:%M:%S", time.localtime(when))


def lines(count, stamp=iso, interface="ib0", first=3600, host="gpu-ib-07"):
    return "".join(
        f"{stamp(NOW - first - 60 * index)} {host} systemd-networkd[812]: {interface}: Lost carrier\n"
        for index in reversed(range(count))
    )


@pytest.mark.parametrize("stamp", [iso, bsd])
def test_five_losses_in_a_day_are_flapping(stamp):
    host = FakeHost({**IB, LOG: lines(5, stamp)})

    found = judge(host, f"check_ib_link_flapping 24 5 {LOG}")

    assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "IbLinkFlapping", "ib0")
    assert found.message.startswith("IB link flapping detected: ib0 was lost 5 times in 1d (")


def test_four_are_not():
    assert judge(FakeHost({**IB, LOG: lines(4)}), "check_ib_link_flapping").verdict is Verdict.OK


def test_one_argument_alone_sets_the_hours():
    host = FakeHost({**IB, LOG: lines(5, first=7200)})

    assert judge(host, "check_ib_link_flapping 1").verdict is Verdict.OK
    assert judge(host, "check_ib_link_flapping 6").verdict is Verdict.CRIT


def test_losses_count_by_interface():
    text = lines(3) + lines(3, interface="ib1") + lines(9, interface="eth0")

    assert judge(FakeHost({**IB, LOG: text}), "check_ib_link_flapping").verdict is Verdict.OK
    assert judge(FakeHost({**IB, LOG: text}), "check_ib_link_flapping 24 3").verdict is Verdict.CRIT


def test_the_interface_of_a_roce_port_counts_whatever_its_name():
    host = FakeHost({**device("mlx5_0", layer="Ethernet", netdev="ens1np0"), LOG: lines(6, interface="ens1np0")})

    assert judge(host, "check_ib_link_flapping").target == "ens1np0"


def test_a_host_name_is_no_interface():
    text = "".join(f"{iso(NOW - 60 * i)} ibnode1 dhcpcd[7]: eth0: carrier lost\n" for i in range(9))

    assert judge(FakeHost({**IB, LOG: text}), "check_ib_link_flapping").verdict is Verdict.OK


def test_what_happened_before_this_boot_does_not_count():
    host = FakeHost({**IB, LOG: lines(9, first=50000)})
    host.system.uptime = 40000.0

    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK


def test_one_loss_that_two_programs_log_is_one():
    text = "".join(
        f"{iso(NOW - 60 * i)} n1 systemd-networkd[8]: ib0: Lost carrier\n"
        f"{iso(NOW - 60 * i)} n1 kernel: [ 99.5] mlx5_core 0101:00:00.0 ib0: Link down\n"
        for i in range(3)
    )

    assert judge(FakeHost({**IB, LOG: text}), "check_ib_link_flapping").verdict is Verdict.OK
    assert judge(FakeHost({**IB, LOG: text}), "check_ib_link_flapping 24 3").verdict is Verdict.CRIT


def test_a_log_is_read_on_from_where_the_last_run_stopped_and_across_a_rotation():
    host = FakeHost({**IB, LOG: lines(2, first=9000)})
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK

    with open(host.path(LOG), "a") as file:
        file.write(lines(1, first=5000))
    os.rename(host.path(LOG), host.path(LOG + ".1"))
    host.write(LOG, lines(2, first=100))

    found = judge(host, "check_ib_link_flapping")
    assert (found.verdict, "lost 5 times" in found.message) == (Verdict.CRIT, True)


def test_a_rotated_log_may_be_compressed():
    host = FakeHost({**IB, LOG: lines(2), LOG + ".2.gz": gzip.compress(lines(4, first=20000).encode())})

    assert judge(host, f"check_ib_link_flapping 24 5 {LOG}").verdict is Verdict.OK
    assert judge(host, f"check_ib_link_flapping 24 4 {LOG} {LOG}.2.gz").verdict is Verdict.CRIT


def test_a_log_that_was_asked_for_and_is_not_there_is_unknown():
    assert judge(FakeHost(IB), "check_ib_link_flapping 24 5 /var/log/nothing").reason == "LogUnreadable"
    assert judge(FakeHost(IB), "check_ib_link_flapping").verdict is Verdict.OK
    broken = FakeHost({**IB, "/x.gz": "no gzip"})
    assert judge(broken, "check_ib_link_flapping 24 5 /x.gz").reason == "LogUnreadable"


def test_lines_whose_time_nothing_tells_are_unknown():
    text = "ib0: Lost carrier\n" * 5

    assert judge(FakeHost({LOG: text}), f"check_ib_link_flapping 24 5 {LOG}").reason == "LogStampUnknown"


def test_the_ports_own_counter_tells_without_a_log():
    host = FakeHost({**device("mlx5_ib0", netdev="ib0", counters={"link_downed": 40})})
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK

    host.write("/sys/class/infiniband/mlx5_ib0/ports/1/counters/link_downed", "45\n")
    host.system.uptime += 600
    host.forget()

    found = judge(host, "check_ib_link_flapping")
    assert (found.verdict, "lost 5 times" in found.message) == (Verdict.CRIT, True)


def test_the_interfaces_counter_counts_from_its_beginning():
    host = FakeHost({**IB, "/sys/class/net/ib0/carrier_down_count": "6\n"})
    host.system.uptime = 3600.0

    found = judge(host, "check_ib_link_flapping")
    assert (found.verdict, "carrier_down_count" in found.message) == (Verdict.CRIT, True)


def test_a_damaged_memory_starts_anew():
    host = FakeHost({**IB, LOG: lines(5)})
    host.memory.update("carrier-losses", lambda stored: stored.update(boot="", logs={LOG: ["x", -1, None]}))

    assert judge(host, "check_ib_link_flapping").verdict is Verdict.CRIT


def test_bad_arguments_are_named():
    for words in ("x", "24 0", "24 five"):
        with pytest.raises(BadArguments):
            judge_all(FakeHost(IB), f"check_ib_link_flapping {words}")


@pytest.mark.parametrize("line", [
    "<30>Nov 14 22:00:00 n1 NetworkManager[9]: <info>  [1700.1] device (ib0): carrier: link disconnected",
    "2023-11-14T22:00:00Z n1 systemd-networkd[812]: ib0: Lost carrier",
    "1 2023-11-14T22:00:00Z n1 systemd-networkd 812 - - ib0: Lost carrier",
    "[ 5000.1] mlx5_core 0101:00:00.0 ib0: Link down",
])  # fmt: skip
def test_every_program_that_logs_a_loss(line):
    (loss,) = parse_losses(line, NOW, NOW - 100000)

    assert loss.interface == "ib0"
    assert loss.when is not None
