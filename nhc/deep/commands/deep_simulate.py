"""`nhc simulate deep`: a sweep played on a made-up cluster, before a real one is asked for its time."""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY
from nhc.deep.group_test import Culprit, NodeStanding, Rules
from nhc.deep.simulate import Cost, Faults, SimulatedSweep, break_some, cluster, compare, play, table

LARGEST = 100_000
SHOWN = 20
"""Findings shown as text; JSON has all."""


class DeepSimulateOptions(options.Formatted):
    nodes: int = options.whole("--size", "N", "How many.", 1024, least=2, most=LARGEST, heading="The cluster")
    leaf_size: int = options.whole("--leaf-size", "N", "Nodes of one leaf.", 32, least=1)
    bad: int = options.whole("--bad", "N", "Bad nodes.", 10, least=0, heading="What is broken")
    links: int = options.whole("--links", "N", "Bad links between good nodes.", 0, least=0)
    uplinks: int = options.whole("--uplinks", "N", "Leaves whose uplinks are bad.", 0, least=0)
    paths: int = options.whole("--paths", "N", "Pairs of leaves that do not reach each other.", 0, least=0)
    noise: float = options.share("--noise", "How often a good test comes out bad by chance: 1% or 0.01.", "0")
    failures: int = options.whole(
        "--failures", "N", "Bad tests with as many proven partners that convict a node.", 2, least=1, most=10,
        heading="How it is tested",
    )  # fmt: skip
    minutes: float = options.real("--minutes", "NUMBER", "What one test takes, with its launch.", 2.0, above=0)
    seed: int = options.whole("--seed", "N", "The same seed plays the same.", 1)


@click_command
def command(args: DeepSimulateOptions) -> None:
    """Play a sweep on a made-up cluster: its rounds, its tests, whom it finds, and what other ways would cost.

    Exit status: 0 exactly the bad nodes were found, 1 somebody was missed or blamed by mistake, 2 wrong usage.
    """
    names, topology = cluster(args.nodes, args.leaf_size)
    leaves = len(set(topology.path.values()))
    if args.bad > args.nodes:
        raise click.BadParameter(f"{args.bad} bad nodes of {args.nodes}", param_hint="--bad")
    if args.uplinks > leaves:
        raise click.BadParameter(f"{args.uplinks} bad uplinks of {leaves} leaves", param_hint="--uplinks")
    faults = break_some(names, topology, args.bad, args.links, args.uplinks, args.seed, args.paths)._replace(
        false_bad=args.noise
    )
    rules = Rules(failures=args.failures)
    played = play(names, topology, faults, rules, args.seed)
    costs = compare(args.nodes, played, args.minutes)
    if args.form == "json":
        show(_value(faults, played, costs))
    else:
        click.echo("\n".join(_lines(names, faults, played, costs, args.minutes)))
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
