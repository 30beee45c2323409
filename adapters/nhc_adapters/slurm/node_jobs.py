"""The jobs on one node, for a person: what squeue and slurmrestd say of them. Pure.

The names of jobs are their users' texts, line breaks and all. squeue prints a random text of ours before each job,
which nobody can have put into a name, and the name comes last.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Tuple

from nhc.core.json_values import whole_of
from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.marks.ports.node_work import WorkItem
from nhc_adapters.slurm.job_states import KIND, moment
from nhc_adapters.slurm.work import ON_NODES, json_jobs

LONGEST = 200
"""Characters of a name that are shown."""


def squeue_words(node: str, before: str) -> Tuple[str, ...]:
    """The command that lists the jobs on a node, each with the text `before` it."""
    return ("squeue", "-a", "-h", "-w", node, "-t", ",".join(ON_NODES), "-o", f"{before}|%i|%T|%S|%u|%j")


def parse_squeue_jobs(text: str, before: str) -> List[WorkItem]:
    """What that command printed, with times as Unix seconds. Raises ValueError."""
    head, *jobs = text.split(f"{before}|")
    rows = [job.split("|", 4) for job in jobs]
    if head.strip() or any(len(row) < 5 for row in rows):
        raise ValueError("squeue did not print the fields that it was asked for")
    return [_item(number, state, started, user, name) for number, state, started, user, name in rows]


def parse_json_node_jobs(value: Mapping[str, Any], node: str) -> List[WorkItem]:
    """The jobs on a node among those of slurmrestd's answer. Raises ValueError."""
    return [
        _item(_json_id(job), "+".join(states), str(_number(job.get("start_time")) or ""),
              str(job.get("user_name") or job.get("user_id") or ""), str(job.get("name") or ""))
        for states, job in json_jobs(value) if node in expand(str(job.get("nodes") or ""))
    ]  # fmt: skip


def hidden_jobs(config: Mapping[str, str], uid: int) -> str:
    """Why jobs may be missing where this user asks, "" where none is. `config` is slurm.conf as slurmctld has it."""
    private = config.get("PrivateData", "").split(",")
    if "jobs" not in private or uid == 0 or config.get("SlurmUser", "").endswith(f"({uid})"):
        return ""
    return f"PrivateData=jobs: Slurm may hide the jobs of others from the user with number {uid}, as which nhc asks"


def _item(number: str, state: str, started: str, user: str, name: str) -> WorkItem:
    job = printable(number, LONGEST)
    watched = f"{KIND}/{job.partition('+')[0]}"  # nhc watches a heterogeneous job by its leader
    at = moment(started)
    return WorkItem(job, printable(name, LONGEST), printable(user, LONGEST), printable(state, 60), at, (watched,))


def _json_id(job: Mapping[str, Any]) -> str:
    """As squeue's %i: `17`, a task of an array `17_3`, a component of a heterogeneous job `17+1`."""
    array, leader = _number(job.get("array_job_id")), _number(job.get("het_job_id"))
    if array:
        return f"{array}_{_number(job.get('array_task_id')) or 0}"
    if leader:
        return f"{leader}+{_number(job.get('het_job_offset')) or 0}"
    return str(job.get("job_id") or "")


def _number(value: object) -> Optional[int]:
    """A number, which newer releases wrap with whether it is set; None where it is not."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return whole_of(value)
