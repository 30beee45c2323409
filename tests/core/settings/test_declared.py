"""Settings that are declared once: what is read, what is refused, and the example that is installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nhc.core.settings import declared, settings_file
from nhc.core.settings.settings_file import SettingsError
from nhc.store.server import settings as server

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = {"server.toml": (server.ServerSettings, server.HEAD)}


@dataclass(frozen=True)
class Keep:
    history: float = declared.seconds("history", 90 * 86400.0, "how long", least=86400.0)


@dataclass(frozen=True)
class Whole:
    path: str
    name: str = declared.text("name", "x", "a help that is far too long to stand beside its key " * 2)
    share: int = declared.count("limits.share", 3, least=1, most=9)
    mode: bool = declared.choice("mode", {"on": True, "off": False}, False)
    words: tuple[str, ...] = declared.texts("words", ("a",), one=True)
    keep: Keep = declared.part("keep", Keep)  # noqa: RUF009 (a field)
    own: int = field(default=7)


def read(text: str) -> Whole:
    table = settings_file.parse(text, "x.toml")
    found = declared.read(Whole, table, path="here")
    table.finish()
    return found


def test_what_a_file_says_and_what_it_does_not_say():
    assert read("") == Whole("here")
    text = 'name = "y"\nmode = "on"\nwords = "b"\n[limits]\nshare = 9\n[keep]\nhistory = "2d"\n'
    assert read(text) == Whole("here", "y", 9, True, ("b",), Keep(2 * 86400.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nshare = 10\n", "x.toml:2: limits.share: 10 is too large: expected 9 or less"),
        ("[limits]\nshar = 3\n", "x.toml:2: limits.shar: there is no such key: did you mean 'share'?"),
        ('[keep]\nhistory = "1h"\n', "x.toml:2: keep.history: '1h' is too small: expected 1d or more"),
        ('mode = "yes"\n', "x.toml:1: mode: 'yes' is not one of on, off"),
        ("path = 1\n", "x.toml:1: path: there is no such key: known are "),
    ],
)
def test_a_mistake_is_one_line_with_its_key(text, said):
    with pytest.raises(SettingsError) as raised:
        read(text)
    assert str(raised.value).startswith(said)


def test_an_example_has_every_key_and_its_values_are_the_defaults():
    text = declared.example(Whole, "A head.")
    lines = text.splitlines()
    assert lines[0] == "# A head."
    assert max(map(len, lines)) <= declared.WIDTH
    assert {'# name = "x"', "[limits]", "# share = 3", "[keep]", '# words = ["a"]', '# mode = "off"'} <= set(lines)
    values = "\n".join(line[2:] if line[:2] == "# " and " = " in line else line for line in lines)
    assert read(values) == Whole("here")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_that_is_installed_is_made_from_the_declaration(name):
    assert (ROOT / "conf" / f"{name}.example").read_text() == declared.example(*EXAMPLES[name])
