"""A shard of a sweep: one process whose worker threads take nodes one by one and send finished results over a pipe.

A node that has waited for long does not count against the fan-out: twenty hosts that drop packets do not delay the next
thousand.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Iterator, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple, Union

from nhc.fleet import node_result, node_session
from nhc.fleet.clean_report import Finding, Number
from nhc.fleet.transport import CLIENT, Deadline, Node, OutOfResources, Session, Transport, Trouble

# A finished node on its way from a shard to the sweep's own process.


LENGTH = struct.Struct(">I")
"""What precedes each result in the pipe: its size."""


class Arrived(NamedTuple):
    """A finished node as the parent gets it: its place in the list of nodes. `line` is its JSON, compressed."""

    place: int
    verdict: int
    seconds: float
    findings: Tuple[Finding, ...]
    metrics: Tuple[Number, ...]
    labels: Dict[str, str]
    line: bytes

    def text(self) -> str:
        return zlib.decompress(self.line).decode()


def arrival(index: int, done: node_result.NodeResult) -> Arrived:
    """What the parent gets about the node at this place."""
    report = done.report
    return Arrived(
        index, int(report.verdict), done.seconds, node_result.findings(report), node_result.metrics(report),
        dict(report.labels), zlib.compress(node_result.line(done).encode(errors="replace"), 1),
    )  # fmt: skip


def failed(node: Node, trouble: Trouble, seconds: float, attempts: int) -> node_result.NodeResult:
    """The result of a node that could not be judged."""
    return node_result.NodeResult(node, node_result.unreached(node, trouble, time.time(), attempts), seconds, attempts)


class Returned(NamedTuple):
    """Nodes that a shard hands back because it had no process, thread or descriptor to reach them."""

    places: Tuple[int, ...]


class Scarce(NamedTuple):
    """A shard had fewer nodes in hand at a time than it was to have, for want of processes, threads or descriptors."""

    least: int
    most: int


def pack(message: Union[Arrived, Returned, Scarce]) -> bytes:
    """A finished node, or a shard's message, as the pipe carries it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def unpack(buffer: bytearray) -> Iterator[Union[Arrived, Returned, Scarce]]:
    """The whole arrivals and messages at the start of what came over the pipe, which they are taken from."""
    at = 0
    while len(buffer) - at >= LENGTH.size:
        (size,) = LENGTH.unpack_from(buffer, at)
        if len(buffer) - at - LENGTH.size < size:
            break
        at += LENGTH.size
        yield pickle.loads(bytes(buffer[at : at + size]))  # noqa: S301 (from our own child)
        at += size
    del buffer[:at]


# How many nodes a shard has in hand at a time.
#
# Where it gets no process, thread or descriptor: fewer, and those again later.
#
# A user's limit (ulimit -u), a container's (pids.max) or a full table of files is nothing that a node can help. What
# can go on goes on with what there is; the fan-out grows again while that goes well.


PAUSE = 0.5
"""Seconds after which a node that had to wait is tried again."""
FEW = 8
"""Nodes at a time at least, where there is enough for more and only this process is late."""
GROW = 2.0
"""Seconds without scarcity after which one node more is tried at a time."""
HOPELESS = 5.0
"""Seconds in which not even one node could be begun, after which the shard hands its nodes back."""


FIRST = 16
"""Hosts that a shard begins with at once: how long these take is not known yet."""
LEAST = 2
PATIENT = 2.0
"""Seconds after which a host that does not answer is no reason to begin with fewer."""


