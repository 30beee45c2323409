"""What nhc asks of a scheduler, a cloud or a cluster: small Protocols, and the values they exchange.

An adapter implements the Protocols that its world has an answer to. It never decides: `nhc.policy.decide` does,
and `may_mark` and `may_clear` below are the one place that says what an adapter must leave alone, so that
every adapter respects an operator in the same way. `nhc.testing_adapters` holds the contract as tests.
"""

from __future__ import annotations

import re
import time
from enum import Enum
from typing import FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.matching.mark_cause import same_words
from nhc.model import Action, CheckResult, Report, Verdict, printable, told

TAG = "NHC:"
"""The first word of every mark that is ours; LBNL NHC's, so that marks it left are ours to clear."""

OWNER = "nhc"
"""The owner of our marks. Anybody else's mark has the name of its setter, or "" where it is not known."""

WHY_LIMIT = 240
"""Characters kept of a mark's explanation. Slurm, PBS and LSF all take more; people read less."""


class Mark(NamedTuple):
    """Why a node is, or should be, out of service.

    `why` is one line without the tag. `since` is Unix time, None where nobody knows. `action` is what would
    repair the node, `NONE` where nothing was recommended. `cause` is what the mark is about without its figures, as
    `cause_of` names it, "" for one that was read back: no scheduler keeps it. Marks that say the same are equal.
    """

    why: str
    action: Action = Action.NONE
    since: Optional[float] = None
    owner: str = OWNER
    cause: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self[:4] == other[:4]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:4])

    @property
    def ours(self) -> bool:
        return self.owner == OWNER


class NodeState(NamedTuple):
    """What a scheduler says of one node.

    `shown` is its state in the scheduler's own words, `flags` the same as a set of upper-case words.
    `available` says that it takes new work, `busy` that work runs on it. `mark` is the reason set on it, by
    whomever. `hold` says why nhc must not change its state now (it reboots, it is powered down, it is
    reserved for maintenance), "" where it may. `groups` are the partitions, queues or pools it is in.
    """

    name: str
    shown: str
    available: bool
    busy: bool = False
    mark: Optional[Mark] = None
    hold: str = ""
    groups: Tuple[str, ...] = ()
    flags: FrozenSet[str] = frozenset()


class Operation(str, Enum):
    """What nhc can ask of a scheduler or a cluster for one node. A report's `Action` only recommends a repair."""

    MARK = "mark"
    CLEAR = "clear"
    REBOOT = "reboot"
    REPLACE = "replace"


class PlannedOperation(NamedTuple):
    """One operation on one node, not yet done. `mark` is the mark to set, for a MARK; `because` is for the audit."""

    node: str
    operation: Operation
    because: str
    mark: Optional[Mark] = None


class Effect(str, Enum):
    """How one node came out of an operation. FAILED may be tried again; REFUSED must not be forced."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"


class Applied(NamedTuple):
    """What an adapter did to one node; `message` is one line for a person."""

    node: str
    effect: Effect
    message: str = ""


class AdapterError(Exception):
    """The other side cannot be asked at all: not installed, not reachable, not allowed. One line for a person."""


class Kept(AdapterError):
    """A sink has taken the news and keeps it, but could not deliver yet: it is to be called again."""


class NodeSource(Protocol):
    """Something that knows nodes."""

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The state of these nodes (None: of all), sorted by name. A name it does not know is left out.

        Raises AdapterError.
        """
        ...


class MakeAdapter(Protocol):
    """How nhc constructs an adapter: what stands under its name is called like this, and reaches nobody yet."""

    def __call__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> NodeSource:
        """`settings` are nhc's variables (NHC_*), `environ` replaces the process's own environment.

        `timeout` is in seconds, for one question or operation. Raises AdapterError where the settings make no sense.
        """
        ...


@port
class Marker(NodeSource, Protocol):
    """Something that can take nodes out of service and put them back.

    Both operations read the nodes first unless `seen` holds states read a moment ago, obey `may_mark` and
    `may_clear`, and return one Applied for every name asked for. They raise AdapterError only when nothing
    was done.
    """

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Take nodes out of service. Marking again changes nothing, or the reason where that is new."""
        ...

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Put nodes back that carry our mark; every other node stays as it is."""
        ...


