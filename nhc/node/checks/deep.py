"""What deep checks share: they run a tool, require proof that it ran, and compare its figures with expected ones.

Three outcomes: it ran and the node is bad (CRIT), it ran and the node is good (OK), and it could not tell (UNKNOWN): a
deadline, an output that is cut off, a wrong transport. Exit status 0 alone is never proof. If a tool is not installed,
the result is SKIP. If there is nothing to compare a speed with, the result is OK with a note that it was not judged.
They run only in `nhc deep run`, which has checked that the node is free.
"""

from __future__ import annotations

import os

from nhc.core.check import opt
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, Verdict, crit, ok, printable, skip, unknown, warn
from nhc.core.units import number, show_seconds
from nhc.node.facts import expected

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

    from nhc.core.host import Completed, Host
    from nhc.core.system.process import Look

    Result = TypeVar("Result")

RUN, SCRATCH, KIND = "NHC_DEEP_RUN", "NHC_DEEP_SCRATCH", "NHC_DEEP_KIND"
"""What `nhc deep run` sets: its own id, a folder of its own, and the names of the node's type, the best first."""

REQUIRE = "NHC_DEEP_REQUIRE"
"""Tools that must be installed, separated by blanks, or `all`: `nhc deep run --require`, or a line of the suite."""

OVERHEAD = 120.0
"""Seconds that a tool gets to begin and to end, beyond the time that it loads the node."""

START = 60.0
"""Seconds by which the check's own deadline for a tool is earlier than the engine's for the check."""

READY = 10.0
"""Seconds that starting the other end of a test may take."""

ENOUGH = 0.95
"""Share of the requested time that must have passed: a run that was ended early may report success."""

NONE = -1.0
"""What `--floor none` gives: the figure is measured and not judged."""

EVIDENCE = 12


def floor_value(value: str) -> float:
    """A figure to compare a result with, or `none`."""
    return NONE if value == "none" else number(value)


FLOOR = opt(
    "-f --floor",
    "floor",
    floor_value,
    "the worst figure that passes, in the unit of the metric; none: measure only (default: by the node's type)",
)


class Measured(NamedTuple):
    """A figure and what it describes. `size` in bytes is the named row's; `device` the product name of a GPU.

    `name` is the metric's name in reports if it was measured in an unusual way: a table may have a row of that name.
    `wire` is what the link below carries, in the same unit, 0 if that is not known.
    """

    metric: str
    value: float
    unit: str
    target: str = ""
    size: int = 0
    device: str = ""
    at_least: bool = True
    name: str = ""
    wire: float = 0.0


HARD = 0.75
"""Share of a built-in figure below which a speed is CRIT. Above it, machines, shapes and clocks differ as much."""
WIRE_HARD, WIRE_USUAL = 0.5, 0.75
"""Shares of what a PCIe link carries: below half, lanes or a generation are lost; healthy links reach 79 to 88 percent
(H100 and H200, Gen5 x16, nvbandwidth 0.8)."""
BEHIND = 0.10
"""Share by which a device may stay behind the median of its peers: gpu-fryer's tolerance. 5 percent is usual."""
PEERS = 3
"""The fewest devices of a model in one run whose median is meaningful."""


NOT_ALONE = unknown("DeepNotAlone", "deep checks run in nhc deep run only, which sees to it that the node is free")


def attempt(
    host: Host,
    argv: Sequence[str],
    timeout: float,
    stdin: str = "",
    during: Optional[Look] = None,
) -> Union[Completed, Outcome]:
    """Run a tool; how it ended, or the UNKNOWN for one that could not run or not end. An `env A=b` may precede it."""
    if not host.setting(RUN):
        return NOT_ALONE
    tool = next((argument for argument in argv[1:] if "=" not in argument), argv[0]) if argv[0] == "env" else argv[0]
    path = located(host, tool)
    if not path:
        return missing(host, f"{base(tool)} is not installed", tool)
    if path != tool:
        argv = [path if argument == tool else argument for argument in argv]
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


def measure(
    host: Host, argv: Sequence[str], timeout: float, tool: str, read: Callable[[Completed], Result],
    during: Optional[Look] = None,
) -> Union[Tuple[Completed, Result], Outcome]:  # fmt: skip
    """Run a tool and read what it wrote; the UNKNOWN if it did not run or end, or its output makes no sense."""
    done = attempt(host, argv, timeout, during=during)
    if isinstance(done, Outcome):
        return done
    try:
        return done, read(done)
    except ValueError as error:
        return unreadable(tool, error, done)


