"""Where nodes are, as slurmctld has it: leaf switches (topology/tree) and blocks (topology/block). Pure."""

from __future__ import annotations

import re
from typing import Dict, Mapping, Tuple

from nhc.matching.node_ranges import expand

Places = Mapping[str, Tuple[Tuple[str, str], ...]]
"""The kind and the name of the groups that each node is in."""

TOPOLOGY = ("scontrol", "show", "topology")


def parse_topology(text: str) -> Places:
    """What the command above printed: a line for each switch or block. Raises ValueError for a list that is none."""
    places: Dict[str, Tuple[Tuple[str, str], ...]] = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        leaf = fields.get("SwitchName", "") if fields.get("Level") == "0" else ""
        for kind, name in (("leaf", leaf), ("block", fields.get("BlockName", ""))):
            for node in expand(fields["Nodes"]) if name and "Nodes" in fields else ():
                places[node] = (*places.get(node, ()), (kind, name))
    return places
