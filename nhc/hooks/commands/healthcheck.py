"""`nhc-healthcheck`: a scheduler runs it every few minutes; it also replaces LBNL NHC's `nhc`.

It accepts that program's command line, environment and sysconfig file, prints and logs what that program does, and
marks the node through `nhc.hooks`. Exit status: 0 healthy, N failures with -a, else 1; 142 if a deadline passed; 3 if
something could not be told; 2 if the configuration cannot be used; 10 for a wrong command line.
"""

from __future__ import annotations

import os
import sys

from nhc.core.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.language import lbnl_settings
from nhc.core.light import TYPE_CHECKING
from nhc.hooks.lbnl_output import LbnlOutput
from nhc.hooks.scheduled_check import judge, log_and_mark, watching

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence

USAGE = """\
Usage: nhc-healthcheck [options] [VAR=value ...]

  -a            run all checks; do not stop at the first failure
  -c FILE       configuration (default: CONFDIR/NAME.conf)
  -d            print debugging output
  -D DIR        configuration directory (default: /etc/nhc)
  -e CHECK      evaluate this one check line and exit; nothing is marked
  -f            accepted for compatibility: checks always run in processes of their own
  -h            show this help
  -l LOGSPEC    log file, - for standard output (default: /var/log/NAME.log)
  -n NAME       name, which the default file names are made of (default: nhc)
  -q            print nothing
  -t SECONDS    deadline of the whole run, 0 for none (default: 30)
  -v            say what is being done
  -x            trace: print every result with its evidence
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of the nhc-healthcheck executable."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        settings, warnings = lbnl_settings.resolve(arguments, os.environ, _program())
    except lbnl_settings.BadCommandLine as error:
        print(f"{USAGE}\nnhc:  ERROR:  {error}", file=sys.stderr)
        return 10
    if settings.get("HELP"):
        print(USAGE, end="")
        return 0
    try:
        return _run(settings, warnings)
    except Exception as error:
        if "SLURMD_NODENAME" not in os.environ:
            raise
        from nhc.hooks.internal_error import broken  # run by slurmd: no one reads the output

        broken("healthcheck", error, os.environ, settings)
        return EXIT_UNKNOWN


def _run(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    if settings.get("NHC_RM") and "EVAL_LINE" not in settings:
        from nhc.core.resource_manager import adapter_name

        if adapter_name(settings["NHC_RM"]) == "sge":
            from nhc.hooks.load_sensor import run_load_sensor

            return run_load_sensor(settings, warnings)
    if settings["DETACHED_MODE"] == "1" and "EVAL_LINE" not in settings:
        from nhc.hooks.detached import run_detached

        return run_detached(settings, warnings)
    return _once(settings, warnings)


def _once(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """One run, with LBNL NHC's output."""
    output = LbnlOutput(settings, warnings)
    report = judge(settings, output)
    if report is None:
        return EXIT_USAGE
    status = log_and_mark(report, settings, output)
    return 0 if watching(settings) and report.results else status


def _program() -> str:
    name = os.path.basename(sys.argv[0])
    return "nhc" if name in ("nhc-healthcheck", "nhc-healthcheck.pyz", "__main__.py", "-c", "") else name
