"""PCIe links and errors."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

DEVICES = "/sys/bus/pci/devices"
PHYSICAL = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme sse2\n"}
VIRTUAL = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor sse2\n"}
NIC, GPU, NVME, BRIDGE, AUDIO = "0x020000", "0x030200", "0x010802", "0x060400", "0x040300"


def device(address, kind, width="16", speed="16.0", best="16", best_speed="16.0", **more):
    base = f"{DEVICES}/{address}"
    return {
        f"{base}/class": kind,
        f"{base}/vendor": "0x10de",
        f"{base}/device": "0x2330",
        f"{base}/current_link_width": width,
        f"{base}/current_link_speed": f"{speed} GT/s PCIe",
        f"{base}/max_link_width": best,
        f"{base}/max_link_speed": f"{best_speed} GT/s PCIe",
        **{f"{base}/{name}": text for name, text in more.items()},
    }


def test_full_links():
    host = FakeHost({**device("0000:01:00.0", NIC), **device("0000:02:00.0", NVME, "4", best="4")})

    assert judge(host, "check_pcie_link").message == "2 PCIe links at full width and speed"


def test_lost_lanes():
    host = FakeHost({**device("0000:01:00.0", GPU, width="8"), **device("0000:02:00.0", NIC)})
    found = judge_all(host, "check_pcie_link")

    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.CRIT, "PcieWidthDegraded", "0000:01:00.0")]
    assert judge(host, "check_pcie_link --warn-only").verdict is Verdict.WARN


def test_speed_of_an_idle_gpu_counts_only_when_asked_for():
    host = FakeHost(device("0000:01:00.0", GPU, speed="2.5"))

    assert judge(host, "check_pcie_link").verdict is Verdict.OK
    assert judge(host, "check_pcie_link --speed").reason == "PcieSpeedDegraded"


def test_speed_of_a_nic_always_counts():
    assert judge(FakeHost(device("0000:01:00.0", NIC, speed="8.0")), "check_pcie_link").reason == "PcieSpeedDegraded"


def test_bridges_chipset_functions_and_sleeping_devices_are_left_out():
    sleeping = device("0000:03:00.0", GPU, width="1", **{"power/runtime_status": "suspended"})
    bridge, audio = device("0000:01:00.0", BRIDGE, "1"), device("0000:02:00.0", AUDIO, "1")
    host = FakeHost({**bridge, **audio, **sleeping})

    assert judge(host, "check_pcie_link").verdict is Verdict.SKIP
    assert judge(host, "check_pcie_link -d 0000:02:00.0").reason == "PcieWidthDegraded"


def test_functions_of_one_device_are_judged_once():
    host = FakeHost({**device("0000:01:00.0", NIC, "8"), **device("0000:01:00.1", NIC, "8")})

    assert len(judge_all(host, "check_pcie_link")) == 1


def test_devices_chosen_by_id():
    host = FakeHost({**device("0000:01:00.0", GPU, "8"), **device("0000:02:00.0", NIC, vendor="0x15b3")})

    assert judge(host, "check_pcie_link -d 15b3:*").verdict is Verdict.OK
    assert judge(host, "check_pcie_link -d 8086:*").reason == "PcieDeviceMissing"


def test_a_device_that_fell_off_the_bus():
    found = judge(FakeHost(device("0000:01:00.0", GPU, width="63", best="16")), "check_pcie_link")

    assert (found.verdict, found.reason) == (Verdict.CRIT, "PcieDeviceGone")


def test_link_skip_and_unknown():
    assert judge(FakeHost(), "check_pcie_link").verdict is Verdict.SKIP
    assert judge(FakeHost(device("0000:01:00.0", NIC, width="junk")), "check_pcie_link").reason == "PcieLinkUnknown"
    silent = device("0000:01:00.0", NIC, speed="Unknown")
    assert judge(FakeHost(silent), "check_pcie_link").verdict is Verdict.UNKNOWN


def counters(address, fatal=0, nonfatal=0, correctable=0):
    base = f"{DEVICES}/{address}"
    return {
        f"{base}/aer_dev_fatal": f"DLP 0\nMalfTLP {fatal}\nTOTAL_ERR_FATAL {fatal}\n",
        f"{base}/aer_dev_nonfatal": f"DLP 0\nCmpltTO {nonfatal}\nTOTAL_ERR_NONFATAL {nonfatal}\n",
        f"{base}/aer_dev_correctable": f"RxErr {correctable}\nTOTAL_ERR_COR {correctable}\n",
    }


def test_quiet_bus():
    assert judge(FakeHost({**PHYSICAL, **counters("0000:01:00.0")}), "check_pcie_aer").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("errors", "verdict", "reason"),
    [
        ({"fatal": 2}, Verdict.CRIT, "PcieFatalErrors"),
        ({"nonfatal": 2}, Verdict.WARN, "PcieNonfatalErrors"),
        ({"correctable": 20000}, Verdict.WARN, "PcieCorrectableErrors"),
    ],
)
def test_errors_since_boot(errors, verdict, reason):
    found = judge(FakeHost({**PHYSICAL, **counters("0000:01:00.0", **errors)}), "check_pcie_aer")

    assert (found.verdict, found.reason, found.target) == (verdict, reason, "0000:01:00.0")
    assert found.evidence


def test_correctable_errors_are_a_rate():
    host = FakeHost({**PHYSICAL, **counters("0000:01:00.0", correctable=1000)})  # a day's uptime: 0.6 a minute
    assert judge(host, "check_pcie_aer").verdict is Verdict.OK

    host.system.uptime += 600
    for path, text in counters("0000:01:00.0", correctable=1100).items():
        host.write(path, text)
    found = judge(host, "check_pcie_aer")
    assert found.reason == "PcieCorrectableErrors"
    assert "10.0 correctable PCIe errors a minute" in found.message
    assert judge(host, "check_pcie_aer -w 60").verdict is Verdict.OK


def test_nonfatal_errors_pass_after_a_day_and_fatal_ones_only_by_a_reboot():
    nonfatal = FakeHost({**PHYSICAL, **counters("0000:01:00.0", nonfatal=5)})
    fatal = FakeHost({**PHYSICAL, **counters("0000:01:00.0", fatal=1)})
    verdicts = {}
    for hours in range(30):
        for host in (nonfatal, fatal):
            host.system.uptime = 100_000.0 + hours * 3600
            verdicts[host, hours] = judge(host, "check_pcie_aer").verdict

    assert verdicts[nonfatal, 0] is Verdict.WARN
    assert verdicts[nonfatal, 29] is Verdict.OK
    assert verdicts[fatal, 29] is Verdict.CRIT


@pytest.mark.parametrize("severity", ["fatal", "nonfatal", "correctable"])
def test_errors_that_cannot_be_read_are_said_and_the_others_are_judged(severity):
    files = {**PHYSICAL, **counters("0000:01:00.0"), **counters("0000:02:00.0", fatal=1)}
    del files[f"{DEVICES}/0000:01:00.0/aer_dev_{severity}"]
    found = judge_all(FakeHost({**files, f"{DEVICES}/0000:01:00.0/aer_dev_{severity}/x": ""}), "check_pcie_aer")
    assert [(each.verdict, each.reason, each.target) for each in found] == [
        (Verdict.UNKNOWN, "Unreadable", "0000:01:00.0"), (Verdict.CRIT, "PcieFatalErrors", "0000:02:00.0"),
    ]  # fmt: skip
    assert "EISDIR" in found[0].message


def test_aer_skip_and_unknown():
    silent = {f"{DEVICES}/0000:01:00.0/class": NIC}

    assert judge(FakeHost(PHYSICAL), "check_pcie_aer").reason == "NoPci"
    assert judge(FakeHost({**VIRTUAL, **silent}), "check_pcie_aer").verdict is Verdict.SKIP
    assert judge(FakeHost({**PHYSICAL, **silent}), "check_pcie_aer").verdict is Verdict.UNKNOWN
    junk = {f"{DEVICES}/0000:01:00.0/aer_dev_fatal": "\0\0junk"}
    assert judge(FakeHost({**PHYSICAL, **silent, **junk}), "check_pcie_aer").verdict is Verdict.UNKNOWN
