"""What deep checks share: they run a tool, want proof that it ran, and hold its figures to what such a machine reaches.

Three outcomes: it ran and the node is bad (CRIT), it ran and the node is good (OK), and it could not tell (UNKNOWN): a
tool that is missing, a deadline, an output that is cut off, a wrong transport, no figure to hold the speed to. Exit
status 0 alone is never proof. They run in `nhc deep run` alone, which has seen that the node is free.
"""

from __future__ import annotations

import os

from nhc.check import opt
from nhc.facts import expected
from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.model import Action, Metric, Outcome, crit, ok, printable, unknown
from nhc.units import number, show_seconds

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple, Union

    from nhc.host import Completed, Host
    from nhc.system.process import Look

RUN, SCRATCH, KIND = "NHC_DEEP_RUN", "NHC_DEEP_SCRATCH", "NHC_DEEP_KIND"
"""What `nhc deep run` sets: its own id, a folder of its own, and the names of the node's type, the best first."""

OVERHEAD = 120.0
"""Seconds that a tool gets to begin and to end, beyond the time that it loads the node."""

START = 60.0
"""Seconds by which the check's own deadline for a tool is earlier than the engine's for the check."""

READY = 10.0
"""Seconds that starting the other end of a test may take."""

NONE = -1.0
"""What `--floor none` gives: the figure is measured and not judged."""

EVIDENCE = 12


def floor_value(value: str) -> float:
    """A figure to hold a result to, or `none`."""
    return NONE if value == "none" else number(value)


FLOOR = opt(
    "-f --floor",
    "floor",
    floor_value,
    "the worst figure that passes, in the unit of the metric; none: measure only (default: by the node's type)",
)


class Measured(NamedTuple):
    """A figure with what it is about. `size` in bytes is the named row's; `device` the product name of a GPU.

    `name` is the metric's in reports, where it was measured otherwise than usual: a table may have a row of that name.
    """

    metric: str
    value: float
    unit: str
    target: str = ""
    size: int = 0
    device: str = ""
    at_least: bool = True
    name: str = ""


def attempt(
    host: Host,
    argv: Sequence[str],
    timeout: float,
    stdin: str = "",
    during: Optional[Look] = None,
) -> Union[Completed, Outcome]:
    """Run a tool; how it ended, or the UNKNOWN for one that could not run or not end. An `env A=b` may precede it."""
    if not host.setting(RUN):
        return unknown("DeepNotAlone", "deep checks run in nhc deep run only, which sees to it that the node is free")
    tool = next((word for word in argv[1:] if "=" not in word), argv[0]) if argv[0] == "env" else argv[0]
    if host.which(tool) is None:
        return unknown("CommandMissing", f"{tool} is not installed")
    try:
        done = host.run(argv, timeout, stdin, during)
    except OSError as error:
        return unknown("CommandUnusable", f"{tool} cannot be run: {error.strerror}")
    if done.timed_out:
        return unknown(
            "DeepTimeout",
            f"{base(tool)} had not ended after {show_seconds(timeout)} and was ended",
            evidence=tail(done),
        )
    return done


def base(tool: str) -> str:
    return os.path.basename(tool)


def tail(done: Completed) -> Tuple[str, ...]:
    """The last lines of what a tool wrote."""
    lines = [printable(line, 300) for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return tuple(lines[-EVIDENCE:])


def no_proof(tool: str, why: str, done: Optional[Completed] = None, target: str = "") -> Outcome:
    """A tool ended without showing that its test ran."""
    said = f"{tool} gave no proof that its test ran: {why}"
    return unknown("DeepNoProof", said, target=target, evidence=tail(done) if done else ())


def unreadable(tool: str, error: ValueError, done: Completed) -> Outcome:
    """A tool's output makes no sense."""
    ended = f" (status {done.status})" if done.status else ""
    return unknown("DeepOutput", f"the output of {tool} cannot be read{ended}: {error}", evidence=tail(done))


def kinds(host: Host) -> List[str]:
    return host.setting(KIND).split()


def hold(host: Host, measured: Measured, floor: Optional[float], wanted: bool = True) -> Outcome:
    """Judge a figure: by `floor` where the line has one, else by the site's table, else by ours.

    Without any of them a speed cannot be judged: UNKNOWN, or OK with a word on it where the speed is not what the test
    is for (`wanted` false).
    """
    name = measured.name or measured.metric
    metric = Metric(name, measured.value, measured.unit)
    said = f"{measured.target}: " if measured.target else ""
    text = f"{said}{name.replace('_', ' ')} {show(measured.value)} {measured.unit}"
    if not 0 < measured.value < float("inf"):  # NaN is neither; a speed or a time of 0 was never measured
        return unknown("DeepOutput", f"{text} is no figure", target=measured.target)
    row: Optional[expected.Expected]
    if floor == NONE:
        return ok(f"{text}, not judged", target=measured.target, metrics=(metric,))
    if floor is not None:
        row = expected.Expected("", measured.metric, measured.at_least, floor or 1e-9, measured.unit, 0.0, 0, "--floor")
    else:
        try:
            tables = host.fact(expected.tables)
        except (OSError, ValueError) as error:
            return unknown("DeepTable", str(error), target=measured.target, metrics=(metric,))
        row = next(
            filter(None, (expected.find(tables, kinds(host), one, measured.size, measured.device)
                          for one in dict.fromkeys((name, measured.metric)))), None,
        )  # fmt: skip
    if row is None:
        if not wanted:
            return ok(f"{text}, speed not judged", target=measured.target, metrics=(metric,))
        what = measured.device or " ".join(kinds(host)[:1]) or "a machine of this type"
        return unknown(
            "DeepNoThreshold",
            f"{text}; nothing is known of what {what} should reach (nhc deep calibrate)",
            target=measured.target,
            metrics=(metric,),
        )
    if row.unit != measured.unit:
        message = f"{text} is not in {row.unit}, as the figure of {row.source} is"
        return unknown("DeepTable", message, target=measured.target, metrics=(metric,))
    limits = (metric, Metric(f"{name}_threshold", row.threshold, row.unit))
    bound = "at least" if row.at_least else "at most"
    why = f"expected {bound} {show(row.threshold)} ({row.source})"
    if row.holds(measured.value):
        return ok(f"{text}, {why}", target=measured.target, metrics=limits)
    return crit("DeepSlow", f"{text}, {why}", target=measured.target, metrics=limits, action=Action.INSPECT)


def show(value: float) -> str:
    """A figure for a person: four significant digits."""
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def scratch(host: Host) -> str:
    """A folder on disk that is this run's own and goes with it. "" outside of a run."""
    return host.setting(SCRATCH)


def serve(host: Host, argv: Sequence[str], log: str) -> None:
    """Start the other end of a test and do not wait for it; what it writes goes to `log`. Raises OSError.

    In a session of its own, since what is left of a command's group is ended with the command: it says so through the
    pipe before the command ends. The run ends it.
    """
    inner = 'echo; exec "$@" >"$0" 2>&1 </dev/null'
    host.run(["sh", "-c", 'setsid -f sh -c "$0" "$@" | { read -r line; }', inner, log, *argv], READY)
