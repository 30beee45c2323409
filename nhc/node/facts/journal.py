"""The kernel's messages in journald, read with journalctl: which are new, and whether some are lost.

journald deletes its oldest entries when it needs room. `journalctl --after-cursor` does not report this: it goes on
with the entries that are left, and skips the first of them as if it were the cursor's own. So journalctl is asked with
`--cursor`, which includes the cursor's own entry, and the first entry that it shows is compared with the cursor.
"""

from __future__ import annotations

from nhc.core.host import Completed, Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.kernel_lines import parse_journal
from nhc.node.facts.kmsg import Batch, boot_time, read_kmsg

if TYPE_CHECKING:
    from typing import Dict, List, Optional

FIELDS = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,SYSLOG_PID,_BOOT_ID,_SOURCE_MONOTONIC_TIMESTAMP,_TRANSPORT"
JOURNALCTL = ("journalctl", "-o", "json", f"--output-fields={FIELDS}", "--no-pager", "-q", "-b")
STALE = 600.0
"""Seconds after which the cursor is moved to the journal's end. The kernel writes few entries, other programs many: the
journal drops the kernel's newest entry long before one of the kernel's is lost, and that would look like a loss."""


NO_JOURNAL = "journald keeps no journal here (/run/log/journal, /var/log/journal)"


def is_kept(host: Host) -> bool:
    """Whether journald keeps a journal. Without one `journalctl --follow` waits for ever without a message."""
    return any(host.glob(f"{place}/log/journal/*/*.journal") for place in ("/run", "/var"))


def read_journal(host: Host, cursor: str, identifier: str = "") -> Batch:
    """What journald has of this boot's kernel (or of `identifier`) after `cursor`. Raises OSError."""
    what = ["-t", identifier] if identifier else ["-k"]
    end = _end(host) if cursor and _realtime(cursor) + STALE < host.time() else ""
    lines = _ask(host, *what, *([f"--cursor={cursor}"] if cursor else []))
    if lines is None:  # journald cannot use the cursor
        return read_journal(host, "", identifier)._replace(lost=-1)
    boot = host.boot_id().replace("-", "")
    lost, place, records = 0, cursor, []
    for number, line in enumerate(lines):
        entry = parse_journal(line, whole=not identifier)
        if entry is None:
            continue
        record, at, of_boot = entry
        if not number and cursor:
            if same_entry(at, cursor):
                continue
            lost = _lost(host, cursor)
        place = at or place
        if not of_boot or not boot or of_boot == boot:
            records.append(record._replace(kernel=True))
    if cursor and not lines:
        lost = _lost(host, cursor)
    if end and not records:
        place = end
    return Batch(records, place, lost)


def _ask(host: Host, *arguments: str) -> Optional[List[str]]:
    """Journalctl's lines, None if it cannot use the cursor. Raises OSError."""
    done = host.run([*JOURNALCTL, *arguments], timeout=8.0)
    if not done.timed_out and done.status and "cursor" in done.stderr:
        return None
    return _lines(done)


def _lines(done: Completed) -> List[str]:
    """What journalctl printed. Raises OSError if it failed."""
    if done.timed_out:
        raise OSError(110, "did not answer in time", "journalctl")
    if done.status:
        raise OSError(5, (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1], "journalctl")
    return done.stdout.splitlines()


def _end(host: Host) -> str:
    """The cursor of the newest entry of all, read before the kernel's entries so that none of those is skipped."""
    entry = next(map(parse_journal, _ask(host, "-n", "1") or ()), None)
    return entry[1] if entry else ""


def _lost(host: Host, cursor: str) -> int:
    """-1 if entries right after the cursor are gone, since nothing tells how many were the kernel's; else 0."""
    entry = next(map(parse_journal, _ask(host, "-n", "1", f"--cursor={cursor}") or ()), None)
    if entry is None:
        return -1  # not even the cursor's own entry is left
    if same_entry(entry[1], cursor):
        return 0
    was, now = _parts(cursor), _parts(entry[1])
    try:
        return 0 if was["s"] == now["s"] and int(now["i"], 16) <= int(was["i"], 16) + 1 else -1
    except (KeyError, ValueError):
        return -1


def same_entry(cursor: str, other: str) -> bool:
    """Whether two cursors name one entry. Its number changes as journald moves it from memory to disk, nothing else."""
    first, second = _parts(cursor), _parts(other)
    return cursor == other or ("x" in first and all(first.get(key) == second.get(key) for key in "bmtx"))


def _parts(cursor: str) -> Dict[str, str]:
    return dict(part.split("=", 1) for part in cursor.split(";") if "=" in part)


def _realtime(cursor: str) -> float:
    try:
        return int(_parts(cursor).get("t", ""), 16) / 1e6
    except ValueError:
        return 0.0


def messages(host: Host, identifier: str, since: float, directory: str = "") -> List[str]:
    """The messages of one source of this boot since a Unix time, oldest first. Raises OSError.

    The kernel's are read from /dev/kmsg where there is no journalctl.
    """
    what = ["-k"] if identifier == "kernel" else ["-b", "-t", identifier]
    where = [f"--directory={directory}"] if directory else []
    try:
        return logged(host, since, *where, *what)
    except FileNotFoundError:
        if identifier != "kernel" or directory:
            raise
        earliest = since - boot_time(host)
        return [record.text for record in read_kmsg(host, None).records if (record.since_boot or 0.0) >= earliest]


def logged(host: Host, since: float, *which: str) -> List[str]:
    """The messages that journalctl chooses with these options, since a Unix time, oldest first. Raises OSError."""
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", *which, f"--since=@{int(since)}"]
    return _lines(host.run(argv, timeout=10))
