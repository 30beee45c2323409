"""Episodes as traces for sites with a collector: detected, marked, drained, repaired, proved, each a span.

A trace is sent once its episode has ended, over OTLP/HTTP, from a separate thread: a collector that is slow or
unreachable delays no round, and gets the trace later. The spans come only from the audit log. The ids come from the
store's and the episode's, so a process that restarts and sends the newest traces again adds no duplicates.

Source of the fields' numbers: opentelemetry-proto 1.x, trace.proto.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.json_values import object_from
from nhc.core.model import printable
from nhc.core.system import otlp
from nhc.core.system.http_client import Tls
from nhc.core.system.otlp import CollectorAway
from nhc.core.system.protobuf import fixed64, integer, message, text
from nhc.core.system.service_log import failure
from nhc.remedy.cases import standing_cause
from nhc.remedy.machine import EpisodeState
from nhc.remedy.settings import TraceSettings
from nhc.store import audit, episodes
from nhc.store.audit import Entry
from nhc.store.database import Store
from nhc.store.episodes import Episode

PHASES: Mapping[EpisodeState, str] = {
    EpisodeState.DETECTED: "detected", EpisodeState.MARKING: "marked", EpisodeState.MARKED: "marked",
    EpisodeState.DRAINING: "drained", EpisodeState.EVIDENCE: "evidence", EpisodeState.RECHECK: "rechecked",
    EpisodeState.AWAITING_APPROVAL: "approved", EpisodeState.ACTING: "repaired", EpisodeState.WATCHING: "repaired",
    EpisodeState.VERIFYING: "proved", EpisodeState.RETURNING: "returned",
}  # fmt: skip
"""The span of each state; consecutive states of the same span are one."""
LOOK_BACK = 600.0
"""A process sends the traces of so many seconds before its first round: a killed process may not have sent them."""
EVENTS = 500
"""Rows of the audit log that the trace of one episode has at most."""
AT_ONCE = 50
"""Episodes in one request."""
INTERNAL, ERROR = 1, 2
"""Span.SpanKind.SPAN_KIND_INTERNAL, Status.StatusCode.STATUS_CODE_ERROR."""


class EpisodeSpan(NamedTuple):
    """A span: times in Unix seconds; `events` are (when, what, detail)."""

    name: str
    began: float
    ended: float
    attributes: Mapping[str, object] = {}
    events: Sequence[Tuple[float, str, Mapping[str, object]]] = ()


def spans_of(episode: Episode, entries: Sequence[Entry]) -> List[EpisodeSpan]:
    """The whole episode first, then its phases in their order. `entries` are its rows of the audit log."""
    ended = episode.ended if episode.ended is not None else episode.updated
    steps: List[Tuple[str, float]] = [(PHASES.get(EpisodeState.DETECTED, ""), episode.opened)]
    for entry in entries:
        state = str(object_from(entry.detail).get("to") or object_from(entry.detail).get("state") or "")
        name = PHASES.get(EpisodeState(state), "") if state in _STATES else ""
        if name and name != steps[-1][0]:
            steps.append((name, entry.at))
    ends = [at for _name, at in steps[1:]] + [ended]
    about = {
        "nhc.node": episode.node, "nhc.episode": episode.id, "nhc.cause": standing_cause(episode),
        "nhc.state": episode.state, "nhc.rung": episode.rung, "nhc.outcome": episode.outcome,
    }  # fmt: skip
    events = [(entry.at, entry.what, {"actor": entry.actor, "detail": entry.detail}) for entry in entries]
    whole = EpisodeSpan("episode", episode.opened, ended, about, events)
    node = {"nhc.node": episode.node, "nhc.episode": episode.id}
    return [whole, *(EpisodeSpan(name, at, max(at, end), node) for (name, at), end in zip(steps, ends))]


_STATES = frozenset(state.value for state in EpisodeState)


def encoded(store: str, episode: Episode, spans: Sequence[EpisodeSpan]) -> List[bytes]:
    """The spans as OTLP's messages, the first the parent of the others."""
    trace = hashlib.sha256(f"{store} episode {episode.id}".encode()).digest()[:16]
    ids = [hashlib.sha256(trace + bytes([number % 256, number // 256])).digest()[:8] for number in range(len(spans))]
    failed = episode.state == EpisodeState.ESCALATED.value
    made = []
    for number, span in enumerate(spans):
        parent = message(4, ids[0]) if number else b""
        events = b"".join(
            message(11, fixed64(1, _nanoseconds(at)) + text(2, what) + otlp.attributes(3, _short(detail)))
            for at, what, detail in span.events
        )
        status = (
            message(15, text(2, printable(episode.outcome, 400)) + integer(3, ERROR)) if failed and not number else b""
        )
        made.append(
            message(1, trace) + message(2, ids[number]) + parent + text(5, span.name) + integer(6, INTERNAL)
            + fixed64(7, _nanoseconds(span.began)) + fixed64(8, _nanoseconds(span.ended))
            + otlp.attributes(9, _short(span.attributes)) + events + status
        )  # fmt: skip
    return made


def _nanoseconds(at: float) -> int:
    return int(at * 1e6) * 1000


def _short(values: Mapping[str, object]) -> Dict[str, object]:
    return {name: printable(value, 1000) if isinstance(value, str) else value for name, value in values.items()}


class TraceSender:
    """Sends the traces of episodes that have ended. `wake` is called after each round of the loop that leads."""

    def __init__(self, store: Store, settings: TraceSettings, log: Callable[[str], None]) -> None:
        self._store, self._log = store, log
        self._signal = otlp.Signal(
            f"{settings.endpoint}/v1/traces", settings.headers, settings.timeout, Tls(settings.certificate), log,
            program="nhc-remedy",
        )  # fmt: skip
        self._since: Optional[float] = None
        self._sent: Dict[int, float] = {}
        self._woken, self._stopping = threading.Event(), False
        self._thread: Optional[threading.Thread] = None

    @property
    def problem(self) -> str:
        """Why the collector lacks traces, "" while it has all."""
        return self._signal.problem

    def start(self) -> None:
        """Send in the background from now on."""
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the background's thread, once what it sends has been answered."""
        self._stopping = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self._signal.close()

    def wake(self, now: float) -> None:
        """Tell the thread that an episode may have ended."""
        if self._since is None:
            self._since = now - LOOK_BACK
        self._woken.set()

    def _run(self) -> None:
        while not self._stopping:
            self._woken.wait()
            self._woken.clear()
            if not self._stopping:
                self.send_now()

    def send_now(self) -> None:
        """Send all pending traces; a failure is logged once for each reason."""
        problem = self.problem
        try:
            self.send()
        except CollectorAway as away:
            if problem != self.problem:
                self._log(str(away))
        except Exception as error:  # the store is away: the round says so, and the next wake tries again
            self._log(f"traces: {failure(error)}")

    def send(self) -> int:
        """Send the episodes that have ended since the last time; returns how many. Raises StoreError, CollectorAway."""
        if self._since is None:
            return 0
        with self._store.read() as connection:
            rows = episodes.list_episodes(connection, is_open=False, ended_since=self._since)
            new = [row for row in rows if row.id not in self._sent]
            steps = {row.id: audit.entries(connection, episode=row.id, limit=EVENTS) for row in new}
        for first in range(0, len(new), AT_ONCE):
            batch = new[first : first + AT_ONCE]
            spans = [span for row in batch for span in encoded(self._store.id, row, spans_of(row, steps[row.id]))]
            resource = {**otlp.resource_of_environment(), "service.name": "nhc-remedy"}
            self._signal.send(otlp.request(resource, "nhc.remedy", spans), len(spans))
            self._sent.update({row.id: row.ended or row.updated for row in batch})
        if new:  # an episode's end may be written a moment after a later one's
            self._since = max(self._since, max(row.ended or 0.0 for row in new) - LOOK_BACK)
            self._sent = {number: at for number, at in self._sent.items() if at >= self._since}
        return len(new)
