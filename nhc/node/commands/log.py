"""`nhc log classify`: what each line of a kernel log means.

The whole log is read before anything is printed: equal lines are one entry with a count, in the order of
their first appearance, and some lines mean something else when another stands beside them.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.exit_status import EXIT_HEALTHY, EXIT_USAGE
from nhc.core.model import Action, printable
from nhc.node.commands.log_records import record_of
from nhc.node.kernlog.catalogue import CatalogueRow, Matcher, lines_of
from nhc.node.kernlog.match import APP, DEGRADED, FATAL, INFO, Match
from nhc.node.kernlog.source import BadRules

if TYPE_CHECKING:
    from nhc.node.kernlog.npd_rules import RuleReader

DISTINCT = 100_000
"""Different lines that are kept apart; further ones count towards the entry of the same error and device."""
KEPT = 256 << 20
"""Characters kept of different lines, at most."""

_OTHER = Match("other", "", INFO, Action.NONE)


class FoldedLine(NamedTuple):
    """One line of the answer: the log line as it stood when it first appeared, its meaning, how often it came."""

    line: str
    match: Match
    times: int
    row: Optional[CatalogueRow] = None


class LineFolder:
    """Lines in, entries out: equal messages, whatever their stamps, are one."""

    def __init__(
        self, matcher: Matcher, show_all: bool = False, limit: int = DISTINCT, rules: Optional[RuleReader] = None
    ) -> None:
        self.lines = 0
        self._rules = rules
        self._matcher = matcher
        self._all = show_all
        self._limit = limit
        self._entries: Dict[Tuple[str, ...], List[Any]] = {}
        self._kept = 0

    def feed(self, text: str) -> None:
        """Complete lines of a log."""
        from nhc.node.facts.kernel_lines import message

        self.lines += text.count("\n") + (not text.endswith("\n") and text != "")
        done = 0
        if self._rules:
            self._apply(self._rules, text)
        for start, end, numbers in self._matcher.candidates(text):
            if self._all:
                self._rest(text[done:start])
                done = end + 1
            line = text[start:end].rstrip("\r")
            if (
                not self._judge(line, record_of(text, start) if line[:2] == "  " else message(line), numbers)
                and self._all
            ):
                self._rest(line)
        if self._all:
            self._rest(text[done:])

    def _judge(self, line: str, record: Optional[str], numbers: List[int]) -> bool:
        """Whether a record, or one of its lines, means something to the catalogue."""
        known = False
        for part in lines_of(record) if record is not None else ():
            match = self._matcher.judge(part, numbers)
            if match is not None and match.code != "TaskStack":
                self._add(line, part, match, self._matcher.row)
                known = True
        return known

    def _apply(self, rules: RuleReader, text: str) -> None:
        """Put every line before the rules of node-problem-detector, which may span several."""
        from nhc.node.facts.kernel_lines import message

        for line in text.split("\n"):
            record = message(line.rstrip("\r")) if line else None
            for match in rules.read(record) if record is not None else ():
                self._add(line.rstrip("\r"), f"{match.code}: {record}", match)

    def _rest(self, text: str) -> None:
        from nhc.node.facts.kernel_lines import message

        for line in text.split("\n"):
            if line.strip():
                self._add(line.rstrip("\r"), message(line) or line, _OTHER)

    def _add(self, line: str, record: str, match: Match, row: Optional[CatalogueRow] = None) -> None:
        key: Tuple[str, ...] = (record,)
        entry = self._entries.get(key)
        if entry is None and (len(self._entries) >= self._limit or self._kept > KEPT):
            key = ("", match.kind, match.code, match.device, match.severity)
            entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = [line, match, 1, row]
            self._kept += 2 * len(line)
        else:
            entry[2] += 1

    def entries(self) -> List[FoldedLine]:
        """What was found, in the order of first appearance."""
        entries = [FoldedLine(*values) for values in self._entries.values()]
        beside: Dict[str, str] = {}
        for entry in entries:
            if entry.match.kind == "xid" and entry.match.code not in ("45", "154"):
                beside.setdefault(entry.match.device, entry.match.code)
        return [_clean_up(entry, beside) for entry in entries]


def _clean_up(entry: FoldedLine, beside: Dict[str, str]) -> FoldedLine:
    """An Xid 45 beside another Xid of its GPU is only the clean-up after that one."""
    match = entry.match
    if match.kind != "xid" or match.code != "45" or match.device not in beside:
        return entry
    text = f"{match.message}: clean-up after Xid {beside[match.device]}"
    return entry._replace(match=match._replace(severity=INFO, action=Action.NONE, message=text))


def classify_command(
    file: Optional[str] = None,
    *,
    format: str = "text",
    show_all: bool = False,
    npd_rules: Sequence[str] = (),
    findings: bool = False,
    root: str = "",
    explain: bool = False,
) -> int:
    """Say what each line of a kernel log means: FILE, or standard input for none or "-".

    `format` is "text" or "json" (one object a line). `show_all` adds the lines that mean nothing to the
    catalogue. `npd_rules` are rule files of node-problem-detector that are applied as well. With `findings` say what
    still stands at the end of the log instead, beside the node whose root is `root`. `explain` adds to each line which
    row judged it and what beside it decided. Returns 0, or 2 where the log or a rule file cannot be read.
    """
    from nhc.core.system import kernel_ring
    from nhc.node.kernlog.npd_rules import RuleReader, load_file

    try:
        rules = [rule for path in npd_rules for rule in load_file(path).rules]
    except BadRules as error:
        print(f"nhc log classify: {printable(str(error))}", file=sys.stderr)
        return EXIT_USAGE
    folder = LineFolder(Matcher(), show_all, rules=RuleReader(rules) if rules else None)
    try:
        chunks = kernel_ring.Chunks(0) if file in (None, "-") else kernel_ring.contents(str(file))
        if findings:
            from nhc.node.commands.log_findings import print_findings

            print_findings(chunks, format, rules, root, explain)
        else:
            for chunk in chunks:
                folder.feed(chunk)
    except OSError as error:
        print(f"nhc log classify: {printable(file or 'standard input')}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    left_out = getattr(chunks, "left_out", 0)
    if left_out:
        note = f"{left_out} bytes in holes or in lines longer than {kernel_ring.LINE >> 20} MiB were not read"
        print(f"nhc log classify: {printable(file or 'standard input')}: {note}", file=sys.stderr)
    if findings:
        return EXIT_HEALTHY
    entries = folder.entries()
    out = sys.stdout
    if format == "json":
        rows = [{**as_object(entry), **({"why": _why(entry)} if explain else {})} for entry in entries]
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        out.write(text.encode(errors="backslashreplace").decode())  # a name of bytes that are no UTF-8
    else:
        out.write("".join(f"{line}\n" for line in as_text(entries, folder.lines, explain)))
    out.flush()
    return EXIT_HEALTHY


def as_object(entry: FoldedLine) -> Dict[str, object]:
    """An entry in JSON's types."""
    match = entry.match
    return {
        "line": entry.line,
        "kind": match.kind,
        "code": match.code,
        "device": match.device,
        "severity": match.severity,
        "action": match.action.value,
        "count": entry.times,
    }


def _why(entry: FoldedLine) -> List[str]:
    """Which row judged an entry, and what beside it decided."""
    if entry.row is None:
        return []
    from nhc.node.commands.log_catalogue import why

    return why(entry.match, entry.row)


def as_text(entries: Sequence[FoldedLine], lines: int, explain: bool = False) -> List[str]:
    """Entries in columns, each with its reasons below it where `explain` asks for them, and a summary."""
    cells = []
    for entry in entries:
        match = entry.match
        name = f"{match.kind} {match.code}".rstrip()
        cells.append(
            (match.severity, printable(name), printable(match.device) or "-", match.action.value, f"x{entry.times}")
        )
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(5)]
    out = []
    for row, entry in zip(cells, entries):
        columns = "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
        out.append(f"{columns}  {printable(entry.match.message or entry.line)}")
        out += [f"    {printable(reason)}" for reason in (_why(entry) if explain else ())]
    known = [entry for entry in entries if entry.match.kind != "other"]
    counts = ", ".join(
        f"{sum(entry.times for entry in known if entry.match.severity == severity)} {severity}"
        for severity in (FATAL, DEGRADED, APP, INFO)
    )
    return [*out, f"{lines} lines: {counts}"]
