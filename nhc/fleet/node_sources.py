"""Which nodes a sweep is about: node sets, inventories, a scheduler or a cluster, a file; together, less exclusions."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

from nhc.core.command_line import options
from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.system.bounded_read import cause, read_input, read_text
from nhc.fleet.transport import Node
from nhc.marks.plugins import open_adapter
from nhc.marks.ports.adapter import AdapterError

# Nodes from Ansible inventories of every kind, read by Ansible.
#
# INI, YAML, directories with group_vars, dynamic scripts, plugins, vaults and templates mean here what they mean to
# `ansible-playbook`, because ansible-core reads them, in a process of its own (data/read_ansible.py).


FACTS = ("rack", "row", "room", "type", "node_type", "model", "role")
"""Variables of an inventory that reports can be grouped by without being asked for."""

_TRUE = ("yes", "true", "1", "on", "y", "t")


class InventoryError(ValueError):
    """The inventory cannot be read or names no hosts. One line."""


def read_inventory(
    sources: Sequence[str], limit: str = "", facts: Sequence[str] = (), vault: Sequence[str] = ()
) -> List[Node]:
    """The hosts of these inventories, those that match `limit` (an Ansible pattern). Raises InventoryError.

    `vault` are options of Ansible's commands that say where the password of a vault comes from.
    """
    for source in sources:
        if "," not in source and not os.path.exists(source):
            raise InventoryError(f"{source}: no such inventory")
    wanted = tuple(dict.fromkeys((*FACTS, *facts)))
    text, complaint = _ask(sources, limit, wanted, vault)
    nodes = [_node(json.loads(line), wanted) for line in text.splitlines() if line.startswith("{")]
    if not nodes:
        reason = _reason(complaint, sources)
        where = f" that match {limit!r}" if limit else ""
        raise InventoryError(f"{', '.join(sources)}: no hosts{where}{f': {reason}' if reason else ''}")
    for warning in _warnings(complaint):
        print(f"{', '.join(sources)}: {warning}", file=sys.stderr)
    return nodes


def _ask(sources: Sequence[str], limit: str, facts: Sequence[str], vault: Sequence[str]) -> Tuple[str, str]:
    helper = os.path.join(os.path.dirname(__file__), "data", "read_ansible.py")
    environ = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0", "PYTHONWARNINGS": "ignore"}
    # Ansible warns of a source that it cannot read to its end, and goes on with the hosts before the mistake: a sweep
    # of half the fleet would look like one of all.
    environ.setdefault("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "1")
    asked = json.dumps({"limit": limit, "facts": list(facts), "sources": [*map(_absolute, sources)], "vault": [*vault]})
    argv = [_python(), "-I", helper, asked]
    try:
        done = subprocess.run(
            argv, check=False, stdin=None, capture_output=True, text=True, errors="replace", env=environ, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(f"{', '.join(sources)}: Ansible cannot read it: {error}") from None
    if done.returncode:
        reason = (_reason(done.stderr, sources) or "Ansible failed").removeprefix("ERROR! ")
        hint = " (vault-password-file or ask-vault-pass)" if "no vault secrets" in reason and not vault else ""
        raise InventoryError(f"{', '.join(sources)}: {reason}{hint}")
    return done.stdout, done.stderr


def _absolute(source: str) -> str:
    return os.path.abspath(source) if os.path.exists(source) else source


def _python() -> str:
    """A Python that has ansible-core: this one, or the one that `ansible-inventory` runs with."""
    if importlib.util.find_spec("ansible") is not None:
        return sys.executable
    command = shutil.which("ansible-inventory")
    if command:
        with open(command, encoding="utf-8", errors="replace") as file:
            first = file.readline(4096)
        if first.startswith("#!") and "python" in first:
            argv = first[2:].split()
            return shutil.which(argv[-1]) or argv[0]
    from nhc.core.extras import how_to_install

    how = how_to_install("ansible-core", "ansible")
    raise InventoryError(f"reading an Ansible inventory needs ansible-core: {how}")


def _reason(text: str, sources: Sequence[str]) -> str:
    """What Ansible complained of: why no plugin could read a source, else its errors before its warnings."""
    refusals = dict(re.findall(r"Failed to parse inventory with '(\w+)' plugin: (.*)", text))
    if refusals:
        # Each plugin says why it cannot read the file: YAML's word counts for what is called YAML, INI's otherwise.
        yaml = re.search(r"source [^ ]+\.(ya?ml|json)$", text, re.MULTILINE)
        liked = ("yaml",) if yaml or "ini" not in refusals else ("ini",)
        refusal = next((refusals[name] for name in (*liked, *refusals) if name in refusals), "")
        where = re.search(r"Origin: (/.*)", text)  # of a directory, the file
        refusal = refusal.replace("Failed to parse inventory: ", "")
        return printable(f"{refusal} ({where[1]})" if where and where[1] not in sources else refusal, 300)
    text = re.sub(r"\s*\n(?!\[|ERROR)", " ", text.strip())
    lines = [line for line in text.splitlines() if "ERROR" in line] or _warnings(text)
    return printable(lines[0] if lines else text, 300)


def _warnings(text: str) -> List[str]:
    """Ansible's warnings, which go over several lines, less those about there being no hosts."""
    text = re.sub(r"\s*\n(?!\[|ERROR)", " ", text.strip())
    return [
        printable(line, 300) for line in text.splitlines()
        if "WARNING" in line and "No inventory" not in line and "empty" not in line
    ]  # fmt: skip


