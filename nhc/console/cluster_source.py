"""A cluster as the console's fleet, without a store: its nodes, their conditions, and the marks that they carry."""

from __future__ import annotations

import time
from typing import Dict, List, Optional

from nhc.console.fleet_nodes import FleetNodes, NodeRow
from nhc.console.snapshot import ProblemRow, Snapshot, take
from nhc.console.sources import SourceError, problem_rows
from nhc.core.model import Report
from nhc.marks.ports.adapter import AdapterError, ConditionReport, ConditionReports, NodeSource, NodeState
from nhc.marks.ports.marks import cause_of


class ClusterSource:
    """A scheduler's view of its nodes: verdicts by their conditions where it has such, else by the marks alone.

    A node without a condition of ours is never healthy: nobody has judged it. `keep` is for how many seconds an answer
    is shown again, so that many viewers cost the cluster no more than one.
    """

    def __init__(self, name: str, adapter: NodeSource, stale: float, keep: float = 5.0) -> None:
        self.name, self.adapter, self.stale, self.keep = name, adapter, stale, keep
        self._read_at = float("-inf")
        self._nodes = FleetNodes()
        self._states: List[NodeState] = []
        self._reports: Dict[str, ConditionReport] = {}

    def snapshot(self) -> Snapshot:
        self._refresh()
        self._nodes.replace(self._row(state) for state in self._states)
        problems = [row for name in sorted(self._reports) for row in self._problems(self._reports[name])]
        marked = [_marked(state) for state in self._states if _is_marked(state) and state.name not in self._reports]
        conditions = "conditions that nhc agents write" if isinstance(self.adapter, ConditionReports) else ""
        comes_from = conditions or f"none: the adapter {self.name} shows marks alone; show a store, or files (-r)"
        notes = [] if self._reports or not marked else [f"No node has reported yet; reports come from {comes_from}"]
        return take(
            self._nodes, [*problems, *marked], time.time(), self.stale, notes=notes, comes_from=comes_from
        )  # fmt: skip

    def report(self, node: str) -> Optional[Report]:
        self._refresh()
        reported = self._reports.get(node)
        return reported.report if reported else None

    def _refresh(self) -> None:
        now = time.time()
        if 0 <= now - self._read_at < self.keep:
            return
        try:
            self._states = self.adapter.nodes()
            if isinstance(self.adapter, ConditionReports):
                self._reports = {reported.report.host: reported for reported in self.adapter.condition_reports()}
        except AdapterError as error:
            raise SourceError(str(error)) from None
        self._read_at = now

    def _row(self, state: NodeState) -> NodeRow:
        reported = self._reports.get(state.name)
        groups = {"state": state.shown, **{f"group{place}": name for place, name in enumerate(state.groups, 1)}}
        if reported is not None:
            since = min(reported.since.values(), default=None)
            return NodeRow(state.name, reported.report.verdict.name, self._read_at, since, "", groups, self.name)
        verdict = "CRIT" if _is_marked(state) else ""
        return NodeRow(state.name, verdict, self._read_at if verdict else None, None, "", groups, self.name)

    @staticmethod
    def _problems(reported: ConditionReport) -> List[ProblemRow]:
        rows = problem_rows(reported.report)
        causes = {(result.check, result.outcome.reason): cause_of(result) for result in reported.report.results}
        return [
            row._replace(began=reported.since.get(causes.get((row.check, row.reason), ""), row.began)) for row in rows
        ]


def _is_marked(state: NodeState) -> bool:
    """Whether a mark keeps a node out; a scheduler may keep the reason of one that is back in service."""
    return state.mark is not None and not state.available


def _marked(state: NodeState) -> ProblemRow:
    """A node that is out of service, where nothing but its mark says why."""
    why, since = ("", None) if state.mark is None else (state.mark.why, state.mark.since)
    return ProblemRow(state.name, "mark", "OutOfService", "", "CRIT", "none", why, since or 0.0)
