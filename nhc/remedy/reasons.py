"""The settings for single reasons: how long the fault must last, and where its ladder begins. Pure."""

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
    """The settings for faults whose reason matches `pattern`.

    `settle` is how long (seconds) the fault must last before an episode opens, None for `sources.settle`. `begin` is
    the rung at which the ladder begins for it, None for the fault's own suggestion; ESCALATE leaves it to a person.
    `ignored`: it opens no episode, and a node without other faults counts as healthy.
    """

    pattern: str
    settle: Optional[float] = declared.seconds("settle", None, shown='"5m"')
    begin: Optional[Rung] = declared.choice(
        "begin", {**{rung.value: rung for rung in Rung}, "ignore": IGNORE}, None, shown='"reboot"'
    )
    ignored: bool = False

    def checked(self, _table: Table) -> ReasonSettings:
        """The same, with "ignore" applied."""
        return self._replace(begin=None, ignored=True) if self.begin is IGNORE else self


DEFAULTS: Tuple[ReasonSettings, ...] = (
    ReasonSettings(SILENT, 300.0, Rung.POWER_CYCLE),
    ReasonSettings(NOT_READY, 300.0, Rung.REBOOT),
    ReasonSettings(RECLAIM, 0.0),
)
"""Silent nodes: 300 s is what medik8s' NodeHealthCheck waits, and slurm.conf's SlurmdTimeout; GKE's auto-repair waits
10 minutes, EKS' node repair 30. A silent node can carry out no request: begin with its power. A machine that the cloud
takes away is gone before any settle time ends."""


def of_reason(reason: str, given: Sequence[ReasonSettings]) -> ReasonSettings:
    """The settings for a reason; the first matching pattern counts."""
    return next((settings for settings in given if fnmatchcase(reason, settings.pattern)), ReasonSettings(reason))


def applied(faults: Sequence[NodeFault], given: Sequence[ReasonSettings]) -> List[NodeFault]:
    """Faults with the settings for their reasons, without the ignored ones."""
    counted = []
    for fault in faults:
        wanted = of_reason(fault.reason, given)
        if not wanted.ignored:
            counted.append(fault._replace(begin=wanted.begin.value) if wanted.begin is not None else fault)
    return counted
