"""Deadlines that hold: numbered tasks carried out by worker processes that can be killed or abandoned.

One forked worker claims task after task from a pipe of tokens, so that sixty healthy checks cost one
fork. While every worker waits (for a command, or for too long), a relief worker is forked and goes on
with the rest: a hung task delays nobody, and tasks that start commands overlap. Past its deadline a
worker is killed; one that SIGKILL cannot end (uninterruptible sleep) is abandoned and named, with its
start time, for the next run to recognise. Results are counted, never waited for by end-of-file, because
an abandoned process may hold its descriptors open for ever.

What a worker sends waits in its pipe until it has ended or the supervisor looks: being woken for each of sixty
messages would cost more than most checks. The supervisor looks every few milliseconds, ever less often while
nothing is sent, and before any deadline; times are the worker's own.

Threads and alarms were tried: neither survives a hang in D state or a deadlock in native code.

The numbers of tasks that nobody has claimed yet are in a pipe, from which every worker takes the next. It holds some
sixteen thousand numbers; where a plan has more, the supervisor goes on writing as workers read.
"""

from __future__ import annotations

import os
import select
import time

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import children
from nhc.core.system.children import LET_GO, kill, leave_group_to_end, leave_to_end, reap
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.core.system.process import adopt_orphans
from nhc.node.run.worker import live, messages, packed, quiet

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

    from nhc.core.system.process_identity import KnownProcess
    from nhc.node.run.order import TaskOrder
    from nhc.node.run.worker import Factory

WORKERS = 8
"""At most this many tasks at a time: this bounds the processes that a sick node gains."""
LOOK = 0.005
"""Seconds until the supervisor looks at what was sent; doubled up to RELIEF while that is nothing."""
BARREN = 3
"""Workers that end before they claim a task, after which no more are forked."""
RELIEF = 0.05
"""Seconds after which a busy worker no longer holds up the tasks behind it."""
RELIEF_COMMAND = 0.005
"""The same for a worker that waits for a command. Many end sooner than another worker is forked."""
ENDING_TIME = 0.1
"""Seconds given to what was killed to disappear, all of it together, before it is said to be still there."""


