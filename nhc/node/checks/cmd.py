"""Commands of the site's own: what they print and how they end."""

from __future__ import annotations

from nhc.core.check import check, opt, rest
from nhc.core.host import Completed, Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import matcher
from nhc.core.model import Metric, Outcome, crit, ok, unknown
from nhc.core.system.process import could_not_fork
from nhc.core.units import integer, seconds, text

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

SHELL_SIGNS = frozenset("|;&<>$`\n")
"""If the text of `-e` has one of these, a shell runs it. LBNL NHC only split it into words; users asked for pipes
(mej/nhc#87)."""

EVIDENCE = 20
"""Lines of output kept behind a failure, the last ones."""


class Command(NamedTuple):
    """What to run, and how messages name it."""

    argv: Tuple[str, ...]
    line: str
    shell: bool = False


def command_of(words: Sequence[str], line: Optional[str] = None) -> Command:
    """The command that `-e LINE` or the remaining words ask for; its `argv` is empty if neither does."""
    if line and SHELL_SIGNS.intersection(line):
        return Command(("bash", "-c", line), line, True)
    argv = tuple(line.split()) if line else tuple(words)
    return Command(argv, line or " ".join(argv))


def run_to_end(
    host: Host, command: Command, timeout: float, status: Optional[int]
) -> Tuple[Completed, Optional[Outcome]]:
    """Run a command; the second value says why it has no exit to judge. `status` is the one asked for with `-r`."""
    nothing = Completed(127)
    if not command.argv:
        return nothing, unknown("BadArguments", "Syntax error:  No command specified")
    try:
        ended = host.run(command.argv, timeout)
    except FileNotFoundError as error:
        if status == 127 and not command.shell:
            return nothing, None
        missing = command.argv[0] if command.shell else error.filename or command.argv[0]
        return nothing, unknown("CommandMissing", f'no such command: {missing} (asked for by "{command.line}")')
    except OSError as error:
        return nothing, unknown("CommandNotRun", f'"{command.line}" cannot be started: {error.strerror}')
    starved = could_not_fork(ended.tail(EVIDENCE)) if ended.status or ended.timed_out else ""
    if starved:
        message = f'"{command.line}" could start no process: {starved}'
        return ended, unknown("CommandNotRun", message, evidence=ended.tail(EVIDENCE))
    if command.shell and ended.status == 127 and status != 127:
        return ended, unknown("CommandMissing", f'127 returned by "{command.line}"', evidence=ended.tail(EVIDENCE))
    return ended, None


def judge_end(ended: Completed, command: Command, timeout: float, status: Optional[int]) -> Optional[Outcome]:
    """A failure if the command did not end in time, or ended with another status than the one asked for."""
    if ended.timed_out:
        message = f'TIMEOUT after {timeout:g}s for "{command.line}"; subprocess terminated.'
        return crit("CommandTimeout", message, evidence=ended.tail(EVIDENCE))
    if ended.status != (status or 0):
        expected = "" if status is None else f" (expected {status})"
        message = f'{ended.status}{expected} returned by "{command.line}".'
        return crit(
            "CommandStatus", message, metrics=(Metric("exit_status", ended.status),), evidence=ended.tail(EVIDENCE)
        )
    return None


def judge_output(
    ended: Completed,
    command: Command,
    timeout: float,
    status: Optional[int],
    match: Sequence[str],
    messages: Sequence[str] = (),
    forbidden_message: str = '"%m" matched at line %l of "%c".',
) -> Optional[Outcome]:
    """A failure if the output or the exit status is not as asked for, in LBNL NHC's order.

    First a line that must not be there (message: `forbidden_message`), then the exit status, then a missing line.
    """
    lines = ended.stdout.splitlines()
    missing: List[int] = []
    forbidden: List[Tuple[int, int]] = []  # a line's number and the pattern that it matches
    for place, pattern in enumerate(match):
        negated = pattern.startswith("!")
        matches = matcher(pattern[1:] if negated else pattern)
        number = next((at for at, line in enumerate(lines) if matches(line)), -1)
        if negated and number >= 0:
            forbidden.append((number, place))
        if not negated and number < 0:
            missing.append(place)
    if forbidden:
        number, place = min(forbidden)
        own = _message(messages, place, "")
        values = {"%m": match[place][1:], "%l": str(number + 1), "%L": lines[number], "%c": command.line}
        values["%K"] = _without_stamp(lines[number])
        return crit(
            "OutputForbidden", _filled(f"{own}." if own else forbidden_message, values), evidence=(lines[number],)
        )
    failed = judge_end(ended, command, timeout, status)
    if failed is not None or not missing:
        return failed
    alone = len(match) == 1
    default = '"%m" failed to match "%c" output' + ("" if alone else " (%f patterns failed)")
    message = _message(messages, missing[0], default)
    values = {"%m": match[missing[0]], "%c": command.line, "%f": f"{len(missing)}/{len(match)}"}
    return crit("OutputMissing", f"{_filled(message, values)}.", evidence=tuple(lines[-EVIDENCE:]))


def _without_stamp(line: str) -> str:
    """A kernel line without dmesg's time stamp (`[   12.345678] `, `[Mon Jan  1 ...] `): the same on each node."""
    end = line.find("] ") if line[:1] == "[" else -1
    return line[end + 2 :].strip() if end > 0 else line.strip()