@port
class Power(Protocol):
    """Something that can repair whole nodes."""

    def repairs(self) -> FrozenSet[Operation]:
        """Which of REBOOT and REPLACE it can do."""
        ...

    def repair(self, operation: Operation, names: Sequence[str], because: str) -> List[Applied]:
        """Reboot or replace nodes, once the work on them has ended. Raises AdapterError."""
        ...


@port
class Comments(Protocol):
    """Something that keeps a remark on a node which changes nothing about its state."""

    def comment(self, name: str, text: str) -> bool:
        """Set the remark, "" to take ours away. Whether it is so now; a failure is not raised."""


@port
class JobMessages(Protocol):
    """Something that can tell the owner of a job why it did not start."""

    def tell_job(self, job: str, text: str) -> None:
        """Raises AdapterError."""


@port
class OtherJobs(Protocol):
    """Something that knows which jobs run on a node."""

    def other_jobs(self, node: str, user: str, job: str) -> List[str]:
        """The user's jobs on the node without `job`; nothing of theirs may be cleaned up. Raises AdapterError."""
        ...


class Standing(NamedTuple):
    """A fault that stood, where a sink writes, before the agent began. `since` is Unix time."""

    type: str
    reason: str
    message: str
    since: float


class Delivery(NamedTuple):
    """What the agent tells a sink: how its node is, and what is new since the last time.

    While `complete` is false some checks have not been judged yet: a fault may be raised on it, none cleared.
    `news` are events as docs/event.schema.json has them, oldest first; `conditions` are node conditions that rules
    of the site's own made (type, status, reason, message), in Kubernetes' terms. `lost` counts news that a sink
    that was away for long will not hear of.
    """

    report: Report
    complete: bool
    news: Tuple[Mapping[str, object], ...] = ()
    conditions: Tuple[Mapping[str, str], ...] = ()
    lost: int = 0


class Sink(Protocol):
    """Somewhere that an agent's word goes. It has a process of its own, so it may block, and use threads.

    `deliver` raises AdapterError where it could not; it is then called again with what is so by that time, and
    with the news it has not taken.
    """

    def standing(self) -> List[Standing]:
        """The faults that stand there already. Asked once, before anything is delivered. Raises AdapterError."""
        ...

    def deliver(self, delivery: Delivery) -> None: ...

    def close(self) -> None:
        """Deliver what is under way, for a few seconds at most, and end."""
        ...


class Writing(Sink, Protocol):
    """A sink that takes what it is told at once and writes it in its own time."""

    def problem(self) -> str:
        """What keeps it from writing, "" while all is written. Cheap: asked every few seconds."""
        ...


def read_mark(source: NodeSource, name: str) -> Optional[Mark]:
    """The mark on one node, None where it carries none or is not known."""
    for state in source.nodes([name]):
        if state.name == name:
            return state.mark
    return None


def may_mark(state: Optional[NodeState], mark: Mark) -> Tuple[Effect, str]:
    """Whether to set `mark` on a node: CHANGED says yes.

    The rules: a node that is not known, or held, is left; one that somebody else took
    out keeps their reason, even where they gave none; our own mark is refreshed when its cause is new, not when a
    figure in its text is.
    """
    if state is None:
        return Effect.FAILED, "not a node that the scheduler knows"
    if state.hold:
        return Effect.REFUSED, f"left alone: {state.hold}"
    if state.available:
        note = state.mark.why if state.mark and not state.mark.ours else ""
        return Effect.CHANGED, f"replaces the note {note!r}" if note else ""
    if state.mark is None:
        return Effect.REFUSED, f"already {state.shown}, with no reason given: somebody else's"
    if not state.mark.ours:
        by = state.mark.owner or "somebody else"
        return Effect.REFUSED, f"already {state.shown} by {by}: {printable(state.mark.why, 120)}"
    if same_cause(state.mark, mark):
        return Effect.UNCHANGED, "already so"
    return Effect.CHANGED, "reason refreshed"


def same_cause(standing: Mark, wanted: Mark) -> bool:
    """Whether a mark of ours that stands on a node tells of what the wanted one does: cause and repair are the same.

    Where the standing one's cause is not known, as after a scheduler gave it back, its words tell, figures left out.
    """
    nothing = (Action.NONE, Action.INSPECT)  # no text tells these two apart
    if standing.action is not wanted.action and not (standing.action in nothing and wanted.action in nothing):
        return False
    if mark_text(standing) == mark_text(wanted):
        return True
    if standing.cause and wanted.cause:
        return standing.cause == wanted.cause
    _check, reason, target = (*wanted.cause.split("|", 2), "", "")[:3]
    names = {*re.findall(r"\d+", reason), *target.split()}  # Xid 79 is another error than Xid 48, CPU 24 than CPU 30
    return same_words(_plain_why(standing), _plain_why(wanted), names)


