"""`nhc check local` that cannot judge: its line of output in the format that was asked for.

A program that reads the output takes none for a verdict of its own: to Nagios a status of 2 is CRITICAL, a file that is
not replaced goes on saying what it said, and a reader of JSON finds none. So they get a report with one UNKNOWN result.
"""

from __future__ import annotations

import time
from typing import Dict, Sequence

from nhc import __version__
from nhc.core.command_line.options import FORMATS, ReportOutput, UsageError, offered
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.model import CheckResult, Report, unknown
from nhc.core.plan import NO_CHECK

_STATUS = {"nagios": 3, "npd": 2}
"""What these programs take for "could not tell"."""


def report_unusable(reason: str, problems: Sequence[str], format: str, output: str = "", node: str = "") -> int:
    """Say what is wrong as `format` says it, besides the lines on standard error; the exit status."""
    if format == "text" or (format not in FORMATS and format not in offered("nhc.renderers")):
        return EXIT_USAGE
    from nhc.core.command_line.report_output import emit

    host = Host()
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    outcome = unknown(
        reason, f"{problems[0] if problems else 'nothing could be judged'}{more}", evidence=tuple(problems)
    )
    boot_id = host.boot_id()
    name, result = node or site_settings().local_node_name(host), CheckResult(NO_CHECK, outcome)
    report = Report(name, boot_id, time.time(), 0.0, (result,), version=__version__)
    try:
        emit(report, ReportOutput(form=format, output=output, evidence=True, color="never"))
    except UsageError:
        pass  # where it was to be written is what is wrong
    return _STATUS.get(format, EXIT_USAGE)


def requested_output(argv: Sequence[str]) -> Dict[str, str]:
    """The format and the file that a command line asks for, as far as it can be read."""
    asked_for = {"format": "text", "output": ""}
    flags = {"-f": "format", "--format": "format", "-o": "output", "--output": "output"}
    for place, argument in enumerate(argv):
        name, equals, value = (
            argument.partition("=") if argument.startswith("--") else (argument[:2], argument[2:], argument[2:])
        )
        if name in flags:
            asked_for[flags[name]] = value if equals else argv[place + 1] if place + 1 < len(argv) else ""
    return asked_for
