"""The resource managers that nhc knows, a row each, and the one rule that says which of them runs this node.

LBNL NHC takes a leftover directory (/var/spool/torque) or a variable (SGE_ROOT) for an answer, and the first manager of
its list whose command is there. Here NHC_RM counts wherever it is set; then what the calling daemon put into the
environment; then which one manager's commands are installed, the one whose daemon runs where there are several. Where
that leaves several, there is no telling, and nobody is judged by a guess.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Mapping, Optional, Tuple


class Manager(NamedTuple):
    """One resource manager.

    `commands`: any of them says that it is installed. `daemons` run on its nodes, `servers` elsewhere. `callers` are
    variables that its daemons give to what they start, `job` the one with a job's number. `ancestor` matches the
    program that a job's processes descend from (LBNL NHC's patterns). `ping` and `show` ask whether it answers, and for
    a node (its name is put behind). `stranger` matches how it says that it knows no such node. In the states `bad` it
    gives a node no work though nobody has taken it out; in `out` somebody has. `aliases` are other names in NHC_RM,
    `adapters` other adapters for it. `kin` is the one that it is told from by the command `mark`.
    """

    name: str
    commands: Tuple[str, ...]
    daemons: Tuple[str, ...]
    servers: Tuple[str, ...]
    callers: Tuple[str, ...]
    job: str
    ancestor: str = ""
    ping: Tuple[str, ...] = ()
    show: Tuple[str, ...] = ()
    stranger: str = ""
    bad: Tuple[str, ...] = ()
    out: Tuple[str, ...] = ()
    aliases: Tuple[str, ...] = ()
    adapters: Tuple[str, ...] = ()
    kin: str = ""
    mark: str = ""

    @property
    def lbnl(self) -> str:
        """What LBNL NHC's scripts and helper programs call it."""
        return self.kin or self.name


_PBS = Manager(
    "pbs", ("pbsnodes",), ("pbs_mom",), ("pbs_server.bin", "pbs_server"), ("PBS_JOBID",), "PBS_JOBID",
    r"/\bpbs_mom\b/", ("qstat", "-B"), ("pbsnodes", "-v"), r"unknown node",
    ("down", "unknown", "state-unknown", "stale", "unresolvable"), ("offline", "maintenance"),
    aliases=("openpbs", "pbspro"),
)  # fmt: skip
MANAGERS: Tuple[Manager, ...] = (
    Manager(
        "slurm", ("scontrol",), ("slurmd",), ("slurmctld",),
        ("SLURMD_NODENAME", "SLURM_SCRIPT_CONTEXT", "SLURM_JOB_ID"), "SLURM_JOB_ID",
        r"/\bslurmstepd\b/", ("scontrol", "ping"), ("scontrol", "-o", "show", "node"), r"^Node \S+ not found",
        ("down", "error", "fail", "failing", "not_responding", "invalid_reg", "inval", "unknown", "future"),
        ("drain", "drained", "draining", "maint", "reserved"), adapters=("slurm-rest", "slurm-hyperpod"),
    ),
    _PBS,
    # Torque's pbsnodes speaks otherwise than PBS Pro's; only Torque has pbs_mom's `momctl`.
    _PBS._replace(name="torque", show=("pbsnodes",), aliases=(), kin="pbs", mark="momctl"),
    Manager(
        "lsf", ("badmin", "lsid", "sbatchd"), ("lim", "sbatchd"), (), ("LSB_JOBID",), "LSB_JOBID",
        r"/\bres\b/", ("lsid",), ("bhosts", "-w"), r"bad host name|unknown host",
        ("unavail", "unreach", "unlicensed", "closed_lim"), ("closed", "closed_adm"),
    ),
    Manager(
        "sge", ("qmod", "qhost"), ("sge_execd",), ("sge_qmaster",), ("SGE_TASK_ID",), "JOB_ID",
        r"/\bsge_(execd|shepherd)\b/", ("qhost", "-h", "none"), ("qhost", "-h"), r"unknown host",
        ("unreachable",), (), aliases=("gridengine", "uge"),
    ),
    Manager(
        "flux", ("flux",), ("flux-broker",), ("flux-broker-0",), ("FLUX_JOB_ID",), "FLUX_JOB_ID",
        ping=("flux", "ping", "--count=1", "0"),
    ),
)  # fmt: skip
NAMES: Tuple[str, ...] = tuple(name for row in MANAGERS for name in (row.name, *row.aliases, *row.adapters))
"""What NHC_RM may say of them."""
JOB_VARIABLES: Tuple[str, ...] = tuple(dict.fromkeys(manager.job for manager in MANAGERS))
CALLERS: Tuple[str, ...] = tuple(dict.fromkeys(name for manager in MANAGERS for name in manager.callers))
_ADAPTERS: Dict[str, str] = {"k8s": "kubernetes", **{alias: row.name for row in MANAGERS for alias in row.aliases}}


