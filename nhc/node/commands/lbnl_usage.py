"""The answer of `nhc` to LBNL NHC's command line: the commands that do the same here.

`nhc -a`, `nhc -c FILE`, `nhc MARK_OFFLINE=0` and, from a scheduler, `nhc` without a word are LBNL NHC's. Here `nhc`
is a family of commands, so each of these is wrong usage. It is never taken for a run: a health check program that
does nothing and exits 0 would call every node healthy.
"""

from __future__ import annotations

import os
import sys

from nhc.core.language import lbnl_settings
from nhc.core.language.shell_words import quote
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Sequence

GUIDE = "docs/migration.md"


def answer(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Optional[str]:
    """The one-line answer to LBNL NHC's command line; None for any other."""
    first = arguments[0] if arguments else ""
    try:
        lbnl_settings.parse_command_line(arguments)
    except lbnl_settings.BadCommandLine:
        return None
    if not arguments:
        from nhc.core.resource_manager import CALLERS

        if not any(name in environ for name in CALLERS) or sys.stdout.isatty():
            return None
        reason = "a scheduler has run nhc without arguments"
    elif len(first) > 1 and first[0] == "-" and first[1] in {**lbnl_settings.FLAGS, **lbnl_settings.VALUES}:
        reason = f"{first} is an option of LBNL NHC"
    elif "=" in first and first.partition("=")[0].isidentifier():
        reason = f"{first} is a setting of LBNL NHC's command line"
    else:
        return None
    parts = [f"nhc: {reason}. Nothing was checked."]
    given = quote(arguments)
    parts.append(f"The same run, marking the node as LBNL NHC does: nhc-healthcheck{' ' + given if given else ''};")
    look = look_only(arguments)
    parts.append(f"to look and mark nothing: {look};" if look else "")
    parts.append("in slurm.conf: HealthCheckProgram=/usr/libexec/nhc/slurm-healthcheck")
    parts.append(f"(see {GUIDE})")
    return " ".join(part for part in parts if part)


def look_only(arguments: Sequence[str]) -> str:
    """The `nhc check local` that checks what LBNL NHC's command line would; "" if there is none (`-e`)."""
    asked = lbnl_settings.parse_command_line(arguments)
    if "EVAL_LINE" in asked or "HELP" in asked:
        return ""
    command: List[str] = ["nhc", "check", "local"]
    directory, name = asked.get("CONFDIR", "/etc/nhc"), asked.get("NAME", "nhc")
    if "CONFFILE" in asked or "CONFDIR" in asked or "NAME" in asked:
        command += ["-c", asked.get("CONFFILE", f"{directory}/{name}.conf")]
    if "CONFDIR" in asked and os.path.isdir(f"{directory}/scripts"):  # --scripts is refused where there is none
        command += ["--scripts", f"{directory}/scripts"]
    command += ["--all"] if asked.get("NHC_CHECK_ALL") == "1" else []
    command += ["-t", asked["TIMEOUT"]] if "TIMEOUT" in asked else []
    command += ["-v"] if "VERBOSE" in asked else []
    command += ["-v", "--evidence"] if "DEBUG" in asked or "TRACE" in asked else []
    command += ["-q"] if "SILENT" in asked else []
    return quote(command)
