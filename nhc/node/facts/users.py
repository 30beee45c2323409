"""Users: names and numbers from the passwd file, and from the name service only for what is not there.

A cluster's name service can be slow or down, and a check of local daemons must not wait for it.
"""

from __future__ import annotations

import stat

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Optional

_UID_LIMIT = regex(r"(?m)^\s*(SYS_UID_MAX|UID_MIN)\s+(\d+)\s*$")


class Users(NamedTuple):
    """A passwd file's users; where two share a number the first one names it."""

    by_name: Dict[str, int]
    by_uid: Dict[int, str]


def parse_passwd(text: str) -> Users:
    """The users of a passwd(5) file; lines that are none (NIS's `+`, comments) are left out."""
    users = Users({}, {})
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= 4 and fields[0] and fields[2].isdecimal():
            users.by_name.setdefault(fields[0], int(fields[2]))
            users.by_uid.setdefault(int(fields[2]), fields[0])
    return users


def local_users(host: Host) -> Users:
    """The users of `$PASSWD_DATA_SRC`, /etc/passwd by default; none if it cannot be read."""
    try:
        return parse_passwd(host.read(host.setting("PASSWD_DATA_SRC", "/etc/passwd")))
    except OSError:
        return Users({}, {})


def user_name(host: Host, uid: int) -> str:
    """A user's name, or the number as text where it has none."""
    return host.fact(local_users).by_uid.get(uid) or host.system.user_name(uid)


def user_id(host: Host, name: str) -> Optional[int]:
    """The number of a user given by name or number, None if there is no such user."""
    if name.isdecimal():
        return int(name)
    uid = host.fact(local_users).by_name.get(name)
    return host.system.user_id(name) if uid is None else uid


def parse_max_system_uid(text: str) -> Optional[int]:
    """The last number of a system user by a login.defs(5) file: SYS_UID_MAX, else UID_MIN - 1."""
    limits = {key: int(value) for key, value in _UID_LIMIT.findall(text)}
    limit = limits.get("SYS_UID_MAX", limits.get("UID_MIN", 0) - 1)
    return limit if limit > 0 else None


def max_system_uid(host: Host) -> int:
    """The last number that counts as a system user's: `$MAX_SYS_UID`, else by `$LOGIN_DEFS_SRC`, else 99."""
    given = host.setting("MAX_SYS_UID").strip()
    if given.isdecimal():
        return int(given)
    try:
        limit = parse_max_system_uid(host.read(host.setting("LOGIN_DEFS_SRC", "/etc/login.defs")))
    except OSError:
        limit = None
    return 99 if limit is None else limit


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
    """Asks `getent` and `id`. Raises NoAccount, NoGroups, OSError if a command is missing."""
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
    """The first directory of `path` whose mode does not let the user pass, and why; None if all modes do.

    Access control lists and a server's own rules do not show in a mode. Raises OSError if the path cannot be
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
