"""The actions of a job's restart. Each is stored with its audit row before it is carried out."""

from __future__ import annotations

import json
import uuid
from typing import Callable, Optional, Tuple

from nhc.core.model import printable
from nhc.jobs.owner_mail import OwnerMail
from nhc.jobs.restart_decision import JobStep
from nhc.marks.ports.job_control import JobController, JobOrder, JobView
from nhc.marks.ports.repair import Answer, Sent
from nhc.store import audit, job_restarts, outbox
from nhc.store.database import Fence, Store
from nhc.store.job_restarts import JobEnd, JobRestart, WatchedJob

MAILS = 1000
"""Mails to owners that wait in the store while no notices run, above which there are no more."""


class JobActuators:
    """Stores a step, then sends it once. The next round reads its result."""

    def __init__(self, store: Store, fence: Optional[Fence], actor: str, clock: Callable[[], float]) -> None:
        self.store, self.fence, self.actor, self.clock = store, fence, actor, clock

    def watch(self, seen: WatchedJob) -> WatchedJob:
        """Write a job down as it is seen; the row has its id."""
        with self.store.write(self.fence) as connection:
            return job_restarts.watch(connection, seen)

    def end(self, row: WatchedJob, now: float, why: str) -> None:
        """Watch a job no longer."""
        with self.store.write(self.fence) as connection:
            job_restarts.end_job(connection, row, now, self.actor, why)

    def begin(
        self, row: WatchedJob, controller: JobController, job: JobView, run: str, step: JobStep
    ) -> Tuple[JobOrder, JobRestart]:
        """Write down a restart with its audit row. Raises AdapterError, Conflict, StoreError: nothing has begun."""
        manifest = controller.manifest(job) if job.final else ""
        restart = self._row(row, run, step, manifest)
        return JobOrder(restart.key, restart.number, job, step.exclude, restart.why, manifest), restart

    def note(self, row: WatchedJob, run: str, step: JobStep) -> JobRestart:
        """Count a restart that the job's controller did by itself, with the nodes that failed the job."""
        restart = self._row(row, run, step, "")
        return self.save(
            row, restart, job_restarts.ENDED, outcome=job_restarts.RESTARTED, message="its own controller restarted it"
        )

    def _row(self, row: WatchedJob, run: str, step: JobStep, manifest: str) -> JobRestart:
        with self.store.write(self.fence) as connection:
            return job_restarts.begin(
                connection, row, key=str(uuid.uuid4()), run=run, why=step.why, nodes=step.nodes, exclude=step.exclude,
                manifest=manifest, now=self.clock(), by=self.actor,
            )  # fmt: skip

    def hold(self, row: WatchedJob, controller: JobController, order: JobOrder, restart: JobRestart) -> JobRestart:
        """Send the HOLD of a restart that is written down."""
        return self._sent(row, restart, job_restarts.HOLDING, _safely(controller.hold, order))

    def release(self, row: WatchedJob, controller: JobController, order: JobOrder, restart: JobRestart) -> JobRestart:
        """Write the RELEASE down, then send it."""
        if restart.state != job_restarts.RELEASING:
            restart = self.save(row, restart, job_restarts.RELEASING)
        return self._sent(row, restart, job_restarts.RELEASING, _safely(controller.release, order))

    def _sent(self, row: WatchedJob, restart: JobRestart, state: str, sent: Sent) -> JobRestart:
        text = sent.message if sent.answer is Answer.ACCEPTED else f"{sent.answer.value}: {sent.message}"
        return self.save(row, restart, state, message=text, sent=self.clock())

    def save(
        self, row: WatchedJob, restart: JobRestart, state: str, *, outcome: str = "", message: str = "",
        sent: Optional[float] = None, seen: Optional[WatchedJob] = None,
    ) -> JobRestart:  # fmt: skip
        """The next state of a restart, with its job as it is `seen` now, which may have been created again.

        Raises Conflict if the restart was changed since it was read.
        """
        with self.store.write(self.fence) as connection:
            if seen is not None:
                job_restarts.watch(connection, seen)
            return job_restarts.save(
                connection, restart, row, state=state, now=self.clock(), by=self.actor, message=message,
                outcome=outcome, sent=sent,
            )  # fmt: skip

    def keep_end(self, row: WatchedJob, end: JobEnd, mail: Optional[OwnerMail]) -> None:
        """Write down why a run failed, and with it the mail to the job's owner: so there is one for a run."""
        now = self.clock()
        with self.store.write(self.fence) as connection:
            new = job_restarts.keep_end(connection, end, now, self.actor, row.text())
            if new and mail is not None and len(outbox.waiting(connection, outbox.OWNERS, MAILS)) < MAILS:
                text = json.dumps(mail._asdict(), ensure_ascii=False)
                outbox.add(connection, outbox.owner_key(mail.to), outbox.OWNERS, outbox.OWNER, text, now)

    def left(self, row: WatchedJob, why: str) -> None:
        """Why a job is not restarted, in the audit log."""
        with self.store.write(self.fence) as connection:
            audit.append(
                connection, self.clock(), self.actor, "job.left", detail={"job": row.text(), "why": printable(why)}
            )


def _safely(send: Callable[[JobOrder], Sent], order: JobOrder) -> Sent:
    try:
        return send(order)
    except Exception as error:  # its contract forbids it; what was sent by then nobody knows
        return Sent(Answer.AMBIGUOUS, printable(f"{type(error).__name__}: {error}", 200))
