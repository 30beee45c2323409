"""External matchers: a site's own command decides whether a node's name matches (`<@rack4>`).

They are set, before the configuration is read, by the arrays NHC_MCHECK_DELIM (one character, or the
opening and the closing one) and NHC_MCHECK_COMMAND, in which `%h` stands for the string and `%m` for the
match string without its delimiters. Both are handed to the shell as its arguments: a node's name, or a
line of output, is never part of the command's text.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.language import shell_words
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import External, Undecided

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

TIMEOUT = 5.0


def elements(settings: Mapping[str, str], name: str) -> Dict[int, str]:
    """A bash array as settings carry it: `NAME` holds `( a b )` or its first element, `NAME[3]` one element."""
    by_index: Dict[int, str] = {}
    for key, value in settings.items():
        indexed = re.fullmatch(rf"{name}(?:\[(\d+)\])?", key)
        if not indexed:
            continue
        inside = re.fullmatch(r"\s*\((.*)\)\s*", value, re.DOTALL)
        if indexed[1] or not inside:
            by_index[int(indexed[1] or 0)] = value
            continue
        for place, word in enumerate(shell_words.split(inside[1].replace("\n", " ")) or []):
            placed = re.fullmatch(r"\[(\d+)\]=(.*)", word.text, re.DOTALL)
            by_index[int(placed[1]) if placed else place] = placed[2] if placed else word.text
    return by_index


def matcher_from(settings: Mapping[str, str], host: Optional[Host] = None) -> Optional[External]:
    """The matcher that the settings describe, None where they describe none."""
    commands = elements(settings, "NHC_MCHECK_COMMAND")
    rules: List[Tuple[str, str]] = [
        (delimiters, commands[place])
        for place, delimiters in sorted(elements(settings, "NHC_MCHECK_DELIM").items())
        if delimiters and commands.get(place)
    ]
    if not rules:
        return None
    machine = host or Host(settings=settings)

    def external(string: str, pattern: str) -> Optional[bool]:
        for delimiters, command in rules:
            if len(pattern) > 1 and pattern[0] == delimiters[0] and pattern[-1] == delimiters[-1]:
                if not string:
                    return False  # only whether such a match string is one of these was asked: no node has this name
                script = command.replace("%h", '"$1"').replace("%m", '"$2"')
                try:
                    done = machine.run(["bash", "-f", "-c", script, "nhc", string, pattern[1:-1]], timeout=TIMEOUT)
                except OSError as error:
                    raise Undecided(f"its matcher could not be started: {error.strerror}") from None
                if done.timed_out:
                    raise Undecided(f"its matcher did not end within {TIMEOUT:g} s")
                if done.status in (126, 127):  # bash: not executable, not found
                    raise Undecided(f"its matcher could not be run: {done.stderr.strip()[-200:]}")
                return done.status == 0
        return None

    return external
