"""`nhc job nodes`: which nodes would be the best for a job now."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from contextlib import closing
from typing import Any, DefaultDict, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNKNOWN
from nhc.core.matching.node_ranges import fold, fold_for_scheduler
from nhc.core.model import Verdict, printable
from nhc.core.units import show_number

# Chooses the nodes that are the best for a job now: healthy, proved, no suspects, in one fabric domain. Pure.


class JobCandidate(NamedTuple):
    """What is known of one node. `against` is why it is not fit, "" where it is.

    `proved` is when its newest good proof was, Unix time; None for none. `domain` is its fabric domain, "" where nobody
    says. `warns`: something is wrong with it that does not take it out. `busy`: work runs on it.
    """

    node: str
    against: str = ""
    proved: Optional[float] = None
    domain: str = ""
    warns: bool = False
    busy: bool = False


class NodeChoice(NamedTuple):
    """`nodes` are the chosen ones, fewer than asked for where there are no more. `left_out` has why, and which.

    `domains` are those of the chosen ones.
    """

    nodes: Tuple[str, ...]
    domains: Tuple[str, ...]
    left_out: Mapping[str, Tuple[str, ...]]

    @property
    def unfit(self) -> Tuple[str, ...]:
        """All nodes that were left out, by name."""
        return tuple(sorted(node for names in self.left_out.values() for node in names))


def choose(candidates: Sequence[JobCandidate], count: int, since: Optional[float] = None) -> NodeChoice:
    """The `count` best. With `since` a node must have a good proof of that time (Unix) or later.

    The smallest domain that has enough fit nodes is taken whole; where none has, the fullest first. Within a domain
    idle nodes come before busy ones, those without a warning first, the newest proof first.
    """
    left_out: DefaultDict[str, List[str]] = defaultdict(list)
    domains: Dict[str, List[JobCandidate]] = {}
    for candidate in candidates:
        why = candidate.against
        if not why and since is not None and (candidate.proved is None or candidate.proved < since):
            why = "no good proof young enough"
        if why:
            left_out[why].append(candidate.node)
        else:
            domains.setdefault(candidate.domain, []).append(candidate)
    whole = [name for name, fit in domains.items() if name and _idle(fit) >= count]
    whole = whole or [name for name, fit in domains.items() if name and len(fit) >= count]
    order = [min(whole, key=lambda name: (len(domains[name]), name))] if whole else []
    order += sorted((name for name in domains if name not in order), key=lambda name: (-len(domains[name]), name))
    ranked = [candidate for name in order for candidate in sorted(domains[name], key=_rank)]
    taken = ranked[:count]
    return NodeChoice(
        tuple(sorted(candidate.node for candidate in taken)),
        tuple(sorted({candidate.domain for candidate in taken if candidate.domain})),
        {why: tuple(sorted(names)) for why, names in sorted(left_out.items())},
    )  # fmt: skip


def _idle(fit: Sequence[JobCandidate]) -> int:
    return sum(not candidate.busy for candidate in fit)


def _rank(candidate: JobCandidate) -> Tuple[bool, bool, float, str]:
    return candidate.busy, candidate.warns, -(candidate.proved or 0.0), candidate.node


DOMAINS = ("nvlink_domain", "leaf", "rack")
"""The labels that may be a fabric domain, the closest first."""
SUSPECTED = 7 * 86400.0
"""Seconds for which a node that `nhc job watch` found suspect is none of the best, unless it was proved since."""
SUSPECTS_LOOKED_AT = 200
"""Entries of the audit log."""


class JobNodesOptions(options.CommandOptions):
    count: int = options.whole(
        "--count", "COUNT", "How many nodes the job needs.", least=1, heading="What is asked for", needed=True
    )
    proved: Optional[float] = options.duration("--proved", "Only nodes with a good deep verdict of that time.")
    suites: Tuple[str, ...] = options.texts("--suite", "NAME", "Only verdicts of this suite count. Repeatable.")
    domain: str = options.choice(
        "--within", [*DOMAINS, "none"],
        f"Fabric domain to keep: {', '.join(DOMAINS)}, none. Default: the first that is known.", metavar="LABEL",
    )  # fmt: skip
    node_set: str = options.text(
        "-w --nodes", "SET", "Only these: gpu[001-064]. Default: all in the store.", heading="Which nodes"
    )
    scheduler: str = options.text("--scheduler", "NAME", "Ask who is in service and idle: slurm, kubernetes.")
    fresh: float = options.duration("--fresh", "A node whose newest report is older counts as silent.", "15m")
    store_url: str = options.text("--store", "URL", "The store. Default: /etc/nhc/store.toml's.", heading="Where")
    form: str = options.choice(
        "-f --format", ["text", "json", "exclude", "affinity"], "text: for sbatch -w; exclude: those not to use; "
        "affinity: Kubernetes' node affinity.", "text", heading="What is shown",
    )  # fmt: skip


@click_command
def command(args: JobNodesOptions) -> int:
    """Choose the nodes for a job: in service, healthy, proved, no suspects, in one fabric domain.

    Nothing is reserved: the scheduler decides when the job starts.

    Exit status: 0 enough nodes, 2 wrong usage, 3 too few (what is missing is said), or the store does not answer.
    """
    now = time.time()
    candidates = _in_service(_candidates(args, named_nodes(args.node_set) or None, now), args)
    choice = choose(candidates, args.count, None if args.proved is None else now - args.proved)
    _show(choice, args)
    if len(choice.nodes) >= args.count:
        return EXIT_HEALTHY
    missing = [f"{show_number(len(nodes), 'node')}: {why} ({printable(fold(nodes[:8]), 80)})"
               for why, nodes in sorted(choice.left_out.items(), key=lambda pair: -len(pair[1]))]  # fmt: skip
    click.echo(f"nhc job nodes: {len(choice.nodes)} of {args.count} nodes"
               + "".join(f"\n  {line}" for line in missing), err=True)  # fmt: skip
    return EXIT_UNKNOWN


def _candidates(args: JobNodesOptions, names: Optional[Sequence[str]], now: float) -> List[JobCandidate]:
    """The nodes as the store knows them. Raises StoreError."""
    from nhc.store import audit, deep, nodes, problems
    from nhc.store.settings import fleet_store

    with closing(fleet_store(args.store_url, create=False)) as store, store.read() as connection:
        rows = nodes.list_nodes(connection, names)
        standing = problems.list_problems(connection, nodes=names)
        proofs = deep.last_conclusive(connection, names, args.suites)
        watches = audit.entries(connection, what="job.suspects", limit=SUSPECTS_LOOKED_AT, newest=True)
    critical = {row.node: row.reason for row in standing if row.verdict == Verdict.CRIT.name}
    proved: Dict[str, float] = {}
    failed: Set[str] = set()
    for (node, _suite), verdict in proofs.items():
        if verdict.verdict == Verdict.CRIT.name:
            failed.add(node)
        else:
            proved[node] = max(verdict.at, proved.get(node, 0.0))
    suspected: Dict[str, float] = {}
    for entry in watches:
        for suspect in json.loads(entry.detail).get("suspects", ()) if now - entry.at <= SUSPECTED else ():
            suspected[suspect["node"]] = max(entry.at, suspected.get(suspect["node"], 0.0))
    label = args.domain or next((name for name in DOMAINS if any(name in row.groups for row in rows)), "none")
    candidates = [JobCandidate(
        row.node, _against(row, critical, failed, suspected, proved, now - args.fresh), proved.get(row.node),
        row.groups.get(label, ""), row.verdict == Verdict.WARN.name,
    ) for row in rows]  # fmt: skip
    known = {row.node for row in rows}
    return candidates + [JobCandidate(name, "not in the store") for name in names or () if name not in known]


def _against(
    row: Any, critical: Dict[str, str], failed: Set[str], suspected: Dict[str, float], proved: Dict[str, float],
    since: float,
) -> str:  # fmt: skip
    """Why a node is not fit, "" where it is."""
    if row.reported_at is None or row.reported_at < since:
        return "silent"
    if row.is_contested:
        return "two machines push under its name"
    if row.node in critical or row.verdict == Verdict.CRIT.name:
        return "critical"
    if row.verdict == Verdict.UNKNOWN.name:
        return "unknown"
    if row.node in failed:
        return "its newest proof failed"
    if suspected.get(row.node, 0.0) > proved.get(row.node, 0.0):
        return "suspect in a job"
    return ""


def _in_service(candidates: List[JobCandidate], args: JobNodesOptions) -> List[JobCandidate]:
    """The same, with what the scheduler says of them. Raises NoAdapter, AdapterError where it does not answer."""
    if not args.scheduler:
        return candidates
    from nhc.marks.plugins import open_adapter

    names = [candidate.node for candidate in candidates]
    states = open_adapter(args.scheduler, {}, dict(os.environ)).nodes(names)
    known = {state.name: state for state in states}
    with_states = []
    for candidate in candidates:
        state = known.get(candidate.node)
        against = candidate.against or ("not known to the scheduler" if state is None else
                                  "" if state.available else "out of service")  # fmt: skip
        with_states.append(candidate._replace(against=against, busy=state is not None and state.busy))
    return with_states


def _show(choice: NodeChoice, args: JobNodesOptions) -> None:
    if args.form == "json":
        click.echo(json.dumps({
            "asked": args.count, "nodes": list(choice.nodes), "domains": list(choice.domains),
            "left_out": {why: list(names) for why, names in choice.left_out.items()},
        }, indent=2, ensure_ascii=False))  # fmt: skip
    elif args.form == "exclude":
        click.echo(printable(fold_for_scheduler(choice.unfit)))
    elif len(choice.nodes) < args.count:
        return
    elif args.form == "affinity":
        rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(choice.nodes)}
        click.echo(json.dumps({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}, indent=2))  # fmt: skip
    else:
        click.echo(fold_for_scheduler(choice.nodes))
