r"""Lines of the kernel log in the forms of syslog, journald and dmesg: text into `Record`s. Pure.

A record is the text without its time stamps, and its time; the form of the stamps depends on the source: /dev/kmsg,
journald, a syslog daemon, dmesg in each of its forms.
"""

from __future__ import annotations

import re
import time

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.timestamps import MONTHS, from_iso
from nhc.core.units import whole_of_digits

if TYPE_CHECKING:
    from typing import Optional, Tuple

_KERNEL_TAGS = ("kernel", "vmunix", "-")

# What may stand in front of a message, outermost first. Every part is optional.
_PRIORITY = r"(?:<(?P<priority>\d{1,3})>)?"
_FACILITY = (
    r"(?:(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])\s*:"
    r"(?:emerg|alert|crit|err|warn|notice|info|debug)\s*: )?"
)
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d(?: [A-Z]{3,4}\b)?)?"
_DAY = r" {1,2}\d{1,2}"
"""A day of the month, which syslog and dmesg pad to two characters: a web page shows one of two blanks."""
_BSD = rf"[^\W\d_]{{3,5}}\.?{_DAY}(?: \d{{4}})? \d\d:\d\d:\d\d(?:\.\d+)?(?: \d{{4}}(?= ))?"
_TAG = r"(?P<tag>[^\s:\[]+)(?:\[\d+\])?: ?"
_HOST = r"(?!\[)\S+(?<!:) "
_BARE = r" {0,3}(?:kernel|(?P<bare>[^\s:\[]+)\[\d+\]): ?"
"""The name of a program if `journalctl --no-hostname` wrote the line, or if the host was removed from it."""


def _sender(number: str) -> str:
    """The sender of a line of a journal or syslog, with numbered groups."""
    return (rf"(?:{_HOST}{_TAG}|{_BARE})").replace("<tag>", f"<tag{number}>").replace("<bare>", f"<bare{number}>")


# systemd src/shared/logs-show.c output_timestamp_realtime: short-full is `Fri 2026-11-20 02:28:15 UTC`, short-unix
# `1763605695.123456`, short-monotonic `[   12.345678]`, and each is followed by the host (unless --no-hostname).
_STAMP = (
    _PRIORITY + _FACILITY + r"(?:"
    rf"1 (?P<rfc>{_ISO}) (?P<host1>\S+) (?P<app>\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) ?(?:\ufeff)?"
    rf"|(?P<dmesg>{_ISO.replace('[.,]', ',').replace('+)?(?:Z', '+)(?:Z')}) "
    # A container runtime's log (CRI: `STAMP stderr F text`); Loki's logcli: `STAMP {host="n1"} text`.
    rf"|(?P<iso>{_ISO}) (?:(?:stdout|stderr) [FP] |\{{[^{{}}]{{0,400}}\}} |{_sender('2')})?"
    rf"|[A-Z][a-z]{{2}} (?P<full>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+) {_sender('5')}"
    rf"|(?P<unix>\d{{9,11}}\.\d+) {_sender('4')}"
    rf"|(?P<bsd>{_BSD}) (?:{_sender('3')}|(?=\[))"
    # OpenWrt's logread: `Mon Dec 31 10:50:45 2018 kern.err kernel: `.
    # SONiC's rsyslog: `2025 Jul  2 06:56:57.749644 host ERR kernel: `.
    rf"|(?P<logread>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}}{_DAY} \d\d:\d\d:\d\d \d{{4}}) \w+\.\w+ "
    rf"{_TAG.replace('<tag>', '<tag6>')}"
    rf"|(?P<year>\d{{4}}) (?P<dated>{_BSD}) \S+ [A-Z]{{3,7}} {_TAG.replace('<tag>', '<tag7>')}"
    r"|[ ]?kernel: ?"  # no stamp of a collector: a console, or a broadcast of syslogd's (`kernel:[ 12.3] `)
    r")?"
    # dmesg -T names days and months in the reader's language (sys-utils/dmesg.c, strftime): `wo jul 28`, `三 5月 14`
    rf"(?:\[(?P<ctime>[^\s\]\[]{{1,6}} {{1,2}}[^\s\]\[]{{1,6}}{_DAY} \d\d:\d\d:\d\d \d{{4}})\] ?"
    rf"|\[(?P<boxed>{_ISO})\] ?"
    r"|\[ *(?P<mono>\d+\.\d+)(?: *<[^>]*>)?\] ?(?:(?:\S+ )?kernel: )?"
    r"|\[[ <+]*(?:\d+\.\d+>?|[A-Z][a-z]{2} *\d+ \d\d:\d\d)\] ?)?"
    r"(?:\[ *[TC]\d+\] ?)?"
)
_STACKED = 3
"""Time stamps that may follow each other: a collector stamps what syslog, and before it the kernel, has stamped."""
_NUMBERS = frozenset("0123456789[<")
# A pattern is compiled by `re` when it is first used, and kept there: a run that reads no text compiles none.


