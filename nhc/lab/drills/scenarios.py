"""The scenarios: complaints of users of other repair loops, each played against this loop and its policy.

Each names its issues. A scenario lists what happens in the made-up world, step by step, and what the result must be.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.model import Action
from nhc.lab.drills.world import DrillFault, DrillWorld
from nhc.marks.ports.repair import Rung
from nhc.store.episodes import Episode


class Stand(NamedTuple):
    """How far a drill is: the world, the drilled node, seconds since the beginning, and its episodes so far."""

    world: DrillWorld
    node: str
    since: float
    episodes: Sequence[Episode]

    @property
    def last(self) -> Optional[Episode]:
        return self.episodes[-1] if self.episodes else None

    @property
    def state(self) -> str:
        """The newest episode's, "" for none."""
        return self.last.state if self.last is not None else ""

    def rungs(self) -> List[Rung]:
        """The orders that reached the drilled node."""
        return [order.rung for order in self.world.sent if order.node == self.node]


class Scenario(NamedTuple):
    """One drill.

    `begin` sets the scene, `act` is called before each round, `expect` says what should have come of it and did not, ""
    where all is well. `over` says that nothing more is to come; without it a drill is over when the episode has ended.
    `nodes` is how many nodes the fleet has, 0 for what was asked for. `first_day`: marking was never enabled before.
    """

    name: str
    issue: str
    says: str
    begin: Callable[[Stand], None]
    expect: Callable[[Stand], str]
    act: Callable[[Stand], None] = lambda _stand: None
    over: Optional[Callable[[Stand], bool]] = None
    nodes: int = 0
    first_day: bool = False


def _fault(fault: DrillFault = DrillFault()) -> Callable[[Stand], None]:  # noqa: B008 (a value)
    def begin(stand: Stand) -> None:
        stand.world.fall_sick(stand.node, fault)

    return begin


def _ends(state: str, rungs: Sequence[Rung]) -> Callable[[Stand], str]:
    """The episode ended so, and these orders reached the node, in this order."""

    def expect(stand: Stand) -> str:
        if stand.state != state:
            why = stand.last.outcome if stand.last is not None else "no episode was opened"
            return f"it is {stand.state or 'nothing'}, not {state}: {why}"
        sent_rungs = ", ".join(rung.value for rung in stand.rungs()) or "nothing"
        return "" if stand.rungs() == list(rungs) else f"{sent_rungs} was sent to the node"

    return expect


def _busy(stand: Stand) -> None:
    _fault()(stand)
    stand.world.work_runs(stand.node, True)


def _answers(*moods: str) -> Callable[[Stand], None]:
    def begin(stand: Stand) -> None:
        _fault()(stand)
        stand.world.answer(*moods)

    return begin


def _when(state: str, work: Callable[[Stand], None]) -> Callable[[Stand], None]:
    """Something happens once, when the episode is in a state."""
    done: List[int] = []

    def act(stand: Stand) -> None:
        if stand.state == state and id(stand.world) not in done:
            done.append(id(stand.world))
            work(stand)

    return act


def _resumed(stand: Stand) -> None:
    stand.world.operator_resumes(stand.node)
    stand.world.work_runs(stand.node, False)


def _drained(stand: Stand) -> None:
    stand.world.operator_drains(stand.node)
    stand.world.work_runs(stand.node, False)


def _storm(stand: Stand) -> None:
    for name in stand.world.fleet:
        stand.world.fall_sick(name, DrillFault())


def _after(seconds: float) -> Callable[[Stand], bool]:
    return lambda stand: stand.since >= seconds


def _not_one_more(stand: Stand) -> str:
    whole = len(stand.world.fleet)
    return "" if stand.world.most_out < whole else f"all {whole} nodes were taken out"


def _nothing_done(stand: Stand) -> str:
    if stand.episodes or stand.world.marked or stand.world.sent:
        return f"{len(stand.world.marked)} marks and {len(stand.world.sent)} repairs, where nothing was known"
    return ""


def _relapse(stand: Stand) -> None:
    if stand.state == "returned" and not stand.world.fleet[stand.node].faults:
        _fault()(stand)


def _relapsed(stand: Stand) -> str:
    return (
        "" if stand.state == "escalated" else f"after {len(stand.rungs())} repairs it is {stand.state}, not escalated"
    )


