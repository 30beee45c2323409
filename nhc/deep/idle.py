"""Whether a node is free for a deep check: its accelerators and RDMA devices, and what its scheduler says.

/proc/PID/fd shows who holds device files, the vendor's library shows an accelerator's processes. A test beside a job
would slow the job, fail by itself, or end the job for lack of memory. So a process that may not be read counts as in
use.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.host import Host
from nhc.core.model import printable
from nhc.core.resource_manager import JOB_VARIABLES
from nhc.marks.ports.adapter import NodeSource, NodeState, OtherJobs
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.accelerator_values import SERVICES
from nhc.node.facts.processes import stat_of

DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dri/renderD*", "/dev/infiniband/uverbs*", "/dev/neuron[0-9]*",
           "/dev/accel/accel*", "/dev/hl[0-9]*")  # fmt: skip
"""What a job holds open: GPUs of NVIDIA and AMD, RDMA devices (EFA among them), Neuron, Gaudi."""

ALLOWED = (*SERVICES, "dcgm", "nvidia-imex", "nvidia-fabric", "nvsm", "ibacm", "opensm", "srp_daemon", "nhc", "Xorg")
"""Daemons that hold devices on purpose and do no work on them. The kernel keeps 15 characters of a name."""

SHOWN = 3
"""Jobs that are named in a line."""


class Occupant(NamedTuple):
    """What is in the way. `who` is what would be disturbed."""

    what: str
    who: str

    def __str__(self) -> str:
        return f"{self.what}: {self.who}"


class Occupancy(NamedTuple):
    """What was found: what is in the way, and remarks for the report."""

    busy: Tuple[Occupant, ...]
    notes: Tuple[str, ...] = ()


def devices(host: Host, allowed: Sequence[str] = ()) -> Occupancy:
    """The processes that hold accelerators and RDMA devices now, allowed processes left out."""
    patterns = [f"{name}*" for name in (*ALLOWED, *allowed)]
    busy: List[Occupant] = []
    unseen: List[str] = []
    known = set()
    for pid in (name for name in host.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        held: Optional[List[str]] = None
        try:
            held = _held(host, pid)
        except PermissionError:
            stat = stat_of(host, int(pid))
            if stat is not None and stat.kernel_thread:  # it holds no file
                continue
        except OSError:
            continue
        comm = host.read_or(f"/proc/{pid}/comm")
        if held == [] or any(fnmatchcase(comm, pattern) for pattern in patterns):
            continue
        if held is None:
            unseen.append(_process(pid, comm))
        else:
            known.add(int(pid))
            busy.append(Occupant(_some(held), _process(pid, comm)))
    for device in accelerators(host).devices:
        for process in device.processes or ():
            allowed_here = any(fnmatchcase(process.name.rpartition("/")[2], pattern) for pattern in patterns)
            if process.pid not in known and not allowed_here:  # a zombie, or one of another pid namespace, counts
                busy.append(Occupant(device.label, _process(process.pid, process.name)))
    if unseen and any(host.glob(pattern) for pattern in DEVICES):
        what = "which files it holds open may not be seen (that takes root with CAP_SYS_PTRACE)"
        busy.append(Occupant(what, _some(unseen)))
    return Occupancy(tuple(busy))


def _process(pid: object, name: str) -> str:
    return f"process {pid} ({printable(name, 40) or '?'})"


def _some(names: Sequence[str], most: int = 1) -> str:
    """The first of these, and how many more there are."""
    return f"{', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''}"


def _held(host: Host, pid: str) -> List[str]:
    """The device files that a process holds. Raises OSError where it is gone, PermissionError where none may be seen.

    Without CAP_SYS_PTRACE, as in a container, the kernel lists the descriptors of another process and refuses to say
    what they are.
    """
    held = []
    for fd in host.listdir(f"/proc/{pid}/fd"):
        try:
            target = host.readlink(f"/proc/{pid}/fd/{fd}")
        except PermissionError:
            raise
        except OSError:
            continue  # closed meanwhile
        if target.startswith("/dev/") and any(fnmatchcase(target, pattern) for pattern in DEVICES):
            held.append(target)
    return sorted(set(held))


def scheduler(source: NodeSource, node: str, environ: Mapping[str, str]) -> Occupancy:
    """What the node's scheduler says. Raises nhc.marks.ports.adapter.AdapterError where it does not answer."""
    state = next((state for state in source.nodes([node]) if state.name == node), None)
    job = _job(environ)
    beside: Sequence[str] = ()
    if state is not None and job and isinstance(source, OtherJobs):
        beside = source.other_jobs(node, "", job)
    found = judge_idle(state, node, environ, beside)
    return found if state is None or job else _with_mates(found, state.mates)


def _with_mates(found: Occupancy, mates: Sequence[NodeState]) -> Occupancy:
    """The same with what is on the other nodes of the same machine: a test loads the machine, not a node's name."""
    busy = [Occupant("the scheduler", f"work runs on {mate.name}, on the same machine ({mate.shown})")
            for mate in mates if mate.busy]  # fmt: skip
    open_to_work = [mate.name for mate in mates if mate.available and not mate.busy]
    notes = [f"{_some(open_to_work, SHOWN)}, on the same machine, takes new work"] if open_to_work else []
    return Occupancy((*found.busy, *busy), (*found.notes, *notes))


def _job(environ: Mapping[str, str]) -> str:
    """The job that we run in, "" for none."""
    return next((environ[name] for name in JOB_VARIABLES if environ.get(name)), "")


def judge_idle(
    state: Optional[NodeState], node: str, environ: Mapping[str, str], beside: Sequence[str] = ()
) -> Occupancy:  # fmt: skip
    """Whether the node is in our hands: out of service with no work on it, or given to the job that we are. Pure.

    `beside` are other jobs on it, where we run in a job and the scheduler tells.
    """
    if state is None:  # under another name it may have work
        why = f"it does not know {node}: name the node as it does (-n), or ask nobody (--adapter none)"
        return Occupancy((Occupant("the scheduler", why),))
    job = _job(environ)
    if job and beside:
        who = f"job {_some(beside, SHOWN)} runs on {node} beside job {job}, in which this runs"
        return Occupancy((Occupant("the scheduler", who),))
    if job:
        note = f"runs as job {job}: the job must have the whole node (--exclusive)"
        return Occupancy((), (note,))
    if state.busy:
        return Occupancy((Occupant("the scheduler", f"work runs on {node} ({state.shown})"),))
    if state.available:
        why = f"{node} takes new work ({state.shown}): drain or reserve it first"
        return Occupancy((Occupant("the scheduler", why),))
    if state.mark is not None and not state.mark.ours:
        by = state.mark.owner or "somebody else"
        return Occupancy((), (f"{node} is out of service by {by}, not by nhc: it may come back at any time",))
    if state.mark is None and not state.hold:
        return Occupancy((), (f"{node} is {state.shown} for a reason that the scheduler does not tell",))
    return Occupancy(())
