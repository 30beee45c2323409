"""`nhc simulate deep`: a sweep played on a made-up cluster, before a real one is asked for its time."""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

import click

from nhc.core.command_line.common_options import FORMAT, SHARE, FiniteNumber, GroupedCommand, under
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY
from nhc.deep.group_test import Culprit, NodeStanding, Rules
from nhc.deep.simulate import Cost, Faults, SimulatedSweep, break_some, cluster, compare, play, table

LARGEST = 100_000
SHOWN = 20
"""Findings shown as text; JSON has all."""


@click.command("simulate", cls=GroupedCommand)
@under("The cluster")(
    "--size", "nodes", type=click.IntRange(2, LARGEST), default=1024, show_default=True, help="How many."
)
@under("The cluster")("--leaf-size", type=click.IntRange(1), default=32, show_default=True, help="Nodes of one leaf.")
@under("What is broken")("--bad", type=click.IntRange(0), default=10, show_default=True, help="Bad nodes.")
@under("What is broken")("--links", type=click.IntRange(0), default=0, show_default=True,
                         help="Bad links between good nodes.")  # fmt: skip
@under("What is broken")("--uplinks", type=click.IntRange(0), default=0, show_default=True,
                         help="Leaves whose uplinks are bad.")  # fmt: skip
@under("What is broken")("--paths", type=click.IntRange(0), default=0, show_default=True,
                         help="Pairs of leaves that do not reach each other.")  # fmt: skip
@under("What is broken")("--noise", type=SHARE, default="0", show_default=True, metavar="SHARE",
                         help="How often a good test comes out bad by chance: 1% or 0.01.")  # fmt: skip
@under("How it is tested")("--failures", type=click.IntRange(1, 10), default=2, show_default=True,
                           help="Bad tests with as many proven partners that convict a node.")  # fmt: skip
@under("How it is tested")("--minutes", type=FiniteNumber(0, min_open=True), default=2.0, show_default=True,
                           help="What one test takes, with its launch.")  # fmt: skip
@under("How it is tested")("--seed", type=int, default=1, show_default=True, help="The same seed plays the same.")
@FORMAT
def command(
    nodes: int, leaf_size: int, bad: int, links: int, uplinks: int, paths: int, noise: float, failures: int,
    minutes: float, seed: int, form: str,
) -> None:  # fmt: skip
    """Play a sweep on a made-up cluster: its rounds, its tests, whom it finds, and what other ways would cost.

    Exit status: 0 exactly the bad nodes were found, 1 somebody was missed or blamed by mistake, 2 wrong usage.
    """
    names, topology = cluster(nodes, leaf_size)
    leaves = len(set(topology.path.values()))
    if bad > nodes:
        raise click.BadParameter(f"{bad} bad nodes of {nodes}", param_hint="--bad")
    if uplinks > leaves:
        raise click.BadParameter(f"{uplinks} bad uplinks of {leaves} leaves", param_hint="--uplinks")
    faults = break_some(names, topology, bad, links, uplinks, seed, paths)._replace(false_bad=noise)
    rules = Rules(failures=failures)
    played = play(names, topology, faults, rules, seed)
    costs = compare(nodes, played, minutes)
    if form == "json":
        show(_value(faults, played, costs))
    else:
        click.echo("\n".join(_lines(names, faults, played, costs, minutes)))
    exact = played.convicted() == faults.nodes
    raise SystemExit(EXIT_HEALTHY if exact else EXIT_UNHEALTHY)


def _lines(names: List[str], faults: Faults, played: SimulatedSweep, costs: List[Cost], minutes: float) -> List[str]:
    convicted = played.convicted()
    lines = [
        (
            f"{len(names):,} nodes, {len(faults.nodes)} of them bad, {len(faults.links)} bad links, "
            f"{len(faults.uplinks)} bad uplinks, {len(faults.paths)} bad paths, "
            f"{faults.false_bad:.2%} of good tests bad by chance"
        ),
        (
            f"{len(played.rounds)} rounds of {', '.join(f'{count:,}' for count in played.rounds)} tests: "
            f"{played.tests:,} tests, about {len(played.rounds) * minutes:g} minutes"
        ),
        "",
        (
            f"found {len(convicted & faults.nodes)} of {len(faults.nodes)} bad nodes; "
            f"missed {_some(faults.nodes - convicted)}; convicted by mistake {_some(convicted - faults.nodes)}"
        ),
    ]
    if faults.links:
        met = played.met(faults.links)
        lines.append(
            f"found {len(_links(played).intersection(faults.links))} of {len(faults.links)} bad links; "
            f"of {len(faults.links - met)} no pair was tested: a sweep tests each node, not every link"
        )
    blames = played.judgement.blames
    lines += [f"  {blame.culprit.value:<8} {blame.message}" for blame in blames[:SHOWN]]
    if len(blames) > SHOWN:
        lines.append(f"  and {len(blames) - SHOWN} more")
    counts = {
        standing: sum(value is standing for value in played.judgement.nodes.values()) for standing in NodeStanding
    }
    lines.append(", ".join(f"{count:,} {standing.value}" for standing, count in counts.items() if count))
    return [*lines, "", *table(costs)]


def _links(played: SimulatedSweep) -> Set[Tuple[str, ...]]:
    return {blame.names for blame in played.judgement.blames if blame.culprit is Culprit.LINK}


def _some(names: frozenset[str]) -> str:
    first = sorted(names)[:5]
    return f"{len(names)} ({', '.join(first)}{', ...' if len(names) > 5 else ''})" if names else "none"


def _value(faults: Faults, played: SimulatedSweep, costs: List[Cost]) -> Dict[str, Any]:
    convicted = played.convicted()
    return {
        "bad": sorted(faults.nodes), "bad_links": sorted(faults.links), "bad_uplinks": sorted(faults.uplinks),
        "rounds": list(played.rounds), "tests": played.tests, "node_tests": played.node_tests,
        "convicted": sorted(convicted), "missed": sorted(faults.nodes - convicted),
        "mistaken": sorted(convicted - faults.nodes),
        "leaves": sorted(b.names[0] for b in played.judgement.blames if b.culprit is Culprit.LEAF),
        "links": sorted(_links(played)), "untested_links": sorted(faults.links - played.met(faults.links)),
        "bad_paths": sorted(faults.paths),
        "paths": sorted(b.names for b in played.judgement.blames if b.culprit is Culprit.PATH),
        "blames": [{"culprit": b.culprit.value, "names": list(b.names), "message": b.message, "tests": list(b.tests)}
                   for b in played.judgement.blames],
        "compared": [cost._asdict() for cost in costs],
    }  # fmt: skip
