"""What the migration guides say of nhc is so: checks, conditions of vocabularies, keys of settings."""

import fnmatch
import re

import pytest

from nhc.check import find_all
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.support.documents import spans
from tests.support.run import ROOT

GUIDES = sorted((ROOT / "docs").glob("migration-*.md"))

#: Checks of theirs that have another name here.
THEIRS = frozenset([
    "check_gpu_bw", "check_nccl_allreduce", "check_rccl_allreduce", "check_nccl_allreduce_ib_loopback",
    "check_ib_bw_gdr", "check_ib_bw_non_gdr", "check_cpu_stream",
])  # fmt: skip

OURS = {check.name for check in find_all()}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_check_that_a_guide_names_is_one_of_ours(page):
    named = {name for span in spans(page) for name in re.findall(r"\bcheck_[a-z0-9_*]+", span)}
    assert named
    unknown = {name for name in named - THEIRS if not fnmatch.filter(OURS, name)}
    assert unknown == set()


def test_what_is_called_theirs_is_not_ours():
    assert OURS.isdisjoint(THEIRS)


@pytest.mark.parametrize(
    ("guide", "vocabulary"),
    [("migration-azure.md", "aks"), ("migration-nvsentinel.md", "nvsentinel"),
     ("migration-node-problem-detector.md", "npd")],
)  # fmt: skip
def test_every_condition_of_the_vocabulary_is_in_its_guide(guide, vocabulary):
    text = (ROOT / "docs" / guide).read_text()
    assert [rule.type for rule in load(vocabulary).said if f"`{rule.type}`" not in text] == []


def test_keys_of_settings_that_guides_name_are_in_the_examples():
    examples = "".join(
        (ROOT / "conf" / f"{name}.toml.example").read_text() for name in ("agent", "kubernetes", "remedy")
    )
    keys = {key for page in GUIDES for span in spans(page)
            for key in re.findall(r"^\[[\w.-]+\] ([\w-]+)(?: = .*)?$", span)}  # fmt: skip
    assert {"listen", "keep", "grace", "system-log-monitor"} <= keys
    assert {key for key in keys if not re.search(rf"^#? ?{key} = ", examples, re.MULTILINE)} == set()