class Starts:
    """How many hosts at a time may be between their first packet and the first line of their Python.

    A handshake and a Python's start cost processor time, here and behind a bastion or on a container host there too: a
    hundred at once only make each other late. As TCP finds its window, each start that was quick lets one more begin
    (twice as many after each round), and while starts are slow a quarter fewer do. `slow` is in seconds: longer than
    that, and than three times the quickest so far, is slow; far hosts are not.
    """

    def __init__(self, most: int, slow: float) -> None:
        self.most, self.slow = most, slow
        self.window = float(min(FIRST, most))
        self.usual: Optional[float] = None
        self._quickest = float("inf")
        self._shrunk = float("-inf")

    def ended(self, seconds: float, now: float) -> None:
        """A host's Python runs, so many seconds after it was begun with."""
        self._quickest = min(self._quickest, seconds)
        self.usual = seconds if self.usual is None else self.usual + (seconds - self.usual) / 8
        if seconds <= self._limit():
            self.window = min(float(self.most), self.window + 1)
        elif self.crowded:
            self.fewer(now)

    def fewer(self, now: float) -> None:
        """Starts are slow, or did not come to their end: fewer at a time, once for all that were under way."""
        if now - self._shrunk > (self.usual or self.slow) / 2:
            self.window, self._shrunk = max(float(LEAST), self.window * 3 / 4), now

    @property
    def crowded(self) -> bool:
        """Whether starts are slow in general, and not only those of a few hosts."""
        return self.usual is not None and self.usual > self._limit()

    @property
    def patience(self) -> float:
        """Seconds after which a host without an answer does not count any more: nobody is held up by the dead."""
        return max(PATIENT, 2 * (self.usual or 0.0))

    def room(self, under_way: int) -> bool:
        """Whether one more may be begun with."""
        return under_way < int(self.window)

    def _limit(self) -> float:
        return max(self.slow, 3 * self._quickest)


