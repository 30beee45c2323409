"""A node seen from a container: `--root DIR`, where DIR is the node's whole root (a bind mount of it, or /proc/1/root).

Files are the node's, in the mount namespace of its process 1 if that can be reached (DIR/proc/1/root): so a file system
that was mounted a moment ago is visible, and a mount is read-only only if it is so on the node, independent of the bind
mount of DIR. Commands run in that namespace (nsenter, by argv), so that `df` or `findmnt` show the node; if it cannot
be entered, they run below DIR (chroot). Names of users and hosts come from the node's own `getent`.

Not from the node but from the container: nhc's configuration, scripts and state, and libraries (NVML).
"""

from __future__ import annotations

import errno
import os

from nhc.core.host import BadRoot, Completed, Host, System
from nhc.core.light import TYPE_CHECKING
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Sequence, Tuple

    from nhc.core.host import Memory
    from nhc.core.system.process import Look

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
        except OSError:  # no link, or nothing at all: the one who opens it will find out
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
    """Mounts and network differ by process: those of the node are those of its process 1."""
    if path.startswith(("/proc/mounts", "/proc/net")):
        return f"/proc/1{path[len('/proc') :]}"
    if path.startswith(("/proc/self/mount", "/proc/self/net")):
        return f"/proc/1{path[len('/proc/self') :]}"
    return path


KMSG = "/dev/kmsg"
INJECTED = ("nvidia-smi",)
"""Tools that NVIDIA's container runtime puts into the container; where the driver itself runs in a container
(the GPU operator's), the node has none."""
_NAMESPACES = (("mount", "mnt"), ("uts", "uts"), ("ipc", "ipc"), ("net", "net"))
_NAME_SERVICE = 10.0  # seconds for the node's name service to answer
_COULD_NOT_START = (126, 127)  # how nsenter and chroot end where the command itself cannot be executed


