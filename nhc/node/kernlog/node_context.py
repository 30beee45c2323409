"""Findings beside the node they are about: whose volume it is, whether a task still hangs. All of it from Host facts.

A finding that nobody but the node can judge is `depends`: where the node cannot be asked (a log that was brought to
another machine) it is degraded, never fatal.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog import device_role, hotplug, hung, volumes
from nhc.node.kernlog.findings import parted
from nhc.node.kernlog.match import APP, DEGRADED, FATAL, RANK

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from nhc.core.host import Host
    from nhc.node.kernlog.match import Match
    from nhc.node.kernlog.state_types import Finding, LogState
    from nhc.node.kernlog.volumes import Volumes

    Pair = Tuple[str, Finding]

FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "f2fs")
VOLUMES = (*FILE_SYSTEMS, "block")
MODULES = {"ext4": ("ext4", "ext3", "ext2")}
"""The types of file systems that a kind of findings is about, where there are more than the one of its name."""
NOT_MOUNTED = ("LogMountFailed", "MountFailed")
"""Codes of file systems that could not be mounted, and so are not in the mount table."""
BLOCKED = "kernel-log-blocked"
"""Memory of how often the tasks reported as hung had been scheduled when they were looked at."""
PULLED = "a card was taken out of its slot at that moment"
UNKNOWN = "whether the node itself mounts it cannot be told"


def depends(finding: Finding) -> bool:
    """Whether only the node can tell what a finding means."""
    if finding.get("drill"):
        return False
    kind = finding["kind"]
    if kind == "hung" or finding.get("compared"):
        return True
    if kind in VOLUMES:
        return bool(finding["device"]) or kind in FILE_SYSTEMS
    return bool(kind == "nvme" and finding["severity"] == FATAL) or device_role.asked(finding)


def leaves_no_finding(host: Host, match: Match) -> bool:
    """Whether a line tells of a fault that no finding will tell of: an application's, or of nobody's file system."""
    if match.severity == APP:
        return True
    if match.severity not in (FATAL, DEGRADED) or not match.device:
        return False
    if match.kind not in FILE_SYSTEMS or match.code in NOT_MOUNTED:
        return False
    try:
        return match.device not in volumes.volumes(host).mounted
    except OSError:
        return False  # then the finding stands


def apart(state: LogState, finding: Finding) -> Finding:
    """A finding that depends on the node, if the node cannot be asked."""
    if finding["severity"] != FATAL or not depends(finding) or finding.get("compared"):
        return finding
    if finding["kind"] in ("nvme", *device_role.KINDS):  # most devices are in the node, and it needs them
        why = PULLED if hotplug.taken_out(state, finding) else device_role.by_name(state, finding)
        return _lowered(finding, why) if why else finding
    if finding["kind"] == "hung" and hung.worst(state)[0] not in hung.OWN:
        return finding
    return _lowered(finding, UNKNOWN)


def beside_node(host: Host, state: LogState, pairs: Sequence[Pair]) -> Tuple[List[Pair], List[Pair]]:
    """Findings as the node's own state has them, and those that it shows to be gone."""
    node: Optional[Volumes] = None
    on_volumes = (*VOLUMES, "nvme")
    if any(depends(finding) and finding["kind"] in on_volumes for _key, finding in pairs) or any(
        finding["kind"] == "hung" and finding["severity"] == FATAL for _key, finding in pairs
    ):
        node = _volumes(host)
    standing, gone = parted(pairs, lambda finding: _judged(host, state, node, finding))
    standing.sort(key=lambda pair: -RANK[pair[1]["severity"]])
    return standing, gone


def _judged(host: Host, state: LogState, node: Optional[Volumes], finding: Finding) -> Optional[Finding]:
    if not depends(finding):
        return finding
    if finding.get("compared"):
        return _compared(host, finding)
    if finding["kind"] in device_role.KINDS:
        return _device(host, state, finding)
    return _task(host, state, finding) if finding["kind"] == "hung" else _volume(host, state, node, finding)


def _compared(host: Host, finding: Finding) -> Finding:
    """A fault of applications that counts because no other GPU had it: a node with one GPU has no other."""
    from nhc.node.facts.pci import accelerator_functions

    if finding["severity"] != FATAL or len(host.fact(accelerator_functions)) != 1:
        return finding
    return _lowered(finding, "run diagnostics: the node has no other GPU to compare with")


