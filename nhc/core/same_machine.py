"""Whether another machine has a node's name: one rule for the node's own memory, its gate, the store and the loop.

What is known of a machine (its faults, its repairs, its proofs) is nothing of the one that took its place. Marks are
compared: serial numbers, the system UUID, a cloud's instance. A mark that one of both lacks says nothing.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Mapping

PLACEHOLDERS = frozenset({
    "none", "not specified", "not available", "not applicable", "n/a", "unknown", "default string",
    "to be filled by o.e.m.", "system serial number", "base board serial number",
    "03000200-0400-0500-0006-000700080009",
})  # fmt: skip
"""What vendors leave in SMBIOS where a number belongs, in lower case: machines share these."""


def another_machine(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether `now` are the marks of another machine than `before`, both by their names."""
    marks = ((_mark(before[name]), _mark(now[name])) for name in before if name in now)
    return any(old != new for old, new in marks if old and new)


def _mark(value: str) -> str:
    """A mark as it is compared, "" for one that names no machine. Of a provider's id the instance: what comes before
    it (`aws:///us-east-1a/`) is known only once the metadata service has answered.
    """
    mark = value.strip().rpartition("/")[2].lower()
    return "" if mark in PLACEHOLDERS or set(mark) <= {"-", mark[:1]} & set("-0fx ") else mark
