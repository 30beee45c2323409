"""The driver's GPU Operational Events while the agent runs: a process of their own follows them and files them.

NVML can hang in the driver, so it runs in a process that the agent can lose. That process gives the kernel's log time
to report the same fault first, and then notes or files the event in the store of findings, which other processes use,
too: the agent sees that the store has changed as it does after `nhc ack`.

An event is a second report of a fault, never a second incident. An event with an Xid means the same as a log line
`NVRM: Xid`: if the log has that line, the event is noted with its finding; if the line was lost (overwritten, limited,
a log that this node does not read), the event is judged as if the line were there. No catalogue explains an event
without an Xid yet, so a fatal one asks for an inspection.

Source: NVIDIA, GPU Operational Events (preview, R615 and R620): numbers may change, Xid lines stay.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from nhc.agent.event_loop import Loop, Timer
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action
from nhc.core.state.store import State
from nhc.core.system.backoff import Backoff
from nhc.core.system.children import fork
from nhc.node.facts import nvml
from nhc.node.facts.nvml_codes import ABSENT, error_text
from nhc.node.facts.pci import normal_address, shows
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.collect import add, key_of
from nhc.node.kernlog.match import DEGRADED, RANK, Match
from nhc.node.kernlog.shape import fit
from nhc.node.kernlog.source import STORE

if TYPE_CHECKING:
    from typing import Mapping, Optional

    from nhc.node.kernlog.state_types import LogState

RECOVERABLE, FATAL_EVENT = 30, 40
"""NVML_OPERATIONAL_EVENT_SEVERITY_...: what we subscribe to, and what always needs an inspection."""
_RECOVERED, _SIMULATED = 1 << 0, 1 << 2
"""Bits of an event's group: the condition has ended; the event is a test."""
TOGETHER = 60.0
"""Seconds within which an Xid in the log and an event of the same GPU belong to one incident."""
_CATEGORIES = {1: "timeout", 2: "memory integrity error", 3: "interconnect error", 4: "corruption", 5: "security error"}


class GpuEvent(NamedTuple):
    """One event. `device` is the GPU's PCI address in sysfs' form, `when` Unix time, `xid` None for one without."""

    device: str
    module: str
    code: int
    category: int
    severity: int
    group: int
    xid: Optional[int]
    when: float

    @property
    def name(self) -> str:
        """The event, in the driver's own numbers."""
        return f"{self.module} {self.code:#x} ({_CATEGORIES.get(self.category, f'category {self.category:#x}')})"


def parse(answers: Mapping[str, object], now: float) -> GpuEvent:
    """An event from NVML's fields (`nhc.node.facts.nvml.operational_events`). Raises ValueError."""

    def number(name: str) -> int:
        value = answers.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"an event of the driver without {name}: {value!r}")
        return value

    module, place, xid = answers.get("sourceModule"), answers.get("pci"), answers.get("xid")
    if not isinstance(module, str) or not isinstance(place, str) or not place:
        raise ValueError(f"an event of the driver without its module or GPU: {module!r}, {place!r}")
    micros = number("timestampUsec")
    return GpuEvent(
        normal_address(place), module, number("moduleEventCode"), number("categoryId"), number("severity"),
        number("groupAttributes"), xid if isinstance(xid, int) else None, micros / 1e6 if micros else now,
    )  # fmt: skip


def take_in(state: LogState, event: GpuEvent, now: float) -> None:
    """Note an event with the log's finding of it, or file it if the log has none."""
    if event.group & _SIMULATED or event.severity < RECOVERABLE:
        return
    match = _match(state, event)
    held = state.get("findings", {}).get(key_of(match)) if match else None
    if held is not None and abs(held["last"] - event.when) <= TOGETHER:
        held["witness"] = event.name
        return
    spoke = state.get("companions", {}).get(event.device)
    if match is None or (spoke is not None and abs(spoke - event.when) <= TOGETHER):
        return  # the log has an Xid of this GPU at that time, and has judged it
    add(state, match, event.when, now)
    filed = state.get("findings", {}).get(key_of(match))
    if filed is not None:
        filed["witness"] = event.name


