"""`nhc log classify --findings`: what still stands at the end of a kernel log, as check_kmsg would have it.

A line alone says little: a link that came up again, a file server that is back, a repaired PCIe error end what went
before them. With a node's root (`--root /`, or a recording's) findings are seen beside that node's devices, mounts and
processes. Without one, what only the node could tell is no more than degraded.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.node.kernlog import findings
from nhc.node.kernlog.match import FATAL, RANK

if TYPE_CHECKING:
    from typing import Mapping

    from nhc.core.host import Host
    from nhc.node.kernlog.npd_rules import Rule
    from nhc.node.kernlog.state_types import Finding, LogState

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
        from nhc.node.commands.log_records import record_of
        from nhc.node.facts.kernel_lines import parse_line
        from nhc.node.kernlog.catalogue import Matcher
        from nhc.node.kernlog.judge import take_in

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
        """What stands at the end, the most serious first."""
        from nhc.node.checks.kmsg import beside
        from nhc.node.kernlog import node_context

        if self._host is not None:
            pairs, gone = beside(self._host, self.state, findings.current(self.state))
            self._note_ended(dict(gone), {}, "the node's own state shows it to be gone")
            return pairs
        pairs = [(key, node_context.apart(self.state, entry)) for key, entry in findings.current(self.state)]
        return sorted(pairs, key=lambda pair: -RANK[pair[1]["severity"]])

    def ended(self) -> List[Tuple[str, Finding]]:
        """Fatal findings that stand no more, what ended each as its `last_line`. After `standing`."""
        standing = self.state.get("findings", {})
        gone = self.state["ended"].items()
        return [(key, entry) for key, entry in gone if key not in standing or entry["last_line"].startswith("the node")]


def print_findings(chunks: Iterable[str], format: str, rules: Sequence[Rule], root: str, explain: bool = False) -> None:
    """Read a log and print its findings: one line or JSON object each. Raises OSError where the log cannot be read.

    Text also says which fatal ones do not stand any more, and what ended them; JSON does so with `explain`.
    """
    from nhc.core.host import Host

    log = LogFindings(rules, Host(root) if root else None)
    for chunk in chunks:
        log.feed(chunk)
    standing = log.standing()
    out = sys.stdout
    if format == "json":
        rows = [as_object(key, entry) for key, entry in standing]
        rows += [{**as_object(key, entry), "ended_by": entry["last_line"]} for key, entry in log.ended() if explain]
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


def as_object(key: str, finding: Finding) -> Dict[str, object]:
    """A finding in JSON's types."""
    return {
        "finding": key, "kind": finding["kind"], "code": finding["code"], "device": finding["device"],
        "severity": finding["severity"], "action": finding["action"], "count": finding["count"],
        "message": finding["message"], "line": finding["line"],
    }  # fmt: skip
