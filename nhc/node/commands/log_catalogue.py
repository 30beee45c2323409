"""`nhc log catalogue`: what nhc knows about a code or a text of the kernel's log, and why a line was judged so."""

from __future__ import annotations

import json
import sys
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

from nhc.core.data.reader import table
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_USAGE
from nhc.core.model import Action, printable
from nhc.node.checks.kmsg import reason_of
from nhc.node.kernlog.catalogue import CatalogueRow, Matcher, rows
from nhc.node.kernlog.findings import OF_A_DEVICE
from nhc.node.kernlog.match import APP, INFO, RANK, Match
from nhc.node.kernlog.repeats import Repeat, repeats
from nhc.node.kernlog.xid import NEURON

NUMBERED = ("xid", "sxid")
DECISION = {"xid": 4, "sxid": 5}
"""The column of each table that gives the reason of nhc's decision."""


class Known(NamedTuple):
    """What the catalogue knows of one error. `decision` gives the reason if sources disagree."""

    kind: str
    code: str
    severity: str
    action: str
    message: str
    ends: List[str]
    repeats: List[str]
    decision: str
    printed_by: str
    read: str
    source: str
    examples: List[str]

    @property
    def reason(self) -> str:
        return reason_of(self.kind, self.code)


def known(matches: CatalogueRow) -> Known:
    """A row of the catalogue in words."""
    sources = [cells for cells in table("kernel_sources.tsv") if (cells[0], cells[1]) == (matches.kind, matches.code)]
    return Known(matches.kind, matches.code, matches.severity, matches.action, matches.message,
                 ends(matches.kind, matches.code, matches.severity, matches.action),
                 [rule_text(rule) for rule in repeats() if (rule.kind, rule.code) == (matches.kind, matches.code)], "",
                 _each(cells[2] for cells in sources), _each(cells[3] for cells in sources), matches.source,
                 [cells[4] for cells in sources])  # fmt: skip


def _each(texts: Iterable[str]) -> str:
    """The different texts, each once, on one line."""
    return ", ".join(dict.fromkeys(text for text in texts if text))


def numbered(kind: str, code: str) -> Iterator[Known]:
    """What the tables of Xids and SXids know of a number."""
    speaker = next(row for row in rows() if row.kind == kind)
    for cells in table(f"{kind}.tsv"):
        if cells[0] == code:
            entry = known(speaker)
            yield entry._replace(
                code=code, severity=cells[2], action=cells[3], message=cells[1], examples=[],
                ends=ends(kind, code, cells[2], cells[3]), decision=cells[DECISION[kind]],
                repeats=[text for rule in repeats() if rule.kind == kind
                         and (rule.code == code or (rule.code == "*fatal" and cells[2] == "fatal"))
                         for text in (rule_text(rule), standing_text(rule)) if text],
                source=f"nhc/core/data/{kind}.tsv",
            )  # fmt: skip


def ends(kind: str, code: str, severity: str, action: str) -> List[str]:
    """What ends a finding of this error. [] if there is none to end."""
    if severity and RANK[severity] <= RANK[APP]:
        return []
    lines = []
    for row in rows():
        for what in row.recovers.split():
            scope, _, target = what.partition(":")
            family, _, only = target.partition("/")
            if family == kind and only in ("", code) and action != Action.REPLACE.value:
                lines.append(f"{row.kind} {row.code} {'of the same device' if scope == 'device' else 'of any device'}")
    if kind == "xid" and action != Action.REPLACE.value:
        lines.append("an Xid 154 of the same device that changes to 0 (None)")
        lines.append("NVML, which reports that no repair is needed any more")
    lines.append("a restart, if the device is found well after it" if kind in OF_A_DEVICE else "a restart")
    return [*lines, "nhc ack"]


def rule_text(rule: Repeat) -> str:
    """A rule of repeats.tsv."""
    alone = ", and no other device has it as often," if rule.others == "clean" else ""
    rule_start = f"{rule.times} times within {rule.span} on one {rule.place}{alone} is"
    if rule.programs:
        many = f"if {rule.programs} or more different programs have it there and no other device has it"
        return f"{rule_start} degraded, inspect; {rule.severity}, {rule.action} {many}"
    ack = ", until nhc ack" if rule.action == Action.REPLACE.value else ""
    return f"{rule_start} {rule.severity}, {rule.action}{ack}"


def standing_text(rule: Repeat) -> str:
    """When an active fault that a rule counts is counted again; "" if it makes no difference that it is active."""
    if rule.standing is None:
        return ""
    silence = "" if rule.standing == float("inf") else f", or after {rule.standing / 60:g} minutes of silence"
    return f"while it stands, one more time only after a repair{silence}"


