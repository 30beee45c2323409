from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.nvme_count import check_nvme_count

NAMES = ("nvme0n1", "nvme0n1p1", "nvme1n1", "nvme0c0n1", "nvme1n2", "sda", "nvme10n1")


def host():
    return FakeHost({f"/sys/class/block/{name}/": "" for name in NAMES})


def test_first_namespaces_are_counted_partitions_and_paths_are_not():
    assert check_nvme_count(host(), 3).verdict is Verdict.OK


def test_a_missing_drive():
    outcome = check_nvme_count(host(), 8)

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "NvmeCountMismatch")
    assert outcome.message == "Expected to see 8 NVMe drives but found 3"
    assert outcome.evidence == ("nvme0n1", "nvme10n1", "nvme1n1")


def test_unreadable_is_unknown():
    assert check_nvme_count(FakeHost(), 8).verdict is Verdict.UNKNOWN
