"""Flapping links, from logs with every kind of time stamp and from counters: Azure's check without its defects."""

import gzip
import os
import time

import pytest

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.carrier import parse_changes
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
    "[ 5000.1] bnxt_en 0000:41:00.0 ib0: NIC Link is Down",
    "[ 5000.1] bond0: (slave ib0): link status definitely down, disabling slave",
    "[ 5000.1] bond0: link status definitely down for interface ib0, disabling it",
])  # fmt: skip
def test_every_program_that_logs_a_loss(line):
    (loss,) = parse_changes(line, NOW, NOW - 100000)

    assert loss.interface == "ib0"
    assert loss.when is not None


UPS = [
    ("systemd-networkd[812]: ib0: Gained carrier", "ib0"),
    ("dhcpcd[7]: ib0: carrier acquired", "ib0"),
    ("NetworkManager[9]: <info>  [1700.1] device (ib0): carrier: link connected", "ib0"),
    ("kernel: mlx5_core 0101:00:00.0 ib0: Link up", "ib0"),
    ("kernel: bnxt_en 0000:41:00.0 ens1np0: NIC Link is Up, 200000 Mbps full duplex", "ens1np0"),
    ("kernel: mlx5_core 0000:1a:00.0 mlx5_0: Port: 1 Link ACTIVE", "mlx5_0:1"),
    ("kernel: hfi1 0000:05:00.0: hfi1_0: 8051: Link up", "hfi1_0:1"),
    ("kernel: bond0: (slave ens1np0): link status definitely up, 100000 Mbps full duplex", "ens1np0"),
    ("kernel: bond0: link status definitely up for interface ens1np0, 100000 Mbps full duplex", "ens1np0"),
]


@pytest.mark.parametrize(("text", "link"), UPS)
def test_every_program_that_logs_a_return(text, link):
    (change,) = parse_changes(f"2023-11-14T22:00:00Z n1 {text}", NOW, NOW - 100000)
    assert (change.interface, change.up) == (link, True)


DRIVER = "kernel: mlx5_core 0101:00:00.0 ib0: Link {}"


def log(*events, form=DRIVER):
    """Events are how long ago in seconds, and the word."""
    return "".join(f"{iso(NOW - ago)} n1 {form.format(word)}\n" for ago, word in events)


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        ([(600, "down"), (594, "up")], Verdict.OK),
        ([(600, "down"), (593, "up")], Verdict.WARN),
        ([(600, "down"), (555, "up")], Verdict.WARN),
        ([(600, "down"), (540, "up")], Verdict.CRIT),
        ([(900, "down"), (868, "up"), (600, "down"), (572, "up")], Verdict.CRIT),  # 60 s in all
        ([(900, "down"), (870, "up"), (600, "down"), (570, "up")], Verdict.CRIT),
        ([(900, "down"), (875, "up"), (600, "down"), (575, "up")], Verdict.WARN),
        ([(9000, "down"), (8940, "up")], Verdict.OK),  # not within the last hour
        ([(600, "down")], Verdict.OK),  # nothing tells when it came back
        ([(600, "up"), (540, "up")], Verdict.OK),
    ],
)
@pytest.mark.parametrize("where", ["log", "ring"])
def test_how_long_a_link_was_away_before_it_came_back(events, verdict, where):
    host = FakeHost(IB)
    if where == "log":
        host.write(LOG, log(*events))
    else:
        up = host.system.uptime
        host.system.kernel = [f"6,{n},{int((up - ago) * 1e6)},-;mlx5_core 0101:00:00.0 ib0: Link {word}"
                              for n, (ago, word) in enumerate(events)]  # fmt: skip
    for _ in range(2):  # the second run remembers what the first one read
        found = judge_all(host, "check_ib_link_flapping")[-1]
        assert (found.verdict, found.reason) == (verdict, "" if verdict is Verdict.OK else "IbLinkOutage")
        host.forget()
    if verdict is not Verdict.OK:
        assert found.target == "ib0"
        assert judge(host, "check_ib_link_flapping -w 0 -c 0").verdict is Verdict.OK


def test_a_link_that_is_set_up_after_boot_was_not_away():
    for before, verdict in (((), Verdict.OK), (((690, "up"),), Verdict.CRIT)):
        host = FakeHost({**IB, LOG: log(*before, (600, "down"), (540, "up"))})
        host.system.uptime = 700.0
        assert judge(host, "check_ib_link_flapping").verdict is verdict


def test_two_programs_that_tell_of_one_outage():
    both = log((600, "down"), (570, "up")) + log(
        (600, "Lost"), (569, "Gained"), form="systemd-networkd[1]: ib0: {} carrier"
    )
    found = judge(FakeHost({**IB, LOG: both}), "check_ib_link_flapping")
    assert found.verdict is Verdict.WARN


PORT = "/sys/class/infiniband/mlx5_ib0/ports/1"


def look(host, state, after, check="check_ib_state"):
    host.forget()
    host.system.now += after
    host.system.uptime += after
    host.write(f"{PORT}/state", "4: ACTIVE\n" if state else "1: DOWN\n")
    host.write(f"{PORT}/phys_state", "5: LinkUp\n" if state else "2: Polling\n")
    judge_all(host, check)


@pytest.mark.parametrize("check", ["check_ib_state", "check_ib_ports 1", "check_ib_link_flapping"])
def test_an_outage_that_only_looks_have_seen(check):
    host = FakeHost(IB)
    look(host, True, 0, check)
    look(host, False, 10, check)
    look(host, True, 20, check)
    found = judge(host, "check_ib_link_flapping")
    assert (found.verdict, found.reason, found.target) == (Verdict.WARN, "IbLinkOutage", "ib0")
    look(host, False, 60, check)
    look(host, False, 30, check)
    look(host, True, 30, check)
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.CRIT
    look(host, True, 3700, check)
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK


def test_a_port_that_was_never_up_was_not_away():
    host = FakeHost(IB)
    look(host, False, 0)
    look(host, False, 60)
    look(host, True, 60)
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK


def test_what_is_not_known_between_two_looks_counts_for_a_minute_at_most():
    host = FakeHost(IB)
    look(host, True, 0)
    look(host, False, 60)
    look(host, True, 3000)
    (found,) = judge_all(host, "check_ib_link_flapping")
    assert found.metrics[0].value == 60.0


def test_lines_are_exact_where_looks_are_not():
    host = FakeHost({**IB, LOG: log((-65, "down"), (-75, "up"))})
    look(host, True, 0)
    look(host, False, 70)
    look(host, True, 30)
    (found,) = judge_all(host, "check_ib_link_flapping")
    assert (found.verdict, found.metrics[0].value) == (Verdict.WARN, 10.0)


def test_damaged_memory_of_looks():
    host = FakeHost(IB)
    host.memory.update("ib-outages", lambda stored: stored.update(boot="", down={"ib0": [1]}, up=7, outages=[["x"], 3]))
    assert judge(host, "check_ib_link_flapping").verdict is Verdict.OK