def _device(host: Host, state: LogState, finding: Finding) -> Finding:
    """A finding of a PCI device: the node goes on without one that it does not need or that somebody took away."""
    if hotplug.taken_out(state, finding) and not device_role.is_there(host, finding["device"]):
        return _lowered(finding, PULLED)
    why = device_role.expendable(host, state, finding)
    return _lowered(finding, why) if why else finding


def _volumes(host: Host) -> Optional[Volumes]:
    try:
        return host.fact(volumes.volumes)
    except OSError:
        return None


def _lowered(finding: Finding, why: str) -> Finding:
    message = f"{finding['message']} ({why})"
    return {**finding, "severity": DEGRADED, "action": Action.INSPECT.value, "message": message}


def _volume(host: Host, state: LogState, node: Optional[Volumes], finding: Finding) -> Optional[Finding]:
    """A finding of a disk or a file system. None if it is nobody's any more."""
    if not finding["device"]:
        return _unnamed(node, finding)
    device, kind = volumes.disk_of(host, finding["device"]), finding["kind"]
    if kind == "nvme" and not volumes.fabric(host, device):
        if node is None or volumes.is_own(node, device) or volumes.controller_present(host, device):
            return finding
        # A drive in the node: its loss counts, mounted or not, unless somebody has pulled it.
        return _lowered(finding, PULLED) if hotplug.taken_out(state, finding) else finding
    if node is None:
        return _lowered(finding, UNKNOWN) if finding["severity"] == FATAL else finding
    if finding["code"] in NOT_MOUNTED:  # a mount that failed is over when a later one has not
        return None if device in node.mounted or not volumes.present(host, device) else finding
    if volumes.is_own(node, device):
        return finding
    if kind in FILE_SYSTEMS:
        if device not in node.mounted:
            return None
    elif volumes.removable(host, device) or (kind == "block" and not volumes.present(host, device)):
        return None
    return _lowered(finding, "the node itself does not mount it") if finding["severity"] == FATAL else finding


def _unnamed(node: Optional[Volumes], finding: Finding) -> Optional[Finding]:
    """A finding of a file system that its line does not name (`BTRFS: Transaction aborted`): any of its type."""
    if node is None:
        return _lowered(finding, UNKNOWN) if finding["severity"] == FATAL else finding
    kind = finding["kind"]
    mounted = frozenset().union(*(node.types.get(name, frozenset()) for name in MODULES.get(kind, (kind,))))
    if not mounted:
        return None
    if mounted <= node.own or finding["severity"] != FATAL:
        return finding
    return _lowered(finding, "the node itself does not mount all of them")


def _task(host: Host, state: LogState, finding: Finding) -> Optional[Finding]:
    """The finding of hung tasks. None if none of them is in state D any more."""
    from nhc.node.facts import history, processes

    blamed = hung.worst(state)[0]
    if finding["severity"] == FATAL and blamed in hung.OWN and not _all_own(host, blamed):
        finding = _lowered(finding, "the node itself does not mount all of them")
    if not _sees_all(host):
        return finding
    tasks = hung.tasks_of(state)
    stuck: Dict[str, int] = {}
    for task in tasks:
        name, _, number = task.rpartition(":")
        process = processes.stat_of(host, int(number))
        # The kernel's report has up to 15 characters of the name, a work queue's thread more than /proc has.
        if process is not None and process.state == "D" and (name.startswith(process.name[:15]) or not process.name):
            stuck[task] = processes.switches(host, int(number))
    if tasks and not stuck:
        return None
    for task, since in history.unchanged_since(host, BLOCKED, stuck).items():
        blocked, kind = host.monotonic() - since, tasks[task][1]
        if kind in hung.OWN and blocked > hung.STAYS and _all_own(host, kind):
            message = f"{finding['message']}; {task} has been blocked on the node's own {kind} for {int(blocked)} s"
            return {**finding, "severity": FATAL, "action": Action.REBOOT.value, "message": message}
    return finding


def _all_own(host: Host, kind: str) -> bool:
    """Whether every file system of this type is on the node's own devices: the stack does not say which it is."""
    node = _volumes(host)
    return node is not None and bool(node.types.get(kind)) and node.types[kind] <= node.own


def _sees_all(host: Host) -> bool:
    """Whether the node's processes are to be seen: number 2 of its own process namespace is kthreadd (init/main.c)."""
    return "(kthreadd)" in host.read_or("/proc/2/stat")
