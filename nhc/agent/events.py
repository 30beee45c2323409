"""Events as a stream of JSON lines (docs/event.schema.json), in a file or on standard output.

On request in the two formats of SageMaker HyperPod's logs, so that alarms made for those go on working: `hyperpod` is
the format of its health monitoring agent, `hyperpod-deep` that of its deep health checks.
"""

from __future__ import annotations

import json
import os
import select
from collections import deque
from typing import Callable, Deque, Dict, Mapping, Optional

from nhc.agent.problems import BOOT_WINDOW, ENDED, ProblemChange
from nhc.core.model import Action, Verdict, printable
from nhc.core.render.json import spoken_of
from nhc.core.system.service_log import note
from nhc.core.timestamps import utc_milliseconds
from nhc.marks.ports.sinks import Event, EventDetails

SCHEMA = 1
BACKLOG = 1000
"""Lines kept in memory while they cannot be written."""
STDOUT = "-"
EVENTS = (
    "problem.began", "problem.changed", "problem.ended", "condition.changed", "log.event", "finding.acknowledged",
    "agent.started", "agent.stopped", "agent.paused", "agent.resumed", "config.reloaded", "config.refused",
)  # fmt: skip
"""Every kind of event (docs/event.schema.json)."""
FORMATS = ("json", "hyperpod", "hyperpod-deep")


def event(kind: str, when: float, host: str, boot_id: str, details: EventDetails) -> Event:
    """One event of a kind such as `problem.began` or `agent.started`. `when` is Unix time."""
    return {
        "schema": SCHEMA,
        "event": kind,
        "time": utc_milliseconds(when),
        "host": host,
        "boot_id": boot_id,
        **details,
    }


def of_change(change: ProblemChange, host: str, boot_id: str) -> Event:
    """A problem that began, changed or ended."""
    result = change.result
    outcome = result.outcome
    details: EventDetails = {
        "check": result.check,
        "target": printable(outcome.target),
        "reason": outcome.reason,
        "verdict": Verdict.OK.name if change.what == ENDED else outcome.verdict.name,
        "before": change.before.name,
        "message": printable(outcome.message, 1000),
        "action": Action.NONE.value if change.what == ENDED else outcome.action.value,
        "evidence": [printable(line, 400) for line in outcome.evidence[:10]],
        "since": utc_milliseconds(change.since),
        "source": result.source,
    }
    about = spoken_of(outcome)
    if "scope" in about:
        details["scope"] = about["scope"]
    if "device" in about:
        details["device"] = about["device"]
    return event(f"problem.{change.what}", change.when, host, boot_id, details)


def shape(event: Event, form: str, labels: Mapping[str, str]) -> str:
    """One event as a line of the stream, "" where this form has no such event."""
    value: Optional[Mapping[str, object]] = event
    if form == "hyperpod":
        value = _agent_shape(event)
    elif form == "hyperpod-deep":
        value = _deep_shape(event, labels)
    return json.dumps(value, ensure_ascii=False) if value else ""


def _agent_shape(event: Event) -> Optional[Mapping[str, object]]:
    """HyperPod's health monitoring agent: a condition that changed, or an event that leaves no condition."""
    if not event["event"].startswith(("problem.", "condition.", "log.")):
        return None
    stamp = f"{event['time'][:19]}Z"
    line: Dict[str, object] = {"level": "info", "ts": stamp, "msg": "NPD caught "}
    kind = event.get("type") or event.get("check", "")
    if event["event"].startswith("log.") or event.get("verdict") == Verdict.WARN.name:
        line["event type: "] = kind
        line["details: "] = {
            "severity": "warn",
            "timestamp": event["time"],
            "reason": event["reason"],
            "message": event["message"],
        }
    else:
        bad = event.get("status") or {"OK": "False", "UNKNOWN": "Unknown"}.get(event.get("verdict", ""), "True")
        line["condition type: "] = kind
        line["with condition details "] = {
            "type": kind,
            "status": bad,
            "transition": event["time"],
            "reason": event["reason"],
            "message": event["message"],
        }
    line["HealthMonitoringAgentDetectionEvent"] = "HealthEvent"
    return line


def _deep_shape(event: Event, labels: Mapping[str, str]) -> Optional[Mapping[str, object]]:
    """HyperPod's deep health checks: an instance that is faulty, and what the platform should do.

    An unknown result asks for no repair: only a failure does, or a result that recommends one itself.
    """
    if event["event"] not in ("problem.began", "problem.changed") or event["reason"] == BOOT_WINDOW:
        return None
    repairs = {"reboot": "Reboot", "reset-device": "Reboot", "reload-driver": "Reboot", "replace": "Replace"}
    repair = repairs.get(event["action"], "")
    if event["verdict"] == Verdict.CRIT.name:
        what = "FaultyInstance"
        repair = repair or "Replace"
    elif event["verdict"] == Verdict.UNKNOWN.name:
        what = "Unknownerror"
    else:
        return None
    if repair:
        what += f". {repair} the Instance"
    where = f"Region: {labels.get('region', '')}, InstanceType: {labels.get('instance_type', '')}"
    return {
        "level": "error",
        "ts": f"{event['time'][:19]}Z",
        "msg": f"Encountered {what}. {where}. ERROR:{event['message']}",
    }


class EventStream:
    """Lines to a file (or standard output). Those that cannot be written now are kept, up to a bound, for later."""

    def __init__(self, path: str, log: Callable[[str], None], limit: int = 64 << 20) -> None:
        self.path, self.log, self.limit = path, log, limit
        self.lost = 0
        self._waiting: Deque[bytes] = deque()
        self._half = False
        self._failing = ""

    def add(self, line: str) -> None:
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(line.encode() + b"\n")

    def flush(self) -> bool:
        """Write the waiting lines. Returns whether all were written."""
        try:
            fd = 1 if self.path == STDOUT else self._open()
        except OSError as error:
            self._fails(f"{self.path}: {error.strerror}")
            return False
        try:
            while self._waiting:
                line = self._waiting[0]
                if self._half:  # a line was cut because the disk was full: begin a new one
                    line = b"\n" + line
                if self.path == STDOUT and not _ready(fd):
                    raise OSError(11, "the reader does not read")
                written = os.write(fd, line)
                if written < len(line):
                    self._half = True
                    raise OSError(28, "No space left on device")
                self._half = False
                self._waiting.popleft()
        except OSError as error:
            self._fails(f"{self.path}: {error.strerror}")
            return False
        finally:
            if fd != 1:
                os.close(fd)
        if self._failing:
            self.log(note(f"{self.path}: written again ({self.lost} events were lost)"))
            self._failing = ""
        return True

    def _open(self) -> int:
        """The file, rotated by renaming if it has grown too long. Opened again each time, as logrotate needs it."""
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
        if self.limit and os.fstat(fd).st_size >= self.limit:
            os.close(fd)
            os.replace(self.path, f"{self.path}.1")
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return fd

    def _fails(self, problem: str) -> None:
        if problem != self._failing:
            self._failing = problem
            self.log(f"{problem}: events are kept, up to {BACKLOG}, and written later")


def _ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(100))
