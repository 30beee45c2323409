"""Run one command under a deadline that holds, even when the command cannot be killed.

This is the only place where the node side starts a command. `subprocess.run(timeout=...)` is not
used: it waits for the child after killing it, so it never returns when the child is in
uninterruptible sleep, and importing it costs more than the rest of a small run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 3 ms with all that they need
import errno
import os
import select
import sys
import time

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional, Sequence, Tuple

    from typing_extensions import TypeAlias

NOTHING_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""No descriptor or no memory is left: the same may be had a moment later."""

PATH = "/sbin:/usr/sbin:/bin:/usr/bin:/usr/local/sbin:/usr/local/bin"
"""Where commands are looked for: LBNL NHC's fixed path, then /usr/local, never the caller's own."""


def extended(path: str) -> str:
    """A configuration's PATH, which may name everything or only what it adds, and after it ours."""
    return f"{path}:{PATH}" if path and path != PATH else PATH


def added(path: str) -> List[str]:
    """The directories that a configuration's PATH adds to ours."""
    known = PATH.split(":")
    return [directory for directory in path.split(":") if directory and directory not in known]


OUTPUT_LIMIT = 16 << 20
"""Bytes kept of each stream; the rest is read and dropped, so that the command never blocks on us."""

STDIN_LIMIT = 64 << 10
"""Bytes that can be handed to a command: a pipe's capacity, so that writing cannot block."""

grace = 0.1
"""Seconds between SIGTERM and SIGKILL. A worker of deep checks sets more: `dcgmi diag` needs up to 25 s to stop what it
has started in its host engine, which SIGKILL would leave running."""

LOOK = 1.0
"""Seconds between two looks at what a command does to the node, where its caller asks for that."""

GRACE = grace
"""What most runs have."""


class Completed(NamedTuple):
    """How a command ended. `status` is its exit status, 128 + N when signal N ended it, as in a shell.

    `signal` is N then, and 0 where it ended by itself: no status tells the two apart (`exit -1` is status 255).
    With `timed_out` the command outlived its deadline and was killed; `stdout` and `stderr` hold what
    it had written. Text is UTF-8 with undecodable bytes replaced.
    """

    status: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    signal: int = 0

    @property
    def output(self) -> str:
        """All that it wrote, its complaints last."""
        return "\n".join(filter(None, (self.stdout.rstrip("\n"), self.stderr)))

    @property
    def complaint(self) -> str:
        """What it says went wrong, in one line; its status where it says nothing."""
        return " ".join((self.stderr.strip() or self.stdout).split())[:200] or f"status {self.status}"

    def tail(self, count: int) -> Tuple[str, ...]:
        """The last lines of what it wrote, blank ones left out."""
        return tuple([line for line in self.output.splitlines() if line.strip()][-count:])


Watcher: TypeAlias = "Callable[[str, int], None]"
"""Called with `("started", pid)`, then `("ended", pid)` or `("abandoned", pid)`.

The watchdog kills groups that a killed worker leaves behind, and remembers what could not be killed.
"""

Look: TypeAlias = "Callable[[], None]"
"""Called while a command runs."""

lifeline = -1
"""In a worker, the pipe to its supervisor. When that has no reader, nobody waits for the command any more."""


def hold_lifeline(fd: int) -> None:
    """Make this process a worker with that pipe to its supervisor: commands end when the pipe has no reader left."""
    global lifeline  # noqa: PLW0603 (one a process, as its commands are)
    lifeline = fd


_abandoned: List[int] = []  # killed but not yet dead (D state): reaped by a later call


def give_time_to_end(seconds: float) -> None:
    """From now on each command of this process that has to end gets so many seconds between SIGTERM and SIGKILL."""
    global grace  # noqa: PLW0603 (one process, one worker)
    grace = seconds


