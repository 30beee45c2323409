"""The form of what is remembered of one kernel log, in JSON's own types: for the type checker, no run loads it."""

from __future__ import annotations

from typing import Dict, List, Tuple, TypedDict


class _FindingAlways(TypedDict):
    kind: str
    code: str
    device: str
    severity: str
    action: str
    message: str
    line: str
    first: float
    noticed: float
    count: int
    last: float


class Finding(_FindingAlways, total=False):
    """A fault that the log reported. Times are Unix times in seconds.

    `first` and `last` are of its lines, `noticed` is when the first was read, `count` how many lines there were. `line`
    is the first, `last_line` the last where it is another. `repairing`: until when the kernel may repair it by itself.
    `drill`: all its lines were written by `nhc inject`. `before_boot`: from before the node restarted; `unproven`: its
    device could not be asked after that. `recurring`: it came back so often that the device is to be replaced. `eased`:
    the count at which its device named no repair any more. `compared`: it counts because no other device had it.
    `witness`: the driver's GPU event that says the same.
    """

    last_line: str
    repairing: float
    drill: bool
    before_boot: bool
    unproven: bool
    recurring: bool
    compared: bool
    eased: int
    witness: str


class HungMemory(TypedDict):
    """What `nhc.node.kernlog.hung` remembers.

    `tasks`: NAME:PID of a task reported as hung, since when, in which file system ("" for unknown), and when it was
    reported last (JSON has the three as a list). `ended`: when each file system came back. `task`: the task whose stack
    is being printed, `named`: its file system was taken from its name alone.
    """

    tasks: Dict[str, Tuple[float, str, float]]
    ended: Dict[str, float]
    task: str
    named: bool


class LogState(TypedDict, total=False):
    """One store of findings. What a name holds is checked when it is read: `nhc.node.kernlog.shape`.

    `boot` is the boot id, `cursor` where the reader of its source goes on, `tail` the last lines for rules that span
    several, `driver` NVIDIA's version, `more` findings beyond the limit, `seen` lines by severity, `kept` a mark of
    what was written to outlive a restart (nhc.node.kernlog.lasting). The rest is what later lines are judged by:
    `companions` the last Xid of each GPU, `history` of faults that come back, `programs` that had them and `ties` by
    which a program is known, `hung` of hung tasks, `no_callback` when a driver could not be asked for a recovery,
    `slots` when the button of each PCIe slot was pressed to turn it off, `taken_out` when a card was last taken out of
    one, `speakers` which driver spoke for a PCI device, and when it last did, `complained` when each driver said that
    something failed, `foreign` how many lines told of faults of volumes that the node does not mount. `ended`, only
    where its caller wants to know: fatal findings that lines have ended, the line as `last_line`.
    """

    boot: str
    cursor: object
    tail: List[str]
    driver: str
    kept: int
    more: int
    seen: Dict[str, int]
    findings: Dict[str, Finding]
    companions: Dict[str, float]
    history: Dict[str, List[float]]
    programs: Dict[str, Dict[str, List[float]]]
    ties: Dict[str, Dict[str, str]]
    hung: HungMemory
    no_callback: float
    slots: Dict[str, float]
    taken_out: float
    speakers: Dict[str, Tuple[str, float]]
    complained: Dict[str, float]
    foreign: Dict[str, int]
    ended: Dict[str, Finding]
