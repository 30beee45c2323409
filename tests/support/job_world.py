"""A small world of jobs and nodes at the boundary `nhc.marks.ports.job_control.JobController`; the store is real.

A run ends when its world says so. Every call can lose its answer, before or after it took effect, and every call and
commit is a boundary at which the loop can be killed.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.jobs.job_round import JobRound
from nhc.jobs.restart_rounds import JobLoop
from nhc.jobs.settings import RestartSettings, parse
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobLoss, JobName, JobOrder, JobView, LossCause, Phase, Wish
from nhc.marks.ports.repair import Answer, Sent
from nhc.store import reports as store_reports
from nhc.store.intake import Incoming

SETTINGS = """
[actions]
restart = "on"
make-anew = "on"
[limits]
max-restarts = 3
cooldown = "0s"
rate = "1000 per 1h"
[evidence]
window = "3m"
settle = "2m"
[controllers.fake]
type = "fake"
"""


class Killed(BaseException):
    """The loop's process is gone at this moment."""


class Act(NamedTuple):
    """A call that took effect on a job."""

    what: str
    job: str
    run: int
    nodes: Tuple[str, ...]


class Body:
    """One job. `run` counts its starts."""

    def __init__(self, name: str, wants: int, max_restarts: Optional[int] = None) -> None:
        self.name, self.wants, self.max_restarts = name, wants, max_restarts
        self.run = 1
        self.uid = "u1"
        self.phase = Phase.PENDING
        self.nodes: Tuple[str, ...] = ()
        self.started: Optional[float] = None
        self.ended: Optional[float] = None
        self.losses: List[JobLoss] = []
        self.number = 0
        self.held = False
        self.final = False
        self.gone = False
        self.avoid: FrozenSet[str] = frozenset()


