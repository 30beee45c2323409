"""What both ways to Slurm share, its commands and slurmrestd: the state and reason that make a mark, and the work on
nodes.

Standard library only: the hooks run this.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.core.json_values import list_in, objects_in, objects_of, text_of
from nhc.core.matching.node_ranges import expand
from nhc.core.model import Action
from nhc.marks.ports.adapter import SCHEDULER, Mark, NodeState, Silence
from nhc_adapters._command import CommandMarker, Failures, Hosts
from nhc_adapters.slurm.states import HYPERPOD_OWNER, KEPT

# What a node's flags do not show: its work, since when slurmctld has no contact with it, where it is, and
# which nodes share its machine.
#
# A suspended job (by hand, by gang scheduling, by preemption) gives its processors back, so its node is IDLE; its
# processes are there all the same, and end with the node. What squeue shows counts. Standard library only.


ON_NODES = (
    "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING",
)  # fmt: skip
"""The states of jobs that have processes on nodes, or may have (`src/common/slurm_protocol_defs.c`)."""

SQUEUE = ("squeue", "-a", "-h", "-t", ",".join(ON_NODES), "-o", "%T %N")

Work = Mapping[str, FrozenSet[str]]
"""The states of the jobs on each node."""


def drained(state: NodeState) -> bool:
    """Whether a node stays out by itself once it responds again: one that is only DOWN does not."""
    return bool(state.flags & KEPT)


def parse_squeue(text: str) -> Work:
    """What the command above printed. Raises ValueError for a list of nodes that is none."""
    states_on: Dict[str, Set[str]] = {}
    for line in text.splitlines():
        state, _, nodes = line.strip().partition(" ")
        for node in expand(nodes.strip()) if nodes.strip() else ():
            states_on.setdefault(node, set()).add(state)
    return {node: frozenset(states) for node, states in states_on.items()}


def parse_json_jobs(value: Mapping[str, Any]) -> Work:
    """The `jobs` of slurmrestd's answer. Raises ValueError where it is none."""
    return parse_squeue(
        "\n".join(f"{state} {job.get('nodes') or ''}" for states, job in json_jobs(value) for state in states)
    )


def json_jobs(value: Mapping[str, Any]) -> List[Tuple[List[str], Mapping[str, Any]]]:
    """The jobs of slurmrestd's answer that may be on nodes, each with those of its states that say so.

    Raises ValueError.
    """
    if "jobs" not in value:
        raise ValueError("no list of jobs in Slurm's JSON")
    running: List[Tuple[List[str], Mapping[str, Any]]] = []
    for job in objects_in(value, "jobs"):
        reported = job.get("job_state")
        names = [reported] if isinstance(reported, str) else [str(state) for state in list_in(job, "job_state")]
        states = [name.upper() for name in names if name.upper() in ON_NODES]
        if states:
            running.append((states, job))
    return running


def with_work(states: Iterable[NodeState], work: Work) -> List[NodeState]:
    """The nodes with the work that is on them.

    slurmctld has given up the jobs of a node that is DOWN; the rest of them stays COMPLETING for as long as the node
    does not respond, and delays no repair. A restarted slurmctld does not know what runs on a node that has not
    responded yet (UNKNOWN): a job whose start it had not saved is pending for it.
    """
    result = []
    for state in states:
        jobs = work.get(state.name, frozenset())
        if "DOWN" in state.flags:
            result.append(state._replace(busy=bool(jobs - {"COMPLETING"})))
        else:
            result.append(state._replace(busy=state.busy or bool(jobs) or "UNKNOWN" in state.flags))
    return result


class Silences:
    """Since when nodes are DOWN because they do not respond to slurmctld.

    Its own reason has the time. Once our reason has replaced it, the time is when this process saw it first.
    """

    def __init__(self) -> None:
        self._since: Dict[str, float] = {}

    def seen(self, states: Iterable[NodeState], now: float) -> List[NodeState]:
        """The nodes with their silence, as they were read at `now`."""
        result = []
        for state in states:
            if not _silent(state):
                self._since.pop(state.name, None)
                result.append(state)
                continue
            own = state.mark is not None and state.mark.owner == SCHEDULER
            known = state.mark.since if state.mark is not None and own else None
            since = self._since.setdefault(state.name, known or now)
            result.append(state._replace(silence=Silence(since, f"slurmctld does not hear its slurmd ({state.shown})")))
        return result


