"""The bridge to bash: one shell for all of a run's lines that need one, and our checks inside it.

What lines and site scripts find there is `data/shell.bash`. A check of ours that a line calls is
judged here, by the caller's `call`: the shell asks over a pipe and gets the status back. Lines run one
after the other, and state carries from line to line, as it does in LBNL NHC.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import sys
import termios
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc import check, data, process, words
from nhc.classify import SETTINGS
from nhc.host import Host
from nhc.model import Outcome, Verdict, crit, ok, unknown
from nhc.plan import SHELL, Item, Plan
from nhc.shelldata import assignments, gather, presets, quote

Call = Callable[[str, Sequence[str], Mapping[str, str]], Sequence[Outcome]]
"""Judges a built-in check: its name, its arguments, and the variables that the shell has set."""

EVIDENCE_LINES = 50
OUTPUT_LIMIT = 256 << 10
"""Bytes of a line's output kept, the last ones; the rest is read and dropped, so that no line blocks on us."""

# Descriptors in the shell (data/shell.bash): far above those that scripts choose for themselves.
_LINES, _REQUESTS, _REPLIES, _TURN_OUT, _TURN_IN = 60, 61, 62, 63, 64

_CHECK_NAME = re.compile(r"\bcheck_\w+")
_PREFIX = re.compile(r"(check_\w+|\w+)::?\s+")
_DROPPED = ("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4")


class _Ended(NamedTuple):
    """How a line ended: its status, and whether it took the shell with it."""

    status: int
    shell_gone: bool = False


