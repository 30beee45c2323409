"""What is released: the version, what the changelog says of it, the time that goes into every file, a clean copy."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from pathlib import Path
from typing import NamedTuple

from nhc_release.commands import BuildError, run

ROOT = Path(__file__).resolve().parents[2]
_VERSION = re.compile(r'^__version__ = "([0-9]+\.[0-9]+\.[0-9]+(?:(?:a|b|rc)[0-9]+)?)"$', re.MULTILINE)
_ENTRY = re.compile(r"^## (?P<version>\S+?),? +(?P<date>.+?) *$", re.MULTILINE)


class Source(NamedTuple):
    """A checkout to build from. `epoch` (seconds) is the time of its last commit: the time of every file that is made.

    `notes` is the changelog's entry of this version, "" where there is none; `date` what stands beside the version.
    """

    root: Path
    version: str
    epoch: int
    date: str
    notes: str


def read(root: Path = ROOT) -> Source:
    """Look at a checkout. Raises BuildError."""
    text = (root / "nhc/__init__.py").read_text(encoding="utf-8")
    found = _VERSION.search(text)
    if not found:
        raise BuildError('nhc/__init__.py: no line __version__ = "N.N.N"')
    date, notes = entry((root / "CHANGELOG.md").read_text(encoding="utf-8"), found[1])
    return Source(root, found[1], _epoch(root), date, notes)


def entry(changelog: str, version: str) -> tuple[str, str]:
    """The date and the text of a version's entry, two "" where there is none."""
    heads = list(_ENTRY.finditer(changelog))
    for number, head in enumerate(heads):
        if head["version"] == version:
            end = heads[number + 1].start() if number + 1 < len(heads) else len(changelog)
            return head["date"], changelog[head.end() : end].strip()
    return "", ""


def _epoch(root: Path) -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given:
        if not given.isascii() or not given.isdigit():
            raise BuildError(f"SOURCE_DATE_EPOCH: {given!r} is not a number of seconds")
        return int(given)
    return int(run(["git", "log", "-1", "--format=%ct"], cwd=root).strip())


def refusals(source: Source) -> list[str]:
    """Why this checkout cannot be released, a line each; empty where it can."""
    said = []
    changed = run(["git", "status", "--porcelain"], cwd=source.root).splitlines()
    if changed:
        said.append(f"the checkout has changes that are not committed: {', '.join(line[3:] for line in changed[:5])}")
    if not source.notes:
        said.append(f"CHANGELOG.md has no entry for {source.version}: add `## {source.version}, YYYY-MM-DD`")
    elif not _is_date(source.date):
        said.append(f"CHANGELOG.md: the date of {source.version} is {source.date!r}, not YYYY-MM-DD")
    return said


def _is_date(text: str) -> bool:
    try:
        time.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True


def export(source: Source, into: Path) -> Path:
    """Copy what git knows or does not ignore, with no trace of this checkout's modes and times.

    The umask, the time of the clone and what lies about in build directories decide no byte of what is made.
    """
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=source.root)
    for name in sorted(filter(None, listed.split("\0"))):
        path, target = source.root / name, into / name
        if not path.is_file() or path.is_symlink():
            continue  # deleted, and not committed yet
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    normalise(into, source.epoch)
    return into


def normalise(top: Path, epoch: int) -> None:
    """Modes without the umask, and one time for everything below `top`."""
    for directory, _, files in os.walk(top, topdown=False):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
        os.chmod(directory, 0o755)  # noqa: S103
        os.utime(directory, (epoch, epoch))
