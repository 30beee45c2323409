"""The settings that the repair loop runs by, with their defaults. `nhc.remedy.remedy_file` reads them from remedy.toml.

Nothing is enabled by default.
"""

from __future__ import annotations

import os
from typing import Dict, FrozenSet, Mapping, NamedTuple, Tuple

from nhc.core.limits import Mode
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.core.system import otlp
from nhc.marks import plugins
from nhc.marks.policy import policy_file
from nhc.marks.policy.bounds import ACTIONS, AT_FIRST, FLEET, MARK, OWN, REPAIRS, RUNGS, Bounds, read_bounds
from nhc.marks.policy.breaker import BreakerSettings
from nhc.marks.policy.devices import DeviceSettings
from nhc.marks.ports.repair import EvidenceBudget, Rung
from nhc.remedy.reasons import DEFAULTS, ReasonSettings, of_reason
from nhc.remedy.silence import SilenceSettings
from nhc.store import location


@declared.settings
class DrillSettings(NamedTuple):
    """`nhc` is the command on the node. `kernel` is a fault of `nhc inject --list`, `device` what its line names ("":
    the fault's own example). `file_system` is the mount point that is filled ("": none may be), `fill_to` how full (a
    share). `recover` is how long (seconds) the node's reports may take to say that the fault is over.
    """

    nhc: str = declared.text("nhc", "/usr/bin/nhc")
    kernel: str = declared.text("kernel", "md-failed", "a fault of `nhc inject --list` that asks for an inspection")
    device: str = declared.text("device", "", "the device that its line names", shown='"md0"')
    file_system: str = declared.text("file-system", "", "the small file system that may be filled", shown='"/scratch"')
    fill_to: float = declared.share("fill-to", 0.97, "and how full", least=0.01, most=0.99)
    recover: float = declared.seconds(
        "recover", 900.0, "how long the node's reports may take to say that the fault is over", least=1.0
    )

    def checked(self, table: Table) -> DrillSettings:
        """The same. Raises SettingsError where a path is none."""
        for key, path in (("nhc", self.nhc), ("file-system", self.file_system)):
            if path and not path.startswith("/"):
                raise table.wrong(key, "a whole path")
        return self


HOUR = 3600.0
DAY = 86400.0
MODES = {mode.value: mode for mode in Mode}


class Work(NamedTuple):
    """One step of maintenance: a repairer's rung, or a command (`argv`, as root, by a repairer that runs commands).

    The bounds, quiet hours and approvals of `rung` apply to it: a command counts as a reboot unless its `counts-as`
    says otherwise. `takes` is how long its effect may take, in seconds. `verifies` says that a failure is the node's,
    not the work's: it must end with 0.
    """

    rung: Rung
    argv: Tuple[str, ...] = ()
    takes: float = 1800.0
    verifies: bool = False

    @property
    def what(self) -> str:
        """In words, for a person."""
        return f"command {' '.join(self.argv)}" if self.argv else self.rung.value


@declared.settings
class EffectTimeouts(NamedTuple):
    """How long the effect of each rung may take (seconds) before the attempt counts as failed.

    Longer than the durations seen in the field: a GPU reset takes seconds, a reboot of a GPU node up to 15 minutes,
    Oracle's soft reset waits 15 minutes for the system, EKS' hook 30, a replacement at Google up to 14 days.
    """

    seconds: Mapping[Rung, float] = declared.by_word("", RUNGS, declared.seconds("", None, least=1.0), {
        Rung.RESTART_APP: 600.0, Rung.RESET_DEVICE: 900.0, Rung.RELOAD_DRIVER: 900.0, Rung.REBOOT: 1800.0,
        Rung.POWER_CYCLE: 2400.0, Rung.REPLACE: 2 * HOUR,
    })  # fmt: skip


@declared.settings
class DrainSettings(NamedTuple):
    """How long running work may continue (seconds), and whether a repair is then forced on a busy node.

    `evict` asks work to leave if the adapter can (Kubernetes' evictions, within disruption budgets). `rungs` are the
    rungs that need an idle node.
    """

    deadline: float = declared.seconds("deadline", DAY, "running work may end by itself until then")
    force: bool = declared.choice(
        "then", {"escalate": False, "force": True}, False, 'then: "escalate", or "force" the repair on a busy node'
    )
    evict: bool = declared.flag(
        "evict", False, "ask work to leave the node: Kubernetes' evictions, within disruption budgets"
    )
    rungs: FrozenSet[Rung] = declared.choices(
        "idle", RUNGS, frozenset(REPAIRS), "repairs that need an idle node", made=frozenset
    )


