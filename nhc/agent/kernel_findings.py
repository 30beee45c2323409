"""What the kernel's log has told of, as the agent's report has it: findings, and faults that stood before it came."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Set

from nhc.agent import agent_plan
from nhc.kernlog import STORE
from nhc.kernlog.shape import load
from nhc.model import CheckResult, Outcome, Verdict, ok, printable
from nhc.plan import Item
from nhc.ports import Standing
from nhc.run.engine import mutes_path
from nhc.state.mutes import applied

if TYPE_CHECKING:
    from nhc.agent.service import Agent

INHERITED = "check_kmsg"


class KernelLog:
    """The agent's word on the kernel log. `key` is the check that it is filed under."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.key = ""
        self.inherited: List[Standing] = []
        self.seen_stamp: Any = None

    def results(self) -> List[CheckResult]:
        """Faults that stood before the agent, as results."""
        return self._muted([_inherited(one) for one in self.inherited])

    def _muted(self, results: List[CheckResult]) -> List[CheckResult]:
        return applied(self.agent.host, mutes_path(), results)

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
        item = self.agent.items[key]
        ignore = agent_plan.arguments(item).get("ignore", ())
        store = load(self.agent.state, STORE)
        findings = [f for _key, f in current(store, (), self.agent.host.time()) if not ignored(f, ignore)]
        found = {(o.target, o.reason): o for f in findings if not _needs_context(f) for o in [outcome(f)]}
        everything = {(f["device"], outcome(f).reason) for _key, f in current(store)}
        row = self.agent.board.rows.get(key)
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
        news = self.agent.board.judge(key, results, self.agent.host.time(), 1)
        self.agent.news(news)
        if news:
            self.agent.changed()
        self._hurry()

    def _hurry(self) -> None:
        """Have it all judged in full."""
        now = self.agent.host.monotonic()
        for key, item in self.agent.items.items():
            if agent_plan.is_kernel_log(item):
                self.agent.schedule.hurry(key, now + 0.2)
        self.agent.tick()

    def _result(self, item: Item, told: Outcome) -> CheckResult:
        return CheckResult(item.name, told, 0.0, item.source, item.line, tuple(dict.fromkeys(("kmsg", *item.tags))))

    def ack(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults that stood before the agent. Returns what ended."""
        from nhc.agent.acks import end_findings

        ended = end_findings(self.agent.state, keys, device, everything, by, note, self.agent.host.time())
        for one in list(self.inherited):
            if everything or f"condition/{one.reason}" in keys:
                self.inherited.remove(one)
                ended.append(f"condition/{one.reason}")
        if self.agent.monitors:
            for entry in self.agent.monitors.conditions():
                name = entry["type"]
                if (everything or f"condition/{name}" in keys) and self.agent.monitors.ack(name):
                    ended.append(f"condition/{name}")
        if ended:
            self.agent.emit(
                [self.agent.event("finding.acknowledged", message=printable(f"{', '.join(ended)} by {by}: {note}"))]
            )
            self.heard()
            self.agent.changed()
            self.agent.save()
        return ended

    def stood(self, sink: str, standing: List[Standing]) -> None:
        """A sink tells what stood where it writes before we came.

        An agent whose last life, of this boot, was told already knows better. One that was not keeps what only
        the kernel log could tell; what a check looks at itself is judged before anything is cleared.
        """
        if sink in self.agent.adopted:
            return
        self.agent.adopted.add(sink)
        booted = self.agent.host.time() - self.agent.host.monotonic()
        known = {one.reason for one in self.inherited} | self._reasons()
        for one in standing:
            if one.reason not in known and one.since >= booted - 60.0 and agent_plan.is_kernel_reason(one.reason):
                known.add(one.reason)
                self.inherited.append(one)
                self.agent.log(f"{one.type}={one.reason} stood on this node before: it stands until it is acknowledged")
        if standing:
            self.agent.changed()

    def _reasons(self) -> Set[str]:
        return {problem.result.outcome.reason for _key, problem in self.agent.board.problems()}

    def stamp(self) -> Any:
        """What changes when a store of findings does, of /dev/kmsg or of another source."""
        try:
            with os.scandir(self.agent.state.directory) as entries:
                stores = [one for one in entries if one.name.startswith(STORE) and one.name.endswith(".json")]
                return sorted((one.name, one.inode(), one.stat().st_mtime_ns) for one in stores)
        except OSError:
            return None


def _needs_context(finding: Dict[str, Any]) -> bool:
    """Whether only the device or the node can tell what this means: a round asks it."""
    from nhc.kernlog import node_context, xid

    if finding["kind"] == "xid":
        return xid.depends(finding["code"], "")
    return node_context.depends(finding)


def _inherited(one: Standing) -> CheckResult:
    message = f"{one.message} (stood before this agent; nothing has shown it to be gone)"
    outcome = Outcome(Verdict.CRIT, one.reason, printable(message, 1000))
    return CheckResult(INHERITED, outcome, 0.0, "the agent", f"condition/{one.reason}")
