"""What NVIDIA's Xid and SXid lines and Neuron's error lines say: by code, and by the words and registers beside it.

The tables are nhc/core/data/xid.tsv, sxid.tsv, nvlink5.tsv and xid_context.tsv; each row says why. Loaded only
when such a line appears.

What a GPU's driver asks for in lines of Xid 154 and through NVML is one table, so that both agree. The numbers are
nvmlGpuRecoveryAction_t's (nvml.h and pynvml, NVML_GPU_RECOVERY_ACTION_*). The words beside a number in a kernel line
are a comment, which changes from driver to driver. While peer-to-peer traffic is to be drained, or the IMEX domain
recovered, work that uses neither goes on: no reason to take a node out by itself. Nor is a number that nobody knows
yet, which a person should look at.
"""

from __future__ import annotations

import re

from nhc.core.data.reader import read, table
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action
from nhc.node.facts.nvml_codes import RECOVERY
from nhc.node.kernlog.match import DEGRADED, FATAL, INFO, RANK, Match

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence, Tuple

UNLISTED = (DEGRADED, Action.INSPECT)
"""A code that no table knows: a person should look, the node goes on."""

_PID = re.compile(r"pid=(?:'?<unknown>'?|'?\d+'?)(?:, name=(?:'<unknown>'|<unknown>|'[^']*'|[^,]*))?,? *")
_SM = re.compile(r"\(GPC (\d+), TPC (\d+)(?:, SM (\d+))?\)")
_CAUSED = re.compile(r"(?a)caused by previous Xid (\d{1,4})$")
_LINK74 = re.compile(r"(?a)link (\d{1,4}) ?\((0x[0-9a-fA-F]{1,16}(?:, ?0x[0-9a-fA-F]{1,16})*),? ?\)")
_NVLINK5 = re.compile(
    r"(?a)(\S+)\s+(Fatal|Nonfatal|Non-fatal)\s.*?Link (-?\d{1,4}) \((0x[0-9a-fA-F]{1,16}) (0x[0-9a-fA-F]{1,16})"
)

_HINTS = {
    "INVESTIGATE_LINK_SI": "check the link's signal",
    "INVESTIGATE_LINK_SI_AND_CABLES": "check the link's signal and cables",
    "INVESTIGATE_PEER_DEVICE": "look at the device at the other end",
    "INVESTIGATE_SW_USER": "look at software",
    "INVESTIGATE_SW/USER": "look at software",
    "INVESTIGATE_SW_USER_LINK_SI": "look at software and the link's signal",
    "INVESTIGATE_HOST": "look at the host",
    "CHECK_NVLINK_FAILURE_FLOW": "look at the NVLink fault beside it",
    "SYMPATHETIC_REPORT_SOLO": "usually follows another error",
}

NEURON = {
    "SRAM_UNCORRECTABLE_ERROR": (FATAL, Action.REPLACE, "uncorrectable error in on-chip memory"),
    "NC_UNCORRECTABLE_ERROR": (FATAL, Action.REPLACE, "uncorrectable error in a NeuronCore"),
    "HBM_UNCORRECTABLE_ERROR": (FATAL, Action.REPLACE, "uncorrectable error in device memory"),
    "DMA_ERROR": (FATAL, Action.REPLACE, "a DMA engine failed"),
    # AWS: possibly caused by a hardware error on another worker, so the reporter is not the one to replace.
    "HANG_ON_COLLECTIVES": (DEGRADED, Action.INSPECT, "a collective hangs, perhaps because of another node"),
}


class XidRow(NamedTuple):
    name: str
    severity: str
    action: Action


_known: Dict[int, Optional[XidRow]] = {}
_texts: Dict[str, str] = {}


def find_xid(code: int) -> Optional[XidRow]:
    """The catalogue's row of an Xid."""
    if code not in _known:
        row = _row("xid.tsv", code)
        if len(_known) > 1000:  # codes come from text
            _known.clear()
        _known[code] = XidRow(row[1], row[2], Action(row[3])) if row else None
    return _known[code]


