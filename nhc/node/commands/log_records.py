"""Records of several lines in the text of a kernel log."""

from __future__ import annotations

from typing import Optional

from nhc.node.facts.kernel_lines import message
from nhc.node.kernlog.catalogue import lines_of


def record_of(text: str, start: int) -> Optional[str]:
    """An indented line as what it is: a further line of the record above, whose stamp stands before the first one."""
    end = text.find("\n", start)
    line = text[start : None if end < 0 else end].rstrip("\r")
    first = start
    while first and text.startswith("  ", first):
        first = text.rfind("\n", 0, first - 1) + 1
    head = message(text[first : text.find("\n", first)].rstrip("\r"))
    if head is None or first == start:
        return message(line)
    *_others, last = lines_of(f"{head}\n{line}")
    return last if len(_others) else message(line)
