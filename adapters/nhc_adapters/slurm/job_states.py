"""Slurm's jobs: from what `scontrol show job` prints to `nhc.marks.ports.job_control.JobView`. Pure.

Users choose the names and comments of jobs. So each field is read only at the place where scontrol prints it (the begin
of a line, or after the field before it), and before nhc acts on a job it reads the job again by its number: the first
block of that answer is slurmctld's own.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from nhc.core.json_values import whole_of
from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.core.units import whole_of_digits
from nhc.marks.ports.job_control import JobLoss, JobName, JobView, LossCause, Phase, Wish, WorkItem
from nhc_adapters.slurm.marker import ON_NODES, json_jobs

KIND = "batch"
NOTE = re.compile(r"nhc: restart (\d+)(?: of \d+)?(?:; avoids ([^;|]*))?(?:;[^|]*)?")
"""Our part of a job's AdminComment."""
WISH = re.compile(r"(?:^|[\s,;])nhc-restart(?:=(\d{1,6}))?(?=[\s,;]|$)")
CHECKPOINT = re.compile(r"(?:^|[\s,;])nhc-checkpoint=(\S+)")
"""What a user writes into the job's Comment: `sbatch --comment "nhc-restart=3 nhc-checkpoint=/ckpt/llama"`."""

OURS = ("JobHeldAdmin", "job_requeued_in_held_state")
"""Reasons of jobs that an administrator holds: with our note in the AdminComment it was nhc."""

CAUSES = {
    "NODE_FAIL": (LossCause.NODE, "its node failed"),
    "BOOT_FAIL": (LossCause.NODE, "its node did not boot"),
    "LAUNCH_FAILED": (LossCause.NODE, "its node could not launch it"),
    "RECONFIG_FAIL": (LossCause.NODE, "its node could not be configured"),
    "PREEMPTED": (LossCause.PREEMPTED, "it was preempted"),
    "TIMEOUT": (LossCause.LIMIT, "it reached its time limit"),
    "DEADLINE": (LossCause.LIMIT, "it reached its deadline"),
    "OUT_OF_MEMORY": (LossCause.LIMIT, "it used more memory than it asked for"),
    "FAILED": (LossCause.EXIT, ""),
}
"""What each state of a job that ended badly says (`src/common/slurm_protocol_defs.c`, job_state_string)."""

ENDED_WELL = {"COMPLETED": Phase.SUCCEEDED, "CANCELLED": Phase.CANCELLED, "REVOKED": Phase.CANCELLED}
ACTIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "STAGE_OUT", "SIGNALING", "RESIZING"})

_FIELDS = {
    "JobState": r"^   JobState=(\S+)",
    "Reason": r"^   JobState=\S+ Reason=(\S+)",
    "Priority": r"^   Priority=(\d+)",
    "User": r"^   UserId=([^\s(]+)",
    "Requeue": r"^   Requeue=(\d)",
    "Restarts": r"^   Requeue=\d Restarts=(\d+)",
    "Batch": r"^   Requeue=\d Restarts=\d+ BatchFlag=(\d)",
    "ExitCode": r"^   Requeue=\d .*?ExitCode=(\d+:\d+)",
    "StartTime": r"^   StartTime=(\S+)",
    "EndTime": r"^   StartTime=\S+ EndTime=(\S+)",
    "Partition": r"^   Partition=(\S+)",
    "ReqNodeList": r"^   ReqNodeList=(\S+)",
    "ExcNodeList": r"^   ReqNodeList=\S+ ExcNodeList=(\S+)",
    "NodeList": r"^   NodeList=(\S*)",
    "NumNodes": r"^   NumNodes=(\d+)",
    "NumTasks": r"^   NumNodes=\S+ NumCPUs=\d+ NumTasks=(\d+)",
    "Tres": r"^   (?:Alloc)?TRES=(\S+)",
    "StdErr": r"^   StdErr=(.+)",
    "StdOut": r"^   StdOut=(.+)",
    "MailUser": r"^   MailUser=(\S+)",
    "Comment": r"^   Comment=(.*)",
    "AdminComment": r"^   AdminComment=(.*)",
}