class Record(NamedTuple):
    """One message of the kernel. `when` is Unix time, None if the source does not tell.

    `since_boot` is seconds since boot if the source has them. `number` is the kernel's own, -1
    outside /dev/kmsg. `kernel` is False for a line of a syslog file that another program wrote.
    """

    text: str
    when: Optional[float] = None
    since_boot: Optional[float] = None
    number: int = -1
    level: int = 6
    kernel: bool = True


_HEAD = 200
"""Characters before a record's text: numbers of 64 bits and flags. `int` takes no more than 4,300 digits."""


def parse_record(raw: str) -> Optional[Record]:
    r"""A record of /dev/kmsg: `prefix,number,microseconds,flags;text`, then lines of properties; None for another form.

    The kernel writes bytes that cannot be printed, and the backslash, as `\xNN`.
    """
    head, semicolon, body = raw.partition(";")
    fields = head.split(",", 3)
    if not semicolon or len(fields) < 4 or len(head) > _HEAD or not all(field.isdecimal() for field in fields[:3]):
        return None
    text = body.partition("\n")[0]
    if "\\x" in text:
        data = re.sub(r"\\x([0-9a-fA-F]{2})", lambda escape: chr(int(escape[1], 16)), text)
        text = data if data.isascii() else data.encode("latin-1", "replace").decode("utf-8", "replace")
    return Record(text, None, int(fields[2]) / 1e6, int(fields[1]), int(fields[0]) & 7)


def message(line: str) -> Optional[str]:
    """The kernel's message in a log line, without the time stamp; None for another program's line in a syslog file.

    `[   12.3] x`, `Nov 21 02:28:15 host kernel: x`, `<4>x` and the rest are all `x`.
    """
    line = _uncoloured(line)
    if line[:1] == "{":
        entry = parse_journal(line)
        if entry:
            return entry[0].text if entry[0].kernel else None
        line = unwrap(line).text
    if line[:1].isdecimal():
        record = parse_record(line)
        if record:
            return record.text
    stamp = _take_off(line)
    return None if stamp.program else _said(line[stamp.end :])


def parse_line(line: str, now: float) -> Record:
    """A line of a syslog file or a saved dmesg. `now` gives the year if a stamp has none."""
    line, wrapped = _uncoloured(line), None
    if line.startswith("{"):
        entry = parse_journal(line)
        if entry:
            return entry[0]
        line, wrapped = unwrap(line)
    record = parse_record(line) if line[:1].isdecimal() else None
    if record:
        return record
    stamp = _take_off(line)
    when: Optional[float] = None
    if stamp.iso:
        when = from_iso(stamp.iso)
    elif stamp.unix:
        when = float(stamp.unix)
    elif stamp.bsd:
        when = bsd_time(stamp.bsd, now, int(stamp.year) if stamp.year else None)
    elif stamp.ctime:
        when = _ctime(stamp.ctime)
    return Record(
        _said(line[stamp.end :]),
        wrapped if when is None else when,
        float(stamp.mono) if stamp.mono else None,
        level=int(stamp.priority) & 7 if stamp.priority else 6,
        kernel=not stamp.program,
    )


