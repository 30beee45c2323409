"""Shared by the parsers of several tools: launchers' prefixes, progress that overwrites itself, JSON after text."""

from __future__ import annotations

import math

from nhc.core.light import TYPE_CHECKING, regex

if TYPE_CHECKING:
    from typing import Any, Dict, List

# srun -l (`0: `, `12: `), mpirun --tag-output (`[1,0]<stdout>:`), flux and prun alike
_PREFIX = regex(r"^(?:\[\d+,\d+\]<std(?:out|err|diag)>: ?|\d{1,5}: )")


def lines(text: str) -> List[str]:
    """The lines of an output without launchers' prefixes, each as the terminal would show it in the end."""
    shown_lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        visible = line.rstrip("\r")
        if "\r" in visible:
            visible = visible.rpartition("\r")[2]
        if "\b" in visible:
            visible = _erased(visible)
        shown_lines.append(_PREFIX.sub("", visible))
    return shown_lines


def _erased(line: str) -> str:
    """A line with what its backspaces overwrote taken away."""
    kept: List[str] = []
    at = 0
    for char in line:
        if char == "\b":
            at = max(at - 1, 0)
            continue
        kept[at : at + 1] = [char]
        at += 1
    return "".join(kept)


def json_object(text: str) -> Dict[str, Any]:
    """The JSON object of an output that may have other lines before and behind it. Raises ValueError.

    A note before it may hold braces of its own, so that each line that begins with one is tried; the object must be
    whole.
    """
    import json

    decoder = json.JSONDecoder()
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    if at == 0 and not text.startswith("{"):
        at = text.find("{")
    trouble = "no JSON object in it"
    while at >= 0:
        try:
            value, _end = decoder.raw_decode(text, at)
            if isinstance(value, dict):
                return value
        except (ValueError, RecursionError) as error:
            trouble = f"not whole JSON: {error}"[:120]
        step = text.find("\n{", at + 1)
        at = step + 1 if step >= 0 else -1
    raise ValueError(trouble)


def figure(text: object) -> float:
    """A finite decimal number: what a time or a speed must be. Raises ValueError for anything else, NaN among them."""
    value = number(text)
    if not math.isfinite(value):
        raise ValueError(f"{str(text)[:40]!r} is no figure")
    return value


def number(value: object) -> float:
    """A finite or infinite decimal number, NaN among them. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):  # whole numbers have no end in JSON
        raise ValueError(f"{str(value)[:40]!r} is not a number") from None
