"""The PCIe links of accelerators."""

from nhc.core.model import Verdict


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


def test_a_narrow_link_is_critical_idle_or_not(nvml):
    outcome = only(nvml.one("h100", "check_gpu_pcie", "2.pcie_width 8"))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "GpuPcieWidth", "gpu2")
    assert "x8, x16 expected" in outcome.message


def test_a_slow_link_is_critical_while_the_gpu_works(nvml):
    assert not bad(nvml.one("h100", "check_gpu_pcie", "2.pcie_generation 1", "2.reasons 0x1"))
    outcome = only(nvml.one("h100", "check_gpu_pcie", "2.pcie_generation 3", "2.reasons 0x4"))
    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuPcieGeneration")


def test_a_generation_and_width_asked_for_hold_always(nvml):
    assert only(nvml.one("h100", "check_gpu_pcie -g 5", "2.pcie_generation 4")).reason == "GpuPcieGeneration"
    assert len(bad(nvml.one("a100", "check_gpu_pcie -g 5 -w 16"))) == 8
    # A slot that offers less than the site expects shows in the expectation, not in the link's own maximum.
    narrow = ("*.pcie_width 8", "*.pcie_max_width 8")
    assert not bad(nvml.one("h100", "check_gpu_pcie", *narrow))
    assert len(bad(nvml.one("h100", "check_gpu_pcie -w 16", *narrow))) == 8


def test_replays_warn_by_their_rate(nvml):
    assert not bad(nvml.one("h100", "check_gpu_pcie", "2.pcie_replays 5000"))
    assert not bad(nvml.one("h100", "check_gpu_pcie", then=["2.pcie_replays 7"]))
    outcome = only(nvml.one("h100", "check_gpu_pcie", then=["2.pcie_replays 8"]))
    assert (outcome.verdict, outcome.reason) == (Verdict.WARN, "GpuPcieReplays")


def test_an_unreadable_link_is_unknown(nvml):
    unread = ("2.pcie_width error 999", "2.pcie_generation error 999")

    assert only(nvml.one("h100", "check_gpu_pcie", *unread)).verdict is Verdict.UNKNOWN
