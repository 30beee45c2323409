"""Nodes from Ansible inventories of every kind, read by Ansible.

INI, YAML, directories with group_vars, dynamic scripts, plugins, vaults and templates mean here what they mean to
`ansible-playbook`, because ansible-core reads them, in a process of its own (data/read_ansible.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from nhc.core.model import printable
from nhc.fleet.transport import Node

FACTS = ("rack", "row", "room", "type", "node_type", "model", "role")
"""Variables of an inventory that reports can be grouped by without being asked for."""

_TRUE = ("yes", "true", "1", "on", "y", "t")


class InventoryError(ValueError):
    """The inventory cannot be read or names no hosts. One line."""


def read(sources: Sequence[str], limit: str = "", facts: Sequence[str] = (), vault: Sequence[str] = ()) -> List[Node]:
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
