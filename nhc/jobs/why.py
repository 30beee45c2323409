"""Decides why a job ended, from what the witnesses say. Pure.

The first initiating event over all ranks and nodes is the cause; cascades, the orderly end after it and advice never
are. A line that may be the program's or the GPU's is decided by the node's kernel log. Two witnesses of equal weight
that contradict one another give "unknown", with both shown.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.jobs.log_catalogue import (
    CASCADE,
    DISK,
    GPU,
    INITIATING,
    LIMITS,
    MEMORY,
    NETWORK,
    NODE,
    PROGRAM,
    SCHEDULER,
    STORAGE,
    TIME,
    UNKNOWN,
)  # fmt: skip

LOG, RECORD, KERNEL, CHECKS, CGROUP = "log", "scheduler", "kernel log", "checks", "cgroup"
"""The witnesses: the job's log, the scheduler's record, a node's kernel log, a node's checks in the store, what the
kernel counts in the job's control group."""
ESTABLISHED, SUPPORTED, NOT_KNOWN = "established", "supported", "unknown"
"""How sure: by an authority's record or two witnesses, by one witness, not at all."""
SKEW = 5.0
"""Seconds by which the clocks of two nodes, or what two processes print, may differ: within them no order is known."""
BEFORE, AFTER = 120.0, 60.0
"""Seconds before and after an event within which a node's finding belongs to it: the kernel's line comes at once, a
rank notices at its next call, and a check that runs every minute adds its cadence."""
LINGER = 3600.0
"""Seconds that a job may hang after its cause, until a limit or a person ends it: above any collective's timeout."""


SURVIVABLE = ("http-timeout", "curl-network", "s3-connect", "s3-timeout", "licence-server", "exception-alone")
"""Kinds of lines after which many programs try again, or only log and go on."""
FAR = 100
"""Lines of a log after which something else is no longer of the same end."""


class Clue(NamedTuple):
    """One thing that one witness says. `at` is Unix time, None where it has none; `order` its place in its log.

    `cause` and `role` are those of the catalogue; `where` is the file and line, or the node. `rank` and `gpu` are -1
    and `node` is "" where they are not known.
    """

    witness: str
    cause: str
    role: str
    kind: str
    text: str
    at: Optional[float] = None
    order: int = 0
    where: str = ""
    node: str = ""
    rank: int = -1
    gpu: int = -1
    restart: str = "unknown"


class JobVerdict(NamedTuple):
    """`cause` is a class of the catalogue, `sure` one of the three degrees. `clues` decided, `against` contradict."""

    cause: str
    sure: str
    what: str
    restart: str
    clues: Tuple[Clue, ...] = ()
    against: Tuple[Clue, ...] = ()

    @property
    def first(self) -> Optional[Clue]:
        """The clue that names rank, node and time."""
        return self.clues[0] if self.clues else None


ELSEWHERE = "elsewhere"
"""Whether a restart helps: yes, but not on this node."""
RESTART = {NODE: ELSEWHERE, NETWORK: "may", STORAGE: "may", SCHEDULER: "may", TIME: "may", MEMORY: "no", DISK: "no"}


def dated(clues: Iterable[Clue], ended: Optional[float]) -> List[Clue]:
    """Lines without a time are of the job's end: a log without any time is read, when all that is known is its end."""
    return [clue._replace(at=ended) if clue.at is None and clue.witness in (LOG, RECORD) else clue for clue in clues]


