"""Speaks with one node's guard: sends its program over a connection of fleet's, then orders, and reads its answers."""

from __future__ import annotations

import json
import os
import shlex
import time
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from nhc import fleet
from nhc.core.json_values import object_from
from nhc.core.model import printable
from nhc.core.system.bounded_read import read_text
from nhc.core.units import seconds as seconds_of
from nhc.core.units import show_size
from nhc.deep import journal
from nhc.deep.idle import ALLOWED, DEVICES
from nhc.fleet.transport import Node, Stream, Transport, Trouble
from nhc.marks.ports.adapter import SettingError

KNOWN = ("state", "directory", "ssh-config", "ssh-options", "mpirun", "mpi-args", "rsh", "python", "grace", "work",
         "allow")  # fmt: skip
START = "import sys;exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),'nhc-deep-guard','exec'))"
CONNECT = 20.0
"""Seconds for a connection and the guard's start."""
ALIVE, SILENCE = 5.0, 30.0
"""Seconds between two messages to each guard, and seconds without one after which a guard ends its test."""

LINE = 1 << 20
"""Bytes of the longest line of a guard: 64 KiB of a tool's output, of which JSON takes six for each at most."""


class SshSettings(NamedTuple):
    """How nodes are reached. `state` is here; `directory` is on the nodes, `{node}` in it is the node's name.

    `rsh` is how mpirun on the first node reaches the others. `work` and `allow` are patterns of process names: work
    takes the node from a test, whatever it holds; what is allowed may hold devices. `grace` in seconds.
    """

    state: str
    directory: str
    ssh: Tuple[str, ...]
    mpirun: str
    mpi_args: Tuple[str, ...]
    rsh: str
    python: str
    grace: float
    work: Tuple[str, ...]
    allow: Tuple[str, ...]


def read_settings(given: Mapping[str, str]) -> SshSettings:
    """Settings from `--set`. Raises SettingError."""
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise SettingError(printable(unknown[0], 60), f"no such setting: {', '.join(KNOWN)}")
    split: Dict[str, Tuple[str, ...]] = {}
    name = "grace"
    try:
        grace = seconds_of(given.get(name, "10s"))
        for name in ("ssh-options", "mpi-args", "work", "allow"):
            split[name] = tuple(shlex.split(given.get(name, "")))
    except ValueError as error:
        raise SettingError(name, str(error)) from None
    state, directory = given.get("state", f"{journal.directory()}/sweeps"), given.get("directory", "/var/lib/nhc/deep")
    for name, path in (("state", state), ("directory", directory)):
        if not os.path.isabs(path):
            raise SettingError(name, f"{printable(path, 60)!r} is not an absolute path")
    config = given.get("ssh-config", "")
    ssh = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", *(("-F", config) if config else ()))
    return SshSettings(
        state, directory, (*ssh, *split["ssh-options"]), given.get("mpirun", "mpirun"), split["mpi-args"],
        given.get("rsh", "ssh -a -o BatchMode=yes"), given.get("python", "python3"), grace, split["work"],
        split["allow"],
    )  # fmt: skip


class GuardSession:
    """One guard. Used by one thread. `node` is its name, `limit` in seconds; a `probe` says what it saw and ends."""

    def __init__(
        self, transport: Transport, settings: SshSettings, node: str, token: str, limit: float, *, probe: bool = False
    ) -> None:
        given = {
            "token": token, "directory": settings.directory.replace("{node}", node), "grace": settings.grace,
            "limit": limit, "silence": SILENCE, "probe": probe, "devices": list(DEVICES), "work": list(settings.work),
            "allowed": [f"{name}*" for name in (*ALLOWED, *settings.allow)],
        }  # fmt: skip
        text = f"{_program()}\nmain({json.dumps(json.dumps(given))})\n".encode()
        deadline = time.monotonic() + CONNECT
        self.node, self._rest = node, b""
        self._session = transport.connect(Node(node), deadline)
        command = f"exec {shlex.quote(settings.python)} -I -S -c {shlex.quote(START)}"
        self._stream: Stream = self._session.start(command, deadline)
        self._stream.send(b"%d\n%s" % (len(text), text), deadline)

    def answer(self, within: float) -> Optional[Mapping[str, object]]:
        """The next answer, None where there is none in this time. Raises Trouble where no more will come.

        A line that is longer than any of a guard's is Trouble, too.
        """
        until = time.monotonic() + within
        while b"\n" not in self._rest:
            try:
                some = self._stream.receive(until)
            except Trouble as trouble:
                if trouble.reason == "Timeout":
                    return None
                raise
            if not some:
                complaint = (self._stream.complaint().strip().splitlines() or ["the guard ended without a word"])[-1]
                raise Trouble("Ended", printable(complaint, 200))
            self._rest += some
            if len(self._rest) > LINE and b"\n" not in self._rest:
                self._rest = b""
                raise Trouble("BadAnswer", f"what answers is no guard: a line of more than {show_size(LINE / 1024)}")
        line, _, self._rest = self._rest.partition(b"\n")
        return object_from(line.decode(errors="replace"))  # an empty one: what a login script prints

    def tell(self, **what: object) -> None:
        """Say something to the guard. Raises Trouble."""
        self._stream.send(json.dumps(what).encode() + b"\n", time.monotonic() + ALIVE)

    def close(self) -> None:
        """End the connection; the guard ends its test then."""
        self._stream.close()
        self._session.close()


def _program() -> str:
    return read_text(os.path.join(os.path.dirname(fleet.__file__ or ""), "data", "deep_guard.py"))
