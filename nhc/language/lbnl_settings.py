"""LBNL NHC's own settings: its command line, its sysconfig file, its defaults, in their order of precedence.

Defaults, then the command line, then /etc/default/NAME or /etc/sysconfig/NAME, then nhc.conf itself; so the
original has it (nhcmain_* in its driver), and a site's files rely on it.
"""

from __future__ import annotations

import re

from nhc.language import site_settings
from nhc.language.shell_words import assignment, split
from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.system import process
from nhc.system.bounded_read import read_text

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence, Tuple

FLAGS = {"a": "NHC_CHECK_ALL", "d": "DEBUG", "f": "NHC_CHECK_FORKED", "q": "SILENT", "v": "VERBOSE", "x": "TRACE"}
VALUES = {"D": "CONFDIR", "c": "CONFFILE", "e": "EVAL_LINE", "l": "LOGFILE", "n": "NAME", "t": "TIMEOUT"}

UNSET = (
    "CONFDIR", "CONFFILE", "INCDIR", "HELPERDIR", "ONLINE_NODE", "OFFLINE_NODE", "LOGFILE", "DEBUG", "SILENT",
    "VERBOSE", "TIMEOUT", "RESULTFILE", "MAX_SYS_UID", "NHC_RM", "NHC_CHECK_ALL", "NHC_CHECK_FORKED", "EVAL_LINE",
)  # fmt: skip
"""Variables of the caller's environment that do not count: they must be set on the command line or in the files."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class BadCommandLine(ValueError):
    """The command line is not LBNL NHC's. The original ends with status 10 then."""


class Log(NamedTuple):
    """Where output goes: a file and whether to append to it, or standard output where `path` is empty."""

    path: str = ""
    append: bool = True


def parse_command_line(argv: Sequence[str], known: Mapping[str, str] = {}) -> Dict[str, str]:
    """Settings from LBNL NHC's command line: getopts options, then `VAR=value` words. Raises BadCommandLine.

    The original hands those words to `eval`: quotes in them quote, and variables (those of `known`) have their value.
    """
    settings: Dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-") and len(words[0]) > 1:
        word = words.pop(0)
        if word == "--":
            break
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter == "h":
                settings["HELP"] = "1"
            elif letter in FLAGS:
                settings[FLAGS[letter]] = "1"
            elif letter in VALUES:
                if not letters and not words:
                    raise BadCommandLine(f"Option -{letter} requires an argument.")
                settings[VALUES[letter]] = letters or words.pop(0)
                letters = ""
            else:
                raise BadCommandLine(f"Invalid option:  -{letter}")
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if not match:
            raise BadCommandLine(f"{word!r} is not a setting (VAR=value)")
        evaluated = None
        if any(sign in match[2] for sign in "'\"$\\"):
            evaluated = split(word, {**known, **settings}.get)
        pairs = [assignment(one) for one in evaluated or ()]
        name, value = pairs[0] if len(pairs) == 1 and pairs[0] else (match[1], match[2])
        settings[name] = value
    return settings


def host_names() -> Dict[str, str]:
    """The variables that the original sets from the node's name before it reads anything."""
    try:
        with open("/proc/sys/kernel/hostname", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        name = ""
    name = name or "localhost"
    return {"HOSTNAME": name, "HOSTNAME_S": name.partition(".")[0]}


def read_sysconfig(path: str, known: Mapping[str, str] = {}, said: Optional[List[str]] = None) -> Dict[str, str]:
    """The variables that a sysconfig file sets. One that does more than assign literals is read by bash.

    The file can use what is `known` by then: HOSTNAME, NAME, the command line's settings. A command in it that
    fails costs nothing, as in LBNL NHC; what it prints on standard error is added to `said`.
    Raises OSError when it cannot be read, ValueError when bash cannot parse it or does not come to its end.
    """
    text = read_text(path, errors="replace")
    settings: Dict[str, str] = {}
    for line in text.splitlines():
        words = split(line, {**known, **settings}.get)
        if words and words[0].text == "export":
            words = words[1:]
        pairs = [assignment(word) for word in words or ()]
        if words is None or None in pairs:
            return _read_with_bash(path, known, said)
        settings.update(pair for pair in pairs if pair)
    return settings


_ARRAYS = r"""
for nhc__i in "${!NHC_MCHECK_DELIM[@]}"; do
    printf 'NHC_MCHECK_DELIM[%s]=%s\0' "$nhc__i" "${NHC_MCHECK_DELIM[nhc__i]}"
    printf 'NHC_MCHECK_COMMAND[%s]=%s\0' "$nhc__i" "${NHC_MCHECK_COMMAND[nhc__i]}"
done; unset nhc__i
"""
"""Prints the arrays of external matchers, which no environment holds."""


def _read_with_bash(path: str, known: Mapping[str, str], said: Optional[List[str]] = None) -> Dict[str, str]:
    script = 'bash -n "$1" || exit 1; set -a; . "$1" >/dev/null; set +eu; ' + _ARRAYS + "exec env -0"
    env = {**known, "PATH": process.PATH}
    ended = process.run(["bash", "-c", script, "nhc", path], timeout=5.0, env=env)
    complaint = ended.stderr.strip()
    if ended.timed_out:
        raise ValueError(f"{path}: bash has not read it within 5 s")
    if ended.status or not ended.stdout:
        raise ValueError(f"{path}: bash cannot read it: {complaint or f'it ends the shell with status {ended.status}'}")
    if said is not None and complaint:
        said.append(complaint.splitlines()[0])
    pairs = (entry.partition("=") for entry in ended.stdout.split("\0") if entry)
    ours = ("PWD", "SHLVL", "_", "OLDPWD")
    return {name: value for name, _, value in pairs if name not in ours and env.get(name) != value}


def resolve(argv: Sequence[str], environ: Mapping[str, str], program: str) -> Tuple[Dict[str, str], List[str]]:
    """All settings in force before nhc.conf is read, and warnings. Raises BadCommandLine.

    `program` is the name the command was called by, which names its files unless -n says otherwise.
    """
    warnings: List[str] = []
    settings = {"NAME": program}
    if "MARK_OFFLINE" in environ:
        settings["MARK_OFFLINE"] = environ["MARK_OFFLINE"]
    names = host_names()
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


def log_target(spec: str) -> Log:
    """What a LOGFILE setting means: `-`, a path, or the redirection that the original hands to `exec`."""
    if spec in ("-", ""):
        return Log()
    match = re.match(r"\s*(>{1,2})\s*([^\s&|<>]+)", spec)
    if match:
        return Log(match[2], match[1] == ">>")
    return Log(spec.split(maxsplit=1)[0])