def judge_end(clues: Sequence[Clue], ended: Optional[float] = None) -> JobVerdict:
    """Judge the job's end. `ended` is when it ended, as far as anybody says.

    What a node shows counts only where its time is known: an old error must not be blamed for a new end.
    """
    initiating = [clue for clue in clues if clue.role == INITIATING]
    logged = [clue for clue in initiating if clue.witness == LOG]
    recorded = [clue for clue in initiating if clue.witness == RECORD]
    nodes = [clue for clue in initiating if clue.witness in (KERNEL, CHECKS, CGROUP)]
    dead = next((clue for clue in recorded if clue.cause == NODE), None)
    if dead is not None:
        return _verdict(NODE, ESTABLISHED, dead, *_near(nodes, dead, NODE))
    first, rivals = _first(logged, ended)
    if rivals and first is not None:
        return JobVerdict(UNKNOWN, NOT_KNOWN, "two ranks failed at once, for different reasons", "unknown",
                          (), (first, *rivals))  # fmt: skip
    killed = next((clue for clue in recorded if clue.cause == MEMORY), None)
    if killed is not None and (first is None or first.cause in (UNKNOWN, MEMORY) or not _precedes(first, killed)):
        return _verdict(MEMORY, ESTABLISHED, killed, *([first] if first else []))
    if first is not None:
        return _with_log(first, recorded, nodes)
    verdict = _without_log(recorded, nodes, ended)
    follows = next((clue for clue in clues if clue.role == CASCADE), None)
    if not verdict.clues and follows is not None:
        return verdict._replace(what=f"the log has consequences only: {follows.text}", clues=(follows,))
    return verdict


def _with_log(first: Clue, recorded: Sequence[Clue], nodes: Sequence[Clue]) -> JobVerdict:
    broken = _near(nodes, first, NODE)
    if first.cause == NODE:
        return _verdict(NODE, ESTABLISHED if broken else SUPPORTED, first, *broken)
    of_gpu = first.cause == GPU or (first.cause == PROGRAM and first.kind.startswith("cuda-"))
    if of_gpu:
        own = _near(nodes, first, PROGRAM)
        if broken:
            return _verdict(NODE, ESTABLISHED, broken[0], first)._replace(what=broken[0].text)
        if own or first.cause == PROGRAM:
            sure = ESTABLISHED if own else SUPPORTED
            return _verdict(PROGRAM, sure, first, *own)
        return JobVerdict(UNKNOWN, NOT_KNOWN, first.text, "unknown", (first,))
    if first.cause == UNKNOWN:
        return _unknown(first, recorded, nodes)
    if broken and first.cause in (NETWORK, STORAGE):
        return _verdict(NODE, ESTABLISHED, broken[0], first)
    if first.cause in (NETWORK, STORAGE):
        shared = _near(nodes, first, first.cause)
        return _verdict(first.cause, ESTABLISHED if shared else SUPPORTED, first, *shared)
    if first.cause == PROGRAM and broken:
        return _contest(first, broken)
    sure = ESTABLISHED if first.cause in (*LIMITS, SCHEDULER) else SUPPORTED
    agree = [clue for clue in recorded if clue.cause == first.cause]
    return _verdict(first.cause, ESTABLISHED if agree else sure, first, *agree)


def _contest(first: Clue, broken: Sequence[Clue]) -> JobVerdict:
    """A program's own fault, and a node of the job that is broken: the earlier by more than the clocks may differ."""
    other = broken[0]
    if _precedes(first, other):
        return _verdict(PROGRAM, SUPPORTED, first)._replace(against=(other,))
    if _precedes(other, first) and other.node != first.node:
        return _verdict(NODE, ESTABLISHED, other)._replace(against=(first,))
    what = f"{first.text}, and at the same time {other.node}: {other.text}"
    return JobVerdict(UNKNOWN, NOT_KNOWN, what, "unknown", (), (first, other))


def _unknown(first: Clue, recorded: Sequence[Clue], nodes: Sequence[Clue]) -> JobVerdict:
    """A line that names no cause: what the scheduler or the nodes say decides."""
    known = next((clue for clue in recorded if clue.cause != UNKNOWN), None)
    if known is not None:
        return _verdict(known.cause, ESTABLISHED if known.cause != PROGRAM else SUPPORTED, known, first)
    killed = _near(nodes, first, MEMORY)
    if killed:
        return _verdict(MEMORY, ESTABLISHED, killed[0], first)
    broken = _near(nodes, first, NODE)
    if broken:
        return _verdict(NODE, SUPPORTED, broken[0], first)
    return JobVerdict(UNKNOWN, NOT_KNOWN, first.text, first.restart, (first,))


