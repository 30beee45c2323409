"""Every kind of part is found in the same way: ours by a table, other packages' by entry points, strangers refused."""

import sys

import pytest

from nhc.core import plugins as core_plugins
from nhc.core.plugins import RENDERERS, NoAdapter, PartKind
from nhc.marks import plugins
from nhc.marks.plugins import KINDS
from tests.support.run import ROOT

EVERY_KIND = (*KINDS, RENDERERS)
BY_GROUP = {kind.group: kind for kind in EVERY_KIND}
BROKEN = {
    "raises": "raise RuntimeError('two\\nlines')",
    "syntax": "def (",
    "exits": "import sys; sys.exit(0)",
    "empty": "",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers a part of each kind, and one under a name of ours."""
    (tmp_path / "theirs.py").write_text("def part():\n    return 'theirs'\n")
    for name, text in BROKEN.items():
        (tmp_path / f"theirs_{name}.py").write_text(text)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = []
    for kind in EVERY_KIND:
        names = ["theirs", *sorted(kind.ours)[:1]]
        lines += [f"[{kind.group}]", *(f"{name} = theirs:part" for name in names)]
        lines += [f"{name} = theirs_{name}:part" for name in (*BROKEN, "gone")]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("theirs", None)


@pytest.mark.parametrize("group", sorted(BY_GROUP))
def test_another_packages_part_is_found_by_its_name_and_takes_no_name_of_ours(group, package):
    kind = BY_GROUP[group]
    assert kind.open("theirs")() == "theirs"
    assert "theirs" in kind.names()
    for name in sorted(kind.ours)[:1]:
        assert kind.open(name).__module__ != "theirs"


@pytest.mark.parametrize("group", sorted(BY_GROUP))
@pytest.mark.parametrize("name", [*BROKEN, "gone"])
def test_another_packages_part_that_cannot_be_imported_is_one_line(group, name, package):
    with pytest.raises(NoAdapter, match=f" {name} of theirs 1.0: theirs_{name} cannot be imported: ") as error:
        BY_GROUP[group].open(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("group", sorted(BY_GROUP))
def test_a_name_that_nobody_has_is_one_line(group):
    kind = BY_GROUP[group]
    with pytest.raises(NoAdapter, match=f"^there is no {kind.noun} called 'nowhere': ") as error:
        kind.open("nowhere")
    assert "\n" not in str(error.value)
    for name in sorted(kind.ours)[:1]:
        with pytest.raises(NoAdapter, match=rf"did you mean {name}\?"):
            kind.open(f"{name}x")


@pytest.mark.parametrize("group", sorted(BY_GROUP))
def test_the_page_names_the_group_of_each_kind(group):
    assert f"| `{group}` |" in (ROOT / "docs/extending.md").read_text()


def test_each_kind_is_in_the_table():
    tables = [*vars(core_plugins).values(), *vars(plugins).values()]
    assert set(EVERY_KIND) == {one for one in tables if isinstance(one, PartKind)}
