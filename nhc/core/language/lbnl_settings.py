"""LBNL NHC's own settings: its command line, its sysconfig file, its defaults, in their order of precedence.

Defaults, then the command line, then /etc/default/NAME or /etc/sysconfig/NAME, then nhc.conf itself; so the
original has it (nhcmain_* in its driver), and a site's files rely on it.
"""

from __future__ import annotations

import re

from nhc.core.language import site_settings
from nhc.core.language.shell_words import assignment, split
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Sequence, Tuple

FLAGS = {"a": "NHC_CHECK_ALL", "d": "DEBUG", "f": "NHC_CHECK_FORKED", "q": "SILENT", "v": "VERBOSE", "x": "TRACE"}
VALUES = {"D": "CONFDIR", "c": "CONFFILE", "e": "EVAL_LINE", "l": "LOGFILE", "n": "NAME", "t": "TIMEOUT"}

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class BadCommandLine(ValueError):
    """The command line is not LBNL NHC's. The original ends with status 10 then."""


class LogFile(NamedTuple):
    """Where output goes: a file and whether to append to it, or standard output where `path` is empty."""

    path: str = ""
    append: bool = True


def parse_command_line(argv: Sequence[str], known: Mapping[str, str] = {}) -> Dict[str, str]:
    """Settings from LBNL NHC's command line: getopts options, then `VAR=value` words. Raises BadCommandLine.

    The original hands those words to `eval`: quotes in them quote, and variables (those of `known`) have their value.
    """
    settings: Dict[str, str] = {}
    arguments = list(argv)
    while arguments and arguments[0].startswith("-") and len(arguments[0]) > 1:
        argument = arguments.pop(0)
        if argument == "--":
            break
        letters = argument[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter == "h":
                settings["HELP"] = "1"
            elif letter in FLAGS:
                settings[FLAGS[letter]] = "1"
            elif letter in VALUES:
                if not letters and not arguments:
                    raise BadCommandLine(f"Option -{letter} requires an argument.")
                settings[VALUES[letter]] = letters or arguments.pop(0)
                letters = ""
            else:
                raise BadCommandLine(f"Invalid option:  -{letter}")
    for argument in arguments:
        match = _ASSIGNMENT.fullmatch(argument)
        if not match:
            raise BadCommandLine(f"{argument!r} is not a setting (VAR=value)")
        evaluated = None
        if any(sign in match[2] for sign in "'\"$\\"):
            evaluated = split(argument, {**known, **settings}.get)
        pairs = [assignment(part) for part in evaluated or ()]
        name, value = pairs[0] if len(pairs) == 1 and pairs[0] else (match[1], match[2])
        settings[name] = value
    return settings


def resolve(argv: Sequence[str], environ: Mapping[str, str], program: str) -> Tuple[Dict[str, str], List[str]]:
    """All settings in force before nhc.conf is read, and warnings. Raises BadCommandLine.

    `program` is the name the command was called by, which names its files unless -n says otherwise.
    """
    warnings: List[str] = []
    settings = {"NAME": program}
    if "MARK_OFFLINE" in environ:
        settings["MARK_OFFLINE"] = environ["MARK_OFFLINE"]
    names = site_settings.host_names()
    settings.update(parse_command_line(argv, names))
    path = site_settings.path_of(settings["NAME"])
    if path:
        try:
            settings.update(site_settings.read(path, {"PATH": process.PATH, **settings}, warnings))
        except (OSError, ValueError) as error:
            warnings.append(f"{path} is left out: {error}")
    defaults = {"CONFDIR": "/etc/nhc", "MARK_OFFLINE": "1", "TIMEOUT": "30", "NHC_CHECK_ALL": "0", "SILENT": "0",
                "VERBOSE": "0", "DEBUG": "0", "DETACHED_MODE": "0"}  # fmt: skip
    settings = {**defaults, **settings}
    settings.setdefault("CONFFILE", f"{settings['CONFDIR']}/{settings['NAME']}.conf")
    settings.setdefault("INCDIR", f"{settings['CONFDIR']}/scripts")
    settings.setdefault("LOGFILE", f">>/var/log/{settings['NAME']}.log 2>&1")
    return settings, warnings


def log_target(spec: str) -> LogFile:
    """What a LOGFILE setting means: `-`, a path, or the redirection that the original hands to `exec`."""
    if spec in ("-", ""):
        return LogFile()
    match = re.match(r"\s*(>{1,2})\s*([^\s&|<>]+)", spec)
    if match:
        return LogFile(match[2], match[1] == ">>")
    return LogFile(spec.split(maxsplit=1)[0])
