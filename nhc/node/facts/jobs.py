"""Whose jobs the resource manager runs here now."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.resource_manager import resource_manager
from nhc.core.system.node_name import scheduler_name

if TYPE_CHECKING:
    from typing import FrozenSet, List


class JobsUnknown(Exception):
    """It is not known who has jobs here, so nobody may be called unauthorised."""


def parse_squeue(text: str) -> FrozenSet[str]:
    """The users in the output of `squeue --noheader -o %u`."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def parse_job_file(text: str) -> str:
    """The user of one of TORQUE's job files (`mom_priv/jobs/*.JB`), XML or not; "" where it names none."""
    if "<?xml" in text[:200]:
        match = re.search(r"<euser[^>]*>\s*([^<\s]+)\s*</euser>", text)
    else:
        match = re.search(r"^PBS_O_LOGNAME=(\S+)", text, re.MULTILINE)
    return match[1] if match else ""


def job_users(host: Host) -> FrozenSet[str]:
    """The users with jobs on this node. Raises JobsUnknown if that cannot be found out."""
    detected = resource_manager(host)
    if detected.unsure:
        raise JobsUnknown(detected.how)
    if not detected.name:
        return frozenset()
    read = {"slurm": _slurm, "pbs": _torque}.get(detected.manager.lbnl if detected.manager is not None else "")
    if read is None:
        raise JobsUnknown(f"the jobs of resource manager {detected.name} cannot be read (slurm and pbs can)")
    return read(host)


def _slurm(host: Host) -> FrozenSet[str]:
    name = scheduler_name(host.environ, host.settings, host.system.hostname(), host.read_or)
    node = host.setting("SQUEUE_NODE").split() or ["-w", name]
    form = host.setting("SQUEUE_FMT_ARGS").split() or ["--noheader", "-o", "%u"]
    argv = [*(host.setting("SQUEUE_CMD").split() or ["squeue"]), *node, *form]
    try:
        ended = host.run(argv, timeout=10.0)
    except OSError as error:
        raise JobsUnknown(f"{argv[0]}: {error.strerror}") from None
    if ended.timed_out:
        raise JobsUnknown(f"{argv[0]} did not answer within 10 s")
    if ended.status:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise JobsUnknown(f"{argv[0]} returned {ended.status}{f': {lines[-1]}' if lines else ''}")
    return parse_squeue(ended.stdout)


def _torque(host: Host) -> FrozenSet[str]:
    home = host.setting("PBS_SERVER_HOME") or "/var/spool/torque"
    path = host.setting("JOBFILE_PATH") or f"{home}/mom_priv/jobs"
    users: List[str] = []
    try:
        names = [name for name in host.listdir(path) if name.endswith(".JB")]
        for name in names:
            try:
                users.append(parse_job_file(host.read(f"{path}/{name}")))
            except FileNotFoundError:  # the job ended in between
                continue
    except OSError as error:
        raise JobsUnknown(f"{error.filename or path}: {error.strerror}") from None
    return frozenset(user for user in users if user)