class World:
    """Nodes n0, n1… that jobs run on. `lose` names how the next answers get lost: "before" or "after" the effect."""

    def __init__(self, store: Any, count: int = 4, settings: str = SETTINGS, excludes: bool = True) -> None:
        self.plain, self.store = store, _Boundaries(store, self)
        self.settings: RestartSettings = parse(settings)
        self.now = self.ticks = 1_700_000_000.0
        self.nodes = [f"n{number}" for number in range(count)]
        self.out: Dict[str, str] = {}
        self.bodies: Dict[str, Body] = {}
        self.acts: List[Act] = []
        self.lose: List[str] = []
        self.away = False
        self.excludes = excludes
        self.kill_at, self.boundaries = -1, 0
        self.loop = self.begin()

    def begin(self) -> JobLoop:
        """A new process of the loop."""
        self.loop = JobLoop(
            self.store,
            self.settings,
            {"fake": self},
            clock=lambda: self.now,  # type: ignore[arg-type]
            monotonic=lambda: self.ticks,
        )  # type: ignore[arg-type]
        return self.loop

    def boundary(self) -> None:
        self.boundaries += 1
        if self.boundaries == self.kill_at:
            raise Killed

    def round(self) -> Optional[JobRound]:
        """One round; None where the loop was killed in it, and begun anew."""
        try:
            return self.loop.round()
        except Killed:
            self.begin()
            return None

    def rounds(self, count: int, seconds: float = 15.0) -> List[str]:
        """Rounds with time and the scheduler going on between them; what was said."""
        said = []
        for _ in range(count):
            self.schedule()
            done = self.round()
            said += [f"{one.what}: {one.why}" for one in done.events] if done is not None else []
            self.let_pass(seconds)
        return said

    def let_pass(self, seconds: float) -> None:
        """Time passes, by every clock."""
        self.now, self.ticks = self.now + seconds, self.ticks + seconds

    # What happens to jobs and nodes.

    def submit(self, name: str = "j", wants: int = 2, max_restarts: Optional[int] = None) -> Body:
        body = self.bodies[name] = Body(name, wants, max_restarts)
        self.schedule()
        return body

    def schedule(self) -> None:
        """The scheduler starts what may start, on nodes in service."""
        for body in self.bodies.values():
            free = [node for node in self.nodes if node not in self.out and node not in body.avoid]
            if body.phase is Phase.PENDING and not body.gone and len(free) >= body.wants:
                body.phase, body.nodes, body.started = Phase.RUNNING, tuple(free[: body.wants]), self.now

    def fail(self, body: Body, cause: LossCause, node: str = "", detail: str = "ended", final: bool = False) -> None:
        body.phase, body.ended, body.final = Phase.FAILED, self.now, final
        body.losses = [JobLoss(node, cause, detail, self.now)]

    def requeue(self, body: Body) -> None:
        """The scheduler starts it anew by itself."""
        body.run += 1
        body.phase, body.nodes, body.losses, body.started, body.ended = Phase.PENDING, (), [], None, None

    def report(
        self, node: str, verdict: Verdict = Verdict.CRIT, reason: str = "GpuLost", check: str = "check_gpu"
    ) -> None:
        """What an agent reports of a node."""
        result = CheckResult(check, Outcome(verdict, reason if verdict is Verdict.CRIT else "", "gone", "gpu0"))
        with self.plain.write() as connection:
            store_reports.receive(
                connection, [Incoming(Report(node, "b", self.now, 1.0, (result,)), "agent", self.now)]
            )

    # nhc.marks.ports.job_control.JobController.

    def jobs(self) -> Sequence[JobView]:
        self._ask()
        return [self._job(body) for body in self.bodies.values() if not body.gone]

    def look(self, job: JobName) -> Optional[JobView]:
        self._ask()
        body = self.bodies.get(job.name)
        if body is None or body.gone or (job.uid and job.uid != body.uid):
            return None
        return self._job(body)

    def manifest(self, job: JobView) -> str:
        self._ask()
        return f"manifest of {job.job.name}"

    def hold(self, order: JobOrder) -> Sent:
        return self._send("hold", order)

    def release(self, order: JobOrder) -> Sent:
        return self._send("release", order)

    def healthy(self, order: JobOrder) -> FrozenSet[str]:
        self._ask()
        return frozenset(node for node in self.nodes if node not in self.out)

    def node_faults(self, names: Sequence[str]) -> Mapping[str, str]:
        self._ask()
        return {node: self.out[node] for node in names if node in self.out}

    def _ask(self) -> None:
        self.boundary()
        if self.away:
            raise AdapterError("the scheduler is away")

    def _job(self, body: Body) -> JobView:
        return JobView(
            JobName("batch", "", body.name, body.uid), str(body.run), body.phase, body.nodes, body.wants, "user",
            body.started, body.ended, tuple(body.losses), Wish(body.max_restarts), body.number, body.held, body.final,
            self.excludes,
        )  # fmt: skip

    def _send(self, what: str, order: JobOrder) -> Sent:
        self.boundary()
        lost = self.lose.pop(0) if self.lose else ""
        if lost == "before":
            return Sent(Answer.AMBIGUOUS, "timed out")
        if lost == "refused":
            return Sent(Answer.REFUSED, "not allowed")
        body = self.bodies[order.job.job.name]
        (self._hold if what == "hold" else self._release)(body, order)
        self.boundary()
        return Sent(Answer.AMBIGUOUS, "timed out") if lost == "after" else Sent(Answer.ACCEPTED, "")

    def _hold(self, body: Body, order: JobOrder) -> None:
        if body.gone or body.number >= order.number:
            return
        self.acts.append(Act("hold", body.name, body.run, body.nodes))
        if order.manifest:
            body.gone = True
            return
        if body.phase is not Phase.PENDING:
            self.requeue(body)
        body.phase, body.held, body.number = Phase.HELD, True, order.number
        body.avoid = frozenset(order.exclude) if self.excludes else frozenset()

    def _release(self, body: Body, order: JobOrder) -> None:
        if order.manifest and body.gone:
            body.gone, body.final, body.number, body.uid = False, False, order.number, f"u{order.number + 1}"
            body.avoid = frozenset(order.exclude)
            self.requeue(body)
        elif body.held:
            body.phase, body.held = Phase.PENDING, False
        else:
            return
        self.acts.append(Act("release", body.name, body.run, ()))


class _Boundaries:
    """The store, each commit a boundary."""

    def __init__(self, store: Any, world: World) -> None:
        self._store, self._world = store, world

    def read(self) -> Any:
        return self._store.read()

    @contextlib.contextmanager
    def write(self, fence: Any = None) -> Iterator[Any]:
        self._world.boundary()
        with self._store.write(fence) as connection:
            yield connection
        self._world.boundary()
