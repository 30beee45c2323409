"""The health of nodes, from the store's newest reports and an adapter's own (conditions): the worst counts."""

from __future__ import annotations

from typing import Container, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import Action, DeviceId, Scope, Verdict
from nhc.marks.ports.adapter import REMEDY_OWNER, ConditionReport, NodeState
from nhc.marks.ports.marks import cause_of, cause_text
from nhc.remedy import reasons, silence
from nhc.remedy.ladder import MARK, NodeFault
from nhc.remedy.machine import EpisodeState
from nhc.remedy.reasons import ReasonSettings
from nhc.remedy.view import Health
from nhc.store import deep, episodes
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems
from nhc.store.nodes import StoredNode
from nhc.store.problems import StoredProblem


def fault_of(problem: StoredProblem, node: str, seen: float, boot: str = "") -> NodeFault:
    """A stored problem as a fault, seen at that time in that boot."""
    cause = cause_text(problem.check, problem.reason, problem.target)
    return NodeFault(
        node, cause, problem.reason, problem.message or problem.reason, Action(problem.action), seen, problem.began,
        problem.target, f"store/{problem.source}" if problem.source else "store", boot=boot,
        device=problem.device_id() if problem.scope == Scope.DEVICE.value else DeviceId(),
    )  # fmt: skip


def stored(
    connection: Connection, names: NodeNames, wanted: Optional[Sequence[str]] = None,
    rows: Optional[Sequence[StoredNode]] = None,
) -> Dict[str, Health]:  # fmt: skip
    """The health of these nodes by the store, under the scheduler's names; with None, of all that have a problem.

    `rows` are the store's rows of the nodes, if they were just read.
    """
    asked = None if wanted is None else [names.stored(name) for name in wanted]
    open_ones: Dict[str, List[StoredProblem]] = {}
    for problem in store_problems.list_problems(connection, nodes=asked):
        if problem.verdict == Verdict.CRIT.name:
            open_ones.setdefault(problem.node, []).append(problem)
    if rows is None:
        rows = store_nodes.list_nodes(connection, asked if asked is not None else sorted(open_ones))
    healths = {}
    for row in rows:
        health = _health(row, open_ones.get(row.node, []), names.scheduler_name(row.node))
        if health is not None:
            healths[names.scheduler_name(row.node)] = health
    return healths


def _health(row: StoredNode, problems: List[StoredProblem], name: str) -> Optional[Health]:
    """An active problem makes a node faulty, even if the newest report, of another source, does not name it."""
    if row.reported_at is None or row.verdict not in Verdict.__members__:
        return None
    verdict = Verdict[row.verdict]
    if row.is_contested:
        return Health(Verdict.UNKNOWN, row.reported_at, row.boot_id, (), f"store/{row.source}")
    if not problems:
        since = max(row.since or 0.0, row.covered_since or 0.0)
        return Health(verdict, row.reported_at, row.boot_id, (), f"store/{row.source}", since)
    # The store writes a problem's `seen` less often than a node's time: problems in the newest report are as new as
    # that.
    at = row.reported_at if verdict is Verdict.CRIT else max(problem.seen for problem in problems)
    faults = tuple(
        fault_of(problem, name, at, row.boot_id)
        if problem.source == row.source
        else fault_of(problem, name, problem.seen)
        for problem in problems
    )
    return Health(Verdict.CRIT, at, row.boot_id, faults, f"store/{row.source}")


