"""The disks' own health data: smartctl's JSON (smartmontools 7.0 and newer), nvme-cli's, and sysfs."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.json_values import object_of, objects_of, parse_object, whole_of
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

ATTRIBUTES = {
    5: "reallocated_sectors",
    187: "reported_uncorrectable",
    188: "command_timeouts",
    197: "pending_sectors",
    198: "offline_uncorrectable",
}
"""The five ATA attributes whose raw value Backblaze's drive statistics tie to failure."""


class SmartDevice(NamedTuple):
    """One entry of `smartctl --scan`: where it is and how to talk to it."""

    name: str
    type: str


class DiskHealth(NamedTuple):
    """One ATA or SCSI disk. `passed` is its own overall verdict; None if it gives none.

    `failing` are pre-failure attributes at or below their threshold now. `counts` are raw values by name.
    """

    passed: Optional[bool]
    model: str
    failing: Tuple[str, ...]
    counts: Mapping[str, int]


class NvmeHealth(NamedTuple):
    """The SMART / health log of one NVMe controller (NVM Express base specification, log page 02h).

    `temperature` is degrees Celsius, None if the drive does not report it.
    """

    critical_warning: int
    percentage_used: int
    available_spare: Optional[int]
    media_errors: int
    temperature: Optional[int]


class SmartError(Exception):
    """The disk could not be asked; the text says why. `unsupported` where it has no SMART at all."""

    def __init__(self, text: str, unsupported: bool = False) -> None:
        super().__init__(text)
        self.unsupported = unsupported


def _object(text: str) -> Dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError:
        raise SmartError("its output is not a JSON object") from None


def _messages(answer: Mapping[str, object]) -> str:
    messages = (each.get("string") for each in objects_of(object_of(answer.get("smartctl")).get("messages")))
    return "; ".join(str(message) for message in messages if message)


def parse_scan(text: str) -> Tuple[SmartDevice, ...]:
    """The devices of `smartctl --json --scan`. Raises SmartError."""
    devices = objects_of(_object(text).get("devices"))
    return tuple(SmartDevice(str(d["name"]), str(d.get("type", ""))) for d in devices if d.get("name"))


def _opened(text: str) -> Dict[str, Any]:
    """What smartctl answers of one device. Raises SmartError if it could not talk to the device."""
    answer = _object(text)
    status = whole_of(object_of(answer.get("smartctl")).get("exit_status"))
    if status is None:
        raise SmartError("its output is not smartctl's")
    if status & 3:  # bit 0: command line, bit 1: the device did not open or identify (smartctl(8), EXIT STATUS)
        raise SmartError(_messages(answer) or f"smartctl ended with status {status}")
    return answer


def parse_disk(text: str) -> DiskHealth:
    """`smartctl --json -H -A` of an ATA or SCSI disk. Raises SmartError."""
    answer = _opened(text)
    passed = object_of(answer.get("smart_status")).get("passed")
    if object_of(answer.get("smart_support")).get("available") is False:
        raise SmartError("the device has no SMART", unsupported=True)
    failing: List[str] = []
    counts: Dict[str, int] = {}
    for attribute in objects_of(object_of(answer.get("ata_smart_attributes")).get("table")):
        number, raw = whole_of(attribute.get("id")), whole_of(object_of(attribute.get("raw")).get("value"))
        if attribute.get("when_failed") == "now" and object_of(attribute.get("flags")).get("prefailure") is not False:
            failing.append(str(attribute.get("name", number)))
        if number in ATTRIBUTES and raw is not None:
            # Some vendors pack several counters into the six bytes: attribute 188 of Seagate holds three.
            counts[ATTRIBUTES[number]] = raw & 0xFFFF if number == 188 else raw & 0xFFFFFFFF
    grown = whole_of(answer.get("scsi_grown_defect_list"))
    if grown is not None:
        counts["grown_defects"] = grown
    for name in ("read", "write", "verify"):
        log = object_of(object_of(answer.get("scsi_error_counter_log")).get(name))
        errors = whole_of(log.get("total_uncorrected_errors"))
        if errors is not None:
            counts[f"uncorrected_{name}_errors"] = errors
    if not isinstance(passed, bool):
        passed = None
    if passed is None and not counts and not failing:
        raise SmartError(_messages(answer) or "the device tells no SMART status", unsupported=not _messages(answer))
    model = str(answer.get("model_name") or answer.get("scsi_model_name") or "")
    return DiskHealth(passed, model, tuple(failing), counts)


def parse_smartctl_nvme(text: str) -> NvmeHealth:
    """`smartctl --json -H -A` of an NVMe controller. Raises SmartError."""
    log = object_of(_opened(text).get("nvme_smart_health_information_log"))
    return _nvme(log, ("percentage_used", "available_spare"), 0)


def parse_nvme_cli(text: str) -> NvmeHealth:
    """`nvme smart-log -o json`, whose temperature is in kelvins. Raises SmartError."""
    return _nvme(_object(text), ("percent_used", "avail_spare"), 273)


def _nvme(log: Mapping[str, object], names: Tuple[str, str], zero: int) -> NvmeHealth:
    warning = log.get("critical_warning")
    critical = whole_of(warning.get("value")) if isinstance(warning, dict) else whole_of(warning)
    used, media, temperature = (whole_of(log.get(name)) for name in (names[0], "media_errors", "temperature"))
    if critical is None or used is None or media is None:
        raise SmartError("its health log is not complete")
    return NvmeHealth(
        critical, used, whole_of(log.get(names[1])), media, None if temperature is None else temperature - zero
    )


def disks(host: Host) -> Tuple[str, ...]:
    """The block devices that could have SMART and are no NVMe: `sda`. Partitions are not listed here."""
    names = (name for name in host.names("/sys/block") if name.startswith(("sd", "hd")))
    return tuple(name for name in names if host.read_or(f"/sys/block/{name}/removable") != "1")


class NvmeController(NamedTuple):
    """One controller as the kernel sees it (/sys/class/nvme). Over a fabric the storage array watches its wear."""

    name: str
    state: str
    transport: str
    model: str


def nvme_controllers(host: Host) -> Tuple[NvmeController, ...]:
    base = "/sys/class/nvme"
    return tuple(
        NvmeController(name, *(host.read_or(f"{base}/{name}/{leaf}") for leaf in ("state", "transport", "model")))
        for name in host.names(base)
        if name[4:].isdigit()
    )


def nvme_health(host: Host, controller: str) -> NvmeHealth:
    """The health log, by smartctl, else by nvme-cli. Raises SmartError, or OSError if neither is installed."""
    device = f"/dev/{controller}"
    if host.which("smartctl"):
        ended = host.run(["smartctl", "--json", "-H", "-A", device], timeout=10)
        if ended.timed_out:
            raise SmartError("smartctl did not answer within 10 s")
        return parse_smartctl_nvme(ended.stdout)
    ended = host.run(["nvme", "smart-log", "-o", "json", device], timeout=10)
    if ended.timed_out:
        raise SmartError("nvme did not answer within 10 s")
    if ended.status:
        raise SmartError(f"nvme: {ended.complaint}")
    return parse_nvme_cli(ended.stdout)
