"""The node's settings of nhc, /etc/default/nhc or /etc/sysconfig/nhc: one rule for every door.

The hooks, `nhc check local`, the `nhc config` commands, the agent and a fleet's worker on the node judge by the same
variables, matchers and configuration, whoever calls them. A node without such a file pays for two looks for it.
"""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.node_name import target_name

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence

    from nhc.core.host import Host

CONFDIR = "/etc/nhc"
_DIRECTORIES = ("/etc/default", "/etc/sysconfig")
FILES = tuple(f"{directory}/nhc" for directory in _DIRECTORIES)
"""Where the settings may lie, whether or not they do: who runs for long looks there again."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
_SECRET = ("TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "APIKEY", "API_KEY", "_KEY")


class SiteSettings(NamedTuple):
    """What the file says. `path` is empty where there is none.

    `note` says why one that is there is left out, or what its commands complain of.
    """

    path: str = ""
    settings: Mapping[str, str] = {}
    note: str = ""

    @property
    def config(self) -> str:
        """The configuration of this node's checks."""
        return self.settings.get("CONFFILE") or f"{self.settings.get('CONFDIR') or CONFDIR}/nhc.conf"

    @property
    def scripts(self) -> str:
        """The directory of the site's own checks."""
        return self.settings.get("INCDIR") or f"{self.settings.get('CONFDIR') or CONFDIR}/scripts"

    def local_node_name(self, host: Host) -> str:
        """What targets are matched against on this node, by its settings (`nhc.core.system.node_name`)."""
        return target_name(os.environ, self.settings, host.system.hostname())

    def settings_for(self, node: str) -> Mapping[str, str]:
        """The settings for a plan of `node`: the shell of a line sees the name that targets are matched against."""
        return {**self.settings, "HOSTNAME": node} if "HOSTNAME" in self.settings else self.settings

    def paths(self, given: Sequence[str]) -> List[str]:
        """The configurations to read: those that were named, else the node's where it is there or the file names it."""
        if given:
            return list(given)
        return [self.config] if self.settings.get("CONFFILE") or os.path.exists(self.config) else []

    def scripts_directories(self, given: Sequence[str]) -> List[str]:
        """The directories of site scripts: those that were named, else the node's if it is there.

        Raises ConfigError for a named one that is no directory: checks would be missing.
        """
        wrong = [path for path in given if not os.path.isdir(path)]
        if wrong:
            from nhc.core.language.problems import ConfigError, Problem

            raise ConfigError([Problem(path, 0, 0, "no such directory of site scripts") for path in wrong])
        return list(given) or [path for path in (self.scripts,) if os.path.isdir(path)]


def path_of(name: str = "nhc") -> str:
    """The settings file called `name`, "" where there is none.

    Where both directories hold one, LBNL NHC's rule decides: Debian has /etc/default, others /etc/sysconfig.
    """
    paths = [f"{directory}/{name}" for directory in _DIRECTORIES if os.path.exists(f"{directory}/{name}")]
    if len(paths) > 1 and not os.path.exists("/etc/debian_version"):
        return paths[-1]
    return paths[0] if paths else ""


