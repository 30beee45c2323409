"""Which programs an application's fault came from: a device is suspect only where different ones fail on it alone.

A pod that crashes and is started again repeats its Xid on every node that it comes to. NVIDIA prints who held the
channel (`pid=1234, name=python`: open-gpu-kernel-modules kernel_rc.c krcReportXid). The name is a thread's, and a
program has many: so lines of one process, of one pod or job, or of one crash are of one program whatever they are
called, and so are the names that Python programs give themselves.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from typing_extensions import TypeAlias

    from nhc.core.host import Host
    from nhc.node.kernlog.state_types import LogState

    Origin: TypeAlias = Callable[[int], str]
    """What a process belongs to, by its number: a pod, a job, a service; "" if that cannot be had any more."""

KEPT = 16
"""Programs remembered for one device and error."""
STORES = 256

_NAME = r"\bname=(?:'([^']*)'|([^,]*))"
_PID = r"(?a)\bpid='?(\d{1,9})\b"
_PYTHON = r"python|pt_|\w+::"
"""Names of Python programs: the interpreter's, PyTorch's threads' (c10/util/thread_name.h), and titles in the form that
vLLM, SGLang and Ray set (setproctitle: `VLLM::EngineCore`, `ray::Worker`)."""
_WORKLOADS = (
    r"(?:^|/|-)pod([0-9a-f]{8}[-_][0-9a-f_-]{27})",  # kubelet: cm/pod_container_manager_linux.go
    r"/job_(\d+)",  # Slurm: src/plugins/cgroup
)


def name_of(line: str) -> str:
    """The program that a line names, "" for none."""
    match = re.search(_NAME, line)
    name = (match[1] or match[2] or "").strip() if match else ""
    return "" if name == "<unknown>" else name[:64]


def origin(host: Host) -> Origin:
    """Looks up on this node what a process belongs to, by its control group."""

    def look(pid: int) -> str:
        for line in host.read_or(f"/proc/{pid}/cgroup").split("\n"):
            path = line.partition(":")[2].partition(":")[2]
            for form in _WORKLOADS:
                workload = re.search(form, path)
                if workload:
                    return workload[0].strip("/-").replace("_", "-")[:80]
            if path not in ("", "/") and line.startswith(("0:", "1:")):
                return path[-80:]
        return ""

    return look


def _ties(line: str, name: str, looked_up: str) -> List[str]:
    """What makes this program one with others."""
    pid = re.search(_PID, line)
    ties = [f"name {name}", f"in {looked_up}" if looked_up else "", f"pid {pid[1]}" if pid else ""]
    if re.match(_PYTHON, name):
        ties.append("python")
    return [tie for tie in ties if tie]


def note(
    state: LogState, place: str, line: str, when: float, window: float, burst: float, look: Callable[[int], str]
) -> None:
    """Remember the program of this line at a place: how often it failed there (bursts count once), and when last."""
    stores, all_ties = state.setdefault("programs", {}), state.setdefault("ties", {})
    held = {name: seen for name, seen in stores.pop(place, {}).items() if when - window <= seen[1]}
    known: Dict[str, str] = {tie: name for tie, name in all_ties.pop(place, {}).items() if name in held}
    name = name_of(line)
    if name:
        pid = re.search(_PID, line)
        ties = _ties(line, name, look(int(pid[1])) if pid else "")
        same = [known[tie] for tie in ties if tie in known]
        same += [other for other, seen in held.items() if abs(when - seen[1]) <= burst]
        first = next(iter(same), name)
        for other in same:
            if other != first and other in held:  # two that were taken for different programs are one
                times, last = held.pop(other)
                held[first] = [max(times, held[first][0]), max(last, held[first][1])]
                known.update((tie, first) for tie, owner in list(known.items()) if owner == other)
        times, last = held.pop(first, [0, when])
        held[first] = [times + (times == 0 or when - last > burst), when]
        known.update(dict.fromkeys(ties, first))
    while len(held) > KEPT:
        del held[next(iter(held))]
    if held:
        stores[place] = held
        all_ties[place] = dict(list(known.items())[-4 * KEPT :])
    while len(stores) > STORES:
        all_ties.pop(next(iter(stores)), None)
        del stores[next(iter(stores))]


def independent(state: LogState, place: str, wanted: int, unit: bool) -> int:
    """How many different programs speak against this place, 0 for fewer than `wanted`.

    One program that crashes again and again meets, sooner or later, a single crash of another on the same device. So on
    a whole device programs count that failed twice, unless one more than wanted have failed. On one unit of a device
    (an SM of 132) chance explains no second program.
    """
    held = state.get("programs", {}).get(place, {})
    twice = sum(times > 1 for times, _last in held.values())
    enough = len(held) >= wanted if unit else twice >= wanted or len(held) > wanted
    return len(held) if enough else 0