def gpus_of(tres: str) -> int:
    """The GPUs in a list of trackable resources: `cpu=64,gres/gpu=8,gres/gpu:h100=8`, whose kinds are counted in it."""
    match = re.search(r"(?:^|,)gres/gpu=(\d+)(?=,|$)", tres)
    return int(match[1]) if match else 0


class SlurmJob:
    """One job's fields, as text; "" if it has none.

    `number` is what commands take for this job alone: `17`, or `17_3` for a task of an array, because a command for 17
    acts on all its tasks. A heterogeneous job is one job, named by its leader's number; `parts` are its components, the
    leader first. Lists of nodes cover all components, and a component that failed makes the whole job failed.
    """

    def __init__(self, number: str, text: str) -> None:
        self.number = number
        self.parts: Tuple[SlurmJob, ...] = ()
        self._fields: Dict[str, str] = {}
        for name, pattern in _FIELDS.items():
            match = re.search(pattern, text, re.MULTILINE)
            value = match[1].strip() if match else ""
            self._fields[name] = "" if value in ("(null)", "N/A", "Unknown") else value

    def join(self, parts: Sequence[SlurmJob]) -> SlurmJob:
        """Make this leader speak for its components."""
        self.parts = tuple(parts)
        bad = next((part for part in parts if part["JobState"] in CAUSES), self)
        self._fields.update({name: bad[name] for name in ("JobState", "Reason", "ExitCode", "EndTime")})
        return self

    def __getitem__(self, name: str) -> str:
        return self._fields[name]

    def nodes(self, name: str) -> Tuple[str, ...]:
        """The nodes of a field that holds a list of them."""
        lists = [part[name] for part in self.parts or (self,)]
        return tuple(dict.fromkeys(node for text in lists if text for node in expand(text)))

    @property
    def wants(self) -> int:
        """How many nodes it needs."""
        return sum(int(part["NumNodes"] or 1) for part in self.parts or (self,))

    @property
    def gpus(self) -> int:
        """How many GPUs it was given. Until Slurm 22.05 the field was TRES, then ReqTRES and AllocTRES."""
        return sum(gpus_of(part["Tres"]) for part in self.parts or (self,))

    @property
    def partitions(self) -> Tuple[str, ...]:
        lists = [part["Partition"].split(",") for part in self.parts or (self,)]
        return tuple(dict.fromkeys(name for names in lists for name in names if name))

    def wish(self) -> Optional[Wish]:
        """What its user asked for in the comment, None if that is nothing."""
        asked = WISH.search(self["Comment"])
        if asked is None:
            return None
        checkpoint = CHECKPOINT.search(self["Comment"])
        return Wish(int(asked[1]) if asked[1] else None, printable(checkpoint[1], 500) if checkpoint else "")

    def noted(self) -> Tuple[int, Tuple[str, ...]]:
        """The number of our newest restart that its AdminComment names, and the nodes that we keep it off."""
        match = NOTE.search(self["AdminComment"])
        if match is None:
            return 0, ()
        return int(match[1]), tuple(expand(match[2].strip())) if match[2] else ()

    def held(self) -> bool:
        """Whether it waits until somebody releases it: a priority of 0."""
        return self["JobState"] == "PENDING" and self["Priority"] == "0"


def parse_jobs(text: str) -> List[SlurmJob]:
    """What `scontrol show job` printed, the jobs in their order; a number may be there twice (users' texts).

    Tasks of an array that have not started yet are one block of slurmctld's, which is left out.
    """
    jobs: List[SlurmJob] = []
    parts: Dict[str, List[SlurmJob]] = {}
    for block in re.split(r"^(?=JobId=\d)", text, flags=re.MULTILINE):
        head = _HEAD.match(block)
        if head is None or (head["array"] and not head["task"].isdigit()):
            continue
        number = f"{head['array']}_{head['task']}" if head["array"] else head["het"] or head["number"]
        if head["het"]:
            parts.setdefault(number, []).append(SlurmJob(number, block))
        if head["offset"] in (None, "0"):
            jobs.append(SlurmJob(number, block))
    return [job.join(parts[job.number]) if job.number in parts else job for job in jobs]


