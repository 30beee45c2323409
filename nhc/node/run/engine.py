"""The engine: a plan and a host in, a report out. It never raises for what a check does.

It prepares each item (finds the check, reads its arguments, sets its deadline), hands them to the
watchdog's workers, and stamps what comes back. A bug in a check is that check's UNKNOWN, with
its traceback as evidence. Strikes and stuck checks live from run to run in `State`.
"""

from __future__ import annotations

import os
import time

from nhc import __version__
from nhc.core import plan as plans
from nhc.core.host import Host
from nhc.core.language.site_settings import shows_output
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import CheckResult, Outcome, Report, Verdict, crit, ok, printable, unknown
from nhc.core.plan import BUILT_IN, COMMAND, SHELL, SHELL_LINE, UNDECIDED, Item, Plan
from nhc.core.render.plain import EVIDENCE_LINES, decode, encode
from nhc.core.state.earlier_runs import Strikes, StuckChecks, forget_another_machine
from nhc.core.system import process
from nhc.node.run.supervisor import Supervisor, Task, TaskResult
from nhc.node.run.worker import MayEndRun

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

    from nhc.core.check import Check
    from nhc.core.host import Host
    from nhc.core.plan import Declared
    from nhc.core.state.earlier_runs import StuckCheck
    from nhc.core.state.mutes import Mutes
    from nhc.core.state.store import State
    from nhc.node.run.worker import Notify, Work


def call(check: Check, arguments: Mapping[str, object], host: Host) -> List[Outcome]:
    """Run a check; its outcomes, whatever happens."""
    try:
        returned = check.run(host, **arguments)
        outcomes = [returned] if isinstance(returned, Outcome) else list(returned)
        for outcome in outcomes:
            if not isinstance(outcome, Outcome):
                raise TypeError(f"{check.name} returned {outcome!r}, not an Outcome")
        if any(outcome.verdict in (Verdict.WARN, Verdict.CRIT) for outcome in outcomes):
            outcomes = _about(host, outcomes)
        return outcomes or [unknown("NoOutcome", "the check returned nothing")]
    except FileNotFoundError as error:
        if error.strerror == "no such command":
            return [unknown("CommandMissing", f"{error.filename} is not installed")]
        return [unknown("Unreadable", f"{error.filename or error}: there is no such file")]
    except OSError as error:
        return [unknown("Unreadable", f"{error.filename or 'a needed file'}: {error.strerror or error}")]
    except (Exception, SystemExit) as error:
        return [broken(check.name, error)]


def _about(host: Host, outcomes: List[Outcome]) -> List[Outcome]:
    """The outcomes with the device that each fault is of; unchanged if that cannot be read, which loses no fault."""
    from nhc.node.facts.fault_scope import with_scope  # only where there is a fault

    try:
        return with_scope(host, outcomes)
    except (OSError, ValueError):
        return outcomes


def broken(name: str, error: BaseException) -> Outcome:
    """A bug's outcome."""
    import traceback

    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    message = f"{name} has a bug: {type(error).__name__}: {error}"
    return unknown("CheckBroken", message.split("\n", 1)[0], evidence=tuple(lines[-EVIDENCE_LINES:]))


def run_command(item: Item, host: Host, timeout: float) -> Outcome:
    """Judge a line that is a program of the site's own: it fails when its status is not 0, as in LBNL NHC."""
    program = item.argv[0]
    try:
        ended = host.run(item.argv, timeout=timeout)
    except FileNotFoundError:
        return unknown("CommandMissing", f"there is no check and no command called {program}")
    except OSError as error:
        return unknown("CommandUnusable", f"{program} cannot be run: {error.strerror}")
    evidence = ended.tail(EVIDENCE_LINES)
    starved = process.could_not_fork(evidence) if ended.status or ended.timed_out else ""
    if starved:
        return unknown("CannotRun", f"{program} could start no process: {starved}", evidence=evidence)
    if ended.timed_out:
        verdict = crit if item.on_timeout == "crit" else unknown
        return verdict("CheckTimeout", f"{item.line or program} timed out (timeout of its line)", evidence=evidence)
    if ended.status:
        return crit("CommandFailed", f"Check {item.line or program} returned {ended.status}", evidence=evidence)
    return ok()._replace(evidence=evidence) if shows_output(item.settings) else ok()


