"""What a command line asks a sweep for: nodes, topology, rails, power, the tool and its limits, as a plan."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Sequence, Tuple

from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_ranges import expand
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.units import count, size_bytes
from nhc.deep.group_output import AskedMeasurement
from nhc.deep.group_test import Rules, Topology
from nhc.deep.rails import NAME
from nhc.deep.sweep_plan import SweepPlan
from nhc.deep.topology_sources import guess_and_read


class RefusedSweep(CommandError):
    """What is wrong with the command line or its files, in one line."""

    def __init__(self, why: str) -> None:
        super().__init__(why, EXIT_USAGE)


def plan_of(options: Dict[str, Any], more: Sequence[str] = (), first: Sequence[str] = ()) -> SweepPlan:
    """The plan of a command line. `more` are nodes beside --nodes, `first` suspects after --suspects.

    Raises RefusedSweep, BadTopology.
    """
    try:
        nodes = tuple(sorted({*expand(options["node_set"]), *more}))
        suspects = tuple(dict.fromkeys([*expand(options["suspect_set"]), *first]))
        size = size_bytes(options["size"])
    except ValueError as error:
        raise RefusedSweep(str(error)) from None
    strange = next((node for node in suspects if node not in nodes), "")
    if strange:
        raise RefusedSweep(f"--suspects {options['suspect_set']}: {strange} is none of the nodes")
    if len(nodes) < 2:
        raise RefusedSweep("a sweep takes two nodes at least: --nodes gpu[001-064]")
    topology = Topology()
    if options["topology_path"]:
        path = options["topology_path"]
        try:
            topology = guess_and_read(read_text(path), path)
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedSweep(f"{path}: {cause(error)}") from None
    argv: Tuple[str, ...] = options["tool"] or (
        "env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", f"{options['collective']}_perf", "-b", str(size),
        "-e", str(size), "-g", "1", "-n", "20", "-c", "1",
    )  # fmt: skip
    rails = _rails(options["rail_set"])
    asked = AskedMeasurement(options["collective"], size, options["tasks"], not options["any_transport"])
    return SweepPlan(
        uuid.uuid4().hex[:16], nodes, topology,
        Rules(failures=options["failures"], scale=options["scale"], rails=rails), argv, asked,
        options["floor"], seconds=options["limit"], patience=options["patience"], most=options["most"] / 100,
        settings=tuple(sorted(settings_of(options).items())), rail_by=options["rail_by"],
        rail_floor=options["rail_floor"],
        watts=_watts(options["watts"], nodes, options["power"]), power=_power(options["power"]),
        suspects=suspects,
    )  # fmt: skip


def settings_of(options: Dict[str, Any]) -> Dict[str, str]:
    """The settings of the launcher. Raises RefusedSweep."""
    settings = {}
    for pair in options["pairs"]:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise RefusedSweep(f"--set {pair}: is not NAME=VALUE")
        settings[name] = value
    return settings


def _rails(text: str) -> Tuple[str, ...]:
    try:
        rails = tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise RefusedSweep(f"--rails {text}: {error}") from None
    wrong = next((rail for rail in rails if not NAME.fullmatch(rail)), "")
    if wrong:
        raise RefusedSweep(f"--rails {text}: {wrong!r} is no adapter's name, as mlx5_0 or eth2")
    return rails


def _power(text: str) -> float:
    """Watts: `200k` is 200,000."""
    try:
        return float(count(text.removesuffix("W"))) if text else 0.0
    except ValueError as error:
        raise RefusedSweep(f"--power {text}: {error}") from None


def _watts(text: str, nodes: Sequence[str], power: str) -> Tuple[Tuple[str, float], ...]:
    """What each node draws: one figure for all, or a file with lines `gpu[001-064] 10200`."""
    if not power:
        return ()
    if not text:
        raise RefusedSweep("--power needs --watts: what a node draws under test, a figure or a file of them")
    if text.removesuffix("W")[:1].isdigit() and "/" not in text:
        return tuple((node, _power(text)) for node in nodes)
    watts_of: Dict[str, float] = {}
    try:
        lines = read_text(text).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedSweep(f"{text}: {cause(error)}") from None
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            if len(fields) != 2:
                raise ValueError("expected a node set and its watts")
            watts_of.update(dict.fromkeys(expand(fields[0]), _power(fields[1])))
        except (ValueError, RefusedSweep) as error:
            raise RefusedSweep(f"{text}:{number}: {line.strip()!r}: {error}") from None
    missing = [node for node in nodes if node not in watts_of]
    if missing:
        raise RefusedSweep(f"{text}: says nothing of {missing[0]}")
    return tuple((node, watts_of[node]) for node in nodes)
