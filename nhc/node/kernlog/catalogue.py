"""What a line of the kernel log means: the catalogue of nhc/core/data/kernel.tsv, and the engine that applies it fast.

A log is searched for a few dozen short strings as a whole (`str.find` over millions of characters costs
milliseconds); only lines that hold one are looked at, and only then are regular expressions compiled, each
when it is first needed. A node that logs nothing new compiles none.
"""

from __future__ import annotations

import re

from nhc.core.data.reader import read
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog.match import APP, INFO, Match, address

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Pattern, Tuple


PERIPHERAL_DRIVERS = (
    r"xhci|ehci|ohci|uhci|usb|snd_|hda|iwl|ath\d|mt7|rtw|rtl|brcm|b43|mwifiex|thunderbolt|ast |mgag|mei|i2c|i801"
    r"|intel_(?!vpu)|sdhci|rtsx|ipu\d|proc_thermal"
)
"""Beginnings of drivers' names without whose devices a node still computes: USB, sound, wireless, management."""
TROUBLE = ("stuck", "hung", " hang", "crash", "ssert", " dead", "panic")
"""Words of drivers in trouble that no row needs to be found by, but nhc.node.kernlog.complaints."""
_PCI = r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_SHORT = {
    # any driver of a PCI device: "ice 0000:3b:00.0 eth0: ", or a storage driver's own name of its adapter. Not those
    # without which a node still computes (USB, sound, wireless, management), nor those with rows of their own.
    "{{driver}}": (
        r"^(?!" + PERIPHERAL_DRIVERS + r"|pcieport|nouveau|nvidia|amdgpu|nvme |efa |ena |habanalabs"
        r"|mlx\d_core \S+: \S*(?:health|wait_func))"
        r"(?:(?:\w[\w.-]{1,30} (?P<device>" + _PCI + r")(?: [^:]{1,60})?"
        r"|(?P<device2>(?:mpt\dsas(?:_cm)?|mpi\dmr|mptbase: ioc|AAC|arcmsr)\d+|aacraid|megasas"
        r"|megaraid(?:_sas)?|3w-\w{3,5})"
        r"|qla2xxx \[(?P<device3>" + _PCI + r")\]-\w+:(?:\d+| )"
        r"): |infiniband (?P<device5>\w{2,30}): |(?:\w+: )?\[(?:bnx2|qed)\w+:\d+\((?P<device4>[^)]{0,32})\)\] ?)"
        r"(?:[^:]{1,40}: )?"
    ),
    "{{peripherals}}": PERIPHERAL_DRIVERS,
    "{{amdgpu}}": (
        r"(?:amdgpu (?P<device>" + _PCI + r"): (?:amdgpu: )?(?:\[drm(?::\S+(?: \[amdgpu\])?)?\] (?:\*ERROR\* )?)?"
        r"|amdgpu: (?:\[drm(?::\S+(?: \[amdgpu\])?)?\] \*ERROR\* )?|\[drm:\S+ \[amdgpu\]\] \*ERROR\* )(?:\{\d+\})?"
    ),
    "{{part}}": (
        r"(?:[Dd]evice|[Aa]dapter|[Cc]ontroller|[Cc]ard|[Bb]oard|[Hh]ardware|[Ff]irmware|[FH]W|fw|H/W|HCA|HBA|NIC|GPU|IO[ACP]|ioc\b"
        r"|ASIC|[Hh]ost adapter|SAS host|[Cc]hip)"
    ),
    "{{pci}}": _PCI,
}
"""What many patterns of the table share, under the name that it has there."""


def spelled_out(pattern: str) -> str:
    """A pattern of the table as the regular expression that it stands for."""
    if "{{" in pattern:
        for name, meaning in _SHORT.items():
            pattern = pattern.replace(name, meaning)
    return pattern


class CatalogueRow:
    """One row of the catalogue, its columns as the table's head explains them."""

    __slots__ = ("action", "code", "gate", "kind", "message", "pattern", "recovers", "severity", "source", "texts")

    def __init__(self, line: str) -> None:
        cells = ["" if cell == "-" else cell for cell in line.split("\t")]
        self.kind, self.code, self.severity, self.action, self.gate, text, *rest = cells
        pattern, self.message, self.recovers, self.source = rest
        self.pattern = spelled_out(pattern)
        self.texts = text.split("||")


