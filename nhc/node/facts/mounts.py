"""The mounted file systems, from /proc/mounts (fstab(5), proc(5)).

Reading it touches no file system: a hung server does not hang the reader.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

MOUNTS = "/proc/mounts"

# The kernel writes blanks, tabs, newlines, backslashes and (since 6.6) # as three octal digits.
_ESCAPE = regex(r"\\([0-3][0-7]{2})")


class Mount(NamedTuple):
    """One line of /proc/mounts. `options` is the text with commas, as match strings expect it."""

    source: str
    point: str
    type: str
    options: str

    @property
    def read_only(self) -> bool:
        return "ro" in self.options.split(",")


def unescape(text: str) -> str:
    r"""`/scratch/my\040dir` is `/scratch/my dir`."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def escape(text: str) -> str:
    r"""`/scratch/my dir` as the kernel writes it, and as in a copied line of /proc/mounts."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in text)


def parse_mounts(text: str) -> Tuple[Mount, ...]:
    """Every mount, in the order in which they were made. Lines with fewer than four fields are left out."""
    mounted: List[Mount] = []
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) >= 4:
            source, point, kind, options = fields[:4]
            mounted.append(Mount(unescape(source), unescape(point), unescape(kind), unescape(options)))
    return tuple(mounted)


def mounts(host: Host) -> Tuple[Mount, ...]:
    """The node's mounts. Raises OSError."""
    return parse_mounts(host.read(MOUNTS))


def under(mounted: Sequence[Mount], path: str) -> Optional[Mount]:
    """The mount that `path` (absolute, its links followed) lies on, of several at one place the last."""
    above = [each for each in reversed(mounted) if f"{path.rstrip('/')}/".startswith(f"{each.point.rstrip('/')}/")]
    return max(above, key=lambda mount: len(mount.point), default=None)


def at(mounted: Sequence[Mount], path: str) -> Optional[Mount]:
    r"""What is mounted at exactly `path`: the last mount there, which covers the earlier ones; None if nothing is.

    The path may also be written as in /proc/mounts, with `\040` for a blank.
    """
    wanted = path.rstrip("/") or "/"
    for mount in reversed(mounted):
        if mount.point == wanted:
            return mount
    return at(mounted, unescape(path)) if unescape(path) != path else None
