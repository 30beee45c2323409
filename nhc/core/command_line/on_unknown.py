"""What an unknown verdict means to a job that waits: `nhc check local --on-unknown`.

A container without rights cannot read everything. What it could not tell is said in one line, and a choice of the
site's, not the lack of rights, decides whether the job is let in.
"""

from __future__ import annotations

import sys

from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY
from nhc.core.model import Report, Verdict, printable

ADMIT, REFUSE = "admit", "refuse"

SHOWN = 3
"""Results named; the others are counted."""


def status(report: Report, given: int, choice: str, command: str = "nhc check local") -> int:
    """The exit status under this choice, of a report whose own would be `given`. Says what could not be told."""
    unsure = [result for result in report.results if result.verdict is Verdict.UNKNOWN]
    decides = report.verdict is Verdict.UNKNOWN
    if not unsure and not decides:
        return given
    named = "; ".join(
        printable(f"{result.check}: {result.outcome.message or result.outcome.reason}", 200)
        for result in unsure[:SHOWN]
    )
    more = f" (and {len(unsure) - SHOWN} more)" if len(unsure) > SHOWN else ""
    if not decides:
        done, status = f"the verdict is {report.verdict.name} all the same", given
    elif choice == ADMIT:
        done, status = f"let in (--on-unknown {ADMIT})", EXIT_HEALTHY
    else:
        done, status = f"not let in (--on-unknown {REFUSE})", EXIT_UNHEALTHY
    sys.stderr.write(f"{command}: could not tell: {named or 'nothing was judged'}{more}: {done}\n")
    return status
