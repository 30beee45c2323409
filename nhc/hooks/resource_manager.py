"""Which resource manager runs this node.

LBNL NHC takes a leftover directory (/var/spool/torque) or a variable (SGE_ROOT) for an answer, reads NHC_RM
from its configuration too late to use it, and switches marking off for good when it finds nothing. Here
NHC_RM counts wherever it is set; then what the calling daemon put into the environment; then which one
manager's commands are installed, the one whose daemon runs where there are several.
"""

from __future__ import annotations

from nhc.host import Host
from nhc.language.setting_words import ALIASES
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple

ENVIRONMENT = (
    ("SLURMD_NODENAME", "slurm"),
    ("SLURM_SCRIPT_CONTEXT", "slurm"),
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("SGE_TASK_ID", "sge"),
    ("FLUX_JOB_ID", "flux"),
)

INSTALLED = (
    ("slurm", "scontrol", ("slurmd", "slurmctld")),
    ("pbs", "pbsnodes", ("pbs_mom", "pbs_server.bin", "pbs_server")),
    ("lsf", "badmin", ("lim", "sbatchd")),
    ("sge", "qmod", ("sge_execd", "sge_qmaster")),
    ("flux", "flux", ("flux-broker", "flux-broker-0")),
)


def detect(environ: Mapping[str, str], settings: Mapping[str, str], host: Host) -> Tuple[Optional[str], str]:
    """The adapter's name and how it was found; None where there is no manager, or no telling which."""
    named = (settings.get("NHC_RM") or environ.get("NHC_RM", "")).lower()
    if named:
        return ALIASES.get(named, named) or None, "NHC_RM"
    for variable, manager in ENVIRONMENT:
        if environ.get(variable):
            return _pbs_or_torque(manager, host), variable
    found = [(manager, daemons) for manager, command, daemons in INSTALLED if host.which(command)]
    if len(found) == 1:
        return _pbs_or_torque(found[0][0], host), "its commands are installed"
    running = _running(host) if found else frozenset()
    active = [manager for manager, daemons in found if running & set(daemons)]
    if len(active) == 1:
        return _pbs_or_torque(active[0], host), "its daemon runs"
    if not found:
        return None, "no resource manager is installed"
    return None, f"{', '.join(manager for manager, _ in found)} are installed: set NHC_RM"


def _pbs_or_torque(manager: str, host: Host) -> str:
    """Torque's pbsnodes speaks otherwise than PBS Pro's; only Torque has pbs_mom's `momctl`."""
    return "torque" if manager == "pbs" and host.which("momctl") else manager


def _running(host: Host) -> frozenset[str]:
    """The names of the processes that run, as the kernel keeps them (15 characters)."""
    names = set()
    for pid in host.listdir("/proc"):
        if pid.isdigit():
            names.add(host.read_or(f"/proc/{pid}/comm"))
    return frozenset(names)