class Supervisor:
    """Runs `tasks` and collects one TaskResult for each.

    `factory` makes the work of ordinary workers, `serial_factory` that of the serial one. `finished` is
    called with each task's number and result as it ends, and returns True to stop: later tasks are then not
    started, those already running (which only look) are cut short, earlier ones are still awaited. `deadline`
    bounds the whole, in seconds from now (0: no bound). `meanwhile` is called once the first worker is at work.
    With `grace` a worker that is to end has that many seconds to end its command in the command's own way.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        factory: Factory,
        serial_factory: Factory,
        finished: Callable[[int, TaskResult], bool],
        deadline: float = 0.0,
        meanwhile: Optional[Callable[[], None]] = None,
        grace: float = 0.0,
    ) -> None:
        self.tasks = tasks
        self.grace = grace
        self.factory = factory
        self.serial_factory = serial_factory
        children.reap_ended()
        self.finished = finished
        self.meanwhile = meanwhile
        self.ends = time.monotonic() + deadline if deadline else float("inf")
        self.done: Dict[int, TaskResult] = {}
        self.stop_after = len(tasks)  # tasks beyond this one no longer matter
        self.workers: Dict[int, Worker] = {}
        self.poll = select.poll()
        self.look = LOOK
        self.serial_queue = [number for number, task in enumerate(tasks) if task.serial]
        self.serial_completed: List[int] = []
        self.next = followers(tasks)
        self.unclaimed = {n for n, task in enumerate(tasks) if not task.serial} - set(self.next.values())
        self.tokens: Optional[Tokens] = None
        self.order: Optional[TaskOrder] = None
        self.first_open = 0  # no task before it is still to be decided
        self.barren = 0  # workers that ended before they claimed anything
        self.emptied = False  # a worker found nothing left to claim: a task that seems unclaimed is claimed already

    def run(self) -> List[TaskResult]:
        """Carry everything out. Returns within a third of a second of the last deadline.

        A signal that ends this process ends the workers and their commands first: they lead groups of their own,
        so that nothing else would reach them.
        """
        signals = Signals()
        try:
            signals.take()
            self._carry_out()
            signals.hold()
        except SignalToEnd:
            pass
        except (OSError, MemoryError) as error:  # the node has run out of something: what is judged stays so
            for number in range(len(self.tasks)):
                self._finish(number, TaskResult("no-worker", getattr(error, "strerror", "") or "no memory"))
        finally:
            signals.hold()
            if self.tokens:
                self.tokens.close()
            self._let_go()
            if self.order:
                self.order.close()
            if signals.number:
                children.reap_all()
            signals.give_back()
        return [self.done.get(number, TaskResult("not-run")) for number in range(len(self.tasks))]

    def _carry_out(self) -> None:
        if any(task.serial or task.changes for task in self.tasks):
            from nhc.node.run.order import TaskOrder

            self.order = TaskOrder([task.serial or task.changes for task in self.tasks], self.poll)
        if self.unclaimed:
            self._start(serial=False)
        if self.serial_queue:
            self._start(serial=True)
        if self.meanwhile:
            self.meanwhile()
        while self._undecided():
            self._order_serial()
            self._relieve()
            if self.tokens:
                self.tokens.refill()
            self.poll.poll(self._milliseconds_to_wait())
            if self.order:
                self.order.woken()
            sent = [self._read(worker) for worker in tuple(self.workers.values())]
            self.look = LOOK if any(sent) else min(self.look * 2, RELIEF)
            self._expire()
        self._dismiss(tuple(self.workers.values()))

    def _undecided(self) -> bool:
        while self.first_open in self.done:
            self.first_open += 1
        return self.first_open < min(self.stop_after + 1, len(self.tasks))

    def _finish(self, number: int, done: TaskResult) -> None:
        if number in self.done:
            return
        self.done[number] = done
        self.unclaimed.discard(number)
        if self.finished(number, done) and number < self.stop_after:
            self.stop_after = number
            if self.tokens:
                self.tokens.take_back()
        elif self.order and done.how not in ("out-of-time", "not-run"):
            self.order.end(number)

    def _milliseconds_to_wait(self) -> int:
        """Milliseconds until something is due."""
        now = time.monotonic()
        due = self.ends
        for worker in self.workers.values():
            if not worker.serial:
                due = min(due, now + self.look)
            if worker.task is not None:
                due = min(due, worker.since + self.tasks[worker.task].timeout)
                if self.unclaimed and not worker.is_held_up(now):
                    due = min(due, worker.held_up_from())
        return max(0, int(min(due - now, 60.0) * 1000 + 0.999))

    def _relieve(self) -> None:
        """Fork another worker when none of those there are will soon claim what is unclaimed."""
        if not self.unclaimed or self.stop_after < len(self.tasks):
            return
        ordinary = [worker for worker in self.workers.values() if not worker.serial]
        if ordinary and self.first_open in self.unclaimed and all(worker.waits is not None for worker in ordinary):
            # They wait for a task whose worker was killed between claiming it and saying so.
            self._finish_from(self.first_open, TaskResult("died", "killed before it began"))
        if self.emptied:
            for number in () if ordinary else sorted(self.unclaimed):
                self._finish_from(number, TaskResult("died", "killed before it began"))
            return
        now = time.monotonic()
        # One that would only wait for a task that a worker is at is of no use: that worker goes on by itself. Lines
        # that are carried out in turn so stay in one process, where what one of them gathered is there for the next.
        if (
            len(ordinary) < WORKERS
            and all(worker.is_held_up(now) for worker in ordinary)
            and (not ordinary or not self.order or self.order.before(min(self.unclaimed)) <= self.first_open)
        ):
            self._start(serial=False, needed=not ordinary)

    def _order_serial(self) -> None:
        """Give the serial worker its next task once every task before it has ended."""
        while self.serial_queue and self.serial_queue[0] in self.done:
            self.serial_queue.pop(0)
        if not self.serial_queue or self.serial_queue[0] > self.stop_after:
            return
        number = self.serial_queue[0]
        if self.first_open < number:
            return
        worker = next((w for w in self.workers.values() if w.serial), None) or self._start(serial=True)
        if worker and worker.task is None:
            worker.give(number)  # where it has just ended, its closed pipe shows it, and another worker is started

    def _expire(self) -> None:
        """End what is past its deadline."""
        now = time.monotonic()
        over = now >= self.ends
        due = {}
        for worker in self.workers.values():
            if worker.task is None:
                continue
            if worker.task > self.stop_after and not over:
                due[worker] = "not-run"
            elif over or now >= worker.since + self.tasks[worker.task].timeout:
                due[worker] = "timeout"
        if over:  # before the order lets them begin what they wait for
            self._dismiss([worker for worker in self.workers.values() if worker.task is None])
        if due:
            self._cut(due)
        if over:
            for number in range(len(self.tasks)):
                self._finish(number, TaskResult("out-of-time"))

    def _cut(self, due: Dict[Worker, str]) -> None:
        tasks = [(worker.task, time.monotonic() - worker.since) for worker in due]
        for worker, (number, elapsed), how, stuck in zip(due, tasks, due.values(), self._dismiss(tuple(due))):
            assert number is not None
            self._finish(number, TaskResult(how, None, elapsed, stuck))
            if how == "timeout" and number in self.next and worker.source != self.tasks[number].source:
                self._finish_from(self.next[number], TaskResult("source-hung", None, elapsed))
            self._go_on_from(worker)

    def _go_on_from(self, worker: Worker) -> None:
        """See to the tasks of a source that a worker which has ended would have gone on with."""
        number = self.next.get(worker.last)
        if number is not None and number not in self.done and number <= self.stop_after:
            try:
                self._fork(serial=False, first=number)
            except OSError as error:
                self._finish_from(number, TaskResult("no-worker", error.strerror or "no reason given"))

    def _finish_from(self, first: int, done: TaskResult) -> None:
        """A task, and those of its source that follow, end alike."""
        number: Optional[int] = first
        while number is not None:
            self._finish(number, done)
            number = self.next.get(number)

    def _start(self, serial: bool, needed: bool = True) -> Optional[Worker]:
        """Fork a worker. Where the node has no process or descriptor left for a needed one, its tasks end here."""
        try:
            if self.tokens is None and not serial:
                self.tokens = Tokens(sorted(self.unclaimed), self.poll)
            return self._fork(serial)
        except OSError as error:
            if needed:
                self._give_up(serial, error.strerror or "no reason given")
            return None

    def _give_up(self, serial: bool, why: str) -> None:
        for number in tuple(self.serial_queue) if serial else sorted(self.unclaimed):
            self._finish_from(number, TaskResult("no-worker", why))

    def _fork(self, serial: bool, first: int = -1) -> Worker:
        tokens = (self.tokens.reader if self.tokens else -1, -1)

        def child(results: Tuple[int, int], orders: Tuple[int, int] = tokens) -> None:
            os.setpgid(0, 0)
            waker = self.order.waker if self.order else -1
            results_in, orders_out, *wakers = quiet(results[1], orders[0], *([waker] if waker >= 0 else []))
            make = self.serial_factory if serial else self.factory
            timeouts = [task.timeout + self.grace for task in self.tasks]
            order = None if serial else self.order
            waker = wakers[0] if wakers else -1
            completed = tuple(self.serial_completed)
            live(make, completed, results_in, orders_out, serial, timeouts, self.next, first, order, waker)

        pid, ((results, results_in), *more) = children.fork(child, pipes=2 if serial else 1)
        orders_out, orders = more[0] if serial else tokens
        try:
            os.setpgid(pid, pid)  # whichever of the two comes first: a kill must not miss
        except OSError:
            pass
        os.close(results_in)
        if serial:
            os.close(orders_out)
        os.set_blocking(results, False)
        worker = Worker(pid, results, orders, serial)
        self.workers[results] = worker
        # Only the end of an ordinary worker wakes us: POLLHUP, which needs no asking for.
        self.poll.register(results, select.POLLIN if serial else 0)
        return worker

    def _read(self, worker: Worker) -> bool:
        """Take in what a worker has sent; whether that was anything."""
        any_data, ended = worker.read()
        for message in messages(worker.buffer):
            self._note(worker, *message)
        if ended:
            number, elapsed = worker.task, time.monotonic() - worker.since
            if number is None and worker.waits is not None:
                number, elapsed = worker.waits, 0.0
            if number is None:
                self.barren += not worker.since and not self.emptied
                if self.barren >= BARREN:
                    self._give_up(worker.serial, "its process ends before it begins")
                self._forget(worker)
                children.leave_to_end(worker.pid)
            else:
                self._finish(number, TaskResult("died", self._dismiss_dead(worker), elapsed))
            self._go_on_from(worker)
        elif not worker.serial:  # half a message: the pipe is full, the worker waits until it is read
            self.poll.modify(worker.results, select.POLLIN if worker.buffer else 0)
        return any_data

    def _note(self, worker: Worker, what: str, number: int, value: Any = None, elapsed: float = 0.0) -> None:
        """Take in one message of a worker."""
        worker.note(what, number, value)
        self.emptied = self.emptied or what == "emptied"
        if what in ("begin", "waits"):
            self.unclaimed.discard(number)
        elif what == "done":
            if worker.serial:
                self.serial_completed.append(number)
            worker.has_open(self.tasks[number].source)
            self._finish(number, TaskResult("done", value, elapsed, worker.take_abandoned()))

    def _forget(self, worker: Worker) -> None:
        self.poll.unregister(worker.results)
        del self.workers[worker.results]
        os.close(worker.results)
        if worker.orders >= 0:
            os.close(worker.orders)

    def _let_go(self) -> None:
        """Where the run is broken off: have the workers end their commands themselves, then end the workers."""
        # A command that has just begun is known to its worker only. See `nhc.core.system.process.lifeline`.
        workers = tuple(self.workers.values())
        for worker in workers:
            self._forget(worker)
        end_all(workers, self.grace)

    def _dismiss_dead(self, worker: Worker) -> str:
        """Reap a worker whose pipe has closed; say how it ended."""
        self._forget(worker)
        kill_all(worker)
        return cause_of_end(worker.pid)

    def _dismiss(self, workers: Sequence[Worker]) -> List[Optional[KnownProcess]]:
        """End workers and their commands without waiting for what cannot be killed; what stays of each busy one."""
        if self.grace:
            release([worker for worker in workers if worker.task is not None], self.grace)
        for worker in workers:
            if not worker.serial or worker.task is not None:  # an idle shell is ended by its worker
                kill_all(worker)
            if worker.task is None:
                children.leave_to_end(worker.pid)
            elif find_late_commands(worker):
                kill_all(worker)
            self._forget(worker)
        busy = [worker for worker in workers if worker.task is not None]
        return wait_for_rest(busy) if busy else []


class Worker:
    """The supervisor's view of one worker process."""

    def __init__(self, pid: int, results: int, orders: int, serial: bool) -> None:
        self.pid = pid
        self.results = results
        self.orders = orders  # the serial worker's task numbers are written here
        self.serial = serial
        self.task: Optional[int] = None
        self.waits: Optional[int] = None  # what it has claimed and may not begin yet
        self.last = -1  # what it claimed last
        self.source = ""  # of the task that it did last: it has that source open
        self.since = 0.0
        self.commands: Dict[int, float] = {}  # what it waits for, since when
        self.abandoned: Optional[KnownProcess] = None
        self.buffer = bytearray()

    def give(self, number: int) -> None:
        """Hand the serial worker its next task, unless it has just ended."""
        try:
            os.write(self.orders, packed(number))
        except BrokenPipeError:
            return
        self.task, self.since = number, time.monotonic()

    def read(self) -> Tuple[bool, bool]:
        """Read what it has sent: whether that was anything, and whether it has ended."""
        any_data = False
        while True:
            try:
                data = os.read(self.results, 65536)
            except BlockingIOError:
                return any_data, False
            self.buffer += data
            any_data = True
            if not data:
                return any_data, True

    def note(self, what: str, number: int, value: Any = None) -> None:
        """Take in one message about its task or a command of it."""
        if what == "begin":
            self.task, self.last, self.since, self.waits = number, number, value, None
        elif what == "waits":
            self.waits = self.last = number
        elif what == "started":
            self.commands[number] = time.monotonic()
        elif what == "ended":
            self.commands.pop(number, None)
        elif what == "abandoned":
            from nhc.core.system.process_identity import identify

            self.commands.pop(number, None)
            self.abandoned = identify(number)
        elif what == "done":
            self.task = None

    def has_open(self, source: str) -> None:
        """It did a task of this source, "" for none: the next one finds the source open."""
        self.source = source

    def take_abandoned(self) -> Optional[KnownProcess]:
        """The command that it could not end, once."""
        process, self.abandoned = self.abandoned, None
        return process

    def is_held_up(self, now: float) -> bool:
        """Whether its task holds it up, so that it will not soon claim another."""
        if self.task is None:
            return False
        return now - self.since >= RELIEF or any(now - at >= RELIEF_COMMAND for at in self.commands.values())

    def held_up_from(self) -> float:
        """When, on the monotonic clock, its task will have held it up for so long."""
        return min([self.since + RELIEF, *(at + RELIEF_COMMAND for at in self.commands.values())])


