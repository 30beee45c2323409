"""`nhc log classify`: what each line of a kernel log means. `nhc ack log`: end findings that have been dealt with.

The whole log is read before anything is printed: equal lines are one entry with a count, in the order of their first
appearance, and the meaning of some lines depends on others.

With `--findings`: the findings that are still active at the end of a kernel log, as check_kmsg judges them. A line
alone says little: a link that came up again, a file server that is back or a repaired PCIe error ends earlier findings.
With a node's root (`--root /`, or a recording's) findings are compared with that node's devices, mounts and processes.
Without one, a finding that only the node could confirm is at most degraded.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.host import Memory
from nhc.core.model import Action, printable
from nhc.core.timestamps import utc
from nhc.node.facts.kernel_lines import message
from nhc.node.kernlog import findings
from nhc.node.kernlog.catalogue import CatalogueRow, Matcher, lines_of
from nhc.node.kernlog.match import APP, DEGRADED, FATAL, INFO, RANK, Match
from nhc.node.kernlog.read import read_log
from nhc.node.kernlog.source import BadRules, LogSource
from nhc.node.kernlog.store import acknowledge, named, standing

if TYPE_CHECKING:
    from typing import Mapping

    from nhc.core.host import Host
    from nhc.node.kernlog.npd_rules import Rule, RuleReader
    from nhc.node.kernlog.state_types import Finding, LogState

DISTINCT = 100_000
"""The most different lines with entries of their own; further ones count towards the entry of the same error and
device."""
KEPT = 256 << 20
"""Characters kept of different lines, at most."""

_OTHER = Match("other", "", INFO, Action.NONE)


class FoldedLine(NamedTuple):
    """One line of the answer: the log line as it first appeared, its meaning, and its count."""

    line: str
    match: Match
    times: int
    row: Optional[CatalogueRow] = None


class LineFolder:
    """Lines in, entries out: equal messages are one entry, even if their time stamps differ."""

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
        """Apply the rules of node-problem-detector to every line; a rule may span several lines."""
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
    catalogue. `npd_rules` are rule files of node-problem-detector that are applied as well. With `findings` print
    instead what is still active at the end of the log, compared with the node whose root is `root`. `explain` adds to
    each line which row judged it and what else decided. Returns 0, or 2 where the log or a rule file cannot be read.
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
    """Which row judged an entry, and what else decided."""
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


def record_of(text: str, start: int) -> Optional[str]:
    """An indented line as a further line of the record above, whose time stamp is on its first line."""
    end = text.find("\n", start)
    line = text[start : None if end < 0 else end].rstrip("\r")
    first = start
    while first and text.startswith("  ", first):
        first = text.rfind("\n", 0, first - 1) + 1
    head = message(text[first : text.find("\n", first)].rstrip("\r"))
    if head is None or first == start:
        return message(line)
    *_others, last = lines_of(f"{head}\n{line}")
    return last if len(_others) else message(line)


_BOOT = re.compile(r"^.{0,200}?\bLinux version \d[^\n]*$", re.MULTILINE)
"""The first line of a boot: linux_banner of init/version.c."""


class LogFindings:
    """Chunks of a log in, findings out."""

    def __init__(self, rules: Sequence[Rule] = (), host: Optional[Host] = None) -> None:
        self.state: LogState = {"boot": "boot-0", "ended": {}}
        self._rules = rules
        self._host = host
        self._boots = 0
        self._began = 0.0
        self._last = 0.0

    def feed(self, text: str) -> None:
        """Complete lines of a log."""
        from nhc.node.facts.kernel_lines import message

        done = 0
        for match in _BOOT.finditer(text):
            record = message(match[0])
            if record is None or not record.startswith("Linux version "):
                continue
            self._take(text[done : match.start()])
            done = match.start()
            self._boot()
        self._take(text[done:])

    def _boot(self) -> None:
        from nhc.node.kernlog.device_state import device_recovered

        if not self._last:
            return  # the log begins with it
        host = self._host
        self._boots += 1
        self._began = self._last
        before = dict(self.state.get("findings", {}))
        findings.enter_boot(
            self.state, f"boot-{self._boots}", lambda entry: device_recovered(host, entry) if host is not None else None
        )
        self._note_ended(before, self.state.get("findings", {}), "the node was restarted")

    def _note_ended(self, before: Mapping[str, Finding], after: Mapping[str, Finding], why: str) -> None:
        for key, finding in before.items():
            if key not in after and finding["severity"] == FATAL:
                self.state["ended"][key] = {**finding, "last_line": why}

    def _take(self, text: str) -> None:
        from nhc.node.facts.kernel_lines import parse_line
        from nhc.node.kernlog.catalogue import Matcher
        from nhc.node.kernlog.collect import take_in

        records: List[Tuple[str, Optional[float]]] = []
        spans: Iterable[Tuple[int, int]] = [(start, end) for start, end, _numbers in Matcher().candidates(text)]
        if self._rules:
            spans = [(match.start(), match.end()) for match in re.finditer(r"[^\n]+", text)]
        for start, end in spans:
            line = text[start:end].rstrip("\r")
            record = parse_line(line, 0.0)
            if not record.kernel:
                continue
            when = record.when
            if when is None and record.since_boot is not None:
                when = self._began + record.since_boot
            self._last = self._last if when is None else when
            text_of_record = record_of(text, start) if line.startswith("  ") else record.text
            records.append((text_of_record or "", self._last))
        take_in(self.state, records, self._last, self._rules)

    def standing(self) -> List[Tuple[str, Finding]]:
        """The findings that are active at the end, the most serious first."""
        from nhc.node.checks.kmsg import beside
        from nhc.node.kernlog import node_context

        if self._host is not None:
            pairs, gone = beside(self._host, self.state, findings.current(self.state))
            self._note_ended(dict(gone), {}, "the node's own state shows it to be gone")
            return pairs
        pairs = [(key, node_context.apart(self.state, entry)) for key, entry in findings.current(self.state)]
        return sorted(pairs, key=lambda pair: -RANK[pair[1]["severity"]])

    def ended(self) -> List[Tuple[str, Finding]]:
        """Fatal findings that have ended; `last_line` is the line that ended each. To be called after `standing`."""
        standing = self.state.get("findings", {})
        gone = self.state["ended"].items()
        return [(key, entry) for key, entry in gone if key not in standing or entry["last_line"].startswith("the node")]


def print_findings(chunks: Iterable[str], format: str, rules: Sequence[Rule], root: str, explain: bool = False) -> None:
    """Read a log and print its findings: one line or JSON object each. Raises OSError if the log cannot be read.

    Text also shows which fatal findings have ended, and what ended them; JSON does so with `explain`.
    """
    from nhc.core.host import Host

    log = LogFindings(rules, Host(root) if root else None)
    for chunk in chunks:
        log.feed(chunk)
    standing = log.standing()
    out = sys.stdout
    if format == "json":
        rows = [finding_as_object(key, entry) for key, entry in standing]
        rows += [
            {**finding_as_object(key, entry), "ended_by": entry["last_line"]} for key, entry in log.ended() if explain
        ]
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        out.write(text.encode(errors="backslashreplace").decode())
    else:
        for key, entry in standing:
            head = f"{entry['severity']:<9} {entry['action']:<13} x{entry['count']:<6} {printable(key)}"
            out.write(f"{head}  {printable(entry['message'])}\n")
        for key, entry in log.ended():
            head = f"{'ended':<9} {entry['action']:<13} x{entry['count']:<6} {printable(key)}"
            out.write(f"{head}  {printable(entry['message'])}; ended by: {printable(entry['last_line'])}\n")
        fatal = sum(1 for _key, entry in standing if entry["severity"] == "fatal")
        out.write(f"{len(standing)} findings stand at the end of the log, {fatal} of them fatal\n")
    out.flush()


def finding_as_object(key: str, finding: Finding) -> Dict[str, object]:
    """A finding in JSON's types."""
    return {
        "finding": key, "kind": finding["kind"], "code": finding["code"], "device": finding["device"],
        "severity": finding["severity"], "action": finding["action"], "count": finding["count"],
        "message": finding["message"], "line": finding["line"],
    }  # fmt: skip


