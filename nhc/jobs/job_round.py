"""One round over the jobs that asked to be restarted: read, judge, decide, write down, act, look."""

from __future__ import annotations

from typing import Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Mode
from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import SteadyTime
from nhc.jobs import faults
from nhc.jobs.acting import JobActuators
from nhc.jobs.failure_cause import JobNodeFault, JobRun, judge
from nhc.jobs.faults import DownNodes
from nhc.jobs.restart_decision import JobScene, JobStep, LeaveReason, RestartBounds, StepKind, first, following
from nhc.jobs.run_ends import RunEnds
from nhc.jobs.settings import RestartSettings
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.job_control import ENDS, JobController, JobNotes, JobOrder, JobView, Phase
from nhc.store import holds
from nhc.store import job_restarts as jobs
from nhc.store.job_restarts import JobRestart, WatchedJob
from nhc.store.rounds.service import one_item

# A job between its controller's view and the store's rows. Pure.


def watched(
    name: str,
    job: JobView,
    row: Optional[WatchedJob],
    settings: RestartSettings,
    now: float,
    why: Optional[str] = None,
    left: Optional[str] = None,
) -> WatchedJob:
    """The row of a job as it is now. A run keeps all nodes that it was seen on, a job how many it needs."""
    same = row is not None and row.run == job.run
    kept = " ".join(nodes_of_run(row, job))
    wants = max(job.wants, row.wants) if row is not None and same else job.wants or (row.wants if row else 0)
    before = row.logged if row is not None else ""
    return WatchedJob(
        row.id if row is not None else 0, name, job.job.kind, job.job.namespace, job.job.name, job.job.uid, job.user,
        job.phase.value, job.run, kept, wants, settings.allowed(job.wish.max_restarts), job.wish.checkpoint,
        before if why is None else why, row.began if row is not None else now, now, None,
        (row.left if row is not None and same else "") if left is None else left,
    )  # fmt: skip


def nodes_of_run(row: Optional[WatchedJob], job: JobView) -> Tuple[str, ...]:
    """The nodes that a job's run was seen on so far, in that order."""
    before = row.node_names if row is not None and row.run == job.run else ()
    return tuple(dict.fromkeys([*before, *job.nodes]))


def remembered(row: WatchedJob, restart: JobRestart) -> JobView:
    """A job that its controller no longer shows, as it was when its restart began."""
    return JobView(row.job, restart.run, Phase.FAILED, tuple(restart.nodes.split()), row.wants, row.user)


RECENT = 900.0
"""Seconds for which a job that had failed when it was first seen is still taken up."""

_ACTIVE = frozenset({Phase.RUNNING.value, Phase.ENDING.value, Phase.FAILED.value})
_OVER = frozenset({Phase.SUCCEEDED, Phase.CANCELLED})


class JobEvent(NamedTuple):
    """Something that happened to a job, or that would happen, for the log: `what` was done (`restart`), and `why`."""

    job: str
    what: str
    why: str


class JobRound(NamedTuple):
    """What one round did. `problems` are what could not be read; `waiting` what goes no further now, and why."""

    at: float
    jobs: int
    events: Tuple[JobEvent, ...]
    waiting: Tuple[JobEvent, ...]
    would: Tuple[JobEvent, ...]
    problems: Tuple[str, ...]


