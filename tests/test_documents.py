"""What documents link to is there: files, and headings within them; every document is found from the index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "nhc").glob("*/README.md")),
    ROOT / "adapters/nhc_adapters/README.md",
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

PAGE = 160
"""Lines of the changelog for a version that is not released yet."""


def anchors(path):
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path):
    return [link for link in LINK.findall(FENCE.sub("", path.read_text())) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    for link in links(path):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{link}: there is no {file}"
        assert not anchor or anchor in anchors(target), f"{link}: {target.name} has no such heading"


def test_the_index_names_every_document():
    named = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in links(ROOT / "docs" / "README.md")}
    assert {path for path in (ROOT / "docs").glob("*.*") if path.name != "README.md"} <= named


def test_the_decisions_are_listed_without_gaps():
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    numbers = [int(number) for number in re.findall(r"^\| \[?(\d{4})", listed, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    there = {path.name for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert there == set(re.findall(r"\((0\S+\.md)\)", listed))


def test_an_unreleased_version_is_a_page_of_the_changelog():
    """What nhc does, by area: nobody has the steps in between."""
    entries = [entry.splitlines() for entry in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]]
    assert [lines[0] for lines in entries if "unreleased" in lines[0] and len(lines) > PAGE] == []
