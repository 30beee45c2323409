"""check_ps_loadavg and check_ps_kswapd."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.ps_load import check_ps_kswapd, check_ps_loadavg
from tests.support.processes import INIT, KSWAPD0, KSWAPD1, NODE, Process, node

LOAD = {"/proc/loadavg": "15.60 9.00 4.99 17/528 53271\n"}


def loadavg(*words):
    return check_ps_loadavg(FakeHost(LOAD), **find("check_ps_loadavg").parse(words))


@pytest.mark.parametrize("words", [("64",), ("", "64"), ("", "", "64"), ("16", "16", "16"), ("", "", "5"), ()])
def test_a_load_below_its_limit_passes(words):
    assert loadavg(*words).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("15",), "1-minute load average too high:  15 >= 15"),
        (("", "1"), "5-minute load average too high:  9 >= 1"),
        (("", "", "4"), "15-minute load average too high:  4 >= 4"),
        (("16", "8", "1"), "5-minute load average too high:  9 >= 8"),
        (("15.5",), "1-minute load average too high:  15.6 >= 15.5"),
        (("08",), "1-minute load average too high:  15 >= 8"),
    ],
)
def test_a_load_that_reaches_its_limit_fails_in_lbnl_words(words, message):
    outcome = loadavg(*words)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)
    assert [metric.value for metric in outcome.metrics] == [15.6, 9.0, 4.99]


def test_load_that_cannot_be_read_is_unknown():
    assert check_ps_loadavg(FakeHost(), 1).verdict is Verdict.UNKNOWN
    assert check_ps_loadavg(FakeHost({"/proc/loadavg": "what"}), 1).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("limit", "ratio"), [(1800, 5), (900, 4), (600, 3), (300, 2)])
def test_kswapd_within_tolerance_passes(limit, ratio):
    assert check_ps_kswapd(node(*NODE), limit, ratio).verdict is Verdict.OK


@pytest.mark.parametrize(("limit", "ratio"), [(60, 2), (300, 1)])
def test_kswapd_imbalance_fails_in_lbnl_words(limit, ratio):
    outcome = check_ps_kswapd(node(*NODE), limit, ratio)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, "NUMA imbalance detected among PIDs 138 139.")
    assert outcome.evidence == ("PID 138: 66 s", "PID 139: 23 s")


def test_an_idle_node_beside_a_busy_one_fails_at_half_the_limit():
    host = node(KSWAPD0, KSWAPD1._replace(cpu=0))

    assert check_ps_kswapd(host, 100, 1000).verdict is Verdict.CRIT
    assert check_ps_kswapd(host, 200, 1000).verdict is Verdict.OK


def test_one_numa_node_has_nothing_to_compare():
    assert check_ps_kswapd(node(INIT, KSWAPD0), 1, 1).verdict is Verdict.OK
    assert check_ps_kswapd(node(INIT), 1, 1).verdict is Verdict.SKIP


def test_a_program_called_kswapd_is_no_kernel_thread():
    assert (
        check_ps_kswapd(node(KSWAPD0, Process(7, "/tmp/kswapd9", name="kswapd9", cpu=9999)), 1, 1).verdict is Verdict.OK
    )


def test_kswapd_actions_are_taken_in_turn():
    host = node(*NODE)

    assert check_ps_kswapd(host, 60, 2, ["log", "syslog"]).verdict is Verdict.WARN
    assert host.system.done == ["syslog check_ps_kswapd:  NUMA imbalance detected among PIDs 138 139."]
    assert check_ps_kswapd(host, 60, 2, ["ignore", "die"]).verdict is Verdict.OK
    assert check_ps_kswapd(host, 60, 2, ["log", "die"]).verdict is Verdict.CRIT
    with pytest.raises(BadArguments, match="kill"):
        find("check_ps_kswapd").parse(["60", "2", "kill"])


def test_kswapd_that_cannot_be_read_is_unknown():
    assert check_ps_kswapd(node(), 1, 1).verdict is Verdict.UNKNOWN