_lines: List[str] = []
"""The table's rows as they stand: a log that tells of few faults needs few of them taken apart."""
_rows: Dict[int, CatalogueRow] = {}
_gates: Dict[str, List[int]] = {}
_patterns: Dict[int, Pattern[str]] = {}
_CACHE_LINES = 512
_PROCESS = (
    r"(?:(?:traps|mmap|umip|signal|process|coredump): )?.{1,15}?"
    r"(?:\[\d+\]:? |\(\d+\):? | \(\d+\):? | invoked oom-killer|: page allocation failure)"
)
"""The start of a line about a process, which its user named (TASK_COMM_LEN: 15 characters): mm/memory.c print_vma_addr,
arch/*/mm/fault.c, arch/x86/kernel/traps.c, mm/oom_kill.c."""
_TOGETHER = "NVRM: "
"""What begins every line of a record of several: NVIDIA's driver names a GPU in one and its end in the next, all in one
printk (osapi.c rm_is_supported_device, nv.c)."""
_SPEAKER = 80
"""Characters that may stand before a fault in its line, to say who speaks."""


def load() -> None:
    """Read the table, if that was not done yet, as far as the search for candidates needs it."""
    if _lines:
        return
    lines = [line for line in read("kernel.tsv").split("\n") if line and line[0] != "#"][1:]
    for number, line in enumerate(lines):
        _kind, _code, _severity, _action, gate, texts, _rest = line.split("\t", 6)
        for text in (gate if gate != "-" else texts).split("||"):
            _gates.setdefault(text, []).append(number)
    for word in TROUBLE:
        _gates.setdefault(word, [])
    _lines.extend(lines)


def _row(number: int) -> CatalogueRow:
    row = _rows.get(number)
    if row is None:
        row = _rows[number] = CatalogueRow(_lines[number])
    return row


def rows() -> List[CatalogueRow]:
    """The whole catalogue."""
    load()
    return [_row(number) for number in range(len(_lines))]


def quoted(line: str, start: int) -> bool:
    """Whether the kernel quotes there what a user wrote: the name of a process, a file, a cgroup, a mount's option.

    Any user can have it say `x[42]: segfault at 0 ... in NVRM: Xid (PCI:0000:3b:00): 79, ...` by crashing a program of
    that name, and so could take a node out, or let a fault be forgotten.
    """
    return bool(re.match(_PROCESS, line)) or not _speaker(line[:start])


def _speaker(before: str) -> bool:
    """Whether this names who speaks, as `mce: [Hardware Error]: CPU 24: ` and `sd 0:0:0:0: ` do, and no more."""
    if before.startswith("  "):  # dmesg indents what follows a line break in a name
        return False
    if len(before) > _SPEAKER or any(char in "'\"`=()," for char in before):
        return False
    *units, rest = before.split(":")
    return all(len(unit.split()) <= 2 for unit in units) and len(rest.split()) <= 1


def _unread_counter(line: str) -> bool:
    """Whether a line counts errors by a number that no counter has: nothing was read, and the driver reads again."""
    counts = re.findall(r"(?<![\w.])(\d{5,20}|0x[0-9a-fA-F]{4,16}) (?:[\w-]+ ){0,3}errors?\b", line)
    if not counts:
        return False
    from nhc.node.facts.pci import reads_as_ones

    return any(reads_as_ones(int(count, 16 if count[1] == "x" else 10)) for count in counts)


def lines_of(text: str) -> List[str]:
    """The lines of a record, each to be judged alone, where one driver wrote them all; else the record on one line.

    A line break may also stand in the name of a program or a file, which any user can choose: such a record stays one.
    """
    if "\n" not in text:
        return [text]
    whole = text.replace("\n", " ")
    lines = [line.strip() for line in text.strip("\n").split("\n")]
    if not all(line.startswith(_TOGETHER) for line in lines) or re.match(_PROCESS, whole):
        return [whole]
    return lines


