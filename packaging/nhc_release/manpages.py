"""A manual page for each command, out of click's own description of it: man(7), one file a page.

`nhc-serve-remedy.1` is about `nhc serve remedy`; a group or a verb has a page that lists its commands. The scheduler's
hooks have no click: their --help is their page.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

import click

from nhc.cli.click_app import VerbCommand

HOOKS = {
    "nhc-prolog": "judge a node before a job, for a scheduler",
    "nhc-epilog": "judge a node after a job, for a scheduler",
    "nhc-healthcheck": "judge a node between jobs, for a scheduler",
}
_FILES = (
    ("/etc/nhc", "Configuration of the node and settings of the services."),
    ("/run/nhc", "What a node remembers until it boots."),
    ("/var/lib/nhc", "What a node remembers for longer."),
    ("/var/lib/nhc-server", "The services' store and audit log."),
)


class Command(NamedTuple):
    """A command and how it is called: `words` is ("nhc", "serve", "remedy")."""

    words: Tuple[str, ...]
    command: click.Command
    context: click.Context

    @property
    def page(self) -> str:
        return "-".join(self.words)


def commands(top: click.Command, name: str = "nhc") -> Iterator[Command]:
    """Every command and group, the top first."""
    yield from _below(Command((name,), top, click.Context(top, info_name=name)))


def _below(found: Command) -> Iterator[Command]:
    yield found
    if isinstance(found.command, (click.Group, VerbCommand)):
        for name in found.command.list_commands(found.context):
            inner = found.command.get_command(found.context, name)
            assert inner is not None, f"{found.page} lists {name} and has it not"
            context = click.Context(inner, info_name=name, parent=found.context)
            yield from _below(Command((*found.words, name), inner, context))


def pages(top: click.Command, version: str, epoch: int) -> Dict[str, str]:
    """The file name and the text of each page."""
    found = list(commands(top))
    return {f"{one.page}.1": _page(one, found, version, epoch) for one in found}


def hook_page(name: str, usage: str, version: str, epoch: int) -> str:
    """The page of a scheduler's hook, from what its --help prints."""
    lines = [_head(name, version, epoch), ".SH NAME", f"{name} \\- {escape(HOOKS[name])}", ".SH DESCRIPTION"]
    lines += [".nf", *(_literal(line.rstrip()) or "\\&" for line in usage.strip("\n").splitlines()), ".fi"]
    lines += _ending([("nhc", "1"), *((other, "1") for other in HOOKS if other != name)])
    return "\n".join(lines) + "\n"


def _page(one: Command, every: Sequence[Command], version: str, epoch: int) -> str:
    summary, rest = _help(one.command)
    lines = [_head(one.page, version, epoch), ".SH NAME", f"{one.page} \\- {escape(_lowered(summary))}"]
    lines += [".SH SYNOPSIS", f"\\fB{escape(' '.join(one.words))}\\fR"]
    pieces = one.command.collect_usage_pieces(one.context)
    lines += [f"\\fI{escape(piece)}\\fR" for piece in pieces]
    lines += [".SH DESCRIPTION", *_paragraphs([summary, *rest])]
    lines += _options(one)
    if one.command.epilog:
        lines += [".SH EXAMPLES", ".nf", _literal(one.command.epilog.partition("Example: ")[2]), ".fi"]
    inner = [other for other in every if other.words[:-1] == one.words]
    if inner:
        lines.append(".SH COMMANDS")
        for other in inner:
            lines += [".TP", f"\\fB{escape(' '.join(other.words))}\\fR", _line(_help(other.command)[0])]
    if len(one.words) == 1:
        lines.append(".SH FILES")
        for path, what in _FILES:
            lines += [".TP", f"\\fI{path}\\fR", what]
    near = [("-".join(one.words[:-1]), "1")] if len(one.words) > 1 else [(hook, "1") for hook in HOOKS]
    siblings = [other for other in every if other.words[:-1] == one.words[:-1] and other.words != one.words]
    near += [(other.page, "1") for other in (inner or siblings)]
    return "\n".join([*lines, *_ending(near)]) + "\n"


def _head(page: str, version: str, epoch: int) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    return f'.TH {page.upper().replace("-", chr(92) + "-")} 1 "{day}" "nhc {version}" "Node health checks"'


def _ending(near: Sequence[Tuple[str, str]]) -> List[str]:
    if not near:
        return []
    rows = [f".BR {escape(name)} ({section})" for name, section in near]
    return [".SH SEE ALSO", *(f"{row} ," for row in rows[:-1]), rows[-1]]


def _help(command: click.Command) -> Tuple[str, List[str]]:
    """The first sentence of a command's help, and the paragraphs after it."""
    text = inspect.cleandoc(command.help or command.short_help or "").partition("\f")[0]
    first, *rest = re.split(r"\n\s*\n", text.strip()) if text.strip() else [""]
    return " ".join(first.split()), rest


def _lowered(text: str) -> str:
    """A summary as NAME has it: no capital at the beginning, no full stop at the end."""
    text = text.split(". ", maxsplit=1)[0].rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _paragraphs(texts: Sequence[str]) -> List[str]:
    lines: List[str] = []
    for text in filter(str.strip, texts):
        lines += [".PP"] if lines else []
        if text.startswith("\b"):
            lines += [".nf", *(_literal(line) for line in text.splitlines()[1:]), ".fi"]
        else:
            lines += [_line(" ".join(text.split()))]
    return lines


def _options(one: Command) -> List[str]:
    """A section a heading, in the order of --help: what has none comes last."""
    sections: Dict[str, List[str]] = {}
    for parameter in one.command.get_params(one.context):
        record = parameter.get_help_record(one.context)
        if record is None:
            continue
        flags, said = record
        heading = getattr(parameter, "heading", "Other")
        sections.setdefault(heading, []).extend([".TP", f"\\fB{escape(flags)}\\fR", _line(" ".join(said.split()))])
    lines = [".SH OPTIONS"] if sections else []
    last = sections.pop("Other", None)
    for heading, rows in sections.items():
        lines += [f".SS {escape(heading)}", *rows]
    if last:
        lines += [*([".SS Other"] if sections else []), *last]
    return lines


def escape(text: str) -> str:
    """Text as roff shows it: backslashes, hyphens that people copy, quotes that are no typography."""
    for character, written in (
        ("\\", "\\e"),
        ("-", "\\-"),
        ("'", "\\(aq"),
        ("`", "\\(ga"),
        ("^", "\\(ha"),
        ("~", "\\(ti"),
    ):
        text = text.replace(character, written)
    return "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)


def _line(text: str) -> str:
    """A text that is filled: lines of a length that editors and linters like, none of them a request."""
    rows = textwrap.wrap(text, 70, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(map(_literal, rows))


def _literal(text: str) -> str:
    """A line that is kept as it is, and is no request whatever it begins with."""
    shown = escape(text)
    return f"\\&{shown}" if shown.startswith((".", "\\(aq")) else shown


def write(top: click.Command, usages: Dict[str, str], version: str, epoch: int, into: Path) -> List[Path]:
    """Write all pages into a directory; `usages` is what each hook prints for --help."""
    into.mkdir(parents=True, exist_ok=True)
    texts = pages(top, version, epoch)
    texts.update({f"{name}.1": hook_page(name, usage, version, epoch) for name, usage in usages.items()})
    for name, text in sorted(texts.items()):
        (into / name).write_text(text, encoding="ascii")
    return sorted(into.iterdir())
