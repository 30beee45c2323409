"""Memory errors by EDAC."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

MC = "/sys/devices/system/edac/mc/mc0"
PHYSICAL = {"/proc/cpuinfo": "flags\t\t: fpu vme\n"}
VIRTUAL = {"/proc/cpuinfo": "flags\t\t: fpu hypervisor vme\n"}


def memory(ce=(0, 0), ue=(0, 0), extra_ce=0, kind="dimm"):
    files = {f"{MC}/ce_count": f"{sum(ce) + extra_ce}\n", f"{MC}/ue_count": f"{sum(ue)}\n"}
    for place, (corrected, uncorrected) in enumerate(zip(ce, ue)):
        at = f"{MC}/{kind}{place}"
        files[f"{at}/dimm_ce_count"] = f"{corrected}\n"
        files[f"{at}/dimm_ue_count"] = f"{uncorrected}\n"
        files[f"{at}/dimm_label"] = f"CPU0_DIMM_{place}\n"
    return files


@pytest.mark.parametrize("kind", ["dimm", "rank"])
def test_quiet_memory(kind):
    assert (
        judge(FakeHost(memory(kind=kind)), "check_edac_errors").message == "2 memory modules without errors that count"
    )


def test_uncorrected_errors():
    found = judge(FakeHost(memory(ue=(0, 1))), "check_edac_errors")

    assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "MemoryUncorrected", "mc0/dimm1")
    assert "CPU0_DIMM_1" in found.message


def test_corrected_errors_are_a_rate():
    host = FakeHost(memory(ce=(40, 0)))
    host.system.uptime = 100 * 86400.0
    assert judge(host, "check_edac_errors").verdict is Verdict.OK  # 40 in a hundred days

    host.system.uptime += 3600
    for path, text in memory(ce=(52, 0)).items():
        host.write(path, text)
    assert judge(host, "check_edac_errors").verdict is Verdict.WARN
    assert judge(host, "check_edac_errors -c 12").verdict is Verdict.CRIT
    assert judge(host, "check_edac_errors -w 0").verdict is Verdict.OK


def test_a_driver_that_was_reloaded_starts_its_counters_anew():
    host = FakeHost(memory(ce=(5000, 0)))
    host.system.uptime = 10000 * 86400.0
    judge(host, "check_edac_errors")
    host.system.uptime += 600
    for path, text in memory(ce=(2, 0)).items():
        host.write(path, text)

    assert judge(host, "check_edac_errors").verdict is Verdict.OK


def test_errors_of_no_known_module_are_the_controllers():
    found = judge_all(FakeHost(memory(extra_ce=100)), "check_edac_errors")

    assert [(o.verdict, o.target) for o in found] == [(Verdict.WARN, "mc0")]


def test_csrows_of_old_drivers():
    files = {f"{MC}/ce_count": "0", f"{MC}/ue_count": "3", f"{MC}/csrow0/ce_count": "0", f"{MC}/csrow0/ue_count": "3"}

    assert judge(FakeHost(files), "check_edac_errors").target == "mc0/csrow0"


def test_skip_and_unknown():
    no_ecc = {"/sys/firmware/dmi/entries/16-0/raw": bytes([16, 23, 0, 0, 3, 3, 3])}
    ecc = {"/sys/firmware/dmi/entries/16-0/raw": bytes([16, 23, 0, 0, 3, 3, 6])}

    assert judge(FakeHost(VIRTUAL), "check_edac_errors").reason == "NoEdac"
    assert judge(FakeHost({**PHYSICAL, **no_ecc}), "check_edac_errors").reason == "NoEcc"
    for host in (FakeHost(PHYSICAL), FakeHost({**PHYSICAL, **ecc})):
        assert judge(host, "check_edac_errors").verdict is Verdict.UNKNOWN
    assert (
        judge(FakeHost({**memory(), f"{MC}/dimm0/dimm_ce_count": "junk"}), "check_edac_errors").reason
        == "EdacUnreadable"
    )
