"""The hints that name what to install."""

from __future__ import annotations

import re
from pathlib import Path

from nhc.extras import EXTRAS, how_to_install

NOT_FOR_USERS = {"build", "dev", "docs", "release"}


def test_every_extra_is_known_to_the_hints() -> None:
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    table = text.split("[project.optional-dependencies]", 1)[1].split("\n[", 1)[0]
    assert set(re.findall(r"^(\w+) = \[", table, re.MULTILINE)) - NOT_FOR_USERS == set(EXTRAS)


def test_the_console_and_top_are_installed_as_the_readme_says() -> None:
    assert "pip install '.[console]'" in how_to_install("textual", "console")
