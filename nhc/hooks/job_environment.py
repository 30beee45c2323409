"""The scheduler's and the site's input to a hook.

Which hook it is, how long its checks may take, whether it may change anything, which devices the job has, which checks
its user may skip. For the node's name see `nhc.core.system.node_name`.
"""

from __future__ import annotations

from nhc.core.host import switched_on
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import FrozenSet, Mapping, Optional

    from nhc.core.plan import Plan

HEALTHCHECK = "healthcheck"
PROLOG = "prolog"
EPILOG = "epilog"
PROLOG_SLURMCTLD = "prolog-slurmctld"
EPILOG_SLURMCTLD = "epilog-slurmctld"

NOTES = "broken"
"""In the state directory, by node: which hooks left a comment on it because nhc is broken (`hooks.internal_error`)."""

DEADLINES = {HEALTHCHECK: 35.0, PROLOG: 20.0, EPILOG: 30.0, PROLOG_SLURMCTLD: 20.0, EPILOG_SLURMCTLD: 20.0}
"""Seconds a hook's checks may take. slurmd kills a HealthCheckProgram after 60 s; marking comes after the checks."""

_SCRIPT_CONTEXTS = {
    "prolog_slurmd": PROLOG,
    "epilog_slurmd": EPILOG,
    "prolog_slurmctld": PROLOG_SLURMCTLD,
    "epilog_slurmctld": EPILOG_SLURMCTLD,
}
"""SLURM_SCRIPT_CONTEXT, which Slurm sets for both prologs and both epilogs (its prolog and epilog guide)."""


class BadArgument(ValueError):
    """A hook was called with an unknown word. One line."""


def context_of(asked: str, environ: Mapping[str, str]) -> str:
    """The hook that runs: the requested one, or its controller form if Slurm says so."""
    context = _SCRIPT_CONTEXTS.get(environ.get("SLURM_SCRIPT_CONTEXT", ""), asked)
    return context if context.startswith(asked) else asked


def deadline(context: str, settings: Mapping[str, str]) -> float:
    """The checks' deadline in this hook: `NHC_PROLOG_TIMEOUT` and so on, else ours, or TIMEOUT if it is shorter."""
    own = DEADLINES.get(context, 30.0)
    for name in (f"NHC_{context.upper().replace('-', '_')}_TIMEOUT", "TIMEOUT"):
        try:
            asked = float(settings.get(name, ""))
        except ValueError:
            continue
        if asked > 0:
            return asked if name != "TIMEOUT" else min(asked, own)
    return own


def watch_only(settings: Mapping[str, str]) -> bool:
    """Whether the site asks that hooks change nothing and only log what they would do (NHC_WATCH_ONLY=1)."""
    return is_on(settings, "NHC_WATCH_ONLY")


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Whether a switch is set, and on."""
    return switched_on(settings.get(name, ""))


def job_devices(environ: Mapping[str, str]) -> Optional[str]:
    """The GPUs of the job, as `0,2,3`; None if the hook does not know the job's part of the node.

    Slurm sets no SLURM_JOB_GPUS for a job without GPUs, nor on a node without any: None for both.
    """
    return ",".join(map(str, _numbers(environ.get("SLURM_JOB_GPUS", "")))) or None


def _numbers(text: str) -> list[int]:
    """`0-2,5` as numbers; none at all for anything else (an MIG identifier, a vendor's name)."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) > 1023:
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def skipped(environ: Mapping[str, str], settings: Mapping[str, str]) -> FrozenSet[str]:
    """The checks that this job's user may skip and asked to skip: `sbatch --comment=nhc-skip=check_a,check_b`.

    The administrator names them in NHC_USER_SKIP; without that a comment skips nothing.
    """
    allowed = set(settings.get("NHC_USER_SKIP", "").replace(",", " ").split())
    if not allowed:
        return frozenset()
    asked = [part[9:] for part in environ.get("SLURM_JOB_COMMENT", "").split() if part.startswith("nhc-skip=")]
    return frozenset(allowed & {name for part in asked for name in part.split(",")})


def concerns(target: str, devices: str) -> bool:
    """Whether a result about `target` concerns a job that has these GPUs. One that names no GPU concerns every job."""
    import re

    named = re.match(r"gpu[ _-]?(\d+)\b", target, re.IGNORECASE)
    return named is None or int(named[1]) in _numbers(devices)


def job_size(environ: Mapping[str, str]) -> str:
    """How many nodes this hook's job has, as a number's text; "" if that is unknown.

    Slurm names a Prolog's nodes in SLURM_JOB_NODELIST or SLURM_NODELIST (its prolog guide), by release.
    """
    if environ.get("SLURM_JOB_NUM_NODES", "").isdigit():
        return environ["SLURM_JOB_NUM_NODES"]
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
    if not listed:
        return ""
    from nhc.core.matching.node_ranges import expand

    try:
        return str(len(expand(listed)))
    except ValueError:
        return ""


def for_context(plan: Plan, context: str, without: FrozenSet[str] = frozenset()) -> Plan:
    """The items of this hook. The controller's hooks run only items that name them: the rest judge compute nodes."""
    on_controller = context.endswith("-slurmctld")
    items = tuple(
        item
        for item in plan.items
        if (context in item.contexts or (not item.contexts and not on_controller)) and item.name not in without
    )
    return plan._replace(items=items)
