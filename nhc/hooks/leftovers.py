"""What a job leaves behind on a node: processes, GPU memory, shared memory, files in /tmp.

A process that has the job's SLURM_JOB_ID in its environment is the job's; one that has another job's is not. Everything
else that belongs to the user (processes without it, shared memory, files) counts only if the user has no other job on
the machine; the resource manager is asked for that only if something was found. System users are never examined, and
what a login may hold (its shell, an editor, its file in /tmp) counts only if the site says so (NHC_EPILOG_LOGINS).
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import time

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.resource_manager import GPU, PROCESSES, SHM, TMP
from nhc.core.system.process_identity import parse_stat
from nhc.hooks import log

if TYPE_CHECKING:
    from typing import Callable, Iterable, List, Optional, Sequence, Set


SESSION = frozenset({"systemd", "(sd-pam)", "sshd", "sshd-session", "dbus-daemon"})
"""A login session's own processes: they end with the session, and nhc does not judge a login without a job."""
LOGINS = SESSION | {"login"}
"""Ancestors of a login's processes. On a machine with systemd their control group shows it as well."""
STARTS_JOBS = ("slurm", "pbs", "trqauthd", "lsf", "sge", "gridengine", "flux", "condor", "munge", "sshd", "ssh")
"""How the names of the units begin of schedulers' daemons, in whose control group jobs may stay
(ProctrackType=linuxproc), and of daemons that start MPI ranks.
"""
GENERATIONS = 64
"""Parents that are examined; more than a shell in a shell in a session has."""
PROOF_WAIT = 5.0
"""Seconds for nhc's own proof of a GPU (check_gpu_proof_beside) to end: it takes one or two."""


class Leftover(NamedTuple):
    """One thing left. `name` identifies it for the clean-up: a pid, a path, a segment's number, a GPU's index.

    `sure` says that it is the job's; else it is only the user's. `mark` tells a process from a later one of
    the same pid (its start time). `login` says that it is a process of a login session, not of a job.
    """

    kind: str
    name: str
    what: str
    sure: bool = False
    mark: str = ""
    login: bool = False


def processes(host: Host, uid: int, job: str) -> List[Leftover]:
    """The user's processes that belong to this job or to no job."""
    each = (process(host, pid, uid, job) for pid in host.listdir("/proc") if pid.isdigit())
    return sorted(filter(None, each), key=lambda left: int(left.name))


def process(host: Host, pid: str, uid: int, job: str) -> Optional[Leftover]:
    """One process as a leftover, None if it is gone or is not one."""
    try:
        if host.stat(f"/proc/{pid}").uid != uid:
            return None
        stat = parse_stat(host.read(f"/proc/{pid}/stat"))
        its_job = parse_environ(host.read_bytes(f"/proc/{pid}/environ")) if stat.state != "Z" else ""
    except (OSError, ValueError):
        return None  # it has just ended
    if stat.state in "ZX" or (its_job and its_job != job) or (not its_job and stat.name in SESSION):
        return None
    login = _of_login(host, pid, stat.parent, uid, bool(its_job))
    state_text = " (uninterruptible)" if stat.state == "D" else ""
    what = f"process {pid} ({stat.name}){state_text}"
    return Leftover(PROCESSES, pid, what, its_job == job and not login, str(stat.started), login)


def _of_login(host: Host, pid: str, parent: int, uid: int, has_job: bool) -> bool:
    """Whether a process belongs to a login session, or to a service: it descends from one, or is in its control group.

    A process with a job in its environment is the job's, unless it descends from salloc, whose shell has the job's
    variables.
    """
    for _generation in range(GENERATIONS):
        if parent <= 1:
            break
        try:
            stat = parse_stat(host.read(f"/proc/{parent}/stat"))
        except (OSError, ValueError):
            break
        if stat.name in ("slurmd", "slurmstepd"):  # a job's, even if slurmd was started from a login
            return False
        if stat.name == "salloc" or (stat.name in LOGINS and not has_job):
            return True
        parent = stat.parent
    groups = "" if has_job else host.read_or(f"/proc/{pid}/cgroup")
    return f"/user-{uid}.slice/" in groups or _of_a_service(groups)


def _of_a_service(groups: str) -> bool:
    """Whether control groups belong to a system service in which no scheduler starts jobs: its own program that runs as
    the user, or what cron and at start for the user.
    """
    units = [part for line in groups.splitlines() for part in line.split("/") if part.endswith(".service")]
    return "/system.slice/" in groups and bool(units) and not any(unit.startswith(STARTS_JOBS) for unit in units)