def find(command: str, path: str = PATH) -> Optional[str]:
    """The executable that `command` names, looked up in `path` unless it holds a slash; None if there is none."""
    if "/" in command:
        return command if os.access(command, os.X_OK) and not os.path.isdir(command) else None
    for directory in path.split(":"):
        candidate = f"{directory}/{command}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str],
    stdin: str = "",
    watch: Optional[Watcher] = None,
    during: Optional[Look] = None,
) -> Completed:
    """Run `argv` (never through a shell) and return within `timeout` seconds plus a fifth of one.

    Past the deadline the command's whole process group gets SIGTERM, then SIGKILL; one that survives
    even that is abandoned. A child that outlives the command and holds its output open is not waited for.
    `during` is called every second while it runs, to look at what it does to the node; it must not raise.
    Raises FileNotFoundError when there is no such executable, OSError when it cannot be started,
    ValueError when `stdin` is longer than a pipe holds.
    """
    executable = find(argv[0], env.get("PATH", PATH))
    if executable is None:
        raise FileNotFoundError(2, "no such command", argv[0])
    given = stdin.encode()
    if len(given) > STDIN_LIMIT:
        raise ValueError(f"{len(given)} bytes of input for {argv[0]}: at most {STDIN_LIMIT} fit")
    _reap_abandoned()
    deadline = time.monotonic() + timeout
    (out_read, out_write), (err_read, err_write), (in_read, in_write) = _streams(bool(given))
    try:
        if given:
            os.write(in_write, given)
        pid = os.posix_spawn(
            executable,
            list(argv),
            dict(env),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, in_read, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_DUP2, err_write, 2),
            ],
            setpgroup=0,
            setsigmask=(),
            # Python ignores these two, and an ignored signal is inherited.
            setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),
        )
    except BaseException:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(in_read)
        os.close(out_write)
        os.close(err_write)
        if given:
            os.close(in_write)
    if watch:
        try:
            watch("started", pid)
        except OSError:
            orphaned(pid)
    try:
        return _collect(pid, out_read, err_read, deadline, during)
    finally:
        os.close(out_read)
        os.close(err_read)
        if watch:
            watch("abandoned" if pid in _abandoned else "ended", pid)


def could_not_fork(lines: Sequence[str]) -> str:
    """The line by which a shell says that the node has no process or memory left for what it was to run, "" for none.

    Such a command says nothing of what it was to judge. bash: `fork: retry: Resource temporarily unavailable`; dash:
    `sh: 1: Cannot fork`.
    """
    for line in reversed(lines):
        if "fork: " in line and ("Resource temporarily unavailable" in line or "Cannot allocate memory" in line):
            return line.strip()
        if line.endswith(": Cannot fork"):
            return line.strip()
    return ""


def _streams(given: bool) -> Tuple[Tuple[int, int], ...]:
    """Both ends of a command's output and complaints, and its input's: a pipe if it is `given` any. Raises OSError."""
    made: List[Tuple[int, int]] = []
    try:
        made += [os.pipe()]
        made += [os.pipe()]
        made += [os.pipe() if given else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)]
    except OSError:
        for ends in made:
            for fd in ends:
                os.close(fd)
        raise
    return tuple(made)


def _collect(pid: int, out_read: int, err_read: int, deadline: float, during: Optional[Look]) -> Completed:
    """Read both streams until the process ends or the deadline passes."""
    kept = {out_read: bytearray(), err_read: bytearray()}
    poll = select.poll()
    for stream in kept:
        os.set_blocking(stream, False)
        poll.register(stream, select.POLLIN)
    if lifeline >= 0:
        poll.register(lifeline, 0)
    open_streams = set(kept)
    ending = pidfd(pid)
    if ending >= 0:
        poll.register(ending, select.POLLIN)
    end: Optional[ProcessEnd] = None
    looks = _Looks(during)
    killed = 0  # signals sent so far: 1 is SIGTERM, 2 SIGKILL
    try:
        while end is None:
            left = deadline - time.monotonic()
            if left <= 0:
                if killed == 2:
                    _abandoned.append(pid)
                    break
                _end(pid, hard=bool(killed))
                killed += 1
                deadline = time.monotonic() + (grace if killed == 1 else max(GRACE, grace / 10) / 2)
                continue
            # Without a pidfd (Linux before 5.3) the end shows as both streams closing, or within 10 ms.
            wait = min(left, 3600.0) if ending >= 0 else min(left, 0.01)  # poll(2) takes 24 days, in milliseconds
            for fd, _event in poll.poll(max(1, int(looks.wait(wait) * 1000 + 0.999))):
                if fd == lifeline:
                    orphaned(pid)
                if fd in open_streams and not _drain(fd, kept[fd]):
                    open_streams.discard(fd)
                    poll.unregister(fd)
            end = process_end(pid)
            looks.take(killed)
        for stream in open_streams:
            _drain(stream, kept[stream])
    finally:
        if ending >= 0:
            os.close(ending)
    if end is not None and (killed or grace > GRACE):
        signal_group(pid, _signal.SIGKILL)  # the leader is gone; its children may have ignored SIGTERM, or its end
        if killed:
            _reap_group(pid)
    return Completed(
        status=124 if end is None else end.status,
        stdout=kept[out_read].decode(errors="replace"),
        stderr=kept[err_read].decode(errors="replace"),
        timed_out=killed > 0,
        signal=0 if end is None else end.signal,
    )


