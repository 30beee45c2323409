"""What documents show: blocks of commands and of configuration, and commands within sentences."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Iterator, List, NamedTuple

import click
from markdown_it import MarkdownIt

from nhc.cli.click_app import VerbCommand, application
from tests.support.run import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
PROGRAMS = frozenset([
    ".venv/bin/nhc", ".venv/bin/python", "ansible-playbook", "cat", "dmesg", "echo", "helm", "journalctl", "kubectl",
    "make", "mkdir", "nhc", "pip", "podman",
])  # fmt: skip
"""What commands in documents begin with."""


OFFERED = ("tsv",)
"""Choices that the example plug-in offers."""


class Block(NamedTuple):
    """A code block. `line` is its first line's number in the page."""

    page: str
    line: int
    text: str

    @property
    def first(self) -> str:
        return self.text.split("\n", 1)[0].strip()

    def commands(self) -> List[str]:
        """The commands of a block of commands; empty for any other. With prompts, what has none is output."""
        lines = logical_lines(self.text)
        prompted = [
            match[1] for match in (re.match(r"(?:\$|# (?=nhc )) ?(.*)", line, re.DOTALL) for line in lines) if match
        ]
        if prompted:
            return prompted
        words = lines[0].split() if lines else []
        if not words or words[0] not in PROGRAMS or "=" in words[0]:
            return []
        return [line for line in lines if line[0] != "#"]


def logical_lines(text: str) -> List[str]:
    """Lines that are not blank, a continued one and one with a here-document each as one."""
    found: List[str] = []
    end = ""
    for line in text.split("\n"):
        if end or (found and found[-1].endswith("\\")):
            found[-1] += f"\n{line}"
            end = "" if line.strip() == end else end
        elif line.strip():
            found.append(line.strip())
            here = re.search(r"<<-?'?(\w+)'?", line)
            end = here[1] if here else ""
    return found


_MARKDOWN = MarkdownIt("commonmark").enable("table")


def blocks(page: Path) -> Iterator[Block]:
    for token in _MARKDOWN.parse(page.read_text()):
        if token.type in ("fence", "code_block") and token.map:
            yield Block(str(page.relative_to(ROOT)), token.map[0] + 1, token.content.rstrip("\n"))


def spans(page: Path) -> Iterator[str]:
    """The code within sentences."""
    for token in _MARKDOWN.parse(page.read_text()):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def of_nhc(command: str) -> List[List[str]]:
    """The words after `nhc` of each call of nhc in a shell command."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    found: List[List[str]] = []
    words: List[str] = []
    taking, before = False, ";"
    for token in [*lexer, ";"]:
        if set(token) <= set("|;&<>"):
            found += [words] if taking else []
            words, taking = [], False
        elif taking:
            words.append(token)
        elif token in ("nhc", ".venv/bin/nhc") and (before == "--" or set(before) <= set("|;&")):
            taking = True
        before = token
    return found


def wrong_usage(words: List[str]) -> str:
    """What is wrong with the words of a call of nhc, by its own command table and options; "" where nothing is.

    Values stand for themselves: NODE may be any node, but a choice is one of the choices.
    """
    command: click.Command = application
    context = click.Context(command, info_name="nhc")
    words = list(words)
    while isinstance(command, (click.Group, VerbCommand)) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None and isinstance(command, VerbCommand) and command.default:
            break
        if found is None:
            return f"there is no command {words[0]!r} in {context.command_path}"
        command, context = found, click.Context(found, info_name=words.pop(0), parent=context)
    if isinstance(command, VerbCommand) and command.default:
        command = command.get_command(context, command.default) or command
    try:
        values, rest, _order = command.make_parser(context).parse_args(args=words)
        for param in command.params:
            given = values.get(param.name)
            for one in given if isinstance(given, (list, tuple)) else [given]:
                if isinstance(param.type, click.Choice) and one not in (None, *OFFERED):
                    param.type.convert(one, param, context)
    except click.UsageError as error:
        return error.format_message()
    return f"unexpected {rest[0]!r}" if rest and not isinstance(command, (click.Group, VerbCommand)) else ""
