"""The calls that a train makes for nodes: mark, clear, begin work once, watch it, send the call that follows it."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

from nhc.model import Action, printable
from nhc.ports.adapter import AdapterError, Applied, Mark
from nhc.ports.repair import Answer, Completes, Machine, Order, RunsCommands, Sent, Sighting
from nhc.remedy.book import sighting_in
from nhc.remedy.crew import Crew, Hand
from nhc.remedy.effects import Hands, Looked, Watched, applied
from nhc.remedy.ladder import Ability
from nhc.trains.book import Ride
from nhc.trains.settings import TrainPlan, Work


class TrainHands:
    """The loop's adapter and repairers, as a train uses them."""

    def __init__(self, hands: Hands, plan: TrainPlan) -> None:
        self.hands, self.plan = hands, plan

    @property
    def crew(self) -> Crew:
        return self.hands.crew

    # Who can.

    def choose(self, node: str, work: Work) -> Tuple[Optional[Hand], Ability]:
        """Who does a piece of work on a node; None, and why nobody does."""
        if not work.argv:
            return self.crew.choose(node, work.rung, "")
        machine, said = self.crew.machine(node), []
        for hand in self.crew.hands:
            repairer: object = hand.repairer
            if not hand.serves(node) or not isinstance(repairer, RunsCommands):
                continue
            why = repairer.can_run(machine)
            if not why:
                return hand, Ability()
            said.append(f"{hand.name}: {why}")
        return None, Ability("; ".join(said) or "no repairer that runs commands on this node is set up (type node)")

    def can(self, node: str, work: Work) -> Ability:
        """Whether somebody can do a piece of work on a node."""
        return self.choose(node, work)[1]

    # Marks.

    def mark(self, nodes: Sequence[str], now: float) -> Dict[str, Applied]:
        """Take nodes out of service, with the train's name as the reason."""
        why = f"train {self.plan.name}: {self.plan.why}"
        mark = Mark(printable(why, 200), Action.NONE, now, cause=f"train|{self.plan.name}|")
        return applied(nodes, lambda: self.hands.marker.mark(dict.fromkeys(nodes, mark)))

    def clear(self, nodes: Sequence[str]) -> Dict[str, Applied]:
        """Put nodes back that carry our mark."""
        return applied(nodes, lambda: self.hands.marker.clear(list(nodes)))

    # Work.

    def look(self, nodes: Sequence[Tuple[str, Work]]) -> Dict[str, Looked]:
        """See machines and who else acts on them, right before work."""
        found = self.hands.each(self._look, nodes)
        return {node: looked for (node, _work), looked in zip(nodes, found)}

    def _look(self, one: Tuple[str, Work]) -> Looked:
        node, work = one
        hand, ability = self.choose(node, work)
        if hand is None:
            return Looked(None, ability.why, "")
        return self.hands.look_by(hand, node)

    def _order(self, ride: Ride) -> Optional[Tuple[Hand, Order, Work]]:
        act = ride.act
        hand = self.crew.hand(act.repairer) if act is not None else None
        if act is None or hand is None:
            return None
        work = self.plan.work[act.step]
        because = printable(f"train {self.plan.name}: {self.plan.why}", 200)
        order = Order(act.key, f"train {self.plan.name}", act.step + 1, self._machine(ride), work.rung, because)
        return hand, order, work

    def _machine(self, ride: Ride) -> Machine:
        """The machine that was looked at right before: the store's boot may be the one before the last step's."""
        return self.crew.machine(ride.row.node, ride.detail.boot)

    def send(self, ride: Ride) -> Sent:
        """Begin the work that was written down, once."""
        found = self._order(ride)
        if found is None:
            return Sent(Answer.REFUSED, "its repairer is not in the settings any more")
        hand, order, work = found
        try:
            if not work.argv:
                return hand.repairer.send(order)
            repairer: object = hand.repairer
            if not isinstance(repairer, RunsCommands):
                return Sent(Answer.REFUSED, f"{hand.name} runs no commands")
            return repairer.run_command(order, work.argv, work.takes)
        except Exception as error:  # its contract forbids it; what was sent by then nobody knows
            return Sent(Answer.AMBIGUOUS, printable(f"{hand.name} failed: {type(error).__name__}: {error}", 200))

    def watch(self, rides: Sequence[Ride]) -> Dict[str, Watched]:
        """How far work is."""
        return {ride.row.node: seen for ride, seen in zip(rides, self.hands.each(self._watch, rides))}

    def _watch(self, ride: Ride) -> Watched:
        found = self._order(ride)
        if found is None or ride.act is None:
            return Watched(None, "its repairer is not in the settings any more")
        hand, order, _work = found
        try:
            return Watched(hand.repairer.progress(order, _answer(ride), _before(ride)))
        except AdapterError as error:
            return Watched(None, printable(str(error)))

    def complete(self, ride: Ride) -> Sent:
        """Send the call that follows the first one, after it was written down."""
        found = self._order(ride)
        repairer: object = found[0].repairer if found is not None else None
        if found is None or not isinstance(repairer, Completes):
            return Sent(Answer.REFUSED, "there is no call that follows the first")
        try:
            return repairer.complete(found[1], _answer(ride))
        except Exception as error:
            return Sent(Answer.AMBIGUOUS, printable(f"{found[0].name}: {type(error).__name__}: {error}", 200))


def _answer(ride: Ride) -> Sent:
    """The answer to the work as it was written down, or to the last call that followed it."""
    act, detail = ride.act, ride.detail
    assert act is not None
    answer = Answer.ACCEPTED if act.state == "sent" else Answer.AMBIGUOUS
    if detail.follow_id or detail.follow_message:
        return Sent(answer, detail.follow_message, detail.follow_id or act.request_id)
    return Sent(answer, act.message, act.request_id)


def _before(ride: Ride) -> Sighting:
    assert ride.act is not None
    return sighting_in(ride.act.before)