def _without_log(recorded: Sequence[Clue], nodes: Sequence[Clue], ended: Optional[float]) -> JobVerdict:
    known = next((clue for clue in recorded if clue.cause not in (UNKNOWN, PROGRAM)), None)
    if known is not None:
        return _verdict(known.cause, ESTABLISHED, known)
    at = Clue(RECORD, UNKNOWN, INITIATING, "", "", ended)
    broken, killed = _near(nodes, at, NODE), _near(nodes, at, MEMORY)
    exited = next(iter(recorded), None)
    if killed and exited is not None and "signal 9" in exited.text:
        return _verdict(MEMORY, ESTABLISHED, killed[0], exited)
    if broken:
        return _verdict(NODE, SUPPORTED, broken[0], *([exited] if exited else []))
    if exited is not None and exited.cause == PROGRAM:
        return _verdict(PROGRAM, SUPPORTED, exited)
    what = exited.text if exited else "no witness says why it ended"
    return JobVerdict(UNKNOWN, NOT_KNOWN, what, "unknown", (exited,) if exited else ())


def _verdict(cause: str, sure: str, first: Clue, *others: Clue) -> JobVerdict:
    restart = first.restart if first.restart != "unknown" and cause != NODE else RESTART.get(cause, "unknown")
    return JobVerdict(cause, sure, first.text, restart, (first, *others))


def _first(logged: Sequence[Clue], ended: Optional[float]) -> Tuple[Optional[Clue], List[Clue]]:
    """The first initiating event, and those of other logs that may be as early and name another cause."""
    fresh = [clue for clue in logged if clue.at is None or ended is None or ended - clue.at <= LINGER]
    fresh = [clue for clue in fresh if not _gone_on_after(clue, fresh)]
    ordered = sorted(fresh, key=lambda clue: (clue.at is None, clue.at or 0.0, clue.order))
    if not ordered:
        return None, []
    head = ordered[0]
    near = [clue for clue in ordered if _together(head, clue)]
    if head.cause == UNKNOWN:
        head = next((clue for clue in near if clue.cause != UNKNOWN), head)
    elif head.cause == GPU:
        head = next((clue for clue in near if clue.cause == NODE), head)
    rivals = [clue for clue in near
              if clue.where.rpartition(":")[0] != head.where.rpartition(":")[0] and _at_once(head, clue)
              and _answer(clue.cause) != _answer(head.cause) and clue.cause not in (UNKNOWN, GPU)]  # fmt: skip
    return head, rivals[:2] if head.cause not in (UNKNOWN, GPU) else []


def _gone_on_after(clue: Clue, others: Sequence[Clue]) -> bool:
    """Whether a program seems to have got over this: what is tried again, or only logged, and something else far later.

    What a library tells and what its program makes of it stand together, within the lines of one traceback.
    """
    if clue.kind not in SURVIVABLE:
        return False
    log = clue.where.rpartition(":")[0]
    return any(
        other.kind not in SURVIVABLE and other.order > clue.order + FAR and other.where.rpartition(":")[0] == log
        for other in others
    )


def _answer(cause: str) -> str:
    return "limits" if cause in LIMITS else "network" if cause == STORAGE else cause


def _together(clue: Clue, other: Clue) -> bool:
    return clue.at is None or other.at is None or abs(clue.at - other.at) <= AFTER


def _at_once(clue: Clue, other: Clue) -> bool:
    return clue.at is None or other.at is None or abs(clue.at - other.at) <= SKEW


def _precedes(clue: Clue, other: Clue) -> bool:
    """Whether one came before the other for certain."""
    return clue.at is not None and other.at is not None and clue.at < other.at - SKEW


def _in_time(clue: Clue, event: Clue) -> bool:
    """Whether what a node shows is of the event's time. The job's control group counts nothing of before the job."""
    if clue.witness == CGROUP:
        return True
    return clue.at is not None and event.at is not None and event.at - BEFORE <= clue.at <= event.at + AFTER


def _near(nodes: Sequence[Clue], event: Clue, cause: str) -> List[Clue]:
    """What the nodes show of a cause about the time of an event, on its node where that is known, the earliest first.

    A node that broke before the event counts on whatever node the event was: the others only noticed.
    """
    clues = []
    for clue in nodes:
        if clue.cause != cause or not _in_time(clue, event):
            continue
        elsewhere = event.node and clue.node and clue.node != event.node
        if elsewhere and (cause in (PROGRAM, MEMORY) or not _precedes(clue, event)):
            continue
        clues.append(clue)
    return sorted(clues, key=lambda clue: (clue.node != event.node, clue.at or 0.0))
