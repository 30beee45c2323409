"""The audit log of what nhc did, and the record from which its budgets are counted.

It has one line of JSON for each operation, in /var/lib/nhc and not in /run, so that it survives a reboot. An operation
is written before it is carried out, and again with its result afterwards: a run killed in between has spent its budget.
A line that is damaged is skipped and counted; it never stops a run.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Protocol, Tuple

from nhc.core.json_values import parse_object
from nhc.core.model import printable
from nhc.core.system import written_files
from nhc.marks.policy.bounds import BegunAction
from nhc.marks.ports.adapter import Applied, Effect, Operation, PlannedOperation

DIRECTORY = "/var/lib/nhc"
KEEP = 90 * 86400.0
"""Seconds of history kept when the file is trimmed."""
TRIM_AT = 16 << 20
"""Bytes above which the file is trimmed."""
TRIM_AFTER = KEEP + 10 * 86400.0
"""Seconds: a large file is read to be trimmed only when its first line is older, so once in ten days at most."""
LINE_LIMIT = 1 << 16
"""Bytes of the file's beginning in which its first line is looked for."""


SPENT_NOTHING = (Effect.REFUSED, Effect.UNCHANGED)
"""What an operation ends with that is not counted."""


class CountsActions(Protocol):
    """The record from which bounds are counted. There are three: the file of this module, the ConfigMap of a cluster,
    and the database of the loop (`nhc.remedy.counting.StoreLedger`), in which an action begins and ends with its
    episode's step.
    """

    def history(self, since: float) -> List[BegunAction]:
        """What was begun since then (Unix time), without what turned out not to be needed, or was never sent."""


class KeepsHistory(CountsActions, Protocol):
    """A ledger for a round over reports. It has one writer at a time."""

    def begin(self, operations: Iterable[PlannedOperation], now: float) -> None:
        """Write down what is about to be done, before it is. Raises if it cannot be written: then nothing may be
        done.
        """

    def end(self, operation: Operation, applied: Iterable[Applied], now: float) -> None:
        """Write down how it ended. An operation that was refused, or needed no change, spends no budget; a failed one
        does.
        """


class LedgerError(Exception):
    """The ledger cannot be written, so nothing may be done: an operation that is not recorded cannot be counted."""


class LedgerEntry(NamedTuple):
    """One line: an operation begun (`effect` "begun"), or how it ended. In the file the operation's key is "deed"."""

    when: float
    node: str
    operation: str
    effect: str
    because: str = ""
    message: str = ""
    by: str = ""


BEGUN = "begun"


def default_directory() -> str:
    """`$NHC_LEDGER_DIR`, else /var/lib/nhc."""
    return os.environ.get("NHC_LEDGER_DIR") or DIRECTORY


class Ledger:
    """The file `ledger.jsonl` in a directory. Use it as a context manager: one run at a time decides and acts."""

    def __init__(self, directory: Optional[str] = None, by: str = "") -> None:
        self.directory = directory or default_directory()
        self.path = f"{self.directory}/ledger.jsonl"
        self.by = by
        self.damaged = 0
        """Lines that could not be read, as of the last look."""
        self._lock: Optional[int] = None

    def __enter__(self) -> Ledger:  # noqa: PYI034 (Self is Python 3.11's)
        try:
            os.makedirs(self.directory, mode=0o755, exist_ok=True)
            lock = os.open(f"{self.directory}/ledger.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(f"{self.directory}: {error.strerror}: nothing may be done without a ledger") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise LedgerError(f"{self.directory}: another nhc is at work on this ledger") from None
        self._lock = lock
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def entries(self, since: float = 0.0) -> Iterator[LedgerEntry]:
        """Every entry not older than `since`, oldest first."""
        self.damaged = 0
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    entry = _read(line)
                    if entry is None:
                        self.damaged += 1
                    elif entry.when >= since:
                        yield entry
        except FileNotFoundError:
            return
        except OSError as error:
            raise LedgerError(f"{self.path}: {error.strerror}") from None

    def history(self, since: float = 0.0) -> List[BegunAction]:
        """What `reconcile` counts: operations begun, less those that were refused or turned out to be done already."""
        begun: List[Optional[BegunAction]] = []
        standing: Dict[Tuple[str, Operation], List[int]] = {}
        for entry in self.entries(since):
            operation = _operation(entry.operation)
            if operation is None:
                continue
            if entry.effect == BEGUN:
                standing.setdefault((entry.node, operation), []).append(len(begun))
                begun.append(BegunAction(entry.when, entry.node, operation.value))
            elif entry.effect in SPENT_NOTHING:
                numbers = standing.get((entry.node, operation))
                if numbers:
                    begun[numbers.pop()] = None
        return [past for past in begun if past is not None]

    def begin(self, operations: Iterable[PlannedOperation], now: float) -> None:
        """Write down what is about to be done, on disk before this returns. Raises LedgerError."""
        self._append(LedgerEntry(now, r.node, r.operation.value, BEGUN, r.because, "", self.by) for r in operations)

    def end(self, operation: Operation, applied: Iterable[Applied], now: float) -> None:
        """Write down how it ended. Raises LedgerError."""
        self._append(LedgerEntry(now, a.node, operation.value, a.effect.value, "", a.message, self.by) for a in applied)

    def _append(self, entries: Iterable[LedgerEntry]) -> None:
        written = list(entries)
        if not written:
            return
        text = "".join(_line(entry) for entry in written)
        try:
            self._trim(max(entry.when for entry in written))
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    text = "\n" + text  # a line cut off by a full disk or a crash must not swallow ours
                data = memoryview(text.encode())
                while data:
                    data = data[os.write(fd, data) :]
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise LedgerError(f"{self.path}: {error.strerror}: nothing may be done without a ledger") from None

    def _trim(self, now: float) -> None:
        """Drop what is older than KEEP once the file is large and begins with much of it, replacing it whole."""
        try:
            if os.stat(self.path).st_size < TRIM_AT or self._began() > now - TRIM_AFTER:
                return
        except FileNotFoundError:
            return
        kept = list(self.entries())
        horizon = max(entry.when for entry in kept) - KEEP if kept else 0.0
        text = "".join(_line(entry) for entry in kept if entry.when >= horizon)
        written_files.write_whole(self.path, text.encode(), 0o644, durable=True)

    def _began(self) -> float:
        """When the first readable line was written; 0.0 if the file's beginning has none."""
        with open(self.path, "rb") as file:
            for line in file.read(LINE_LIMIT).splitlines():
                entry = _read(line.decode("utf-8", "replace"))
                if entry is not None:
                    return entry.when
        return 0.0


def _line(entry: LedgerEntry) -> str:
    value = {
        "when": entry.when, "node": entry.node, "deed": entry.operation, "effect": entry.effect,
        "because": printable(entry.because), "message": printable(entry.message), "by": entry.by,
    }  # fmt: skip
    value = {name: item for name, item in value.items() if item != ""}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _read(line: str) -> Optional[LedgerEntry]:
    try:
        value = parse_object(line)
        return LedgerEntry(
            float(value["when"]),
            str(value["node"]),
            str(value["deed"]),
            str(value["effect"]),
            str(value.get("because", "")),
            str(value.get("message", "")),
            str(value.get("by", "")),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _operation(text: str) -> Optional[Operation]:
    try:
        return Operation(text)
    except ValueError:
        return None