def _uncoloured(line: str) -> str:
    """A line without the terminal colours of dmesg and journalctl (ECMA-48: SGR), which copied text may have."""
    return re.sub(r"\x1b\[[0-9;]{0,40}m", "", line) if "\x1b" in line else line


class CollectedLine(NamedTuple):
    """A line of a program, and the Unix time at which it was collected; None if that is not told."""

    text: str
    when: Optional[float] = None


_TEXTS = ("log", "line", "message", "msg", "textPayload", "LogMessage")
"""The field of the text itself: Docker's json-file and Fluent Bit; `logcli -o jsonl`; Fluentd, Vector, CloudWatch;
loggers of Go; Google's and Azure's exports."""
_TIMES = ("time", "timestamp", "@timestamp", "ts", "date", "TimeGenerated")
_WRAPPED = 3
"""Collectors that may have wrapped a line one after another."""


def unwrap(line: str) -> CollectedLine:
    """The line that log collectors wrapped in JSON, as the program wrote it; any other line as it is."""
    when: Optional[float] = None
    for _ in range(_WRAPPED):
        if line[:1] != "{":
            break
        from nhc.core.json_values import number_of, object_from

        entry = object_from(line)
        text = next((entry[name] for name in _TEXTS if isinstance(entry.get(name), str)), None)
        if text is None:
            break
        line = text.rstrip("\r\n")
        at = next((entry[name] for name in _TIMES if name in entry), None)
        number = number_of(at)
        if isinstance(at, str):
            when = from_iso(at) or when
        elif number is not None:  # seconds; milliseconds (CloudWatch), microseconds or nanoseconds where it is so large
            when = number / next((unit for unit in (1e9, 1e6, 1e3) if number >= unit * 1e9), 1)
    return CollectedLine(line, when)


class _Stamp(NamedTuple):
    """The prefix of a message, and where the message begins. `program` wrote it, "" for the kernel."""

    end: int
    program: str
    priority: str
    iso: str
    unix: str
    bsd: str
    ctime: str
    mono: str
    year: str


_FOUND = r"(?=\S)(?:[\w./@+-]{1,120}?[:-])?(?:\d{1,9}[:\t -])? ?(?=[^\W\d_]{3}|\[|\d{4}-\d\d-|<\d)"
"""The prefix that grep writes before a line that it found (`messages:`, `kern.log-123-`), or `cat -n` and pagers (`
123 `)."""

_QUOTED = r" {0,8}(?:[>|`] {0,3}){0,4}"
"""The prefix of a quoted line in a mail or on a web page."""


def _take_off(line: str) -> _Stamp:
    """The time stamps of a line, and what a search tool wrote before them."""
    stamp = _stamps(line, 0)
    if stamp.end:
        return stamp
    found = re.match(_QUOTED + _FOUND, line)
    behind = _stamps(line, found.end()) if found is not None and found.end() else stamp
    return behind if behind.bsd or behind.ctime or behind.mono or behind.iso else stamp


def _stamps(line: str, begin: int) -> _Stamp:
    """The stamps from there; of several of one kind the outermost, which the last collector wrote, gives the time."""
    end, values = begin, [""] * 8
    for _ in range(_STACKED):
        match = re.match(_STAMP, line[end:] if end else line)
        assert match is not None  # every part of the pattern is optional
        if not match.end():
            break
        end += match.end()
        tag = next((match[name] for name in _TAGS if match[name]), "")
        full = match["full"] or ""
        iso = match["iso"] or match["rfc"] or match["dmesg"] or match["boxed"] or _without_zone(full)
        new = (
            "" if tag in _KERNEL_TAGS else tag, match["priority"], iso, match["unix"], match["bsd"] or match["dated"],
            match["ctime"] or match["logread"], match["mono"], match["year"],
        )  # fmt: skip
        values = [old or (value or "") for old, value in zip(values, new)]
        if line[end : end + 1] not in _NUMBERS and line[end : end + 3] not in MONTHS:
            break
    return _Stamp(end if any(values) or end > begin else 0, *values)