OPTIONAL = ("/opt/rocm/bin", "/opt/aws/neuron/bin", "/opt/gpu-burn", "/opt/nccl-tests/build", "/opt/rccl-tests/build")
"""Where ROCm, Neuron and sites install tools that are not in PATH."""


def located(host: Host, tool: str) -> str:
    """How to call a tool: by its name where PATH has it, else by its path in one of OPTIONAL; "" for neither."""
    if host.which(tool) is not None:
        return tool
    paths = [] if "/" in tool else [f"{directory}/{tool}" for directory in OPTIONAL]
    return next((path for path in paths if host.which(path) is not None), "")


def missing(host: Host, message: str, *tools: str) -> Outcome:
    """What a missing tool means: SKIP, since the node is no worse for it; UNKNOWN if one of `tools` is required."""
    required = host.setting(REQUIRE).split()
    wanted = "all" in required or any(tool in required or base(tool) in required for tool in tools)
    return (unknown if wanted else skip)("CommandMissing", message)


def chosen(host: Host, what: str, value: int) -> int:
    """A number chosen by what is free now, for a command line; a replay uses the recorded number."""
    try:
        kept = host.system.ask(what, lambda: value)
    except FileNotFoundError:  # a recording of an earlier version
        return value
    return int(kept)


def base(tool: str) -> str:
    return os.path.basename(tool)


def tail(done: Completed) -> Tuple[str, ...]:
    """The last lines of what a tool wrote."""
    return tuple(printable(line, 300) for line in done.tail(EVIDENCE))


def no_proof(tool: str, why: str, done: Optional[Completed] = None, target: str = "") -> Outcome:
    """A tool ended without showing that its test ran."""
    message = f"{tool} gave no proof that its test ran: {why}"
    return unknown("DeepNoProof", message, target=target, evidence=tail(done) if done else ())


def unreadable(tool: str, error: ValueError, done: Completed) -> Outcome:
    """A tool's output makes no sense."""
    ended = f" (status {done.status})" if done.status else ""
    return unknown("DeepOutput", f"the output of {tool} cannot be read{ended}: {error}", evidence=tail(done))


def kinds(host: Host) -> List[str]:
    return host.setting(KIND).split()


def hold(host: Host, measured: Measured, floor: Optional[float]) -> Outcome:
    """Judge a figure by a fair comparison: by `floor` if the line has one, else by a table, else by its link.

    Below the line's floor or the site's table is CRIT. A built-in figure was measured on another machine: below 75
    percent of it is CRIT, from there to its tolerance WARN. Without any of them it is OK, with a note that it was not
    judged. `nhc deep run` measures what is CRIT again before it stays so.
    """
    name = measured.name or measured.metric
    metric = Metric(name, measured.value, measured.unit)
    prefix = f"{measured.target}: " if measured.target else ""
    text = f"{prefix}{name.replace('_', ' ')} {show(measured.value)} {measured.unit}"
    if not 0 < measured.value < float("inf"):  # NaN is neither; a speed or a time of 0 was never measured
        return unknown("DeepOutput", f"{text} is no figure", target=measured.target)
    if floor == NONE:
        return ok(f"{text}, {UNJUDGED}", target=measured.target, metrics=(metric,))
    if floor is not None:
        own = expected.Expected("", measured.metric, measured.at_least, floor or 1e-9, measured.unit, 0.0, 0, "--floor")
        return _held(measured, text, metric, own.threshold, own.threshold, own)
    try:
        site, shipped = host.fact(expected.tables)
    except (OSError, ValueError) as error:
        return unknown("DeepTable", str(error), target=measured.target, metrics=(metric,))
    row = _row(site, host, measured)
    if row is not None:
        return _held(measured, text, metric, row.threshold, row.threshold, row)
    row = _row(shipped, host, measured)
    if row is not None:
        return _held(measured, text, metric, row.share(HARD), row.threshold, row)
    if measured.wire:
        row = expected.Expected("", measured.metric, True, measured.wire, measured.unit, 1 - WIRE_USUAL, 0, "its link")
        source = f"{WIRE_USUAL:.0%} of the {show(measured.wire)} {measured.unit} that its link carries"
        return _held(measured, text, metric, row.share(WIRE_HARD), row.threshold, row._replace(source=source))
    return ok(f"{text}, {UNJUDGED}", target=measured.target, metrics=(metric,))


UNJUDGED = "speed not judged"
"""The note on a figure that nothing can be compared with."""
SLOW = "DeepSlow"


def _row(table: Sequence[expected.Expected], host: Host, measured: Measured) -> Optional[expected.Expected]:
    names = dict.fromkeys((measured.name or measured.metric, measured.metric))
    rows = (expected.find([table], kinds(host), name, measured.size, measured.device) for name in names)
    return next(filter(None, rows), None)


