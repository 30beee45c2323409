"""The text of a configuration file as lines of `target || check`: pure, and no line's meaning is judged here.

LBNL NHC reads its file with bash's `read`, which eats backslashes and drops a last line without a
newline. Here a pair of backslashes still stands for one, so that configurations written around that
keep working, and a single one is kept, as in everything its manual shows.
"""

from __future__ import annotations

import re

from nhc.core.language.line_options import CONTEXTS, context_comment
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

_OPTIONS = re.compile(r"\|\s*((?:every|timeout|strikes|on-timeout|tags|context|warn-only)\b[^|]*)\|\|?")
_CONTEXT = re.compile(r"#+\s*context\b(.*)")
_INCLUDE = re.compile(r"include\s+(?=\S)")


class RawLine(NamedTuple):
    """One logical line. `line` is where it begins, counted from 1.

    `check` is empty where the line has no `||`. `contexts` come from a `# context` line above.
    `odd` says that something about it is worth a second look (`mistakes`), `trouble` what is wrong beyond that.
    `text` is the whole line with its continuations, `check_offset` and `target_offset` say where in it
    those begin, and `marks` where the file holds which part of it.
    """

    file: str
    line: int
    column: int
    target: str
    options: str
    check: str
    contexts: Tuple[str, ...] = ()
    text: str = ""
    target_offset: int = 0
    options_offset: int = 0
    check_offset: int = 0
    marks: Tuple[Tuple[int, int, int], ...] = ()
    odd: bool = False
    trouble: str = ""

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}"

    def position(self, offset: int) -> Tuple[int, int]:
        """Line and column, from 1, in the file of the character at `offset` of `text`."""
        start, line, column = 0, self.line, 0
        for mark in self.marks:
            if mark[0] > offset:
                break
            start, line, column = mark
        return line, column + offset - start + 1


def escape(text: str) -> str:
    """Text as a configuration file must hold it for `parse_text` to give it back."""
    return text.replace("\\", "\\\\")


def parse_text(text: str, file: str) -> List[RawLine]:
    """The lines of a configuration: comments, blank lines and lines without a target left out."""
    lines: List[RawLine] = []
    contexts: Tuple[str, ...] = ()
    for number, logical, marks in _logical_lines(text.lstrip("\ufeff").replace("\0", "\ufffd")):
        stripped = logical.lstrip(" \t")
        if not stripped:
            continue
        if stripped[0] == "#":
            context = _CONTEXT.fullmatch(stripped)
            if context:
                named = tuple(context[1].replace(",", " ").split())
                if all(name in CONTEXTS for name in named):
                    contexts = named
                    continue
                trouble = context_comment([*named])  # empty for an ordinary comment that begins so
                if trouble:
                    begin = len(logical) - len(stripped)
                    lines.append(RawLine(file, number, begin + 1, "", "", "", (), logical, begin,
                                         marks=marks, odd=True, trouble=trouble))  # fmt: skip
            continue
        line = parse_line(logical, file, number, contexts, marks)
        if not line.target:
            line = line._replace(
                odd=True, trouble="no target before the bars: expected TARGET || CHECK, * for every node"
            )
        elif not line.check or "|" in line.target or not logical.isascii():
            line = line._replace(odd=True)
        lines.append(line)
    return lines


def parse_line(
    text: str, file: str, number: int, contexts: Tuple[str, ...] = (), marks: Tuple[Tuple[int, int, int], ...] = ()
) -> RawLine:
    """Split one logical line at its first `||`, or at options of ours between single bars before that."""
    bars = text.find("||")
    begin = len(text) - len(text.lstrip(" \t"))
    if bars < 0 and _INCLUDE.match(text, begin):
        target, options, options_at, check_at = "*", "", 0, begin
    else:
        given = _OPTIONS.search(text)
        if given and (bars < 0 or given.start() < bars):
            target, options, options_at, check_at = text[: given.start()], given[1], given.start(1), given.end()
        elif bars >= 0:
            target, options, options_at, check_at = text[:bars], "", 0, bars + 2
        else:
            target, options, options_at, check_at = text, "", 0, len(text)
    check = text[check_at:]
    check_at += len(check) - len(check.lstrip(" \t"))
    line = RawLine(
        file, number, 0, target.strip(" \t"), options.strip(), check.strip(" \t"), contexts,
        text, begin, options_at, check_at, marks,
    )  # fmt: skip
    return line._replace(column=line.position(check_at)[1])


def _logical_lines(text: str) -> List[Tuple[int, str, Tuple[Tuple[int, int, int], ...]]]:
    """Numbered lines, continuations joined and pairs of backslashes made one, and where their parts come from."""
    physical = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    if "\\" not in text:
        return [(number, line, ()) for number, line in enumerate(physical, 1)]
    lines: List[Tuple[int, str, Tuple[Tuple[int, int, int], ...]]] = []
    at = 0
    while at < len(physical):
        begin = at
        parts: List[str] = []
        marks: List[Tuple[int, int, int]] = []
        length = 0
        while True:
            line = physical[at]
            at += 1
            joined = (len(line) - len(line.rstrip("\\"))) % 2 == 1 and at <= len(physical)
            if joined:
                line = line[:-1]
            marks.append((length, at, 0))
            for place in _pairs(line):
                # The second backslash of the pair is gone: what follows it lies one column further right.
                marks.append((length + place - (len(marks) - 1 - _first_mark(marks, at)), at, place + 1))
            line = line.replace("\\\\", "\\")
            parts.append(line)
            length += len(line)
            if not joined or at >= len(physical):
                break
        lines.append((begin + 1, "".join(parts), tuple(marks)))
    return lines


def _pairs(line: str) -> List[int]:
    """Where, in `line`, the second backslash of each pair stands."""
    return [match.end() - 1 for match in re.finditer(r"\\\\", line)]


def _first_mark(marks: List[Tuple[int, int, int]], line: int) -> int:
    """The index of the first mark of physical line `line`."""
    return next(index for index, mark in enumerate(marks) if mark[1] == line)