class NodeSystem(System):
    """The machine whose root directory is `root`, which is not the root of this process. Raises BadRoot."""

    def __init__(self, root: str) -> None:
        root = root.rstrip("/")
        first = f"{root}/proc/1"
        if not os.path.isdir(root):
            raise BadRoot(f"{root}: there is no such directory")
        if not os.path.exists(f"{first}/mounts"):
            raise BadRoot(f"{root}: not the root of a running node: it has no proc/1/mounts (mount all of / there)")
        inside = f"{first}/root"
        reached = _same(root, inside)
        super().__init__(inside if reached else root)
        self._first, self._reached = first, reached
        self._enter = self._entrance(root)

    def _entrance(self, root: str) -> Tuple[str, ...]:
        """The prefix of a command that makes it run on the node; empty if nothing works."""
        nsenter, chroot = process.find("nsenter"), process.find("chroot")
        ways = []
        if nsenter and self._reached:
            others = [(name, file) for name, file in _NAMESPACES if file == "mnt" or not self.shares(file)]
            # Process 1 may run below a chroot: then the root of its namespace is not its own /.
            below = f"{self._first}/root"
            spaces = (f"--{name}={self._first}/ns/{file}" for name, file in others)
            ways.append((nsenter, *spaces, f"--root={below}", f"--wd={below}", "--"))
        if chroot:
            ways.append((chroot, root))
        for way in ways:
            # "/" is there and cannot be executed: a command that reports this has entered.
            if process.run([*way, "/"], timeout=5.0, env={"PATH": process.PATH}).status in _COULD_NOT_START:
                return way
        return ()

    def shares(self, namespace: str) -> bool:
        """Whether this process is surely in the node's own namespace of that kind (`uts`, `net` ...)."""
        return _same(f"/proc/self/ns/{namespace}", f"{self._first}/ns/{namespace}")

    def in_network(self) -> bool:
        return self.shares("net")

    def shares_processes(self) -> bool:
        """Whether a process has the same number here and on the node. Asking for namespaces takes more rights."""
        try:
            return os.readlink(f"{self.root}/proc/self") == str(os.getpid())
        except OSError:
            return False

    # Files.

    def _below(self, path: str, follow: bool = True) -> str:
        """The path of the node's `path` in this process, with links followed as on the node."""
        real = self.root + resolve(self.root, path, follow)
        return KMSG if path == KMSG and not os.path.exists(real) else real

    # Commands.

    def which(self, command: str) -> Optional[str]:
        return self._find(command) or (process.find(command) if command in INJECTED else None)

    def _find(self, command: str, search: str = process.PATH) -> Optional[str]:
        places = [command] if "/" in command else [f"{directory}/{command}" for directory in search.split(":")]
        for path in places:
            real = self._below(path)
            if os.access(real, os.X_OK) and not os.path.isdir(real):
                return path
        return None

    def started(self, program: str, argv: Sequence[str]) -> Tuple[str, List[str]]:
        if not self._enter:
            raise PermissionError(
                errno.EPERM, "no command can be run on the node: nsenter and chroot both fail", program
            )
        return self._enter[0], [*self._enter, program, *argv[1:]]

    def run(
        self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str], during: Optional[Look] = None
    ) -> Completed:
        program = self._find(argv[0], env.get("PATH", process.PATH))
        if program is None:
            if argv[0] in INJECTED:
                return super().run(argv, timeout, stdin, env)
            raise FileNotFoundError(errno.ENOENT, "no such command", argv[0])
        tool, started = self.started(program, argv)
        done = process.run(started, timeout=timeout, env=env, stdin=stdin, watch=self.watch, during=during)
        prefix = f"{os.path.basename(tool)}: "
        if done.status in _COULD_NOT_START and done.stderr.startswith(prefix):
            raise OSError(errno.ENOEXEC, done.stderr[len(prefix) :].strip() or os.strerror(errno.ENOEXEC), argv[0])
        return done

    # Names, as the node knows them: its name service may be a directory server's.

    def _ask(self, *argv: str) -> List[str]:
        """The lines that a command of the node prints; none if it fails. Raises OSError."""
        done = self.run(argv, _NAME_SERVICE, "", {"PATH": process.PATH, "LC_ALL": "C"})
        return [] if done.status or done.timed_out else done.stdout.splitlines()

    def _entry(self, database: str, key: str) -> List[str]:
        """The entry of a name or number in the node's name service, or just that name or number if there is none."""
        try:
            return (self._ask("getent", "--", database, key) or [key])[0].split(":")
        except OSError:
            return [key]

    def user_name(self, uid: int) -> str:
        return self._entry("passwd", str(uid))[0]

    def user_id(self, name: str) -> Optional[int]:
        entry = self._entry("passwd", name)
        return int(entry[2]) if len(entry) > 2 and entry[2].isdecimal() else None

    def group_name(self, gid: int) -> str:
        return self._entry("group", str(gid))[0]

    def resolve(self, name: str) -> List[str]:
        addresses = [line.split()[0] for line in self._ask("getent", "--", "ahosts", name) if line.strip()]
        if not addresses:
            raise OSError(errno.ENOENT, "the node's resolver knows no such name", name)
        return list(dict.fromkeys(addresses))

    def _shares_name(self) -> bool:
        """Whether the kernel tells this process the node's host name.

        Needs no right to compare namespaces: container runtimes share it together with the network, and every network's
        files below /proc have numbers of their own.
        """
        if self._reached:
            return self.shares("uts")
        try:
            return os.stat("/proc/self/net/dev").st_ino == os.stat(f"{self._first}/net/dev").st_ino
        except OSError:
            return False

    def hostname(self) -> str:
        if not self._shares_name():
            entered = any(argument.startswith("--uts=") for argument in self._enter)
            try:
                named = self._ask("uname", "-n") if entered else self._ask("cat", "/etc/hostname")
            except OSError:
                named = []
            if named and named[0].strip():
                return named[0].strip()
        return super().hostname()

    # What changes the node.

    def kill(self, pid: int, started: int, number: int) -> None:
        self._same_processes()
        super().kill(pid, started, number)

    def renice(self, pid: int, nice: int) -> None:
        self._same_processes()
        super().renice(pid, nice)

    def _same_processes(self) -> None:
        if not self.shares_processes():
            raise PermissionError(errno.EPERM, "the node's processes have other numbers in this container (hostPID)")

    def syslog(self, text: str) -> None:
        self._ask("logger", "-p", "daemon.err", "-t", "nhc", "--", text)


class NodeHost(Host):
    """A Host on the node whose root is mounted at `root`. Raises BadRoot."""

    system: NodeSystem

    def __init__(self, root: str, memory: Optional[Memory] = None) -> None:
        system = NodeSystem(root)
        # Not what names libraries of the container: the node's programs must not load those.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON"))}
        super().__init__(system.root, system, environ=environ, memory=memory)
        self.live = system.shares("pid")

    @property
    def ours(self) -> Host:
        return Host(memory=self.memory)

    def path(self, path: str) -> str:
        return self.system._below(path)

    def readlink(self, path: str) -> str:
        return os.readlink(self.system._below(path, follow=False))

    def realpath(self, path: str) -> str:
        return resolve(self.root, path, kernel_too=True)

    def glob(self, pattern: str) -> List[str]:
        from glob import escape, glob, has_magic

        head, tail = pattern, ""
        while has_magic(head):
            head, _, last = head.rpartition("/")
            tail = f"/{last}{tail}"
        real = self.path(head)
        return sorted(head + path[len(real) :] for path in glob(escape(real) + tail))


def _same(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False
