"""Tests of groups of nodes over SSH, without a scheduler: one guard per node, and mpirun on the first node.

The guard (nhc/fleet/data/deep_guard.py) takes the node's lock, proves that nobody uses its devices, and ends every
process of the test when the test ends, when real work comes, or when this process is silent. So a killed sweep leaves
nothing running. The results of ended tests are in files here; those tests do not run again.

Its program is sent over a connection of fleet's, then orders, and its answers are read.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc import fleet
from nhc.core.json_values import object_from
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system import written_files
from nhc.core.system.bounded_read import read_head, read_text
from nhc.core.units import show_size
from nhc.deep import journal
from nhc.deep.idle import ALLOWED, DEVICES
from nhc.fleet.ssh.transport_openssh import OpenSSH
from nhc.fleet.transport import Node, Stream, Transport, Trouble
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.runner import NodeRun, RunPhase, RunState, with_nhc
from nhc.node.checks.deep import RUN

PROBED = 15.0
"""Seconds for which a guard's answer that its node is idle is used. The guard proves it again before a test begins."""
SPARE = 30.0
"""Seconds over a test's own limit after which its guards end it by themselves."""
LOOK = 0.2
"""Seconds between two looks at whether there is something to send to a guard."""
KILLED = 10.0
"""Seconds over the grace period in which a guard has to have ended its test."""
AT_ONCE = 32
"""Connections that are made at the same time."""
OUTPUT_LIMIT = 32 << 20
"""Bytes of a test's output as it is written here: what is no UTF-8 takes three for one. More is not kept."""


@declared.settings
class SshSettings(NamedTuple):
    """How nodes are reached. `state` is here; `directory` is on the nodes, `{node}` in it is the node's name.

    `work` and `allow` are patterns of process names: work takes the node from a test, whatever it holds; what is
    allowed may hold devices.
    """

    state: str = declared.path("state", "", "what a sweep keeps here; default: beside the journals of deep runs",
                               absent=lambda: f"{journal.directory()}/sweeps")  # fmt: skip
    directory: str = declared.path("directory", "/var/lib/nhc/deep", "on the nodes; {node} is the node's name")
    config: str = declared.text("ssh-config", "", "default: the user's")
    options: Tuple[str, ...] = declared.shell_words("ssh-options")
    mpirun: str = declared.text("mpirun", "mpirun")
    mpi_args: Tuple[str, ...] = declared.shell_words("mpi-args")
    rsh: str = declared.text("rsh", "ssh -a -o BatchMode=yes", "how mpirun on the first node reaches the others")
    python: str = declared.text("python", "python3", "the nodes' Python")
    grace: float = declared.seconds("grace", 10.0, "how long a test has to end")
    work: Tuple[str, ...] = declared.shell_words("work", (), "processes that take the node from a test")
    allow: Tuple[str, ...] = declared.shell_words("allow", (), "processes that may hold devices")

    @property
    def ssh(self) -> Tuple[str, ...]:
        """The options of OpenSSH's client."""
        own = ("-F", self.config) if self.config else ()
        return ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", *own, *self.options)


