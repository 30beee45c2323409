"""Pressure stall information (Linux: Documentation/accounting/psi.rst): a parser, and what asks the node."""

from __future__ import annotations

from nhc.api import Host


def parse_pressure(text: str) -> dict[str, float]:
    """Percent of the last minute in which "some" and "full" tasks waited. Raises ValueError for other content."""
    found = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        values = dict(field.partition("=")[::2] for field in fields)
        if kind not in ("some", "full") or "avg60" not in values:
            raise ValueError(f"not pressure: {line[:60]!r}")
        found[kind] = float(values["avg60"])
    if "some" not in found:
        raise ValueError("not pressure: no line for some")
    return found


def pressure(host: Host, resource: str) -> dict[str, float]:
    """Of `cpu`, `memory` or `io`. Raises FileNotFoundError where the kernel keeps none, ValueError."""
    return parse_pressure(host.read(f"/proc/pressure/{resource}"))
