"""NHC_EPILOG_WHY=1: the epilog writes into a failed job's own output why it ended (nhc job why).

It runs as the job's user, who can write no other file by it than his own, and only on the job's first node. Nothing
that goes wrong here keeps the node from the next job.
"""

from __future__ import annotations

import sys

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.system import process
from nhc.hooks import log
from nhc.hooks.job_environment import is_on, watch_only

if TYPE_CHECKING:
    from typing import Mapping, Optional


LIMIT = 20.0
"""Seconds: slurmd waits for the epilog before the node takes work again."""
KERNEL_LINES, KERNEL_BYTES = 200, 48 << 10
"""What of the kernel log is handed over, the newest: less than a pipe holds."""


def tell_why(node: str, environ: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Append the three lines, where the site asks for it."""
    job, uid = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_UID", "")
    if not is_on(settings, "NHC_EPILOG_WHY") or not job.isdigit() or not uid.isdigit() or uid == "0":
        return
    if watch_only(settings):
        log.info(f"{node}: job {job}: watch only: otherwise its output would say why it ended")
        return
    try:
        user = ["setpriv", "--reuid", uid, "--regid", _group(uid, environ), "--init-groups", "--no-new-privs"]
    except KeyError:
        log.warn(f"{node}: job {job}: why it ended could not be told: this node knows no user {uid}")
        return
    argv = [*user, sys.executable, "-m", "nhc", "job", "why", "--append", "--first-node", node, "--timeout", "10"]
    kept = {name: environ[name] for name in ("SLURM_CONF", "PYTHONPATH") if name in environ}
    kept["PATH"] = process.PATH
    if settings.get("NHC_RM_PATH"):
        kept["NHC_RM_PATH"] = settings["NHC_RM_PATH"]
    lines = _kernel_lines()
    if lines is not None:  # the user may not be allowed to read it
        argv += ["--kernel-log", f"{node}=-"]
    try:
        done = process.run([*argv, job], timeout=LIMIT, env=kept, stdin=lines or "")
    except OSError as error:
        log.warn(f"{node}: job {job}: why it ended could not be told: {error.strerror}")
        return
    if done.status or done.timed_out:
        complaint = printable(done.stderr.strip().rpartition("\n")[2], 300) or f"exit status {done.status}"
        log.warn(f"{node}: job {job}: why it ended could not be told: {complaint}")


def _kernel_lines() -> Optional[str]:
    """The newest lines of this node's kernel log that the catalogue knows, None where it cannot be read."""
    from nhc.node.kernlog.catalogue import Matcher

    try:
        done = process.run(["dmesg", "--time-format", "iso"], timeout=5.0, env={"PATH": process.PATH, "LC_ALL": "C"})
    except OSError:
        return None
    if done.status or done.timed_out:
        return None
    lines = [done.stdout[start:end] for start, end, _numbers in Matcher().candidates(done.stdout)]
    return "\n".join(lines[-KERNEL_LINES:])[-KERNEL_BYTES:].encode("ascii", "replace").decode()


def _group(uid: str, environ: Mapping[str, str]) -> str:
    """The user's group: Slurm names it from 22.05 on, else the user's own. Raises KeyError for an unknown user."""
    gid = environ.get("SLURM_JOB_GID", "")
    if gid.isdigit():
        return gid
    import pwd

    return str(pwd.getpwuid(int(uid)).pw_gid)
