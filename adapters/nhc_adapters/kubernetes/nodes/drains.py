"""The drains that follow marks: a few at a time, resumed after a restart, ended when the mark goes.

Each node shows how far its drain is (`nhc/drain`), so that a new leader neither drains a node twice nor forgets one,
and kubectl shows it.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional

from nhc.core.json_values import object_from, text_of
from nhc.core.model import printable
from nhc.core.timestamps import from_utc, utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.marks import may_change
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.nodes.drain import Drain, DrainProgress, DrainRules, devices_at_fault
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.marks import Op, apply, plan_annotations
from nhc_adapters.kubernetes.nodes.own_marks import DRAIN, annotations_of, read_own_mark, released
from nhc_adapters.kubernetes.nodes.view import hold

AT_ONCE = 10
"""Nodes drained at a time. Budgets decide how fast it goes, and many drains at once only wait for each other."""

NOTE_EVERY = 10.0
"""Seconds between two notes of progress on a node."""

DRAINING, DONE, FAILED, CANCELLED = "draining", "done", "failed", "cancelled"


def read_drain(node: Mapping[str, object]) -> str:
    """The state of our drain by the node's annotation, "" if there is none."""
    return text_of(object_from(annotations_of(node).get(DRAIN, "")).get("state"))


def begun(node: Mapping[str, object], now: float) -> float:
    """When the drain that is under way on a node began (Unix time), `now` where none is."""
    if read_drain(node) != DRAINING:
        return now
    return min(from_utc(object_from(annotations_of(node)[DRAIN]).get("since"), now), now)


def note(progress: DrainProgress, state: str, since: float) -> str:
    """The annotation's text."""
    value: Dict[str, Any] = {"state": state, "since": utc(since), "evicted": progress.evicted, "left": progress.left}
    if progress.blocked:
        name, why = min(progress.blocked.items())
        value["waits"] = printable(f"{name}: {why}", 200)
    if progress.error:
        value["error"] = printable(progress.error, 200)
    return json.dumps(value, separators=(",", ":"))


def _drains_here(node: Mapping[str, object]) -> bool:
    """Whether the drain of a node follows from its mark: not from one that is gone, was undone by hand, or is the
    remedy loop's, which drains by rules of its own. Of two that drain, the second is refused.
    """
    mark = read_own_mark(node)
    return mark is not None and may_change(mark) and not released(node)


def _held(node: Mapping[str, object]) -> bool:
    """Whether a person holds the node. That it is out for a maintenance that was asked for is why it is drained."""
    manual, why = read_manual(node), hold(node)
    return bool(why) and not (manual is not None and manual.asked and why == manual.line())


class Drains:
    """Runs drains in threads of its own. `node` gives the newest object of a node, None when it is gone."""

    def __init__(
        self,
        client: Client,
        rules: DrainRules,
        node: Callable[[str], Optional[Mapping[str, Any]]],
        *,
        allowed: Callable[[], bool] = lambda: True,
        ended: Callable[[str, DrainProgress, str], None] = lambda name, progress, state: None,
        poll: float = 1.0,
        at_once: int = AT_ONCE,
    ) -> None:
        self.client, self.rules = client, rules
        self._node, self._allowed, self._ended, self._poll = node, allowed, ended, poll
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="nhc-drain")
        self._running: Dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def wanted(self, name: str, node: Mapping[str, object]) -> bool:
        """Whether a node that carries our mark still has to be drained."""
        if not _drains_here(node) or _held(node) or name in self._running:
            return False
        manual = read_manual(node)
        if manual is not None and not manual.asked:
            return False  # a person who drained it by hand used rules of their own
        return read_drain(node) in ("", DRAINING)

    def start(self, name: str) -> None:
        """Drain a node, unless that is under way."""
        with self._lock:
            if name in self._running or self._stop.is_set():
                return
            self._running[name] = threading.Event()
        self._pool.submit(self._run, name, self._running[name])

    def running(self) -> List[str]:
        return sorted(self._running)

    def close(self) -> None:
        """End the threads; the next leader continues drains that are under way."""
        self._stop.set()
        with self._lock:
            for cancelled in self._running.values():
                cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, name: str, cancelled: threading.Event) -> None:
        try:
            self._drain(name, cancelled)
        except AdapterError:
            pass  # the node is gone, or the server for long: its annotation says "draining", and a later look resumes
        finally:
            with self._lock:
                self._running.pop(name, None)

    def _drain(self, name: str, cancelled: threading.Event) -> None:
        now, noted = time.time(), float("-inf")
        since = begun(self._node(name) or {}, now)

        def may_evict() -> bool:
            # Its turn may come, and a stopped process may go on, long after somebody has put the node back.
            node = self._node(name) or {}
            return self._allowed() and _drains_here(node) and not _held(node)

        devices = devices_at_fault(self._node(name) or {}) if self.rules.holders else ()
        drain = Drain(self.client, name, self.rules, elapsed=now - since, allowed=may_evict, devices=devices)
        for progress in drain.run(cancelled, self._poll):
            if self._stop.is_set() or not self._allowed():
                return
            node = self._node(name)
            if node is None or _held(node):
                return  # once no hold is left, a later round resumes
            state = DRAINING
            if not _drains_here(node):
                state = CANCELLED
            elif progress.done:
                state = DONE if progress.clean else FAILED
            if state != DRAINING or time.monotonic() - noted >= NOTE_EVERY:
                noted = time.monotonic()
                self._write(name, note(progress, state, since))
            if state != DRAINING:
                self._ended(name, progress, state)
                return

    def _write(self, name: str, text: str) -> None:
        def plan(node: Mapping[str, object]) -> List[Op]:
            # Cleared meanwhile: nothing of ours is to come back.
            return plan_annotations(node, {DRAIN: text}) if read_own_mark(node) is not None else []

        apply(self.client, name, plan)
