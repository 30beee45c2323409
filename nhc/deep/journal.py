"""Records what a run must put back, on disk before it is changed: if a run is killed, the next one cleans up.

One JSON file, replaced as a whole and synced. It names the run, its process, its scratch folder, the services it has
stopped and how the GPUs were set. A lock on its folder keeps a second run out.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from typing import List, NamedTuple, Optional, Tuple

from nhc.core.host import Host
from nhc.core.system import written_files
from nhc.core.system.bounded_read import parse_json, read_bytes
from nhc.core.system.process_identity import KnownProcess, identify, is_alive, read_stat, signal_process
from nhc.deep import gpu_settings
from nhc.deep.gpu_settings import GpuSettings
from nhc.node.checks.deep import RUN
from nhc.node.facts import systemd

# Processes that a run has started and that are still there: known by a variable in their environment.
#
# Every tool of a run has NHC_DEEP_RUN=ID. So processes are found that have left their process group or session, or
# whose parent is gone, also those of an earlier run that was killed.


GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL: dcgmi needs up to 25 to stop its diagnostic."""
LARGEST = 16 << 20
"""Bytes of a process's environment: more than the kernel lets anybody pass on."""
KILLED = 5.0
"""Seconds that a killed process gets to disappear."""


def marked(run: str) -> List[KnownProcess]:
    """The processes of a run that are there now, without this process and its ancestors."""
    mark = f"{RUN}={run}".encode()
    own = _ancestors()
    processes: List[KnownProcess] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in own:
            continue
        try:
            if mark not in read_bytes(f"/proc/{name}/environ", LARGEST).split(b"\0"):
                continue
        except OSError:
            continue
        process = identify(int(name))
        if process is not None:
            processes.append(process)
    return processes


def _ancestors() -> List[int]:
    pids: List[int] = []
    pid = os.getpid()
    while pid > 1 and pid not in pids:
        pids.append(pid)
        process = read_stat(pid)
        pid = process.parent if process else 0
    return pids


def end(run: str, grace: float = GRACE) -> List[str]:
    """End all processes of a run in an orderly way: SIGTERM, time, SIGKILL. What could not be ended, a line each."""
    left = marked(run)
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED)):
        for process in left:
            try:
                signal_process(process.pid, process.start, number)
            except OSError:
                continue
        until = time.monotonic() + timeout
        while left and time.monotonic() < until:
            _reap()
            left = [process for process in left if is_alive(process)]
            if left:
                time.sleep(0.02)
        left = marked(run)  # what they have started meanwhile
        if not left:
            return []
    return [f"process {process.pid} does not end" for process in left]


def _reap() -> None:
    """Reap children that have ended: after a run this process may be the parent of what tools left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


DIRECTORY = "/var/lib/nhc/deep"
NAME = "journal.json"
SERVICE_TIMEOUT = 90.0
"""Seconds for systemctl to start or stop a service: systemd's own default."""


class JournalError(Exception):
    """The journal cannot be used: one line."""


class RestoreJournal(NamedTuple):
    """What is to be put back. `stopped` are services that ran before; `path` is where the run looked for commands."""

    run: str
    boot: str
    suite: str
    began: float
    scratch: str
    stopped: Tuple[str, ...] = ()
    gpus: Tuple[GpuSettings, ...] = ()
    path: str = ""


def directory() -> str:
    """`$NHC_DEEP_DIR`, else /var/lib/nhc/deep for root, else a folder beside the user's state."""
    named = os.environ.get("NHC_DEEP_DIR")
    if named:
        return named
    if os.geteuid() == 0:
        return DIRECTORY
    from nhc.core.state.store import default_directory

    return f"{default_directory()}/deep"


def lock(where: str) -> int:
    """Take the lock of the one run of this node; its descriptor. Raises JournalError where another holds it."""
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        fd = os.open(f"{where}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(f"{where}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        who = os.read(fd, 64).decode(errors="replace").strip()
        os.close(fd)
        raise JournalError(f"another nhc deep run is under way{f' (pid {who})' if who else ''}") from None
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError:  # a full disk: the lock holds all the same
        pass
    return fd


def write(where: str, journal: RestoreJournal) -> None:
    """Write the journal so that it survives a crash. Raises JournalError."""
    value = {**journal._asdict(), "gpus": [gpu._asdict() for gpu in journal.gpus]}
    path = f"{where}/{NAME}"
    try:
        written_files.write_whole(path, (json.dumps(value) + "\n").encode(), 0o600, durable=True)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}: nothing was started, as it could not be put back") from None


def read(where: str) -> Optional[RestoreJournal]:
    """The journal of a run that did not end, None where there is none. Raises JournalError for one that is damaged."""
    path = f"{where}/{NAME}"
    try:
        value = parse_json(read_bytes(path, 16 << 20))
        return RestoreJournal(
            str(value["run"]), str(value["boot"]), str(value["suite"]), float(value["began"]), str(value["scratch"]),
            tuple(str(name) for name in value["stopped"]),
            tuple(GpuSettings(**{key: str(text) for key, text in gpu.items()}) for gpu in value["gpus"]),
            str(value["path"]),
        )  # fmt: skip
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path} is damaged ({error}): look what it wants put back, then remove it") from None


def is_active(host: Host, name: str) -> bool:
    """Whether a service runs. Raises OSError where there is no systemctl."""
    return host.run(["systemctl", "is-active", "--quiet", "--", name], 30.0).status == 0


def restore(host: Host, where: str, journal: RestoreJournal) -> Tuple[List[str], List[str]]:
    """Put everything back, and remove the journal where all of it could be: what was done, and what could not be.

    After a reboot there are no processes left, and GPUs and services are as the boot has made them.
    """
    host = host.with_settings({**host.settings, "PATH": journal.path}) if journal.path else host
    done: List[str] = []
    failed: List[str] = []
    if journal.boot == host.boot_id():
        before = len(marked(journal.run))
        if before:
            failed += end(journal.run)
            done.append(f"{before} process{'es' * (before != 1)} ended")
        put, not_put = gpu_settings.put_back(host, journal.gpus)
        done += put
        failed += not_put
        for name in journal.stopped:
            why = systemd.control(host, SERVICE_TIMEOUT, "start", "--", name)
            (failed if why else done).append(f"{name} cannot be started: {why}" if why else f"{name} started")
    if journal.scratch and os.path.isdir(journal.scratch) and not os.path.islink(journal.scratch):
        shutil.rmtree(journal.scratch, ignore_errors=True)
        if os.path.isdir(journal.scratch):
            failed.append(f"{journal.scratch} cannot be removed")
    if not failed:
        try:
            os.unlink(f"{where}/{NAME}")
        except FileNotFoundError:
            pass
        except OSError as error:
            failed.append(f"{where}/{NAME}: {error.strerror}")
    return done, failed
