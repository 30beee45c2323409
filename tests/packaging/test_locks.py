"""What packages hold: every unit and example; every library that the extras ask for, with its digests."""

import re

import pytest

from nhc.core.settings import toml_text
from nhc_release import stage
from nhc_release.source import ROOT

EXTRAS = ("aws", "console", "fleet", "kubernetes", "remedy")
PROJECT = toml_text.parse((ROOT / "pyproject.toml").read_text())["project"]
_REQUIRED = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(\[[^]]*\])?(?P<bounds>[^;]*)")


def locked(name):
    """Names and versions of a lock; each has digests."""
    found = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / "packaging" / name).read_text().strip()):
        head = re.match(r"(\S+)==(\S+)", entry)
        assert head, entry
        assert "--hash=sha256:" in entry
        found.setdefault(head[1], []).append(tuple(int(part) for part in re.findall(r"\d+", head[2])))
    return found


def required():
    for extra in EXTRAS:
        for text in PROJECT["optional-dependencies"][extra]:
            if not text.startswith("nodehealth["):
                found = _REQUIRED.match(text)
                yield pytest.param(found["name"].lower().replace("_", "-"), found["bounds"], id=f"{extra}: {text[:30]}")


@pytest.mark.parametrize(("name", "bounds"), list(required()))
def test_what_an_extra_asks_for_is_locked_in_a_version_that_it_takes(name, bounds):
    versions = locked("libraries.txt").get(name)
    assert versions, "make lock"
    for bound in filter(None, bounds.split(",")):
        number = tuple(int(part) for part in re.findall(r"\d+", bound))
        for version in versions:
            assert version >= number if bound.strip().startswith(">=") else version[: len(number)] < number, "make lock"


def test_the_node_carries_pure_python_for_every_version():
    assert set(locked("node.txt")) <= {"click", "colorama", "nvidia-ml-py", "tomli"}
    assert locked("node.txt")["click"] < [(8, 2)]  # 8.2 needs Python 3.10
    both = locked("libraries.txt")
    for name in set(locked("node.txt")) & set(both):
        assert both[name] == locked("node.txt")[name]


def test_each_unit_and_each_example_is_in_one_package():
    units = sorted(name for names in stage.UNITS.values() for name in names)
    assert units == sorted(path.name for path in (ROOT / "adapters/systemd").iterdir())
    given = sorted(name for table in (stage.SETTINGS, stage.EXAMPLES) for names in table.values() for name in names)
    assert given == sorted(path.name[: -len(".example")] for path in (ROOT / "conf").glob("*.example"))


def test_what_is_installed_as_it_is_enables_nothing():
    """A setting that acts, or a person who may, is for the site to write."""
    for names in stage.SETTINGS.values():
        for name in names:
            text = (ROOT / "conf" / f"{name}.example").read_text()
            assert not re.search(r'^[a-z-]+ *= *"on"', text, re.MULTILINE), name
            assert not re.search(r"^\[(people|channels|repairers)", text, re.MULTILINE), name
