"""What the firmware says of the machine: check_dmi_*, on the output of dmidecode."""

from __future__ import annotations

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Outcome, crit, ok, skip, unknown
from nhc.core.units import text
from nhc.node.facts.dmi import DmiUnreadable, NoDmi, Structure, dmidecode, structures

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Sequence, Union


def handles(value: str) -> List[int]:
    """One or more handles, `0x0100` or decimal."""
    try:
        return [int(number, 0) for number in value.split()]
    except ValueError:
        raise ValueError(f"{value!r} is not a handle (a number such as 0x0100)") from None


@check(
    "check_dmi_data_match",
    flag("-! -n", "negate", "no line may match"),
    opt("-h", "handles", handles, "look only at these handles, as in 0x0100"),
    opt("-t", "type", text, "look only at this type: its number, or its name as in 'BIOS Information'", ""),
    rest("match", text, "match string for one line; words are joined with a blank", required=True),
    timeout=10,
    every=3600,
)
def check_dmi_data_match(
    host: Host, match: Sequence[str], negate: bool = False, handles: Optional[List[int]] = None, type: str = ""
) -> Outcome:
    """The firmware's tables say of the machine what they should.

    Each property of `dmidecode` is led by what it stands under, as in `BIOS Information: Version: 1.0.37`,
    and the match string must fit one such line as a whole. With -!, -n or a first word `!` it must fit
    none. Needs dmidecode and, as a rule, root; a machine without SMBIOS tables is SKIP.

    Example: * || check_dmi_data_match -t 0 'BIOS Information: Version: 2.*'
    """
    pattern = list(match)
    if pattern[0] == "!":
        negate, pattern = True, pattern[1:]
    if not pattern:
        return unknown("BadArguments", "needs match: a match string for one line")
    tables = _tables(host)
    if isinstance(tables, Outcome):
        return tables
    chosen = [
        entry
        for entry in tables
        if (handles is None or entry.handle in handles) and (not type or type in (str(entry.type), entry.name))
    ]
    if not chosen:
        return crit("DmiNoSuchHandle", "No valid DMI handles found")
    return _match(" ".join(pattern), negate, (line for entry in chosen for line in entry.lines))


@check(
    "check_dmi_raw_data_match",
    rest("match", text, "[!] match string for one line; words are joined with a blank", required=True),
    timeout=10,
    every=3600,
)
def check_dmi_raw_data_match(host: Host, match: Sequence[str]) -> Outcome:
    """Some line of dmidecode's output matches, whatever section it stands in.

    The match string must fit a whole line, with or without the blanks that indent it. With a first word
    `!` it must fit none. Needs dmidecode and, as a rule, root; a machine without SMBIOS tables is SKIP.

    Example: * || check_dmi_raw_data_match 'Version: 1.24.4175.33'
    """
    pattern = list(match)
    negate = pattern[0] == "!"
    if negate:
        pattern = pattern[1:]
    if not pattern:
        return unknown("BadArguments", "needs match: a match string for one line")
    raw = _raw(host)
    if isinstance(raw, Outcome):
        return raw
    lines = raw.splitlines()
    return _match(" ".join(pattern), negate, (form for line in lines for form in dict.fromkeys((line, line.strip()))))


def _match(pattern: str, negate: bool, lines: Iterable[str]) -> Outcome:
    for line in lines:
        if mcheck(line, pattern):
            if negate:
                return crit("DmiMatch", f"Match found for {pattern}:  {line}")
            return ok(line.strip())
    if negate:
        return ok(f"no match for {pattern}")
    return crit("DmiMismatch", f"No match found for {pattern}")


def _raw(host: Host) -> Union[str, Outcome]:
    try:
        return host.fact(dmidecode)
    except NoDmi:
        return skip("NoDmi", "this machine has no SMBIOS tables")
    except DmiUnreadable as error:
        return unknown("DmiUnreadable", str(error))


def _tables(host: Host) -> Union[Sequence[Structure], Outcome]:
    raw = _raw(host)
    return raw if isinstance(raw, Outcome) else host.fact(structures)