@declared.settings
class VerifySettings(NamedTuple):
    """When a node counts as repaired.

    `healthy_for` is how long its reports must stay healthy, `deadline` how long a fresh report may take, `grace` how
    long after the effect a failing report does not count against the repair (services are still starting), all in
    seconds. `suite` is the deep suite that must pass, "" for none, `suite_limit` the limit of one run of it. `runner`
    runs it, with its settings.
    """

    healthy_for: float = declared.seconds("healthy-for", 600.0, "how long such reports must go on")
    deadline: float = declared.seconds("deadline", HOUR, "how long a fresh report may take", least=1.0)
    grace: float = declared.seconds(
        "grace", 120.0, "a failure so soon after the work is not yet held against it: services still start"
    )
    suite: str = declared.text("suite", "", 'a deep suite that must pass (`nhc list suites` on the node), "" for none')
    suite_limit: float = declared.seconds("suite-limit", 1800.0, "of one run of it, below the deadline", least=1.0)
    runner: str = declared.own("", "ssh", lambda table, _key, _usual: _runner(table))
    runner_settings: Mapping[str, str] = declared.own(
        "", {}, lambda table, _key, _usual: table.table(_runner(table)).plain_texts()
    )


@declared.settings
class Sources(NamedTuple):
    """Where faults come from.

    `adapter` names the adapter that knows the nodes and marks them, with its `settings`; `reports` are files or
    directories of reports. A report older than `max_age` seconds is ignored. A fault must last for `settle` seconds
    before an episode opens, unless its reason has its own time.
    """

    adapter: str = declared.text("adapter", "", "who knows the nodes and marks them", shown='"slurm"')
    settings: Mapping[str, str] = declared.entries(
        "settings", Table.text, "Variables for the adapter, as nhc.conf would set them.",
        shown='NHC_KUBECONFIG = "/etc/nhc/kubeconfig"',
    )  # fmt: skip
    reports: Tuple[str, ...] = declared.texts("reports", (), "files or directories of reports", one=True)
    max_age: float = declared.seconds(
        "max-age", 900.0, "a report older than this counts for nothing: neither as a fault nor as health", least=1.0
    )
    settle: float = declared.seconds("settle", 60.0, "a fault must stand for so long before an episode opens")


@declared.settings
class RepairerSettings(NamedTuple):
    """One repairer: its registered name, its nodes and rungs, and its own settings.

    `places` says where the file names each setting and the type (`remedy.toml:12: `), for messages.
    """

    name: str
    type: str = declared.text("type", "", "default: the table's name", shown='"redfish"')
    nodes: Tuple[str, ...] = declared.texts("nodes", ("*",), one=True)
    rungs: FrozenSet[Rung] = declared.choices("rungs", RUNGS, frozenset(REPAIRS), made=frozenset)
    timeout: float = declared.seconds("timeout", 30.0, "of one call", least=1.0)
    settings: Mapping[str, str] = declared.rest()
    places: Mapping[str, str] = {}

    def checked(self, table: Table) -> RepairerSettings:
        """The same with its type and its places."""
        places = {key: table.place(key) for key in ("type", *self.settings)}
        return self._replace(type=self.type or self.name, places=places)


@declared.settings
class MachineSettings(NamedTuple):
    """What a repairer needs to know of some nodes (`bmc`, `cluster`…); `{node}` in a value is the node's name."""

    nodes: Tuple[str, ...] = declared.texts("nodes", declared.NEEDED, one=True, shown='["gpu*"]')
    settings: Mapping[str, str] = declared.rest(shown='bmc = "{node}-bmc.example.org"')


@declared.settings
class LeaderSettings(NamedTuple):
    """What decides which of several processes leads: the store, or what `nhc.marks.plugins.candidate` knows by name."""

    by: str = declared.text("by", "store")
    settings: Mapping[str, str] = declared.rest()

    def checked(self, table: Table) -> LeaderSettings:
        """The same. Raises SettingsError if a lock without settings is given some."""
        if self.by == "store" and self.settings:
            raise table.error(next(iter(self.settings)), "no such setting where the store decides")
        return self


RUNNERS = """
How the suite is run on the node: nhc as it is installed there, over SSH.
[verify.ssh]
user = "root"            # sudo is used for every other user
nhc = "nhc"              # where it is on the node
config, identity, port, ssh, sudo

Or, in its place, by a Job that is pinned to the node (docs/repairers.md).
[verify.job]
image = "registry.example.com/nhc@sha256:..."   # nhc with the suite's tools
namespace = "nhc-system"
runtime-class = "nvidia"
service-account, priority-class, pull-policy, pull-secret, nhc, keep, kubeconfig, context

Or by AWS Systems Manager, without SSH (docs/repairers.md).
[verify.ssm]
tag = "nhc=managed"      # nothing is sent to an instance without this tag
nhc, region, profile, proxy
"""
REPAIRERS = """
[repairers.slurm]
rungs = ["reboot"]

[repairers.kubernetes]                 # by a privileged Job on the node
image = "registry.example.com/nhc@sha256:..."
rungs = ["restart-app", "reset-device", "reload-driver", "reboot"]

[repairers.capi]                       # by another controller: docs/repairers.md
type = "kubernetes-handoff"
to = "cluster-api"
rungs = ["replace"]

[repairers.aws]
rungs = ["reboot", "power-cycle", "replace"]
tag = "nhc=managed"
"""