class ClassifyOptions(options.Formatted):
    file: str = options.argument("[FILE|-]")
    show_all: bool = options.flag("--all", "Show the lines that mean nothing to the catalogue, too.")
    explain: bool = options.flag("--explain", "Say which row judged each line, and what beside it decided.")
    npd_rules: Tuple[str, ...] = options.texts("--npd-rules", "FILE", "Apply node-problem-detector's rule file.")
    findings: bool = options.flag("--findings", "Print what still stands at the end of the log, not each line.")
    root: str = options.text("--root", "DIR", "With --findings: judge beside this node's mounts, tasks and devices.")


@click_command
def classify(args: ClassifyOptions) -> int:
    """Say what each line of a kernel log means: dmesg's output, a syslog, journalctl's, /dev/kmsg's records."""
    return classify_command(
        args.file or None, format=args.form, show_all=args.show_all, npd_rules=args.npd_rules, findings=args.findings,
        root=args.root, explain=args.explain,
    )  # fmt: skip


class CatalogueOptions(options.Formatted):
    word: str = options.argument("[CODE|WORD]")


@click_command
def catalogue(args: CatalogueOptions) -> int:
    """Show what nhc knows of a CODE (79, SXid12020, GpuFallenOffBus), of a WORD, or of a whole line of a kernel log.

    Severity, action, what ends it, who prints it, and in which versions that was read. Without an argument: every row.
    """
    from nhc.node.commands.log_catalogue import catalogue_command

    return catalogue_command(args.word, format=args.form)


