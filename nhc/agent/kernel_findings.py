"""The kernel log's part of the agent's report: findings, and faults that sinks showed before the agent started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Set, Tuple

from nhc.agent import agent_plan
from nhc.agent.agent_plan import Checks
from nhc.agent.problems import Place, ProblemChange
from nhc.core.host import Host
from nhc.core.light import NamedTuple
from nhc.core.model import CheckResult, Outcome, Verdict, ok, printable
from nhc.core.plan import Item
from nhc.core.state.mutes import applied
from nhc.core.state.store import State
from nhc.core.system.service_log import note
from nhc.marks.ports.sinks import Standing
from nhc.node.kernlog.findings import current
from nhc.node.kernlog.source import STORE
from nhc.node.kernlog.store import acknowledge, named
from nhc.node.run.engine import mutes_path

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import Finding, LogState

INHERITED = "check_kmsg"
ASKED = 2.0
"""Seconds that a device has to tell what its fault means. Then the fault is published as the log has it: a hung driver
is no sign of health."""
AGAIN = 0.2
"""Within so many seconds after new lines of the log, a round judges all of it."""


class Listener(NamedTuple):
    """Callbacks: `publish` gets what began or ended, `changed` tells of another report, `wake` runs what is due."""

    publish: Callable[[Sequence[ProblemChange]], None]
    changed: Callable[[], None]
    wake: Callable[[], None]


class KernelLog:
    """What the kernel log tells about the node. `key` is the check under which it is filed.

    `adopted` are the sinks that reported faults from before the agent, `inherited` those faults. `findings` gives the
    store of findings as it stands.
    """

    def __init__(
        self,
        host: Host,
        state: State,
        checks: Checks,
        log: Callable[[str], None],
        listener: Listener,
        findings: Callable[[], LogState],
    ) -> None:
        self._host, self._state, self._checks = host, state, checks
        self._log, self._listener, self._findings = log, listener, findings
        self._asked: Dict[str, Tuple[int, float]] = {}
        """The count of findings that their device is to be asked about, and since when."""
        self._answered: Dict[str, int] = {}
        """The count of those that a round has asked about."""
        self.key = ""
        self.inherited: List[Standing] = []
        self.adopted: Set[str] = set()
        self.seen_stamp: object = None

    def plan_changed(self) -> None:
        """Find the check of the new plan that the findings are filed under."""
        self.key = next((key for key, item in self._checks.items.items() if agent_plan.follows(item)), "")

    def recall(self, adopted: Sequence[str], inherited: Sequence[Standing]) -> None:
        """What an earlier agent of this boot knew."""
        self.adopted.update(adopted)
        self.inherited.extend(inherited)

    def results(self) -> List[CheckResult]:
        """Faults from before the agent's start, as results."""
        return self._muted([_inherited(fault) for fault in self.inherited])

    def _muted(self, results: List[CheckResult]) -> List[CheckResult]:
        return applied(self._host, mutes_path(), results)

    def settle(self) -> None:
        """After a round: faults that we have found ourselves end as our own findings do."""
        self.seen_stamp = self.stamp()
        if self.inherited:
            reasons = self._reasons()
            self.inherited = [fault for fault in self.inherited if fault.reason not in reasons]

    def look(self) -> None:
        """Whether another process has changed the store (acknowledged, checked by hand), or a device is silent."""
        late = self._host.monotonic() - ASKED
        if self.stamp() != self.seen_stamp or any(since <= late for _count, since in self._asked.values()):
            self.findings_changed()

    def findings_changed(self) -> None:
        """The findings have changed: publish new ones at once, and let a round judge all of them."""
        self.seen_stamp = self.stamp()
        key = self.key
        if not key:
            self._hurry(0.0)
            return
        item = self._checks.items[key]
        store = self._findings()
        row, places = self._checks.board.rows.get(key), _places(store)
        results = [result for result in row.results if _is_of(result, places)] if row else []
        results += self._added(item, store, results)
        if not results:
            results = [self._result(item, ok("the kernel log tells of no fault that stands"))]
        changes = self._checks.board.judge(key, self._muted(results), self._host.time(), 1)
        self._listener.publish(changes)
        if changes:
            self._listener.changed()
        self._hurry(0.0 if self._asked else AGAIN)

    def judged(self, item: Item, results: Sequence[CheckResult], began: float) -> List[CheckResult]:
        """A round's results for the item that the live log judges, as the log has them now.

        The round saw the findings as they were after it `began`. Findings that came since stay published, and those
        that ended since do not come back.
        """
        if all(result.verdict is not Verdict.UNKNOWN for result in results):
            answered = {key: count for key, (count, since) in self._asked.items() if since < began}
            self._answered.update(answered)
            self._asked = {key: value for key, value in self._asked.items() if key not in answered}
        store = self._findings()
        places = _places(store)
        of_no_finding = (Verdict.OK, Verdict.UNKNOWN)
        known_results = [result for result in results if result.verdict in of_no_finding or _is_of(result, places)]
        added = self._muted(self._added(item, store, known_results))
        if not added:
            return known_results
        return [*(row for row in known_results if row.verdict is not Verdict.OK or row.outcome.metrics), *added]

    def _added(self, item: Item, store: LogState, known_results: Sequence[CheckResult]) -> List[CheckResult]:
        """Results for findings that no result covers yet, without those that a device is being asked about."""
        from nhc.node.checks.kmsg import ignored, outcome
        from nhc.node.kernlog.findings import eased
        from nhc.node.kernlog.node_context import beside_node

        ignore = agent_plan.arguments(item).get("ignore", ())
        known = {(result.outcome.target, result.outcome.reason) for result in known_results}
        standing = current(store, (), self._host.time())
        pairs = [(key, eased(finding)) for key, finding in standing if not ignored(finding, ignore)]
        pairs = self._without_asked([pair for pair in pairs if _place(pair[1]) not in known])
        try:
            pairs, _gone = beside_node(self._host.without_facts(State(self._state.directory, 0.0)), store, pairs)
        except OSError as error:
            self._log(f"findings of the kernel log: {error.strerror}: a round judges them")
            return []
        by_place = {_place(finding): outcome(finding) for _key, finding in pairs}
        return [self._result(item, judged) for judged in by_place.values()]

    def _without_asked(self, pairs: Sequence[Tuple[str, Finding]]) -> List[Tuple[str, Finding]]:
        """The findings without those whose device a round is asking, or has asked, what they mean."""
        from nhc.node.kernlog.device_state import device_decides

        now = self._host.monotonic()
        asked: Dict[str, Tuple[int, float]] = {}
        known: List[Tuple[str, Finding]] = []
        for key, finding in pairs:
            if not device_decides(finding):
                known.append((key, finding))
            elif self._answered.get(key) != finding["count"]:
                _count, since = asked[key] = self._asked.get(key, (finding["count"], now))
                if now - since >= ASKED:
                    known.append((key, finding))
        self._asked = asked
        return known

    def _hurry(self, within: float) -> None:
        """Let a round judge all of it."""
        now = self._host.monotonic()
        self._checks.hurry(
            (key for key, item in self._checks.items.items() if agent_plan.is_kernel_log(item)), now + within
        )
        self._listener.wake()

    def _result(self, item: Item, outcome: Outcome) -> CheckResult:
        return CheckResult(item.name, outcome, 0.0, item.source, item.line, tuple(dict.fromkeys(("kmsg", *item.tags))))

    def end(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults from before the agent's start. Returns what ended."""
        chosen = named(self._state, keys, device, everything=everything)
        ended = acknowledge(self._state, chosen, by, note, self._host.time())
        for fault in list(self.inherited):
            if everything or f"condition/{fault.reason}" in keys:
                self.inherited.remove(fault)
                ended.append(f"condition/{fault.reason}")
        return ended

    def stood(self, sink: str, standing: List[Standing]) -> None:
        """A sink reports the faults that its target already showed before this agent started.

        An agent that was restarted within this boot, and asked the sink before, knows better. Any other agent keeps the
        faults that only the kernel log could tell; faults that a check can judge are judged before anything is cleared.
        """
        if sink in self.adopted:
            return
        self.adopted.add(sink)
        booted = self._host.time() - self._host.monotonic()
        known = {fault.reason for fault in self.inherited} | self._reasons()
        for fault in standing:
            if fault.reason not in known and fault.since >= booted - 60.0 and agent_plan.is_kernel_reason(fault.reason):
                known.add(fault.reason)
                self.inherited.append(fault)
                self._log(
                    note(f"{fault.type}={fault.reason} stood on this node before: it stands until it is acknowledged")
                )
        if standing:
            self._listener.changed()

    def _reasons(self) -> Set[str]:
        return {problem.result.outcome.reason for _key, problem in self._checks.board.problems()}

    def stamp(self) -> Any:
        """A value that changes when a store of findings changes, of /dev/kmsg or of another source."""
        try:
            with os.scandir(self._state.directory) as entries:
                files = [entry for entry in entries if entry.name.startswith(STORE) and entry.name.endswith(".json")]
                return sorted((file.name, file.inode(), file.stat().st_mtime_ns) for file in files)
        except OSError:
            return None


def _place(finding: Finding) -> Place:
    from nhc.node.checks.kmsg import reason_of

    return finding["device"], reason_of(finding["kind"], finding["code"])


def _places(store: LogState) -> Set[Place]:
    """The places for which the log has a finding of any severity."""
    return {_place(finding) for finding in store.get("findings", {}).values()}


def _is_of(result: CheckResult, places: Set[Place]) -> bool:
    """Whether a result belongs to a finding at one of these places, or to the log itself."""
    outcome = result.outcome
    return (outcome.target, outcome.reason) in places or outcome.reason.startswith("KernelLog")


def _inherited(fault: Standing) -> CheckResult:
    message = f"{fault.message} (stood before this agent; nothing has shown it to be gone)"
    outcome = Outcome(Verdict.CRIT, fault.reason, printable(message, 1000))
    return CheckResult(INHERITED, outcome, 0.0, "the agent", f"condition/{fault.reason}")