def find_late_commands(worker: Worker) -> bool:
    """Learn of commands that a killed worker has started since it was last read; whether there are any."""
    known = set(worker.commands)
    worker.read()
    for what, number, *_more in messages(worker.buffer):
        if what in ("started", "ended"):
            worker.note(what, number)
    return not known >= set(worker.commands)


def release(workers: Sequence[Worker], grace: float) -> None:
    """Have workers end their commands in the commands' own way, within `grace` seconds: nobody reads their pipes now.

    See `nhc.core.system.process.orphaned`. The messages that each has sent are read first.
    """
    for worker in workers:
        find_late_commands(worker)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, worker.results, inheritable=False)
        os.close(null)
    until = time.monotonic() + grace + ENDING_TIME
    for worker in workers:
        while not ended(worker.pid) and time.monotonic() < until:
            time.sleep(0.005)


def end_all(workers: Sequence[Worker], grace: float) -> None:
    """Wait for workers that nobody listens to any more to end, then kill them; a busy one has `grace` seconds more."""
    timeout = LET_GO + (grace if any(worker.task is not None for worker in workers) else 0.0)
    until = time.monotonic() + timeout
    for worker in workers:
        if reap(worker.pid, until - time.monotonic()) is None:
            kill_all(worker)
            leave_to_end(worker.pid)


