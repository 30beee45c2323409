r"""A host made of a few files and canned answers.

    host = FakeHost({"/proc/loadavg": "9.10 4.00 2.00 1/200 77\n"},
                    {("nvidia-smi", "-L"): "GPU 0: NVIDIA H100 80GB HBM3\n"})

A FakeHost writes the files under a temporary root and uses the real Host on them, so that what is
tested is what runs. A command that was not listed does not exist; nothing ever reaches the machine
that runs the test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from nhc.core.host import Completed, Filesystem, Host, Stat, System
from nhc.core.system.process import Look

Answer = Union[str, Completed, Callable[[Sequence[str], str], Completed]]


class FakeSystem(System):
    """A System that knows only what it was given. The clock stands still until `now` or `uptime` is moved."""

    def __init__(self, root: str, commands: Optional[Mapping[Union[str, Tuple[str, ...]], Answer]] = None) -> None:
        super().__init__(root)
        self.commands: Dict[Tuple[str, ...], Answer] = {}
        for argv, answer in (commands or {}).items():
            self.commands[tuple(argv.split()) if isinstance(argv, str) else tuple(argv)] = answer
        self.ran: List[Tuple[str, ...]] = []
        """Every command that was run, in order."""
        self.now = 1_700_000_000.0
        self.uptime = 100_000.0
        self.filesystems: Dict[str, Filesystem] = {}
        self.stats: Dict[str, Stat] = {}
        self.users: Dict[str, int] = {"root": 0, "nobody": 65534}
        self.groups: Dict[str, int] = {"root": 0}
        self.names: Dict[str, List[str]] = {}
        self.ports: Dict[Tuple[str, int], float] = {}
        self.node = "node001"
        self.uid = 0
        self.gid = 0
        self.kernel: List[str] = []
        """The records of /dev/kmsg, raw, oldest first: `4,17,1500000,-;text`."""
        self.answers: Dict[str, Any] = {}
        """What libraries say, by the question's name (`nvml`)."""
        self.done: List[str] = []
        """What checks did to the machine, in order: `kill 9 123`, `renice 5 123`, `syslog TEXT`."""
        self.refuses: Dict[str, OSError] = {}
        """What such an operation raises instead of being done, by its text."""

    def kernel_log(self, after: int) -> List[str]:
        from nhc.core.system.kernel_ring import number_of

        return [record for record in self.kernel if number_of(record) > after]

    def run(
        self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str], during: Optional[Look] = None
    ) -> Completed:
        self.ran.append(tuple(argv))
        if during:
            during()
        # The longest listed prefix answers, so that a test may leave out arguments it does not care for.
        for length in range(len(argv), 0, -1):
            answer = self.commands.get(tuple(argv[:length]))
            if answer is None:
                continue
            if isinstance(answer, str):
                return Completed(0, answer)
            return answer if isinstance(answer, Completed) else answer(argv, stdin)
        raise FileNotFoundError(2, "no such command", argv[0])

    def which(self, command: str) -> Optional[str]:
        known = any(argv[0] == command for argv in self.commands)
        return (command if "/" in command else f"/usr/bin/{command}") if known else None

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.uptime

    def stat(self, path: str, follow: bool) -> Stat:
        return self.stats[path] if path in self.stats else super().stat(path, follow)

    def statvfs(self, path: str) -> Filesystem:
        if path not in self.filesystems:
            raise FileNotFoundError(2, "no such file system in this FakeHost", path)
        return self.filesystems[path]

    def user_name(self, uid: int) -> str:
        return next((name for name, number in self.users.items() if number == uid), str(uid))

    def user_id(self, name: str) -> Optional[int]:
        return self.users.get(name)

    def group_name(self, gid: int) -> str:
        return next((name for name, number in self.groups.items() if number == gid), str(gid))

    def resolve(self, name: str) -> List[str]:
        if name not in self.names:
            raise OSError(-2, "Name or service not known")
        return self.names[name]

    def connect(self, address: str, port: int, timeout: float) -> float:
        if (address, port) not in self.ports:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.ports[address, port]

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        if question not in self.answers:
            raise FileNotFoundError(2, "no such answer in this FakeHost", question)
        return self.answers[question]

    def hostname(self) -> str:
        return self.node

    def effective_uid(self) -> int:
        return self.uid

    def effective_gid(self) -> int:
        return self.gid

    def kill(self, pid: int, started: int, number: int) -> None:
        self._do(f"kill {number} {pid}")

    def renice(self, pid: int, nice: int) -> None:
        self._do(f"renice {nice} {pid}")

    def syslog(self, text: str) -> None:
        self._do(f"syslog {text}")

    def _do(self, operation: str) -> None:
        if operation in self.refuses:
            raise self.refuses[operation]
        self.done.append(operation)


class FakeHost(Host):
    """A Host with just these files, commands and settings. `host.system` takes further answers.

    A file whose content is a `Symlink` becomes one; a path that ends in "/" becomes a directory.
    """

    system: FakeSystem

    def __init__(
        self,
        files: Optional[Mapping[str, Union[str, bytes, Symlink]]] = None,
        commands: Optional[Mapping[Union[str, Tuple[str, ...]], Answer]] = None,
        settings: Optional[Mapping[str, str]] = None,
    ) -> None:
        root = tempfile.mkdtemp(prefix="nhc-fake-")
        super().__init__(root, FakeSystem(root, commands), settings, environ={})
        # Tied to the system, which a host seen under other settings shares. Not a TemporaryDirectory: that
        # one warns when it is left to the garbage collector, and warnings fail tests.
        weakref.finalize(self.system, shutil.rmtree, root, ignore_errors=True)
        for path, content in (files or {}).items():
            self.write(path, content)

    def write(self, path: str, content: Union[str, bytes, Symlink]) -> None:
        """Create or replace one file below the root."""
        real = self.path(path)
        if path.endswith("/"):
            os.makedirs(real, exist_ok=True)
            return
        os.makedirs(os.path.dirname(real), exist_ok=True)
        if isinstance(content, Symlink):
            os.symlink(content.target, real)
            return
        with open(real, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def remove(self, path: str) -> None:
        os.remove(self.path(path))


class Symlink:
    """The content of a symbolic link, as it stands in the link (relative targets stay below the root)."""

    def __init__(self, target: str) -> None:
        self.target = target
