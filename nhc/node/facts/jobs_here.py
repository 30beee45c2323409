"""The users whose jobs the resource manager runs on this node now.

The kernel's counts of a job's memory are in its control group, as long as that exists. Slurm's steps of a job
lie below one group, `job_ID` (src/plugins/cgroup/v2/cgroup_v2.c): its `memory.events` counts over all of them on this
node (Documentation/admin-guide/cgroup-v2.rst). The group is removed with the job's last step. cgroup v1 has no such
file: only the kernel log is left.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.resource_manager import resource_manager
from nhc.core.system.node_name import scheduler_name
from nhc.node.facts.processes import all_args

if TYPE_CHECKING:
    from typing import Callable, Dict, FrozenSet, Iterator, List, Optional


class JobsUnknown(Exception):
    """It is not known who has jobs here, so no user may be called unauthorised."""


def parse_squeue(text: str) -> FrozenSet[str]:
    """The users in the output of `squeue --noheader -o %u`."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def parse_job_file(text: str) -> str:
    """The user of one of TORQUE's job files (`mom_priv/jobs/*.JB`), XML or not; "" if it names none."""
    if "<?xml" in text[:200]:
        match = re.search(r"<euser[^>]*>\s*([^<\s]+)\s*</euser>", text)
    else:
        match = re.search(r"^PBS_O_LOGNAME=(\S+)", text, re.MULTILINE)
    return match[1] if match else ""


_OWNER = rb"(?<![A-Za-z_])%s\0([\x21-\x7e]{1,64})\0"
"""An attribute of OpenPBS' job files: name and value, each with a NUL (struct svrattrl in attribute.h)."""


def parse_openpbs_job(data: bytes) -> str:
    """The user of one of OpenPBS' job files (`mom_priv/jobs/*.JB`), which are binary; "" if it names none."""
    for name in (b"euser", b"Job_Owner"):
        match = re.search(_OWNER % name, data)
        if match:
            return match[1].decode().partition("@")[0]
    return ""


def job_users(host: Host) -> FrozenSet[str]:
    """The users with jobs on this node. Raises JobsUnknown if that cannot be found out."""
    detected = resource_manager(host)
    if detected.unsure:
        raise JobsUnknown(detected.how)
    if not detected.name:
        return frozenset()
    if detected.name == "pbs":
        return _openpbs(host)
    read = {"slurm": _slurm, "pbs": _torque}.get(detected.manager.lbnl if detected.manager is not None else "")
    if read is None:
        raise JobsUnknown(f"the jobs of resource manager {detected.name} cannot be read (slurm and pbs can)")
    return read(host)


def slurm_nodes_here(host: Host) -> List[str]:
    """What Slurm calls this node, and the other nodes whose slurmd run here (`slurmd -N n2`). Raises OSError."""
    names = [scheduler_name(host.environ, host.settings, host.system.hostname(), host.read_or)]
    for _pid, args in all_args(host):
        program, *words = args.split() or [""]
        if program.rpartition("/")[2] == "slurmd":
            names += [after for word, after in zip(words, words[1:]) if word == "-N"]
            names += [word[2:] for word in words if word.startswith("-N") and word != "-N"]
    return list(dict.fromkeys(names))


def _slurm(host: Host) -> FrozenSet[str]:
    try:
        node = host.setting("SQUEUE_NODE").split() or ["-w", ",".join(slurm_nodes_here(host))]
    except OSError as error:  # another slurmd of this host could have jobs of its own
        raise JobsUnknown(f"{error.filename or '/proc'}: {error.strerror}") from None
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
    return _job_files(host, "/var/spool/torque", lambda data: parse_job_file(data.decode(errors="replace")))


def _openpbs(host: Host) -> FrozenSet[str]:
    """The owners by OpenPBS' job files below PBS_MOM_HOME or PBS_HOME (/etc/pbs.conf); Torque's where pbs_mom is
    Torque's.
    """
    text = host.read_or("/etc/pbs.conf")
    found = (re.search(rf"(?m)^\s*{name}=[\"']?([^\s\"']+)", text) for name in ("PBS_MOM_HOME", "PBS_HOME"))
    configured = next((match[1] for match in found if match), "")
    home = configured or "/var/spool/pbs"
    if not configured and not host.isdir(home):
        return _torque(host)
    return _job_files(host, home, parse_openpbs_job)


def _job_files(host: Host, home: str, owner: Callable[[bytes], str]) -> FrozenSet[str]:
    """The owners of this node's pbs_mom's job files. Raises JobsUnknown, also for a file that names none: its owner
    would be called unauthorised.
    """
    path = host.setting("JOBFILE_PATH") or f"{host.setting('PBS_SERVER_HOME') or home}/mom_priv/jobs"
    users: Dict[str, str] = {}
    try:
        for name in host.listdir(path):
            try:
                if name.endswith(".JB"):
                    users[f"{path}/{name}"] = owner(host.read_bytes(f"{path}/{name}", 4 << 20))
            except FileNotFoundError:  # the job ended in between
                continue
    except OSError as error:
        raise JobsUnknown(f"{error.filename or path}: {error.strerror}") from None
    unknown = [name for name, user in users.items() if not user]
    if unknown:
        raise JobsUnknown(f"{unknown[0]} does not tell whose job it is")
    return frozenset(users.values())


CGROUP = "/sys/fs/cgroup"
SLURM = f"{CGROUP}/system.slice"


class MemoryEvents(NamedTuple):
    """Counts since the group was made: `at_limit`, how often it was at its limit; `killed`, processes killed for it."""

    path: str
    at_limit: int
    killed: int


def of_job(host: Host, job: str) -> Optional[MemoryEvents]:
    """The counts of a job of Slurm on this node, None if its group is not there."""
    for path in _groups(host, job) if job.isascii() and job.isdigit() else ():
        text = host.read_or(f"{path}/memory.events")
        events = parse_events(path, text) if text else None
        if events is not None:
            return events
    return None


def parse_events(path: str, text: str) -> Optional[MemoryEvents]:
    """The counts of a `memory.events`, None if it has none."""
    counts = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdigit():
            counts[name] = int(number)
    if "oom_kill" not in counts:
        return None
    return MemoryEvents(path, counts.get("max", 0), counts["oom_kill"])


def _groups(host: Host, job: str) -> Iterator[str]:
    """Paths of the job's group: this process's own if it is in the job, else below the scope of each slurmd."""
    own = next((line[3:] for line in host.read_or("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    before, within, _ = f"{own}/".partition(f"/job_{job}/")
    if within:
        yield f"{CGROUP}{before}/job_{job}"
    yield from (f"{SLURM}/{name}/job_{job}" for name in host.names(SLURM) if name.endswith("slurmstepd.scope"))
