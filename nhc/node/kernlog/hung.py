"""Tasks that the kernel reports as hung: one moment is one event, whatever the number of lines.

`khungtaskd` prints up to `kernel.hung_task_warnings` (10) reports at once, each an INFO line and the task's stack
(kernel/hung_task.c hung_task_info, sched_show_task). A file server that does not answer makes many tasks hang and is
no fault of the node. The stack names the file system, and so does the name of some kernel threads.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog.match import DEGRADED, FATAL, Match

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from nhc.node.kernlog.state_types import HungMemory, LogState

KEY = "hung/TaskHung/"
OF_THE_REPORT = 10.0
"""Seconds after an INFO line in which a stack line is of that report."""
OUTLIVES = 600.0
"""Seconds after its file system came back in which a task has to go on. NFS and Lustre replay within one or two
minutes; khungtaskd reports every 120 s."""
STAYS = 600.0
"""Seconds that a task must be blocked on the node's own disks to count as a fault of the node: a drive's error handling
gives up well before (SCSI: 30 s a command and a few resets; NVMe: 30 s and a controller reset)."""
TASKS = 32
"""Tasks remembered, those reported last."""
OWN = ("ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs")
"""File systems whose data is on the node's own disks."""
ENDS = {("nfs", "ServerOk"): "nfs", ("lustre", "ConnectionRestored"): "lustre", ("ceph", "MdsBack"): "ceph"}
"""The lines with which a file server is back."""

_REPORT = r"task (.+?):(\d{1,9}) .*?for more than (\d{1,9}) seconds"
_THREADS = (("jbd2/", "ext4"), ("xfsaild", "xfs"), ("xfs-", "xfs"), ("btrfs-", "btrfs"))
"""Kernel threads named after what they serve: fs/jbd2/journal.c, fs/xfs/xfs_trans_ail.c, fs/btrfs/disk-io.c."""
_MODULES = {
    "nfsv3": "nfs", "nfsv4": "nfs", "sunrpc": "nfs", "rpcsec_gss_krb5": "nfs", "jbd2": "ext4", "libceph": "ceph",
    "rpc": "nfs", "rbd": "ceph", "ptlrpc": "lustre", "obdclass": "lustre", "osc": "lustre", "lov": "lustre",
    "mdc": "lustre", "lmv": "lustre", "mgc": "lustre", "lnet": "lustre", "mmfs26": "gpfs", "mmfslinux": "gpfs",
    "wekafsio": "weka", "wekafsgw": "weka", "9pnet": "9p", "spl": "zfs",
}  # fmt: skip


def _memory(state: LogState) -> HungMemory:
    return state.setdefault("hung", {"tasks": {}, "ended": {}, "task": "", "named": False})


def take(state: LogState, match: Match, when: float) -> Optional[Match]:
    """Take in a report's INFO line or a line of its stack. What stands then, None for nothing that changes."""
    memory = _memory(state)
    tasks = memory["tasks"]
    if match.code == "TaskStack":
        task = memory["task"]
        if task not in tasks:
            return None
        since, on, last = tasks[task]
        if (on and not memory["named"]) or not 0 <= when - last <= OF_THE_REPORT:
            return None
        module = re.search(r"\(([\w-]+)\)$", match.message)
        name = module[1] if module else ""
        tasks[task] = (since, _MODULES.get(name, name), last)
        memory["named"] = False
    else:
        report = re.search(_REPORT, match.line)
        if report is None:
            return match
        if KEY not in state.get("findings", {}):  # acknowledged, or never there: what went before is over
            for name in [name for name, (_since, on, last) in tasks.items() if last > memory["ended"].get(on, -1.0)]:
                del tasks[name]
        task = memory["task"] = f"{report[1]}:{report[2]}"
        before = tasks.pop(task, None)
        since = min(when - float(report[3]), before[0] if before else when)
        named = next((name for form, name in _THREADS if report[1].startswith(form)), "")
        on = before[1] if before else named
        memory["named"] = bool(named) and on == named  # a user can give a program such a name: the stack knows better
        tasks[task] = (since, on, when)
        while len(tasks) > TASKS:
            del tasks[next(iter(tasks))]
    return judged(state, match)


def worst(state: LogState) -> Tuple[str, str]:
    """The file system in which a task has hung so long that the node is to blame, and how. Two empty words for none."""
    memory = _memory(state)
    blamed = ("", "")
    for task, (since, on, last) in memory["tasks"].items():
        ended = memory["ended"].get(on)
        if ended is not None and last <= ended:
            continue
        if ended is not None and since < ended and last - ended > OUTLIVES:
            return on, f"; {task} is still blocked {int((last - ended) / 60)} minutes after {on} came back"
        if on in OWN and last - since > STAYS:
            blamed = (on, f"; {task} has been blocked on the node's own {on} for {int(last - since)} s")
    return blamed


def judged(state: LogState, match: Match) -> Optional[Match]:
    """The match as what all reports together make of it."""
    memory = _memory(state)
    standing: List[str] = []
    places: List[str] = []
    for task, (_since, on, last) in memory["tasks"].items():
        if last <= memory["ended"].get(on, -1.0):
            continue
        standing.append(task)
        if on and on not in places:
            places.append(on)
    if not standing:
        return None
    more = f" and {len(standing) - 3} more" if len(standing) > 3 else ""
    where = f", in {', '.join(sorted(places))}" if places else ""
    text = f"tasks are stuck in the kernel{where}: {', '.join(standing[:3])}{more}"
    blamed, why = worst(state)
    severity, action = (FATAL, Action.REBOOT) if blamed else (DEGRADED, Action.INSPECT)
    return match._replace(code="TaskHung", severity=severity, action=action, message=f"{text}{why}")


def recovered(state: LogState, match: Match, when: float) -> bool:
    """Note that a file server is back. False for a line that says no such thing."""
    on = ENDS.get((match.kind, match.code))
    if on is not None:
        _memory(state)["ended"][on] = when
    return on is not None


def tasks_of(state: LogState) -> Dict[str, Tuple[float, str, float]]:
    """The tasks reported as hung: since when, in which file system, and when it was reported last."""
    return dict(_memory(state)["tasks"])