def cause_of(result: CheckResult) -> str:
    """What a failure is about: the check, the reason's key and the target."""
    outcome = result.outcome
    return printable(f"{result.check}|{outcome.reason}|{outcome.target}", WHY_LIMIT)


def may_clear(state: Optional[NodeState]) -> Tuple[Effect, str]:
    """Whether to put a node back into service: only where our own mark took it out."""
    if state is None:
        return Effect.FAILED, "not a node that the scheduler knows"
    if state.mark is None or not state.mark.ours:
        if state.available:
            return Effect.UNCHANGED, "carries no mark of ours"
        by = state.mark.owner or "somebody else" if state.mark else "somebody else, with no reason given"
        return Effect.REFUSED, f"{state.shown} by {by}{f': {printable(state.mark.why, 120)}' if state.mark else ''}"
    if state.hold:
        return Effect.REFUSED, f"left alone: {state.hold}"
    return Effect.CHANGED, ""


# The text of a mark: "NHC: check_fs_free: / is full [action: reboot] [since: 2025-01-31T08:15:00Z]".

_TAIL = re.compile(r"\s*\[(action|since): ([^\[\]]+)\]$")


def _plain_why(mark: Mark) -> str:
    """Why, as a mark's text has it: on one line, and without what looks like our own annotation."""
    why = printable(mark.why, WHY_LIMIT).strip() or "unhealthy"
    while _TAIL.search(why):  # it must not be read back as one
        why = _TAIL.sub("", why).strip() or "unhealthy"
    return why


def mark_text(mark: Mark, with_since: bool = False) -> str:
    """A mark of ours as text. The time is put in where the other side keeps none itself."""
    text = f"{TAG} {_plain_why(mark)}"
    if mark.action not in (Action.NONE, Action.INSPECT):  # that somebody should look is what every mark says
        text += f" [action: {mark.action.value}]"
    if with_since and mark.since is not None:
        text += f" [since: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(mark.since))}]"
    return text


def read_mark_text(text: str, owner: str = "", since: Optional[float] = None) -> Optional[Mark]:
    """The mark that a reason says, ours where it begins with the tag; None for an empty reason."""
    text = printable(text).strip()
    if not text:
        return None
    if text != TAG and not text.startswith(f"{TAG} "):
        return Mark(text, since=since, owner="" if owner == OWNER else owner)
    why, action = text[len(TAG) :].strip(), Action.NONE
    tail = _TAIL.search(why)
    while tail:
        if tail[1] == "action" and tail[2] in {known.value for known in Action}:
            action = Action(tail[2])
        elif tail[1] == "since":
            from calendar import timegm

            try:
                since = float(timegm(time.strptime(tail[2], "%Y-%m-%dT%H:%M:%SZ")))
            except ValueError:
                break
        else:
            break
        why = why[: tail.start()]
        tail = _TAIL.search(why)
    return Mark(why, action, since)


DRASTIC = (
    Action.NONE, Action.INSPECT, Action.RESTART_APP, Action.RESET_DEVICE, Action.RELOAD_DRIVER, Action.REBOOT,
    Action.REPLACE,
)  # fmt: skip
"""Repairs, the least first. INSPECT is low because every failure suggests it where nothing better is known."""


def mark_of(report: Report) -> Optional[Mark]:
    """The mark that a report asks for: its first failure, how many more, and the most drastic repair suggested.

    None where nothing is CRIT: an UNKNOWN verdict never takes a node out.
    """
    failures = report.failures()
    if not failures:
        return None
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    action = max((result.outcome.action for result in failures), key=DRASTIC.index)
    why = printable(describe(failures[0]), WHY_LIMIT - len(more)) + more
    return Mark(why, action, report.started, cause=cause_of(failures[0]))


def describe(result: CheckResult) -> str:
    """One result as a reason shows it: `check_fs_free: / has only 3% free`."""
    return told(result)


def healthy(report: Report) -> bool:
    """Whether a report says that a node is fit for work. UNKNOWN does not: it leaves a node as it is."""
    return report.verdict in (Verdict.OK, Verdict.WARN)
