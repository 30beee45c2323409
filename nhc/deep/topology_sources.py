"""Where nodes are in the fabric, read from what a site has: Slurm's topology, ibnetdiscover, a file.

Each reader takes text or values and gives a Topology; what makes no sense is a BadTopology that names the line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import DefaultDict, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.deep.group_test import Topology


class BadTopology(ValueError):
    """A topology that cannot be read, in one line."""


def slurm_conf(text: str, source: str = "topology.conf") -> Topology:
    """Slurm's topology.conf, tree and block, or what `scontrol show topology` prints. Raises BadTopology.

    https://slurm.schedmd.com/topology.conf.html: `SwitchName=s0 Nodes=n[1-4]`, `SwitchName=top Switches=s[0-1]`,
    `BlockName=b1 Nodes=n[1-18]`.
    """
    parent: Dict[str, str] = {}
    leaf: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        pairs = (field.partition("=") for field in line.partition("#")[0].split())
        fields = {key.lower(): value for key, _, value in pairs}
        name = fields.get("switchname") or fields.get("blockname")
        if not name:
            # AggregatedBlock is scontrol's: several blocks together, each of which has a line of its own.
            if fields and not {"blocksizes", "aggregatedblock"} & set(fields):
                raise BadTopology(f"{source}:{number}: {line.strip()[:80]!r} names no SwitchName and no BlockName")
            continue
        try:
            below = expand(fields.get("switches", "") if fields.get("switches", "(null)") != "(null)" else "")
            nodes = expand(fields.get("nodes", "") if not below else "")
        except ValueError as error:
            raise BadTopology(f"{source}:{number}: {error}") from None
        for child in below:
            if parent.setdefault(child, name) != name:
                raise BadTopology(f"{source}:{number}: switch {child} is below {parent[child]} already")
        leaf.update(dict.fromkeys(nodes, name))
    return Topology({node: _upwards(switch, parent, source) for node, switch in leaf.items()})


def _upwards(switch: str, parent: Mapping[str, str], source: str) -> Tuple[str, ...]:
    path: List[str] = []
    at: Optional[str] = switch
    while at is not None:
        if at in path:
            raise BadTopology(f"{source}: switch {at} is above itself")
        path.insert(0, at)
        at = parent.get(at)
    return tuple(path)


_SWITCH = re.compile(r'Switch\s+\d+\s+"([^"]+)"\s+#\s+"([^"]*)"')
_PORT = re.compile(r'\[\d+\]\s+"H-[^"]+"\[\d+\](?:\([0-9a-f]+\))?\s+#\s+"\s*([^"\s]+)')


def ibnetdiscover(text: str, source: str = "ibnetdiscover") -> Topology:
    """What `ibnetdiscover` prints: each host's leaf is the switch that most of its adapters are plugged into.

    A host is the first word of an adapter's node description (`host hca`), in lower case. Raises BadTopology.
    """
    switch = ""
    plugs: DefaultDict[str, DefaultDict[str, int]] = defaultdict(lambda: defaultdict(int))
    for line in text.splitlines():
        head = _SWITCH.match(line)
        if head:
            switch = head[1]
            continue
        port = _PORT.match(line.strip())
        if port and switch:
            plugs[port[1].lower()][switch] += 1
        elif line and not line[0].isspace() and not line.startswith("["):
            switch = ""  # an adapter's own block, or a header
    if not plugs:
        raise BadTopology(f"{source}: no switch with an adapter on it: is this what ibnetdiscover printed?")
    return Topology({host: (max(sorted(seen), key=seen.__getitem__),) for host, seen in plugs.items()})


def from_file(text: str, source: str) -> Topology:
    """One line a node set: `n[1-32] spine1/leaf3`, `#` begins a comment. Raises BadTopology."""
    paths: Dict[str, Tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        place = tuple(fields[-1].split("/"))
        if len(fields) != 2 or not all(place):
            wanted = "a node set and its place, as n[1-32] spine1/leaf3"
            raise BadTopology(f"{source}:{number}: {line.strip()[:80]!r} is not {wanted}")
        try:
            nodes = expand(fields[0])
        except ValueError as error:
            raise BadTopology(f"{source}:{number}: {error}") from None
        for node in nodes:
            if paths.setdefault(node, place) != place:
                raise BadTopology(f"{source}:{number}: {node} stands in {'/'.join(paths[node])} already")
    return Topology(paths)


def guess_and_read(text: str, source: str) -> Topology:
    """The topology in a file of any of these forms, which its first words decide. Raises BadTopology."""
    if re.search(r"^\s*(SwitchName|BlockName)=", text, re.IGNORECASE | re.MULTILINE):
        return slurm_conf(text, source)
    if _SWITCH.search(text):
        return ibnetdiscover(text, source)
    return from_file(text, source)


def not_placed(nodes: Iterable[str], topology: Topology) -> Sequence[str]:
    """The nodes that the topology does not know: they count as one leaf, and the sweep says so."""
    return sorted(set(nodes) - set(topology.path))