def _rows(name: str, code: str) -> Iterator[List[str]]:
    """The rows of a table whose first cell is `code`, found by searching the text: that costs less than to split it."""
    text = _texts.get(name)
    if text is None:
        text = _texts[name] = read(name)
    at = text.find(f"\n{code}\t")
    while at >= 0:
        end = text.index("\n", at + 1)
        yield ["" if cell == "-" else cell for cell in text[at + 1 : end].split("\t")]
        at = text.find(f"\n{code}\t", end)


def _row(name: str, code: int) -> List[str]:
    return next(_rows(name, str(code)), [])


def read_xid(code: int, device: str, rest: str, line: str, driver: str = "") -> Match:
    """What an Xid line says, taken alone. `rest` is what follows the code, `driver` the driver's version if known."""
    row = find_xid(code)
    details = _PID.sub("", rest).strip()
    name = row.name.split(" / ")[0] if row else "not in the catalogue"
    severity, action = (row.severity, row.action) if row else UNLISTED
    text = f"Xid {code}, {details or name}"
    unit = ""
    recovers: Tuple[str, ...] = ()
    if code == 13:
        place = _SM.search(details)
        unit = f"GPC{place[1]}/TPC{place[2]}" if place else ""
    elif code == 45 and _CAUSED.search(details):  # kernel_rc.c krcReportXid names the root cause
        severity, action = INFO, Action.NONE
    elif code == 74:
        link = _LINK74.search(details)
        if link:
            unit = f"link{link[1]}"
            registers = [int(value, 16) for value in link[2].replace(",", " ").split()]
            severity, action, meaning = _registers74(registers)
            text = f"{text}: {meaning}" if meaning else text
    elif 144 <= code <= 150:
        decoded = _nvlink5(code, details, driver)
        if decoded:
            severity, action, hint, unit = decoded
            text = f"{text}: {hint}" if hint else text
    elif code == 154:
        wanted = recovery_of_line(details)
        if wanted is not None:
            severity, action, _reason = recovery_of_number(wanted)
            if wanted == 0:
                recovers = ("device:xid",)
    return Match("xid", str(code), severity, action, device, text, line, unit, recovers)


def named_cause(match: Match) -> Match:
    """The Xid that an Xid 45 names as the one before it, where that is more than an application's own fault."""
    cause = _CAUSED.search(match.line)
    if match.code != "45" or cause is None:
        return match
    named = read_xid(int(cause[1]), match.device, "", match.line)
    if RANK[named.severity] < RANK[DEGRADED]:
        return match
    return named._replace(message=f"{named.message}, whose own line is lost: the Xid 45 after it names it")


def attributed(match: Match, mig: str) -> Match:
    """A match with the MIG instance that the line names behind the address (` GPU-I:05 GPU-CI:00`).

    The device stays the whole GPU: it is what is reset, and what the same error is counted by on every driver.
    """
    places = dict(place.split(":") for place in mig.split())
    names = (("GPU-I", "GPU instance"), ("GPU-CI", "compute instance"))
    where = ", ".join(f"{name} {int(places[key])}" for key, name in names if key in places)
    return match._replace(message=f"{match.message} ({where})") if where else match


def _registers74(registers: Sequence[int]) -> Tuple[str, Action, str]:
    """Severity, action and meaning of Xid 74's registers; the most serious bit decides, none known: reset."""
    best: Optional[Tuple[str, Action, str]] = None
    for index, bits, severity, action, meaning in table("xid74.tsv"):
        if int(index) >= len(registers) or not any(registers[int(index)] >> int(bit) & 1 for bit in bits.split(",")):
            continue
        if best is None or RANK[severity] > RANK[best[0]]:
            best = (severity, Action(action), meaning)
    return best or (FATAL, Action.RESET_DEVICE, "")


