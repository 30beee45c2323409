"""Which nodes a sweep is about: node sets, inventories, a scheduler or a cluster, a file; together, less exclusions."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.system.bounded_read import cause, read_input, read_text
from nhc.fleet.inventory import InventoryError
from nhc.fleet.inventory import read as read_inventory
from nhc.fleet.transport import Node
from nhc.marks.plugins import open_adapter
from nhc.marks.ports.adapter import AdapterError


class NodesError(ValueError):
    """The nodes cannot be found out. One line."""


class SourceUnavailable(NodesError):
    """The scheduler or the cluster that should name them cannot be asked now. One line."""


class Wanted(NamedTuple):
    """What the user named."""

    sets: Tuple[str, ...] = ()
    exclude: Tuple[str, ...] = ()
    inventories: Tuple[str, ...] = ()
    limit: str = ""
    sources: Tuple[str, ...] = ()
    files: Tuple[str, ...] = ()
    facts: Tuple[str, ...] = ()
    vault: Tuple[str, ...] = ()
    """Options of Ansible's commands about the inventory's vault."""
    everything: bool = False
    """All nodes that ClusterShell knows."""


def nodes(wanted: Wanted) -> List[Node]:
    """The nodes, each once, in order of first mention. Raises NodesError.

    A node set beside inventories (or --from) picks among their hosts: `-i hosts -w gpu[01-04]` is those four with
    their inventory's settings.
    """
    by_name: Dict[str, Node] = {}
    described = False
    if wanted.inventories:
        described = True
        try:
            _add(by_name, read_inventory(wanted.inventories, wanted.limit, wanted.facts, wanted.vault))
        except InventoryError as error:
            raise NodesError(str(error)) from None
    for source in wanted.sources:
        described = True
        _add(by_name, from_adapter(source))
    for path in wanted.files:
        _add(by_name, (Node(name) for name in from_file(path)))
    if wanted.everything:
        _add(by_name, (Node(name) for name in every_node()))
    named: List[str] = []
    for node_set in wanted.sets:
        members = from_set(node_set)
        if not members:
            raise NodesError(f"-w {node_set}: no nodes in it")
        named += members
    if described and named:
        missing = [name for name in named if name not in by_name]
        if missing:
            raise NodesError(f"{missing[0]} is not among the {len(by_name)} nodes of the inventory")
        by_name = {name: by_name[name] for name in dict.fromkeys(named)}
    else:
        _add(by_name, (Node(name) for name in named))
    for node_set in wanted.exclude:
        for name in from_set(node_set):
            by_name.pop(name, None)
    if not by_name:
        raise NodesError("no nodes: name them with -w, -i, -a, --from or --file")
    return list(by_name.values())


def _add(by_name: Dict[str, Node], more: Iterable[Node]) -> None:
    for node in map(_showable, more):
        by_name.setdefault(node.name, node)


def _showable(node: Node) -> Node:
    """A dynamic inventory may say anything, and names are shown everywhere."""
    if node.name.isprintable():
        return node
    problem = f"its name, {ascii(node.name)[:200]}, has characters that cannot be shown"
    return node._replace(name=printable(node.name, 255) or "?", problem=node.problem or problem)


def from_set(text: str) -> List[str]:
    """Names of what -w was given: a node set, and `^FILE` for the node sets in a file, as clush and pdsh have it."""
    sets: List[str] = []
    names: List[str] = []
    for piece in _pieces(text):
        if piece.startswith("^") and len(piece) > 1:
            names += from_file(piece[1:])
        else:
            sets.append(piece)
    return [*names, *(_set(",".join(sets)) if sets else ())]


def _pieces(text: str) -> List[str]:
    """What stands between the commas that are in no brackets."""
    pieces, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += char
    return pieces


def _set(text: str) -> List[str]:
    """Names of a node set; groups (`@gpu`) and algebra (`&`, `!`, `^`, steps) through ClusterShell."""
    try:
        return _plain(text)
    except BadRange as error:
        if not re.search(r"[@!&^/]", text):
            raise NodesError(f"-w {text}: {error}") from None
    return _cluster_shell(f"-w {text}", lambda sets: sets(text))


def every_node() -> List[str]:
    """All nodes of ClusterShell's default group source (`clush -a`). Raises NodesError."""
    names = _cluster_shell("-a", lambda sets: sets.fromall())
    if not names:
        raise NodesError("-a: ClusterShell's default group source knows no nodes")
    return names


def _cluster_shell(what: str, make: Callable[[Any], Iterable[str]]) -> List[str]:
    try:
        from ClusterShell.NodeSet import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            NodeSet,
            NodeSetException,
        )
        from ClusterShell.NodeUtils import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            GroupResolverError,
            GroupSourceError,
        )
    except ImportError:
        from nhc.core.extras import how_to_install

        how = how_to_install("ClusterShell", "fleet")
        raise NodesError(f"{what}: groups and set operators need ClusterShell: {how}") from None
    try:
        return list(make(NodeSet))
    except (NodeSetException, GroupResolverError, GroupSourceError, OSError, ValueError) as error:
        raise NodesError(f"{what}: {error or type(error).__name__}") from None


def _plain(text: str) -> List[str]:
    if re.search(r"[@!&^/]", text):
        raise BadRange("needs ClusterShell")
    return expand(text)


def from_file(path: str) -> List[str]:
    """Node sets, one or several a line, `#` begins a comment; `-` is standard input."""
    try:
        text = read_input() if path == "-" else read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise NodesError(f"{path}: {cause(error)}") from None
    names: List[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for node_set in line.partition("#")[0].split():
            try:
                names += _set(node_set)
            except NodesError as error:
                raise NodesError(f"{path}:{number}: {str(error)[len('-w ') :]}") from None
    return names


def from_adapter(name: str) -> List[Node]:
    """The nodes that a scheduler or a cluster knows, with its partitions or pools as groups."""
    try:
        source = open_adapter(name)
    except (NoAdapter, AdapterError, ValueError) as error:
        raise NodesError(f"--from {name}: {error}") from None
    try:
        states = source.nodes()
    except AdapterError as error:
        raise SourceUnavailable(f"--from {name}: {error}") from None
    return [Node(state.name, groups=tuple(state.groups)) for state in states]


def group_of(node: Node, fact: str = "") -> str:
    """What a node is shown under: the fact asked for, its rack, its first group, else what its name begins with."""
    if fact:
        return node.facts.get(fact) or ", ".join(group for group in node.groups if group == fact) or "-"
    if node.facts.get("rack"):
        return node.facts["rack"]
    if node.groups:
        return node.groups[0]
    return re.sub(r"\d.*", "", node.name) or node.name


def kind_of(facts: Dict[str, str], groups: Sequence[str], labels: Dict[str, str], name: str) -> str:
    """The type of a node, by which it is compared to its peers."""
    for value in (facts.get("type"), facts.get("node_type"), labels.get("profile"), facts.get("model")):
        if value:
            return value
    return ",".join(groups) or re.sub(r"\d.*", "", name) or name