def _held(
    measured: Measured, text: str, metric: Metric, hard: float, usual: float, row: expected.Expected
) -> Outcome:  # fmt: skip
    """CRIT beyond `hard`, WARN beyond `usual`."""
    if row.unit != measured.unit:
        message = f"{text} is not in {row.unit}, as the figure of {row.source} is"
        return unknown("DeepTable", message, target=measured.target, metrics=(metric,))
    limits = (metric, Metric(f"{metric.name}_threshold", usual, row.unit))
    why = f"{text}, expected {'at least' if row.at_least else 'at most'} {show(usual)} ({row.source})"
    if _beyond(measured.value, hard, row.at_least):
        return crit(SLOW, why, target=measured.target, metrics=limits, action=Action.INSPECT)
    if _beyond(measured.value, usual, row.at_least):
        return warn(SLOW, why, target=measured.target, metrics=limits)
    return ok(why, target=measured.target, metrics=limits)


def _beyond(value: float, limit: float, at_least: bool) -> bool:
    return value < limit if at_least else value > limit


def among_peers(
    outcomes: Sequence[Outcome], models: Mapping[str, str], floor: Optional[float]
) -> List[Outcome]:  # fmt: skip
    """Compare figures of one run with those of their peers: the same metric of devices of one model. `models` is by
    target.

    More than 10 percent beyond the median of three or more is CRIT, WARN if there are two. Not with `-f none`.
    """
    groups: Dict[Tuple[str, str], List[float]] = {}
    for outcome in outcomes:
        if outcome.target and outcome.metrics and outcome.verdict is not Verdict.UNKNOWN:
            figure = outcome.metrics[0]
            groups.setdefault((figure.name, models.get(outcome.target, "")), []).append(figure.value)

    def beside_peers(outcome: Outcome) -> Outcome:
        if outcome.verdict not in (Verdict.OK, Verdict.WARN) or not outcome.target or not outcome.metrics:
            return outcome
        peers = sorted(groups[outcome.metrics[0].name, models.get(outcome.target, "")])
        return _beside(outcome, peers) if len(peers) > 1 and floor != NONE else outcome

    return [beside_peers(outcome) for outcome in outcomes]


def _beside(outcome: Outcome, peers: Sequence[float]) -> Outcome:
    figure = outcome.metrics[0]
    least = figure.unit != "us"
    few = len(peers) < PEERS
    typical = (peers[-1 if least else 0]) if few else median(peers)
    if not _beyond(figure.value, typical * (1 - BEHIND if least else 1 + BEHIND), least):
        return outcome
    what = "its only peer" if few else f"the median of its {len(peers)} peers"
    message = f"{outcome.message}; {what} gives {show(typical)} {figure.unit}"
    if few:
        return warn(SLOW, message, target=outcome.target, metrics=outcome.metrics)
    return crit(SLOW, message, target=outcome.target, metrics=outcome.metrics, action=Action.INSPECT)


def median(ordered: Sequence[float]) -> float:
    """The median: importing the module `statistics` would take longer than all the checks."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def show(value: float) -> str:
    """A figure for a person: four significant digits."""
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def scratch(host: Host) -> str:
    """A folder on disk for this run, deleted after it. "" outside of a run."""
    return host.setting(SCRATCH)


def serve(host: Host, argv: Sequence[str], log: str) -> None:
    """Start the other end of a test and do not wait for it; what it writes goes to `log`. Raises OSError.

    It gets a session of its own, since the rest of a command's process group is ended with the command: it reports its
    start through the pipe before the command ends. The run ends it.
    """
    inner = 'echo; exec "$@" >"$0" 2>&1 </dev/null'
    host.run(["sh", "-c", 'setsid -f sh -c "$0" "$@" | { read -r line; }', inner, log, *argv], READY)


def both_ends(
    host: Host, listening: Sequence[str], calling: Sequence[str], log: str, timeout: float, wait: float,
    refused: Callable[[Completed], bool],
) -> Union[Completed, Outcome]:  # fmt: skip
    """Run the two ends of a test on this node; how the calling one ended, which tries again for `wait` seconds while
    `refused` says that the other end does not listen yet.
    """
    if host.which(listening[0]) is not None and host.setting(RUN):
        try:
            serve(host, listening, f"{scratch(host)}/{log}")
        except OSError as error:
            return unknown("CommandUnusable", f"{listening[0]} cannot be run: {error.strerror}")
    until = host.monotonic() + wait
    while True:
        done = attempt(host, calling, timeout)
        if isinstance(done, Outcome) or not refused(done) or host.monotonic() >= until:
            return done
        host.run(["sleep", "0.1"], 5.0)