class Scarcity:
    """How many nodes at a time there is enough for, and which nodes wait."""

    def __init__(self, fanout: int) -> None:
        self.most = self.now = self.least = fanout
        self.waiting: Deque[int] = deque()
        self._when = 0.0
        self._since: Optional[float] = None

    def fanout(self, now: float) -> int:
        """The fan-out at this time."""
        if self.now < self.most and now - self._when > GROW:
            self.now, self._when = self.now + 1, now
        return self.now

    def noted(self, index: int, active: int, now: float) -> None:
        """A node got nothing to be reached with while so many others had it."""
        self.waiting.append(index)
        self.now = max(1, min(self.now, active))
        self.least = min(self.least, self.now)
        self._when = now
        if self._since is None:
            self._since = now

    def late(self, active: int, now: float) -> None:
        """Fewer nodes at a time, since this process is late. It has what it needs for each, so nothing is told."""
        self.now, self._when = min(self.most, max(FEW, min(self.now, active) * 3 // 4)), now

    def finished(self) -> None:
        """A node was finished, so there is enough for some."""
        self._since = None

    def again(self, now: float) -> Optional[int]:
        """A node that has waited long enough, if there is one."""
        return self.waiting.popleft() if self.waiting and now - self._when > PAUSE else None

    def hopeless(self, now: float) -> bool:
        """Whether nothing has come of it for long."""
        return self._since is not None and now - self._since > HOPELESS


SLOW = 2.0
"""Seconds after which a node's worker no longer counts against the fan-out."""
MORE = 4
"""How many times the fan-out may be at work when most of it waits."""
LATE = 0.25
"""Share of a second that this process is late after which it does less at a time."""
EXCUSED = 10
"""Tries of one node that do not count because this process was late."""
TIMED_OUT = frozenset({"ConnectTimeout", "HandshakeTimeout", "NoBanner", "HungLogin", "SlowStart"})
"""Reasons that a host has which could not answer in time for all that was begun with beside it."""
SHARE = 0.25
"""Share of the time for a connection after which it is slow."""
TIDY = 250
"""Nodes after which a shard looks after its memory."""
Judge = Callable[[Session, Node, node_session.SweepTask], node_session.NodeOutput]


@dataclass(frozen=True)
class SweepSettings:
    """How a sweep goes about it. `transports` are by name; a node names its own, else `transport` is used."""

    task: node_session.SweepTask
    transports: Dict[str, Transport]
    transport: str = "ssh"
    fanout: int = 128
    shards: int = 0
    """Processes; 0 for one per core."""
    connect: float = 10.0
    retries: int = 1
    names: frozenset[str] = frozenset()
    """Every node's name: a node whose kernel has the name of another one is not the one that was meant."""
    judge: Judge = field(default=node_session.judge)


def carry_out(
    nodes: Sequence[Node], order: Sequence[int], settings: SweepSettings, counter: Any, write: int, count: int
) -> NoReturn:
    """All that a shard does, which takes nodes in this order of their places: never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _calm()
        _Shard(nodes, order, settings, counter, write, max(1, settings.fanout // count)).run()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)  # threads that hang are left behind


def _calm() -> None:
    """Fewer switches between threads that each have little to do, and fewer collections: 8% of a shard's CPU."""
    gc.set_threshold(20_000, 10, 100)
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass
    libc = _libc()
    if libc is not None:
        libc.mallopt(-8, 1)  # M_ARENA_MAX: threads that hold the interpreter's lock in turn need no heap each


def _tidy() -> None:
    """Give back what finished connections held: paramiko's objects are cycles, and its heap does not shrink."""
    gc.collect()
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


def _libc() -> Any:
    """The C library, None where it is not GNU's."""
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "malloc_trim") else None
    except OSError:
        return None


class CrowdedOut(Exception):
    """A host that did not answer in time while many were begun with: it is tried once more, among fewer."""


@dataclass
class _NodeInHand:
    """One node in hand: since when, what it is at, and until when. Tries share `login` and `end`.

    `login` is the time left for connecting and logging in, `end` when all of it must be over. All but `begin` are by
    the clock that stands still while this process is late; `excused` are tries that failed for that. `started` says
    that its Python runs.
    """

    begin: float
    taken: float
    login: float
    end: float
    stage: str = "connecting"
    until: float = 0.0
    attempts: int = 1
    excused: int = 0
    started: bool = False


class _Shard:
    def __init__(
        self,
        nodes: Sequence[Node],
        order: Sequence[int],
        settings: SweepSettings,
        counter: Any,
        write: int,
        fanout: int,
    ) -> None:
        self.nodes, self.order, self.settings = nodes, order, settings
        self.counter, self.write, self.fanout = counter, write, fanout
        self.active: Dict[int, _NodeInHand] = {}
        self.drained = False
        self.finished = 0
        self.changed = threading.Condition()
        self.parent = os.getppid()
        self.scarcity = Scarcity(fanout)
        self.starts = Starts(fanout, SHARE * settings.connect)
        self.crowded_out: Deque[int] = deque()
        """Nodes that timed out while many were begun with: they are tried once more, among fewer."""
        self.tried_again: Set[int] = set()
        self.lateness = CLIENT
        self._slowed, self._late = 0.0, 0.0

    def run(self) -> None:
        threading.stack_size(512 << 10)
        tidied = 0
        while True:
            with self.changed:
                now = time.monotonic()
                self._slow_down(now)
                self._abandon()
                self._staff(now)
                self.lateness.start()  # after the workers: where threads are few, they come first
                if not self.active and (self.drained or self.scarcity.hopeless(now)):
                    break
                self.changed.wait(0.2)
            if os.getppid() != self.parent:
                return
            if self.finished - tidied >= TIDY:
                tidied = self.finished
                _tidy()
        if self.scarcity.waiting:
            self._send(pack(Returned(tuple(self.scarcity.waiting))))
        if self.scarcity.least < self.fanout and self.finished:
            self._send(pack(Scarce(self.scarcity.least, self.fanout)))

    def _slow_down(self, now: float) -> None:
        """Do less at a time where this process was late for a share of the last second."""
        if now - self._slowed < 1.0:
            return
        late = self.lateness.seconds
        if late - self._late > LATE * (now - self._slowed) and self._slowed:
            self.scarcity.late(len(self.active), now)
        self._slowed, self._late = now, late

    def _staff(self, now: float) -> None:
        """Start workers until the fan-out is reached, those that have waited for long left out of the count."""
        while self._room(now) and len(self.active) < MORE * self.fanout:
            taken = self._take(now)
            if taken is None:
                return
            try:
                threading.Thread(target=self._work, args=taken, daemon=True).start()
            except RuntimeError:  # the only reason that it has is that there can be no more threads
                del self.active[taken[0]]
                self._put_back(taken[0])
                return

    def _room(self, now: float) -> bool:
        return not self.drained and self._fresh() < self.scarcity.fanout(now) and self.starts.room(self._starting())

    def _put_back(self, index: int) -> None:
        """Keep a node for later, and do with less at a time: there is no thread, process or descriptor for it."""
        self.scarcity.noted(index, len(self.active), time.monotonic())
        self.drained = False

    def _fresh(self) -> int:
        now = self.lateness.now()
        return sum(1 for run in self.active.values() if now - run.taken < SLOW)

    def _starting(self) -> int:
        now, patience = self.lateness.now(), self.starts.patience
        return sum(1 for run in self.active.values() if not run.started and now - run.taken < patience)

    def _with_option(self, trouble: Trouble, run: _NodeInHand) -> Trouble:
        """The same, naming the option by which a host gets more time."""
        if trouble.reason not in TIMED_OUT | {"Timeout"}:
            return trouble
        settings = self.settings
        option = f"--timeout {settings.task.seconds:g}s" if run.started else f"connect-timeout {settings.connect:g}s"
        return Trouble(trouble.reason, f"{trouble.message} ({option})", trouble.passing)

    def _crowded(self, trouble: Trouble) -> bool:
        """Whether a host that timed out may have done so for the others that were begun with beside it."""
        if self.starts.usual is not None:
            return self.starts.crowded
        # Nobody's Python has started yet. A host that does not even take the connection is not there: kernels do that.
        return trouble.reason != "ConnectTimeout" and len(self.active) > FEW

    def _started(self, run: _NodeInHand, begin: float) -> None:
        """A node's Python runs: others may begin."""
        now = self.lateness.now()
        with self.changed:
            if not run.started:
                run.started = True
                self.starts.ended(now - begin, now)
                self.changed.notify()

    def _take(self, now: float) -> Optional[Tuple[int, _NodeInHand]]:
        """The next node, now in hand."""
        index = self.scarcity.again(now)
        if index is None:
            index = self._claim()
        if index is None and self.crowded_out:
            index = self.crowded_out.popleft()
        if index is None:
            self.drained = not self.scarcity.waiting
            return None
        connect, task = self.settings.connect, self.settings.task
        taken = self.lateness.now()
        end = taken + connect + task.login + task.seconds + 2 * node_session.GRACE
        run = self.active[index] = _NodeInHand(now, taken, connect, end, until=taken + connect + 1)
        return index, run

    def _claim(self) -> Optional[int]:
        with self.counter.get_lock():
            place = int(self.counter.value)
            if place >= len(self.order):
                return None
            self.counter.value = place + 1
            return self.order[place]

    def _abandon(self) -> None:
        """Give up nodes whose worker does not come back: a resolver that hangs, a lock, a bug."""
        now = self.lateness.now()
        for index, run in list(self.active.items()):
            if now > run.until:
                del self.active[index]
                trouble = self._with_option(Trouble("Timeout", f"stuck while {run.stage}, given up"), run)
                spent = time.monotonic() - run.begin
                self._send(pack(arrival(index, failed(self.nodes[index], trouble, spent, run.attempts))))

    def _work(self, index: int, run: _NodeInHand) -> None:
        """What a worker does: one node after the other, until there are none or others have taken its place."""
        taken: Optional[Tuple[int, _NodeInHand]] = (index, run)
        while taken is not None:
            index, run = taken
            try:
                done = self._node(index, run)
            except CrowdedOut:
                with self.changed:
                    if self.active.get(index) is not run:
                        return  # given up, and somebody else works in this one's place
                    del self.active[index]
                    self.tried_again.add(index)
                    self.starts.fewer(self.lateness.now())
                    self.crowded_out.append(index)
                    self.drained = False
                    now = time.monotonic()
                    taken = self._take(now) if self._room(now) else None
                    self.changed.notify()
                continue
            except OutOfResources:
                with self.changed:
                    if self.active.get(index) is run:
                        del self.active[index]
                        self._put_back(index)
                        self.changed.notify()
                return
            except Exception as error:  # a defect of ours must not lose a node
                trouble = Trouble("SweepError", f"{type(error).__name__}: {error}")
                done = failed(self.nodes[index], trouble, time.monotonic() - run.begin, run.attempts)
            frame = pack(arrival(index, done))
            with self.changed:
                if self.active.get(index) is not run:
                    return  # given up, and somebody else works in this one's place
                del self.active[index]
                self.finished += 1
                self._send(frame)
                now = time.monotonic()
                self.scarcity.finished()
                taken = self._take(now) if self._room(now) else None
                if not self.active:
                    self.changed.notify()

    def _send(self, frame: bytes) -> None:
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self.write, view) :]
        except BrokenPipeError:
            os._exit(1)

    def _node(self, index: int, run: _NodeInHand) -> node_result.NodeResult:
        node = self.nodes[index]
        while True:
            late = self.lateness.seconds
            try:
                answer, report = self._attempt(node, run)
            except OutOfResources:
                raise
            except Trouble as trouble:
                pause = 0.5 * 2 ** (run.attempts - 1) * (1 + zlib.crc32(node.name.encode()) % 100 / 100)
                timed_out = not run.started and trouble.reason in TIMED_OUT
                if timed_out and index not in self.tried_again and self._crowded(trouble):
                    raise CrowdedOut from None
                excused = (
                    timed_out and run.stage == "connecting" and self.lateness.seconds > late and run.excused < EXCUSED
                )
                if excused:
                    run.excused += 1
                    pause = min(pause, run.login / 4)  # the host did nothing wrong, and has little time left
                enough = pause < run.login and self.lateness.now() + pause + self._least(run) < run.end
                counted = run.attempts - run.excused
                if not (trouble.passing or excused) or counted > self.settings.retries or not enough:
                    return failed(node, self._with_option(trouble, run), time.monotonic() - run.begin, run.attempts)
                run.stage = "waiting to try again"
                run.until = self.lateness.now() + pause + 1
                time.sleep(pause)  # spread, so that all do not come back at once
                run.attempts += 1
                run.login -= pause
                continue
            return node_result.NodeResult(
                node, report, time.monotonic() - run.begin, run.attempts, answer.how, answer.hostname, answer.python,
                answer.pushed,
            )  # fmt: skip

    def _least(self, run: _NodeInHand) -> float:
        """Seconds that another try may take, with a second for the checks: less than that is no try."""
        return run.login + self.settings.task.login + 2 * node_session.GRACE + 1

    def _attempt(self, node: Node, run: _NodeInHand) -> Tuple[node_session.NodeOutput, Any]:
        if node.problem:
            raise Trouble("BadInventory", node.problem)
        settings = self.settings
        transport = settings.transports.get(node.connection or settings.transport)
        if transport is None:
            raise Trouble("BadInventory", f"there is no transport {node.connection!r}")
        begin = self.lateness.now()
        run.stage, run.until = "connecting", begin + run.login + 1
        try:
            session = transport.connect(node, Deadline(run.login))
        finally:
            run.login -= self.lateness.now() - begin
        try:
            # A second try has less time for the checks, where the first one broke off among them.
            left = run.end - self.lateness.now() - settings.task.login - 2 * node_session.GRACE
            task = settings.task._replace(
                seconds=min(settings.task.seconds, left), started=lambda: self._started(run, begin)
            )
            run.stage = "waiting for its report"
            run.until = run.end + node_session.GRACE
            answer = settings.judge(session, node, task)
            self._started(run, begin)
            report = node_result.received(answer.report, node, time.time())
        finally:
            session.close()
        other = answer.hostname.partition(".")[0]
        own = node.name.partition(".")[0]
        if (
            other != own
            and answer.hostname != node.name
            and (other in settings.names or answer.hostname in settings.names)
        ):
            raise Trouble("AnotherHost", f"the machine that answers is {answer.hostname}, another node of this sweep")
        return answer, report