def _silent(state: NodeState) -> bool:
    own = state.mark is not None and state.mark.owner == SCHEDULER
    return "DOWN" in state.flags and not state.hold and (own or "NOT_RESPONDING" in state.flags)


# Where nodes are, as slurmctld has it.

Places = Mapping[str, Tuple[Tuple[str, str], ...]]
"""The kind and the name of the groups that each node is in: leaf switches (topology/tree), blocks (topology/block)."""

TOPOLOGY = ("scontrol", "show", "topology")


def parse_topology(text: str) -> Places:
    """What the command above printed: a line for each switch or block. Raises ValueError for a list that is none."""
    places: Dict[str, Tuple[Tuple[str, str], ...]] = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        leaf = fields.get("SwitchName", "") if fields.get("Level") == "0" else ""
        for kind, name in (("leaf", leaf), ("block", fields.get("BlockName", ""))):
            for node in expand(fields["Nodes"]) if name and "Nodes" in fields else ():
                places[node] = (*places.get(node, ()), (kind, name))
    return places


# Which nodes share a machine.

HOSTS = ("sinfo", "-a", "-h", "-N", "-O", "NodeList:|,NodeHost:|,NodeAddr:|")
"""Each node's NodeHostname and NodeAddr, a line for each of its partitions: several slurmd on one host share either."""


def parse_hosts(text: str) -> Hosts:
    """What the command above printed. Raises ValueError for a line that is not of it."""
    hosts: Dict[str, Tuple[str, str]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if line.strip() and len(fields) < 3:
            raise ValueError(f"sinfo printed {line!r}")
        if line.strip():
            hosts[fields[0]] = (fields[1], fields[2])
    return hosts


def json_hosts(value: Mapping[str, Any]) -> Hosts:
    """The same by Slurm's JSON of nodes."""
    rows = objects_of(value.get("nodes"))
    return {text_of(row.get("name")): (text_of(row.get("hostname")), text_of(row.get("address"))) for row in rows}


class SlurmMarker(CommandMarker):
    """Nodes drained and resumed. NHC_HYPERPOD=1: with SageMaker HyperPod's reasons, if one of its repairs fits."""

    keeps_time = True

    def _prepare(self) -> None:
        self.hyperpod = self.command.setting("NHC_HYPERPOD") in ("1", "yes", "true")
        self.silences = Silences()

    @abstractmethod
    def _states_of(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        """As `_read`, by what slurmctld has of the nodes themselves."""

    @abstractmethod
    def _work(self) -> Work:
        """The work on all nodes. Raises AdapterError."""

    @abstractmethod
    def _update(self, nodes: Sequence[str], state: str, reason: str) -> Failures:
        """Set the state and the reason of nodes; "" leaves one as it is."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        states = self._states_of(names)
        if not self.in_hook:
            states = with_work(states, self._work())
        return self.silences.seen(states, time.time())

    def _text(self, mark: Mark) -> str:
        if self.hyperpod and mark.action in (Action.REBOOT, Action.REPLACE):
            return f"Action:{mark.action.value.capitalize()}"
        return super()._text(mark)

    def _is_out(self, state: NodeState) -> bool:
        return drained(state)

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        state = "" if drained(states[0]) else "DRAIN"
        return self._update([node.name for node in states], "FAIL" if text.startswith("Action:") else state, text)

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        return self._update([node.name for node in states], "RESUME", "")

    def _carries(self, state: NodeState, mark: Mark) -> bool:
        if state.mark is not None and state.mark.owner == HYPERPOD_OWNER:
            return state.mark.why.lower() == self._text(mark).lower()
        return super()._carries(state, mark)
