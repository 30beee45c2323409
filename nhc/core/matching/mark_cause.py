"""Whether two explanations of a mark tell of the same cause: the same words, whatever figures stand in them.

A reason such as `check_fs_free: / has only 93848 kB free` is a new text at every run while nothing new has happened.
Setting it each time would cost a call to the scheduler, and `sinfo -R` would forget since when the node is out.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Collection, List

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_MORE = re.compile(r"\s*\(and \d+ more\)$")
_NOTE = re.compile(rf"\s*\[[^\[\]]*{_STAMP}[^\[\]]*\]")  # how often, and when last: of the kernel log's findings
_TIME = re.compile(rf"{_STAMP}|(?<![\w:.])\d\d:\d\d:\d\d(?![\w:.])")
_TOKEN = re.compile(r"[^\s()\[\]{}<>=,;\"'|~]+")
_UNIT = (
    r"(?:[kKMGTPE]?(?:i?[bB](?:it|ytes?)?)?(?:/s)?|%|[mnu\u00b5]?s(?:ec|econds?)?|m(?:in)?|h|d|w|\u00b0?C|[mk]?[WVA]|"
    r"[kMG]?Hz|GT/s|rpm|x)"
)
_FIGURE = re.compile(
    rf"[-+]?\d+(?:\.\d+)?{_UNIT}(?:/\d+(?:\.\d+)?{_UNIT})*|(?:\d+[wdhms]){{2,}}|0x[0-9a-fA-F]+", re.ASCII
)


def same_words(text: str, other: str, kept: Collection[str] = ()) -> bool:
    """Whether both say the same but for their figures. `kept` are numbers that are names: a device's, an error's."""
    first, second = _words(text, kept), _words(other, kept)
    if text.endswith("\u2026") or other.endswith("\u2026") or "\u2026 (and" in text or "\u2026 (and" in other:
        shorter = min(len(first), len(second)) - 1  # cut where the figures before it left no more room: in a word
        first, second = first[:shorter], second[:shorter]
    return bool(first) and first == second


def _words(text: str, kept: Collection[str]) -> List[str]:
    text = _NOTE.sub("", _MORE.sub("", text))
    text = _TIME.sub(" 0 ", text)
    words = (word.rstrip(".:!?\u2026") or word for word in _TOKEN.findall(text))
    return ["0" if word not in kept and _FIGURE.fullmatch(word) else word for word in words]
