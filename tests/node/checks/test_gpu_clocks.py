"""Throttling, temperature, power limit, application clocks."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.model import Verdict


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


@pytest.mark.parametrize(
    ("bits", "verdict", "reason"),
    [
        ("0x8", Verdict.CRIT, "GpuHwSlowdown"),
        ("0x48", Verdict.CRIT, "GpuHwThermalSlowdown"),
        ("0x88", Verdict.CRIT, "GpuPowerBrake"),
        ("0x40", Verdict.CRIT, "GpuHwThermalSlowdown"),
        ("0x24", Verdict.WARN, "GpuSwThermalSlowdown"),
        ("0x10001", Verdict.WARN, "GpuSlowdownUnknown"),  # of a driver newer than this list
    ],
)
def test_slowdowns_that_mean_hardware_are_critical(nvml, bits, verdict, reason):
    """Azure's script of this name logs them and never fails."""
    outcome = only(nvml.one("a100", "check_gpu_clock_throttling", f"4.reasons {bits}"))

    assert (outcome.verdict, outcome.reason, outcome.target) == (verdict, reason, "gpu4")


@pytest.mark.parametrize("bits", ["0", "0x1", "0x2", "0x4", "0x10", "0x100"])
def test_what_a_healthy_gpu_shows_passes(nvml, bits):
    assert not bad(nvml.one("a100", "check_gpu_clock_throttling", f"*.reasons {bits}"))


def test_an_old_driver_knows_the_reasons_by_their_old_name(nvml):
    old = ("*.reasons error 13", "*.throttle_reasons 0x1")

    assert not bad(nvml.one("a100", "check_gpu_clock_throttling", *old))
    assert only(nvml.one("a100", "check_gpu_clock_throttling", *old, "1.throttle_reasons 0x8")).target == "gpu1"


def test_reasons_that_cannot_be_read_are_unknown_or_skipped(nvml):
    assert only(nvml.one("a100", "check_gpu_clock_throttling", "1.reasons error 999")).verdict is Verdict.UNKNOWN
    assert nvml.one("a100", "check_gpu_clock_throttling", "*.reasons error 3")[0].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("2.temperature 89", Verdict.CRIT),  # the slowdown limit
        ("2.temperature 85", Verdict.WARN),  # the operating limit
        ("2.field.82 u32 95", Verdict.CRIT),  # the memory's limit
        ("2.temperature 93", Verdict.CRIT),
    ],
)
def test_temperatures_against_the_devices_own_limits(nvml, fault, verdict):
    outcome = only(nvml.one("a100", "check_gpu_temp", fault))

    assert (outcome.verdict, outcome.reason, outcome.target) == (verdict, "GpuTemperature", "gpu2")


def test_below_the_limits_is_fine_and_ahead_of_them_can_be_asked(nvml):
    assert not bad(nvml.one("a100", "check_gpu_temp", "2.temperature 84"))
    assert only(nvml.one("a100", "check_gpu_temp -a 3", "2.temperature 82")).verdict is Verdict.WARN
    assert only(nvml.one("a100", "check_gpu_temp -m 70", "2.temperature 70")).verdict is Verdict.CRIT
    assert only(nvml.one("a100", "check_gpu_temp -M 80", "2.field.82 u32 80")).message.startswith("gpu2: memory")


@pytest.mark.parametrize(("margin", "verdict"), [(1, None), (0, Verdict.WARN), (-1, Verdict.WARN), (-2, Verdict.CRIT)])
def test_newer_gpus_tell_what_is_left_instead_of_limits(nvml, margin, verdict):
    """A B200 tells no absolute limits: T.Limit 0 is the most it may run at, -2 where it slows down."""
    found = nvml.one("b200", "check_gpu_temp", f"2.margin {margin}")

    assert [outcome.verdict for outcome in bad(found)] == ([verdict] if verdict is not None else [])


def test_a_temperature_without_any_limit_is_not_a_pass(nvml):
    gone = [f"*.limit.{number} error 3" for number in range(4)]

    [outcome] = nvml.one("a100", "check_gpu_temp", *gone)
    assert outcome.verdict is Verdict.SKIP
    assert not bad(nvml.one("a100", "check_gpu_temp -m 90", *gone))


def test_a_lowered_power_limit(nvml):
    outcome = only(nvml.one("h100", "check_gpu_power", "6.power_limit 500000"))

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuPowerLimit")
    assert outcome.message == "gpu6: power limit is 500 W, its default 700 W"
    assert not bad(nvml.one("h100", "check_gpu_power", "6.power_limit 750000"))