class Detected(NamedTuple):
    """The name of the adapter, "" for none, and how it was found. `unsure`: there are several, and no telling which."""

    name: str
    how: str
    unsure: bool = False

    @property
    def manager(self) -> Optional[Manager]:
        """Its row, None for an adapter that is of no manager that nhc knows."""
        return next((row for row in MANAGERS if self.name == row.name or self.name in row.adapters), None)


def adapter_name(named: str) -> str:
    """The adapter that a word of NHC_RM means, "" for `none`."""
    name = named.strip().lower()
    return "" if name == "none" else _ADAPTERS.get(name, name)


def detect(environ: Mapping[str, str], settings: Mapping[str, str], host: Host) -> Detected:
    """Which resource manager runs this node."""
    named = settings.get("NHC_RM") or environ.get("NHC_RM", "")
    if named:
        return Detected(adapter_name(named), "NHC_RM")
    alone = [manager for manager in MANAGERS if not manager.kin]
    for manager in alone:
        for variable in manager.callers:
            if environ.get(variable):
                return Detected(_kin(manager, host), variable)
    installed = [manager for manager in alone if any(host.which(command) for command in manager.commands)]
    if not installed:
        return Detected("", "no resource manager is installed")
    if len(installed) == 1:
        return Detected(_kin(installed[0], host), "its commands are installed")
    running = process_names(host)
    active = [manager for manager in installed if running & {*manager.daemons, *manager.servers}]
    if len(active) == 1:
        return Detected(_kin(active[0], host), "its daemon runs")
    return Detected("", f"{', '.join(manager.name for manager in installed)} are installed: set NHC_RM", unsure=True)


def process_names(host: Host) -> FrozenSet[str]:
    """The names of the processes that run, as the kernel keeps them (15 characters); none where /proc is hidden."""
    return frozenset(host.read_or(f"/proc/{name}/comm") for name in host.names("/proc") if name.isdigit())


def resource_manager(host: Host) -> Detected:
    """Which one runs the node that a check looks at."""
    return detect(host.environ, host.settings, host)


def lbnl_name(detected: Detected) -> str:
    """What LBNL NHC's scripts find in $NHC_RM; "none" for none."""
    return detected.manager.lbnl if detected.manager is not None else detected.name or "none"


def _kin(manager: Manager, host: Host) -> str:
    return next((kin.name for kin in MANAGERS if kin.kin == manager.name and host.which(kin.mark)), manager.name)


PROCESSES, GPU, SHM, TMP = "processes", "gpu", "shm", "tmp"
LEFTOVER_KINDS = (PROCESSES, GPU, SHM, TMP)
"""What NHC_EPILOG_FIND and its kin name."""

NO_HOOK_ADAPTERS = {
    "kubernetes": "no hook marks a Kubernetes node: the agent does, with [sinks.kubernetes] in agent.toml, or "
    "`nhc kubernetes publish` (docs/kubernetes.md)"
}
"""Adapters that a hook cannot use, and what to use in their place. Their names are no resource managers of a node."""
