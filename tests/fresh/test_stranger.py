"""The one who types pages' commands: what is typed, what must come, and what makes a page no good."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.fresh import stranger
from tests.fresh.stranger import NOT_TYPED, SERVICES, STATUSES, Stranger, Stumbled, absent, rule, steps
from tests.support.reader import reader
from tests.support.run import ROOT

FIRST = ROOT / "docs/tutorial.md"


def test_every_row_is_of_a_command_that_a_page_has():
    typed = [step.command for page in stranger.PAGES for step in steps(ROOT / page)]
    assert {rule(NOT_TYPED, one) for one in typed} - {""} == set(NOT_TYPED)
    assert {rule(SERVICES, one) for one in typed} - {""} == set(SERVICES)
    assert {rule(STATUSES, one) for one in typed} - {""} == set(STATUSES)
    assert set(stranger.AGAIN) | set(stranger.AGAIN.values()) <= set(typed)


def test_what_a_page_shows_has_to_be_printed():
    printed = "ID  NODE  STATE\n1   n2    watching   7s ago   \x1b[1mreboot\x1b[0m, then more\n"
    assert absent(["ID NODE STATE", "1   n2  watching  12s ago  reboot..."], printed) == []
    assert absent(["1 n2 returned..."], printed) == ["1 n2 returned..."]


def page(place: Path, text: str) -> list[stranger.Step]:
    (place / "page.md").write_text(text)
    return steps(place / "page.md")


@pytest.fixture
def somebody(tmp_path):
    with Stranger(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, lambda _line: None) as one:
        yield one


GOES_ON = """## One
```console
$ service
```
1. In a list, too:

   ```console
   $ export HERE=DIRECTORY/x    # and why
   $ alias say='echo said'
   ```
```console
$ say $HERE
said /there/x
$ service again
$ say $HERE > kept
```
"""


def test_what_goes_on_keeps_its_terminal_and_the_next_has_the_lines_of_the_page(somebody, monkeypatch, tmp_path):
    monkeypatch.setitem(SERVICES, "service", "Ctrl-C")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/service").write_text("#!/bin/sh\necho '   export HERE=/there/x'; echo Ctrl-C; exec sleep 600\n")
    (tmp_path / "bin/service").chmod(0o755)
    somebody.env["PATH"] = f"{tmp_path}/bin:{somebody.env['PATH']}"
    assert len(somebody.follow(page(tmp_path, GOES_ON))) == 6
    assert (tmp_path / "kept").read_text() == "said /there/x\n"
    assert [bool(one.running) for one in somebody.terminals] == [True, True, False]
    somebody.end()
    assert not any(one.running for one in somebody.terminals)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("$ false", "ends with 1"),
        ("$ echo another\nshown", "without"),
        ("$ echo 'Traceback (most recent call last)'", "prints"),
        ("$ export X=DIRECTORY", "nobody has printed"),
        ("$ sleep 600", "does not end"),
        ("$ nhc demo", "ends with 127"),
    ],
)
def test_a_page_that_does_not_lead_on_is_named_with_its_line(somebody, monkeypatch, tmp_path, block, why):
    monkeypatch.setattr(stranger, "WITHIN", 1.0)
    somebody.env["PATH"] = "/usr/bin:/bin"
    with pytest.raises(Stumbled, match=f"(?s)^page.md:2: .*{why}"):
        somebody.follow(page(tmp_path, f"```console\n{block}\n```\n"))


@pytest.mark.thorough
def test_the_first_pages_lead_on_but_for_what_installs(tmp_path):
    """README and the first ten minutes; `make` and `pip` set up what is here, and a demonstration has its own tests."""
    followed = [step for name in stranger.PAGES[:2] for step in steps(ROOT / name)
                if not step.command.startswith(("make", "pip", "nhc demo"))]  # fmt: skip
    with reader(tmp_path) as somebody:
        typed = somebody.follow(followed)
        _status, sick = somebody.terminal().type("nhc replay tests/nodes/h100-xid79")
    assert len(typed) == len(followed) > 8
    (shown,) = re.findall(r"says `(.+?)`", FIRST.read_text().replace("\n", " "))
    assert shown in stranger.alike(sick)
    assert "\ufffd" not in sick  # at a terminal it is in colour
