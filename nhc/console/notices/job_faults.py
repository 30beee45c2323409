"""Jobs that are restarted after infrastructure faults, as faults that notices are sent about: read from the store.

A job that is given up, and one whose restart is held for longer than `held_for`, is a fault until that ends. A restart
is one while it is under way and for `restarted_for` after it, so that the usual wait before a notice does not hide it.
"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from sqlalchemy.engine import Connection

from nhc.console.notices.incidents import DAY, ActiveFault
from nhc.console.notices.notice import JOB
from nhc.core.settings import declared
from nhc.store import job_restarts
from nhc.store.job_restarts import JobEnd, JobRestart, WatchedJob

GIVEN_UP, HELD, RESTARTED, FAILED = "given-up", "held", "restarted", "failed"
JOB_EVENTS = (GIVEN_UP, HELD, RESTARTED, FAILED)
"""The events of jobs for which notices can be sent."""
NO_NODE = "none"
"""The placeholder for the nodes of a job if none is known."""


@declared.settings
class JobNoticeSettings(NamedTuple):
    """`tell` names the events that notices are sent about; empty for none. Times in seconds.

    `owners` is the channel by which owners get the mails about their jobs, "" for none.
    """

    tell: Tuple[str, ...] = declared.choices(
        "tell", {event: event for event in JOB_EVENTS}, (GIVEN_UP, HELD),
        "of jobs that nhc restarts; [] for nothing",
    )  # fmt: skip
    held_for: float = declared.seconds(
        "held-for", 900.0, "a restart that waits for healthy nodes for longer than this is told of", most=DAY
    )
    restarted_for: float = declared.seconds(
        "restarted-for", 600.0, "a restart is told of while it is under way, and for so long after it", most=DAY
    )
    owners: str = declared.text(
        "owners", "",
        "The channel of mails to the owners of jobs (jobs.toml: [owners]); without it they get none.",
        shown='"ops-mail"',
    )  # fmt: skip
    per_owner: int = declared.count(
        "most-per-owner", 4, "mails to one owner within an hour; what is over it is dropped", least=1
    )
    per_hour: int = declared.count("most-to-owners", 200, "mails to all owners within an hour", least=1)


def read(connection: Connection, settings: JobNoticeSettings, now: float) -> List[ActiveFault]:
    """The present faults. Raises StoreError."""
    if not settings.tell:
        return []
    rows = {row.id: row for row in job_restarts.list_jobs(connection)}
    newest = job_restarts.newest_restarts(connection, now - settings.restarted_for)
    ends = job_restarts.ends_of_newest_runs(connection)
    return list(_standing(rows.values(), newest, ends, settings, now))


def _standing(
    rows: Iterable[WatchedJob],
    newest: Mapping[int, JobRestart],
    ends: Mapping[int, JobEnd],
    settings: JobNoticeSettings,
    now: float,
) -> Iterator[ActiveFault]:
    for row in rows:
        why = _why(row, ends.get(row.id))
        if row.left in job_restarts.GIVEN_UP:
            if GIVEN_UP in settings.tell:
                yield from _faults(row, "JobGivenUp", "CRIT", f"{row.logged}{why}", row.node_names, row.seen)
            continue
        if row.left in job_restarts.OF_ITS_USER and FAILED in settings.tell:
            yield from _faults(row, "JobFailed", "WARN", f"{row.logged}{why}", row.node_names, row.seen)
            continue
        restart = newest.get(row.id)
        if restart is None:
            continue
        number = f"restart {restart.number} of {row.max_restarts}"
        nodes = tuple(restart.nodes.split()) or row.node_names
        why = why if restart.run == row.run else ""
        late = restart.state == job_restarts.HELD and now - restart.updated >= settings.held_for
        if late and HELD in settings.tell:
            waits = f"{number} waits for enough healthy nodes, or for the end of a hold: {restart.why}{why}"
            yield from _faults(row, "JobHeld", "WARN", waits, nodes, restart.updated)
        elif RESTARTED in settings.tell and restart.outcome in ("", job_restarts.RESTARTED):
            yield from _faults(row, "JobRestarted", "WARN", f"{number}: {restart.why}{why}", nodes, restart.written)


def _why(row: WatchedJob, end: Optional[JobEnd]) -> str:
    """Whose job it is and why its run failed, as `nhc job why` says it."""
    user = f"; its user is {row.user}" if row.user else ""
    return f"{user}; why: {end.why}" if end is not None else user


def _faults(
    row: WatchedJob, reason: str, verdict: str, message: str, nodes: Tuple[str, ...], began: float
) -> Iterator[ActiveFault]:
    for node in nodes or (NO_NODE,):
        yield ActiveFault(node, JOB, reason, verdict, "inspect", message, began, f"job {row.text()}")