def encode_all(name: str, outcomes: Sequence[Outcome]) -> List[Tuple[Any, ...]]:
    """What a check returned, as `encode` makes it; an outcome that cannot be encoded is that check's bug.

    The others stand: a wrong value in one outcome must not hide the others.
    """
    return [_encoded(name, outcome) for outcome in outcomes]


def _encoded(name: str, outcome: Outcome) -> Tuple[Any, ...]:
    try:
        return encode(outcome)
    except Exception as error:
        return encode(broken(name, error))


Progress: TypeAlias = "Callable[[int, int, str], None]"


class Job(NamedTuple):
    """An item made ready: what to call, within how many seconds, or its outcome where nothing need be called.

    `changes` says that it may change something: it begins when every line above it has ended. `samples` are reasons
    that tell of one moment. `source` names what it reads that is slow to begin with, "" for nothing; `parts` are what
    is read of it, None for all. `early` are the seconds since the boot where `settles` and `starting` count
    (`nhc.node.run.boot_window`), 0 if not.
    """

    item: Item
    key: str
    timeout: float
    on_timeout: str = "unknown"
    tags: Tuple[str, ...] = ()
    decided: Optional[Outcome] = None
    muted: Optional[Mutes] = None
    changes: bool = False
    samples: Tuple[str, ...] = ()
    source: str = ""
    parts: Optional[FrozenSet[str]] = None
    settles: Tuple[str, ...] = ()
    starting: Tuple[str, ...] = ()
    early: float = 0.0

    def strikes(self, outcome: Outcome) -> int:
        """How many failures in a row make this one count: what the line says, else two for what tells of one moment."""
        if self.early and outcome.reason in self.settles:
            return max(self.item.strikes, LOOKS)
        return self.item.strikes or (LOOKS if outcome.reason in self.samples else 1)

    def judge(self, outcome: Outcome, strikes: Strikes) -> Tuple[Outcome, int]:
        """The outcome as it counts now, and which strike this is (0 when it is no failure)."""
        if self.early and outcome.reason in self.starting:
            from nhc.node.run.boot_window import too_early

            return too_early(outcome, self.early), 0
        needed = self.strikes(outcome)
        judged, strike = strikes.judge(self.key, outcome, needed, self.item.of)
        if self.early and strike and strike < needed and outcome.reason in self.settles:
            from nhc.node.run.boot_window import too_early

            judged = too_early(outcome, self.early)
        return judged, strike


LOOKS = 2
"""Runs in a row that must find a fault of one moment, where the line says nothing else."""


