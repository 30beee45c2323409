"""What the migration guides say of nhc is so: checks, conditions of vocabularies, keys of settings."""

import fnmatch
import re

import pytest

from nhc.core.check import find_all
from nhc.core.data.reader import table
from nhc.node.planning.runbooks import find as runbook
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.support.documents import spans
from tests.support.run import ROOT, nhc

GUIDES = sorted((ROOT / "docs").glob("migration-others.md"))

ELSEWHERE = table("elsewhere.tsv")
THEIRS = frozenset(theirs for theirs, _ours, _page in ELSEWHERE)

OURS = {check.name for check in find_all()}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_check_that_a_guide_names_is_one_of_ours(page):
    named = {name for span in spans(page) for name in re.findall(r"\bcheck_[a-z0-9_*]+", span)}
    assert named
    unknown = {name for name in named - THEIRS if not fnmatch.filter(OURS, name)}
    assert unknown == set()


@pytest.mark.thorough
def test_what_is_called_theirs_is_not_ours_and_what_is_ours_is():
    assert OURS.isdisjoint(THEIRS)
    assert [name for name in THEIRS if runbook(name)] == []
    assert {ours for _theirs, ours, _page in ELSEWHERE} - OURS == {"nhc deep sweep"}


@pytest.mark.parametrize(("theirs", "ours", "page"), ELSEWHERE)
def test_a_name_of_theirs_is_answered_as_its_guide_does(theirs, ours, page):
    lines = (ROOT / "docs" / page).read_text().splitlines()
    named = ours.replace("nhc deep sweep", "deep-checks.md#sweeps")
    rows = [line for line in lines if line.startswith("|") and f"`{theirs}`" in line.split("|")[1]]
    assert any(named in row for row in rows), rows


@pytest.mark.thorough
def test_explain_and_a_configuration_say_what_their_name_is_here(tmp_path):
    said = nhc("explain", "check_nccl_allreduce").stderr
    assert "check_nccl_allreduce (here it is check_deep_collective: docs/migration-others.md)" in said
    assert "check_npd_health" in nhc("explain", "health-checker").stderr
    (tmp_path / "nhc.conf").write_text("* || check_ib_bw_gdr 380\n")
    done = nhc("config", "check", str(tmp_path / "nhc.conf"))
    assert done.returncode
    assert (
        "no such check: check_ib_bw_gdr (here it is check_deep_rdma: docs/migration-others.md)"
        in done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("part", "vocabulary"),
    [("Azure's checks", "aks"), ("NVSentinel", "nvsentinel"), ("node-problem-detector and draino", "npd")],
)
def test_every_condition_of_the_vocabulary_is_in_its_part_of_the_guide(part, vocabulary):
    text = (ROOT / "docs/migration-others.md").read_text().partition(f"\n## From {part}\n")[2].partition("\n## ")[0]
    assert text
    assert [rule.type for rule in load(vocabulary).conditions if f"`{rule.type}`" not in text] == []


def test_keys_of_settings_that_guides_name_are_in_the_examples():
    examples = "".join(
        (ROOT / "conf" / f"{name}.toml.example").read_text() for name in ("agent", "kubernetes", "remedy")
    )
    keys = {key for page in GUIDES for span in spans(page)
            for key in re.findall(r"^\[[\w.-]+\] ([\w-]+)(?: = .*)?$", span)}  # fmt: skip
    assert {"listen", "keep", "grace", "system-log-monitor"} <= keys
    assert {key for key in keys if not re.search(rf"^#? ?{key} = ", examples, re.MULTILINE)} == set()