class SshLauncher:
    """A `Launcher` over OpenSSH's client, with the user's own configuration, keys and known hosts."""

    SETTINGS = SshSettings

    def __init__(self, settings: Mapping[str, str], transport: Optional[Transport] = None) -> None:
        self.settings = read(SshSettings, settings)
        self._transport = transport or OpenSSH(self.settings.ssh)
        self._runs: Dict[Tuple[str, str], GuardedRun] = {}
        self._probed: Dict[str, Tuple[float, str]] = {}
        self._connecting = threading.Semaphore(AT_ONCE)

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Nodes whose own look says that nobody uses them, and that no deep check has locked."""
        ours = {node for guarded in self._runs.values() if guarded.alive() for node in guarded.run.nodes}
        now = time.monotonic()
        asked = [node for node in nodes if node not in ours and self._probed.get(node, (0.0, ""))[0] < now - PROBED]
        if asked:
            with ThreadPoolExecutor(min(AT_ONCE, len(asked)), "nhc-probe") as pool:
                for node, why in zip(asked, pool.map(self._probe, asked)):
                    self._probed[node] = (time.monotonic(), why)
        return frozenset(node for node in nodes if node not in ours and not self._probed[node][1])

    def why_busy(self, node: str) -> str:
        """What the last look at a node said: who uses it, or why it cannot be reached (a host key that differs)."""
        return self._probed.get(node, (0.0, ""))[1]

    def _probe(self, node: str) -> str:
        """Why a node is not idle, "" where it is."""
        try:
            session = GuardSession(self._transport, self.settings, node, "probe", CONNECT, probe=True)
        except Trouble as trouble:
            return trouble.message
        try:
            until = time.monotonic() + CONNECT + self.settings.grace
            while time.monotonic() < until:
                answer = session.answer(until - time.monotonic()) or {}
                if "idle" in answer or "busy" in answer:
                    return str(answer.get("busy", ""))
            return "no answer in time"
        except Trouble as trouble:
            return trouble.message
        finally:
            session.close()

    def start(self, run: NodeRun) -> str:
        """Put a guard on each node; the tool begins when all of them have proved that their node is idle."""
        place = self._place(run)
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            os.mkdir(f"{place}/begun", 0o700)
        except FileExistsError:
            return run.key
        except OSError as error:
            raise AdapterError(f"{place}: {error.strerror}") from None
        guarded = GuardedRun(self._transport, self.settings, run, place, self._connecting)
        self._runs[run.group, run.key] = guarded
        for node in run.nodes:
            self._probed.pop(node, None)
        guarded.start()
        return run.key

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """The files that were written when the tool had ended; else what this process's guards say."""
        return {run.key: self._state(run)._replace(name=run.key) for run in runs}

    def _state(self, run: NodeRun) -> RunState:
        place, guarded = self._place(run), self._runs.get((run.group, run.key))
        try:
            marker = read_text(f"{place}/marker", 4096).split()
            if len(marker) == 2 and marker[0] == run.group and marker[1].isdigit():
                output = read_head(f"{place}/output", run.limits.output + 1)
                text = output[: run.limits.output].decode("utf-8", "replace")
                return RunState(RunPhase.ENDED, int(marker[1]), text, len(output) > run.limits.output)
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            return RunState(RunPhase.UNKNOWN, why=f"{place}: {error}")
        if guarded is not None:
            if guarded.alive():
                return RunState(RunPhase.RUNNING if guarded.going else RunPhase.WAITING)
            return RunState(RunPhase.STOPPED if guarded.stopped else RunPhase.LOST, why=guarded.why)
        try:
            heard = time.time() - os.stat(f"{place}/begun").st_mtime
        except OSError:
            return RunState(RunPhase.ABSENT)
        # Of another process: its guards end the test when they have received nothing for SILENCE.
        there = 0 <= heard < SILENCE + self.settings.grace + KILLED
        return RunState(RunPhase.RUNNING if there else RunPhase.LOST)

    def stop(self, run: NodeRun) -> None:
        """Have the guards end a test: SIGTERM, the grace period, SIGKILL. Those of a killed process do so alone."""
        guarded = self._runs.get((run.group, run.key))
        if guarded is not None:
            guarded.stop()

    def finish(self, group: str) -> None:
        """Wait until the guards have left; outputs stay here: they are the evidence.

        Raises AdapterError with the processes that do not end.
        """
        until = time.monotonic() + self.settings.grace + KILLED
        guards = [guarded for (name, _key), guarded in self._runs.items() if name == group]
        for guarded in guards:
            guarded.end()
            guarded.join(until)
        left = [line for guarded in guards for line in guarded.left]
        if left:
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise AdapterError(f"{left[0]}{more}")

    def _place(self, run: NodeRun) -> str:
        if not run.group.isalnum() or not run.key.isalnum():
            raise AdapterError(f"{run.group!r} and {run.key!r} name no test")
        return os.path.join(self.settings.state, run.group, run.key)