def run(
    plan: Plan,
    host: Host,
    *,
    state: State,
    check_all: bool = True,
    deadline: Optional[float] = None,
    name: str = "",
    progress: Optional[Progress] = None,
    meanwhile: Optional[Callable[[], None]] = None,
    in_turn: bool = False,
    grace: float = 0.0,
    identify: bool = False,
) -> Report:
    """Carry out `plan` on `host`.

    Without `check_all` nothing that comes after the first CRIT, in the configuration's order, is reported. `deadline`
    is the whole run's, in seconds (default: the plan's TIMEOUT, else 30; 0 for none). `name` is what the node is called
    (default: the kernel's host name). `progress` gets the number of checks done, of all, and the name of the last.
    `meanwhile` is called while the first checks run.
    With `in_turn` every line begins when all above it have ended, so that a replay is the same each time: of two checks
    that read one log, the first reads what is new. With `grace` a command that is to end has that many seconds for it.
    With `identify` the report's labels say which machine the node is, for those who repair it.
    """
    begun, started = time.monotonic(), host.time()
    muted: Optional[Mutes] = None
    text = host.read_or(mutes_path())
    if text:
        from nhc.core.state.mutes import read

        muted = read(text, started)
    limit = plans.seconds_of_run(plan) if deadline is None else deadline
    notes = [*plan.notes, *(muted.notes if muted else ())]
    other = state.claim_run()
    if other is not None:
        notes.append(f"another nhc run{f' (pid {other})' if other else ''} is in progress on this node")
    host.remember_in(state)
    forget_another_machine(state, host)
    stuck, strikes = StuckChecks(state), Strikes(state)
    jobs = [prepare(item, host, limit, stuck.get(_key(item)))._replace(muted=muted) for item in plan.items]
    jobs = _sharing(jobs)
    if in_turn:
        jobs = [job._replace(changes=True) for job in jobs]
    not_run = 0
    if not check_all:
        for number, job in enumerate(jobs):
            if any(outcome.verdict is Verdict.CRIT for outcome in _decided(job)):
                not_run = len(jobs) - number - 1
                jobs = jobs[: number + 1]
                break
    ended = _supervise(jobs, plan, host, limit, strikes, check_all, progress, meanwhile, grace)
    results: List[CheckResult] = []
    for number, (job, done) in enumerate(zip(jobs, ended)):
        if done.stuck is not None:
            stuck.add(job.key, done.stuck, host.time())
        if done.how == "done":
            strikes.end_row(job.key)  # it returned: a hang that was seen before is over
        stamped = [_stamp(job, outcome, done, strikes) for outcome in _outcomes(job, done, limit)]
        results.extend(stamped)
        if not check_all and any(result.verdict is Verdict.CRIT for result in stamped):
            not_run += len(jobs) - number - 1
            break
    strikes.save()
    stuck.save()
    labels: Dict[str, str] = {}
    if identify:
        from nhc.node.facts import machine_identity

        labels = machine_identity.labels(host)
    return Report(
        host=name or host.system.hostname(),
        boot_id=host.boot_id(),
        started=started,
        elapsed=time.monotonic() - begun,
        results=tuple(results),
        notes=tuple(notes + state.warnings),
        not_run=not_run,
        version=__version__,
        labels=labels,
    )


def mutes_path() -> str:
    """The file of muted checks, below the judged node's root: $NHC_MUTES, else /var/lib/nhc/mutes.json."""
    return os.environ.get("NHC_MUTES") or "/var/lib/nhc/mutes.json"


def _key(item: Item) -> str:
    """What an item is remembered by: its text, so that moving the line does not lose its history."""
    return item.line or " ".join(item.argv)


def prepare(item: Item, host: Host, limit: float, stuck: Optional[StuckCheck] = None) -> Job:
    """Make an item ready. A wrong argument, an unknown check or a process still stuck decides it at once."""
    job = Job(item, _key(item), plans.seconds_of_watchdog(item, limit), item.on_timeout or "unknown")
    if item.kind == BUILT_IN:
        job = _prepare_check(job, host)
    elif item.kind == COMMAND:
        job = job._replace(changes=True)
    elif item.kind == UNDECIDED:
        job = job._replace(decided=unknown(*item.argv))
    if stuck is not None:
        message = f"still stuck since {stuck.since_text()}{_on(job)} (pid {stuck.process.pid})"
        return job._replace(decided=_hang(job, "CheckStuck", message))
    return job


def _sharing(jobs: Sequence[Job]) -> List[Job]:
    """The jobs, those of one source reading all that any of them reads of it: their worker asks for it once."""
    read: Dict[str, Optional[FrozenSet[str]]] = {}
    for job in jobs:
        if job.source and job.decided is None:
            before = read.get(job.source, frozenset())
            read[job.source] = None if before is None or job.parts is None else before | job.parts
    return [job._replace(parts=read[job.source]) if job.source in read else job for job in jobs]


