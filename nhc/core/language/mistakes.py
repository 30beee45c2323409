"""Mistakes in a configuration's lines that reading them does not stumble over: what is wrong, and where.

A run notes them in its report, `nhc config check` calls them errors. Nothing here is loaded for a line without
something odd about it.
"""

from __future__ import annotations

import re

from nhc.core import check
from nhc.core.language import shell_words
from nhc.core.language.line_options import OPTIONS, near, unknown_option
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Collection, Iterator, List, Optional, Tuple

    from typing_extensions import TypeAlias

    from nhc.core.language.shell_words import Lookup

Mistake: TypeAlias = "Tuple[str, int]"

_INVISIBLE = "\u00ad\u180e\u200b\u200c\u200d\u2060\ufeff"
_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_CUT = re.compile(
    r"[;&|()`\n]+|(?<![^\s;&|()`])(?:\{|\}|!|if|then|else|elif|while|until|do|done|fi|time)(?![^\s;&|()`])"
)


def refuse_binary(text: str) -> None:
    """Raises OSError for what is so far from text that reading on would only give a mistake for every line."""
    begin = text[:4096]
    odd = sum(1 for char in begin if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\x1b"))
    if odd * 20 > len(begin):
        raise OSError(22, "a binary file, not a configuration")


def odd_character(text: str) -> Optional[Tuple[str, int]]:
    """A blank, quote or dash of a word processor outside quotes, where it does not do what it looks like."""
    quote = ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in " \t" or char.isascii():
            continue
        elif char.isspace():
            return f"U+{ord(char):04X} is a blank that separates no words: write an ordinary one", at
        elif char in _INVISIBLE:
            return f"U+{ord(char):04X} cannot be seen and is part of the word: delete it", at
        elif char in _QUOTES:
            return f"{char} quotes nothing: write ' or \"", at
        elif char in _DASHES and (at == 0 or text[at - 1] in " \t"):
            return f"{char} begins no option: write -", at
        elif char == "\ufffd":
            return "bytes that are no UTF-8 text", at
    return None


def without_check(text: str) -> Mistake:
    """What is wrong with a line that has no check, and where: no bars, one bar, `* |evry 5m| check_x`, `* ||`."""
    begin = len(text) - len(text.lstrip(" \t"))
    bars = text.find("|")
    if text.split() == ["include"]:
        return "include: expected a file or a pattern, as in include conf.d/*.conf", begin
    if bars < 0 or text[begin : begin + 2].lstrip("!").startswith("/"):
        return "no `||`: expected TARGET || CHECK", begin
    if text.rstrip().endswith("|") and text.count("|") > 1:
        return "nothing after the bars: expected TARGET || CHECK", bars
    return _strange_option(text) or _single_bar(text, bars)


def _single_bar(text: str, bars: int) -> Mistake:
    option = re.match(r"\|\s*([a-z-]*)", text[bars:])
    if option and option[1] in OPTIONS:
        return f"the bar before {option[1]!r} has no partner: expected TARGET |{option[1]} ...| CHECK", bars
    return "a single bar: expected TARGET || CHECK", bars


def _strange_option(text: str) -> Optional[Mistake]:
    match = re.search(r"\|\s*([A-Za-z][\w-]*)[^|]*\|", text)
    return (unknown_option(match[1]), match.start(1)) if match else None


def bars_in_target(target: str) -> Optional[Tuple[str, int]]:
    """A single bar in a target that is neither a glob's nor an expression's: options that are none."""
    plain = target.lstrip("!")
    if len(plain) > 1 and plain[0] == plain[-1] == "/":
        return None
    masked = re.sub(r"\([^()]*\)", lambda group: "x" * len(group[0]), target)
    return _strange_option(masked) if "|" in masked else None


def unknown_check(name: str, functions: Collection[str]) -> str:
    """What to say of a check that nothing defines. Imports every family, so only once something is wrong."""
    from nhc.core.plugins import CHECKS, unreadable

    try:
        known = [declared.name for declared in check.find_all()]
    except ImportError:
        known = []
    known += [function for function in functions if function.startswith("check_")]
    unread = "".join(f" ({problem})" for problem in unreadable(CHECKS))  # it may be one of theirs
    return f"no such check: {name}{meant_elsewhere(name) or near(name, known)}{unread}"


def misspelt_program(name: str) -> str:
    """What to say of a program whose name is nearly a check's, empty where it may be one."""
    from difflib import get_close_matches

    if "/" in name or "_" not in name:
        return ""
    close = get_close_matches(name.lower(), [declared.name for declared in check.find_all()], 1, 0.8)
    if not close:
        return ""
    from shutil import which

    return "" if which(name) else f"no such check or program: {name} (did you mean {close[0]}?)"


def unclosed_quote(text: str) -> int:
    """Where a quote begins that never ends, -1 for none. A line with a here-document is not judged."""
    opened: List[Tuple[str, int]] = []
    at = 0
    while at < len(text) and "<<" not in text:
        char, inside = text[at], opened[-1][0] if opened else ""
        following = text[at + 1 : at + 2]
        if char == "\\":
            at += 1
        elif char == inside:
            opened.pop()
        elif char == "$" and following in ("(", "{"):
            opened.append((")" if following == "(" else "}", at))
            at += 1
        elif char == "'" and not any(kind == '"' for kind, _ in opened[-2:]):
            end = _single_quoted(text, at)
            if end < 0:
                return at
            at = end
        elif char == '"' or (char == "`" and inside != '"'):
            opened.append((char, at))
        elif inside != '"' and char == "(":
            opened.append((")", at))
        elif inside not in ('"', "}") and char == "#" and (at == 0 or text[at - 1] in " \t;&|("):
            break
        at += 1
    return next((place for kind, place in opened if kind in '"`'), -1)


def _single_quoted(text: str, at: int) -> int:
    """Where the single quote at `at` ends; -1 if never. `$'...'` can hold an escaped one."""
    escapes = at > 0 and text[at - 1] == "$"
    end = at + 1
    while end < len(text) and text[end] != "'":
        end += 2 if escapes and text[end] == "\\" else 1
    return end if end < len(text) else -1


def in_shell(text: str, known: Collection[str], lookup: Lookup) -> Iterator[Mistake]:
    """Checks in a shell line that there are not, and options and arguments that do not fit those there are.

    `known` are the site's own functions.
    """
    quote = unclosed_quote(text)
    if quote >= 0:
        yield f"the quote {text[quote]} is never closed", quote
        return
    wrong = syntax_problem(text)
    if wrong:
        yield f"bash cannot parse it: {wrong}", 0
        return
    for at, command in _simple_commands(text):
        split = command.split(None, 1)
        name = split[0] if split else ""
        if name in known or not re.fullmatch(r"\w+", name):
            continue
        if not name.startswith("check_"):
            misspelt = misspelt_program(name)
            if misspelt:
                yield misspelt, at
            continue
        declared = check.find(name)
        if declared is None:
            yield unknown_check(name, known), at
            continue
        given = _words(command, lookup)
        try:
            if all(text is not None for text, _ in given):
                declared.parse([text or "" for text, _ in given])
            else:
                _known_options(declared, given)
        except check.BadArguments as bad:
            offset = given[min(bad.index, len(given) - 1)][1] if given else 0
            yield f"{name}: {bad}", at + offset


def _known_options(declared: check.Check, given: List[Tuple[Optional[str], int]]) -> None:
    """Raises BadArguments for an option that the check does not have, as far as words are known before the run."""
    sure: List[str] = []
    for text, _offset in given:
        if text is None:
            break
        sure.append(text)
    try:
        declared.parse(sure)
    except check.BadArguments as bad:
        if str(bad).startswith("Invalid option"):
            raise


def _mask(text: str) -> str:
    """The line with everything quoted, and `${...}`, blotted out; commands inside `$(...)` stay visible."""
    pattern = r"\\.|\$'(?:\\.|[^'\\])*'|'[^']*'|\$\{[^}]*\}|(?<!\S)#.*"
    masked = re.sub(pattern, lambda match: "\1" * len(match[0]), text, flags=re.DOTALL)
    out, depth, quoted = list(masked), 0, False
    for at, char in enumerate(masked):
        if char == '"':
            quoted = not quoted
            out[at] = "\1"
        elif quoted and masked.startswith("$(", at):
            depth, quoted = depth + 1, False
        elif depth and char == ")" and not quoted:
            depth, quoted = depth - 1, True
        elif quoted:
            out[at] = "\1"
    return "".join(out)


def _simple_commands(text: str) -> Iterator[Tuple[int, str]]:
    """The simple commands of a line and where they begin; none where the line is too complicated for that."""
    masked = _mask(text)
    if re.search(r"(?<!\w)(?:case|function)(?!\w)", masked):
        return
    start = 0
    cuts = [(match.start(), match.end()) for match in _CUT.finditer(masked)] + [(len(text), len(text))]
    for stop, following in cuts:
        defines = masked[stop:].startswith("()") or masked[:start].endswith("=(")
        piece = re.sub(r"\d*[<>].*", "", masked[start:stop], flags=re.DOTALL)
        blank = len(piece) - len(piece.lstrip())
        if piece.strip() and not defines:
            goes_on = masked[stop : stop + 1] if re.search(r"\$$", piece) or masked[stop : stop + 1] == "`" else ""
            yield start + blank, text[start + blank : start + len(piece)] + goes_on
        start = following


def _words(command: str, lookup: Lookup) -> List[Tuple[Optional[str], int]]:
    """The words after the first, and where they are; None for one that only a run can tell."""
    masked = _mask(command)
    words: List[Tuple[Optional[str], int]] = []
    for place in list(re.finditer(r"\S+", masked))[1:]:
        split = shell_words.split(command[place.start() : place.end()], lookup)
        words.append((split[0].text if split and len(split) == 1 else None, place.start()))
    return words


def meant_elsewhere(name: str) -> str:
    """` (here it is OURS: docs/PAGE)` for a name of another health check, empty for any other."""
    from nhc.core.data.reader import table

    asked = name.lower()
    for theirs, ours, page in table("elsewhere.tsv"):
        if theirs.lower() in (asked, f"check_{asked}"):
            return f" (here it is {ours}: docs/{page})"
    return ""


if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence

    from nhc.core.system.process import Completed

    Run = Callable[[Sequence[str]], Completed]

BASH_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
"""What the question is asked with: bash tells in the caller's language otherwise."""


def syntax_problem(line: str, run: Optional[Run] = None) -> str:
    """What bash says against a line's syntax, "" where nothing, or where there is no bash to ask.

    `run` runs a command by argv; without it, this node's bash is asked.
    """
    # extglob, as nhc's own shell has it. `nhc` is what bash calls itself in its message.
    argv = ("bash", "--norc", "--noprofile", "-O", "extglob", "-n", "-c", line, "nhc")
    try:
        done = run(argv) if run else _run_bash(argv)
    except (OSError, ValueError):
        return ""
    if done.timed_out:
        return ""
    for complaint in done.stderr.splitlines():
        # Some errors in [[ ]] leave the status 0.
        text = complaint.partition("line ")[2].partition(": ")[2] or complaint.partition(": ")[2]
        if done.status or "syntax error" in text:
            return text.strip()
    return ""


def _run_bash(argv: Sequence[str]) -> Completed:
    from nhc.core.system import process

    return process.run(argv, timeout=5.0, env=BASH_ENVIRONMENT)
