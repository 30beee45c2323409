"""What packages of others import from nhc: how a check is declared and what it returns, and the ports of all parts.

    from nhc.api import Host, Outcome, arg, check, crit, ok

These names stay; where they are defined may change. A name's module is imported when the name is first used: a check
runs before every job, and pays for nothing that only adapters need. Nothing of nhc itself imports this module.
`nhc.lab.testing` is the test kit. docs/extending.md shows each kind of part.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from nhc.core.check import arg, check, flag, opt, rest
    from nhc.core.host import Host
    from nhc.core.model import (
        Action,
        CheckResult,
        DeviceId,
        Metric,
        Outcome,
        Report,
        Scope,
        Verdict,
        crit,
        known,
        ok,
        printable,
        skip,
        unknown,
        warn,
    )
    from nhc.core.plugins import NoAdapter
    from nhc.core.settings import settings_file
    from nhc.core.settings.settings_file import SettingsError, Table
    from nhc.core.units import number, percent, seconds, size_bytes
    from nhc.marks.ports.adapter import (
        OWNER,
        OWNER_SETTING,
        AdapterError,
        Applied,
        Comments,
        DeviceState,
        Effect,
        Evicts,
        JobMessages,
        MakeAdapter,
        Mark,
        Marker,
        MarksDevices,
        MovesWork,
        NodeSource,
        NodeState,
        OtherJobs,
        Power,
        SettingError,
    )
    from nhc.marks.ports.gates import Gatekeeper, GateNews, GateStanding, LifecycleHook, MakeGatekeeper
    from nhc.marks.ports.group_launch import GroupJob, GroupOrder, GroupOutput, Launcher
    from nhc.marks.ports.job_control import (
        JobController,
        JobLoss,
        JobName,
        JobOrder,
        JobSubmits,
        JobView,
        LossCause,
        MakeJobController,
        Phase,
        Submission,
        Submitted,
        Wish,
    )
    from nhc.marks.ports.job_ends import JobEndRecord, JobEnds, JobLogText
    from nhc.marks.ports.marks import in_place_of, mark_text, may_clear, may_mark, read_mark_text
    from nhc.marks.ports.node_work import ListsWork, WorkItem, WorkList
    from nhc.marks.ports.repair import (
        Answer,
        AskLater,
        Claim,
        Completes,
        EvidenceSource,
        Exhibit,
        Machine,
        MakeRepairer,
        Order,
        OtherActors,
        Progress,
        Repairer,
        Request,
        Requests,
        Right,
        RightMissing,
        Rung,
        Sent,
        Sighting,
        Stage,
    )
    from nhc.marks.ports.runner import NHC, MakeRunner, NodeRun, NotStarted, RunLimits, Runner, RunPhase, RunState
    from nhc.marks.ports.sinks import BufferedSink, Delivery, Event, NodeCondition, NotYetDelivered, Sink, Standing
    from nhc.marks.ports.spares import AddedNode, AddedPhase, AddFailed, CapacityPool, MakeSparePool, SparePool

__all__ = [
    "NHC",
    "OWNER",
    "OWNER_SETTING",
    "Action",
    "AdapterError",
    "AddFailed",
    "AddedNode",
    "AddedPhase",
    "Answer",
    "Applied",
    "AskLater",
    "BufferedSink",
    "CapacityPool",
    "CheckResult",
    "Claim",
    "Comments",
    "Completes",
    "Delivery",
    "DeviceId",
    "DeviceState",
    "Effect",
    "Event",
    "Evicts",
    "EvidenceSource",
    "Exhibit",
    "GateNews",
    "GateStanding",
    "Gatekeeper",
    "GroupJob",
    "GroupOrder",
    "GroupOutput",
    "Host",
    "JobController",
    "JobEndRecord",
    "JobEnds",
    "JobLogText",
    "JobLoss",
    "JobMessages",
    "JobName",
    "JobOrder",
    "JobSubmits",
    "JobView",
    "Launcher",
    "LifecycleHook",
    "ListsWork",
    "LossCause",
    "Machine",
    "MakeAdapter",
    "MakeGatekeeper",
    "MakeJobController",
    "MakeRepairer",
    "MakeRunner",
    "MakeSparePool",
    "Mark",
    "Marker",
    "MarksDevices",
    "Metric",
    "MovesWork",
    "NoAdapter",
    "NodeCondition",
    "NodeRun",
    "NodeSource",
    "NodeState",
    "NotStarted",
    "NotYetDelivered",
    "Order",
    "OtherActors",
    "OtherJobs",
    "Outcome",
    "Phase",
    "Power",
    "Progress",
    "Repairer",
    "Report",
    "Request",
    "Requests",
    "Right",
    "RightMissing",
    "RunLimits",
    "RunPhase",
    "RunState",
    "Rung",
    "Runner",
    "Scope",
    "Sent",
    "SettingError",
    "SettingsError",
    "Sighting",
    "Sink",
    "SparePool",
    "Stage",
    "Standing",
    "Submission",
    "Submitted",
    "Table",
    "Verdict",
    "Wish",
    "WorkItem",
    "WorkList",
    "arg",
    "check",
    "crit",
    "flag",
    "in_place_of",
    "known",
    "mark_text",
    "may_clear",
    "may_mark",
    "number",
    "ok",
    "opt",
    "percent",
    "printable",
    "read_mark_text",
    "rest",
    "seconds",
    "settings_file",
    "size_bytes",
    "skip",
    "unknown",
    "warn",
]
_MODULES = (
    "nhc.core.check",
    "nhc.core.host",
    "nhc.core.model",
    "nhc.core.plugins",
    "nhc.core.units",
    "nhc.core.settings",
    "nhc.core.settings.settings_file",
    "nhc.marks.ports.adapter",
    "nhc.marks.ports.gates",
    "nhc.marks.ports.group_launch",
    "nhc.marks.ports.job_ends",
    "nhc.marks.ports.job_control",
    "nhc.marks.ports.marks",
    "nhc.marks.ports.node_work",
    "nhc.marks.ports.repair",
    "nhc.marks.ports.runner",
    "nhc.marks.ports.sinks",
    "nhc.marks.ports.spares",
)
"""Where these names are, the cheapest to import first."""


def __getattr__(name: str) -> object:
    """The object of this name, from the module that defines it. Raises AttributeError."""
    if name in __all__:
        for module in _MODULES:
            found: object = getattr(__import__(module, fromlist=[name]), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