class GuardedRun:
    """One test: a thread for each node's guard."""

    def __init__(
        self, transport: Transport, settings: SshSettings, run: NodeRun, place: str, connecting: threading.Semaphore
    ) -> None:
        self.run, self.going, self.stopped = run, False, False
        self.why = ""
        """Why the test did not run to its end: the first reason, from which others follow."""
        self.left: List[str] = []
        """What was not ended, a line for each node."""
        self._transport, self._settings, self._place = transport, settings, place
        self._connecting = connecting
        self._token = f"{run.group}-{run.key}"
        self._over = threading.Event()
        self._ready: set[str] = set()
        self._output: List[bytes] = []
        self._room = min(OUTPUT_LIMIT, run.limits.output + 1)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(node,), daemon=True) for node in run.nodes]

    def start(self) -> None:
        """Begin to connect."""
        for thread in self._threads:
            thread.start()

    def alive(self) -> bool:
        """Whether a guard is still there."""
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Have it end before its end."""
        self.stopped = not self._over.is_set()
        self.end()

    def end(self) -> None:
        """Have it end."""
        self._over.set()

    def join(self, until: float) -> None:
        """Wait for the guards to leave until then (`time.monotonic`)."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self, node: str) -> None:
        try:
            with self._connecting:
                limit = self.run.limits.seconds + SPARE
                session = GuardSession(self._transport, self._settings, node, self._token, limit)
        except Trouble as trouble:
            self._fail(f"{node}: {trouble.message}")
            return
        try:
            if not self._watch(session):
                self._leave(session)
        except Trouble as trouble:
            self._fail(f"{node}: {trouble.message}")
        finally:
            session.close()

    def _watch(self, session: GuardSession) -> bool:
        """Until the test is over; whether the guard has left. Raises Trouble."""
        ordered, spoke = False, time.monotonic()
        while not self._over.is_set():
            if self.going and not ordered and session.node == self.run.nodes[0]:
                ordered = True
                session.tell(go=self._order())
            if time.monotonic() - spoke > ALIVE:
                spoke = time.monotonic()
                session.tell(alive=True)
                self._say_alive()
            answer = session.answer(LOOK) or {}
            for key in ("busy", "taken"):
                if key in answer:
                    self._fail(f"{session.node}: {answer[key]}")
            if "ready" in answer:
                with self._lock:
                    self._ready.add(session.node)
                    self.going = len(self._ready) == len(self.run.nodes)
            if "out" in answer:
                self._keep(str(answer["out"]))
            if isinstance(answer.get("end"), int):
                self._write(int(str(answer["end"])))
                self._over.set()
            if self._has_left(session, answer):
                self._fail(f"{session.node}: {answer.get('why')}")
                return True
        return False

    def _say_alive(self) -> None:
        """For another process that looks at the files alone."""
        try:
            os.utime(f"{self._place}/begun")
        except OSError:
            return

    def _has_left(self, session: GuardSession, answer: Mapping[str, object]) -> bool:
        """Whether this is a guard's last answer: it names the processes that it could not end."""
        pids = answer.get("left")
        if pids:
            names = " ".join(map(str, pids)) if isinstance(pids, list) else "of it"
            self.left.append(f"{session.node}: processes {names} do not end")
        return "left" in answer

    def _keep(self, text: str) -> None:
        """Some of the tool's output. A character that UTF-8 does not have becomes a question mark."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            self._output.append(data[: self._room])
            self._room -= len(self._output[-1])

    def _leave(self, session: GuardSession) -> None:
        """Tell the guard to end, and wait until it says that it has. Raises Trouble."""
        session.tell(quit=True)
        until = time.monotonic() + self._settings.grace + KILLED
        while time.monotonic() < until:
            if self._has_left(session, session.answer(LOOK) or {}):
                return

    def _fail(self, why: str) -> None:
        with self._lock:
            if not self._over.is_set() and not self.why:
                self.why = printable(why, 300)
            self._over.set()

    def _order(self) -> Dict[str, object]:
        """What the first node's guard is to run. Open MPI 4 (orte) and 5 (prte) read the same from other variables."""
        settings, run = self._settings, self.run
        argv = [
            settings.mpirun, "--hostfile", "{hosts}", "-np", str(len(run.nodes) * run.tasks), "--map-by",
            f"ppr:{run.tasks}:node", "--bind-to", "none", "-x", RUN, *settings.mpi_args, *with_nhc(run.argv),
        ]  # fmt: skip
        # The daemons that it starts on the other nodes carry the mark, too: that is how their guards know them.
        mark = f"env {RUN}={self._token}"
        env = {
            "OMPI_MCA_plm_rsh_agent": settings.rsh, "PRTE_MCA_plm_ssh_agent": settings.rsh,
            "OMPI_MCA_orte_launch_agent": f"{mark} orted", "PRTE_MCA_prte_launch_agent": f"{mark} prted",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }  # fmt: skip
        return {"argv": argv, "env": env, "hosts": "".join(f"{node} slots={run.tasks}\n" for node in run.nodes)}

    def _write(self, status: int) -> None:
        """The output, and then the marker that says that it is whole."""
        try:
            for name, data in (("output", b"".join(self._output)), ("marker", f"{self.run.group} {status}\n".encode())):
                written_files.write_whole(f"{self._place}/{name}", data, durable=True)
        except OSError as error:
            self._fail(f"{self._place}: {error.strerror}")


START = "import sys;exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),'nhc-deep-guard','exec'))"
CONNECT = 20.0
"""Seconds for a connection and the guard's start."""
ALIVE, SILENCE = 5.0, 30.0
"""Seconds between two messages to each guard, and seconds without one after which a guard ends its test."""

LINE = 1 << 20
"""Bytes of the longest line of a guard: 64 KiB of a tool's output, of which JSON takes six for each at most."""


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