def _nvlink5(code: int, text: str, driver: str) -> Optional[Tuple[str, Action, str, str]]:
    """Severity, action, hint and link of an Xid 144 to 150, None if the line has another form."""
    match = _NVLINK5.search(text)
    if not match:
        return None
    fatal = match[2] == "Fatal"
    info, status = int(match[4], 16), int(match[5], 16)
    rule = _nvlink5_rule(code, match[1], info, status, driver)
    hint = ""
    if rule:
        bucket, investigate = rule
        hint = _HINTS.get(investigate, "")
        if bucket == "IGNORE":
            severity, action = (DEGRADED, Action.INSPECT) if fatal else (INFO, Action.NONE)
        elif bucket == "XID_154_EVAL":
            severity, action = (FATAL, Action.RESET_DEVICE) if fatal else (DEGRADED, Action.INSPECT)
            hint = f"Xid 154 names the repair; {hint}" if hint else "Xid 154 names the repair"
        else:
            severity, action = FATAL if fatal else DEGRADED, Action.RESET_DEVICE
    else:
        severity, action = (FATAL, Action.RESET_DEVICE) if fatal else (DEGRADED, Action.INSPECT)
    link = "" if match[3].startswith("-") else f"link{int(match[3])}"
    return severity, action, hint, link


def _nvlink5_rule(code: int, unit: str, info: int, status: int, driver: str) -> Optional[Tuple[str, str]]:
    """NVIDIA's action and what to investigate. The form of the first register changed with driver R575."""
    release = driver.partition(".")[0]
    major = int(release) if release.isdecimal() and len(release) < 9 else 0
    forms = (1,) if 0 < major < 575 else (2,) if major else (2, 1)
    units = set(unit.split("/"))
    near: Optional[Tuple[str, str]] = None
    for form in forms:
        for row in _rows("nvlink5.tsv", str(code)):
            if not units & set(row[1].split("/")):
                continue
            bits = row[1 + form]
            if info & int(bits.replace("0", "1").replace("-", "0"), 2) != int(bits.replace("-", "0"), 2):
                continue
            wanted = int(row[4], 16)
            if wanted == status:
                return row[6], row[7]
            # Several bits at once: the row that asks for the most counts.
            if wanted and code != 149 and status & wanted and (near is None or row[6] == "RESET_GPU"):
                near = (row[6], row[7])
    return near


def read_sxid(code: int, device: str, switch: str, rest: str, line: str) -> Match:
    """What an SXid line says. Its own Fatal or Non-fatal word decides; the table gives the action."""
    row = _row("sxid.tsv", code)
    name, severity, action = (row[1], row[2], Action(row[3])) if row else ("not in the catalogue", *UNLISTED)
    scope = row[4] if row else ""
    level = rest.partition(",")[0].partition(" ")[0].lower()
    if level == "data" or re.match(r"Severity (?!1\b)", rest):  # the two lines of detail that follow each error
        severity, action = INFO, Action.NONE
    elif level in ("fatal", "severity"):  # 1 is fatal there, and the error's own line may be lost
        severity = FATAL
        action = Action.RESET_DEVICE if action is Action.NONE else action
    elif level in ("non-fatal", "nonfatal"):
        if severity != INFO:
            severity, action = DEGRADED, Action.INSPECT
    elif level == "correctable":
        severity, action = INFO, Action.NONE
    link = re.search(r"\bLink (\d+)", rest)
    text = f"SXid {code} of {switch or 'an NVSwitch'}, {rest or name}"
    if scope == "fabric" and severity == FATAL:
        text += ": the whole NVLink fabric is lost"
    return Match("sxid", str(code), severity, action, device, text, line, f"link{link[1]}" if link else "")


def read_neuron(code: str, text: str, line: str) -> Match:
    """What the Neuron driver's line says; its own `action=` counts more than the table."""
    fields = dict(field.split("=", 1) for field in text.split() if "=" in field)
    severity, action, meaning = NEURON.get(code, (FATAL, Action.INSPECT, "hardware error"))
    asked = fields.get("action", "").upper()
    if "TERMINATE" in asked or "REPLACE" in asked:
        severity, action = FATAL, Action.REPLACE
    elif "REBOOT" in asked:
        severity, action = FATAL, Action.REBOOT
    elif "RELOAD" in asked or "RESET" in asked:
        severity, action = FATAL, Action.RELOAD_DRIVER
    number = fields.get("nd-id", "")
    device = f"neuron{number}" if number.isdigit() else ""
    core = fields.get("nc-id", "")
    serial = f", serial {fields['serial-num']}" if fields.get("serial-num") else ""
    return Match("neuron", code, severity, action, device, f"{meaning} ({code}{serial})", line,
                 f"nc{core}" if core.isdigit() else "")  # fmt: skip


