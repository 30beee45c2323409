"""Network file systems: data that is written can be read back."""

from __future__ import annotations

import errno
import os

from nhc.core.check import Judged, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import seconds, show_seconds, size_bytes, text
from nhc.node.facts import mounts as table
from nhc.node.facts import write_probe
from nhc.node.facts.fstab import may_hang

if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence

_MEMORY = "write_probe"
_FAILURES = {
    errno.ENOSPC: ("NoSpace", "no space is left", Action.INSPECT),
    errno.EDQUOT: ("QuotaExceeded", "the quota is used up", Action.INSPECT),
    errno.EROFS: ("FilesystemReadOnly", "it is read-only", Action.REBOOT),
    errno.ESTALE: ("MountStale", "its handle is stale", Action.REBOOT),
    errno.ENOENT: ("NotMounted", "there is no such directory", Action.INSPECT),
    errno.ENOTDIR: ("NotMounted", "it is no directory", Action.INSPECT),
}


def block_size(value: str) -> int:
    """A size in bytes, rounded up to whole blocks, at most 64 MB. Raises ValueError."""
    size = size_bytes(value)
    if not 0 < size <= 64 << 20:
        raise ValueError(f"{value!r} is not a size from 1 byte to 64MB")
    return -(-size // write_probe.BLOCK) * write_probe.BLOCK


@check(
    "check_fs_write",
    opt("-b --bytes", "size", block_size, "how much is written (default 64k)", 65536),
    opt("-s --slow", "slow", seconds, "WARN where it took this long, all steps together", 5.0),
    flag("-l --local", "local", "the directory may lie on a disk of this node"),
    rest("directories", text, "directories that root may write in", required=True),
    timeout=20,
    on_timeout="crit",
    every=300,
)
def check_fs_write(
    host: Host, directories: Sequence[str], size: int = 65536, slow: float = 5.0, local: bool = False
) -> Judged:
    """A network file system takes a write, and gives it back.

    Creates a file of its own name in each directory, writes 64 kB, forces them to the server (fsync), closes,
    reads them back past the page cache (O_DIRECT, or after dropping them), compares and removes it. Full, over
    quota, read-only and stale are distinguished; each is CRIT, as is other data than was written, and a step that
    does not end by the line's `timeout`. Slower than 5 s altogether is WARN. A directory on this node's own disk
    is CRIT unless -l is given: then the file system is not mounted. A mount of a type that nhc does not
    know is tried. A file that a killed probe left is removed by the next. UNKNOWN where root may not write there, as
    the server maps it to nobody (root_squash): name a directory that nobody may write in. Give each file system a
    line of its own. GPUd probes NFS in the same way.

    Example: * |every 5m, timeout 15s| check_fs_write /scratch/.nhc
    """
    outcomes = [_probe(host, each.rstrip("/") or "/", size, slow, local) for each in directories]
    bad = [outcome for outcome in outcomes if outcome.reason]
    if bad:
        return bad
    metrics = outcomes[0].metrics if len(outcomes) == 1 else ()
    return ok(f"{', '.join(directories)} written and read back", metrics=metrics)


def _probe(host: Host, directory: str, size: int, slow: float, local: bool) -> Outcome:
    if not local:
        real = host.realpath(directory)
        mount = table.under(table.mounts(host), real)
        if mount is None or not (may_hang(mount) or mount.type == "autofs"):
            kind = f" ({mount.type} at {mount.point})" if mount else ""
            return crit("NotMounted", f"{directory} lies on no network file system{kind}", target=directory)
    name = f".nhc-write-{host.system.hostname()}-{os.getpid()}-{int(host.monotonic() * 1000):x}"
    for left in _note(host, directory, name):
        host.system.ask(f"remove {directory}/{left}", lambda left=left: write_probe.remove(host.path(directory), left))  # type: ignore[misc]
    answer: Dict[str, Any] = host.system.ask(
        f"write probe {directory}", lambda: write_probe.probe(host.path(directory), name, size)
    )
    if answer.get("failed") != "remove":
        _forget(host, directory, name)
    return _judge(directory, answer, slow)


def _note(host: Host, directory: str, name: str) -> List[str]:
    """Remember the file that is about to be written; returns those left by probes that no longer run."""
    dead: List[str] = []

    def change(stored: Dict[str, Any]) -> None:
        known = stored.get(directory)
        names = [each for each in known if _ours(each)] if isinstance(known, list) else []
        dead[:] = [each for each in names if not _running(host, each)]
        stored[directory] = [each for each in names if each not in dead] + [name]

    host.memory.update(_MEMORY, change)
    return dead


def _forget(host: Host, directory: str, name: str) -> None:
    def change(stored: Dict[str, Any]) -> None:
        known = stored.get(directory)
        stored[directory] = [each for each in known if each != name] if isinstance(known, list) else []

    host.memory.update(_MEMORY, change)


def _ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(".nhc-write-") and "/" not in name


def _running(host: Host, name: str) -> bool:
    """Whether the process that wrote this file may still use it: another run of nhc, or one stuck in the kernel."""
    pid = name.rsplit("-", 2)[-2]
    return pid.isdigit() and int(pid) != os.getpid() and host.exists(f"/proc/{pid}")


def _judge(directory: str, answer: Dict[str, Any], slow: float) -> Outcome:
    steps = answer.get("steps", {})
    metrics = tuple(Metric(f"{step}_time", took, "s") for step, took in steps.items())
    evidence = (f"read past the cache: {'yes' if answer.get('direct') else 'no'}",)
    failed, number = answer.get("failed"), answer.get("errno")
    if failed and number in (errno.EACCES, errno.EPERM):
        message = f"{directory}: root may not {failed} a file there ({answer.get('error')})"
        return unknown("NotPermitted", message, target=directory, metrics=metrics)
    if failed:
        reason, why, action = _FAILURES.get(number or 0, ("WriteFails", str(answer.get("error")), Action.INSPECT))
        message = f"{directory}: {failed} fails: {why}"
        return crit(reason, message, target=directory, metrics=metrics, action=action)
    if answer.get("differs"):
        message = f"{directory}: what was read back is not what was written"
        return crit("DataDiffers", message, target=directory, metrics=metrics, action=Action.INSPECT, evidence=evidence)
    total = sum(steps.values())
    if total >= slow:
        slowest = max(steps, key=lambda step: float(steps[step]))
        message = f"{directory} took {show_seconds(total)} for a write and a read, most of it for {slowest}"
        return warn("WriteSlow", message, target=directory, metrics=metrics, evidence=evidence)
    return ok(target=directory, metrics=metrics)
