"""After a job: act on what its checks found and on what the job left behind.

    NHC_EPILOG_FIND   what to look for: processes, gpu, shm, tmp (default: all four)
    NHC_EPILOG_CLEAN  what of it to clean up (default: nothing)
    NHC_EPILOG_DRAIN  what of it drains the node even uncleaned (default: nothing)
    NHC_EPILOG_TMP    directories to look for files in (default: /tmp)
    NHC_EPILOG_LOGINS 1: what the user's login on this node may hold counts as well (default: 0)
    NHC_EPILOG_GPU_MB MiB of GPU memory that may be in use after a job (default: 1024)
    NHC_EPILOG_WHY    1: write into a failed job's output why it ended (default: 0)

Leftovers that were to be cleaned but could not be (a process that cannot be killed) drain the node. Other leftovers are
logged.
"""

from __future__ import annotations

import sys
import time

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, Outcome, Report, Verdict, crit, printable, warn
from nhc.core.resource_manager import LEFTOVER_KINDS, PROCESSES
from nhc.core.state.store import State
from nhc.core.system import process
from nhc.hooks import log
from nhc.hooks.job_environment import is_on, job_devices, watch_only
from nhc.hooks.leftovers import Leftover, find
from nhc.marks.ports.adapter import AdapterError, Effect, OtherJobs
from nhc.marks.ports.marks import mark_of

if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Sequence, Tuple


# NHC_EPILOG_WHY=1: the epilog writes into a failed job's own output why it ended (nhc job why).
#
# It runs as the job's user, so that it can write only to that user's files, and only on the job's first node. An error
# here never keeps the node from the next job.


LIMIT = 20.0
"""Seconds: slurmd waits for the epilog before the node takes work again."""
KERNEL_LINES, KERNEL_BYTES = 200, 48 << 10
"""Bytes of the kernel log that are handed over, the newest: less than a pipe holds."""


def append_why_job_ended(node: str, environ: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Append the three lines, if the site asks for it."""
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
    """The newest lines of this node's kernel log that the catalogue knows, None if it cannot be read."""
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


SYSTEM_UIDS = 999
"""The highest uid of system accounts, if the configuration does not set MAX_SYS_UID."""


def epilog(
    report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State, host: Optional[Host] = None
) -> int:
    """Returns 0; UNHEALTHY if the node must be drained and could not be, so that Slurm does it."""
    host = host or Host(settings=settings)
    begun = time.monotonic()
    outcomes = after_job(report.host, environ, settings, host)
    append_why_job_ended(report.host, environ, settings)
    elapsed = time.monotonic() - begun
    results = tuple(CheckResult("leftovers", outcome, elapsed, tags=("job",)) for outcome in outcomes)
    report = report._replace(results=report.results + results)
    for outcome in outcomes:
        log.warn(f"{report.host}: job {environ.get('SLURM_JOB_ID', '?')}: {outcome.message}")
    mark = mark_of(report)
    if mark is None:
        return 0
    from nhc.hooks.healthcheck import mark_here
    from nhc.hooks.marking import scheduler
    from nhc.hooks.outcome import UNHEALTHY

    adapter = scheduler(environ, settings)
    if adapter is None:
        return 0
    done = mark_here(adapter, report, mark, settings, state)
    return UNHEALTHY if done.effect is Effect.FAILED and not watch_only(settings) else 0


def after_job(node: str, environ: Mapping[str, str], settings: Mapping[str, str], host: Host) -> List[Outcome]:
    """Find what the job left, clean what is to be cleaned; one outcome for each kind of leftover."""
    uid, job = environ.get("SLURM_JOB_UID", ""), environ.get("SLURM_JOB_ID", "")
    if not uid.isdigit() or not job or int(uid) <= _system_uids(settings):
        return []
    wanted = _kinds(settings, "NHC_EPILOG_FIND", LEFTOVER_KINDS)
    to_clean = _kinds(settings, "NHC_EPILOG_CLEAN", ())
    watching = watch_only(settings)
    to_drain = _kinds(settings, "NHC_EPILOG_DRAIN", ())
    directories = settings.get("NHC_EPILOG_TMP", "/tmp").split()  # noqa: S108 (where users leave files)
    most = _number(settings.get("NHC_EPILOG_GPU_MB", ""), 1024.0)
    leftovers = find(host, (*wanted, *to_clean, *to_drain), int(uid), job, job_devices(environ), directories, most)
    if not is_on(settings, "NHC_EPILOG_LOGINS") and any(left.login for left in leftovers):
        leftovers = [left for left in leftovers if left.sure or (left.kind == PROCESSES and not left.login)]
    if any(not left.sure for left in leftovers) and _has_other_jobs(node, environ, settings):
        leftovers = [left for left in leftovers if left.sure]
    return [
        outcome
        for kind in LEFTOVER_KINDS
        for outcome in _judge(host, kind, leftovers, kind in to_clean, kind in to_drain, watching)
    ]


def _judge(
    host: Host, kind: str, leftovers: Sequence[Leftover], clean: bool, drain: bool, watching: bool
) -> Tuple[Outcome, ...]:
    some = [left for left in leftovers if left.kind == kind]
    if not some:
        return ()
    evidence = tuple(left.what for left in some[:50])
    if clean and watching:
        message = f"left by the job: {_show(some)} (watch only: otherwise it would be cleaned up)"
        return (warn("LeftoversFound", message, target=kind, evidence=evidence),)
    if clean:
        from nhc.hooks.leftovers import clean as clean_up

        rest = clean_up(host, some)
        if not rest:
            return (Outcome(Verdict.OK, "", f"cleaned up after the job: {_show(some)}", kind, evidence=evidence),)
        message = f"left by the job and not to be removed: {_show(rest)}"
        return (crit("LeftoversRemain", message, target=kind, evidence=evidence),)
    message = f"left by the job: {_show(some)}"
    return ((crit if drain else warn)("LeftoversFound", message, target=kind, evidence=evidence),)


def _show(some: Sequence[Leftover]) -> str:
    more = f" and {len(some) - 3} more" if len(some) > 3 else ""
    return ", ".join(left.what for left in some[:3]) + more


def _has_other_jobs(node: str, environ: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Whether the user has another job here. If that is unknown, yes: nothing of another job may be touched."""
    from nhc.hooks.marking import scheduler

    adapter = scheduler(environ, settings)
    user, job = environ.get("SLURM_JOB_USER") or environ.get("SLURM_JOB_UID", ""), environ.get("SLURM_JOB_ID", "")
    if adapter is None or not isinstance(adapter, OtherJobs):
        return True
    try:
        return bool(adapter.other_jobs(node, user, job))
    except AdapterError as error:
        log.info(f"leftovers that may be another job's stay: {error}")
        return True


def _kinds(settings: Mapping[str, str], name: str, default: Sequence[str]) -> Tuple[str, ...]:
    if name not in settings:
        return tuple(default)
    kinds = settings[name].replace(",", " ").split()
    for kind in kinds:
        if kind not in LEFTOVER_KINDS:
            log.error(f"{name}: {kind!r} is not one of {', '.join(LEFTOVER_KINDS)}")
    return tuple(kind for kind in kinds if kind in LEFTOVER_KINDS)


def _system_uids(settings: Mapping[str, str]) -> int:
    return int(_number(settings.get("MAX_SYS_UID", ""), SYSTEM_UIDS))


def _number(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
