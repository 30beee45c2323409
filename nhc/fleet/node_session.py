"""Have one node judge itself over a session: one command, one round trip where the node has everything already.

The command's text is the same for every node. It finds a Python and has it read a program (data/node*.py) and
the request from standard input, so that neither appears among the node's processes' arguments.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import urllib.parse
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc import __version__
from nhc.core.model import printable
from nhc.fleet.bundles import Bundle, SiteFiles
from nhc.fleet.transport import Deadline, Node, Session, Stream, Trouble, left

REPORT_LIMIT = 4 << 20
"""Bytes of a report at most."""
NOISE_LIMIT = 64 << 10
"""Bytes that a login may say (a banner, a profile's chatter) before our first line."""
GRACE = 5.0
"""Seconds that the node's guard waits beyond the run's own deadline, and the client beyond the guard."""

PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(15, 8, -1)), "/usr/libexec/platform-python")

# No quote, no newline, no `!`: it goes through whatever login shell the user has. A line that begins with the
# byte 1 says how long the program is; a password that sudo did not ask for is skipped that way.
LOADER = "import sys;f=sys.stdin.buffer;exec(f.read(int(next(l for l in f if l[0]==1)[1:])))"


def _nobody() -> None:
    """Nobody wants to know."""


class SweepTask(NamedTuple):
    """What every node of a sweep is asked to do."""

    engine: Optional[Bundle]
    site: SiteFiles
    options: Tuple[str, ...] = ()
    """More options of `nhc check local`."""
    suite: str = ""
    """A suite that is run in place of `nhc check local`'s checks, by `nhc deep run`: on nodes without work alone."""
    seconds: float = 60.0
    """The deadline of the run on the node."""
    login: float = 10.0
    """How long a login may take to start a command."""
    use: str = "auto"
    """auto: the node's own nhc where it is of this version; pushed; installed."""
    directory: str = ""
    sudo: bool = False
    nonce: str = ""
    started: Callable[[], None] = _nobody
    """Called once the node's Python runs: what it costs to begin with a node is behind it then."""


class NodeOutput(NamedTuple):
    """What a node said: the report's text, and how it was made."""

    report: str
    hostname: str
    python: str
    how: str
    pushed: int = 0
    """Bytes of bundles sent."""


def _text(name: str) -> bytes:
    with open(os.path.join(os.path.dirname(__file__), "data", name), "rb") as file:
        return file.read()


# Read once, before the shards are forked.
_PROGRAM = _text("node.py") + b"\n" + _text("node_keep.py")
_STORE = _text("node_store.py").decode()
_NAME = "the node's name"
"""What stands in its place where a request is made for all nodes."""


def command(node: Node, task: SweepTask) -> str:
    """The shell command that starts the node's side."""
    seconds = int(task.seconds + task.login + 3 * GRACE)
    sudo = ("-S" if node.sudo_password else "-n") if _sudo(node, task) else ""
    return _command(node.python, sudo, seconds, task.nonce)


@functools.lru_cache(maxsize=64)  # it is the same for nearly every node
def _command(python: str, sudo: str, seconds: int, nonce: str) -> str:
    pythons = [python] if python else list(PYTHONS)
    for path in pythons:
        if not re.fullmatch(r"[\w./+-]+", path):
            raise Trouble("BadInventory", f"{path!r} is not the name of a Python")
    script = (
        f'if command -v timeout >/dev/null 2>&1; then t="timeout -k 5 {seconds}"; else t=; fi; '
        f"for p in {' '.join(pythons)}; do if command -v $p >/dev/null 2>&1; "
        f'then echo nhc-fleet {nonce} shell; exec $t $p -I -S -c "{LOADER}"; fi; done; echo nhc-fleet {nonce} nopython'
    )
    argv = ["/bin/sh", "-c", script]
    if sudo:
        argv = ["sudo", *(["-S", "-p", "", "--"] if sudo == "-S" else ["-n", "--"]), *argv]
    return "exec " + " ".join(map(shlex.quote, argv))


def _sudo(node: Node, task: SweepTask) -> bool:
    return task.sudo if node.sudo is None else node.sudo


def request(node: Node, task: SweepTask) -> bytes:
    """The node's program with its call."""
    before, after = _request(task._replace(started=_nobody))
    return before + ascii(node.name).encode() + after


