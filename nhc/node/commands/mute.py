"""`nhc mute` and `nhc unmute`: a muted check does not take this node out until a date."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Callable, Iterator, List

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command, person
from nhc.core.command_line.options import UsageError
from nhc.core.command_line.printing import results
from nhc.core.command_line.report_output import write_atomically
from nhc.core.host import root_of
from nhc.core.model import printable
from nhc.core.state.mutes import Mute, named, parse, render
from nhc.core.units import seconds
from nhc.node.planning.local import SCRIPTS
from nhc.node.run.engine import mutes_path

LONGEST = 366 * 86400.0
"""Seconds: to mute a check for longer, remove it from the configuration."""


class MuteOptions(options.Formatted):
    check: str = options.argument("[CHECK]")
    until: str = options.text(
        "--until", "DATE", "When it ends: 2026-12-01 (00:00 local time), 2026-12-01T15:00, or a duration from now: 3d, "
        "12h. A year at most.",
    )  # fmt: skip
    why: str = options.text("--why", "TEXT", "For everybody who meets it in a report.")
    target: str = options.text("--target", "NAME", "Only this target of the check: gpu3, /scratch, mlx5_0:1.")
    by: str = options.BY


@click_command
def mute(args: MuteOptions) -> None:
    """Mute CHECK on this node until a date; without CHECK list what is muted.

    A failure of a muted check is WARN: it takes no node out, and every report says who muted it, why and until when.
    It holds for the hooks, the agent and nhc check local. CHECK may be a shell pattern. Exit status: 0, 2 for wrong
    usage.
    """
    if not args.check:
        if args.until or args.why or args.target:
            raise click.UsageError("which check? nhc mute CHECK --until DATE --why TEXT")
        _list(args.form)
        return
    if not args.until or not args.why.strip():
        raise click.UsageError("expected --until DATE and --why TEXT: a mute without an end or a reason is forgotten")
    now = time.time()
    new = Mute(
        _known(args.check), _when(args.until, now), printable(args.why.strip(), 200), person(args.by), args.target, now
    )
    _change(
        lambda mutes: [*(other for other in mutes if (other.check, other.target) != (args.check, args.target)), new]
    )
    results(args.form, lambda: _log(f"{named(new)} is {new.show()}"))


class UnmuteOptions(options.CommandOptions):
    check: str = options.argument("CHECK", needed=True)
    target: str = options.text("--target", "NAME", "Only the mute of this target. Default: all of the check.")


@click_command
def unmute(args: UnmuteOptions) -> None:
    """End the mute of CHECK on this node now. Exit status: 0, 2 where it was not muted."""
    ended: List[Mute] = []

    def without(mutes: List[Mute]) -> List[Mute]:
        ended.extend(muted for muted in mutes if muted.check == args.check and args.target in ("", muted.target))
        return [muted for muted in mutes if muted not in ended]

    _change(without)
    if not ended:
        raise click.UsageError(
            f"{args.check}{f' {args.target}' if args.target else ''} is not muted here; nhc mute lists what is"
        )
    _log(f"{args.check}{f' {args.target}' if args.target else ''} is no longer muted (by {person()})")


def _list(form: str) -> None:
    now = time.time()
    mutes = [muted for muted in _read(_path()) if muted.until > now]
    if form == "json":
        click.echo(render(mutes), nl=False)
        return
    for muted in mutes:
        click.echo(f"{named(muted)} is {muted.show()}")
    if not mutes:
        click.echo("nothing is muted on this node")


def _path() -> str:
    """The path of the file: below the node's root if a container judges the node ($NHC_ROOT)."""
    return root_of("") + mutes_path()


def _read(path: str) -> List[Mute]:
    from nhc.core.system.bounded_read import read_text

    try:
        return parse(read_text(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"{path}: {reason}; correct it or delete it") from None


def _change(change: Callable[[List[Mute]], List[Mute]]) -> None:
    """Rewrite the file without mutes that have ended; if none is left, remove it, so that runs read nothing."""
    path = _path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with _locked(os.path.dirname(path)):
            now = time.time()
            left = [muted for muted in change(_read(path)) if muted.until > now]
            if not left:
                if os.path.lexists(path):
                    os.unlink(path)
                return
            write_atomically(path, render(left))
            os.chmod(path, 0o644)  # a check run by a user judges as one run by root does
    except UsageError as error:
        raise click.UsageError(str(error).replace("the report", "the mute")) from None
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}: the mute could not be written") from None


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _known(pattern: str) -> str:
    """An existing check, or a pattern that matches some. Raises UsageError."""
    from nhc.core.check import find_all
    from nhc.core.language import site_scripts
    from nhc.core.language.line_options import near
    from nhc.core.language.mistakes import misspelt_program

    names = [declared.name for declared in find_all()]
    names += site_scripts.scan([SCRIPTS] if os.path.isdir(SCRIPTS) else []).functions
    if pattern.startswith("check_") and not any(fnmatchcase(name, pattern) for name in names):
        raise click.UsageError(f"no such check: {pattern}{near(pattern, names)}")
    misspelt = "" if pattern in names else misspelt_program(pattern)
    if misspelt:
        raise click.UsageError(misspelt)
    return pattern


def _when(text: str, now: float) -> float:
    """A date, or a duration from now, as Unix time. Raises UsageError."""
    end = 0.0
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"):
        try:
            end = time.mktime(time.strptime(text, form))
            break
        except (ValueError, OverflowError):
            continue
    else:
        try:
            end = now + seconds(text)
        except ValueError:
            raise click.UsageError(f"--until: {text!r} is neither a date (2026-12-01) nor a duration (3d)") from None
    if end <= now:
        raise click.UsageError(f"--until: {text} has passed")
    if end - now > LONGEST:
        raise click.UsageError(f"--until: {text} is more than a year away: take the check out of the configuration")
    return end


def _log(text: str) -> None:
    import syslog

    click.echo(text)
    syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_NOTICE, printable(text, 1000))