class LogAckOptions(options.Formatted):
    keys: Tuple[str, ...] = options.arguments("[FINDING]...")
    device: Optional[str] = options.text("--device", "DEVICE", "All findings of a device.", None)
    drills: bool = options.flag("--drills", "All that nhc inject made.")
    every: bool = options.flag("--all", "All.")
    note: str = options.text("--note", "TEXT", "What was done; kept with the acknowledgement.")


@click_command
def ack(args: LogAckOptions) -> int:
    """Acknowledge findings of the kernel log; without anything named, list those that stand."""
    return ack_command(
        args.keys, device=args.device, drills=args.drills, every=args.every, note=args.note, format=args.form
    )


def _read_what_is_new(memory: Memory) -> None:
    """Read what the kernel has logged since the last run, so that an acknowledgement covers all earlier lines."""
    from nhc.core.host import Host

    try:
        read_log(Host(memory=memory), LogSource())
    except OSError:
        pass  # what cannot be read was not judged either


def ack_command(
    keys: Sequence[str] = (),
    *,
    device: Optional[str] = None,
    drills: bool = False,
    every: bool = False,
    note: str = "",
    format: str = "text",
    memory: Optional[Memory] = None,
    now: Optional[float] = None,
) -> int:
    """Acknowledge findings of the kernel log; list them if none is named.

    `keys` are as the list shows them (`xid/79/0000:3b:00.0`). `device` names all findings of a device, `drills`
    all that `nhc inject` made, `every` all. `note` says what was done; it is kept with the acknowledgement. A fault
    that is logged again after this is a new finding. Returns 0; 1 if none of the named findings is active.
    """
    from nhc.core.command_line.common_options import person

    if memory is None:
        from nhc.core.state.store import State

        memory = State()
        _read_what_is_new(memory)
    if not (keys or device or drills or every):
        _list_findings(standing(memory), format)
        return EXIT_HEALTHY
    there = {key for _store, key, _finding in standing(memory)}
    chosen = named(memory, keys, device or "", everything=every, drills=drills)
    ended = acknowledge(memory, chosen, person(), note, time.time() if now is None else now)
    for warning in getattr(memory, "warnings", []):
        print(f"nhc ack: {warning}", file=sys.stderr)
        return EXIT_USAGE  # an acknowledgement that is not kept is none
    for key in ended:
        print(f"acknowledged {key}")
    for key in sorted({key for pairs in chosen.values() for key, _finding in pairs} - set(ended)):
        print(f"nhc ack: {key} has come again: it stands", file=sys.stderr)
    missing = [key for key in keys if key not in ended]
    for key in missing:
        if key not in there:
            print(f"nhc ack: no finding {key} stands", file=sys.stderr)
    if not chosen and not missing:
        print("nhc ack: no such finding stands", file=sys.stderr)
    return EXIT_HEALTHY if ended and not missing else EXIT_UNHEALTHY


def _list_findings(findings: Sequence[Tuple[str, str, Finding]], format: str) -> None:
    if format == "json":
        for store, key, finding in findings:
            print(json.dumps({"key": key, "store": store, **finding}, ensure_ascii=False))
        return
    if not findings:
        print("no finding of the kernel log stands")
    for _store, key, finding in findings:
        at = utc(finding["last"])
        drill = "drill: " if finding.get("drill") else ""
        print(f"{finding['severity']:8}  {key}  x{finding['count']}  {at}  {drill}{finding['message']}")
