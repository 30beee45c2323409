"""Errors of RDMA ports as they grow."""

import pytest

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all
from tests.support.rdma import device

NAMES = "symbol_error link_downed port_rcv_errors port_xmit_discards local_link_integrity_errors"
CLEAN = dict.fromkeys(NAMES.split(), 0)


def grow(host, seconds=600.0, group="counters", **values):
    """Let time pass and counters change."""
    host.system.uptime += seconds
    host.system.now += seconds
    for key, value in values.items():
        host.write(f"/sys/class/infiniband/mlx5_0/ports/1/{group}/{key}", f"{value}\n")
    host.forget()


def test_a_clean_port():
    host = FakeHost(device("mlx5_0", counters=CLEAN))

    assert judge(host, "check_ib_errors").message == "1 RDMA ports without errors that count"


def test_what_was_counted_before_the_first_look_is_no_news():
    host = FakeHost(device("mlx5_0", counters={**CLEAN, "symbol_error": 5000}))

    assert judge(host, "check_ib_errors").verdict is Verdict.OK
    grow(host)
    assert judge(host, "check_ib_errors").verdict is Verdict.OK


def test_growth_is_judged_by_the_hour():
    host = FakeHost(device("mlx5_0", counters=CLEAN))
    judge(host, "check_ib_errors")

    grow(host, symbol_error=9)
    assert judge(host, "check_ib_errors").verdict is Verdict.OK
    grow(host, symbol_error=12)
    found = judge(host, "check_ib_errors")
    assert (found.verdict, found.reason, found.target) == (Verdict.WARN, "IbErrors", "mlx5_0:1")
    assert found.evidence == ("symbol_error +12",)

    grow(host, seconds=8000)
    judge(host, "check_ib_errors")
    grow(host, seconds=8000)
    assert judge(host, "check_ib_errors").verdict is Verdict.OK


def test_a_bit_error_rate_above_the_standards_limit_is_critical():
    host = FakeHost(device("mlx5_0", rate=400, counters=CLEAN))
    judge(host, "check_ib_errors")

    grow(host, symbol_error=1439)
    assert judge(host, "check_ib_errors").verdict is Verdict.WARN
    grow(host, symbol_error=1440)
    assert judge(host, "check_ib_errors").verdict is Verdict.CRIT


def test_transport_errors_of_the_driver():
    host = FakeHost(device("mlx5_0", layer="Ethernet", hw_counters={"local_ack_timeout_err": 7, "out_of_sequence": 1}))
    judge(host, "check_ib_errors")

    grow(host, group="hw_counters", local_ack_timeout_err=200, out_of_sequence=10**6)

    found = judge_all(host, "check_ib_errors")
    assert ["local_ack_timeout_err" in o.message for o in found] == [True]
    assert "out_of_sequence +999999" in found[0].evidence
    limited = judge_all(host, "check_ib_errors -l local_ack_timeout_err=0 -l out_of_sequence=1000:5000")
    assert [(o.verdict, "out_of_sequence" in o.message) for o in limited] == [(Verdict.CRIT, True)]


def test_a_counter_at_its_ceiling_tells_nothing():
    host = FakeHost(device("mlx5_0", counters={**CLEAN, "local_link_integrity_errors": 15}))

    assert judge(host, "check_ib_errors").reason == "IbCounterFull"
    assert judge(host, "check_ib_errors -l local_link_integrity_errors=0").verdict is Verdict.OK


def test_a_port_without_counters_is_unknown():
    host = FakeHost(device("mlx5_0", counters={"symbol_error": 0}))
    host.write("/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "N/A (no PMA)\n")

    assert judge(host, "check_ib_errors").reason == "IbCountersUnreadable"


def test_a_bad_limit_is_named():
    for word in ("symbol_errors=1", "symbol_error", "symbol_error=x", "symbol_error=1:y"):
        with pytest.raises(BadArguments, match="-l: "):
            judge(FakeHost(), f"check_ib_errors -l {word}")


def test_lines_with_windows_of_their_own_do_not_disturb_each_other():
    host = FakeHost(device("mlx5_0", counters=CLEAN))
    judge(host, "check_ib_errors")
    for step in range(1, 5):
        grow(host, symbol_error=3 * step)
        judge(host, "check_ib_errors -p 60s -l symbol_error=0")
    assert judge(host, "check_ib_errors").evidence == ("symbol_error +12",)


@pytest.mark.parametrize(("group", "key"), [("counters", "symbol_error"), ("hw_counters", "local_ack_timeout_err")])
def test_one_counter_that_cannot_be_read_does_not_vanish_among_the_others(group, key):
    base = "/sys/class/infiniband/mlx5_0/ports/1"
    host = FakeHost({**device("mlx5_0", counters=CLEAN), f"{base}/{group}/{key}": Symlink("/proc/self/mem")})
    found = judge(host, "check_ib_errors")
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "IbCountersUnreadable", "mlx5_0:1")
    assert f"{key}: " in found.message
    assert "EIO" in found.message
    assert judge(host, f"check_ib_errors -l {key}=0").verdict is Verdict.OK  # it is not judged


def test_a_counter_that_its_driver_does_not_have_is_not_asked_for():
    host = FakeHost(device("mlx5_0", counters={**CLEAN, "symbol_error": "N/A (no PMA)"}))
    assert judge(host, "check_ib_errors").verdict is Verdict.OK