def reported(
    reports: Iterable[ConditionReport], names: NodeNames, source: str, now: Optional[float] = None
) -> Dict[str, Health]:
    """The health of nodes by reports that are in no store, such as a cluster's conditions. A condition that is active
    until it is taken back is seen `now`, if that is given.
    """
    healths: Dict[str, Health] = {}
    for report, since, standing in reports:
        name = names.scheduler_name(report.host)
        before = healths.get(name)
        if before is not None and before.at >= report.started:
            continue
        seen = dict.fromkeys(standing, now) if now is not None else {}
        faults = tuple(
            NodeFault(
                name, cause_of(result), result.outcome.reason, result.outcome.message or result.outcome.reason,
                result.outcome.action,
                seen.get(cause_of(result), report.started), since.get(cause_of(result), report.started),
                result.outcome.target, source, boot=report.boot_id,
                device=result.outcome.device if result.outcome.scope is Scope.DEVICE else DeviceId(),
            )
            for result in report.failures()
        )  # fmt: skip
        healths[name] = Health(report.verdict, report.started, report.boot_id, faults, source)
    return healths


def by_suite(connection: Connection, names: NodeNames, suite: str) -> Dict[str, Tuple[str, float]]:
    """The verdict and time of each node's newest run of a deep suite; nothing if no suite is asked for."""
    rows = deep.last_verdicts(connection) if suite else []
    return {names.scheduler_name(row.node): (row.verdict, row.at) for row in rows if row.suite == suite}


def of_marks(states: Iterable[NodeState]) -> List[NodeFault]:
    """Nodes that already carry a mark of ours, set by a hook or a sync: the mark asks for their repair."""
    faults = []
    for state in states:
        mark = state.mark
        if mark is None or not mark.ours or state.available or mark.action in (Action.NONE, Action.INSPECT):
            continue
        since = mark.since or 0.0
        faults.append(NodeFault(state.name, f"mark|{mark.action.value}|", "Marked", mark.why, mark.action, since, since,
                           source=MARK))  # fmt: skip
    return faults


def lost_marks(
    connection: Connection, states: Iterable[NodeState], names: NodeNames, at_work: Container[str]
) -> List[str]:
    """The nodes that carry a mark of the loop but have no episode in the store, for example after the loss of a store.
    Nothing would ever put them back. `at_work` are the nodes with an open episode, of the loop or of a train.
    """
    marked = [
        state.name for state in states
        if state.mark is not None and state.mark.owner == REMEDY_OWNER and state.name not in at_work
    ]  # fmt: skip
    newest = episodes.newest_of(connection, [names.stored(name) for name in marked], 1) if marked else []
    left = (EpisodeState.ESCALATED.value, EpisodeState.ABORTED.value)
    known = {names.scheduler_name(row.node) for row in newest if row.ended is None or row.state in left}
    return sorted(set(marked) - known)


def together(healths: Sequence[Mapping[str, Health]]) -> Dict[str, Health]:
    """The health of each node by several sources: the worst verdict, and the faults of all."""
    by_name: Dict[str, Health] = {}
    for by_node in healths:
        for name, health in by_node.items():
            before = by_name.get(name)
            by_name[name] = health if before is None else _both(before, health)
    return by_name


def by_cluster(faults: Sequence[NodeFault], state: Optional[NodeState], now: float) -> Optional[Health]:
    """The health of a node that has never reported, once its scheduler hears from it again after a silence."""
    silences = bool(faults) and all(map(silence.is_silence, faults))
    if not silences or state is None or state.silence is not None:
        return None
    return Health(Verdict.OK, now, source="cluster")


def by_reason(healths: Mapping[str, Health], given: Sequence[ReasonSettings]) -> Dict[str, Health]:
    """The health of nodes after the settings for reasons are applied: a node with only ignored faults is not faulty."""
    judged = {}
    for name, health in healths.items():
        faults = tuple(reasons.applied(health.faults, given))
        ignored = health.verdict is Verdict.CRIT and health.faults and not faults
        judged[name] = health._replace(faults=faults, verdict=Verdict.WARN if ignored else health.verdict)
    return judged


def _both(health: Health, other: Health) -> Health:
    worse, better = (health, other) if health.verdict >= other.verdict else (other, health)
    faults = {fault.cause: fault for fault in (*better.faults, *worse.faults)}
    return worse._replace(boot=worse.boot or better.boot, faults=tuple(faults.values()))
