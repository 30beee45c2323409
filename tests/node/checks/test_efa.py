"""Elastic Fabric Adapters."""

import pytest

from nhc.core.check import BadArguments
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge
from tests.support.rdma import device

COUNTERS = {"rx_pkts": 0, "rx_drops": 0, "no_completion_cmds": 0, "retrans_timeout_events": 0}


def efa(count, on_bus=None, **changes):
    files = {}
    for index in range(count):
        files.update(
            device(
                f"rdmap{16 + index}s27",
                rate=100,
                layer="Unknown",
                driver="efa",
                board="",
                hw_counters=COUNTERS,
                **changes,
            )
        )
    lines = "".join(f"00{index:02x}\t1d0fefa2\t0\n" for index in range(count if on_bus is None else on_bus))
    return {**files, "/proc/bus/pci/devices": "0000\t80861237\t0\n" + lines}


def grow(host, **values):
    host.system.uptime += 600
    for key, value in values.items():
        host.write(f"/sys/class/infiniband/rdmap16s27/ports/1/hw_counters/{key}", f"{value}\n")
    host.forget()


def test_all_adapters_are_there():
    host = FakeHost(efa(4))

    assert judge(host, "check_efa_devices 4").message == "4 Elastic Fabric Adapters up"
    assert judge(host, "check_efa_devices").verdict is Verdict.OK
    assert judge(host, "check_efa_devices 2").reason == "EfaSurplus"
    assert judge(FakeHost(), "check_efa_devices").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_efa_errors").verdict is Verdict.SKIP


def test_a_missing_adapter():
    found = judge(FakeHost(efa(31)), "check_efa_devices 32")

    assert (found.reason, found.action) == ("EfaMissing", Action.REBOOT)
    assert judge(FakeHost(), "check_efa_devices 4").verdict is Verdict.CRIT


def test_an_instance_made_without_adapters():
    assert judge(FakeHost(), "check_efa_devices -o 4").verdict is Verdict.SKIP
    assert judge(FakeHost(efa(0, on_bus=4)), "check_efa_devices -o 4").verdict is Verdict.CRIT


def test_an_adapter_without_its_driver():
    assert judge(FakeHost(efa(3, on_bus=4)), "check_efa_devices").reason == "EfaNoDriver"
    assert "on the PCI bus" in judge(FakeHost(efa(3, on_bus=4)), "check_efa_devices 4").message


def test_a_port_that_is_down():
    assert judge(FakeHost(efa(1, state="1: DOWN")), "check_efa_devices").reason == "EfaPortDown"


def test_drops_are_judged_as_a_share_of_what_arrived():
    host = FakeHost(efa(1))
    assert judge(host, "check_efa_errors").verdict is Verdict.OK
    grow(host, rx_pkts=100000, rx_drops=500)
    assert judge(host, "check_efa_errors").verdict is Verdict.OK
    grow(host, rx_pkts=100000, rx_drops=2000)
    assert judge(host, "check_efa_errors").reason == "EfaDrops"


def test_a_device_that_does_not_answer():
    host = FakeHost(efa(1))
    judge(host, "check_efa_errors")
    grow(host, no_completion_cmds=1, retrans_timeout_events=99)

    assert "no_completion_cmds" in judge(host, "check_efa_errors").message
    assert judge(host, "check_efa_errors -l no_completion_cmds=0").verdict is Verdict.OK
    assert judge(host, "check_efa_errors -l no_completion_cmds=0 -l retrans_timeout_events=50").verdict is Verdict.WARN


def test_counters_that_the_device_keeps():
    host = FakeHost(device("efa_0", layer="Unknown", driver="efa"))
    assert judge(host, "check_efa_errors").reason == "EfaCountersUnreadable"
    host.write("/sys/class/infiniband/efa_0/hw_counters/no_completion_cmds", "0\n")
    assert judge(host, "check_efa_errors").verdict is Verdict.OK


def test_a_bad_limit_is_named():
    for word in ("drops=1", "no_completion_cmds", "no_completion_cmds=x"):
        with pytest.raises(BadArguments, match="-l: "):
            judge(FakeHost(), f"check_efa_errors -l {word}")


def test_one_counter_that_cannot_be_read_does_not_vanish():
    host = FakeHost(
        {**efa(2), "/sys/class/infiniband/rdmap16s27/ports/1/hw_counters/no_completion_cmds": Symlink("/proc/self/mem")}
    )
    found = judge(host, "check_efa_errors")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "EfaCountersUnreadable")
    assert "EIO" in found.message