def _two_faults(stand: Stand) -> None:
    """Two checks fail, and their results come in another order each time."""
    if stand.rungs():
        return
    names = ["DrillA", "DrillB"]
    ordered = names if int(stand.world.now // 15) % 2 == 0 else names[::-1]
    stand.world.fall_sick(stand.node, *map(DrillFault, ordered))


def _orders_say_why(stand: Stand) -> str:
    bad = _ends("returned", [Rung.REBOOT])(stand)
    if bad or not stand.world.sent:
        return bad
    order = stand.world.sent[0]
    return "" if order.because and order.episode and order.key else "an order says neither why nor for which episode"


def _away(stand: Stand) -> None:
    stand.world.scheduler_away(stand.state == "draining" and stand.since < 600)
    if stand.since >= 600:
        stand.world.work_runs(stand.node, False)


def _killed_once(moment: str) -> Callable[[Stand], None]:
    def begin(stand: Stand) -> None:
        _fault()(stand)
        left = [1]

        def kill(what: str) -> bool:
            if what == moment and left:
                left.clear()
                return True
            return False

        stand.world.kill_at(kill)

    return begin


def _claimed(stand: Stand) -> None:
    _fault()(stand)
    stand.world.claim(stand.node, "replaces it")


def _claim_ends(stand: Stand) -> None:
    if stand.since >= 900:
        stand.world.claim(stand.node, "")


def _no_effect(stand: Stand) -> None:
    _fault(DrillFault(action=Action.REPLACE, cure=Rung.REPLACE))(stand)
    stand.world.never_works(stand.node)


def _services_start(stand: Stand) -> None:
    """For a minute after the boot a service's check fails."""
    node = stand.world.fleet[stand.node]
    if node.boot > 1:
        early = stand.world.now - node.booted < 60
        stand.world.fall_sick(stand.node, *([DrillFault("DrillStarting", cure=Rung.ESCALATE)] if early else []))


def _two_at_once(stand: Stand) -> None:
    for name in [*sorted(stand.world.fleet)[:1], stand.node]:
        stand.world.fall_sick(name, DrillFault())


def _somebody_was_repaired(stand: Stand) -> str:
    return "" if stand.world.sent else "no node was repaired"


_OUTAGE = DrillFault("DrillOutage", Action.INSPECT, Rung.ESCALATE)


def _outage_begins(stand: Stand) -> None:
    """Four nodes notice it before the others, which are too few for the breaker."""
    for name in sorted(stand.world.fleet)[:4]:
        stand.world.fall_sick(name, _OUTAGE)


def _outage_spreads_and_ends(stand: Stand) -> None:
    """The others notice it once the first node is out for it; five minutes later it is over."""
    if not stand.world.marked:
        return
    over = stand.world.now - stand.world.marked[0][0] > 300
    for name in stand.world.fleet:
        stand.world.fall_sick(name, *([] if over else [_OUTAGE]))


def _all_are_back(stand: Stand) -> str:
    left = sorted(node.name for node in stand.world.fleet.values() if not node.available)
    return f"{len(left)} healthy nodes are out of service: {', '.join(left)}" if left else ""


REBOOTED = _ends("returned", [Rung.REBOOT])

ALL: Sequence[Scenario] = (
    Scenario("fault", "", "A fault, a repair, a healthy node.", _fault(), REBOOTED),
    Scenario("flapping", "aws/eks-node-monitoring-agent#39", "Two checks fail in turn under one fault.",
             _two_faults, REBOOTED, _two_faults),
    Scenario("slow-services", "aws/eks-node-monitoring-agent#266", "After the boot a service fails for a minute.",
             _fault(), REBOOTED, _services_start),
    Scenario("unknown", "aws/containers-roadmap#2555", "Nothing can be checked: nothing may be done.",
             lambda stand: stand.world.cannot_tell(stand.node), _nothing_done, over=_after(3600)),
    Scenario("storm", "kubernetes-sigs/karpenter#2811", "Every node fails at once: bounds and breaker must hold.",
             _storm, _not_one_more, over=_after(2 * 3600)),
    Scenario("small-fleet", "kubernetes-sigs/karpenter#2134", "One node of three fails: a share of three must be one.",
             _fault(), REBOOTED, nodes=3),
    Scenario("first-start", "planetlabs/draino#54", "The loop starts for the first time, and nodes are sick already.",
             _two_at_once, _somebody_was_repaired, over=_after(2 * 3600), first_day=True),
    Scenario("breaker", "NVIDIA/NVSentinel#1852", "The breaker opens during a repair: the node must come back.",
             _fault(), REBOOTED, _when("watching", lambda stand: stand.world.open_breaker())),
    Scenario("busy", "kubernetes-sigs/karpenter#2042", "Work on the node never ends: the drain has a deadline.",
             _busy, lambda stand: "" if stand.state in ("escalated", "returned") else f"it is {stand.state} for ever"),
    Scenario("never-ready", "aws/karpenter-provider-aws#8629", "A replacement never becomes ready.",
             _no_effect, _ends("escalated", [Rung.REPLACE])),
    Scenario("replayed-event", "NVIDIA/NVSentinel#1280", "The old report comes again after the node was returned.",
             _fault(), REBOOTED, over=lambda stand: stand.state == "returned" and stand.since > 7200),
    Scenario("lost-answer", "NVIDIA/NVSentinel#1807", "The repair takes effect and its answer is lost.",
             _answers("lost"), REBOOTED),
    Scenario("dropped-call", "NVIDIA/NVSentinel#1808", "No answer, and no effect: the next rung, not the same again.",
             _answers("dropped"), _ends("returned", [Rung.POWER_CYCLE])),
    Scenario("throttled", "", "The provider refuses for now.", _answers("throttled"), REBOOTED),
    Scenario("soft-then-hard", "NVIDIA/NVSentinel#1818", "The reboot does not cure: the harder rung follows.",
             _fault(DrillFault(cure=Rung.POWER_CYCLE)), _ends("returned", [Rung.REBOOT, Rung.POWER_CYCLE])),
    Scenario("trace", "NVIDIA/NVSentinel#1688", "The order says why, and for which episode.",
             _fault(), _orders_say_why),
    Scenario("operator-resumes", "planetlabs/draino#17", "A person puts the node back while it drains.",
             _busy, _ends("withdrawn", []), _when("draining", _resumed)),
    Scenario("operator-drains", "awesomenix/drainsafe#1", "A person takes the node while it drains.",
             _busy, _ends("withdrawn", []), _when("draining", _drained)),
    Scenario("relapsing", "pfnet-research/node-operation-controller#31", "It is well for a while, and fails again.",
             _fault(), _relapsed, _relapse, over=lambda stand: stand.state == "escalated"),
    Scenario("healthy-again", "medik8s/self-node-remediation#159", "The node recovers while it drains.",
             _busy, _ends("returned", []), _when("draining", lambda stand: stand.world.fall_sick(stand.node))),
    Scenario("killed-while-sending", "kubereboot/kured#63", "The loop is killed right after the repair was sent.",
             _killed_once("after an order"), REBOOTED),
    Scenario("killed-while-returning", "kubereboot/kured#63", "The loop is killed right after the mark was cleared.",
             _killed_once("after marks are cleared"), REBOOTED),
    Scenario("scheduler-away", "cybozu-go/neco#2298", "The scheduler does not answer for minutes; the mark stays.",
             _busy, REBOOTED, _away),
    Scenario("silent-after-report", "", "One healthy report after the repair, and then none: it proves nothing.",
             _fault(), _ends("escalated", [Rung.REBOOT]),
             _when("verifying", lambda stand: stand.world.fall_silent(stand.node))),
    Scenario("automaton-uncordons", "NVIDIA/k8s-driver-manager#212", "A program puts the node back after the reboot.",
             _fault(), REBOOTED, _when("verifying", lambda stand: stand.world.automaton_uncordons(stand.node))),
    Scenario("goes-on", "", "The fault goes on whatever is done: each repair once, then a person.",
             _fault(DrillFault(cure=Rung.ESCALATE)),
             _ends("escalated", [Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE])),
    Scenario("shared-outage", "", "A shared file system is away for minutes: every node comes back by itself.",
             _outage_begins, _all_are_back, _outage_spreads_and_ends, over=_after(2 * 3600)),
    Scenario("other-actor", "two repairers on one node", "The platform repairs the node for a quarter of an hour.",
             _claimed, REBOOTED, _claim_ends),
)  # fmt: skip

BY_NAME: Mapping[str, Scenario] = {scenario.name: scenario for scenario in ALL}
