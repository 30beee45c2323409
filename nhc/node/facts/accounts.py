"""A user's numbers and home directory, and what stands in the user's way along a path (path_resolution(7))."""

from __future__ import annotations

import stat

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import FrozenSet, Optional


class Account(NamedTuple):
    """One user as the name service knows it."""

    name: str
    uid: int
    gid: int
    groups: FrozenSet[int]
    home: str


class NoAccount(Exception):
    """The name service does not know the user, or does not answer; the text says which."""


class NoGroups(Exception):
    """The name service does not tell the user's groups; the text says why."""


def account(host: Host, name: str) -> Account:
    """Asks `getent` and `id`. Raises NoAccount, NoGroups, OSError where a command is missing."""
    entry = host.run(["getent", "passwd", name], timeout=8)
    fields = entry.stdout.strip().split(":")
    if entry.timed_out:
        raise NoAccount(f"the name service does not answer for {name}")
    if entry.status or len(fields) < 7 or not fields[2].isdigit() or not fields[3].isdigit():
        raise NoAccount(f"there is no user {name}")
    ended = host.run(["id", "-G", fields[0]], timeout=8)
    if ended.timed_out or ended.status:
        raise NoGroups("id -G does not answer in time" if ended.timed_out else ended.complaint)
    groups = frozenset(int(number) for number in ended.stdout.split() if number.isdigit())
    return Account(fields[0], int(fields[2]), int(fields[3]), groups | {int(fields[3])}, fields[5])


def obstacle(host: Host, user: Account, path: str) -> Optional[str]:
    """The first directory along `path` whose mode lets the user not pass, and why; None where modes show none.

    Access control lists and a server's own rules do not show in a mode. Raises OSError where the path cannot be
    looked at.
    """
    walked = ""
    for part in path.strip("/").split("/"):
        walked = f"{walked}/{part}"
        entry = host.stat(walked)
        if user.uid == entry.uid:
            bit, who = stat.S_IXUSR, "its owner"
        elif entry.gid in user.groups:
            bit, who = stat.S_IXGRP, f"its group {host.system.group_name(entry.gid)}"
        else:
            bit, who = stat.S_IXOTH, "others"
        if user.uid and stat.S_ISDIR(entry.mode) and not entry.mode & bit:
            return f"{walked} ({stat.filemode(entry.mode)} {host.system.user_name(entry.uid)}) lets {who} not pass"
    return None