def _message(messages: Sequence[str], place: int, default: str) -> str:
    return messages[place] if place < len(messages) and messages[place] else default


def _filled(template: str, known: Dict[str, str]) -> str:
    """`template` with each sign replaced once, from left to right, so that a value is never taken for a sign."""
    parts, at = [], 0
    while at < len(template):
        sign = template[at : at + 2]
        parts.append(known.get(sign, template[at]))
        at += 2 if sign in known else 1
    return "".join(parts)


def _variable(value: str) -> str:
    if not (value.isascii() and value.isidentifier()):
        raise ValueError(f"expected the name of a shell variable, not {value!r}")
    return value


TIMEOUT = opt("-t --timeout", "timeout", seconds, "seconds the command may take (default 5)", 5.0)
_STATUS = opt("-r --status", "status", integer, "exit status that it must end with (default 0)")
MATCH = opt("-m --match", "match", text, "match string that a line must match, or with ! that none may", many=True)
_MESSAGE = opt("-M --message", "messages", text, "message instead of the built-in one, for the -m of the same place "
               "(%m its pattern, %l the line's number, %L the line, %c the command, %f how many failed)",
               many=True)  # fmt: skip
_NAME = opt("-C --name", "name", text, "name that a wrapper's result is filed under")
_LINE = opt("-e --exec", "line", text, "command as one word; with any of | ; & < > $ ` in it, bash runs it")


@check(
    "check_cmd_output",
    TIMEOUT,
    _STATUS,
    MATCH,
    _LINE,
    _NAME,
    _MESSAGE,
    opt("-O --output", "variable", _variable, "array of the shell that is to hold the output's lines, for later lines"),
    rest("words", text, "the command and its arguments, unless -e gives it"),
    timeout=5.0,
    changes=True,
)
def check_cmd_output(
    host: Host,
    timeout: float = 5.0,
    status: Optional[int] = None,
    match: Sequence[str] = (),
    line: Optional[str] = None,
    name: Optional[str] = None,
    messages: Sequence[str] = (),
    variable: Optional[str] = None,
    words: Sequence[str] = (),
) -> Outcome:
    """A command ends in time, with the right status, and prints what it should.

    Runs the command and compares each line of its standard output with every match string (-m): at least
    one line must match it or, where it begins with !, none may. Then the exit status must be the one
    given with -r (default 0). A command that takes longer than -t seconds (default 5) is killed and fails.

    Without a shell the command is started as it is; the text of -e is split at blanks. Where that text
    holds one of | ; & < > $ ` it is run by bash instead. A command that does not exist is UNKNOWN, unless
    127 is the status asked for.

    With -O NAME the lines of the output, empty ones left out, are the array NAME of the shell from then on,
    whether the check passes or not; such a line is one of those that bash runs.

    Example: * || check_cmd_output -t 1 -r 0 -m '/is running/' /sbin/service rpcbind status
    """
    del name  # the report files the result under it: nothing to judge
    command = command_of(words, line)
    ended, failed = run_to_end(host, command, timeout, status)
    failed = failed or judge_output(ended, command, timeout, status, match, messages)
    outcome = failed or ok(f'"{command.line}" ended as it should')
    return outcome._replace(evidence=tuple(ended.stdout.splitlines())) if variable else outcome


@check(
    "check_cmd_status",
    TIMEOUT,
    _STATUS,
    _NAME,
    rest("words", text, "the command and its arguments", required=True),
    timeout=5.0,
    changes=True,
)
def check_cmd_status(
    host: Host,
    timeout: float = 5.0,
    status: Optional[int] = None,
    name: Optional[str] = None,
    words: Sequence[str] = (),
) -> Outcome:
    """A command ends in time and with the right status.

    Runs the command without a shell; its output is not judged, and its last lines are kept behind a
    failure. The status must be the one given with -r (default 0); a command that takes longer than -t
    seconds (default 5) is killed and fails; one that does not exist is UNKNOWN, unless 127 is asked for.

    Example: * || check_cmd_status -t 1 -r 1 selinuxenabled
    """
    del name
    command = command_of(words)
    ended, failed = run_to_end(host, command, timeout, status)
    return failed or judge_end(ended, command, timeout, status) or ok(f'"{command.line}" returned {ended.status}')


@check(
    "check_cmd_dmesg",
    TIMEOUT,
    _STATUS,
    MATCH,
    _MESSAGE,
    opt("-e --exec", "line", text, "command to run instead of dmesg", "dmesg", changes=True),
    timeout=5.0,
)
def check_cmd_dmesg(
    host: Host,
    timeout: float = 5.0,
    status: Optional[int] = None,
    match: Sequence[str] = (),
    messages: Sequence[str] = (),
    line: str = "dmesg",
) -> Outcome:
    """The kernel's messages hold the lines that they should, and none that they should not.

    As check_cmd_output, on the output of dmesg (or of the command given with -e). It judges all that
    is still in the kernel's buffer, so a fault long repaired keeps failing until the next boot. Without a message
    of its own (-M) an unwanted line is the message, without its time stamp: nodes with one fault say one thing.

    Example: * || check_cmd_dmesg -m '!/Machine check events logged/'
    """
    command = command_of((), line)
    ended, failed = run_to_end(host, command, timeout, status)
    failed = failed or judge_output(ended, command, timeout, status, match, messages, "%K")
    return failed or ok("no unwanted line in the kernel's messages" if match else "the kernel's messages can be read")