class ShellSession:
    """One run's shell. It is started by the first line that needs it, and again after a line that ended it.

    Not for more than one thread. `run` blocks as long as the line does: deadlines are the caller's, who
    kills this process's group and makes a new session, which `restore` brings to where the old one was.
    """

    def __init__(self, host: Host, plan: Plan, call: Call, check_all: bool) -> None:
        self._host = host
        self._plan = plan
        self._call = call
        self._check_all = check_all
        self._shell: Optional[_Shell] = None
        self._past: List[Item] = []
        self._sent: Mapping[str, str] = {}
        self._failures = 0
        self._loading = ""  # what the site's scripts said when they were loaded
        self._outcomes: List[Outcome] = []

    def restore(self, items: Sequence[Item]) -> None:
        """Remember lines that an earlier session ran: those that only set variables run again before the next."""
        self._past.extend(item for item in items if item.kind == SHELL and words.assigns_only(item.line))

    def run(self, item: Item) -> List[Outcome]:
        """Evaluate a line and judge it."""
        bash = self._host.which("bash")
        if bash is None:
            return [unknown("ShellMissing", "this line needs bash, which is not installed")]
        try:
            started = self._ready(bash)
        except OSError as error:
            return [unknown("ShellUnusable", f"bash cannot be started: {error.strerror}")]
        if started is not None:
            return [started]
        ended, output = self._evaluate(item)
        if words.assigns_only(item.line):
            self._past.append(item)
        return self._judge(item, ended, output)

    def close(self) -> None:
        """End the shell; what its lines left running goes on."""
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def _ready(self, bash: str) -> Optional[Outcome]:
        """Start the shell unless it runs; an outcome where the site's scripts do not let it start."""
        if self._shell is not None:
            return None
        self._shell = _Shell(bash, self._preamble(), self._environment(), self._host)
        self._sent = {}
        self._outcomes = []
        ended = self._shell.serve(self._answer)
        if ended.shell_gone:
            output = self._shell.take_output()
            self.close()
            message = f"the shell ended with status {ended.status} while it loaded the site's scripts"
            return unknown("ShellUnusable", message, evidence=_lines(output))
        self._loading = self._shell.take_output()
        for item in self._past:
            if self._evaluate(item)[0].shell_gone:
                return unknown("ShellUnusable", f"the shell ended when it ran {item.line!r} again")
        return None

    def _evaluate(self, item: Item) -> Tuple[_Ended, str]:
        shell = self._shell
        assert shell is not None
        self._outcomes = []
        shell.begin(assignments(self._sent, item.settings), item.line)
        self._sent = item.settings
        ended = shell.serve(self._answer)
        output = shell.take_output()
        if ended.shell_gone:
            self.close()
        return ended, output

    def _answer(self, fields: Sequence[str]) -> Optional[str]:
        """What a request of the shell's gets for an answer; None where it expects none."""
        kind = fields[0]
        if kind == "die":
            self._failures += 1
            self._outcomes.append(crit("CheckFailed", _message(fields[2])))
        elif kind == "call":
            count = int(fields[1])
            argv, values = fields[2 : 2 + count], fields[2 + count :]
            if check.find(argv[0]) is None:
                self._outcomes.append(unknown("NoSuchCheck", f"there is no check called {argv[0]}"))
                return "127"
            settings = dict(value.split("=", 1) for value in values)
            found = list(self._call(argv[0], argv[1:], settings))
            self._outcomes.extend(found)
            worst = max((outcome.verdict for outcome in found), default=Verdict.UNKNOWN)
            if worst is Verdict.CRIT:
                self._failures += 1
            return {Verdict.CRIT: "1", Verdict.UNKNOWN: "3"}.get(worst, "0")
        elif kind == "match":
            from nhc.nodeset import mcheck

            return "0" if mcheck(fields[1], fields[2]) else "1"
        elif kind == "gather":
            return gather(fields[1], self._host)
        return None

    def _judge(self, item: Item, ended: _Ended, output: str) -> List[Outcome]:
        found = self._outcomes
        bad = [outcome for outcome in found if outcome.verdict > Verdict.OK]
        evidence = _lines(output)
        if ended.status == 127:  # a script that did not load as it should explains what is missing
            evidence = (*_lines(self._loading), *evidence)[-EVIDENCE_LINES:]
        if not any(outcome.verdict > Verdict.WARN for outcome in found) and ended.status:
            bad.append(_failed(item, ended, evidence))
        if not bad:
            return found or [ok()]
        told = ("CheckFailed", "NoSuchCheck")
        return [outcome._replace(evidence=evidence) if outcome.reason in told else outcome for outcome in bad]

    def _preamble(self) -> str:
        plan = self._plan
        text = "\n".join([*(item.line for item in plan.items if item.kind == SHELL), *_texts(plan.scripts)])
        own = _own_functions(text)
        stubs = [
            f'{name}() {{ nhc__call {name} "$@"; }}'
            for name in dict.fromkeys(_CHECK_NAME.findall(text))
            if name not in own and check.find(name) is not None
        ]
        values = presets(plan.settings, self._check_all, self._host)
        facts = [f"nhc__gather {what}" for what, word in (("hw", "HW_"), ("loadavg", "LOADAVG")) if word in text]
        return "\n".join(
            [
                data.read("shell.bash"),
                f"nhc__settings={quote(' '.join(SETTINGS))}",
                *(f"{name}={quote(value)}" for name, value in values.items()),
                'HOSTNAME_S="${HOSTNAME%%.*}"',
                '[[ -n "${NHC_RM-}" ]] || nhc__find_rm',
                f"FAIL_CNT={self._failures}",
                *facts,
                *stubs,
                # A built-in whose name is only put together when the line runs.
                'command_not_found_handle() { case "$1" in check_*) nhc__call "$@" ;; *) nhc__missing "$1" ;; esac; }',
                *(f". {quote(path)}" for path in plan.scripts),
                "nhc__main",
            ]
        )

    def _environment(self) -> Dict[str, str]:
        environment = {
            name: value
            for name, value in self._host.environ.items()
            if name not in _DROPPED and not name.startswith("BASH_FUNC_")
        }
        environment["PATH"] = process.PATH
        return environment