@functools.lru_cache(maxsize=16)
def _request(task: SweepTask) -> Tuple[bytes, bytes]:
    """The same for every node: what stands before its name, and what behind."""
    bundles = {bundle.digest for bundle in (task.engine, task.site.bundle) if bundle}
    wanted = {
        "nonce": task.nonce,
        "version": __version__,
        "use": task.use,
        "directory": task.directory,
        "engine": task.engine.digest if task.engine else "",
        "site": task.site.bundle.digest if task.site.bundle else "",
        "bundles": sorted(bundles),
        "store": _STORE,
        "argv": [*(["deep", "run", task.suite, "-q"] if task.suite else ["check", "local"]), "--format", "jsonl",
                 "--timeout", f"{task.seconds:g}s", "--node", _NAME, *task.site.options, *task.options],
        "seconds": task.seconds + GRACE,
        "guard": task.seconds + task.login + 2 * GRACE,
        "limit": REPORT_LIMIT,
    }  # fmt: skip
    # Out at once: taking the interpreter down would cost each node 3 ms.
    before, after = ascii(wanted).encode().split(ascii(_NAME).encode())
    return b"%s\nmain(%s" % (_PROGRAM, before), b"%s, f)\nos._exit(0)\n" % after


def judge(session: Session, node: Node, task: SweepTask) -> NodeOutput:
    """The node's report. Raises Trouble, at the latest when the node's deadline and the grace have passed."""
    login = Deadline(task.login)
    try:
        return _judge(session, node, task, login)
    except _OldPython as old:
        if not old.others or node.python:
            raise Trouble("OldPython", f"its Python is {old.version}: nhc needs 3.9") from None
        return _judge(session, node._replace(python=old.others[0]), task, login)


class _OldPython(Exception):
    def __init__(self, version: str, others: Sequence[str]) -> None:
        super().__init__(version)
        self.version, self.others = version, others


def _judge(session: Session, node: Node, task: SweepTask, login: float) -> NodeOutput:
    stream = session.start(command(node, task), login)
    try:
        text = request(node, task)
        password = f"{node.sudo_password}\n".encode() if node.sudo_password and _sudo(node, task) else b""
        stream.send(b"%s\x01%d\n%s" % (password, len(text), text), login)
        talk = _Talk(stream, task.nonce)
        try:
            kind, answer = talk.line(login, "HungLogin", "logged in, but no command started in time")
            if kind == "shell":
                kind, answer = talk.line(login, "SlowStart", "logged in, but its Python did not start in time")
        except Trouble as trouble:
            refusal = _last_line(stream.complaint(), 300)  # before it come sudo's lecture and "try again"
            if trouble.reason == "Truncated" and refusal and _sudo(node, task):
                raise Trouble("SudoRefused", refusal) from None
            raise
        if kind == "nopython":
            raise Trouble("NoPython", f"no Python there: looked for {', '.join(PYTHONS[:1] + PYTHONS[1:2])} and older")
        if kind != "hello":
            raise Trouble("HostileOutput", "its answer is not nhc's")
        hello = answer
        task.started()
        deadline = Deadline(task.seconds + 2 * GRACE)
        late = f"no report within {task.seconds + 2 * GRACE:g} s (--timeout and {2 * GRACE:g} s)"
        pushed = 0
        kind, answer = talk.line(deadline, "HungCommand", late)
        while kind == "need":
            pushed += _push(stream, answer.get("bundles", "").split(","), task, deadline)
            kind, answer = talk.line(deadline, "HungCommand", late)
        if kind == "old":
            raise _OldPython(answer.get("python", ""), [name for name in answer.get("others", "").split(",") if name])
        if kind == "failed":
            reason = answer.get("reason", "")
            raise Trouble(_reason(reason), printable(answer.get("message", ""), 300), passing=reason == "BadTransfer")
        if kind != "ran":
            raise Trouble("HostileOutput", "its answer is not nhc's")
        return _answer(talk, answer, hello, deadline, pushed, task)
    finally:
        stream.close()