def _runner(verify: Table) -> str:
    """The runner of suites: the table that is there."""
    runners = [name for name in plugins.RUNNERS.names() if name in verify]
    if len(runners) > 1:
        why = f"stands beside verify.{runners[1]}: a suite is run by one of them, not by both"
        raise verify.error(runners[0], why)
    return runners[0] if runners else "ssh"


def _bounds(file: Table, default: Bounds) -> Bounds:
    bounds, source = default, file.path
    if "policy" in file:
        source = os.path.join(os.path.dirname(file.path), file.text("policy"))
        limits = file.table("limits")
        for table, key in [*((file, key) for key in OWN), (limits, "attempts"), (limits, "window")]:
            if key in table:
                raise table.error(key, f"is read from {source}, which `policy` names: write it there")
        bounds = read_bounds(file, policy_file.load(source, default).policy.bounds, AT_FIRST)
    else:
        bounds = read_bounds(file, default)
    if bounds.radii[FLEET].out is None:
        raise SettingsError(f"{source}: bounds.fleet.out: a fleet without a bound on nodes out is refused")
    return bounds


@declared.settings
class TraceSettings(NamedTuple):
    """The table [traces]."""

    endpoint: str = declared.converted(
        "endpoint", lambda text: otlp.endpoint(text) if text else "", "", shown='"http://127.0.0.1:4318"'
    )
    headers: Mapping[str, str] = declared.entries(
        "headers", lambda table, name: table.secret(name), shown='authorization = "Bearer TOKEN"'
    )
    timeout: float = declared.seconds("timeout", 10.0, least=0.1)
    certificate: str = declared.text("certificate", "", shown='"/etc/ssl/collector.pem"')


