"""The bridge to bash: one shell for all of a run's lines that need one, and our checks inside it.

What lines and site scripts find there is `data/shell.bash`. A check of ours that a line calls is
judged here, by the caller's `call`: the shell asks over a pipe and gets the status back. Lines run one
after the other, and state carries from line to line, as it does in LBNL NHC.
"""

from __future__ import annotations

import fcntl
import os
import re

from nhc.core import check
from nhc.core.data import reader
from nhc.core.host import Host
from nhc.core.language import shell_words
from nhc.core.language.shell_names import SETTINGS
from nhc.core.language.site_scripts import functions_in, replaced_in
from nhc.core.language.site_settings import shows_output
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, Verdict, crit, ok, unknown
from nhc.core.plan import SHELL, Item, Plan
from nhc.core.system import process
from nhc.core.system.bounded_read import read_text
from nhc.node.run.shell_process import Bash, LineEnd
from nhc.node.run.shell_variables import assignments, gather, presets, quote

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

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
        """The answer to a request of the shell; None where it expects none."""
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
