"""The values that flow from a check to an adapter: verdicts, outcomes, results, reports.

Everything here is immutable and imports nothing of ours. These are NamedTuples, not
dataclasses: defining twenty dataclasses costs 9 to 14 ms of every start, and nhc starts
before every job.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, Enum, IntEnum, NamedTuple

if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple

SCHEMA = 1
"""Version of the report's JSON form (docs/report.schema.json). Raised when a field changes meaning."""


class Verdict(IntEnum):
    """How significant a finding is, least first.

    UNKNOWN means that the check could not tell (a tool is missing, a deadline passed, output made
    no sense). It outranks WARN, so that it never hides behind OK, and stays below CRIT, because
    it never takes a node out by itself.
    """

    SKIP = 0
    OK = 1
    WARN = 2
    UNKNOWN = 3
    CRIT = 4


class Action(str, Enum):
    """What would repair the fault, in terms of no vendor. A suggestion: policy decides, adapters act."""

    NONE = "none"
    RESTART_APP = "restart-app"
    RESET_DEVICE = "reset-device"
    RELOAD_DRIVER = "reload-driver"
    REBOOT = "reboot"
    REPLACE = "replace"
    INSPECT = "inspect"


DRASTIC = (
    Action.NONE, Action.INSPECT, Action.RESTART_APP, Action.RESET_DEVICE, Action.RELOAD_DRIVER, Action.REBOOT,
    Action.REPLACE,
)  # fmt: skip
"""Repairs, the least first. INSPECT is low because every failure suggests it where nothing better is known."""


class Scope(str, Enum):
    """What a fault speaks of: one accelerator, a link between two, the board that they share (NVSwitches, fabric), or
    the node. Who is in doubt takes the node: only a fault of a device that is named may leave the others at work.
    """

    DEVICE = "device"
    LINK = "link"
    BOARD = "board"
    NODE = "node"


class DeviceId(NamedTuple):
    """Which accelerator, by every name that is known of it; "" for one that is not.

    `pci` is its address as sysfs writes it (`0000:3b:00.0`), `uuid` the vendor's, `minor` the number of its device file
    (3 for /dev/nvidia3), `serial` the board's.
    """

    pci: str = ""
    uuid: str = ""
    minor: str = ""
    serial: str = ""

    @property
    def known(self) -> bool:
        """Whether it names one device. A minor number does not: it changes with a restart; boards share a serial."""
        return bool(self.pci or self.uuid)

    def same(self, other: DeviceId) -> bool:
        """Whether both name the same device: by the UUID where both have one, else by the address."""
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return bool(self.pci) and self.pci == other.pci

    def __str__(self) -> str:
        return self.pci or self.uuid


class Metric(NamedTuple):
    """One measured number. `unit` is a UCUM-like symbol: B, s, %, Cel, W, Gb/s, or "" for a count.

    `warn` and `crit` are the values that pass, as monitoring plugins write them: `95` at most, `5:` at least. They
    are for whoever draws the number, and no part of a report as JSON.
    """

    name: str
    value: float
    unit: str = ""
    warn: str = ""
    crit: str = ""


def known(unit: str = "", **values: Optional[float]) -> Tuple[Metric, ...]:
    """A metric in `unit` for each value that is known, under its name."""
    return tuple(Metric(name, value, unit) for name, value in values.items() if value is not None)


class Outcome(NamedTuple):
    """What a check says of one target.

    `reason` is a stable CamelCase key that machines match on (`GpuCountMismatch`; see `reason_key`); `message` is one
    line for a person, without the check's name; `target` names the judged thing where a check
    judges several (`gpu3`, `/scratch`, `mlx5_0:1`). `evidence` holds the raw lines behind the verdict.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    target: str = ""
    metrics: Tuple[Metric, ...] = ()
    action: Action = Action.NONE
    evidence: Tuple[str, ...] = ()
    scope: Scope = Scope.NODE
    device: DeviceId = DeviceId()


def ok(message: str = "", *, target: str = "", metrics: Tuple[Metric, ...] = ()) -> Outcome:
    """The property holds."""
    return Outcome(Verdict.OK, "", message, target, metrics)


def skip(reason: str, message: str, *, target: str = "") -> Outcome:
    """The thing to judge cannot exist on this node."""
    return Outcome(Verdict.SKIP, reason, message, target)


def warn(
    reason: str,
    message: str,
    *,
    target: str = "",
    metrics: Tuple[Metric, ...] = (),
    action: Action = Action.NONE,
    evidence: Tuple[str, ...] = (),
) -> Outcome:
    """Worth a person's attention; the node can go on working."""
    return Outcome(Verdict.WARN, reason, message, target, metrics, action, evidence)


def unknown(
    reason: str, message: str, *, target: str = "", metrics: Tuple[Metric, ...] = (), evidence: Tuple[str, ...] = ()
) -> Outcome:
    """The check could not tell."""
    return Outcome(Verdict.UNKNOWN, reason, message, target, metrics, Action.NONE, evidence)


def crit(
    reason: str,
    message: str,
    *,
    target: str = "",
    metrics: Tuple[Metric, ...] = (),
    action: Action = Action.INSPECT,
    evidence: Tuple[str, ...] = (),
) -> Outcome:
    """The node should not be given work until this is repaired."""
    return Outcome(Verdict.CRIT, reason, message, target, metrics, action, evidence)


REASON_LIMIT = 128
"""Characters of a reason: what Kubernetes takes as the reason of an event."""