@declared.settings
class RemedySettings(NamedTuple):
    """All of remedy.toml. Durations are in seconds.

    `every` is the pause between two rounds. `leave_alone` is how long a fault is left alone after a person took over
    the node, unless it ended once. `stalled` is how long a step may wait before it alarms; `wait_limit` how long an
    episode may wait for room in the bounds, or for another actor, before it is escalated to a person; `not_now` how
    long it may wait for a repair for which no repairer can be asked now (throttled, no answer). An approval that is not
    given within `approval_expires` leads to an escalation.
    """

    path: str = ""
    store: str = declared.text(
        "store", location.DEFAULT,
        "Where reports, problems, episodes and the audit are kept. PostgreSQL: postgresql+psycopg://nhc@host/nhc. "
        "Default: $NHC_STORE, else store.toml's.", absent=location.url,
    )  # fmt: skip
    every: float = declared.seconds("every", 30.0, "the pause between two rounds", least=1.0)
    policy: str = declared.text(
        "policy", "",
        "The bounds that `nhc sync` and the controller of `nhc kubernetes` read as well: where this names their file, "
        "protected, zone, [bounds], attempts, window, [quiet-hours] and [maintenance-windows] stand there, not here.",
        shown='"policy.toml"',
    )  # fmt: skip
    modes: Mapping[str, Mode] = declared.by_word(
        "actions", ACTIONS, declared.choice("", MODES, Mode.DRY_RUN), {},
        'Each action apart: "on"; "dry-run" says what it would do and does not; "off" leaves the rung out of the '
        'ladder. A rung on "dry-run" ends the ladder there: nothing harder takes its place.',
    )  # fmt: skip
    bounds: Bounds = declared.own("", Bounds(), lambda file, _key, usual: _bounds(file, usual), group=Bounds)
    breaker: BreakerSettings = declared.part(
        "breaker", BreakerSettings,
        "Marks and repairs stop (marks are still cleared) when many nodes fall sick at once, when many have no "
        "verdict, or when repairs in a row leave no node healthy. A person closes it: `nhc release remedy breaker`.",
    )  # fmt: skip
    sources: Sources = declared.part(
        "sources", Sources, "Where faults come from, besides the store. The adapter knows the nodes and sets the marks."
    )
    reasons: Tuple[ReasonSettings, ...] = declared.tables(
        "reasons", ReasonSettings,
        "What holds for single reasons (shell patterns): how long the fault must stand, and the rung at which the "
        'ladder begins; "escalate" gives it to a person, "ignore" has it count for nothing.',
        name="pattern", default=DEFAULTS, live=True,
    )  # fmt: skip
    silence: SilenceSettings = declared.part(
        "silence", SilenceSettings,
        "Nodes that fell silent within this time of each other have a common cause where they are more than `together` "
        "of the fleet, or at least the share of a rack or another group (and two nodes): then none of them is repaired "
        "for it.",
    )  # fmt: skip
    drain: DrainSettings = declared.part("drain", DrainSettings)
    effect: EffectTimeouts = declared.part("effect", EffectTimeouts, "How long the effect of each repair may take.")
    verify: VerifySettings = declared.part(
        "verify", VerifySettings, "A node is put back when a report newer than the repair is healthy and stays so.",
        more=RUNNERS,
    )  # fmt: skip
    evidence: EvidenceBudget = declared.part("evidence", EvidenceBudget)
    evidence_directory: str = declared.text("evidence.directory", f"{location.DIRECTORY}/evidence")
    evidence_keep: float = declared.seconds("evidence.keep", 30 * DAY, least=HOUR)
    evidence_first: bool = declared.flag(
        "evidence.before-mark", False,
        "Collect before the mark already, where another owner terminates a machine because it is drained "
        "(docs/repairers.md).",
    )  # fmt: skip
    traces: TraceSettings = declared.part(
        "traces",
        TraceSettings,
        "A trace of each episode that has ended, to a collector by OTLP/HTTP.",
    )
    leave_alone: float = declared.seconds(
        "limits.leave-alone", DAY,
        "a fault that a person took in hand is left alone for so long, unless it ended once",
    )  # fmt: skip
    stalled: float = declared.seconds(
        "limits.stalled", HOUR, "a step that waits for longer than this alarms (event and metric)", least=1.0
    )
    wait_limit: float = declared.seconds(
        "limits.patience", DAY,
        "waiting for room in the bounds, or for another actor, ends in an escalation after this", least=1.0,
    )  # fmt: skip
    not_now: float = declared.seconds(
        "limits.not-now", 2 * HOUR, "and for a repair that nobody can be asked for now", least=1.0
    )
    approval_expires: float = declared.seconds(
        "approval.expires", DAY, "an approval that nobody gave by then is an escalation", least=60.0
    )
    repairers: Tuple[RepairerSettings, ...] = declared.tables(
        "repairers", RepairerSettings,
        "Who repairs. The first that can do a rung on a node does it. Keys besides these are its own.",
        sample="rack-bmc", more=REPAIRERS,
    )  # fmt: skip
    machines: Tuple[MachineSettings, ...] = declared.tables_in_order(
        "machines", MachineSettings, "What a repairer needs to know of nodes. {node} is the node's name."
    )
    leader: LeaderSettings = declared.part(
        "leader", LeaderSettings,
        'What decides which of several processes leads: "store", a lock of its database; or "kubernetes-lease", which '
        "takes namespace (the pod's own) and name (nhc-remedy).",
    )  # fmt: skip
    drill: DrillSettings = declared.part(
        "drill", DrillSettings,
        "What `nhc drill kernel-line` and `full-disk` may put on a real node (docs/remedy.md). They log in by "
        "[repairers.node].",
    )  # fmt: skip
    devices: DeviceSettings = declared.part(
        "devices", DeviceSettings, "A GPU that fails alone; Kubernetes with DRA can take it out alone."
    )

    def checked(self, table: Table) -> RemedySettings:
        """The same, if the settings fit together. Raises SettingsError."""
        enabled = next((action for action, mode in self.modes.items() if mode is Mode.ON), "")
        if enabled and self.mode(MARK) is not Mode.ON:
            raise table.table("actions").error(enabled, 'a repair needs a marked node: mark = "on" as well')
        if self.verify.suite and self.verify.suite_limit > self.verify.deadline:
            raise table.table("verify").error("suite-limit", "is longer than verify.deadline, which gives the suite up")
        return self

    def mode(self, action: str) -> Mode:
        """The mode of an action: `mark`, or a rung."""
        return self.modes.get(action, Mode.DRY_RUN)

    def settle(self, reason: str) -> float:
        """How many seconds a fault of this reason must last before an episode opens."""
        own = of_reason(reason, self.reasons).settle
        return self.sources.settle if own is None else own

    def rung_modes(self) -> Dict[Rung, Mode]:
        return {rung: self.mode(rung.value) for rung in REPAIRS}

    def dry(self) -> RemedySettings:
        """The same with nothing enabled."""
        return self._replace(modes={name: Mode.DRY_RUN if mode is Mode.ON else mode
                                    for name, mode in self.modes.items()})  # fmt: skip