def ended(pid: int) -> bool:
    """Whether a child has ended, which it is not reaped for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_all(worker: Worker) -> None:
    """End a worker and its commands, as far as a signal can."""
    if worker.commands:
        adopt_orphans()
    for pid in (worker.pid, *worker.commands):
        kill(pid)
    for pid in worker.commands:
        leave_group_to_end(pid)


def wait_for_rest(workers: Sequence[Worker]) -> List[Optional[KnownProcess]]:
    """What is left of killed workers and their commands after a moment: for each the worst that is, None for nothing.

    Only uninterruptible sleep (`KnownProcess.unkillable`) keeps a killed process for good.
    """
    from nhc.core.system.process_identity import identify, is_alive

    left = {worker: [identify(pid) for pid in (worker.pid, *worker.commands)] for worker in workers}
    until = time.monotonic() + ENDING_TIME
    while True:
        for worker in workers:
            left[worker] = [process for process in left[worker] if process and is_alive(process)]
        if not any(left.values()) or time.monotonic() >= until:
            break
        time.sleep(0.001)
    for worker in workers:
        if reap(worker.pid, 0.0) is None:
            leave_to_end(worker.pid)
    stay = [[identify(process.pid) or process for process in left[worker] if process] for worker in workers]
    return [max(processes, key=lambda process: process.unkillable, default=None) for processes in stay]


def cause_of_end(pid: int) -> str:
    """How a worker ended that is about to be gone."""
    status = reap(pid, ENDING_TIME)
    if status is None or not os.WIFSIGNALED(status):
        return "ended early"
    import signal

    try:
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    except ValueError:
        return f"killed by signal {os.WTERMSIG(status)}"


class TaskResult(NamedTuple):
    """How a task ended.

    `how` is "done" with its value, "timeout", "source-hung" (the first task of its source timed out), "died" (its
    worker ended, `value` says how), "no-worker" (none could be started, `value` says why), "not-run" (an earlier task
    stopped the run) or "out-of-time" (the whole run's deadline passed before its turn).
    """

    how: str
    value: Any = None
    elapsed: float = 0.0
    stuck: Optional[KnownProcess] = None


class Task(NamedTuple):
    """One task. `timeout` in seconds. A serial task runs in one common worker.

    A serial task, and one that `changes` something, starts when all before it have ended, and is over before any after
    it starts. The others, which only look, overlap; those of one `source` are carried out in turn by one worker, so
    that what is slow to begin with begins once.
    """

    timeout: float
    serial: bool = False
    changes: bool = False
    source: str = ""


def followers(tasks: Sequence[Task]) -> Dict[int, int]:
    """For each task that its worker goes on from, the next of its source: up to one that changes something."""
    last: Dict[str, int] = {}
    following: Dict[int, int] = {}
    for number, task in enumerate(tasks):
        if task.serial or task.changes:
            last.clear()
        elif task.source:
            if task.source in last:
                following[last[task.source]] = number
            last[task.source] = number
    return following


class Tokens:
    """`reader` is what workers read. Once all is written the pipe is closed, so that they find its end.

    `poll` wakes the supervisor when there is room for more.
    """

    def __init__(self, numbers: Iterable[int], poll: select.poll) -> None:
        self._unwritten = memoryview(b"".join(map(packed, numbers)))
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._poll = poll
        poll.register(self._writer, select.POLLOUT)
        self.refill()

    def refill(self) -> None:
        """Write what there is room for."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._writer, self._unwritten) :]
        except BlockingIOError:
            return
        self._end()

    def take_back(self) -> None:
        """Leave nothing to claim."""
        self._unwritten = memoryview(b"")
        self._end()
        os.set_blocking(self.reader, False)
        try:
            while os.read(self.reader, 65536):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(self.reader, True)

    def close(self) -> None:
        self._end()
        os.close(self.reader)

    def _end(self) -> None:
        if self._writer >= 0:
            self._poll.unregister(self._writer)
            os.close(self._writer)
            self._writer = -1