def parse_environ(data: bytes) -> str:
    """SLURM_JOB_ID in a /proc/PID/environ, "" without one."""
    values = (variable[13:] for variable in data.split(b"\0") if variable.startswith(b"SLURM_JOB_ID="))
    return next(values, b"").decode(errors="replace")


def shared_memory(host: Host, uid: int) -> List[Leftover]:
    """The user's files in /dev/shm and System V segments that no process is attached to."""
    leftovers = [left._replace(kind=SHM) for left in files(host, "/dev/shm", uid)]  # noqa: S108 (that is the place)
    try:
        leftovers += parse_sysvipc(host.read("/proc/sysvipc/shm"), uid)
    except OSError:
        pass  # a kernel without System V shared memory
    return leftovers


def parse_sysvipc(text: str, uid: int) -> List[Leftover]:
    """Segments of /proc/sysvipc/shm that are the user's and attached nowhere."""
    heads, *lines = [line.split() for line in text.splitlines()] or [[]]
    rows = [dict(zip(heads, fields)) for fields in lines]
    return [
        Leftover(SHM, f"sysv:{row['shmid']}", f"shared memory segment {row['shmid']} ({row['size']} B)")
        for row in rows
        if row.get("uid") == str(uid) and row.get("nattch") == "0" and row.get("shmid", "").isdigit()
    ]


def files(host: Host, directory: str, uid: int) -> List[Leftover]:
    """The user's entries directly in a directory, links not followed."""
    leftovers = []
    try:
        names = host.listdir(directory)
    except OSError:
        return []
    for name in names:
        path = f"{directory}/{name}"
        try:
            seen = host.stat(path, follow=False)
        except OSError:
            continue
        if seen.uid == uid and not stat.S_ISSOCK(seen.mode):
            leftovers.append(Leftover(TMP, path, path, mark=f"{seen.dev}:{seen.ino}"))
    return leftovers


def gpu_memory(host: Host, devices: Optional[str], most: float) -> List[Leftover]:
    """The job's GPUs that still hold more than `most` MiB after the job's end although no process uses them.

    Only if the job's own GPUs are known: memory on another GPU may belong to another job.
    """
    if not devices or host.which("nvidia-smi") is None:
        return []
    argv = ("nvidia-smi", "-i", devices, "--query-gpu=index,memory.used", "--format=csv,noheader,nounits")

    def ask() -> List[Leftover]:
        done = host.run(argv, timeout=10.0)
        return parse_gpu_memory(done.stdout, most) if done.status == 0 else []

    leftovers = ask()
    if leftovers and not _proofs_ended(host):
        log.info(f"GPU memory in use after the job is not judged: nhc's own proof of a GPU takes over {PROOF_WAIT:g} s")
        return []
    return leftovers and ask()  # a proof uses more than the bound, and may have just ended


def _proofs_ended(host: Host) -> bool:
    """Whether nhc's own proofs of GPUs end within PROOF_WAIT seconds from now."""
    from nhc.node.gpu_proof.running import is_proof, proofs

    ends, running = time.monotonic() + PROOF_WAIT, proofs(host)
    while running and time.monotonic() < ends:
        time.sleep(0.1)
        running = [pid for pid in running if is_proof(host, pid)]
    return not running


def parse_gpu_memory(text: str, most: float) -> List[Leftover]:
    """Lines of `index, MiB` above a bound. A value that is not a number (`[N/A]`, MIG's parents) is ignored."""
    leftovers = []
    for line in text.splitlines():
        index, _comma, used = (part.strip() for part in line.partition(","))
        try:
            above = float(used) > most
        except ValueError:
            continue
        if above:
            leftovers.append(Leftover(GPU, index, f"{used} MiB of GPU {index} in use", sure=True))
    return leftovers


def find(
    host: Host,
    kinds: Sequence[str],
    uid: int,
    job: str,
    devices: Optional[str],
    directories: Sequence[str],
    most: float,
) -> List[Leftover]:
    """All leftovers of these kinds, sure or not, and in any case the processes of the user's logins."""
    running = processes(host, uid, job) if {PROCESSES, SHM, TMP}.intersection(kinds) else []
    leftovers = [left for left in running if left.login or PROCESSES in kinds]
    if SHM in kinds:
        leftovers += shared_memory(host, uid)
    if TMP in kinds:
        for directory in directories:
            leftovers += files(host, directory, uid)
    if GPU in kinds:
        leftovers += gpu_memory(host, devices, most)
    return leftovers


