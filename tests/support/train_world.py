"""Trains over the world of the remedy loop's tests."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from nhc.remedy import counting
from nhc.remedy.actuators import Actuators
from nhc.remedy.episode_flow import EpisodeLoop, EpisodeRound
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.settings import RepairerSettings
from nhc.remedy.trains import train_operators
from nhc.remedy.trains.maintenance import TrainWork
from nhc.remedy.trains.settings import TrainPlan, parse
from nhc.remedy.trains.waves import take
from nhc.store import trains
from nhc.store.database import Fence
from tests.support.remedy_world import FakeMarker, FakeRepairer, World, settings_of

PLAN = """
name = "kernel"
why = "a new kernel"
nodes = ["n*"]
every = "1s"
[[work]]
rung = "reboot"
takes = "10m"
[waves]
first = 1
size = "3"
pause = "2m"
[verify]
healthy-for = "1m"
grace = "0s"
deadline = "20m"
"""


class Line:
    """A train of a world, and the process that carries it out."""

    def __init__(self, world: World, plan: str = PLAN, settings: str = "") -> None:
        self.world, self.plan = world, parse(plan, "train.toml")
        self.settings = settings_of(settings)
        world.report()

    def actuators(self) -> Actuators:
        """The adapter and the repairer, as a new process makes them."""
        entry = RepairerEntry(RepairerSettings("fake", "fake"), FakeRepairer(self.world))
        return Actuators(FakeMarker(self.world), Repairers([entry]), workers=0)

    def engine(self, fence: Optional[Fence] = None) -> EpisodeLoop:
        """A process that has just been started."""
        made = TrainWork(self.world, self.settings, self.plan, self.actuators(), fence=fence)  # type: ignore[arg-type]
        return made.loop(clock=lambda: self.world.now, monotonic=lambda: self.world.ticks)

    def begin(self, by: str = "alice") -> List[List[str]]:
        """Write the train down; its waves."""
        states = FakeMarker(self.world).nodes()
        with self.world.plain.write() as connection:
            taken = take(self.plan, counting.fleet(connection, states).groups, self.settings.bounds)
        train_operators.begin(self.world.plain, self.plan, taken, by=by, now=self.world.now)
        return [list(wave) for wave in taken.waves]

    def agree(self, by: str) -> None:
        train_operators.agree(self.world.plain, self.plan.name, by=by, why="", now=self.world.now)

    def run(self, rounds: int = 80, seconds: float = 20.0, engine: Optional[EpisodeLoop] = None) -> List[EpisodeRound]:
        """Rounds until the train ends."""
        found, engine = [], engine or self.engine()
        for _ in range(rounds):
            found.append(engine.round())
            if self.train().ended is not None:
                break
            self.world.tick(seconds)
        return found

    def train(self) -> Any:
        with self.world.plain.read() as connection:
            return trains.get(connection, self.plan.name)

    def rows(self) -> Dict[str, Any]:
        with self.world.plain.read() as connection:
            return {row.node: row for row in trains.nodes_of(connection, self.train().id)}

    def states(self) -> Dict[str, str]:
        return {name: row.state for name, row in self.rows().items()}


def plan_of(**replaced: str) -> str:
    """PLAN with other texts in the place of its own: `plan_of(work=...)` replaces [[work]] and so on."""
    text = PLAN
    for key, value in replaced.items():
        start = text.index("[[work]]" if key == "work" else f"[{key}]")
        end = text.find("\n[", start + 1)
        text = text[:start] + value.strip() + "\n" + (text[end + 1 :] if end >= 0 else "")
    return text


__all__ = ["PLAN", "Line", "TrainPlan", "plan_of"]