def find(query: str) -> List[Known]:
    """All that is known of a number, a code, a reason (`Xid79`), a word of a message, or a whole line of a log."""
    lowered = query.lower()
    number = lowered.replace("sxid", "").replace("xid", "").strip()
    entries: List[Known] = []
    if number.isdecimal():
        for kind in NUMBERED:
            if not lowered[0].isalpha() or lowered.startswith(kind):
                entries += numbered(kind, str(int(number)))
        return entries
    for row in rows():
        texts = (row.kind, row.code, f"{row.kind} {row.code}", row.message, *row.texts)
        if (row.code and reason_of(row.kind, row.code).lower() == lowered) or any(
            lowered in text.lower() for text in texts
        ):
            entries.append(known(row))
    if not entries:
        matcher = Matcher()
        match = matcher.judge(query)
        if match is not None and matcher.row is not None:
            entries = list(numbered(match.kind, match.code)) if match.kind in NUMBERED else [known(matcher.row)]
    if not entries:
        entries = [known(rows()[-1])._replace(kind="neuron", code=code, severity=severity, action=action.value,
                 message=text, ends=ends("neuron", code, severity, action.value), printed_by="the Neuron driver",
                 read="", source="nhc/node/kernlog/xid.py", examples=[])
                 for code, (severity, action, text) in NEURON.items() if lowered in code.lower()]  # fmt: skip
    return entries


def catalogue_command(word: str = "", *, format: str = "text") -> int:
    """Print what is known of a code or a word, or every row in one line if none is named. Returns 0, or 2."""
    entries = find(word) if word else [known(row) for row in rows() if row.code]
    if not entries:
        print(f"nhc log catalogue: the catalogue knows nothing of {printable(word)}; nhc log catalogue lists all of it",
              file=sys.stderr)  # fmt: skip
        return EXIT_USAGE
    if format == "json":
        values = [{"reason": entry.reason, **entry._asdict()} for entry in entries]
        print(json.dumps(values, indent=2, ensure_ascii=False))
    elif word:
        print("\n\n".join("\n".join(as_text(entry)) for entry in entries))
    else:
        width = max(len(f"{entry.kind} {entry.code}") for entry in entries)
        for entry in entries:
            print(f"{f'{entry.kind} {entry.code}':{width}}  {entry.severity:8}  {entry.action:13}  {entry.message}")
    return EXIT_HEALTHY


def as_text(entry: Known) -> List[str]:
    """An error in lines: its name, then what is known of it."""
    lines = [f"{entry.kind} {entry.code}".rstrip(), f"  severity    {entry.severity or 'by its code'}",
             f"  action      {entry.action or 'by its code'}"]  # fmt: skip
    facts: Tuple[Tuple[str, List[str]], ...] = (
        ("meaning", [entry.message]), ("decision", [entry.decision]), ("ends with", entry.ends),
        ("repeated", entry.repeats), ("printed by", [entry.printed_by]), ("read in", [entry.read]),
        ("source", [entry.source]), ("example", entry.examples),
    )  # fmt: skip
    for name, values in facts:
        lines += [f"  {name:10}  {value}" for value in values if value]
    return lines


def why(match: Match, row: CatalogueRow) -> List[str]:
    """Which row of which table judged a line, and what else decided."""
    where: Dict[str, str] = {"xid": "xid.tsv", "sxid": "sxid.tsv", "neuron": "the codes in nhc/node/kernlog/xid.py"}
    lines = [f"row: kernel.tsv {row.kind} {row.code or '(by its code)'}: {row.pattern}"]
    if not row.code:
        cells = next((cells for cells in table(f"{row.kind}.tsv") if cells[0] == match.code), None) \
            if row.kind in NUMBERED else None  # fmt: skip
        if cells is None:
            known_code = row.kind == "neuron" and match.code in NEURON
            lines.append(f"code: {where[row.kind]}{'' if known_code else f' does not know {match.code}'}")
        else:
            decision = cells[DECISION[row.kind]]
            lines.append(f"code: {where[row.kind]} {cells[0]} {cells[1]}: {cells[2]}, {cells[3]} ({decision})")
            if (match.severity, match.action.value) != (cells[2], cells[3] or Action.NONE.value):
                lines.append(f"context: the line's own words make it {match.severity}, {match.action.value}")
    elif (match.severity, match.action.value) != (row.severity, row.action or Action.NONE.value):
        lines.append(f"context: the row alone is {row.severity}; the line and those before it make it {match.severity}")
    for rule in repeats():
        wanted = rule.code == match.code or (rule.code == "*fatal" and match.severity == "fatal")
        if rule.kind == match.kind and wanted:
            lines.append(f"repeated: {rule_text(rule)} (repeats.tsv)")
    if match.recovers:
        lines.append(f"recovers: {', '.join(match.recovers)}")
    if match.severity not in (INFO, APP):
        lines.append(f"ends with: {'; '.join(ends(match.kind, match.code, match.severity, match.action.value))}")
    return lines