class _Looks:
    """When the next look is due at what a command does."""

    def __init__(self, look: Optional[Look]) -> None:
        self.look = look
        self.due = time.monotonic() + LOOK if look else 0.0

    def wait(self, most: float) -> float:
        """Seconds to wait for the command at a time."""
        return min(most, max(self.due - time.monotonic(), 0.0)) if self.look else most

    def take(self, killed: int) -> None:
        """Look, if it is time and the command has not been signalled."""
        if self.look and not killed and time.monotonic() >= self.due:
            self.look()
            self.due = time.monotonic() + LOOK


def _drain(fd: int, kept: bytearray) -> bool:
    """Read what is there; False at the end of the stream."""
    while True:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        if len(kept) < OUTPUT_LIMIT:
            kept += data[: OUTPUT_LIMIT - len(kept)]


def pidfd(pid: int) -> int:
    """A descriptor that becomes readable when `pid` ends, -1 where the kernel or Python has none."""
    opener: Optional[Callable[[int], int]] = getattr(os, "pidfd_open", None)
    try:
        return opener(pid) if opener else -1
    except OSError:
        return -1


class ProcessEnd(NamedTuple):
    """How a child ended, by wait(2): as in `Completed`."""

    status: int
    signal: int = 0


def process_end(pid: int) -> Optional[ProcessEnd]:
    """How a child ended, once it has; None before."""
    try:
        done, raw = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # the caller ignores SIGCHLD: the kernel reaped it, its status is lost
        return ProcessEnd(127)
    if not done:
        return None
    if os.WIFSIGNALED(raw):
        return ProcessEnd(128 + os.WTERMSIG(raw), os.WTERMSIG(raw))
    return ProcessEnd(os.WEXITSTATUS(raw))


def _end(pid: int, hard: bool) -> None:
    if lifeline >= 0 and not hard:  # a worker, which lives no longer than its run
        adopt_orphans()
    signal_group(pid, _signal.SIGKILL if hard else _signal.SIGTERM)


def _reap_group(pid: int) -> None:
    """Reap what a killed command has left to us."""
    until = time.monotonic() + GRACE
    while not reaped(-pid) and time.monotonic() < until:
        time.sleep(0.001)


def adopt_orphans() -> None:
    """Become the parent of what a killed command leaves: else that goes to the first process, which may never reap it.

    Costs milliseconds, so that only a run asks for it that has to kill a command (prctl(2), PR_SET_CHILD_SUBREAPER).
    """
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError, MemoryError):  # a Python without ctypes: init has to do it
        pass


def reaped(pid: int) -> bool:
    """Reap a child, or as far as they have ended the children of a group (-pid); whether none is left."""
    while True:
        try:
            done, _status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if not done or pid > 0:
            return bool(done)


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a process's group and to the process itself, as far as they are there."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def orphaned(pid: int) -> None:
    """End a command, and this worker with it: the supervisor is gone or wants no more of it, and nobody else would."""
    adopt_orphans()
    if grace > GRACE:
        signal_group(pid, _signal.SIGTERM)
        until = time.monotonic() + grace
        while not reaped(pid) and time.monotonic() < until:
            time.sleep(0.02)
    signal_group(pid, _signal.SIGKILL)
    _reap_group(pid)
    os._exit(1)


def abandon(pid: int) -> None:
    """Give up on a process that was killed and does not die; it is reaped when it does."""
    _abandoned.append(pid)


def _reap_abandoned() -> None:
    for pid in tuple(_abandoned):
        if process_end(pid) is not None:
            _abandoned.remove(pid)


OWN_PROGRAM = "import sys; sys.path[:0] = {paths!r}; sys.argv[0] = 'nhc'; from {module} import {function}; {function}()"


def own_command(arguments: Sequence[str]) -> List[str]:
    """`nhc WORDS` under the same Python."""
    return [*own_program("nhc.cli.main", "entry"), *arguments]


def own_program(module: str, function: str) -> List[str]:
    """A function of one of our modules, as a program under the same Python.

    `-I` keeps the current directory and the user's environment out of Python's path, as in the launchers.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    return [sys.executable, "-I", "-c", OWN_PROGRAM.format(paths=paths, module=module, function=function)]