_TAGS = ("app", "tag2", "bare2", "tag3", "bare3", "tag4", "bare4", "tag5", "bare5", "tag6", "tag7")


def _without_zone(full: str) -> str:
    """The stamp of `journalctl -o short-full`: UTC by its name; another zone is this node's own."""
    stamp, _, zone = full.rpartition(" ")
    return f"{stamp}Z" if zone in ("UTC", "GMT") else stamp


def _said(text: str) -> str:
    """The message after a line's time stamps. rsyslog writes repeated messages as `message repeated 3 times: [x]`.

    rsyslog runtime/msg.c, the option RepeatedMsgReduction. The message within has the kernel's stamp if it had one.
    """
    if text.startswith("message repeated "):
        repeated = re.match(r"(?a)message repeated \d{1,9} times: \[ ?(.*?)\]?$", text)
        if repeated:
            text = repeated[1][_take_off(repeated[1]).end :]
    return unescape(text)


def unescape(text: str) -> str:
    """A message whose line breaks syslog wrote as #012 (rsyslog, $EscapeControlCharactersOnReceive), as it was."""
    return text.replace("#012", "\n") if "#012" in text else text


def bsd_time(text: str, now: float, known: Optional[int] = None) -> Optional[float]:
    """Unix time of `Nov 21 02:28:15`, local time, in the year that puts it last before `now` (or a day ahead).

    `known` is the year where the line tells it; the stamp itself may (`Nov 21 2026 02:28:15`, `Nov 21 02:28:15 2026`).
    """
    try:
        name, day, *rest = text.split()
        clock, *years = sorted(rest, key=lambda part: ":" not in part)
        known = int(years[0]) if years else known
        month = MONTHS.index(name[:3]) + 1
        hour, minute, second = (int(part) for part in clock[:8].split(":"))
        year = time.localtime(now).tm_year
        for candidate in (known,) if known else (year + 1, year, year - 1):
            when = time.mktime((candidate, month, int(day), hour, minute, second, 0, 0, -1))
            if known or when <= now + 86400:
                return when
    except (ValueError, OverflowError):
        pass
    return None


def _ctime(text: str) -> Optional[float]:
    """Unix time of `Mon May 25 12:34:56 2026`, as `dmesg -T` writes it."""
    try:
        _weekday, month, day, clock, year = text.split()
        hour, minute, second = (int(part) for part in clock.split(":"))
        return time.mktime((int(year), MONTHS.index(month) + 1, int(day), hour, minute, second, 0, 0, -1))
    except (ValueError, OverflowError):
        return None


def parse_journal(line: str, whole: bool = True) -> Optional[Tuple[Record, str, str]]:
    """An entry of `journalctl -o json`: the record, its cursor and its boot id; None for no such entry.

    Of a line that was written to /dev/kmsg, journald takes the part before the colon for the name of a program and
    keeps it apart; `whole` puts it back.
    """
    from nhc.core.json_values import object_from

    entry = object_from(line)
    if "MESSAGE" not in entry:
        return None
    message = entry["MESSAGE"]
    if isinstance(message, list):  # bytes that are not UTF-8
        message = bytes(value & 255 for value in message if isinstance(value, int)).decode(errors="replace")
    transport, name, pid = (entry.get(key) for key in ("_TRANSPORT", "SYSLOG_IDENTIFIER", "SYSLOG_PID"))
    if whole and transport == "kernel" and isinstance(name, str) and name != "kernel":
        message = f"{name}{f'[{pid}]' if pid else ''}: {message}"
    numbers = ("__REALTIME_TIMESTAMP", "_SOURCE_MONOTONIC_TIMESTAMP", "PRIORITY")  # the last is the sender's own text
    stamp, since, level = (whole_of_digits(entry.get(key)) for key in numbers)
    record = Record(
        str(message),
        None if stamp is None else stamp / 1e6,
        None if since is None else since / 1e6,
        level=6 if level is None else level & 7,
        kernel=(transport or "kernel") == "kernel",
    )
    return record, str(entry.get("__CURSOR", "")), str(entry.get("_BOOT_ID", ""))
