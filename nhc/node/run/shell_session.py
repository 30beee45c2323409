"""The bridge to bash: one shell for all of a run's lines that need one, and our checks inside it.

What lines and site scripts find there is `data/shell.bash`, which is also the other end of the conversation over the
shell's pipes. A check of ours that a line calls is judged here, by the caller's `call`: the shell asks over a pipe and
gets the status back. Lines run one after the other, and state carries from line to line, as it does in LBNL NHC. The
shell gets variables, and facts as the arrays that site scripts read, in its own language.
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

from nhc.core import check
from nhc.core.data import reader
from nhc.core.host import Host
from nhc.core.language import shell_words
from nhc.core.language.shell_words import SETTINGS
from nhc.core.language.site_scripts import functions_in, replaced_in
from nhc.core.language.site_settings import shows_output
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Outcome, Verdict, crit, ok, unknown
from nhc.core.plan import SHELL, Item, Plan
from nhc.core.system import process
from nhc.core.system.bounded_read import read_text

if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

    from typing_extensions import TypeAlias

Call: TypeAlias = "Callable[[str, Sequence[str], Mapping[str, str]], Sequence[Outcome]]"
"""Judges a built-in check: its name, its arguments, and the variables that the shell has set."""

EVIDENCE_LINES = 50
_LENT = 128
"""The lowest descriptor that is lent to the shell."""

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})$|/dev/stdin$", re.ASCII)
_CHECK_NAME = re.compile(r"\bcheck_\w+")
_PREFIX = re.compile(r"(check_\w+|\w+)::?\s+")
_DROPPED = ("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4")


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
        self._shell: Optional[Bash] = None
        self._past: List[Item] = []
        self._sent: Mapping[str, str] = {}
        self._failures = 0
        self._loading = ""  # what the site's scripts printed while they were loaded
        self._outcomes: List[Outcome] = []
        self._at_script = ""  # the site's script that is being loaded
        self._left_out: Set[str] = set()  # those that end the shell
        self._pending: List[Outcome] = []

    def restore(self, items: Sequence[Item]) -> None:
        """Remember lines that an earlier session ran: those that only set variables run again before the next."""
        self._past.extend(item for item in items if item.kind == SHELL and shell_words.assigns_only(item.line))

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
        if shell_words.assigns_only(item.line):
            self._past.append(item)
        pending, self._pending = self._pending, []
        return [*self._judge(item, ended, output), *pending]

    def close(self) -> None:
        """End the shell; what its lines left running goes on."""
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def _ready(self, bash: str) -> Optional[Outcome]:
        """Start the shell unless it runs; an outcome where the site's scripts do not let it start."""
        if self._shell is not None:
            return None
        lent = [] if self._host.ours is self._host else _lend(self._plan.scripts)
        try:
            self._shell = Bash(bash, self._preamble(lent), self._environment(), self._host)
        finally:
            for fd in lent:
                os.close(fd)
        self._sent = {}
        self._outcomes = []
        self._at_script = ""
        ended = self._shell.serve(self._answer)
        if ended.shell_gone:
            output = self._shell.take_output()
            self.close()
            if self._at_script:
                self._leave_out(self._at_script, ended, output)
                return self._ready(bash)
            message = f"the shell ended with status {ended.status} while it loaded the site's scripts"
            return unknown("ShellUnusable", message, evidence=_lines(output))
        self._loading = self._shell.take_output()
        for item in self._past:
            if self._evaluate(item)[0].shell_gone:
                return unknown("ShellUnusable", f"the shell ended when it ran {item.line!r} again")
        return None

    def _leave_out(self, path: str, ended: LineEnd, output: str) -> None:
        """Go on without a script that ended the shell. It is reported with the next line, beside that line's result."""
        how = f"signal {ended.signal}" if ended.signal else f"status {ended.status}"
        message = (
            f"{path} ended the shell with {how} while it was loaded: it is left out, and what it defines is missing"
        )
        self._left_out.add(path)
        self._pending.append(unknown("ScriptExited", message, evidence=_lines(output)))

    def _evaluate(self, item: Item) -> Tuple[LineEnd, str]:
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
        """The answer to a request of the shell; None if it expects none."""
        kind = fields[0]
        if kind == "load":
            self._at_script = fields[1]
        elif kind == "die":
            self._failures += 1
            self._outcomes.append(crit("CheckFailed", _message(fields[2])))
        elif kind == "call":
            count = int(fields[1])
            argv, values = fields[2 : 2 + count], fields[2 + count :]
            if check.find(argv[0]) is None:
                self._outcomes.append(unknown("NoSuchCheck", f"there is no check called {argv[0]}"))
                return "127"
            settings = dict(value.split("=", 1) for value in values)
            outcomes = self._call_with_descriptors(argv, settings)
            self._outcomes.extend(outcomes)
            worst = max((outcome.verdict for outcome in outcomes), default=Verdict.UNKNOWN)
            if worst is Verdict.CRIT:
                self._failures += 1
            status = {Verdict.CRIT: "1", Verdict.UNKNOWN: "3"}.get(worst, "0")
            return f"{status} {_output_variable(argv, outcomes)}".strip()
        elif kind == "match":
            from nhc.core.matching.nodeset import mcheck

            return "0" if mcheck(fields[1], fields[2]) else "1"
        elif kind == "gather":
            return gather(fields[1], self._host)
        return None

    def _call_with_descriptors(self, argv: Sequence[str], settings: Mapping[str, str]) -> List[Outcome]:
        """Call a check. A word such as /dev/fd/63, which a process substitution becomes, means the shell's own file."""
        assert self._shell is not None
        open_here = {argument: f"/proc/{self._shell.asker}/fd/{match[1] or 0}" for argument in argv[1:]
                     for match in [_DESCRIPTOR.match(argument)] if match}  # fmt: skip
        outcomes = self._call(argv[0], [open_here.get(argument, argument) for argument in argv[1:]], settings)
        return [_renamed(outcome, open_here) for outcome in outcomes]

    def _judge(self, item: Item, ended: LineEnd, output: str) -> List[Outcome]:
        outcomes = self._outcomes
        bad = [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]
        evidence = _lines(output)
        if ended.status == 127:  # a script that did not load as it should explains what is missing
            evidence = (*_lines(self._loading), *evidence)[-EVIDENCE_LINES:]
        if not any(outcome.verdict > Verdict.WARN for outcome in outcomes) and ended.status:
            bad.append(self._unparsed(item, evidence) or _failed(item, ended, evidence))
        if not bad:
            first, *others = outcomes or [ok()]
            return [first._replace(evidence=evidence) if shows_output(item.settings) else first, *others]
        reasons = ("CheckFailed", "NoSuchCheck")
        return [outcome._replace(evidence=evidence) if outcome.reason in reasons else outcome for outcome in bad]

    def _unparsed(self, item: Item, evidence: Tuple[str, ...]) -> Optional[Outcome]:
        """UNKNOWN for a line that failed because bash cannot parse it: a typing error is no fault of the node."""
        from nhc.core.language.mistakes import BASH_ENVIRONMENT, syntax_problem

        wrong = syntax_problem(
            item.line, lambda argv: self._host.with_settings(BASH_ENVIRONMENT).run(argv, timeout=5.0)
        )
        return unknown("ShellSyntax", f"bash cannot parse the line: {wrong}", evidence=evidence) if wrong else None

    def _preamble(self, lent: Sequence[int]) -> str:
        plan = self._plan
        scripts = list(zip(plan.scripts, _texts(plan.scripts)))
        lines = [item.line for item in plan.items if item.kind == SHELL]
        text = "\n".join([*lines, *(script for _path, script in scripts)])
        replaced = {path: sorted(replaced_in(path.rpartition("/")[2], script)) for path, script in scripts}
        own = functions_in(text) - frozenset(name for names in replaced.values() for name in names)
        stubs = [
            f'{name}() {{ nhc__call {name} "$@"; }}'
            for name in dict.fromkeys(_CHECK_NAME.findall(text))
            if name not in own and check.find(name, search=False) is not None
        ]
        values = presets(plan.settings, self._check_all, self._host)
        facts = [f"nhc__gather {what}" for what, prefix in (("hw", "HW_"), ("loadavg", "LOADAVG")) if prefix in text]
        return "\n".join(
            [
                reader.read("shell.bash"),
                f"nhc__settings={quote(' '.join(SETTINGS))}",
                *(f"{name}={quote(value)}" for name, value in values.items()),
                'HOSTNAME_S="${HOSTNAME%%.*}"',
                *self._manager(text),
                f"FAIL_CNT={self._failures}",
                *facts,
                *stubs,
                # A built-in whose name is only put together when the line runs.
                'command_not_found_handle() { case "$1" in check_*) nhc__call "$@" ;; *) nhc__missing "$1" ;; esac; }',
                *self._loads(replaced, lent),
                "nhc__send load ''",
                "nhc__main",
            ]
        )

    def _manager(self, text: str) -> List[str]:
        """The line that sets $NHC_RM where the site's lines ask for it and nobody has set it."""
        if "NHC_RM" not in text:
            return []
        from nhc.core.resource_manager import lbnl_name, resource_manager

        name = lbnl_name(resource_manager(self._host))
        return [] if name == "none" else [f'[[ -n "${{NHC_RM-}}" ]] || NHC_RM={quote(name)}']

    def _loads(self, replaced: Mapping[str, Sequence[str]], lent: Sequence[int]) -> List[str]:
        """The lines that load the site's scripts, each saying first which one it is, for it may end the shell."""
        lines: List[str] = []
        for place, path in enumerate(self._plan.scripts):
            if path in self._left_out:
                continue
            load = f". /proc/self/fd/{lent[place]}; exec {lent[place]}<&-" if lent else f". {quote(path)}"
            names = " ".join(replaced[path])
            if names:  # the file may have its own of these: ours stay
                load = f'nhc__kept="$(declare -f {names})"; {load}; unset -f {names}; eval "$nhc__kept"'
            lines += [f"nhc__send load {quote(path)}", load, "set +eu"]
        return lines

    def _environment(self) -> Dict[str, str]:
        environment = {
            name: value
            for name, value in self._host.environ.items()
            if name not in _DROPPED and not name.startswith("BASH_FUNC_")
        }
        environment["PATH"] = process.PATH
        return environment


