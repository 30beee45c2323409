"""The common part of the command lines of nhc-prolog and nhc-epilog; `nhc.hooks.job_hook` does the work.

If nhc itself fails, for example on a configuration that it cannot read, it logs that, leaves a comment on the node, and
ends with status 0: the job starts, the node stays in service.
"""

from __future__ import annotations

import os
import sys

from nhc.core.language import site_settings, trust
from nhc.core.light import TYPE_CHECKING
from nhc.hooks.job_environment import BadArgument

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence

USAGE = """\
Usage: nhc-{hook} [-c FILE] [-D DIR] [-t SECONDS] [VAR=value ...]

Slurm's {title}: judge the node by the checks whose context is {hook}, and act on the result.

  -c FILE       configuration (default: DIR/nhc-{hook}.conf where there is one, else DIR/nhc.conf)
  -D DIR        configuration directory (default: /etc/nhc)
  -t SECONDS    deadline of the checks
  -h            show this help

Settings come from /etc/default/nhc or /etc/sysconfig/nhc, and from the configuration: see docs/slurm.md.
Exit status: 0, or 75 where the job must not start here (epilog: where Slurm must drain the node).
"""


def main(hook: str, argv: Optional[Sequence[str]] = None) -> int:
    """Run one hook; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    environ: Mapping[str, str] = os.environ
    settings: Dict[str, str] = {}
    try:
        settings = resolve(hook, arguments)
        if "HELP" in settings:
            print(USAGE.format(hook=hook, title=hook.capitalize()), end="")
            return 0
        from nhc.hooks.job_hook import run

        return run(hook, settings, environ)
    except Exception as error:
        from nhc.hooks.internal_error import broken

        return broken(hook, error, environ, settings)


def resolve(hook: str, arguments: List[str]) -> Dict[str, str]:
    """The settings in force before the configuration is read: the command line's, then the sysconfig file's.

    Raises BadArgument for an unknown word.
    """
    settings = {"NAME": "nhc", "CONFDIR": "/etc/nhc", "MARK_OFFLINE": "1"}
    options = {"-c": "CONFFILE", "-D": "CONFDIR", "-t": f"NHC_{hook.upper()}_TIMEOUT"}
    arguments = list(arguments)
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            settings["HELP"] = "1"
        elif argument[:2] in options:
            if not argument[2:] and not arguments:
                raise BadArgument(f"option {argument} needs a value")
            settings[options[argument[:2]]] = argument[2:] or arguments.pop(0)
        elif equals and name.isidentifier():
            settings[name] = value
        else:
            raise BadArgument(f"{argument!r} is not an option of nhc-{hook}")
    path = site_settings.path_of()
    if path:
        try:
            settings.update(site_settings.read(path, settings, hook=True))
        except trust.Untrusted:
            raise
        except ValueError as error:  # a user's mistake, not ours
            from nhc.core.language.problems import ConfigError, Problem

            raise ConfigError([Problem(path, 0, 0, str(error).removeprefix(f"{path}: "))]) from None
    directory = settings["CONFDIR"]
    if "CONFFILE" not in settings:
        own = f"{directory}/nhc-{hook}.conf"
        settings["CONFFILE"] = own if os.path.exists(own) else f"{directory}/nhc.conf"
    settings.setdefault("INCDIR", f"{directory}/scripts")
    return settings
