"""Settings that a site chooses, read and never changed."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.model import Action, Verdict


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


@pytest.mark.parametrize(
    ("check", "fault", "words"),
    [
        ("check_gpu_persistence", "3.persistence 0", "persistence mode is off, on expected"),
        ("check_gpu_mig", "3.mig_mode 1 1", "MIG mode is on, off expected"),
        ("check_gpu_ecc_mode", "3.ecc_mode 0 0", "ECC mode is off, on expected"),
        ("check_gpu_compute_mode", "3.compute_mode 2", "compute mode is prohibited, default expected"),
    ],
)
def test_a_mode_the_site_does_not_want(nvml, check, fault, words):
    outcome = only(nvml.one("h100", check, fault))

    assert (outcome.verdict, outcome.target) == (Verdict.CRIT, "gpu3")
    assert words in outcome.message


@pytest.mark.parametrize(
    ("check", "state"),
    [
        ("check_gpu_persistence off", "*.persistence 0"),
        ("check_gpu_mig on", "*.mig_mode 1 1"),
        ("check_gpu_ecc_mode off", "*.ecc_mode 0 0"),
        ("check_gpu_compute_mode exclusive_process", "*.compute_mode 3"),
    ],
)
def test_a_mode_the_site_does_want(nvml, check, state):
    assert not bad(nvml.one("h100", check, state))
    assert len(bad(nvml.one("h100", check))) == 8


def test_a_change_that_waits_for_a_reset(nvml):
    """An ECC mode that will be off from the next reset on is news before it happens."""
    leaving = only(nvml.one("h100", "check_gpu_ecc_mode", "1.ecc_mode 1 0"))
    coming = only(nvml.one("h100", "check_gpu_ecc_mode", "1.ecc_mode 0 1"))

    assert (leaving.verdict, coming.verdict) == (Verdict.WARN, Verdict.CRIT)
    assert coming.action is Action.RESET_DEVICE


def test_modes_a_gpu_does_not_have_are_skipped(nvml):
    assert nvml.one("v100", "check_gpu_mig")[0].verdict is Verdict.SKIP
    assert only(nvml.one("h100", "check_gpu_mig", "0.mig_mode error 999")).verdict is Verdict.UNKNOWN


def test_arguments():
    with pytest.raises(BadArguments, match="neither on nor off"):
        find("check_gpu_mig").parse(["maybe"])
    with pytest.raises(BadArguments, match="not a compute mode"):
        find("check_gpu_compute_mode").parse(["fast"])
