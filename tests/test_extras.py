"""The hints that name what to install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nhc.cli.click_app import _missing
from nhc.core.extras import BROUGHT, BUNDLED, EXTRAS, PACKAGED, how_to_install

NOT_FOR_USERS = {"build", "dev", "docs", "release"}


def test_every_extra_is_known_to_the_hints() -> None:
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    table = text.split("[project.optional-dependencies]", 1)[1].split("\n[", 1)[0]
    assert set(re.findall(r"^(\w+) = \[", table, re.MULTILINE)) - NOT_FOR_USERS == set(EXTRAS)


def test_a_library_is_brought_by_the_extra_that_names_it() -> None:
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    named = {"yaml": "PyYAML", "sqlalchemy": "SQLAlchemy", "grpc": "grpcio"}
    for module, extra in BROUGHT.items():
        table = re.split(r"\]\s*(?:#.*)?\n", text.split(f"\n{extra} = [", 1)[1], maxsplit=1)[0]
        assert f'"{named.get(module, module)}' in table, module


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["status", "fleet"], "sqlalchemy", "remedy"),
        (["fleet", "check"], "paramiko", "fleet"),
        (["serve", "console"], "aiohttp", "console"),
        (["top"], "sqlalchemy", "console"),
        (["kubernetes", "drain"], "urllib3", "kubernetes"),
    ],
)
def test_what_is_missing_is_named_with_the_extra_that_has_it(words: list[str], module: str, extra: str) -> None:
    assert f"pip install '.[{extra}]'" in _missing(words, ModuleNotFoundError(name=module))


def test_the_console_and_top_are_installed_as_the_readme_says() -> None:
    assert "pip install '.[console]'" in how_to_install("textual", "console")


def test_a_packaged_nhc_names_its_libraries_for_what_they_hold_and_pip_for_the_rest() -> None:
    makefile = (Path(__file__).resolve().parents[1] / "Makefile").read_text()
    locked = re.search(r"-o packaging/libraries\.txt .*?\$\(foreach extra,([\w ]+),", makefile, re.DOTALL)
    assert locked is not None
    assert tuple(locked[1].split()) == BUNDLED

    code = f"{PACKAGED}nhc/core/extras.py"
    for package, extra in (("aiohttp", "remedy"), ("sqlalchemy", "store")):
        assert "nodehealth-libs" in how_to_install(package, extra, code)
    for package, extra in (("grpcio", "nvhcd"), ("azure-identity", "azure")):
        said = how_to_install(package, extra, code)
        assert f"-m pip install {package}" in said
        assert "nodehealth-libs" not in said
