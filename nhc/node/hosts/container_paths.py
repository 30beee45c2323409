"""Paths of a node that is seen below a directory: links and /proc mean there what they mean on the node."""

from __future__ import annotations

import os

LINKS = 40
"""Symbolic links followed in one path, as the kernel does (MAXSYMLINKS)."""


def resolve(root: str, path: str, follow: bool = True, kernel_too: bool = False) -> str:
    """`path` of the node without symbolic links: an absolute one would lead this process into its own root.

    Its last part is left as it is without `follow`. Links of /proc and /sys are relative, and are followed only with
    `kernel_too`.
    """
    done, links = "", 0
    left = _parts(path)
    while left:
        part = left.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        if not done and part in ("proc", "sys") and not kernel_too:
            return of_process_1("/".join([here, *reversed(left)]))
        if not left and not follow:
            return here
        try:
            target = os.readlink(root + here)
        except OSError:  # no link, or nothing at all: that is for whoever opens it to find
            done = here
            continue
        links += 1
        if links > LINKS:
            return path
        if target.startswith("/"):
            done = ""
        left.extend(_parts(target))
    return done or "/"


def _parts(path: str) -> list[str]:
    """The names in a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def of_process_1(path: str) -> str:
    """Mounts and network of a process are its own: those of the node are its process 1's."""
    if path.startswith(("/proc/mounts", "/proc/net")):
        return f"/proc/1{path[len('/proc') :]}"
    if path.startswith(("/proc/self/mount", "/proc/self/net")):
        return f"/proc/1{path[len('/proc/self') :]}"
    return path
