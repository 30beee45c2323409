r"""The kernel log, from any source: /dev/kmsg, journald, a syslog file, a saved dmesg.

Each source gives `Record`s (`nhc.node.facts.kernel_lines`): the text without its time stamp, and its time. /dev/kmsg
numbers its records (Documentation/ABI/testing/dev-kmsg), so a cursor of boot id and number shows which records are new
and how many were overwritten before they were read.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.kernel_lines import Record, parse_line, parse_record

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Tuple

TAIL = 64 << 20
"""Bytes of a log file that one run reads; the next goes on from there."""
_PROBE = 65536


class Batch(NamedTuple):
    """The result of one read of a source. `cursor`, in JSON's own types, is for the next read.

    `lost` is how many records were overwritten unread (-1: some, and nothing tells how many). `problem` says
    why the source could not be read to its end, "" if it could.
    """

    records: List[Record]
    cursor: object
    lost: int = 0
    problem: str = ""


def boot_time(host: Host) -> float:
    return host.time() - host.monotonic()


def read_kmsg(host: Host, after: Optional[int]) -> Batch:
    """What /dev/kmsg holds after record number `after`, all of it for None. Raises OSError."""
    raws = host.system.kernel_log(-1 if after is None else after)
    records = ring_records(host, raws)
    lost, last = 0, after
    for record in records:
        if last is not None and record.number > last + 1:
            lost += record.number - last - 1
        elif last is None and record.number > 0:
            lost += record.number  # the ring had wrapped before the first read of this boot
        last = record.number
    return Batch(records, last, lost)


def ring_records(host: Host, raws: Iterable[str]) -> List[Record]:
    """The records of /dev/kmsg in these texts, each with its Unix time; a text in another form is left out."""
    began = boot_time(host)
    parsed = (parse_record(raw) for raw in raws)
    return [record._replace(when=began + (record.since_boot or 0.0)) for record in parsed if record is not None]


def read_file(host: Host, path: str, cursor: object, keep_all: bool = False) -> Batch:
    """What a log file holds after `cursor` (inode and offset), across one rotation by renaming. Raises OSError.

    Lines from before this boot and of other programs than the kernel are left out, unless `keep_all`.
    """
    inode, offset = cursor if isinstance(cursor, (list, tuple)) and len(cursor) == 2 else (0, 0)
    stat = host.stat(path)
    parts: List[str] = []
    lost, left_out = 0, 0
    if inode and stat.ino != inode:
        rotated = rotated_to(host, path, int(inode))
        if rotated:
            text, end, left_out = log_tail(host, rotated, int(offset), TAIL)
            parts.append(text)
            left_out += max(host.stat(rotated).size - end - _PROBE, 0)  # it is never read again
        else:
            lost = -1
        offset = 0
    elif stat.size < int(offset):  # truncated in place
        offset, lost = 0, -1
    now, began = host.time(), boot_time(host)
    if not inode and stat.size > TAIL:
        offset = _boot_offset(host, path, stat.size, began)
    text, end, more = log_tail(host, path, int(offset), TAIL)
    parts.append(text)
    if more > _PROBE or inode:  # the rest of the line in which a first read begins is not a loss
        left_out += more
    records: List[Record] = []
    for line in "".join(parts).split("\n"):
        if not line:
            continue
        if line[:2] == "  " and records:  # dmesg and journalctl indent the further lines of a record, without a stamp
            records[-1] = records[-1]._replace(text=f"{records[-1].text}\n{line.strip()}")
            continue
        record = parse_line(line, now)
        if record.when is None and record.since_boot is not None:
            record = record._replace(when=began + record.since_boot)
        if keep_all or record.kernel:
            records.append(record)
    if not keep_all:
        records = _of_this_boot(records, began, now)
    return Batch(records, [stat.ino, end], lost, unread(path, left_out, stat.size - end))


ZONES = 900.0
"""Seconds between time zones: a quarter of an hour."""
FARTHEST = 26 * 3600.0
"""Seconds between the farthest zones there are (UTC-12 and UTC+14)."""
DRIFT = 60.0
"""Seconds by which the clock of the kernel's stamps and the wall clock may differ, including a daemon's delay."""


def _of_this_boot(records: List[Record], began: float, now: float) -> List[Record]:
    """The records of a syslog file that are from this boot, by their time stamps.

    A daemon may write stamps of another time zone (a container's, a collector's). If the kernel's own stamp is also
    there, it decides: of the lines since that stamp last started at 0, those whose stamp is off by a zone are of this
    boot.
    """
    anew, last = 0, 0.0
    for index, record in enumerate(records):
        if record.since_boot is not None:
            if record.since_boot < last - DRIFT:
                anew = index
            last = record.since_boot
    up = (now - began) * 1.001 + DRIFT  # the clock of the stamps is not kept right by NTP
    if any((record.since_boot or 0.0) > up for record in records[anew:]):
        anew = len(records)  # the boot that the file ends with lasted longer than this one has
    kept: List[Record] = []
    for index, record in enumerate(records):
        if record.since_boot is not None and (index < anew or record.since_boot > up):
            continue
        if record.when is None or record.when >= began - 1:
            kept.append(record)
        elif record.since_boot is not None:
            when = began + record.since_boot
            off = when - record.when
            zones = round(off / ZONES)
            if zones and off <= FARTHEST and abs(off - zones * ZONES) <= DRIFT:
                kept.append(record._replace(when=when))
    return kept


def log_tail(host: Host, path: str, offset: int, limit: int) -> Tuple[str, int, int]:
    """The lines from `offset` on, where they end, and how many bytes were left out because they are not lines."""
    text, end, *left_out = host.system.log_tail(path, offset, limit)  # earlier recordings have two values
    return str(text), int(end), int(left_out[0]) if left_out else 0


def unread(path: str, left_out: int, behind: int) -> str:
    """A note about a file that was not read to its end; "" if only a line that is still being written is missing."""
    notes = []
    if left_out:
        notes.append(f"{left_out} bytes of {path} are no lines (a hole, a line without an end) and were not read")
    if behind > _PROBE:
        notes.append(f"{behind} bytes of {path} are still to be read: the next run goes on there")
    return "; ".join(notes)


def _boot_offset(host: Host, path: str, size: int, began: float) -> int:
    """Where in a long file this boot begins, to within a few hundred kilobytes: a file may hold months of earlier
    lines.
    """
    low, high, now = 0, size, host.time()
    while high - low > 4 * _PROBE:
        middle = (low + high) // 2
        lines = log_tail(host, path, middle, _PROBE)[0].split("\n")
        stamps = (parse_line(line, now).when for line in lines if line)
        when = next((stamp for stamp in stamps if stamp is not None), None)
        if when is None or when >= began:
            high = middle
        else:
            low = middle
    return low


def rotated_to(host: Host, path: str, inode: int) -> str:
    """Where logrotate put the file that had this inode, "" if it cannot be found (it was compressed, say)."""
    directory, _, name = path.rpartition("/")
    for other in host.listdir(directory or "/"):
        if other != name and other.startswith(name):
            try:
                if host.stat(f"{directory}/{other}").ino == inode:
                    return f"{directory}/{other}"
            except OSError:
                continue
    return ""
