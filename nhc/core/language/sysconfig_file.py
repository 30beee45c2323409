"""A settings file that does more than set literals: words of a shell, read here, or by bash where only it can."""

from __future__ import annotations

from nhc.core.language.shell_words import assignment, split
from nhc.core.light import TYPE_CHECKING
from nhc.core.system import process
from nhc.core.system.bounded_read import read_text

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional


def read_sysconfig(path: str, known: Mapping[str, str] = {}, complaints: Optional[List[str]] = None) -> Dict[str, str]:
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