def reason_key(reason: str) -> str:
    """A reason in the form that every report, label and condition takes: `Disk_Is_Bad` and `Xid79` are as they are.

    ASCII letters, digits and underscores, the first a capital letter. Anything else, as a rule file or a tool of the
    site's may have it, is mapped: `disk-is-bad` is `DiskIsBad`. What holds no such character is `Unnamed`.
    """
    if len(reason) <= REASON_LIMIT and reason[:1].isalpha() and reason.isascii() and reason.replace("_", "").isalnum():
        return reason if reason[0].isupper() else reason[0].upper() + reason[1:]
    kept = "".join(char if char == "_" or (char.isascii() and char.isalnum()) else " " for char in reason)
    key = "".join(part[0].upper() + part[1:] for part in kept.split()).lstrip("_")
    if key and not key[0].isupper():
        key = key[0].upper() + key[1:] if key[0].isalpha() else f"Reason{key}"
    return key[:REASON_LIMIT] or "Unnamed"


def named(outcome: Outcome) -> Outcome:
    """The outcome with its reason as `reason_key` has it. A reason that had to be changed is kept in the message."""
    reason = str(outcome.reason or "")
    key = reason_key(reason) if reason else ""
    if key == outcome.reason:
        return outcome
    if key == reason or key.lower() == reason.lower() or reason in str(outcome.message):
        return outcome._replace(reason=key)
    return outcome._replace(reason=key, message=f"{printable(reason, REASON_LIMIT)}: {outcome.message}".rstrip(": "))


def subject(outcome: Outcome) -> str:
    """The target with a blank before it, for a line that goes on with the message; empty where that begins with it."""
    target = outcome.target
    return f" {printable(target)}" if target and not outcome.message.startswith(target) else ""


def scope_text(scope: Scope, device: DeviceId) -> str:
    """What a fault speaks of, for a person: `device 0000:3b:00.0, GPU-1f3e..., serial 165...`; "" for the node."""
    if scope is Scope.NODE:
        return ""
    names = (device.pci, device.uuid, f"minor {device.minor}" if device.minor else "",
             f"serial {device.serial}" if device.serial else "")  # fmt: skip
    return f"{scope.value} {', '.join(filter(None, names))}".rstrip()


def worst(outcomes: Tuple[Outcome, ...]) -> Outcome:
    """The most significant outcome, the first among equals; UNKNOWN for none at all."""
    if not outcomes:
        return unknown("NoOutcome", "the check returned nothing")
    return max(outcomes, key=lambda outcome: outcome.verdict)


NAMELESS = "shell"
"""The name under which the results of a line are filed that names no check and no function of the site's."""


class CheckResult(NamedTuple):
    """An outcome stamped by the engine, so that a check cannot misreport its own name or time.

    `check` is the check's name, `source` where the configuration asks for it (`nhc.conf:12`),
    `line` the line as written, `elapsed` seconds. `strike` and `strikes` say that this failure is
    number `strike` of the `strikes` in a row that make it count (0 of 0 where the line sets none).
    """

    check: str
    outcome: Outcome
    elapsed: float = 0.0
    source: str = ""
    line: str = ""
    tags: Tuple[str, ...] = ()
    strike: int = 0
    strikes: int = 0

    @property
    def verdict(self) -> Verdict:
        return self.outcome.verdict

    @property
    def is_problem(self) -> bool:
        """Whether somebody should look: WARN, UNKNOWN or CRIT."""
        return self.outcome.verdict not in (Verdict.OK, Verdict.SKIP)


def describe(result: CheckResult, colon: str = ": ") -> str:
    """One result as a reason, a log or a mark shows it: `check_fs_free: / has only 3% free`.

    No name stands in front of what has none: a line that only a shell could read, or a message that begins with it.
    """
    outcome = result.outcome
    text = outcome.message or outcome.reason or outcome.verdict.name
    if outcome.target and outcome.target not in text:
        text = f"{outcome.target}{colon}{text}"
    if result.check == NAMELESS or outcome.reason == "CommandFailed" or text.startswith(f"{result.check}:"):
        return text
    return f"{result.check}{colon}{text}"


class Report(NamedTuple):
    """One run on one node. `started` is Unix time; `elapsed` seconds; `notes` are warnings about the run itself.

    `not_run` counts the checks left out because the run stopped at its first failure.
    """

    host: str
    boot_id: str
    started: float
    elapsed: float
    results: Tuple[CheckResult, ...]
    notes: Tuple[str, ...] = ()
    not_run: int = 0
    version: str = ""
    labels: Mapping[str, str] = {}

    @property
    def verdict(self) -> Verdict:
        """The worst of the results. SKIP alone, or nothing at all, is UNKNOWN: nothing was judged."""
        worst_verdict = max((result.verdict for result in self.results), default=Verdict.UNKNOWN)
        return Verdict.UNKNOWN if worst_verdict is Verdict.SKIP else worst_verdict

    def failures(self) -> Tuple[CheckResult, ...]:
        """The CRIT results, in the configuration's order."""
        return tuple(result for result in self.results if result.verdict is Verdict.CRIT)


def printable(text: str, limit: int = 0) -> str:
    """`text` on one line without control characters, cut to `limit` characters where that is not 0.

    Reasons and messages can hold what a kernel log or a command said; this is how they are made
    safe for a log, a label or a page. Every renderer and adapter passes them through here.
    """
    if not text.isprintable():
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if limit and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    return text
