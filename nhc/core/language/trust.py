"""Who may change what nhc runs: a configuration runs commands, so who can write to it acts as the user who runs it.

As root and in hooks nhc refuses a configuration, a site script, a profile or a settings file that other users can write
to, itself or by a directory above it. ALLOW in the settings file or on the command line of a hook accepts the first
three as they are.
"""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional, Tuple

ALLOW = "NHC_ALLOW_WRITABLE_CONFIG"
_OTHERS, _GROUP, _STICKY, _KIND, _FILE, _DIRECTORY, _READ_ONLY = 0o002, 0o020, 0o1000, 0o170000, 0o100000, 0o040000, 1


class Untrusted(ValueError):
    """A file that others can write to."""


def rule(settings: Mapping[str, str], *, hook: bool, named: bool) -> str:
    """Which rule holds, for `judge_of`: "" none, "others" or "strict".

    A file that root names (`-c FILE`) may belong to another user, as root sees whose it is.
    """
    if settings.get(ALLOW, "").lower() in ("1", "yes", "true") or (os.geteuid() and not hook):
        return ""
    return "others" if named and not hook else "strict"


def judge_of(rule: str) -> Callable[[str], str]:
    """A function that says why a path is not to be trusted, "" where it is."""
    return (lambda path: problem(path, strict=rule == "strict")) if rule else (lambda _path: "")


def problem(path: str, *, strict: bool) -> str:
    """Who else can write to a file or directory, or put another in its place; "" where nobody can.

    `strict`: only root and our own user may, by their own mode or as a group. A path that is not there is no problem,
    nor is what is no file: a pipe, a terminal.
    """
    path = os.path.realpath(path)
    try:
        if os.stat(path).st_mode & _KIND not in (_FILE, _DIRECTORY):
            return ""
        while True:
            why = _writers(path, strict)
            if why:
                who, mend = why
                return f"{who} can write to {path}: {mend} {path}, or set {ALLOW}=1 in the settings file of nhc"
            if path == "/":
                return ""
            path = os.path.dirname(path)
    except OSError:
        return ""  # whoever reads it says why it cannot be read


def _writers(path: str, strict: bool) -> Optional[Tuple[str, str]]:
    """Who else can write there, and what mends it."""
    info = os.stat(path)
    mode = info.st_mode
    if mode & _OTHERS and not mode & _STICKY and not os.statvfs(path).f_flag & _READ_ONLY:
        return "everybody", "chmod o-w"
    if strict and info.st_uid not in (0, os.geteuid()):
        return f"user {info.st_uid}", "chown root"
    if strict and mode & _GROUP and not mode & _STICKY and info.st_gid not in (0, os.getegid()):
        return f"group {info.st_gid}", "chmod g-w"
    return None
