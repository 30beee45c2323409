"""The program's values on the node: its readings, requests, plans and records."""

from __future__ import annotations

from typing import FrozenSet, Mapping, NamedTuple, Optional, Tuple


class RepairDevice(NamedTuple):
    """One accelerator. `number` is what its vendor's tools count by, `files` are its device files.

    `architecture`, `persistence` (None: unknown) and `recovery` (what the driver asks for) are NVIDIA's. `slices` are
    MIG instances; `linked` says that NVLinks are up; `group` is AMD's XGMI hive, "" for none.
    """

    number: int
    bus: str
    uuid: str = ""
    files: Tuple[str, ...] = ()
    architecture: str = ""
    persistence: Optional[bool] = None
    recovery: str = ""
    slices: int = 0
    linked: bool = False
    group: str = ""

    @property
    def label(self) -> str:
        return f"gpu{self.number}" if "neuron" not in self.bus else self.bus


class Holder(NamedTuple):
    """A process that has device files open. `unit` is its systemd service, `pod` whether it is in a pod."""

    pid: int
    name: str
    unit: str
    pod: bool
    files: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', {self.unit}' if self.unit else ''})"


class LoadedModule(NamedTuple):
    """A kernel module that is loaded: its reference count and the modules that use it (/proc/modules)."""

    references: int
    users: Tuple[str, ...]


class LoadedUnit(NamedTuple):
    """A systemd unit that is loaded. `run` changes with each start; `triggers` are units that would start it again."""

    active: bool
    run: str
    triggers: Tuple[str, ...]


class NodeFacts(NamedTuple):
    """The node as it is now. `vendor` is nvidia, amd, neuron or ""; `problem` says why devices could not be listed.

    `switches` says whether the node has NVSwitches of its own. `labels` are its labels in Kubernetes, if requested.
    """

    boot: str
    uuid: str
    vendor: str
    devices: Tuple[RepairDevice, ...] = ()
    problem: str = ""
    holders: Tuple[Holder, ...] = ()
    modules: Mapping[str, LoadedModule] = {}
    units: Mapping[str, LoadedUnit] = {}
    switches: bool = False
    labels: Mapping[str, str] = {}


class AskedRepair(NamedTuple):
    """A repair to carry out. `uuid` and `boot` name the machine that was judged, "" for unknown.

    `services` are what restart-app starts again, `stoppable` what may be stopped while a device is repaired.
    `kubeconfig` is used to change the node's own labels; "" leaves them. Times are in seconds.
    """

    key: str
    rung: str
    device: str = ""
    because: str = ""
    uuid: str = ""
    boot: str = ""
    node: str = ""
    services: Tuple[str, ...] = ()
    stoppable: Tuple[str, ...] = ()
    kubeconfig: str = ""
    wait: float = 300.0


class AskedRun(NamedTuple):
    """A program to run, for at most `seconds`, with so many bytes of output. `uuid` and `boot` name the intended
    machine, "" for any.

    `alone`: not while this node is repaired, and no repair begins while it runs.
    """

    key: str
    argv: Tuple[str, ...]
    seconds: float
    output: int
    uuid: str = ""
    boot: str = ""
    path: str = ""
    alone: bool = False


class Undo(NamedTuple):
    """One thing to put back: unit NAME, persistence BUS, module NAME, label NAME=value."""

    kind: str
    name: str
    value: str = ""


class RepairPlan(NamedTuple):
    """What is to be done. `undo` is put back in reverse order, each written down before it is taken away.

    `files` must be free before `commands` run; `modules` must have no users but one another. `judge` says how the
    commands' effect is read (nvidia, amd, driver, services, reboot).
    """

    judge: str
    devices: Tuple[RepairDevice, ...]
    undo: Tuple[Undo, ...]
    files: FrozenSet[str]
    modules: Tuple[str, ...]
    commands: Tuple[Tuple[str, ...], ...]


class Refusal(NamedTuple):
    """Why nothing is done. `retry_after` (seconds) is 0 if asking again is of no use."""

    message: str
    retry_after: float = 0.0


class RepairResult(NamedTuple):
    """The result: `results` by device, `message` for a person."""

    fine: bool
    message: str
    results: Mapping[str, str] = {}


class NotPossible(Exception):
    """A repair that was begun cannot continue. One line for a person."""
