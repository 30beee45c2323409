"""Chooses the nodes that are the best for a job now: healthy, proved, no suspects, in one fabric domain. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import DefaultDict, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple


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