class _Shell:
    """The process, its pipes, and the conversation over them."""

    def __init__(self, bash: str, script: str, environment: Mapping[str, str], host: Host) -> None:
        self._watch = host.system.watch
        ours, theirs = _pipes()
        self._lines, self._requests, self._replies, self._output, self._turn = ours
        lines, requests, replies, output, turn_out, turn_in = theirs
        try:
            self.pid = os.posix_spawn(
                bash,
                ["nhc", "--norc", "--noprofile", "-c", script, "nhc"],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                    (os.POSIX_SPAWN_DUP2, lines, _LINES),
                    (os.POSIX_SPAWN_DUP2, requests, _REQUESTS),
                    (os.POSIX_SPAWN_DUP2, replies, _REPLIES),
                    (os.POSIX_SPAWN_DUP2, turn_out, _TURN_OUT),
                    (os.POSIX_SPAWN_DUP2, turn_in, _TURN_IN),
                ],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            os.write(turn_in, b"x")  # while its other end is surely open
            for fd in theirs:
                os.close(fd)
        if self._watch:
            self._watch("started", self.pid)
        self._pidfd = process.pidfd(self.pid)
        self._status: Optional[int] = None
        self._asker = 0  # who was answered last, until the answer has been read
        self._kept = bytearray()
        self._asked = bytearray()

    def begin(self, assign: str, line: str) -> None:
        """Hand the shell its next line, and the assignments to make before it."""
        self._write(self._lines, f"{assign}\0{line}\0".encode(errors="surrogateescape"))

    def serve(self, answer: Callable[[Sequence[str]], Optional[str]]) -> _Ended:
        """Answer the shell's requests until it says that it is done, or ends."""
        poll = select.poll()
        for fd in (self._output, self._requests, self._pidfd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while True:
            request = self._request()
            if request is not None:
                asker, fields = int(request[0]), request[1:]
                if fields[0] in ("ready", "end"):
                    self._drain()
                    return _Ended(int(fields[1]))
                reply = answer(fields)
                if reply is not None:
                    self._reply(asker, reply)
                continue
            if self._status is None:
                self._status = process.wait_status(self.pid)
            if self._status is not None:
                if self._drain():
                    continue
                return _Ended(self._status, shell_gone=True)
            if self._asker:
                self._settle()
            for fd, _event in poll.poll(10 if self._pidfd < 0 or self._asker else 1000):
                if fd == self._output:
                    more = _read(fd, self._kept, OUTPUT_LIMIT)
                else:
                    more = fd != self._requests or _read(fd, self._asked, 0)
                if not more:
                    poll.unregister(fd)

    def take_output(self) -> str:
        text = self._kept.decode(errors="replace")
        self._kept.clear()
        return text

    def close(self) -> None:
        for fd in (self._lines, self._requests, self._replies, self._output, self._turn, self._pidfd):
            if fd >= 0:
                os.close(fd)
        deadline = time.monotonic() + 0.5  # it ends by itself when it finds no more lines
        while self._status is None and process.wait_status(self.pid) is None:
            if time.monotonic() > deadline:
                process.signal_group(self.pid, signal.SIGKILL)
                process.abandon(self.pid)
                break
            time.sleep(0.001)
        if self._watch:
            self._watch("ended", self.pid)

    def _reply(self, asker: int, reply: str) -> None:
        self._asker = asker
        self._write(self._replies, f"{asker} {reply}\0".encode(errors="surrogateescape"))

    def _settle(self) -> None:
        """Where the process that asked last was killed before it read its answer, give its turn to the others."""
        unread = int.from_bytes(fcntl.ioctl(self._replies, termios.FIONREAD, bytes(4)), sys.byteorder)
        if not unread:
            self._asker = 0
        elif not _runs(self._asker):
            self._asker = 0
            self._write(self._turn, b"x")

    def _drain(self) -> bool:
        """Read what is there; whether a whole request was."""
        _read(self._output, self._kept, OUTPUT_LIMIT)
        before = len(self._asked)
        _read(self._requests, self._asked, 0)
        return len(self._asked) > before

    def _request(self) -> Optional[List[str]]:
        """Take the next whole request from what has been read."""
        head, nul, rest = bytes(self._asked).partition(b"\0")
        if not nul:
            return None
        count = int(head)
        fields = rest.split(b"\0", count)
        if len(fields) <= count:
            return None
        self._asked[:] = fields[count]
        return [field.decode(errors="surrogateescape") for field in fields[:count]]

    def _write(self, fd: int, data: bytes) -> None:
        """Write all of it, reading the shell's output meanwhile; give up when the shell is gone."""
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.register(self._output, select.POLLIN)
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
                continue
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return
            ready = dict(poll.poll(100))
            if self._output in ready and not _read(self._output, self._kept, OUTPUT_LIMIT):
                poll.unregister(self._output)
            if not ready and not _alive(self.pid):
                return


def _pipes() -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Our ends (lines, requests, replies, output, turn) and the shell's (those, and both ends of the turn's pipe).

    All are moved above the numbers that they get in the shell, where one could overwrite another.
    """
    made: List[int] = []

    def pipe() -> Tuple[int, int]:
        ends = os.pipe()
        high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _TURN_IN + 1) for fd in ends)
        made.extend(high)
        for fd in ends:
            os.close(fd)
        return high[0], high[1]

    try:
        lines, requests, replies, output, turn = pipe(), pipe(), pipe(), pipe(), pipe()
    except BaseException:
        for fd in made:
            os.close(fd)
        raise
    ours = (lines[1], requests[0], replies[1], output[0], fcntl.fcntl(turn[1], fcntl.F_DUPFD_CLOEXEC, _TURN_IN + 1))
    for fd in ours:
        os.set_blocking(fd, False)
    return ours, (lines[0], requests[1], replies[0], output[1], turn[0], turn[1])


def _read(fd: int, kept: bytearray, limit: int) -> bool:
    """Read what is there, keeping the last `limit` bytes where that is not 0; False at the end of the stream."""
    while True:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        kept += data
        if limit and len(kept) > limit:
            del kept[:-limit]


def _runs(pid: int) -> bool:
    """Whether the process is there and has not ended; a killed one stays as a zombie until its parent looks."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _lines(output: str) -> Tuple[str, ...]:
    return tuple(output.splitlines()[-EVIDENCE_LINES:])


