"""The last check before something destructive is sent, the same for the loop and for trains, while they lead.

Many machines may have been observed since everything was read, and each provider took its time: what a person has
ordered meanwhile (hold, abort, breaker) or done to the node counts, and so do the hours of the policy.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.core.model import DeviceId
from nhc.core.system.service_log import failure
from nhc.marks.policy.bounds import Bounds, never_now
from nhc.marks.ports.adapter import OWNER, NodeState
from nhc.marks.ports.marks import in_service_beside, machine_held, work_on_machine
from nhc.remedy import of_device
from nhc.remedy.actuators import Actuators
from nhc.store import episodes
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode

HeldNow = Callable[[Connection, Sequence[Tuple[str, int]], float], List[str]]
"""For each of some nodes, why nothing may be sent now: a hold other than the one whose number is given with the node,
or the open breaker; "" if it may.
"""


PUT_BACK = "somebody put the node back into service"
REGISTERED_ANEW = "the node was deleted, and registered anew"


class ToSend(NamedTuple):
    """A stored action that is about to be sent, unless its episode has changed since it was `written`.

    `action` is bounded by the policy's hours, "" for work that is half done. `own_hold` is the number of our own hold.
    `about` is the one accelerator that it is for, if the rest of the node stays at work.
    """

    key: str
    node: str
    written: Episode
    action: str
    needs_idle: bool
    forced: bool = False
    own_hold: int = 0
    about: DeviceId = DeviceId()


def taken(node: NodeState, repaired: bool = False) -> str:
    """Who has taken over a node that carried our mark, "" if it is still ours. `repaired`: its repair was begun and is
    not proved yet. If a part of the mark is undone then, it was automation that ends its own work at a boot.
    """
    mark = node.mark
    if node.available and not (repaired and node.undone):
        return PUT_BACK
    if mark is not None and mark.ours:
        return ""
    by = (mark.owner or "somebody else") if mark is not None else "somebody else, with no reason given"
    return f"the node is out by {by} now: {mark.why if mark is not None else node.shown}"


def lent(node: Optional[NodeState]) -> bool:
    """Whether the mark of a node that the loop or a train has taken out cannot keep it out: it is the mark of hooks,
    which they clear after a healthy report (nhc set that one before the loop had a mark of its own), or the scheduler
    puts the node back by itself. It can be set again unless the scheduler is working on the node.
    """
    return (
        node is not None and not node.available and not node.hold and node.mark is not None
        and (node.mark.owner == OWNER or (node.mark.ours and node.returns))
    )  # fmt: skip


def busy_again(node: NodeState, needs_idle: bool, forced: bool) -> str:
    """The work that a repair would end, "" for none: work on the node's machine, unless the repair needs no idle
    machine. A `forced` repair ends work that has outlasted the drain, and none on nodes that were not drained.
    """
    return (in_service_beside(node) if forced else work_on_machine(node)) if needs_idle else ""


def unfit(node: Optional[NodeState], needs_idle: bool, forced: bool = False) -> str:
    """Why nothing must be sent to a node, by its current state; "" to send it."""
    if node is None:
        return "the cluster does not know the node any more"
    return busy_again(node, needs_idle, forced) or taken(node) or machine_held(node)


def held_back(
    orders: Sequence[ToSend], store: Store, fence: Optional[Fence], actuators: Actuators, bounds: Bounds, held: HeldNow,
    clock: Callable[[], float],
) -> Dict[str, str]:  # fmt: skip
    """The actions that must not be sent after all, and why; "" if the row was changed. Raises StoreError."""
    try:
        states = {state.name: state for state in actuators.states([order.node for order in orders])}
        alone = [order.node for order in orders if order.about.known]
        devices = actuators.device_states(alone) if alone else []
        blind = ""
    except Exception as error:
        states, devices, blind = {}, [], f"the cluster cannot be asked about its nodes: {failure(error)}"
    reasons: Dict[str, str] = {}
    beside = of_device.by_node(devices)
    with store.write(fence) as connection:  # under the fence: only the leader sends
        standing = episodes.lock_as_read(connection, [order.written for order in orders])
        holds = held(connection, [(order.node, order.own_hold) for order in orders], clock())
        for order, hold in zip(orders, holds):
            if order.written.id not in standing:
                reasons[order.key] = ""
                continue
            state = states.get(order.node)
            if state is not None and order.about.known:
                state = of_device.state_of(state, order.about, beside.get(order.node, ()))
            why = hold or blind or unfit(state, order.needs_idle, order.forced)
            closed = never_now(bounds, order.action, order.node, clock()) if order.action else None
            why = why or (closed.why if closed is not None else "")
            if why:
                reasons[order.key] = why
    return reasons
