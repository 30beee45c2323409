"""NVLink, XGMI and peer-to-peer."""

import pytest

from nhc.core.model import Action, Verdict


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


def test_one_link_down_is_named(nvml):
    outcome = only(nvml.one("h100", "check_nvlink_status", "3.link.11.state 0"))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "LinkDown", "gpu3")
    assert "NVLink 11 down (17 of 18 up)" in outcome.message
    assert outcome.evidence == ("gpu3 NVLink 11: down",)


def test_all_links_down_is_not_a_pass(nvml):
    """Azure's script looks for `inactive` where nvidia-smi prints `all links are inActive`, and passes."""
    found = nvml.one("a100", "check_nvlink_status", "*.link.state 0")

    assert {(outcome.verdict, outcome.reason) for outcome in found} == {(Verdict.CRIT, "LinkDown")}
    assert len(found) == 8


def test_every_gpu_is_looked_at(nvml):
    """The AKS plugin for the same ends after GPU 0."""
    assert only(nvml.one("a100", "check_nvlink_status", "7.link.0.state 0")).target == "gpu7"


def test_a_board_that_joins_fewer_links_says_how_many(nvml):
    half = [f"*.link.{number}.state 0" for number in range(12, 18)]

    assert only(nvml.one("h100", "check_nvlink_status -d 0", *half)).reason == "LinkDown"
    assert not bad(nvml.one("h100", "check_nvlink_status -l 12", *half))
    assert "12 expected" in only(nvml.one("h100", "check_nvlink_status -l 12", *half, "2.link.0.state 0")).message


def test_a_gpu_without_nvlink_is_skipped_unless_links_are_expected(nvml):
    assert nvml.one("h100", "check_nvlink_status", "*.links error 3", "*.field.91 error 3")[0].verdict is Verdict.SKIP
    found = nvml.one("h100", "check_nvlink_status -l 18", "*.links error 3", "*.field.91 error 3")
    assert {outcome.reason for outcome in found} == {"LinkMissing"}


def test_an_unreadable_link_is_unknown(nvml):
    outcome = only(nvml.one("h100", "check_nvlink_status", "1.link.4.state error 999"))

    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "GpuUnreadable")


def test_totals_of_the_past_are_no_news(nvml):
    assert not bad(nvml.one("h100", "check_nvlink_errors", "*.link.replay 9000", "*.link.crc_data 1000000"))


def test_a_new_replay_is_critical(nvml):
    outcome = only(nvml.one("h100", "check_nvlink_errors", "2.link.5.replay 40", then=["2.link.5.replay 41"]))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "NvlinkErrors", "gpu2")
    assert outcome.evidence == ("gpu2 NVLink 5 replay: +1 (total 41)",)


@pytest.mark.thorough
def test_few_crc_errors_warn_and_a_hundred_a_second_are_critical(nvml):
    few = only(nvml.one("h100", "check_nvlink_errors", then=["2.link.5.crc_flit 5999"]))
    many = only(nvml.one("h100", "check_nvlink_errors", then=["2.link.5.crc_flit 6000"]))

    assert (few.verdict, many.verdict) == (Verdict.WARN, Verdict.CRIT)


@pytest.mark.thorough
def test_nvlink_5_counts_are_read_from_field_values(nvml):
    recovery = only(nvml.one("b200", "check_nvlink_errors", then=["4.field.214.17 u64 1"]))
    assert "NVLink 17: 1 recoveries failed" in recovery.message
    assert recovery.action is Action.RESET_DEVICE
    assert only(nvml.one("b200", "check_nvlink_errors", then=["4.field.219.3 u64 10"])).verdict is Verdict.WARN


def test_gpus_without_counters_are_skipped_not_passed(nvml):
    gone = [f"*.link.{name} error 3" for name in ("replay", "recovery", "crc_flit", "crc_data")]

    assert nvml.one("h100", "check_nvlink_errors", *gone)[0].verdict is Verdict.SKIP


def test_a_pair_that_nvlink_does_not_join(nvml):
    [outcome] = nvml.one("h100", "check_gpu_p2p", "p2p.2.6.2 5")

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuPeerUnreachable")
    assert "gpu2 and gpu6 cannot reach each other over NVLink" in outcome.message


def test_pairs_over_pcie_are_judged_where_there_is_no_nvlink(nvml):
    no_links = ("*.links error 3", "*.field.91 error 3")

    assert nvml.one("h100", "check_gpu_p2p", *no_links)[0].verdict is Verdict.OK
    assert nvml.one("h100", "check_gpu_p2p", *no_links, "p2p.0 1")[0].verdict is Verdict.SKIP
    assert nvml.one("h100", "check_gpu_p2p", *no_links, "p2p.0.1.0 4")[0].reason == "GpuPeerUnreachable"


def test_a_platform_without_reads_is_skipped_although_its_first_pair_cannot_be_read(nvml):
    no_links = ("*.links error 3", "*.field.91 error 3")

    [outcome] = nvml.one("h100", "check_gpu_p2p", *no_links, "p2p.0 1", "p2p.0.1.0 error 999")

    assert (outcome.verdict, outcome.reason) == (Verdict.SKIP, "NotSupported"), outcome


def test_peers_that_cannot_be_asked_are_unknown(nvml):
    assert nvml.one("h100", "check_gpu_p2p", "p2p.2 error 999")[0].verdict is Verdict.UNKNOWN


def test_a_single_gpu_has_no_peers(nvml):
    assert nvml.one("h100", "check_gpu_p2p -d 0")[0].verdict is Verdict.SKIP