def host_names() -> Dict[str, str]:
    """The variables that the original sets from the node's name before it reads anything."""
    try:
        with open("/proc/sys/kernel/hostname", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        name = ""
    name = name or "localhost"
    return {"HOSTNAME": name, "HOSTNAME_S": name.partition(".")[0]}


def read(
    path: str, known: Mapping[str, str], complaints: Optional[List[str]] = None, *, hook: bool = False
) -> Dict[str, str]:
    """The variables that a settings file sets. Raises OSError, and ValueError where bash finds it wrong.

    As root, and in a hook, raises Untrusted for a file that others can write to.

    What its commands print on standard error is added to `said`.
    Mere literals, as most files hold, are read without the modules that understand words of a shell.
    """
    from nhc.core.language import trust
    from nhc.core.system.bounded_read import read_text

    why = trust.judge_of(trust.rule({}, hook=hook, named=False))(path)
    if why:
        raise trust.Untrusted(why.partition(", or set")[0])
    literals = _literals(read_text(path, errors="replace"))
    if literals is not None:
        return literals

    return read_sysconfig(path, {**host_names(), **known}, complaints)


def site_settings() -> SiteSettings:
    """The settings of this node. A file that cannot be read is left out, and the note says so."""
    path = path_of()
    if not path:
        return SiteSettings()
    complaints: List[str] = []
    try:
        settings = read(path, {"NAME": "nhc", "CONFDIR": CONFDIR}, complaints)
        return SiteSettings(path, settings, "".join(complaints[:1]))
    except OSError as error:
        return SiteSettings(path, note=f"{path} is left out: {error.strerror or error}")
    except ValueError as error:
        return SiteSettings(path, note=f"{path} is left out: {error}")


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is nothing to show."""
    upper = name.upper()
    return any(part in upper for part in _SECRET)


def _literals(text: str) -> Optional[Dict[str, str]]:
    """The variables of a file that only sets literals, None for one that does more."""
    settings: Dict[str, str] = {}
    for raw in text.split("\n"):
        line = raw.strip(" \t")
        if not line or line[0] == "#":
            continue
        name, equals, value = line.removeprefix("export ").lstrip(" \t").partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            return None
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
            if any(char in value for char in "'\"`$\\!"):
                return None
        elif not _PLAIN.issuperset(value):
            return None
        settings[name] = value
    return settings


def shows_output(settings: Mapping[str, str]) -> bool:
    """Whether the output of a line that passed is kept: a user who asks for -v, -d or -e wants to read it."""
    return any(settings.get(name, "0") not in ("", "0") for name in ("VERBOSE", "DEBUG", "EVAL_LINE"))


def read_sysconfig(path: str, known: Mapping[str, str] = {}, complaints: Optional[List[str]] = None) -> Dict[str, str]:
    """The variables that a sysconfig file sets. One that does more than assign literals is read by bash.

    The file can use what is `known` by then: HOSTNAME, NAME, the command line's settings. A command in it that
    fails costs nothing, as in LBNL NHC; what it prints on standard error is added to `said`.
    Raises OSError when it cannot be read, ValueError when bash cannot parse it or does not come to its end.
    """
    from nhc.core.language.shell_words import assignment, split  # most nodes' files set literals alone
    from nhc.core.system.bounded_read import read_text

    text = read_text(path, errors="replace")
    settings: Dict[str, str] = {}
    for line in text.splitlines():
        words = split(line, {**known, **settings}.get)
        if words and words[0].text == "export":
            words = words[1:]
        pairs = [assignment(word) for word in words or ()]
        if words is None or None in pairs:
            return _read_with_bash(path, known, complaints)
        settings.update(pair for pair in pairs if pair)
    return settings


_ARRAYS = r"""
for nhc__i in "${!NHC_MCHECK_DELIM[@]}"; do
    printf 'NHC_MCHECK_DELIM[%s]=%s\0' "$nhc__i" "${NHC_MCHECK_DELIM[nhc__i]}"
    printf 'NHC_MCHECK_COMMAND[%s]=%s\0' "$nhc__i" "${NHC_MCHECK_COMMAND[nhc__i]}"
done; unset nhc__i
"""
"""Prints the arrays of external matchers, which no environment holds."""


def _read_with_bash(path: str, known: Mapping[str, str], complaints: Optional[List[str]] = None) -> Dict[str, str]:
    from nhc.core.system import process

    script = 'bash -n "$1" || exit 1; set -a; . "$1" >/dev/null; set +eu; ' + _ARRAYS + "exec env -0"
    env = {**known, "PATH": process.PATH}
    ended = process.run(["bash", "-c", script, "nhc", path], timeout=5.0, env=env)
    complaint = ended.stderr.strip()
    if ended.timed_out:
        raise ValueError(f"{path}: bash has not read it within 5 s")
    if ended.status or not ended.stdout:
        raise ValueError(f"{path}: bash cannot read it: {complaint or f'it ends the shell with status {ended.status}'}")
    if complaints is not None and complaint:
        complaints.append(complaint.splitlines()[0])
    pairs = (entry.partition("=") for entry in ended.stdout.split("\0") if entry)
    ours = ("PWD", "SHLVL", "_", "OLDPWD")
    return {name: value for name, _, value in pairs if name not in ours and env.get(name) != value}