class Matcher:
    """Reads one log in order. It remembers the little that a later line needs of an earlier one.

    `driver` is the NVIDIA driver's version where it is known beforehand.
    """

    def __init__(self, driver: str = "") -> None:
        self.driver = driver
        self.row: Optional[CatalogueRow] = None
        """The row that judged the last line; of a line that came before, what it was then."""
        self._subject = ""  # the GPU that "The NVIDIA GPU ..." named: the next line says what is wrong with it
        self._bert = False  # records of the previous boot follow, without the number that GHES puts in front
        self._cache: Dict[str, Optional[Match]] = {}

    def candidates(self, text: str) -> Iterator[Tuple[int, int, List[int]]]:
        """Start and end of each line of `text` that may mean something, in order, with the rows to try on it."""
        load()
        rows: Dict[int, List[int]] = {}
        for gate, numbers in _gates.items():
            at = text.find(gate)
            while at >= 0:
                start = text.rfind("\n", 0, at) + 1
                rows[start] = rows[start] + numbers if start in rows else numbers
                end = text.find("\n", at)
                if end < 0:
                    break
                at = text.find(gate, end)
        for start in sorted(rows):
            end = text.find("\n", start)
            yield start, len(text) if end < 0 else end, rows[start]

    def judge(self, line: str, numbers: Optional[List[int]] = None) -> Optional[Match]:
        """What a line (without its time stamp) means, None for nothing that the catalogue knows.

        `numbers` are the rows to try, as `candidates` gave them.
        """
        if line in self._cache:
            return self._cache[line]
        match = self._judge(line, numbers)
        # A burst repeats one line; lines that change what later lines mean are never kept.
        if match is None or not (match.driver or match.kind in ("nvrm", "ghes")):
            if len(self._cache) >= _CACHE_LINES:
                self._cache.clear()
            self._cache[line] = match
        return match

    def _judge(self, line: str, numbers: Optional[List[int]]) -> Optional[Match]:
        load()
        if numbers is None:
            numbers = [number for gate, opened in _gates.items() if gate in line for number in opened]
        for number in sorted(set(numbers)):
            row = _row(number)
            for text in row.texts:
                if text in line:
                    break
            else:
                continue
            pattern = _patterns.get(number)
            if pattern is None:
                pattern = _patterns[number] = re.compile(row.pattern)
            hit = pattern.search(line)
            if hit and not quoted(line, hit.start()):
                match = self._read(row, hit.groupdict(), line)
                if match is not None:
                    self.row = row
                    return match
        return None

    def _read(self, row: CatalogueRow, groups: Dict[str, Optional[str]], line: str) -> Optional[Match]:
        named = ("device", "device2", "device3", "device4", "device5", "device6")
        device = address(next((name for name in map(groups.get, named) if name), ""))
        if not row.code:
            from nhc.node.kernlog import xid

            text = (groups.get("words") or "").strip()
            code = groups["code"] or ""
            if row.kind == "xid":
                match = xid.read_xid(int(code), device, text, line, self.driver)
                return xid.attributed(match, groups.get("mig") or "")
            if row.kind == "sxid":
                return xid.read_sxid(int(code), device, groups.get("switch") or "", text, line)
            return xid.read_neuron(code, text, line)
        severity, action, code, message = row.severity, row.action, row.code, row.message
        if row.kind == "nvrm":
            if code == "Subject":
                self._subject = device
                return None
            if code == "GpuFallenOffBus":
                device = device or self._subject
        status = groups.get("status")
        if status and int(status, 16) >> 61 & 1 == 0:  # MCi_STATUS.UC; old kernels call each one an exception
            severity, action, message = INFO, "none", "a corrected machine check was logged"
        if row.kind == "ghes":
            if code == "Bert":
                self._bert = True
            elif self._bert and not groups.get("detail"):
                severity, action, message = INFO, "none", f"{message}, before this boot"
        if severity not in (INFO, APP) and _unread_counter(line):
            severity, action, message = INFO, "none", f"{message}: its counter reads as ones, so nothing was read"
        detail = groups.get("detail") or groups.get("detail2") or ""
        if detail and row.kind != "ghes":
            message = f"{message} ({detail})"
        if groups.get("driver"):
            self.driver = groups["driver"] or ""
        return Match(row.kind, code, severity, Action(action), device, message, line,
                     recovers=tuple(row.recovers.split()), driver=groups.get("driver") or "")  # fmt: skip
