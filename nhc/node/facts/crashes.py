"""What a crashed kernel left behind: pstore's records, systemd's copies of them, kdump's dumps.

The firmware, or memory that outlives a reset, keeps the last lines of the kernel's log
(Documentation/admin-guide/pstore-blk.rst, fs/pstore/platform.c: each record begins with `Panic#1 Part1` or `Oops#1
Part1`). systemd-pstore(8) moves them to disk.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

PSTORE = "/sys/fs/pstore"
ARCHIVE = "/var/lib/systemd/pstore"
DUMPS = "/var/crash"
_HEAD = re.compile(r"(Panic|Oops|Emergency|Shutdown|Unknown)#(\d+) Part\d+")
_CAUSES = (
    re.compile(r"Kernel panic - not syncing: .*"),
    re.compile(r"(?:kernel BUG at|BUG: |Oops: |[Uu]nable to handle |Internal error: |general protection).*"),
)  # fmt: skip
_LIMIT = 1 << 20


class Crash(NamedTuple):
    """One crash of the kernel. `identity` is the same in every place of its record; `at` is the record's time
    (Unix).
    """

    identity: str
    kind: str
    cause: str
    at: float
    path: str


class CrashRecord(NamedTuple):
    """What one record says: `kind` is Panic, Oops ..., `line` the kernel's line about the cause as it stands."""

    kind: str
    cause: str
    line: str


def parse_record(text: str) -> Optional[CrashRecord]:
    """A record, or several in one file; None for one that tells of no fault (an orderly shutdown, no head at all)."""
    kinds = [match[1] for match in _HEAD.finditer(text)]
    if not kinds or set(kinds) <= {"Shutdown"}:
        return None
    kind = "Panic" if "Panic" in kinds else kinds[0]
    for cause in _CAUSES:
        for line in text.splitlines():
            match = cause.search(line)
            if match:
                return CrashRecord(kind, match[0].strip(), line.strip())
    return CrashRecord(kind, "", "")


def _files(host: Host, directory: str, depth: int) -> List[str]:
    """The records below a directory. Raises OSError if it cannot be listed."""
    paths: List[str] = []
    for name in host.listdir(directory):
        path = f"{directory}/{name}"
        if name.startswith("dmesg") and not host.isdir(path):
            paths.append(path)
        elif depth and host.isdir(path):
            paths += _files(host, path, depth - 1)
    return paths


def crashes(host: Host) -> Tuple[Crash, ...]:
    """What pstore and its archive hold, one entry a crash, also if it has many parts. Raises OSError."""
    by_identity: Dict[str, Crash] = {}
    nameless: List[Crash] = []
    for directory, depth in ((PSTORE, 0), (ARCHIVE, 2)):
        try:
            paths = _files(host, directory, depth)
        except FileNotFoundError:
            continue
        for path in paths:
            record = parse_record(host.read(path, _LIMIT))
            if record is None:
                continue
            crash = Crash(record.line or path, record.kind, record.cause, host.stat(path).mtime, path)
            if record.line:
                by_identity.setdefault(record.line, crash)
            else:
                nameless.append(crash)
    # A part with older lines, without the cause, lies beside the one that has it.
    seen = {_beside(crash.path) for crash in by_identity.values()}
    for crash in nameless:
        if _beside(crash.path) not in seen:
            seen.add(_beside(crash.path))
            by_identity[crash.identity] = crash
    return tuple(sorted(by_identity.values(), key=lambda each: each.at))


def _beside(path: str) -> str:
    return PSTORE if path.startswith(PSTORE) else "/".join(path.split("/")[: ARCHIVE.count("/") + 2])


def dumps(host: Host) -> Tuple[Crash, ...]:
    """The memory images that kdump wrote (RHEL's vmcore, Debian's dump.TIME). Raises OSError."""
    images = []
    try:
        names = host.listdir(DUMPS)
    except FileNotFoundError:
        return ()
    for name in names:
        directory = f"{DUMPS}/{name}"
        if not host.isdir(directory):
            continue
        inside = host.listdir(directory)
        image = next((each for each in inside if each.startswith(("vmcore", "dump.")) and "dmesg" not in each), None)
        if image:
            log = next((each for each in inside if "dmesg" in each), None)
            match = _CAUSES[0].search(host.read(f"{directory}/{log}", 64 << 20)) if log else None
            path = f"{directory}/{image}"
            images.append(Crash(path, "Dump", match[0].strip() if match else "", host.stat(path).mtime, path))
    return tuple(sorted(images, key=lambda each: each.at))


def there(host: Host) -> bool:
    """Whether this node has a place where such records can lie."""
    return any(host.isdir(path) for path in (PSTORE, ARCHIVE, DUMPS))