def _answer(
    talk: _Talk, answer: Mapping[str, str], hello: Mapping[str, str], deadline: float, pushed: int, task: SweepTask
) -> NodeOutput:
    size = answer.get("size", "")
    if not size.isascii() or not size.isdigit() or len(size) > 9:
        raise Trouble("HostileOutput", "its answer has no size")
    complaint = _last_line(answer.get("stderr", ""), 400).strip()
    why = answer.get("why", "")
    if why == "OutputTooLarge" or int(size) > REPORT_LIMIT:
        raise Trouble("OutputTooLarge", f"its report is larger than {REPORT_LIMIT >> 20} MiB")
    if why:
        within = f"within {task.seconds + GRACE:g} s (--timeout and {GRACE:g} s)"
        raise Trouble("HungCommand", f"nhc did not end {within} and was killed there")
    report = talk.exactly(int(size), deadline)
    status = answer.get("status", "")
    if status == "2":
        raise Trouble("BadConfiguration", _refusal(answer.get("stderr", "")) or "nhc refused its configuration")
    if not report.strip():
        raise Trouble("NoReport", f"nhc ended with status {printable(status, 10)}: {complaint or 'it said nothing'}")
    return NodeOutput(
        report.decode(errors="replace"),
        printable(hello.get("hostname", ""), 255),
        printable(hello.get("python", ""), 20),
        "installed" if answer.get("how") == "installed" else "pushed",
        pushed,
    )


def _refusal(text: str) -> str:
    """The first of what is wrong with a configuration, and how much more: whole lines, files by their own names."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Try 'nhc ")]
    if not lines:
        return ""
    first = re.sub(r"/[^\s:]*/[0-9a-f]{64}(?=/)", "", lines[0]).removeprefix("nhc check local: ")
    return printable(first, 500) + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else "")


def _reason(text: str) -> str:
    """A reason that the node gave: a word as `model.reason_key` has it, or else our own."""
    return text if re.fullmatch(r"[A-Z][A-Za-z0-9_]{0,127}", text) else "NodeError"


def _push(stream: Stream, digests: Sequence[str], task: SweepTask, deadline: float) -> int:
    known = {bundle.digest: bundle for bundle in (task.engine, task.site.bundle) if bundle}
    size = 0
    for digest in digests:
        if digest not in known:
            raise Trouble("HostileOutput", "it asks for a bundle that there is not")
        bundle = known[digest]
        stream.send(b"%s %d\n" % (digest.encode(), len(bundle.blob)), deadline)
        stream.send(bundle.blob, deadline)
        size += len(bundle.blob)
    return size


def _last_line(text: str, limit: int) -> str:
    """The last line of what a program printed, which says why it ended: of a traceback, too."""
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], limit) if lines else ""


class _Talk:
    """Reads the node's answers: lines with the nonce, whatever a login says before them, then counted bytes."""

    def __init__(self, stream: Stream, nonce: str) -> None:
        self.stream, self.marker = stream, f"nhc-fleet {nonce} ".encode()
        self.buffer = b""
        self.noise = 0

    def line(self, deadline: float, reason: str, late: str) -> Tuple[str, Dict[str, str]]:
        while True:
            at = self.buffer.find(self.marker)
            end = self.buffer.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                fields = self.buffer[at + len(self.marker) : end].decode("ascii", "replace").split()
                self.buffer = self.buffer[end + 1 :]
                pairs = (field.partition("=") for field in fields[1:])
                return fields[0] if fields else "", {key: urllib.parse.unquote(value) for key, _, value in pairs}
            if len(self.buffer) > NOISE_LIMIT:
                noise = printable(self.buffer[:80].decode(errors="replace"))
                raise Trouble("HostileOutput", f"it says something else than nhc's answer: {noise}")
            self.buffer += self._more(deadline, reason, late)

    def exactly(self, size: int, deadline: float) -> bytes:
        pieces = [self.buffer]
        have = len(self.buffer)
        while have < size:
            data = self._more(deadline, "HungCommand", "the report stopped coming")
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)[:size]

    def _more(self, deadline: float, reason: str, late: str) -> bytes:
        left(deadline, reason, late)
        try:
            data = self.stream.receive(deadline)
        except Trouble as trouble:
            if trouble.reason == "Timeout":
                raise Trouble(reason, late) from None
            raise
        if data:
            return data
        complaint = printable((self.stream.complaint() or self.buffer[-400:].decode(errors="replace")).strip()[-300:])
        # Without a word of the shell's it was the connection, a jump host's perhaps: that may pass.
        text = f"the connection or the shell ended before the report{f': {complaint}' if complaint else ''}"
        raise Trouble("Truncated", text, passing=not complaint)
