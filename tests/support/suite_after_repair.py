"""One episode over a real repairer whose node comes back by `verify.suite` alone, over a real sshd or by a runner."""

from __future__ import annotations

from typing import Any

from nhc.core.model import Action
from nhc.marks.ports.repair import Rung
from nhc.remedy.settings import MachineSettings, RepairerSettings
from nhc.store import attempts, episodes
from nhc.store import nodes as store_nodes
from tests.remedy.test_controller import all_episodes, last
from tests.remedy.test_proving import SuiteNode, proved_by, rounds_until, settings
from tests.support.remedy_world import Node, Sickness, World

ACTIONS = {Rung.REBOOT: Action.REBOOT, Rung.POWER_CYCLE: Action.REBOOT, Rung.REPLACE: Action.REPLACE}


def play(other: Any, passes: bool, store: Any, node: SuiteNode, runner: Any = None) -> None:
    """A fault, the repair by `other` (a world of the repairers' contract), and the suite. Where the other side shows
    what it does, the node is cured by the effect that it shows; else by the call.
    """
    world, name = World(store), other.machine.node
    world.nodes[name] = Node(name)
    machine = other.machine
    shown = store_nodes.NodeDescription(
        name, provider_id=machine.provider_id, uuid=machine.uuid, address=machine.address, labels=machine.labels
    )
    with store.write() as connection:
        store_nodes.describe(connection, [shown])
    if not passes:
        (node.place / "slow").touch()
    controller = world.controller(settings(node), suite=proved_by(world, runner or node.runner()))
    repairers = controller.flow.actuators.repairers
    repairers.machines = (MachineSettings((name,), machine.settings),)
    repairers.entries[0] = repairers.entries[0]._replace(
        settings=RepairerSettings("other", "other", rungs=frozenset({other.rung})), repairer=other.repairer
    )
    world.fall_sick(name, Sickness(ACTIONS[other.rung], other.rung))
    seen = [0]

    def sent() -> int:
        with store.read() as connection:
            rows = episodes.list_episodes(connection, node=name)
            return sum(len(attempts.attempts_of(connection, row.id)) for row in rows)

    def goes_on() -> bool:
        """What the other side does, and what the node shows of it."""
        if sent() > seen[0]:
            seen[0] = sent()
            other.take_effect()
            world.nodes[name].silent = True  # a machine without power reports nothing
        halfway = other.rung is Rung.POWER_CYCLE and last(world, name).state != "verifying"
        if seen[0] and not halfway and world.nodes[name].sick:
            world.nodes[name].boot += 1
            world.nodes[name].sick.clear()
            world.nodes[name].silent = False
        return bool(all_episodes(world, name)) and last(world, name).state in ("returned", "escalated")

    rounds_until(world, controller, goes_on)
    assert last(world, name).state == ("returned" if passes else "escalated"), last(world, name).outcome
    assert world.cleared == ([name] if passes else [])
    assert node.runs() == (1 if passes else 2)  # a failure is looked at twice
