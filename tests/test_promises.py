"""docs/security.md and CONTRIBUTING.md promise what a test holds, and name it: every test that they name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CITED = re.compile(r"`(tests/[\w/.-]+\.py)(?:::(\w+))?`")
PAGES = {"docs/security.md": "# Security", "CONTRIBUTING.md": "## What was tried and held"}
"""Each page, and the heading from which on it promises."""
NO_PROMISE = "a limit, no promise"
"""What stands in place of a test where the page says what nhc does not do."""


def promises(page):
    return (ROOT / page).read_text().partition(f"{PAGES[page]}\n")[2]


def names_in(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page):
    cited = CITED.findall(promises(page))
    assert len(cited) > 10
    gone = [f"{file}::{name}" for file, name in cited
            if not (ROOT / file).is_file() or (name and name not in names_in(ROOT / file))]  # fmt: skip
    assert gone == []


@pytest.mark.parametrize("page", PAGES)
def test_every_row_of_a_table_of_promises_names_its_test(page):
    """A table with the column `held by` holds no row without a test, unless it says that nothing is promised."""
    bare, within = [], False
    for line in promises(page).splitlines():
        if line.startswith("|") and line.rstrip().endswith("| held by |"):
            within = True
        elif not line.startswith("|"):
            within = False
        elif within and not line.startswith("|---"):
            last = line.rstrip(" |").rpartition(" | ")[2]
            if last != NO_PROMISE and not CITED.search(last):
                bare.append(line[:60])
    assert bare == []


def test_the_pages_have_such_tables():
    assert all("| held by |" in promises(page) for page in PAGES)
