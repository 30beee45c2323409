"""What a train's round sees before it decides: what the loop sees, but for faults and requests."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Optional, Tuple

from nhc.core.system.steady_time import SteadyTime
from nhc.marks.ports.adapter import ConditionReport
from nhc.remedy import counting, health
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import EpisodeCase
from nhc.remedy.machine import EpisodeState
from nhc.remedy.observer import Base, Observer
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.store import episodes

Reports = Callable[[], Iterable[ConditionReport]]


class TrainObserver(Observer):
    """Reads for one train."""

    def __init__(self, records: Records, settings: RemedySettings, actuators: Actuators, reports: Reports) -> None:
        super().__init__(records.store, settings, actuators, records, reports, None, None)
        self._suites: Dict[str, Tuple[str, float]] = {}

    def begin(self, now: float) -> Base:
        """Read what a round needs. Raises StoreError."""
        self._forget()
        states = self.states(None)
        self.actuators.repairers.learn_machines()
        reported = self.reported()
        with self.store.read() as connection:
            self.fleet = counting.fleet(connection, states or ())
            cases = [case for case in self.records.cases(connection) if case.state is not EpisodeState.PLANNED]
            others = self.records.note_others(connection)
            devices = self.devices(cases, admitting=True)
            counted = self._count(connection, [*cases, *others], states, devices, now)
            repairing = {row.node: row.id for row in episodes.list_episodes(connection, is_open=True)}
            self._suites = health.by_suite(connection, self.fleet.names, self.settings.verify.suite)
        own = health.reported(reported, self.fleet.names, "adapter")
        return Base(now, states, own, (), counted, repairing=repairing)

    def proved(self, case: EpisodeCase, time: SteadyTime) -> Optional[bool]:
        """What the newest verdict of the deep suite says, None where it is older than the work, or could not tell."""
        verdict, at = self._suites.get(case.episode.node, ("", 0.0))
        newer = at > time.moment(case.detail.repaired)
        return {"OK": True, "WARN": True, "CRIT": False}.get(verdict) if newer else None
