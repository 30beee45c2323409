"""Nodes made of namespaces, behind one sshd: each has a host name, processes and mounts of its own, and an address.

Needs root. The network is the machine's loopback; whoever logs in at a node's address is in that node.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from tests.support import ssh
from tests.support.require import need

ENTER = """\
#!/bin/sh
set -- $SSH_CONNECTION
exec nsenter --target "$(cat {place}/$3)" --uts --pid --mount --root --wd -- /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


class Namespaces:
    """The nodes; `config` is the ssh_config that reaches them by name."""

    def __init__(self, server: ssh.Server, inside: Dict[str, int]) -> None:
        self.config, self._inside = server.config, inside

    def processes(self, name: str) -> Dict[int, str]:
        """The processes of a node, as this machine numbers them, with their names; its init is left out."""
        space, found = os.readlink(f"/proc/{self._inside[name]}/ns/pid"), {}
        for pid in (int(one) for one in os.listdir("/proc") if one.isdigit()):
            with contextlib.suppress(OSError):
                zombie = ") Z " in Path(f"/proc/{pid}/stat").read_text()  # the node's init waits for nobody
                if not zombie and os.readlink(f"/proc/{pid}/ns/pid") == space and pid != self._inside[name]:
                    found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        return found

    def run(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        """Start a process on a node."""
        enter = ["nsenter", "--target", str(self._inside[name]), "--uts", "--pid", "--mount", "--root", "--wd", "--"]
        return subprocess.Popen([*enter, *argv], stdin=subprocess.DEVNULL, start_new_session=True)


@contextlib.contextmanager
def nodes(directory: Path, names: Sequence[str]) -> Iterator[Namespaces]:
    """Running nodes of these names."""
    need("root", os.geteuid() == 0, "nodes are made of namespaces")
    place = directory / "inside"
    place.mkdir(parents=True)
    enter = directory / "enter"
    enter.write_text(ENTER.format(place=place))
    enter.chmod(0o755)
    started: List[subprocess.Popen[bytes]] = []
    inside: Dict[str, int] = {}
    try:
        for name, address in zip(names, ssh.addresses(len(names))):
            outer = subprocess.Popen(
                ["unshare", "--uts", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c",
                 'hostname "$1"; exec sleep infinity', "sh", name],
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            started.append(outer)
            inside[name] = _child(outer.pid)
            (place / address).write_text(str(inside[name]))
        with ssh.sshd(directory / "sshd", more=f"ForceCommand {enter}") as server:
            server.trust(ssh.addresses(len(names)))
            known = "".join(f"Host {name}\n  HostName {address}\n"
                            for name, address in zip(names, ssh.addresses(len(names))))  # fmt: skip
            server.config.write_text(known + server.config.read_text())
            yield Namespaces(server, inside)
    finally:
        for pid in inside.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # the namespace's init: all in it go
        for outer in started:
            outer.wait(60)


def _child(pid: int) -> int:
    """The process in the namespace, once it has its name."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        with contextlib.suppress(OSError):
            if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
                return int(children[0])
        time.sleep(0.02)
    raise RuntimeError("a node did not start within 20 s")
