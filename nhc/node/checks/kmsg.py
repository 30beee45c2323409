"""The kernel log: faults that it reported and that are not yet known to be gone."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, Verdict, ok, reason_key, unknown, warn
from nhc.core.timestamps import utc
from nhc.core.units import show_number, text
from nhc.node.kernlog.findings import current
from nhc.node.kernlog.match import FATAL
from nhc.node.kernlog.read import LogReading, default_log, read_log
from nhc.node.kernlog.source import DMESG, FILE, JOURNAL, KMSG, BadRules, LogSource
from nhc.node.kernlog.store import drop, ease, note_foreign

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

    from nhc.node.kernlog.state_types import Finding, LogState


GPU_STATE = ("row_remap", "mig_mode")
"""What is read of a GPU besides its Xids (`nhc.node.kernlog.device_state`)."""


def source(value: str) -> LogSource:
    """Where the log is: kmsg, journal, `syslog=FILE` or `dmesg=FILE`; the file may also follow as an argument."""
    kind, _, path = value.replace("=", " ", 1).partition(" ")
    if kind in (KMSG, JOURNAL) and not path:
        return LogSource(kind)
    if kind in (FILE, DMESG) and (path.startswith("/") or not path):
        return LogSource(kind, path)
    raise ValueError(f"{value!r} is not kmsg, journal, syslog=/FILE or dmesg=/FILE")


class JudgedLog(NamedTuple):
    """A log, and its findings after devices were asked: what one check works on."""

    log: LogReading
    pairs: Tuple[Tuple[str, Finding], ...]


def read(host: Host, where: LogSource, since_boot: bool, kinds: Tuple[str, ...] = ()) -> JudgedLog:
    """Read a log and judge its findings. Raises OSError and BadRules."""
    log = host.fact(default_log) if where == LogSource() and not since_boot else read_log(host, where, since_boot)
    pairs = current(log.state, kinds, host.time())
    pairs, gone = beside(host, log.state, pairs)
    if not since_boot:
        if gone:
            note_foreign(host.memory, where.store, log.state, gone)
            drop(host.memory, where.store, gone)
        ease(host.memory, where.store, log.state, pairs)
    return JudgedLog(log, tuple(pairs))


def beside(
    host: Host, state: LogState, pairs: Sequence[Tuple[str, Finding]]
) -> Tuple[List[Tuple[str, Finding]], List[Tuple[str, Finding]]]:
    """Findings compared with the state of devices and node: those that remain, and those that are gone."""
    standing = list(pairs)
    gone: List[Tuple[str, Finding]] = []
    if any(finding["kind"] in ("xid", "driver") or finding.get("unproven") for _key, finding in standing):
        from nhc.node.kernlog.device_state import in_context

        standing, gone = in_context(host, standing)
    if standing:
        from nhc.node.kernlog.node_context import beside_node

        standing, over = beside_node(host, state, standing)
        gone = [*gone, *over]
    return standing, gone


@check(
    "check_kmsg",
    opt("-s --source", "where", source, "kmsg, journal, syslog=FILE or dmesg=FILE (default: the first that is there)"),
    opt("-r --npd-rules", "npd_rules", text, "a rule file of node-problem-detector to apply as well", many=True),
    opt("-i --ignore", "ignore", text, "a KIND or KIND/CODE that this site does not care for", many=True),
    flag("-b --since-boot", "since_boot", "judge all of this boot anew, and remember nothing of it"),
    arg("file", text, "the file for a --source of syslog or dmesg"),
    timeout=20,
    tags=("kernel", "gpu"),
    parts=GPU_STATE,
)
def check_kmsg(
    host: Host,
    where: Optional[LogSource] = None,
    npd_rules: Sequence[str] = (),
    ignore: Sequence[str] = (),
    since_boot: bool = False,
    file: Optional[str] = None,
) -> Judged:
    """The kernel has logged no fault that still stands.

    Reads what is new since the last run from /dev/kmsg (or journald, a syslog file, a saved dmesg) by boot and
    sequence number: nothing from before this boot, nothing twice, and a count of lines that were overwritten
    before they could be read. Each line is looked up in a catalogue: NVIDIA Xid and SXid, AMD RAS, Neuron, mlx5,
    EFA, PCIe, machine checks, memory, disks, file systems, out-of-memory kills, lockups, kernel faults
    (docs/kernel-log.md; `nhc log classify` shows what it makes of a log). A fatal finding is CRIT, a degraded one
    WARN, one outcome each. Faults of applications and information are only counted; an application's fault that
    comes back on one device is WARN, and takes the node out where different programs have it there and nowhere else
    (nhc/core/data/repeats.tsv). Faults of disks and file systems are CRIT only for what the node itself mounts.

    A finding stays until the log or the device shows its cause to be gone (a reset, a restart with the device found
    clean, NVML) or `nhc ack` ends it. It does not fade with time.

    Example: * || check_kmsg
    Example: * || check_kmsg --source syslog=/var/log/messages --npd-rules /etc/npd/kernel-monitor.json
    """
    given = (where or LogSource())._replace(rules=tuple(npd_rules))
    if given.kind in (FILE, DMESG):
        given = given._replace(path=given.path or file or "")
        if not given.path:
            return unknown("BadArguments", f"--source {given.kind} needs a file")
    elif file:
        return unknown("BadArguments", f"{file!r}: a file goes with --source syslog or --source dmesg")
    try:
        # A rule file for another log than the kernel's (docker's, say) is applied to that log.
        others = _other_logs(npd_rules) if where is None and npd_rules else []
        apart = [path for other in others for path in other.rules]
        given = given._replace(rules=tuple(path for path in npd_rules if path not in apart))
        judged: List[Outcome] = []
        for log_source in (given, *others):
            reading = read(host, log_source, since_boot)
            pairs = [pair for pair in reading.pairs if not ignored(pair[1], ignore)]
            judged += outcomes(reading.log, pairs, "the kernel log" if log_source is given else log_source.path)
    except BadRules as error:
        return unknown("BadArguments", str(error))
    except OSError as error:
        return unreadable(error)
    return judged


def _other_logs(npd_rules: Sequence[str]) -> List[LogSource]:
    """The logs besides the kernel's that rule files are for. Raises BadRules."""
    from nhc.node.kernlog.npd_rules import own_source

    return [source for source in map(own_source, npd_rules) if source.kind]


