"""What the settings say of single reasons: how long the fault must stand, and where its ladder begins. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.marks.ports.repair import Rung
from nhc.remedy.ladder import RECLAIM, NodeFault
from nhc.remedy.silence import NOT_READY, SILENT

IGNORE: Any = "ignore"


@declared.settings
class ReasonSettings(NamedTuple):
    """What holds for the faults whose reason matches `pattern`.

    `settle` is how long (seconds) such a fault must stand before an episode opens, None for `sources.settle`. `begin`
    is the rung at which the ladder begins for it, None for what the fault itself suggests; ESCALATE gives it to a
    person. `ignored`: it opens nothing, and a node that has nothing else counts as healthy.
    """

    pattern: str
    settle: Optional[float] = declared.seconds("settle", None, shown='"5m"')
    begin: Optional[Rung] = declared.choice(
        "begin", {**{rung.value: rung for rung in Rung}, "ignore": IGNORE}, None, shown='"reboot"'
    )
    ignored: bool = False

    def checked(self, _table: Table) -> ReasonSettings:
        """The same, with what "ignore" means."""
        return self._replace(begin=None, ignored=True) if self.begin is IGNORE else self


DEFAULTS: Tuple[ReasonSettings, ...] = (
    ReasonSettings(SILENT, 300.0, Rung.POWER_CYCLE),
    ReasonSettings(NOT_READY, 300.0, Rung.REBOOT),
    ReasonSettings(RECLAIM, 0.0),
)
"""Silent nodes: 300 s is what medik8s' NodeHealthCheck waits, and slurm.conf's SlurmdTimeout; GKE's auto-repair waits
10 minutes, EKS' node repair 30. A node that nothing hears can be asked for nothing: begin with its power. A machine
that the cloud takes away is gone before anything has settled."""


def of_reason(reason: str, given: Sequence[ReasonSettings]) -> ReasonSettings:
    """What the settings say of a reason; the first pattern that fits counts."""
    return next((settings for settings in given if fnmatchcase(reason, settings.pattern)), ReasonSettings(reason))


def applied(faults: Sequence[NodeFault], given: Sequence[ReasonSettings]) -> List[NodeFault]:
    """Faults with what the settings say of their reasons, without those that count for nothing."""
    counted = []
    for fault in faults:
        wanted = of_reason(fault.reason, given)
        if not wanted.ignored:
            counted.append(fault._replace(begin=wanted.begin.value) if wanted.begin is not None else fault)
    return counted