_HEAD = re.compile(
    r"JobId=(?P<number>\d+)(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+)"
    r"| HetJobId=(?P<het>\d+) HetJobOffset=(?P<offset>\d+))?\s"
)
"""The begin of a job's block (`slurm_sprint_job_info`, src/api/job_info.c)."""


def job_of(job: SlurmJob, wish: Wish) -> JobView:
    """The value that the rest of nhc sees. Raises ValueError for a state that Slurm does not have."""
    phase, losses = _phase(job)
    number, _avoided = job.noted()
    ours = job.held() and job["Reason"] in OURS and number > 0
    started, ended = moment(job["StartTime"]), moment(job["EndTime"])
    running = phase in (Phase.RUNNING, Phase.ENDING, Phase.FAILED)
    return JobView(
        JobName(KIND, "", job.number),
        job["Restarts"] or "0",
        phase,
        job.nodes("NodeList") if running else (),
        job.wants,
        job["User"],
        started if running else None,
        ended if phase is Phase.FAILED else None,
        losses,
        wish,
        number,
        ours,
        False,
        True,
        _untouchable(job, phase),
        job.nodes("ReqNodeList"),
    )


def _untouchable(job: SlurmJob, phase: Phase) -> str:
    if job["Batch"] == "0":
        return "only batch jobs can be requeued: it runs under salloc or srun"
    if job["Requeue"] == "0":
        return "it was submitted with --no-requeue"
    if phase is Phase.HELD and job["Reason"] == "JobHeldUser":
        return "its user holds it"
    return ""


def _phase(job: SlurmJob) -> Tuple[Phase, Tuple[JobLoss, ...]]:
    state = job["JobState"]
    if state in ENDED_WELL:
        return ENDED_WELL[state], ()
    if state in ACTIVE:
        return Phase.RUNNING, ()
    if state == "COMPLETING":
        return Phase.ENDING, ()
    if state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD"):
        if "launch_fail" in job["Reason"].lower():
            return Phase.HELD, (
                JobLoss("", LossCause.NODE, "its node could not launch it", moment(job["StartTime"]) or 0.0),
            )
        return Phase.HELD if job.held() or state in ("REQUEUE_HOLD", "SPECIAL_EXIT") else Phase.PENDING, ()
    if state not in CAUSES:
        raise ValueError(f"job {job.number} is {printable(state, 40)!r}, which is no state of a job that nhc knows")
    cause, detail = CAUSES[state]
    return Phase.FAILED, (JobLoss("", cause, detail or exit_text(job["ExitCode"]), moment(job["EndTime"]) or 0.0),)


def exit_text(code: str) -> str:
    """What `STATUS:SIGNAL` says, Slurm's form of an exit code."""
    status, _, number = code.partition(":")
    return f"it was ended by signal {number}" if number not in ("", "0") else f"it ended with exit status {status}"


def moment(text: str) -> Optional[float]:
    """A time as Slurm's commands write it with SLURM_TIME_FORMAT=%s; None for none."""
    seconds = whole_of_digits(text)
    return None if seconds is None else float(seconds)


def new_note(before: str, number: int, avoids: Sequence[str], why: str) -> str:
    """The AdminComment with our note in it; what others wrote there stays."""
    from nhc.core.matching.node_ranges import fold

    text = f"nhc: restart {number}"
    if avoids:
        text += f"; avoids {fold(avoids)}"
    text += f"; {printable(why, 200).replace('|', '/').replace(';', ',')}" if why else ""
    others = " | ".join(part.strip() for part in NOTE.sub("", before).split("|") if part.strip())
    return f"{others} | {text}" if others else text


# The jobs on one node, for a person: what squeue and slurmrestd say of them. Pure.
#
# The names of jobs are their users' texts, line breaks and all. squeue prints a random text of ours before each job,
# which no user can put into a name, and the name comes last.


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
    """Why the answer to this user may lack jobs, "" if it is complete. `config` is slurm.conf as slurmctld has it."""
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
    """A number, which newer releases wrap in an object that says whether it is set; None if it is not."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return whole_of(value)