def _lend(paths: Sequence[str]) -> List[int]:
    """Open the site's scripts for a shell that runs where they do not lie; it inherits the descriptors. Raises OSError.

    Above the numbers that scripts choose for themselves, and above those that `Bash` gives out.
    """
    lent: List[int] = []
    try:
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                lent.append(fcntl.fcntl(fd, fcntl.F_DUPFD, _LENT))
            finally:
                os.close(fd)
    except OSError:
        for fd in lent:
            os.close(fd)
        raise
    return lent


def _output_variable(argv: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """The assignment that `check_cmd_output -O NAME` asks for: the output's lines as LBNL NHC splits them."""
    declared = check.find(argv[0])
    try:
        name = declared.parse(argv[1:]).get("variable") if declared else None
    except check.BadArguments:
        name = None
    if not name or not outcomes:
        return ""
    return f"{name}=( {' '.join(quote(line) for line in outcomes[0].evidence if line)} )"


def _lines(output: str) -> Tuple[str, ...]:
    return tuple(output.splitlines()[-EVIDENCE_LINES:])


def _message(text: str) -> str:
    """What `die` was given, without the name of the check in front, which the report has already.

    Azure's scripts call it as they would call echo: `die 1 -e "check_x: ..."`.
    """
    if text.startswith("-e "):
        text = text[3:]
    text = text.replace("\\t", " ").replace("\\n", " ").strip()
    prefix = _PREFIX.match(text)
    if prefix and prefix[1].startswith("check_"):
        text = text[prefix.end() :]
    return text.strip() or "the check failed without saying why"


def _renamed(outcome: Outcome, names: Mapping[str, str]) -> Outcome:
    """An outcome with its files called as the line calls them."""
    for name, real in names.items():
        outcome = outcome._replace(
            message=outcome.message.replace(real, name),
            target=outcome.target.replace(real, name),
            evidence=tuple(line.replace(real, name) for line in outcome.evidence),
        )
    return outcome


def _failed(item: Item, ended: LineEnd, evidence: Tuple[str, ...]) -> Outcome:
    """A line that failed without any check saying so."""
    status = ended.status
    starved = process.could_not_fork(evidence)
    if starved:
        return unknown("CannotRun", f"the line could start no process: {starved}", evidence=evidence)
    if ended.signal:
        return unknown("ShellDied", f"the line's shell was ended by signal {ended.signal}", evidence=evidence)
    if status in (126, 127):
        reason = "CommandMissing" if status == 127 else "CommandUnusable"
        missing = next((f": {line}" for line in reversed(evidence) if "command not found" in line), "")
        return unknown(reason, f"Check {item.line} returned {status}{missing}", evidence=evidence)
    return crit("CommandFailed", f"Check {item.line} returned {status}", evidence=evidence)


def _texts(paths: Sequence[str]) -> List[str]:
    texts = []
    for path in paths:
        try:
            texts.append(read_text(path, errors="replace"))
        except OSError:
            texts.append("")
    return texts


OUTPUT_LIMIT = 256 << 10
"""Bytes of a line's output kept, the last ones; the rest is read and dropped, so that no line blocks on us."""

# Descriptors in the shell (data/shell.bash): far above those that scripts choose for themselves.
_LINES, _REQUESTS, _REPLIES, _TURN_OUT, _TURN_IN = 60, 61, 62, 63, 64


class LineEnd(NamedTuple):
    """How a line ended: its status, whether it took the shell with it, and the signal that ended that, 0 for none."""

    status: int
    shell_gone: bool = False
    signal: int = 0


class Bash:
    """The process, its pipes, and the conversation over them."""

    def __init__(self, bash: str, script: str, environment: Mapping[str, str], host: Host) -> None:
        self._watch = host.system.watch
        program, argv = host.system.started(bash, ["nhc", "--norc", "--noprofile", "-c", script, "nhc"])
        ours, theirs = _pipes()
        self._lines, self._requests, self._replies, self._output, self._turn = ours
        lines, requests, replies, output, turn_out, turn_in = theirs
        try:
            self.pid = os.posix_spawn(
                program,
                argv,
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
        self._end: Optional[process.ProcessEnd] = None
        self.asker = 0  # the process whose request is being answered
        self._answered = 0  # the process that was answered last, until it has read the answer
        self._kept = bytearray()
        self._asked = bytearray()

    def begin(self, assign: str, line: str) -> None:
        """Hand the shell its next line, and the assignments to make before it."""
        self._write(self._lines, f"{assign}\0{line}\0".encode(errors="surrogateescape"))

    def serve(self, answer: Callable[[Sequence[str]], Optional[str]]) -> LineEnd:
        """Answer the shell's requests until it says that it is done, or ends."""
        poll = self._poll()
        while True:
            request = self._request()
            if request is not None:
                self.asker, fields = int(request[0]), request[1:]
                if fields[0] in ("ready", "end"):
                    self._drain()
                    return LineEnd(int(fields[1]))
                reply = answer(fields)
                if reply is not None:
                    self._answered = self.asker
                    self._write(self._replies, f"{self.asker} {reply}\0".encode(errors="surrogateescape"))
                continue
            if self._end is None:
                self._end = process.process_end(self.pid)
            if self._end is not None:
                if self._drain():
                    continue
                return LineEnd(self._end.status, True, self._end.signal)
            if self._answered:
                self._settle()
            for fd, _event in poll.poll(10 if self._pidfd < 0 or self._answered else 1000):
                if fd == process.lifeline:
                    process.orphaned(self.pid)
                if fd == self._output:
                    more = _read(fd, self._kept, OUTPUT_LIMIT)
                else:
                    more = fd != self._requests or _read(fd, self._asked, 0)
                if not more:
                    poll.unregister(fd)

    def _poll(self) -> select.poll:
        poll = select.poll()
        for fd in (self._output, self._requests, self._pidfd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        if process.lifeline >= 0:
            poll.register(process.lifeline, 0)
        return poll

    def take_output(self) -> str:
        text = self._kept.decode(errors="replace")
        self._kept.clear()
        return text

    def close(self) -> None:
        for fd in (self._lines, self._requests, self._replies, self._output, self._turn, self._pidfd):
            if fd >= 0:
                os.close(fd)
        deadline = time.monotonic() + 0.5  # it ends by itself when it finds no more lines
        while self._end is None and process.process_end(self.pid) is None:
            if time.monotonic() > deadline:
                process.signal_group(self.pid, signal.SIGKILL)
                process.abandon(self.pid)
                break
            time.sleep(0.001)
        if self._watch:
            self._watch("ended", self.pid)

    def _settle(self) -> None:
        """Where the process that asked last was killed before it read its answer, give its turn to the others."""
        unread = int.from_bytes(fcntl.ioctl(self._replies, termios.FIONREAD, bytes(4)), sys.byteorder)
        if not unread:
            self._answered = 0
        elif not _runs(self._answered):
            self._answered = 0
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
        high: List[int] = []
        try:
            for fd in ends:
                high.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _TURN_IN + 1))  # noqa: PERF401 (what is there is closed)
        finally:
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
    from nhc.core.system.process_identity import read_stat

    stat = read_stat(pid)
    return _alive(pid) if stat is None else stat.state not in "ZX"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_READ_ONLY = frozenset(["BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"])
_MATCHERS = ("NHC_MCHECK_DELIM", "NHC_MCHECK_COMMAND")


def quote(text: str) -> str:
    """Any text as one word of shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def presets(settings: Mapping[str, str], check_all: bool, host: Host) -> Dict[str, str]:
    """The variables that LBNL NHC has set by the time it loads scripts.

    Marking a node is never the shell's: its helpers are there by name and do nothing.
    """
    name = settings.get("NAME", "nhc")
    directory = settings.get("CONFDIR", "/etc/nhc")
    values = {
        "NAME": name,
        "HOSTNAME": settings.get("HOSTNAME") or host.read_or("/proc/sys/kernel/hostname") or host.system.hostname(),
        "CONFDIR": directory,
        "CONFFILE": f"{directory}/{name}.conf",
        "INCDIR": f"{directory}/scripts",
        "HELPERDIR": "/usr/libexec/nhc" if host.isdir("/usr/libexec") else "/usr/lib/nhc",
        "LIBEXECDIR": "/usr/libexec" if host.isdir("/usr/libexec") else "/usr/lib",
        "SYSCONFIGDIR": "/etc/sysconfig" if host.isdir("/etc/sysconfig") else "/etc/default",
        "LOGFILE": f">>/var/log/{name}.log 2>&1",
        "RESULTFILE": f"/var/run/nhc/{name}.status",
        "TIMEOUT": "30",
        "DEBUG": "0",
        "TS": "0",
        "SILENT": "0",
        "VERBOSE": "0",
        "MARK_OFFLINE": "0",
        "DETACHED_MODE": "0",
        "NHC_CHECK_FORKED": "0",
        "PASSWD_DATA_SRC": "/etc/passwd",
        "LOGIN_DEFS_SRC": "/etc/login.defs",
    }
    values.update((key, value) for key, value in settings.items() if key in values)
    values.update(ONLINE_NODE=":", OFFLINE_NODE=":", NHC_CHECK_ALL="1" if check_all else "0")
    return values


def assignments(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Shell text that takes the settings from `old` to `new`."""
    if old is new:
        return ""
    lines = [
        f"export {name}={quote(value)}"
        for name, value in new.items()
        if old.get(name) != value and _IDENTIFIER.fullmatch(name) and name not in _READ_ONLY and name not in _MATCHERS
    ]
    if any(old.get(name) != value for name, value in new.items() if name.startswith(_MATCHERS)):
        from nhc.core.language.external_matcher import elements

        lines.extend(_array(name, elements(new, name).items()) for name in _MATCHERS)
    return "\n".join(lines)


def gather(what: str, host: Host) -> str:
    """Assignments of the arrays that LBNL NHC's `nhc_*_gather_data` fills. What cannot be read stays as it was."""
    try:
        return _GATHERERS[what](host)
    except (KeyError, OSError, ValueError):
        return ""


def _array(name: str, values: Iterable[Tuple[int, str]]) -> str:
    return f"{name}=( {' '.join(f'[{index}]={quote(value)}' for index, value in values)} )"


def _list(name: str, values: Iterable[str]) -> str:
    return f"{name}=( {' '.join(map(quote, values))} )"


def _hardware(host: Host) -> str:
    from nhc.node.facts.cpuinfo import topology
    from nhc.node.facts.infiniband import ports
    from nhc.node.facts.meminfo import memory
    from nhc.node.facts.netdev import interfaces

    def cpus() -> List[str]:
        cpu = host.fact(topology)
        # Where the kernel does not say, LBNL NHC counts every thread as a socket and a core of its own.
        sockets, cores = cpu.sockets or cpu.threads, cpu.cores or cpu.threads
        return [f"HW_SOCKETS={sockets} HW_CORES={cores} HW_THREADS={cpu.threads}"]

    def ram() -> List[str]:
        ram = host.fact(memory)
        return [
            f"HW_RAM_TOTAL={ram.total} HW_RAM_FREE={ram.reclaimable}",
            f"HW_SWAP_TOTAL={ram.swap_total} HW_SWAP_FREE={ram.swap_free}",
        ]

    def fabric() -> List[str]:
        links = host.fact(ports)
        return [
            _list("HW_IB_STATE", (port.state for port in links)),
            _list("HW_IB_PHYS_STATE", (port.phys_state for port in links)),
            _list("HW_IB_RATE", ("" if port.rate_gbps is None else f"{port.rate_gbps:g}" for port in links)),
            _list("HW_IB_DEV", (port.name for port in links)),
            f"HW_IB_UMAD_ABI_VER={quote(host.read_or('/sys/class/infiniband_mad/abi_version', '0'))}",
        ]

    def modules() -> List[str]:
        return [_list("HW_MODULES", (line.split(None, 1)[0] for line in host.lines("/proc/modules") if line.strip()))]

    lines: List[str] = []
    for assign in (cpus, ram, fabric, modules, lambda: [_list("HW_ETH_DEV", host.fact(interfaces))]):
        try:
            lines.extend(assign())
        except (OSError, ValueError):
            continue
    return "\n".join(lines)


def _processes(host: Host) -> str:
    from nhc.node.facts import processes, users

    now = host.fact(processes.clock)
    arguments = host.fact(processes.command_lines)
    columns: Dict[str, List[Tuple[int, str]]] = {
        name: [] for name in ("USER", "UID", "PPID", "PCPU", "PMEM", "RSS", "VSZ", "TIME", "ARGS")
    }
    for pid, stat in sorted(host.fact(processes.stats).items()):
        uid = processes.owner(host, pid)
        if uid is None:
            continue
        seconds = processes.cpu_seconds(stat, now)
        row = {
            "USER": users.user_name(host, uid),
            "UID": str(uid),
            "PPID": str(stat.parent),
            "PCPU": processes.show_permille(processes.cpu_permille(stat, now)),
            "PMEM": processes.show_permille(processes.memory_permille(stat, now)),
            "RSS": str(processes.rss_kb(stat, now)),
            "VSZ": str(stat.vsize // 1024),
            "TIME": f"{seconds // 60}:{seconds % 60:02d}",
            "ARGS": arguments.get(pid) or f"[{stat.name}]",
        }
        for name, value in row.items():
            columns[name].append((pid, value))
    pids = [str(pid) for pid, _user in columns["USER"]]
    return "\n".join([_list("PS_PROCS", pids), *(_array(f"PS_{name}", values) for name, values in columns.items())])


def _load_average(host: Host) -> str:
    fields = host.read("/proc/loadavg").split()
    running, _slash, total = fields[3].partition("/")
    whole = (field.split(".", 1)[0] for field in fields[:3])
    return "\n".join(
        [_list("LOADAVG", whole), f"RUNPROCS={quote(running)} TOTPROCS={quote(total)} LASTPID={quote(fields[4])}"]
    )


def _mounts(host: Host) -> str:
    from nhc.node.facts.mounts import mounts

    last = {mount.point: mount for mount in host.fact(mounts)}.values()  # a later mount hides an earlier one
    return "\n".join(
        [
            _list("FS_DEV", (mount.source for mount in last)),
            _list("FS_MNTPT", (mount.point for mount in last)),
            _list("FS_TYPE", (mount.type for mount in last)),
            _list("FS_OPTS", (mount.options for mount in last)),
        ]
    )


def _df(host: Host, prefix: str, command: str, flags: str, size: str, used: str, free: str) -> str:
    done = host.run([*command.split(), *flags.split()], timeout=10.0)
    if done.timed_out:
        return ""
    rows = [row for row in (line.split(None, 6) for line in done.stdout.splitlines()[1:]) if len(row) == 7]
    names = ("DEV", "TYPE", size, used, free, "PCT", "MNTPT")
    return "\n".join(
        _list(f"{prefix}_{name}", (_number(row[place]) if 2 <= place <= 5 else row[place] for row in rows))
        for place, name in enumerate(names)
    )


def _number(text: str) -> str:
    text = text.rstrip("%")
    return "0" if text == "-" else text


def _blocks(host: Host) -> str:
    command = host.setting("DF_CMD", "df")
    return _df(host, "DF", command, host.setting("DF_FLAGS", "-Tka"), "SIZE", "USED", "FREE")


def _inodes(host: Host) -> str:
    command = host.setting("DFI_CMD") or host.setting("DF_CMD", "df")
    return _df(host, "DFI", command, host.setting("DFI_FLAGS", "-Tia"), "INODES", "IUSED", "IFREE")


_GATHERERS: Dict[str, Callable[[Host], str]] = {
    "hw": _hardware,
    "ps": _processes,
    "loadavg": _load_average,
    "mounts": _mounts,
    "df": _blocks,
    "dfi": _inodes,
}
