"""The batch scheduler's answers to this node: whether it responds, and the state in which it has this node.

Every query has a deadline, and only documented parts of an answer are read: scontrol(1), qstat(1B) and
pbsnodes(8B) of PBS and Torque, lsid(1) and bhosts(1) of LSF, qhost(1) of Grid Engine, flux-ping(1).
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.resource_manager import Manager

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Optional

_DOWN = re.compile(
    r"cannot connect|unable to contact|connection refused|connection timed out|no route to host|not responding"
    r"|LSF is down|LIM is down|please wait|communication connection failure|unable to contact qmaster|commlib error"
    r"|unable to connect|No such file or directory.*flux|Operation timed out",
    re.IGNORECASE,
)
"""Messages of the clients that the scheduler does not answer (not: that the client cannot ask)."""


class SchedulerAnswer(NamedTuple):
    """Whether the scheduler answers; `partly` says that one of its controllers does not."""

    up: bool
    text: str
    partly: bool = False


class SchedulerView(NamedTuple):
    """The node in the scheduler. `states` are its words in lower case, none if the node is unknown to it."""

    states: FrozenSet[str]
    reason: str
    line: str


class BadSchedulerAnswer(Exception):
    """The scheduler's command could not be used, or its answer makes no sense; the text says which."""


def parse_slurm_ping(text: str) -> Dict[str, bool]:
    """Controllers by what `scontrol ping` calls them, and whether each is up."""
    controllers: Dict[str, bool] = {}
    for match in re.finditer(r"Slurmctld\(([^)]*)\)(?: at (\S+))? (?:is|are) (UP|DOWN)(?:/(UP|DOWN))?", text):
        names, states = match[1].split("/"), [state_text for state_text in (match[3], match[4]) if state_text]
        for place, state in enumerate(states):
            name = names[place] if place < len(names) else names[-1]
            controllers[f"{name} {match[2] or ''}".strip()] = state == "UP"
    return controllers


def ping(host: Host, manager: Manager, deadline: float) -> SchedulerAnswer:
    """Raises BadSchedulerAnswer, OSError if the command is not here."""
    name, asked = manager.name, manager.ping
    ended = host.run(asked, timeout=deadline)
    if ended.timed_out:
        return SchedulerAnswer(False, f"no answer to {' '.join(asked)} within {deadline:g} s")
    if name == "slurm":
        controllers = parse_slurm_ping(ended.stdout)
        if not controllers:
            raise BadSchedulerAnswer(f"scontrol ping: {ended.complaint}")
        down = [each for each, up in controllers.items() if not up]
        text = ", ".join(f"{each} is {'up' if up else 'down'}" for each, up in controllers.items())
        return SchedulerAnswer(len(down) < len(controllers), text, bool(down))
    if name == "sge" and not _DOWN.search(ended.stderr):  # the host `none` is unknown: that is an answer
        return SchedulerAnswer(True, "qmaster answers")
    if ended.status == 0 and not _DOWN.search(ended.stdout):
        return SchedulerAnswer(True, f"{asked[0]} is answered")
    if _DOWN.search(ended.stderr + ended.stdout):
        return SchedulerAnswer(False, ended.complaint)
    raise BadSchedulerAnswer(f"{asked[0]}: {ended.complaint}")


def view(host: Host, manager: Manager, node: str, deadline: float) -> SchedulerView:
    """Raises BadSchedulerAnswer, OSError if the command is not here."""
    if not manager.show:
        raise BadSchedulerAnswer(f"{manager.name} has no command that shows a node")
    asked = (*manager.show, node)
    ended = host.run(asked, timeout=deadline)
    if manager.name == "pbs" and ended.status and re.search(r"invalid option|usage:", ended.stderr, re.IGNORECASE):
        ended = host.run(("pbsnodes", node), timeout=deadline)  # Torque has no -v
    if ended.timed_out:
        raise BadSchedulerAnswer(f"no answer to {asked[0]} within {deadline:g} s")
    answer = _READ[manager.lbnl](ended.stdout, node)
    if answer is None and re.search(manager.stranger, ended.stdout + ended.stderr, re.IGNORECASE):
        return SchedulerView(frozenset(), "", ended.complaint)
    if answer is None:
        raise BadSchedulerAnswer(f"{asked[0]}: {ended.complaint}")
    return answer


def _slurm(text: str, _node: str) -> Optional[SchedulerView]:
    line = next((line for line in text.splitlines() if line.startswith("NodeName=")), "")
    state = re.search(r"\bState=(\S+)", line)
    if not state:
        return None
    flags_text = re.sub(r"\*", "+not_responding", state[1].lower())
    reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\])?(?: \w+=|\s*$)", line)
    flags = re.sub(r"[~#!%$@^\-]", "", flags_text)
    return SchedulerView(frozenset(flags.split("+")), str(reason[1]) if reason else "", line[:400])


class SlurmNodeMemory(NamedTuple):
    """A node's memory in MB as Slurm has it: all, reserved for the system, and allocated to jobs; and the jobs'
    CPUs.
    """

    real: int
    special: int
    allocated: int
    cpus_allocated: int


def slurm_memory(host: Host, node: str, deadline: float) -> SlurmNodeMemory:
    """What `scontrol show node` says of a node's memory.

    Raises BadSchedulerAnswer, OSError if the command is not here.
    """
    ended = host.run(("scontrol", "-o", "show", "node", node), timeout=deadline)
    if ended.timed_out:
        raise BadSchedulerAnswer(f"no answer to scontrol within {deadline:g} s")
    values = dict(re.findall(r"(?a)(?:^|\s)(\w+)=(\d{1,15})\b", ended.stdout))
    numbers = [int(values.get(key, 0)) for key in ("RealMemory", "MemSpecLimit", "AllocMem", "CPUAlloc")]
    if not numbers[0]:
        raise BadSchedulerAnswer(f"scontrol: {ended.complaint or f'it does not tell the memory of {node}'}")
    return SlurmNodeMemory(*numbers)


def _pbs(text: str, _node: str) -> Optional[SchedulerView]:
    values: Dict[str, str] = dict(re.findall(r"^\s+(\w+) = (.*)$", text, re.MULTILINE))
    if "state" not in values:
        return None
    states = frozenset(state.strip().lower() for state in values["state"].split(","))
    return SchedulerView(states, values.get("comment") or values.get("note") or "", f"state = {values['state']}")


def _lsf(text: str, node: str) -> Optional[SchedulerView]:
    lines = [line.split() for line in text.splitlines() if line.split()]
    if len(lines) < 2 or lines[0][:2] != ["HOST_NAME", "STATUS"]:
        return None
    row = next((fields for fields in lines[1:] if fields[0].partition(".")[0] == node.partition(".")[0]), lines[1])
    return SchedulerView(frozenset((row[1].lower(),)), "", " ".join(row))


def _sge(text: str, node: str) -> Optional[SchedulerView]:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 7 and fields[0].partition(".")[0] == node.partition(".")[0]:
            load = fields[6] if len(fields) < 11 else fields[-5]
            return SchedulerView(frozenset(("unreachable",)) if load == "-" else frozenset(("ok",)), "", line.strip())
    return None


_READ = {"slurm": _slurm, "pbs": _pbs, "lsf": _lsf, "sge": _sge}
"""By the name that Manager.lbnl gives: Torque's answer reads as PBS's."""
