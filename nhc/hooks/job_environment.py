"""What a scheduler told a hook: which hook it is, what the node is called, which devices the job has."""

from __future__ import annotations

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Mapping, Optional

HEALTHCHECK = "healthcheck"
PROLOG = "prolog"
EPILOG = "epilog"
PROLOG_SLURMCTLD = "prolog-slurmctld"
EPILOG_SLURMCTLD = "epilog-slurmctld"

_SCRIPT_CONTEXTS = {
    "prolog_slurmd": PROLOG,
    "epilog_slurmd": EPILOG,
    "prolog_slurmctld": PROLOG_SLURMCTLD,
    "epilog_slurmctld": EPILOG_SLURMCTLD,
}
"""SLURM_SCRIPT_CONTEXT, which Slurm sets for both prologs and both epilogs (its prolog and epilog guide)."""


def context_of(asked: str, environ: Mapping[str, str]) -> str:
    """The hook that runs: the one asked for, on the controller where Slurm says so."""
    told = _SCRIPT_CONTEXTS.get(environ.get("SLURM_SCRIPT_CONTEXT", ""), asked)
    return told if told.startswith(asked) else asked


def node_name(environ: Mapping[str, str], settings: Mapping[str, str], hostname: str) -> str:
    """What the scheduler calls this node.

    slurmd sets SLURMD_NODENAME for all its hooks; several slurmd may share a host, so nothing outranks it.
    Else NHC_NODE_NAME, else NHC_NODE_MAP (`host=name host2=name2`, or a file with such pairs), else the host's
    short name.
    """
    told = environ.get("SLURMD_NODENAME") or settings.get("NHC_NODE_NAME") or environ.get("NHC_NODE_NAME")
    if told:
        return told
    short = hostname.partition(".")[0]
    pairs = settings.get("NHC_NODE_MAP") or environ.get("NHC_NODE_MAP", "")
    if pairs.startswith("/"):
        from nhc.host import Host

        pairs = Host().read_or(pairs)
    for line in pairs.splitlines():
        for pair in line.partition("#")[0].split():
            host, found, name = pair.partition("=")
            if found and host in (hostname, short):
                return name
    return short


def target_name(environ: Mapping[str, str], hostname: str) -> str:
    """What the configuration's targets are matched against: the host name, as LBNL NHC has it.

    Where slurmd calls the node otherwise (several slurmd share the host), it is the node's name.
    """
    node = environ.get("SLURMD_NODENAME")
    return hostname if not node or node == hostname.partition(".")[0] else node


def job_devices(environ: Mapping[str, str]) -> Optional[str]:
    """The GPUs of the job, as `0,2,3`; None where the job's part of the node is not known to the hook.

    An empty text says that the job has no GPU although it runs under Slurm with GPUs configured: Slurm gives
    no SLURM_JOB_GPUS then, which cannot be told from a node without any. So the answer is None as well.
    """
    told = environ.get("SLURM_JOB_GPUS", "")
    return ",".join(str(number) for number in _numbers(told)) if told and _numbers(told) else None


def _numbers(text: str) -> list[int]:
    """`0-2,5` as numbers; none at all for anything else (an MIG identifier, a vendor's name)."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) > 1023:
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def concerns(target: str, devices: str) -> bool:
    """Whether a result about `target` concerns a job that has these GPUs. What names no GPU concerns every job."""
    import re

    named = re.match(r"gpu[ _-]?(\d+)\b", target, re.IGNORECASE)
    return named is None or int(named[1]) in _numbers(devices)