def _match(state: LogState, event: GpuEvent) -> Optional[Match]:
    """What the event means: its Xid's row of the catalogue, else an inspection if fatal; None: nothing to do."""
    if event.xid is not None:
        line = f"NVRM: Xid (PCI:{event.device.rpartition('.')[0]}): {event.xid}, GPU event {event.name}"
        match = Matcher(state.get("driver", "")).judge(line)
        return match if match is not None and RANK[match.severity] >= RANK[DEGRADED] else None
    if event.severity < FATAL_EVENT or event.group & _RECOVERED:
        return None
    message = f"the driver reports a fatal GPU event without an Xid: {event.name}"
    return Match("gpu", "EventFatal", DEGRADED, Action.INSPECT, event.device, message, f"GPU event {event.name}")


AGAIN = (60.0, 3600.0)
"""Seconds before a process that ended is started again: the first and the longest wait."""
AFTER_THE_LOG = 5.0
"""Seconds that the kernel's log has to report the same as an event."""
LOOK = 1000
"""Most milliseconds that NVML waits for an event: then the process checks whether its agent is still there."""
_WITHOUT = (*ABSENT, nvml.BINDING_MISSING, 12)
"""Causes that do not change while the agent runs: a driver or a binding without these events, no library."""


class GpuEvents:
    """The process, started again when it ends. `log` gets the reason why nothing is followed, once."""

    def __init__(self, loop: Loop, host: Host, state: State, log: Callable[[str], None]) -> None:
        self.loop, self.host, self.state, self.log = loop, host, state, log
        self.pid = 0
        self._fd = -1
        self._again = Backoff(*AGAIN)
        self._timer: Optional[Timer] = None
        self._problem = ""

    def start(self) -> None:
        """Begin to follow, unless it already follows or this node has no NVIDIA GPU."""
        self._timer = None
        if self.pid or not shows(self.host, "nvidia"):
            return
        directory, agent = self.state.directory, os.getpid()
        try:
            self.pid, [(self._fd, writing)] = fork(lambda pipe: _follow(directory, agent, pipe))
        except OSError as error:
            self._failed(f"no process for them: {error.strerror}")
            return
        os.close(writing)
        self.loop.child(self.pid, lambda _status: self._ended())

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self.pid:
            self.loop.child(self.pid, lambda _status: None)
            try:
                os.kill(self.pid, signal.SIGKILL)  # it holds no lock but the store's, which ends with it
            except ProcessLookupError:
                pass
            self._forget()

    def _ended(self) -> None:
        said = os.read(self._fd, 1000).decode(errors="replace").strip()
        self._forget()
        if said.startswith("!"):
            self._say(said[1:])
        else:
            self._failed(said or "the process that follows them ended")

    def _forget(self) -> None:
        self.pid = 0
        os.close(self._fd)
        self._fd = -1

    def _failed(self, problem: str) -> None:
        self._say(problem)
        self._timer = self.loop.after(self._again.next(), self.start)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self.log(f"GPU events of the driver are not followed: {problem}")


def _follow(directory: str, agent: int, pipe: Tuple[int, int]) -> None:
    """The process: runs until its agent is gone or the driver gives no events. Says why; `!` if no new try can help."""
    os.close(pipe[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    state = State(directory)
    code = file_events(nvml.operational_events(LOOK, RECOVERABLE), state, lambda: os.getppid() == agent)
    if code is not None:
        os.write(pipe[1], f"{'!' if code in _WITHOUT else ''}{error_text(code)}".encode())


def file_events(answers: Iterator[Dict[str, Any]], state: State, goes_on: Callable[[], bool]) -> Optional[int]:
    """File each event after the log has had its time; NVML's code if `answers` ends in one."""
    waiting: List[Tuple[float, GpuEvent]] = []
    for answer in answers:
        if not goes_on():
            return None
        if "error" in answer:
            return int(answer["error"])
        now = time.time()
        if answer:
            waiting.append((now + AFTER_THE_LOG, parse(answer, now)))
        while waiting and waiting[0][0] <= now:
            _due, event = waiting.pop(0)
            state.update(STORE, lambda held, event=event: take_in(fit(held), event, time.time()))  # type: ignore[misc]
    return None