def _message(text: str) -> str:
    """What `die` was told, without the name of the check in front, which the report has already.

    Azure's scripts call it as they would call echo: `die 1 -e "check_x: ..."`.
    """
    if text.startswith("-e "):
        text = text[3:]
    text = text.replace("\\t", " ").replace("\\n", " ").strip()
    found = _PREFIX.match(text)
    if found and found[1].startswith("check_"):
        text = text[found.end() :]
    return text.strip() or "the check failed without saying why"


def _failed(item: Item, ended: _Ended, evidence: Tuple[str, ...]) -> Outcome:
    """A line that failed without any check saying so."""
    status = ended.status
    if ended.shell_gone and status > 128:
        return unknown("ShellDied", f"the line's shell was ended by signal {status - 128}", evidence=evidence)
    if status in (126, 127):
        reason = "CommandMissing" if status == 127 else "CommandUnusable"
        said = next((line for line in reversed(evidence) if "command not found" in line), "")
        return unknown(reason, f"Check {item.line} returned {status}{f': {said}' if said else ''}", evidence=evidence)
    return crit("CommandFailed", f"Check {item.line} returned {status}", evidence=evidence)


def _texts(paths: Sequence[str]) -> List[str]:
    texts = []
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        except OSError:
            continue
    return texts


def _own_functions(text: str) -> frozenset[str]:
    from nhc.scripts import functions_in

    return functions_in(text)
