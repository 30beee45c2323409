"""A check: tasks do not wait for memory, processors or disks for most of a minute."""

from __future__ import annotations

from nhc.api import Host, Outcome, arg, check, crit, number, ok, skip, unknown
from nhc_example.fact import pressure


def _resource(word: str) -> str:
    if word not in ("cpu", "memory", "io"):
        raise ValueError(f"{word!r} is none of cpu, memory, io")
    return word


@check(
    "check_pressure",
    arg("resource", _resource, "cpu, memory or io", "memory"),
    arg("most", number, "the greatest part of the last minute, in percent", 40.0),
    timeout=2,
    tags=("memory",),
)
def check_pressure(host: Host, resource: str, most: float) -> Outcome:
    """Tasks do not wait for a resource for most of a minute.

    Reads avg60 of the line "full" in /proc/pressure, of "some" for processors. SKIP where the kernel keeps none.

    Example: * || check_pressure memory 20
    """
    try:
        found = pressure(host, resource)
    except FileNotFoundError:
        return skip("NoPressure", "this kernel keeps no pressure stall information")
    except ValueError as error:
        return unknown("BadData", f"/proc/pressure/{resource}: {error}")
    waited = found["some"] if resource == "cpu" else found.get("full", 0.0)
    message = f"tasks waited for {resource} for {waited:g}% of the last minute"
    if waited > most:
        return crit("PressureHigh", f"{message}, at most {most:g}% is expected", target=resource)
    return ok(message, target=resource)
