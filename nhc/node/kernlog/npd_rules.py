r"""node-problem-detector's own rule files, read as they are.

A system-log-monitor file is JSON with `rules` (type, reason, pattern, condition), `conditions` and
`bufferSize`. A pattern is one of Go's (RE2), may span the last `bufferSize` lines, and is anchored where
the newest line ends: the detector appends `\z` to it (pkg/systemlogmonitor/log_buffer.go). A permanent rule
sets a node condition for good, so it is fatal here; a temporary one is an event, so it is information.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.patterns import CLASSES
from nhc.core.model import Action
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.node.kernlog.match import FATAL, INFO, Match
from nhc.node.kernlog.source import OTHER, SYSLOG_FILES, BadRules, LogSource

if TYPE_CHECKING:
    from re import Match as Match_
    from typing import Any, List, Optional, Pattern, Sequence, Tuple

PERMANENT, TEMPORARY = "permanent", "temporary"
BUFFER = 10
"""The detector's default of lines that a pattern can span."""

_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_CLASSES = {**CLASSES, "ascii": r"\x00-\x7f"}


class Rule(NamedTuple):
    """One rule. `lines` is how many lines its pattern can span: 1 for one that cannot match a line break."""

    type: str
    reason: str
    condition: str
    pattern: Pattern[str]
    lines: int
    source: str

    def match(self, line: str) -> Match:
        severity, action = (FATAL, Action.INSPECT) if self.type == PERMANENT else (INFO, Action.NONE)
        what = f"{self.condition}: {self.reason}" if self.condition else self.reason
        return Match("npd", self.reason, severity, action, "", f"{what} ({self.source})", line)

    def search(self, text: str, last: Sequence[str], line: str) -> Optional[Tuple[str, int]]:
        """The text that the rule matches when `line` has come, and where its match begins; None for no match.

        `last` are the newest lines, `line` among them; `text` is the `needle` of the rule's pattern.
        """
        if self.lines == 1:
            return (line, 0) if text in line and self.pattern.search(line) else None
        block = "\n".join(last[-self.lines :])
        hit = self.pattern.search(block) if text in block else None
        return (block, hit.start()) if hit is not None and hit.end() > len(block) - len(line) - 1 else None


class RuleFile(NamedTuple):
    """A file: its rules, and where its log is (`plugin` kmsg, journald or filelog, with the detector's options)."""

    source: str
    plugin: str
    log_path: str
    identifier: str
    rules: Tuple[Rule, ...]


def load_file(path: str) -> RuleFile:
    """A rule file. Raises BadRules."""
    try:
        text = read_text(path, errors="replace")
    except OSError as error:
        raise BadRules(f"{path}: {error.strerror}") from None
    return parse(text, path)


def own_source(path: str) -> LogSource:
    """Where a rule file wants its rules applied: LogSource(rules=...) for the kernel log. Raises BadRules."""
    file = load_file(path)
    if file.plugin == "journald" and file.identifier not in ("", "kernel"):
        return LogSource(OTHER, file.identifier, (path,))
    if file.plugin == "filelog" and file.log_path not in ("", *SYSLOG_FILES):
        return LogSource(OTHER, file.log_path, (path,))
    return LogSource(rules=(path,))


def parse_config(text: str) -> Any:
    """The JSON of one of node-problem-detector's files. Raises ValueError.

    A comma after the last element is passed over: disk-log-message-filelog.json is shipped with two of them
    (v1.34.0, where node-problem-detector itself refuses the file).
    """
    try:
        return parse_json(text)
    except ValueError:
        mended = re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])', lambda match: match[1] or "", text)
        if mended == text:
            raise
    try:
        return parse_json(mended)
    except ValueError:
        return parse_json(text)  # its own error, with its own line and column


def parse(text: str, path: str) -> RuleFile:
    """A rule file's text. Raises BadRules naming the file, the rule and what was expected."""
    try:
        config = parse_config(text)
    except ValueError as error:
        raise BadRules(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("rules"), list):
        raise BadRules(f"{path}: expected an object with a list of rules, as node-problem-detector's log monitors have")
    buffer = config.get("bufferSize", BUFFER)
    if not isinstance(buffer, int) or buffer < 1:
        raise BadRules(f"{path}: bufferSize: {buffer!r}, expected a whole number above 0")
    given = config.get("conditions") or []
    if not isinstance(given, list):
        raise BadRules(f"{path}: conditions: {given!r}, expected a list of objects")
    conditions = {str(c.get("type")) for c in given if isinstance(c, dict)}
    source = str(config.get("source") or path.rpartition("/")[2])
    rules = tuple(
        _rule(rule, f"{path}: rule {n}", conditions, buffer, source) for n, rule in enumerate(config["rules"], 1)
    )
    options = config.get("pluginConfig") or {}
    identifier = str(options.get("source", "")) if isinstance(options, dict) else ""
    return RuleFile(source, str(config.get("plugin") or "kmsg"), str(config.get("logPath") or ""), identifier, rules)


