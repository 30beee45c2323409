"""A report printed, or written to a file, in the format that was asked for; and the exit status that goes with it."""

from __future__ import annotations

import os
import sys

from nhc.core.command_line.clean_output import wants_colour
from nhc.core.command_line.options import LostOutput, UsageError
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.command_line.options import ReportOutput

EXIT = {
    Verdict.SKIP: EXIT_UNKNOWN,
    Verdict.OK: EXIT_HEALTHY,
    Verdict.WARN: EXIT_HEALTHY,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
    Verdict.CRIT: EXIT_UNHEALTHY,
}


def emit(report: Report, shown: ReportOutput) -> int:
    """Print or write the report; the exit status that its format asks for."""
    form = shown.form
    status = EXIT[report.verdict]
    if form == "text":
        from nhc.core.render import text

        when = "never" if shown.output and shown.color == "auto" else shown.color
        colour = wants_colour(when, sys.stdout)
        output = text.render(report, verbose=shown.verbose, quiet=shown.quiet,
                            evidence=shown.evidence, colour=colour, skipped=shown.skipped)  # fmt: skip
    elif form in ("json", "jsonl"):
        from nhc.core.render import json

        output = json.render(report, 2 if form == "json" else 0)
    elif form == "nagios":
        from nhc.core.render import nagios

        output, status = nagios.render(report), nagios.exit_status(report)
    elif form == "npd":
        from nhc.core.render import npd

        output, status = npd.render(report), npd.exit_status(report)
    elif form == "prometheus":
        from nhc.core.render import prometheus

        output = prometheus.render(report)
    else:
        output = _rendered(form, report)
    if shown.output not in ("", "-", "/dev/stdout"):
        write_atomically(shown.output, output)
    else:
        _print(output)
    return status


def _rendered(form: str, report: Report) -> str:
    """The report as an installed package renders it. Raises UsageError where it cannot."""
    from nhc.core.plugins import NoAdapter, one_line, renderer

    try:
        output = renderer(form)(report)
    except NoAdapter as error:
        raise UsageError(f"--format {form}: {error}") from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"--format {form}: its renderer failed: {one_line(error)}") from None
    if not isinstance(output, str):
        raise UsageError(f"--format {form}: its renderer returned {type(output).__name__}, not text")
    return output


def _print(text: str) -> None:
    """Write to standard output. A reader that has gone changes nothing about the node; a full disk is said."""
    try:
        sys.stdout.write(
            text
        )  # what the locale's character set lacks, the stream escapes (nhc.core.command_line.clean_output)
        sys.stdout.flush()
        failure: Optional[OSError] = getattr(sys.stdout, "failure", None)  # nhc.core.command_line.clean_output
        if failure is not None:
            sys.stdout.failure = None  # type: ignore[union-attr]
            raise failure
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains once more when it ends
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of it: said once
        raise LostOutput(f"standard output: {error.strerror}: the report could not be written") from None


def write_atomically(path: str, text: str) -> None:
    """Replace `path` so that a reader sees the old content or the new one whole. Raises UsageError when it cannot."""
    from nhc.core.system.written_files import replace_output

    try:
        replace_output(path, lambda file: file.write(text))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: the report could not be written") from None