def unreadable(error: OSError) -> Outcome:
    what = error.filename or "the kernel log"
    return unknown("KernelLogUnreadable", f"{what} cannot be read: {error.strerror}")


def ignored(finding: Finding, ignore: Sequence[str]) -> bool:
    return finding["kind"] in ignore or f"{finding['kind']}/{finding['code']}" in ignore


def outcomes(log: LogReading, pairs: Sequence[Tuple[str, Finding]], what: str) -> List[Outcome]:
    """One outcome for each finding, one for lost lines, and last one for the log itself, with the numbers."""
    judged = [outcome(finding) for _key, finding in pairs]
    if log.lost:
        judged.append(_lost(log))
    if log.problem:
        judged.append(warn("KernelLogLost", f"{log.problem}: a fault may be among them", action=Action.INSPECT))
    more = log.state.get("more", 0)
    if more:
        message = f"{more} more lines of faults beyond the {len(log.state['findings'])} that are kept apart"
        judged.append(warn("KernelLogOverflow", message, action=Action.INSPECT))
    text = f"{log.lines} new lines of {log.source} read"
    if not pairs:
        text = f"{what} tells of no fault that stands ({text})"
    if log.unseen:
        text += f"; {log.unseen} lines of this boot were overwritten before the first run"
    foreign = log.state.get("foreign", {})
    if foreign:
        newest = ", ".join(list(foreign)[-3:])
        text += f"; {show_number(sum(foreign.values()), 'line')} told of volumes that the node does not mount: {newest}"
    return [*judged, ok(text, metrics=metrics(log, pairs))]


def _lost(log: LogReading) -> Outcome:
    how_many = f"{log.lost} lines" if log.lost > 0 else "lines, nothing tells how many,"
    return warn(
        "KernelLogLost",
        f"{how_many} of the kernel log were lost before they could be read ({log.source}): a fault may be among them",
        action=Action.INSPECT,
    )


def metrics(log: LogReading, pairs: Sequence[Tuple[str, Finding]]) -> Tuple[Metric, ...]:
    seen = log.state.get("seen", {})
    fatal = sum(1 for _key, finding in pairs if finding["severity"] == FATAL)
    foreign = sum(log.state.get("foreign", {}).values())
    of_others = (Metric("kernel_log_foreign_lines", foreign),) if foreign else ()
    return (
        *of_others,
        Metric("kernel_log_fatal", fatal),
        Metric("kernel_log_degraded", len(pairs) - fatal),
        Metric("kernel_log_app_lines", seen.get("app", 0)),
        Metric("kernel_log_info_lines", seen.get("info", 0)),
        Metric("kernel_log_new_lines", log.lines),
        Metric("kernel_log_lost_lines", max(log.lost, 0)),
    )


def outcome(finding: Finding) -> Outcome:
    """A finding as a report shows it."""
    verdict = Verdict.CRIT if finding["severity"] == FATAL else Verdict.WARN
    message = finding["message"]
    notes = []
    if finding["count"] > 1:
        notes.append(f"{finding['count']} lines")
    at = utc(finding["last"])
    notes.append(f"last {at}" if finding["count"] > 1 else at)
    if finding.get("before_boot"):
        notes.append("before this boot, and not shown to be repaired")
    message += f" [{', '.join(notes)}]"
    if finding.get("drill"):
        message = f"drill: {message}"
    lines: Tuple[str, ...] = (finding["line"],)
    if "last_line" in finding:
        lines = (finding["line"], finding["last_line"])
    if "witness" in finding:
        lines += (f"GPU event {finding['witness']}",)
    action = Action(finding["action"])
    reason = reason_of(finding["kind"], finding["code"])
    return Outcome(verdict, reason, message, finding["device"], action=action, evidence=lines)


def reason_of(kind: str, code: str) -> str:
    """The stable key of an error: Xid79, SXid12020, GpuFallenOffBus, NodeOom, NeuronHasError_DMA_ERROR."""
    if kind == "xid":
        return f"Xid{code}"
    if kind == "sxid":
        return f"SXid{code}"
    if kind == "neuron" and code.isupper():
        return f"NeuronHasError_{code}"  # AWS's own key, which alarms exist for
    if kind == "npd":
        return reason_key(code)  # the site's own word; `npd_rules` keeps it in the message as it is
    if kind in ("nvrm", "oom", "hung", "lockup"):
        return code
    return f"{_NAMES.get(kind, kind.capitalize())}{code}"


_NAMES = {"oops": "Kernel", "aer": "Pcie", "pcie": "Pcie", "efa": "Efa", "amdgpu": "Amd", "ghes": "Firmware"}
