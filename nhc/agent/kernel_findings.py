"""What the kernel's log has told of, as the agent's report has it: findings, and faults that stood before it came."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Sequence, Set

from nhc.agent import agent_plan
from nhc.agent.acks import end_findings
from nhc.agent.problems import Board, Change
from nhc.agent.schedule import Schedule
from nhc.host import Host
from nhc.kernlog.source import STORE
from nhc.kernlog.store import load
from nhc.light import NamedTuple
from nhc.model import CheckResult, Outcome, Verdict, ok, printable
from nhc.plan import Item
from nhc.ports import Standing
from nhc.run.engine import mutes_path
from nhc.state.mutes import applied
from nhc.state.store import State

if TYPE_CHECKING:
    from nhc.kernlog.state_types import Finding

INHERITED = "check_kmsg"


class Listener(NamedTuple):
    """Who is told: `news` of what began or ended, `changed` where the report is another, `wake` to run what is due."""

    news: Callable[[Sequence[Change]], None]
    changed: Callable[[], None]
    wake: Callable[[], None]


class KernelLog:
    """What the kernel log tells of the node. `key` is the check that it is filed under.

    `adopted` are the sinks that have told what stood before the agent, `inherited` those faults.
    """

    def __init__(
        self, host: Host, state: State, board: Board, schedule: Schedule, log: Callable[[str], None], listener: Listener
    ) -> None:
        self._host, self._state, self._board, self._schedule = host, state, board, schedule
        self._log, self._listener = log, listener
        self._items: Mapping[str, Item] = {}
        self.key = ""
        self.inherited: List[Standing] = []
        self.adopted: Set[str] = set()
        self.seen_stamp: Any = None

    def judge_by(self, items: Mapping[str, Item]) -> None:
        """The checks of a new plan."""
        self._items = items
        self.key = next((key for key, item in items.items() if agent_plan.follows(item)), "")

    def recall(self, adopted: Sequence[str], inherited: Sequence[Standing]) -> None:
        """What an earlier agent of this boot knew."""
        self.adopted.update(adopted)
        self.inherited.extend(inherited)

    def results(self) -> List[CheckResult]:
        """Faults that stood before the agent, as results."""
        return self._muted([_inherited(one) for one in self.inherited])

    def _muted(self, results: List[CheckResult]) -> List[CheckResult]:
        return applied(self._host, mutes_path(), results)

    def settle(self) -> None:
        """After a round: what we have found ourselves ends as our own findings do."""
        self.seen_stamp = self.stamp()
        if self.inherited:
            reasons = self._reasons()
            self.inherited = [one for one in self.inherited if one.reason not in reasons]

    def look(self) -> None:
        """Whether another process has changed the store of findings: an acknowledgement, a check by hand."""
        if self.stamp() != self.seen_stamp:
            self.heard()

    def heard(self) -> None:
        """The store of findings has changed: say what is new at once, and have it judged in full."""
        from nhc.checks.kmsg import ignored, outcome
        from nhc.kernlog.findings import current

        self.seen_stamp = self.stamp()
        key = self.key
        if not key:
            self._hurry()
            return
        item = self._items[key]
        ignore = agent_plan.arguments(item).get("ignore", ())
        store = load(self._state, STORE)
        findings = [f for _key, f in current(store, (), self._host.time()) if not ignored(f, ignore)]
        found = {(o.target, o.reason): o for f in findings if not _needs_context(f) for o in [outcome(f)]}
        everything = {(f["device"], outcome(f).reason) for _key, f in current(store)}
        row = self._board.rows.get(key)
        results: List[CheckResult] = []
        for result in row.results if row else ():
            place = (result.outcome.target, result.outcome.reason)
            if place in everything or result.outcome.reason.startswith("KernelLog"):
                results.append(result)
                found.pop(place, None)
        results += [self._result(item, told) for told in found.values()]
        if not results:
            results = [self._result(item, ok("the kernel log tells of no fault that stands"))]
        results = self._muted(results)
        news = self._board.judge(key, results, self._host.time(), 1)
        self._listener.news(news)
        if news:
            self._listener.changed()
        self._hurry()

    def _hurry(self) -> None:
        """Have it all judged in full."""
        now = self._host.monotonic()
        for key, item in self._items.items():
            if agent_plan.is_kernel_log(item):
                self._schedule.hurry(key, now + 0.2)
        self._listener.wake()

    def _result(self, item: Item, told: Outcome) -> CheckResult:
        return CheckResult(item.name, told, 0.0, item.source, item.line, tuple(dict.fromkeys(("kmsg", *item.tags))))

    def end(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults that stood before the agent. Returns what ended."""
        ended = end_findings(self._state, keys, device, everything, by, note, self._host.time())
        for one in list(self.inherited):
            if everything or f"condition/{one.reason}" in keys:
                self.inherited.remove(one)
                ended.append(f"condition/{one.reason}")
        return ended

    def stood(self, sink: str, standing: List[Standing]) -> None:
        """A sink tells what stood where it writes before we came.

        An agent whose last life, of this boot, was told already knows better. One that was not keeps what only
        the kernel log could tell; what a check looks at itself is judged before anything is cleared.
        """
        if sink in self.adopted:
            return
        self.adopted.add(sink)
        booted = self._host.time() - self._host.monotonic()
        known = {one.reason for one in self.inherited} | self._reasons()
        for one in standing:
            if one.reason not in known and one.since >= booted - 60.0 and agent_plan.is_kernel_reason(one.reason):
                known.add(one.reason)
                self.inherited.append(one)
                self._log(f"{one.type}={one.reason} stood on this node before: it stands until it is acknowledged")
        if standing:
            self._listener.changed()

    def _reasons(self) -> Set[str]:
        return {problem.result.outcome.reason for _key, problem in self._board.problems()}

    def stamp(self) -> Any:
        """What changes when a store of findings does, of /dev/kmsg or of another source."""
        try:
            with os.scandir(self._state.directory) as entries:
                stores = [one for one in entries if one.name.startswith(STORE) and one.name.endswith(".json")]
                return sorted((one.name, one.inode(), one.stat().st_mtime_ns) for one in stores)
        except OSError:
            return None


def _needs_context(finding: Finding) -> bool:
    """Whether only the device or the node can tell what this means: a round asks it."""
    from nhc.kernlog import node_context, xid

    if finding["kind"] == "xid":
        return xid.depends(finding["code"], "")
    return node_context.depends(finding)


def _inherited(one: Standing) -> CheckResult:
    message = f"{one.message} (stood before this agent; nothing has shown it to be gone)"
    outcome = Outcome(Verdict.CRIT, one.reason, printable(message, 1000))
    return CheckResult(INHERITED, outcome, 0.0, "the agent", f"condition/{one.reason}")
