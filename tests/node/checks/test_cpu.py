"""Governor, frequency and clocksource; huge pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.memory_pages import asked_at_boot
from tests.support.judge import judge

POLICIES = "/sys/devices/system/cpu/cpufreq"
CLOCK = "/sys/devices/system/clocksource/clocksource0"


def cpus(*policies, **more):
    files = {}
    for number, (governor, ceiling, maximum, now) in enumerate(policies):
        base = f"{POLICIES}/policy{number}"
        files.update({
            f"{base}/scaling_governor": f"{governor}\n", f"{base}/scaling_max_freq": f"{ceiling}\n",
            f"{base}/cpuinfo_max_freq": f"{maximum}\n", f"{base}/scaling_cur_freq": f"{now}\n",
        })  # fmt: skip
    return FakeHost({**files, **more})


FAST = ("performance", 3800000, 3800000, 3500000)
SAVING = ("powersave", 3800000, 3800000, 800000)
CAPPED = ("performance", 2000000, 3800000, 2000000)


def test_governor():
    assert judge(cpus(FAST, FAST), "check_cpu_governor").verdict is Verdict.OK
    found = judge(cpus(FAST, SAVING), "check_cpu_governor")
    assert (found.verdict, found.evidence) == (Verdict.WARN, ("policy1 powersave",))
    assert judge(cpus(FAST, SAVING), "check_cpu_governor performance powersave").verdict is Verdict.OK


def test_frequency():
    assert judge(cpus(FAST, FAST), "check_cpu_frequency").verdict is Verdict.OK
    found = judge(cpus(FAST, CAPPED), "check_cpu_frequency")
    assert (found.verdict, found.reason) == (Verdict.WARN, "CpuCapped")
    assert "policy1 at 2.00 of 3.80 GHz" in found.message
    assert judge(cpus(SAVING, SAVING), "check_cpu_frequency").verdict is Verdict.OK  # idle is no fault
    assert judge(cpus(SAVING, SAVING), "check_cpu_frequency -m 50%").verdict is Verdict.CRIT


def test_frequency_skip_and_unknown():
    for line in ("check_cpu_governor", "check_cpu_frequency"):
        assert judge(FakeHost(), line).verdict is Verdict.SKIP
        assert judge(cpus(("", "x", "y", "z")), line).verdict is Verdict.UNKNOWN
    assert judge(cpus(("performance", 2, 2, "junk")), "check_cpu_frequency -m 50").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("current", "verdict"),
    [
        ("tsc", Verdict.OK),
        ("kvm-clock", Verdict.OK),
        ("arch_sys_counter", Verdict.OK),
        ("hpet", Verdict.CRIT),
        ("acpi_pm", Verdict.CRIT),
    ],
)
def test_clocksource(current, verdict):
    host = FakeHost(
        {f"{CLOCK}/current_clocksource": f"{current}\n", f"{CLOCK}/available_clocksource": "hpet acpi_pm \n"}
    )

    assert judge(host, "check_cpu_clocksource").verdict is verdict


def test_clocksource_by_name():
    lost = FakeHost({f"{CLOCK}/current_clocksource": "hpet\n", f"{CLOCK}/available_clocksource": "hpet acpi_pm \n"})
    virtual = FakeHost({f"{CLOCK}/current_clocksource": "kvm-clock\n"})

    assert "the TSC is lost" in judge(lost, "check_cpu_clocksource").message
    assert judge(virtual, "check_cpu_clocksource tsc").verdict is Verdict.CRIT
    assert judge(FakeHost(), "check_cpu_clocksource").verdict is Verdict.UNKNOWN


def pages(total=16, free=16, reserved=0, cmdline="quiet", thp="always [madvise] never\n"):
    base = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
    return FakeHost(
        {
            "/proc/cmdline": f"{cmdline}\n",
            "/proc/meminfo": "MemTotal: 1 kB\nHugepagesize:       2048 kB\n",
            f"{base}/nr_hugepages": f"{total}\n", f"{base}/free_hugepages": f"{free}\n",
            f"{base}/resv_hugepages": f"{reserved}\n",
            "/sys/kernel/mm/transparent_hugepage/enabled": thp,
        }
    )  # fmt: skip


def test_fewer_pages_than_the_kernel_was_asked_for():
    asked = "hugepagesz=1G hugepages=16"

    assert judge(pages(cmdline=asked), "check_hugepages").verdict is Verdict.OK
    found = judge(pages(12, 12, cmdline=asked), "check_hugepages")
    assert (found.verdict, found.message) == (Verdict.CRIT, "there are only 12 of 16 huge pages of 1GB")
    assert judge(pages(), "check_hugepages").verdict is Verdict.SKIP


def test_pages_by_option():
    assert judge(pages(), "check_hugepages -s 1G -t 16 -f 16 -T madvise").verdict is Verdict.OK
    assert judge(pages(reserved=9), "check_hugepages -s 1G -f 8").verdict is Verdict.CRIT
    assert judge(pages(), "check_hugepages -s 2M -t 1").verdict is Verdict.CRIT
    assert judge(pages(), "check_hugepages -T never").reason == "TransparentHugepages"
    assert judge(pages(total="junk"), "check_hugepages -s 1G -t 1").verdict is Verdict.UNKNOWN


def test_what_the_command_line_asks_for():
    assert asked_at_boot(["hugepages=64"], 2048) == {2048: 64}
    assert asked_at_boot(["hugepagesz=1G", "hugepages=0:2,1:2", "hugepagesz=2M", "hugepages=9"], 2048) == {
        1 << 20: 4,
        2048: 9,
    }
    assert asked_at_boot(["hugepagesz=junk", "hugepages=4", "hugepages="], None) == {}


@pytest.mark.thorough
@given(st.lists(st.text(max_size=12) | st.sampled_from(["hugepages=1,2", "hugepages=²", "hugepagesz=1G"])))
def test_no_command_line_is_too_strange(words):
    asked_at_boot(words, 2048)


def rapl(*limits, most=350, **files):
    """The power limits of packages as powercap shows them: the lasting one is the second, with a part of its own."""
    tree = {}
    for number, limit in enumerate(limits):
        base = f"/sys/class/powercap/intel-rapl:{number}"
        tree |= {
            f"{base}/name": f"package-{number}\n", f"{base}/enabled": "1\n",
            f"{base}/constraint_0_name": "short_term\n", f"{base}/constraint_0_power_limit_uw": "420000000\n",
            f"{base}/constraint_1_name": "long_term\n", f"{base}/constraint_1_power_limit_uw": f"{limit}000000\n",
            f"{base}/constraint_1_max_power_uw": f"{most}000000\n", f"{base}:0/name": "dram\n",
        }  # fmt: skip
    return FakeHost({**tree, **files})


@pytest.mark.parametrize(
    ("host", "line", "expected"),
    [
        (rapl(350, 350), "check_cpu_power", Verdict.OK),
        (rapl(350, 225), "check_cpu_power", Verdict.WARN),
        (rapl(225, 225), "check_cpu_power", Verdict.WARN),
        (rapl(225, 225), "check_cpu_power 225", Verdict.OK),
        (rapl(350, 225), "check_cpu_power 300", Verdict.WARN),
        (rapl(225, 225, most=0), "check_cpu_power", Verdict.OK),  # the processor tells no maximum
        (rapl(225, 200, most=0), "check_cpu_power", Verdict.WARN),
        (rapl(225, **{"/sys/class/powercap/intel-rapl:0/enabled": "0\n"}), "check_cpu_power", Verdict.SKIP),
        (rapl(350, **{"/sys/class/powercap/intel-rapl:0/constraint_1_power_limit_uw": "junk\n"}), "check_cpu_power",
         Verdict.UNKNOWN),
        (FakeHost(), "check_cpu_power", Verdict.SKIP),
    ],
)  # fmt: skip
def test_power_limits_of_processors(host, line, expected):
    assert judge(host, line).verdict is expected