# Clean up after a job, as root, in places where the user could try to exploit a mistake.
#
# A process is signalled only while it is the one that was found (its start time shows that). A tree is removed
# without following a link in it and without leaving its file system.


GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL, and again so many until a killed process must be gone."""
TREE_TIMEOUT = 15.0
"""Seconds for one tree: one that takes longer (millions of files, a user who creates more) stays and is logged."""


def clean(host: Host, leftovers: Iterable[Leftover], grace: float = GRACE) -> List[Leftover]:
    """Remove these; returns what is still there afterwards."""
    todo = list(leftovers)
    running = [left for left in todo if left.kind == PROCESSES]
    rest: List[Leftover] = end_processes(host, running, grace) if running else []
    for left in todo:
        if left.kind == PROCESSES:
            continue
        try:
            if left.kind == GPU:
                gone = host.run(("nvidia-smi", "--gpu-reset", "-i", left.name), timeout=20.0).status == 0
            elif left.name.startswith("sysv:"):
                gone = host.run(("ipcrm", "-m", left.name[5:]), timeout=5.0).status == 0
            else:
                gone = remove(host.path(left.name), left.mark)
        except OSError:
            gone = False
        if not gone:
            rest.append(left)
    return rest


def end_processes(
    host: Host, running: List[Leftover], grace: float, send: Callable[[int, int], None] = os.kill
) -> List[Leftover]:
    """SIGTERM, a grace period, SIGKILL; returns the processes that neither ended."""
    left = running
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if _alive(host, process):
                try:
                    send(int(process.name), number)
                except OSError:
                    pass  # it has just ended
        deadline = time.monotonic() + grace
        while True:
            left = [process for process in left if _alive(host, process)]
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        if not left:
            break
    return left


def _alive(host: Host, left: Leftover) -> bool:
    try:
        stat = parse_stat(host.read(f"/proc/{left.name}/stat"))
    except (OSError, ValueError):
        return False
    return str(stat.started) == left.mark and stat.state not in "ZX"


def remove(path: str, mark: str) -> bool:
    """Remove a file or a tree that is still the one found (`device:inode`); False if something of it is left."""
    directory, name = os.path.split(path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if f"{seen.st_dev}:{seen.st_ino}" != mark:
            return False
        return _remove_at(parent, name, seen.st_dev)
    except FileNotFoundError:
        return True
    finally:
        os.close(parent)


def _remove_at(parent: int, name: str, device: int) -> bool:
    """Remove one entry of an open directory. O_NOFOLLOW at every step: a directory swapped for a link is refused.

    Directories are flattened one level at a time, by moving their contents up: even if a user nests them deeply,
    neither the stack nor the descriptors run out.
    """
    seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if seen.st_dev != device:
        return False  # a mount point: not the job's file system
    if not stat.S_ISDIR(seen.st_mode):
        os.unlink(name, dir_fd=parent)
        return True
    ends = time.monotonic() + TREE_TIMEOUT
    staying: Set[str] = set()
    top = _enter(parent, name, seen)
    try:
        while time.monotonic() < ends:
            names = [entry for entry in os.listdir(top) if entry not in staying]
            if not names:
                break
            staying.update(entry for entry in names if not _dissolve(top, entry, device, ends))
    finally:
        os.close(top)
    if not staying:
        os.rmdir(name, dir_fd=parent)
    return not staying


def _dissolve(top: int, name: str, device: int, ends: float) -> bool:
    """Remove an entry of `top`; the directories in it move up into `top`. False if it stays."""
    try:
        seen = os.stat(name, dir_fd=top, follow_symlinks=False)
        if seen.st_dev != device or time.monotonic() > ends:
            return False
        if not stat.S_ISDIR(seen.st_mode):
            os.unlink(name, dir_fd=top)
            return True
        opened = _enter(top, name, seen)
        try:
            for entry in os.listdir(opened):
                inner = os.stat(entry, dir_fd=opened, follow_symlinks=False)
                if inner.st_dev != device:
                    return False
                if stat.S_ISDIR(inner.st_mode):
                    os.rename(entry, f".nhc-{os.urandom(8).hex()}", src_dir_fd=opened, dst_dir_fd=top)
                else:
                    os.unlink(entry, dir_fd=opened)
        finally:
            os.close(opened)
        os.rmdir(name, dir_fd=top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _enter(parent: int, name: str, seen: os.stat_result) -> int:
    """Open exactly the directory that was found. Raises OSError."""
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    if os.fstat(opened).st_ino != seen.st_ino:
        os.close(opened)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)
    return opened
