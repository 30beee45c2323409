"""The settings that the repair loop runs by, with their defaults. `nhc.remedy.remedy_file` reads them from remedy.toml.

Nothing is enabled by default.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Mapping, NamedTuple, Tuple

from nhc.core.limits import Mode
from nhc.marks.policy.bounds import REPAIRS, Bounds
from nhc.marks.policy.breaker import BreakerSettings
from nhc.marks.policy.devices import DeviceSettings
from nhc.marks.ports.repair import EvidenceBudget, Rung
from nhc.remedy.drill_settings import DrillSettings
from nhc.remedy.reasons import DEFAULTS, ReasonSettings, of_reason
from nhc.remedy.silence import SilenceSettings
from nhc.store import where

HOUR = 3600.0
DAY = 86400.0


class Work(NamedTuple):
    """One step of maintenance: a repairer's rung, or a command (`argv`, as root, by a repairer that runs commands).

    `rung` is also by whose bounds, quiet hours and approvals it goes: a command counts as a reboot unless its
    `counts-as` says otherwise. `takes` is how long its effect may take, in seconds. `verifies` says that a failure is
    the node's and not the work's: it must end with 0.
    """

    rung: Rung
    argv: Tuple[str, ...] = ()
    takes: float = 1800.0
    verifies: bool = False

    @property
    def what(self) -> str:
        """In words, for a person."""
        return f"command {' '.join(self.argv)}" if self.argv else self.rung.value


class EffectTimeouts(NamedTuple):
    """How long the effect of each rung may take (seconds) before the attempt counts as failed.

    Longer than the durations seen in the field: a GPU reset takes seconds, a reboot of a GPU node up to 15 minutes,
    Oracle's soft reset waits 15 minutes for the system, EKS' hook 30, a replacement at Google up to 14 days.
    """

    seconds: Mapping[Rung, float] = {
        Rung.RESTART_APP: 600.0, Rung.RESET_DEVICE: 900.0, Rung.RELOAD_DRIVER: 900.0, Rung.REBOOT: 1800.0,
        Rung.POWER_CYCLE: 2400.0, Rung.REPLACE: 2 * HOUR,
    }  # fmt: skip


class DrainSettings(NamedTuple):
    """How long running work may go on (seconds), and whether a repair is then forced on a busy node.

    `evict` asks work to leave where the adapter can (Kubernetes' evictions, within disruption budgets). `rungs` are
    those that need an idle node.
    """

    deadline: float = DAY
    force: bool = False
    evict: bool = False
    rungs: FrozenSet[Rung] = frozenset(REPAIRS)


class VerifySettings(NamedTuple):
    """When a node counts as repaired.

    `healthy_for` is how long its reports must stay healthy, `deadline` how long a fresh report may take, `grace` how
    long after the effect a failing report is not yet held against the repair (services still start), all in seconds.
    `suite` is the deep suite that must pass, "" for none, `suite_limit` the limit of one run of it. `runner` is who
    runs it, with its settings.
    """

    healthy_for: float = 600.0
    deadline: float = HOUR
    grace: float = 120.0
    suite: str = ""
    suite_limit: float = 1800.0
    runner: str = "ssh"
    runner_settings: Mapping[str, str] = {}


class Sources(NamedTuple):
    """Where faults come from.

    `adapter` names who knows the nodes and marks them, with its `settings`; `reports` are files or directories of
    reports. A report older than `max_age` seconds counts for nothing. A fault must stand for `settle` seconds before an
    episode opens, unless its reason has a time of its own.
    """

    adapter: str = ""
    settings: Mapping[str, str] = {}
    reports: Tuple[str, ...] = ()
    max_age: float = 900.0
    settle: float = 60.0


class RepairerSettings(NamedTuple):
    """One repairer: the name it was registered under, which nodes and rungs it is for, and its own settings.

    `places` says where the file names each setting and the type (`remedy.toml:12: `), for messages.
    """

    name: str
    type: str
    nodes: Tuple[str, ...] = ("*",)
    rungs: FrozenSet[Rung] = frozenset(REPAIRS)
    timeout: float = 30.0
    settings: Mapping[str, str] = {}
    places: Mapping[str, str] = {}


class MachineSettings(NamedTuple):
    """What a repairer needs to know of some nodes (`bmc`, `cluster`…); `{node}` in a value is the node's name."""

    nodes: Tuple[str, ...]
    settings: Mapping[str, str]


class LeaderSettings(NamedTuple):
    """What decides which of several processes leads: the store, or what `nhc.marks.plugins.candidate` knows by name."""

    by: str = "store"
    settings: Mapping[str, str] = {}


class RemedySettings(NamedTuple):
    """All of remedy.toml. Durations are in seconds.

    `every` is the pause between two rounds. `leave_alone` is how long a fault is left after a person took the node in
    entry, unless it ended once. `stalled` is how long a step may wait before it alarms; `wait_limit` how long an
    episode may wait for room in the bounds, or for another actor, before it is escalated to a person; `not_now` how
    long for a repair that nobody can be asked for now (throttled, no answer). An approval that nobody gave within
    `approval_expires` is an escalation.
    """

    path: str = ""
    store: str = where.DEFAULT
    every: float = 30.0
    modes: Mapping[str, Mode] = {}
    bounds: Bounds = Bounds()
    breaker: BreakerSettings = BreakerSettings()
    sources: Sources = Sources()
    reasons: Tuple[ReasonSettings, ...] = DEFAULTS
    silence: SilenceSettings = SilenceSettings()
    drain: DrainSettings = DrainSettings()
    effect: EffectTimeouts = EffectTimeouts()
    verify: VerifySettings = VerifySettings()
    evidence: EvidenceBudget = EvidenceBudget()
    evidence_directory: str = f"{where.DIRECTORY}/evidence"
    evidence_keep: float = 30 * DAY
    evidence_first: bool = False
    leave_alone: float = DAY
    stalled: float = HOUR
    wait_limit: float = DAY
    not_now: float = 2 * HOUR
    approval_expires: float = DAY
    repairers: Tuple[RepairerSettings, ...] = ()
    machines: Tuple[MachineSettings, ...] = ()
    leader: LeaderSettings = LeaderSettings()
    drill: DrillSettings = DrillSettings()
    devices: DeviceSettings = DeviceSettings()

    def mode(self, action: str) -> Mode:
        """What is allowed of an action: `mark`, or a rung."""
        return self.modes.get(action, Mode.DRY_RUN)

    def settle(self, reason: str) -> float:
        """How many seconds a fault of this reason must stand before an episode opens."""
        own = of_reason(reason, self.reasons).settle
        return self.sources.settle if own is None else own

    def rung_modes(self) -> Dict[Rung, Mode]:
        return {rung: self.mode(rung.value) for rung in REPAIRS}

    def dry(self) -> RemedySettings:
        """The same with nothing enabled."""
        return self._replace(modes={name: Mode.DRY_RUN if mode is Mode.ON else mode
                                    for name, mode in self.modes.items()})  # fmt: skip