def _prepare_check(job: Job, host: Host) -> Job:
    item = job.item
    declared: Union[Declared, Outcome, None] = item.declared
    if declared is None:
        from nhc.core.declare import declare  # what a kept plan knows; imports the check's family

        declared = declare(item.argv)
    if isinstance(declared, Outcome):
        return job._replace(decided=declared)
    job = job._replace(
        timeout=plans.seconds_of_watchdog(item, 0.0, declared),
        on_timeout=item.on_timeout or declared.on_timeout,
        tags=declared.tags,
        changes=declared.changes,
        samples=declared.samples,
        source=declared.source,
        settles=declared.settles,
        starting=declared.starting,
        early=_early(job, host) if declared.settles or declared.starting else 0.0,
        parts=None if declared.parts is None else frozenset(declared.parts),
    )
    missing = [command for command in declared.needs if host.which(command) is None]
    if missing:
        job = job._replace(decided=unknown("CommandMissing", f"needs {', '.join(missing)}, which is not installed"))
    return job


def _early(job: Job, host: Host) -> float:
    """Seconds since the boot where they are few, else 0."""
    from nhc.node.run.boot_window import window

    uptime = host.monotonic()
    return uptime if uptime < window(job.item.settings) else 0.0


def _hang(job: Job, reason: str, message: str) -> Outcome:
    """A hang is the fault itself for a check of a mount, else UNKNOWN."""
    return crit(reason, message) if job.on_timeout == "crit" else unknown(reason, message)


def _supervise(
    jobs: Sequence[Job],
    plan: Plan,
    host: Host,
    limit: float,
    strikes: Strikes,
    check_all: bool,
    progress: Optional[Progress],
    meanwhile: Optional[Callable[[], None]],
    grace: float,
) -> List[TaskResult]:
    """Run what is not decided yet; one TaskResult for every job, in order."""
    open_jobs = [number for number, job in enumerate(jobs) if job.decided is None]
    ended = [TaskResult("decided") for _ in jobs]
    if not open_jobs:
        return ended
    finished_count = len(jobs) - len(open_jobs)

    def work_of(notify: Notify) -> Work:
        host.system.report_commands(notify)
        if grace:
            process.give_time_to_end(grace)

        def work(task: int) -> List[Any]:
            value = _carry_out(jobs[open_jobs[task]], host)
            if not check_all and any(outcome[0] == Verdict.CRIT for outcome in value):
                raise MayEndRun(value)  # the run may end here: nothing is begun until the supervisor has judged it
            return value

        return work

    def serial_work(notify: Notify, completed: Tuple[int, ...]) -> Work:
        from nhc.node.run.shell_session import ShellSession

        host.system.report_commands(notify)
        session = ShellSession(host, plan, lambda name, argv, settings: _call_by_name(name, argv, settings, host),
                               check_all)  # fmt: skip
        session.restore([jobs[open_jobs[task]].item for task in completed])

        def serial(task: int) -> List[Any]:
            item = jobs[open_jobs[task]].item
            # Asked through the host, so that a recording keeps the outcomes and a replay runs no shell.
            asked = host.system.ask(SHELL_LINE + item.line, lambda: encode_all(item.name, session.run(item)))
            return list(asked)

        serial.end = session.close  # type: ignore[attr-defined]  # `nhc.node.run.worker.live` calls it
        return serial

    def finished(task: int, done: TaskResult) -> bool:
        nonlocal finished_count
        finished_count += 1
        job = jobs[open_jobs[task]]
        if progress:
            progress(finished_count, len(jobs), job.item.name)
        if check_all:
            return False
        judged = (job.judge(outcome, strikes)[0] for outcome in _outcomes(job, done, limit))
        return any(outcome.verdict is Verdict.CRIT for outcome in judged)

    tasks = [Task(jobs[n].timeout, jobs[n].item.kind == SHELL, jobs[n].changes, jobs[n].source) for n in open_jobs]
    supervisor = Supervisor(
        tasks, lambda notify, _completed: work_of(notify), serial_work, finished, limit, meanwhile, grace
    )
    for number, done in zip(open_jobs, supervisor.run()):
        ended[number] = done
    return ended