@pytest.mark.parametrize(
    ("changes", "low"),
    [
        (["*.power_limit 500000"], []),  # a site that saves power: all alike
        (["*.power_limit 500000", "3.power_limit 400000"], ["gpu3"]),
        (["*.power_limit 500000", "3.power_limit 700000"], []),  # one that lost the cap slows nothing
        (["0.power_limit 500000", "1.power_limit 500000"], ["gpu0", "gpu1"]),
        ([f"{number}.power_limit 500000" for number in range(4)], ["gpu0", "gpu1", "gpu2", "gpu3"]),
    ],
)
def test_a_cap_that_most_share_is_the_sites_and_one_below_them_is_a_fault(nvml, changes, low):
    found = bad(nvml.one("h100", "check_gpu_power", *changes))
    assert [(each.target, each.verdict, each.reason) for each in found] == [
        (name, Verdict.CRIT, "GpuPowerLimit") for name in low
    ]
    alone = bad(nvml.one("h100", "check_gpu_power -d 3", *changes))
    assert [each.target for each in alone] == [name for name in low if name == "gpu3"]


def test_a_power_limit_the_site_wants(nvml):
    assert len(bad(nvml.one("h100", "check_gpu_power 650"))) == 8
    assert not bad(nvml.one("h100", "check_gpu_power 650", "*.power_limit 650000"))
    assert not bad(nvml.one("h100", "check_gpu_power -l 650", "*.power_limit 600000"))
    assert bad(nvml.one("h100", "check_gpu_power -l 650", "*.power_limit 700000"))


def test_application_clocks(nvml):
    assert not bad(nvml.one("a100", "check_app_gpu_clocks 1275,1593"))
    outcome = only(nvml.one("a100", "check_app_gpu_clocks", "0.application_clock.0 1005"))
    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuApplicationClocks")
    assert "1005,1593 MHz, its default 1275,1593" in outcome.message
    with pytest.raises(BadArguments, match="not a pair of clocks"):
        find("check_app_gpu_clocks").parse(["1410"])


@pytest.mark.parametrize(
    ("faults", "reason", "target"),
    [
        (["2.temperature 61"], "GpuIdleHot", "gpu2"),
        (["5.power_usage 151000"], "GpuIdlePower", "gpu5"),
        (["5.power_usage 151000", "5.processes 77:1000"], "", ""),  # in use
        (["*.temperature 60", "*.power_usage 150000"], "", ""),
        (["5.power_usage 240000", "*.name NVIDIA B200"], "", ""),
        (["5.power_usage 260000", "*.name NVIDIA B200"], "GpuIdlePower", "gpu5"),
        (["5.power_usage 260000", "*.name NVIDIA GB200"], "", ""),
        (["5.power_usage 400000", "*.name NVIDIA A100-SXM4-80GB"], "", ""),  # no limit is known
    ],
)
def test_a_gpu_without_work_is_cool_and_draws_little(nvml, faults, reason, target):
    found = [(o.reason, o.target) for o in bad(nvml.one("h100", "check_gpu_idle -f 0", *faults))]
    assert found == ([(reason, target)] if reason else [])


@pytest.mark.parametrize(("after", "verdict"), [(540, Verdict.OK), (660, Verdict.WARN)])
def test_a_gpu_may_take_ten_minutes_to_cool(nvml, after, verdict):
    found = nvml.one("h100", "check_gpu_idle", "2.temperature 70", then=["2.temperature 66"], after=after)
    assert max(outcome.verdict for outcome in found) is verdict
    assert not bad(nvml.one("h100", "check_gpu_idle", "2.temperature 70", then=["2.temperature 40"], after=after))


SPINS = ["*.processes 4242:60000000000", "*.utilization 100 3", "*.power_usage 130000"]


@pytest.mark.parametrize(
    ("faults", "stalled"),
    [
        ([], True),
        (["7.processes none", "7.utilization 0 0"], True),  # one that nobody uses says nothing
        (["3.power_usage 480000"], False),  # one of them works
        (["3.utilization 40 1"], False),  # loads its data
        (["*.processes none"], False),
    ],
)
def test_gpus_that_look_busy_and_draw_little_for_long(nvml, faults, stalled):
    found = nvml.one("h100", "check_gpu_stalled", *SPINS, *faults, then=["7.temperature 30"], after=960)
    assert [o.reason for o in bad(found)] == (["GpuStalled"] if stalled else [])
    assert not bad(nvml.one("h100", "check_gpu_stalled", *SPINS, *faults, then=["7.temperature 30"], after=600))


def test_what_a_gpu_does_not_tell_is_no_sign_of_work(nvml):
    found = bad(nvml.one("h100", "check_gpu_stalled -f 0", *SPINS, "3.utilization error 999"))
    assert [(o.verdict, o.target) for o in found] == [(Verdict.UNKNOWN, "gpu3")]


@pytest.mark.parametrize(
    ("faults", "steep"),
    [
        (["2.field.82 u32 60"], ["gpu2"]),  # 31 degrees above the GPU, its peers 9
        (["*.field.82 u32 60"], []),  # all alike: warm memory is this board's way
        (["2.field.82 u32 52"], []),
        (["2.field.82 u32 60", "devices 3"], []),  # too few to say what is usual
    ],
)
def test_memory_much_hotter_than_its_gpu_against_peers(nvml, faults, steep):
    assert [o.target for o in bad(nvml.one("h100", "check_gpu_temp -g 15", *faults))] == steep
    assert not bad(nvml.one("h100", "check_gpu_temp", *faults))