def _node(value: Mapping[str, Any], facts: Sequence[str]) -> Node:
    variables: Dict[str, Any] = dict(value["vars"])

    def text(*names: str) -> str:
        return next((str(variables[name]) for name in names if str(variables.get(name, ""))), "")

    port = text("ansible_port", "ansible_ssh_port")
    problem = printable(value.get("problem", ""))
    if port and not port.isdigit():
        problem = f"ansible_port is {port!r}"
    become = variables.get("ansible_become")
    if become is not None and not isinstance(become, bool):
        become = str(become).lower() in _TRUE
    method = text("ansible_become_method")
    user = text("ansible_become_user")
    if become and (method not in ("", "sudo") or user not in ("", "root")):
        problem = problem or f"ansible_become_method {method or 'sudo'} to {user or 'root'}: only sudo to root is known"
    arguments: List[str] = []
    for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        try:
            arguments += shlex.split(text(name))
        except ValueError as error:
            problem = f"{name}: {error}"
    python = text("ansible_python_interpreter")
    return Node(
        name=str(value["name"]),
        address=text("ansible_host", "ansible_ssh_host"),
        user=text("ansible_user", "ansible_ssh_user"),
        port=int(port) if port.isdigit() else 0,
        groups=tuple(printable(group, 100) for group in value["groups"]),
        facts={name: printable(str(variables[name]), 100) for name in facts if name in variables},
        identity=text("ansible_ssh_private_key_file", "ansible_private_key_file"),
        password=text("ansible_password", "ansible_ssh_pass"),
        python="" if python.startswith("auto") else python,
        sudo=become,
        sudo_password=text("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
        connection=_connection(text("ansible_connection"), bool(arguments)),
        arguments=tuple(arguments),
        problem=problem,
    )


def _connection(name: str, arguments: bool) -> str:
    """The transport for an Ansible connection: arguments of the ssh program are for the ssh program."""
    if name == "local":
        return "local"
    if arguments:
        return "openssh"
    return {"ssh": "", "smart": "", "paramiko_ssh": "paramiko"}.get(name, name)


class NodesError(ValueError):
    """The nodes cannot be found out. One line."""


class SourceUnavailable(NodesError):
    """The scheduler or the cluster that should name them cannot be asked now. One line."""


class WantedNodes(options.CommandOptions):
    """What the user named."""

    sets: Tuple[str, ...] = options.texts(
        "-w --nodes", "SET", "A node set: gpu[001-128], @group, a&b, or ^FILE with node sets, ^- for standard input "
        "(repeatable). With -i or --from it picks among their nodes.", heading="Which nodes",
    )  # fmt: skip
    exclude: Tuple[str, ...] = options.texts(
        "-x --exclude", "SET", "Leave these nodes out; ^FILE too (repeatable)."
    )  # fmt: skip
    everything: bool = options.flag(
        "-a --all", "Every node that ClusterShell's default group source knows, as clush -a."
    )
    inventories: Tuple[str, ...] = options.texts(
        "-i --inventory", "PATH", "An Ansible inventory: INI, YAML, a directory, a script (repeatable)."
    )
    limit: str = options.text("-l --limit", "PATTERN", "Of the inventory, what this Ansible pattern names.")
    sources: Tuple[str, ...] = options.texts(
        "--from", "NAME", "Every node that slurm, kubernetes, ... knows (repeatable)."
    )


def nodes(wanted: WantedNodes, facts: Sequence[str] = (), vault: Sequence[str] = ()) -> List[Node]:
    """The nodes, each once, in order of first mention. Raises NodesError.

    `facts` are variables of inventories to keep, `vault` options of Ansible's commands about a vault. A node set beside
    inventories (or --from) picks among their hosts: `-i hosts -w gpu[01-04]` is those four with their inventory's
    settings.
    """
    by_name: Dict[str, Node] = {}
    described = False
    if wanted.inventories:
        described = True
        try:
            _add(by_name, read_inventory(wanted.inventories, wanted.limit, facts, vault))
        except InventoryError as error:
            raise NodesError(str(error)) from None
    for source in wanted.sources:
        described = True
        _add(by_name, from_adapter(source))
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
        raise NodesError("no nodes: name them with -w, -i, -a or --from")
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