def _rule(rule: Any, where: str, conditions: Any, buffer: int, source: str) -> Rule:
    if not isinstance(rule, dict):
        raise BadRules(f"{where}: expected an object")
    kind, reason, pattern = rule.get("type"), rule.get("reason"), rule.get("pattern")
    condition = str(rule.get("condition") or "")
    if kind not in (PERMANENT, TEMPORARY):
        raise BadRules(f"{where}: type: {kind!r}, expected {PERMANENT!r} or {TEMPORARY!r}")
    if not isinstance(reason, str) or not isinstance(pattern, str) or not pattern:
        raise BadRules(f"{where}: expected a reason and a pattern")
    if kind == PERMANENT and condition not in conditions:
        raise BadRules(f"{where}: condition: {condition!r}, expected one of the file's conditions")
    compiled = compile_go(pattern, f"{where}: pattern", r"\Z")
    spans = re.search(r"\\n|\\s|\[\^|\\[DSW]|\(\?[a-z]*s|\n", pattern) is not None
    return Rule(kind, reason, condition if kind == PERMANENT else "", compiled, buffer if spans else 1, source)


_GO_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def go_duration(text: str) -> float:
    """Seconds of a duration as Go writes it: `30s`, `1m30s`, `500ms`, `0`. Raises ValueError."""
    if text == "0":
        return 0.0
    total, at = 0.0, 0
    for match in _GO_DURATION.finditer(text):
        if match.start() != at:
            break
        total += float(match[1]) * _GO_UNITS[match[2]]
        at = match.end()
    if not text or at != len(text) or total > 9.3e9:  # Go's int64 of nanoseconds: 292 years
        raise ValueError(f"{text!r} is not a duration (as in 30s or 1m30s)")
    return total


def compile_go(pattern: str, where: str, end: str = "") -> Pattern[str]:
    r"""A pattern of Go's regexp, `end` behind it. Raises BadRules that begins with `where`."""
    try:
        # RE2's \d, \w and \s know ASCII alone.
        return re.compile(translate(pattern) + end, 0 if r"\p" in pattern else re.ASCII)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise BadRules(f"{where} {pattern!r}: {error}") from None


def translate(pattern: str) -> str:
    r"""A pattern of Go's regexp in Python's terms. Raises re.error.

    Flags may stand anywhere (`a|(?i)b`): they hold to the end of their group, so the rest of it becomes
    `(?i:b)`. `\z` is `\Z`, `$` is the very end (Python's also stands before a last line break), `[[:alpha:]]` and
    `\pL` are spelt out, `\Q...\E` is quoted, `(?<name>` is `(?P<name>`. Greediness (`U`) decides what is matched and
    not whether, and is left out.
    """
    out: List[str] = []
    levels: List[List[str]] = [[]]  # the flag groups opened at each level of parentheses
    multiline = [False]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        flags = _FLAGS.match(pattern, at)
        if flags:
            group = _flag_group(flags)
            if flags[3] == ":":
                levels.append([])
                multiline.append(_multiline(flags, multiline[-1]))
            else:
                levels[-1].append(group)
                multiline[-1] = _multiline(flags, multiline[-1])
            out.append(group)
            at = flags.end()
            continue
        if char == "\\":
            piece, at = _escape(pattern, at)
        elif char == "[":
            piece, at = _bracket(pattern, at)
        else:
            piece, at = char, at + 1
            if char == "(":
                levels.append([])
                multiline.append(multiline[-1])
                if pattern.startswith("?<", at):
                    piece, at = "(?P", at + 1
            elif char == ")":
                if len(levels) == 1:
                    raise re.error("unbalanced parenthesis")
                piece = ")" * len(levels.pop()) + ")"
                multiline.pop()
            elif char == "|":  # the flags hold in the alternatives that follow
                piece = ")" * len(levels[-1]) + "|" + "".join(levels[-1])
            elif char == "$" and not multiline[-1]:
                piece = r"\Z"
        out.append(piece)
    out.append(")" * len(levels[0]))
    return "".join(out)