class OneRound:
    """The state of one round. `publish` gets each event once it is written."""

    def __init__(
        self, actuators: JobActuators, settings: RestartSettings, down: DownNodes, ends: RunEnds, apply: bool,
        publish: Callable[[JobEvent], None], time: SteadyTime, held: str = "",
    ) -> None:  # fmt: skip
        self.actuators, self.settings, self.down, self.ends, self.publish = actuators, settings, down, ends, publish
        self.time, self.now, self.count = time, time.now, 0
        self.apply = apply and settings.restart is Mode.ON
        self.writes = apply and settings.restart is not Mode.OFF
        self.events: List[JobEvent] = []
        self.waiting: List[JobEvent] = []
        self.would: List[JobEvent] = []
        self.problems: List[str] = []
        with actuators.store.read() as connection:
            rate = self.settings.limits.rate
            self.left = rate.operations - jobs.begun_since(connection, self.now - rate.seconds)
            in_force = holds.in_force(connection, self.now)
            breaker = holds.breaker_of(connection, NAME)
        of_fleet = (f"hold by {hold.by}: {hold.why}" for hold in in_force if hold.scope == "fleet")
        open_breaker = f"the breaker is open: {breaker.why}" if breaker.is_open else ""
        self.held = held or open_breaker or next(of_fleet, "")

    def result(self) -> JobRound:
        """What the round has done so far."""
        return JobRound(
            self.now,
            self.count,
            tuple(self.events),
            tuple(self.waiting),
            tuple(self.would),
            tuple(dict.fromkeys(self.problems)),
        )

    def controller(self, name: str, controller: JobController) -> None:
        """Go over the jobs of one controller. Raises StoreError."""
        try:
            listed = list(controller.jobs())
        except Exception as error:
            self.problems.append(f"{name}: jobs cannot be read: {failure(error)}")
            return
        with self.actuators.store.read() as connection:
            known = {row.job: row for row in jobs.list_jobs(connection, controller=name)}
            under_way = jobs.open_restarts(connection)
        listed_by_name = {job.job: job for job in listed}
        made_anew = {row.text() for row in known.values() if row.id in under_way and under_way[row.id].manifest}
        new = [job for job in listed if job.job not in known and self._is_new(job) and job.job.text() not in made_anew]
        self.count += len(known) + len(new)
        nodes = {node for row in known.values() for node in row.node_names} | {n for job in listed for n in job.nodes}
        nodes |= {loss.node for job in listed for loss in job.losses if loss.node}
        troubles = self._faults(name, controller, nodes)
        if troubles is None:
            return
        for job in new:
            with one_item(job.job.text(), self.problems):
                known[job.job] = self._watch(name, job, None)
        for key, row in known.items():
            with one_item(row.text(), self.problems):
                self._of_job(controller, row, listed_by_name.get(key), under_way.get(row.id), troubles)

    def _is_new(self, job: JobView) -> bool:
        """Whether to watch an unknown job: not if it ended before it was watched."""
        if job.phase is Phase.FAILED:
            return job.ended is None or self.now - job.ended < RECENT
        return job.phase not in _OVER

    def _faults(self, name: str, controller: JobController, nodes: Iterable[str]) -> Optional[List[JobNodeFault]]:
        asked = sorted(set(nodes))
        try:
            down = controller.node_faults(asked) if asked else {}
        except Exception as error:
            self.problems.append(f"{name}: nodes cannot be read: {failure(error)}")
            return None
        with self.actuators.store.read() as connection:
            stored = faults.of_store(connection, asked, self.settings, self.now)
        return [*stored, *self.down.seen(name, down, asked, self.now)]

    def _watch(
        self, name: str, job: JobView, row: Optional[WatchedJob], why: Optional[str] = None, left: Optional[str] = None
    ) -> WatchedJob:
        """Write a job down as it is seen. In a dry run of the command nothing is written, and its id is 0."""
        made = watched(name, job, row, self.settings, self.now, why, left)
        if not self.writes:
            return made
        return self.actuators.watch(made)

    def _of_job(
        self, controller: JobController, row: WatchedJob, job: Optional[JobView], restart: Optional[JobRestart],
        troubles: Sequence[JobNodeFault],
    ) -> None:  # fmt: skip
        if restart is not None:
            faulty = {trouble.node: trouble.what for trouble in troubles if trouble.ended is None}
            self._carry_on(controller, row, job, restart, faulty)
            return
        if job is None:
            job = controller.look(row.job)
            if job is None:
                self._end(row, "it is gone")
                return
        before = JobRun(row.run, row.node_names, row.phase in _ACTIVE)
        judgement = judge(job, before, troubles, self.time, self.settings.rules)
        judgement = self.ends.look(controller, row, job, judgement, troubles, self.writes)
        past, pairs = self._past(row)
        step = first(job, judgement, past, pairs, self._bounds(row), JobScene(self.time, self.held))
        self._take(controller, row, job, judgement.run, step)

    def _past(self, row: WatchedJob) -> Tuple[List[JobRestart], List[str]]:
        if not row.id:
            return [], []
        with self.actuators.store.read() as connection:
            past = jobs.restarts(connection, row.id)
            fresh = self.now - self.settings.limits.pairs
            return past, list(dict.fromkeys(pair.node for pair in jobs.pairs(connection, row.id) if pair.at >= fresh))

    def _bounds(self, row: WatchedJob) -> RestartBounds:
        anew = self.settings.anew is Mode.ON
        return RestartBounds(self.settings.limits, row.max_restarts, self.left, max(row.wants, 1), anew)

    def _take(self, controller: JobController, row: WatchedJob, job: JobView, run: str, step: JobStep) -> None:
        """Carry out a step of a job without a restart under way."""
        why, left, name = row.logged, "", row.text()
        if step.kind in (StepKind.BEGIN, StepKind.NOTE) and not self.apply:
            self.would.append(JobEvent(name, "restart", step.why))
            if run == job.run:
                self._keep(row, job)
            return
        if step.kind is StepKind.END:
            self._watch(row.controller, job, row)
            self._end(row, step.why)
            return
        if step.kind is StepKind.NOTE:
            self.left -= 1
            noted = self.actuators.note(row, run, step)
            self._say(JobEvent(name, "restarted", f"by its own controller: {step.why}"))
            why = noted.why
        elif step.kind is StepKind.BEGIN:
            self.left -= 1
            order, restart = self.actuators.begin(row, controller, job, run, step)
            self._say(JobEvent(name, "restart", f"{restart.number} of {row.max_restarts}: {step.why}"))
            self.actuators.hold(row, controller, order, restart)
        elif step.kind is StepKind.WAIT:
            self.waiting.append(JobEvent(name, "waits", step.why))
            if run != job.run:
                return  # the run that failed is still to be restarted: it is not forgotten for the next one
        elif step.kind is StepKind.LEAVE:
            why, left = f"run {run}: {step.why}", step.left.value if step.left is not None else ""
            if why != row.logged:
                self._leave(controller, row, job, step)
        self._keep(row, job, why, left)

    def _keep(self, row: WatchedJob, job: JobView, why: Optional[str] = None, left: Optional[str] = None) -> None:
        """Write down what is seen, where that is new."""
        same = (job.run, job.phase.value, nodes_of_run(row, job)) == (row.run, row.phase, row.node_names)
        if not same or (why is not None and why != row.logged) or (left is not None and left != row.left):
            self._watch(row.controller, job, row, why, left)

    def _leave(self, controller: JobController, row: WatchedJob, job: JobView, step: JobStep) -> None:
        if self.writes:
            self.actuators.left(row, step.why)
        self._say(JobEvent(row.text(), "left", step.why))
        noted = job.phase in ENDS and step.left is LeaveReason.LIMIT
        if self.apply and noted and isinstance(controller, JobNotes):
            try:
                controller.note(job.job, f"nhc: not restarted: {step.why}")
            except Exception as error:
                self.problems.append(f"{row.text()}: {failure(error)}")

    # A restart under way.

    def _carry_on(
        self, controller: JobController, row: WatchedJob, job: Optional[JobView], restart: JobRestart,
        faulty: Mapping[str, str],
    ) -> None:  # fmt: skip
        anew = bool(restart.manifest)
        if job is None or anew:
            name = row.job
            job = controller.look(name._replace(uid="") if anew and restart.state != jobs.HOLDING else name)
        order = JobOrder(
            restart.key, restart.number, job or remembered(row, restart), restart.avoided, restart.why,
            restart.manifest,
        )  # fmt: skip
        scene = self._scene(controller, order, restart, faulty)
        step = following(job, restart, self._bounds(row), scene)
        self._follow(controller, row, job, order, restart, step)

    def _scene(
        self, controller: JobController, order: JobOrder, restart: JobRestart, faulty: Mapping[str, str]
    ) -> JobScene:
        if restart.state != jobs.HELD or self.held:
            return JobScene(self.time, self.held, faulty=faulty)
        try:
            healthy = controller.healthy(order)
        except Exception as error:
            return JobScene(self.time, unseen=f"its nodes cannot be read: {failure(error)}", faulty=faulty)
        with self.actuators.store.read() as connection:
            known = faults.of_store(connection, healthy, self.settings, self.now)
        standing = {fault.node: fault.what for fault in known if fault.ended is None}
        return JobScene(self.time, healthy=healthy, faulty={**standing, **faulty})

    def _follow(
        self,
        controller: JobController,
        row: WatchedJob,
        job: Optional[JobView],
        order: JobOrder,
        restart: JobRestart,
        step: JobStep,
    ) -> None:
        actuators, name = self.actuators, row.text()
        if step.kind is StepKind.WAIT:
            late = self.time.elapsed(restart.updated) > self.settings.limits.stalled
            self.waiting.append(JobEvent(name, "waits", step.why + (" (for too long)" if late else "")))
            if late and self.apply and row.logged != step.why:
                actuators.left(row, f"waits for too long: {step.why}")
                self._say(JobEvent(name, "stalled", step.why))
                if job is not None:
                    self._watch(row.controller, job, row, step.why)
            return
        if not self.apply:
            self.would.append(JobEvent(name, step.kind.value, step.why))
        elif step.kind is StepKind.SEND_HOLD:
            actuators.hold(row, controller, order, restart)
        elif step.kind is StepKind.HELD:
            actuators.save(row, restart, jobs.HELD)
            self._say(JobEvent(name, "held", f"avoids {restart.exclude}" if restart.exclude else ""))
        elif step.kind is StepKind.SEND_RELEASE:
            actuators.release(row, controller, order, restart)
        else:
            outcome = {StepKind.RESTARTED: jobs.RESTARTED, StepKind.SUPERSEDED: jobs.SUPERSEDED}.get(
                step.kind, jobs.FAILED
            )
            seen = watched(row.controller, job, row, self.settings, self.now) if job is not None else None
            actuators.save(row, restart, jobs.ENDED, outcome=outcome, message=step.why, seen=seen)
            self._say(JobEvent(name, outcome, step.why))
            if job is None:
                self._end(row, step.why)

    def _end(self, row: WatchedJob, why: str) -> None:
        if self.writes and row.id:
            self.actuators.end(row, self.now, why)

    def _say(self, event: JobEvent) -> None:
        self.events.append(event)
        self.publish(event)