GENERATIONS = (
    ("ampere", ("A100", "A800", "A30", "A40", "A10", "A16", "A2", "RTX A")),
    ("hopper", ("H100", "H200", "H800", "H20", "GH200")),
    ("blackwell", ("B100", "B200", "B300", "GB200", "GB300")),
    ("ada", ("L40", "L4", "L20")),
    ("volta", ("V100",)),
    ("turing", ("T4",)),
)


def generation(name: str) -> str:
    """The architecture of a product name (`NVIDIA A100-SXM4-80GB` is ampere), "" for one that is not known."""
    parts = re.split(r"[ -]", name)
    for label, products in GENERATIONS:
        if any(product in parts or (" " in product and product in name) for product in products):
            return label
    return ""


GONE = "gone"
"""In place of a severity in xid_context.tsv: the device's state shows that the cause is gone."""


_COHERENT = re.compile(r"(?:G[HBR]|VR)\d+")
"""Products whose GPU and processor share one memory: Grace or Vera (G, V) with Hopper, Blackwell or Rubin."""


def is_coherent(name: str) -> bool:
    """Whether a product's GPU and processor share one memory (`NVIDIA GH200 480GB`, `NVIDIA GB10`)."""
    return any(_COHERENT.fullmatch(part) for part in re.split(r"[ -]", name))


def in_context(
    code: str, architecture: str, mig: str, rows: str, unified: str = ""
) -> Optional[Tuple[str, Action, str]]:
    """What a device's own state makes of an Xid: severity (or GONE), action, why."""
    for row in _rows("xid_context.tsv", code):
        wanted = zip(row[1:5], (architecture, mig, rows, unified))
        if all(not want or want == have for want, have in wanted):
            return row[5], Action(row[6]), row[7]
    return None


def depends(code: str, action: str) -> bool:
    """Whether a device's own state can change what this Xid means."""
    return action == Action.RESET_DEVICE.value or next(_rows("xid_context.tsv", code), None) is not None


def had_reset(fault: str, recovery: Optional[str], rows: str) -> bool:
    """Whether NVML shows that a GPU has had the reset it needed: it names no repair (older drivers tell nothing)."""
    return not fault and recovery == "" and rows != "pending" and rows != "failed"


ACTIONS: Dict[int, Tuple[str, Action, str]] = {
    0: (INFO, Action.NONE, ""),
    1: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    2: (FATAL, Action.REBOOT, "GpuRebootRequired"),
    3: (DEGRADED, Action.RESET_DEVICE, "GpuDrainRequired"),
    4: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    5: (DEGRADED, Action.RESTART_APP, "GpuDrainRequired"),
    6: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    7: (FATAL, Action.REBOOT, "GpuRebootRequired"),
}
"""Severity, what repairs it, and the reason under which a check tells it."""
UNLISTED_RECOVERY = (DEGRADED, Action.INSPECT, "GpuRecoveryRequired")

_NUMBER = re.compile(r"(?a)\bto (?:0x([0-9a-fA-F]{1,8})|(\d{1,9}))\b")
_WORDS = {
    "None": 0, "GPU Reset Required": 1, "Node Reboot Required": 2, "Drain P2P": 3, "Drain and Reset": 4,
}  # fmt: skip
"""The words of drivers that print no number."""


def recovery_of_line(rest: str) -> Optional[int]:
    """The number that an Xid 154 changes to, None if the line names none that can be read."""
    match = _NUMBER.search(rest)
    if match:
        return int(match[1], 16) if match[1] else int(match[2])
    wanted = rest.partition("changed from")[2].rpartition(" to ")[2] or rest
    return next((number for text, number in _WORDS.items() if wanted.strip().lstrip("(").startswith(text)), None)


def recovery_of_number(number: int) -> Tuple[str, Action, str]:
    """Severity, repair and reason of a recovery action."""
    return ACTIONS.get(number, UNLISTED_RECOVERY)


def recovery_of_device(recovery: str) -> Tuple[str, Action, str]:
    """The same by what a device's description says (`nhc.node.facts.nvml_codes.RECOVERY`)."""
    return recovery_of_number(next((number for number, description in RECOVERY.items() if description == recovery), -1))
