"""`nhc fleet check`, `diff` and `report`: judge many nodes from one place, and look at sweeps again."""

from __future__ import annotations

from typing import Any

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.exit_status import EXIT_USAGE
from nhc.fleet.settings import FILE, FleetSettings
from nhc.fleet.sweep_request import FleetDiff, FleetReport, HistoryOptions, SweepRequest


@click_command
def check(request: SweepRequest) -> int:
    """Judge many nodes over SSH; nothing needs to be installed on them but Python 3.9.

    Exit status, of the worst node: 0 healthy (WARN too), 1 unhealthy (CRIT), 3 unknown; 2 wrong usage. 3 too when the
    adapter of --from or --mark does not answer, and 1 when marking failed.
    """
    from nhc.fleet.commands.fleet_check import run

    return run(request, FILE.load(request.settings, request.given, request.overrides(FleetSettings)))


@click_command
def diff(args: FleetDiff) -> int:
    """What changed between two sweeps: numbers as `nhc fleet report --list` shows them, or last, last-1, ...

    Exit status: 0 no node is worse, 1 some are worse, 2 there is no such sweep.
    """
    from nhc.fleet.diff import run

    return _of_history(run, args)


@click_command
def report(args: FleetReport) -> int:
    """Show a sweep again: a number, last, last-1, ..."""
    from nhc.fleet.commands.fleet_check import show_again

    return _of_history(show_again, args)


def _of_history(run: Any, args: HistoryOptions) -> int:
    """Carry out a command over the history. Raises CommandError."""
    from nhc.fleet.history import HistoryError

    try:
        return int(run(args, FILE.load(args.settings, overrides=args.overrides(FleetSettings))))
    except HistoryError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", EXIT_USAGE) from None