def _carry_out(job: Job, host: Host) -> List[Any]:
    """In a worker: run one job and return its outcomes in the form that marshal carries."""
    seen = host.with_settings(job.item.settings)
    if job.item.kind != BUILT_IN:
        return [encode(run_command(job.item, seen, plans.seconds_of_command(job.timeout)))]
    return encode_all(job.item.name, _call(job.item.argv, seen.reading(job.parts)))


def _call(argv: Sequence[str], host: Host) -> Sequence[Outcome]:
    """In a worker: find a check, which imports its family there, and call it."""
    from nhc.core.declare import resolve

    resolved = resolve(argv)
    return [resolved] if isinstance(resolved, Outcome) else call(*resolved, host)


def _call_by_name(name: str, argv: Sequence[str], settings: Mapping[str, str], host: Host) -> Sequence[Outcome]:
    """A built-in called from inside a shell line."""
    job = _prepare_check(Job(Item(BUILT_IN, name, "", argv=(name, *argv)), name, 0.0), host)
    if job.decided is not None:
        return [job.decided]
    return _call(job.item.argv, host.with_settings(settings).reading(job.parts))


def _on(job: Job) -> str:
    """A hung check's arguments: they say which mount or which host it hung on."""
    given = printable(" ".join(job.item.argv[1:]), 120)
    return f" on {given}" if given and job.item.kind == BUILT_IN else ""


def _outcomes(job: Job, done: TaskResult, limit: float) -> List[Outcome]:
    """The outcomes of a job that has ended; a muted check's are those that its mute leaves."""
    outcomes = _ended(job, done, limit)
    if job.item.warn_only:
        outcomes = [
            each._replace(verdict=Verdict.WARN, message=f"{each.message} (warn-only)")
            if each.verdict is Verdict.CRIT else each
            for each in outcomes
        ]  # fmt: skip
    return outcomes if job.muted is None else [job.muted.judge(job.item.name, outcome) for outcome in outcomes]


def _decided(job: Job) -> List[Outcome]:
    """The outcomes of a job that is decided without a run; none for a job that must run."""
    return [] if job.decided is None else _outcomes(job, TaskResult("decided"), 0.0)


def _ended(job: Job, done: TaskResult, limit: float) -> List[Outcome]:
    if job.decided is not None:
        return [job.decided]
    if done.how == "done":
        return [decode(value) for value in done.value] or [unknown("NoOutcome", "the check returned nothing")]
    if done.how == "timeout":
        stays = "cannot be killed" if done.stuck and done.stuck.unkillable else "was killed and has not ended yet"
        still = f"; pid {done.stuck.pid} {stays}" if done.stuck else ""
        whose = "timeout of its line" if done.elapsed > 0.9 * job.timeout else "--timeout or TIMEOUT of the run"
        return [_hang(job, "CheckTimeout", f"timed out after {_duration(done.elapsed)}{_on(job)} ({whose}){still}")]
    if done.how == "source-hung":
        message = f"not run: another check had no answer of the {job.source} within {_duration(done.elapsed)}"
        return [_hang(job, "CheckTimeout", message)]
    if done.how == "died":
        return [unknown("CheckDied", f"the check's process was {done.value}")]
    if done.how == "no-worker":
        return [unknown("CannotRun", f"no process can be started for it: {done.value}")]
    if done.how == "out-of-time":
        return [unknown("NotRun", f"not run: the run's deadline of {_duration(limit)} (--timeout, TIMEOUT) had passed")]
    return []


def _duration(seconds: float) -> str:
    from nhc.core.units import show_seconds  # only where time ran out

    return show_seconds(seconds)


def _stamp(job: Job, outcome: Outcome, done: TaskResult, strikes: Strikes) -> CheckResult:
    needed = job.strikes(outcome)
    judged, strike = job.judge(outcome, strikes)
    tags = tuple(dict.fromkeys((*job.tags, *job.item.tags)))
    needed = needed if needed > 1 else 0
    result = CheckResult(
        job.item.name, judged, done.elapsed, job.item.source, job.item.line, tags, strike if needed else 0, needed
    )
    if needed or job.samples or job.settles:
        strikes.note(job.key, result, job.item.of)
    return result