def _flag_group(flags: Match_[str]) -> str:
    """`(?i-s)` and `(?i-s:` as the group that Python begins with these flags."""
    on = "".join(flag for flag in "ims" if flag in flags[1])
    off = "".join(flag for flag in "ims" if flag in (flags[2] or ""))
    return f"(?{on}{f'-{off}' if off else ''}:"


def _multiline(flags: Match_[str], before: bool) -> bool:
    return "m" in flags[1] or (before and "m" not in (flags[2] or ""))


def needle(pattern: str) -> str:
    """The longest text that every match of a pattern holds, "" if it is not known: it spares most searches."""
    if "|" in pattern or "(?" in pattern:
        return ""
    best, run, depth, at = "", "", 0, 0
    while at <= len(pattern):
        char = pattern[at : at + 1]
        if char == "\\" and not pattern[at + 1 : at + 2].isalnum():
            char, width = pattern[at + 1 : at + 2], 2
            plain = char != ""
        else:
            width = 1
            plain = char != "" and char not in "\\[](){}.*+?^$"
        if char and char in "?*{" and width == 1:
            run = run[:-1]  # what came before may be absent
        if plain and depth == 0:
            run += char
        else:
            best, run = max(best, run, key=len), ""
            if char == "(" and width == 1:
                depth += 1
            elif char == ")" and width == 1:
                depth -= 1
            elif char == "\\":
                width = 2
            elif char == "[":
                width = _bracket(pattern, at)[1] - at
            elif char == "{":
                width = max(pattern.find("}", at) + 1 - at, 1)
        at += width
    return best


class RuleReader:
    """Rules applied to a log, line by line, in order."""

    def __init__(self, rules: Sequence[Rule], before: Sequence[str] = ()) -> None:
        self._rules = [(rule, needle(rule.pattern.pattern[:-2])) for rule in rules]
        self._span = max((rule.lines for rule in rules), default=1)
        self._last: List[str] = list(before)

    def tail(self) -> List[str]:
        """The lines that a pattern could still begin in, for the next reader of the same log."""
        return self._last[-(self._span - 1) :] if self._span > 1 else []

    def read(self, line: str) -> List[Match]:
        """What the rules say now that this line has come."""
        self._last = [*self._last[-(self._span - 1) :], line] if self._span > 1 else [line]
        hits = ((rule, rule.search(text, self._last, line)) for rule, text in self._rules)
        return [rule.match(hit[0][hit[1] :].replace("\n", " | ")) for rule, hit in hits if hit is not None]


def _escape(pattern: str, at: int) -> Tuple[str, int]:
    following = pattern[at + 1 : at + 2]
    if following == "z":
        return r"\Z", at + 2
    if following == "x" and pattern[at + 2 : at + 3] == "{":
        end = pattern.find("}", at)
        try:
            return re.escape(chr(int(pattern[at + 3 : end], 16))), end + 1
        except (ValueError, OverflowError):
            raise re.error(f"{pattern[at : at + 8]!r} is no character") from None
    if following == "Q":
        end = pattern.find(r"\E", at + 2)
        end = len(pattern) if end < 0 else end
        return re.escape(pattern[at + 2 : end]), min(end + 2, len(pattern))
    if following in ("p", "P"):
        name = pattern[at + 2 : at + 3]
        end = at + 3
        if name == "{":
            end = pattern.find("}", at) + 1
            name = pattern[at + 3 : end - 1]
        kinds = {"L": r"[^\W\d_]", "Lu": r"[A-Z]", "Ll": r"[a-z]", "N": r"\d", "Nd": r"\d"}
        if name not in kinds or following == "P":
            raise re.error(f"\\{following}{name} is not supported")
        return kinds[name], end
    return pattern[at : at + 2], at + 2


def _bracket(pattern: str, at: int) -> Tuple[str, int]:
    """A bracket expression from `at`, POSIX classes spelt out, and where it ends."""
    end = at + 1
    out = ["["]
    if pattern[end : end + 1] == "^":
        out.append("^")
        end += 1
    first = True
    while end < len(pattern):
        char = pattern[end]
        if char == "]" and not first:
            return "".join(out) + "]", end + 1
        first = False
        if pattern.startswith("[:", end) and ":]" in pattern[end:]:
            stop = pattern.index(":]", end)
            name = pattern[end + 2 : stop]
            if name not in _CLASSES:
                raise re.error(f"[:{name}:] is not a class")
            out.append(_CLASSES[name])
            end = stop + 2
        elif char == "\\":
            out.append(pattern[end : end + 2])
            end += 2
        else:
            out.append("\\[" if char == "[" else "\\]" if char == "]" else char)
            end += 1
    raise re.error("missing ]")
