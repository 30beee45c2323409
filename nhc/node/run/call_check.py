"""What a worker does with one job: call the check, catch everything, make the outcome portable.

A bug in a check is that check's UNKNOWN, with its traceback as evidence; it never ends the run.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.language.site_settings import shows_output
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, Verdict, crit, ok, unknown
from nhc.core.plan import Item
from nhc.core.render.plain import EVIDENCE_LINES, encode
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import Any, List, Mapping, Sequence, Tuple

    from nhc.core.check import Check


def call(check: Check, arguments: Mapping[str, object], host: Host) -> List[Outcome]:
    """Run a check; its outcomes, whatever happens."""
    try:
        returned = check.run(host, **arguments)
        outcomes = [returned] if isinstance(returned, Outcome) else list(returned)
        for outcome in outcomes:
            if not isinstance(outcome, Outcome):
                raise TypeError(f"{check.name} returned {outcome!r}, not an Outcome")
        if any(outcome.verdict in (Verdict.WARN, Verdict.CRIT) for outcome in outcomes):
            outcomes = _about(host, outcomes)
        return outcomes or [unknown("NoOutcome", "the check returned nothing")]
    except FileNotFoundError as error:
        if error.strerror == "no such command":
            return [unknown("CommandMissing", f"{error.filename} is not installed")]
        return [unknown("Unreadable", f"{error.filename or error}: there is no such file")]
    except OSError as error:
        return [unknown("Unreadable", f"{error.filename or 'a needed file'}: {error.strerror or error}")]
    except (Exception, SystemExit) as error:
        return [broken(check.name, error)]


def _about(host: Host, outcomes: List[Outcome]) -> List[Outcome]:
    """The outcomes with the device that each fault is of; unchanged where that cannot be read, which loses no fault."""
    from nhc.node.facts.fault_scope import about  # only where there is a fault

    try:
        return about(host, outcomes)
    except (OSError, ValueError):
        return outcomes


def broken(name: str, error: BaseException) -> Outcome:
    """A bug's outcome."""
    import traceback

    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    message = f"{name} has a bug: {type(error).__name__}: {error}"
    return unknown("CheckBroken", message.split("\n", 1)[0], evidence=tuple(lines[-EVIDENCE_LINES:]))


def run_command(item: Item, host: Host, timeout: float) -> Outcome:
    """Judge a line that is a program of the site's own: it fails when its status is not 0, as in LBNL NHC."""
    program = item.argv[0]
    try:
        ended = host.run(item.argv, timeout=timeout)
    except FileNotFoundError:
        return unknown("CommandMissing", f"there is no check and no command called {program}")
    except OSError as error:
        return unknown("CommandUnusable", f"{program} cannot be run: {error.strerror}")
    evidence = ended.tail(EVIDENCE_LINES)
    starved = process.could_not_fork(evidence) if ended.status or ended.timed_out else ""
    if starved:
        return unknown("CannotRun", f"{program} could start no process: {starved}", evidence=evidence)
    if ended.timed_out:
        verdict = crit if item.on_timeout == "crit" else unknown
        return verdict("CheckTimeout", f"{item.line or program} timed out (timeout of its line)", evidence=evidence)
    if ended.status:
        return crit("CommandFailed", f"Check {item.line or program} returned {ended.status}", evidence=evidence)
    return ok()._replace(evidence=evidence) if shows_output(item.settings) else ok()


def encode_all(name: str, outcomes: Sequence[Outcome]) -> List[Tuple[Any, ...]]:
    """What a check returned, as `encode` makes it; an outcome that cannot be encoded is that check's bug.

    The others stand: a wrong value in one outcome must not hide the others.
    """
    return [_encoded(name, outcome) for outcome in outcomes]


def _encoded(name: str, outcome: Outcome) -> Tuple[Any, ...]:
    try:
        return encode(outcome)
    except Exception as error:
        return encode(broken(name, error))
