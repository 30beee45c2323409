"""What `nhc fleet check` was given, made into what a sweep takes: nodes, transports, a task, a place to write to."""

from __future__ import annotations

import getpass
import os
from typing import Any, Dict, List, Mapping

from nhc.cli import EXIT_UNKNOWN, EXIT_USAGE
from nhc.fleet import nodes as node_sources
from nhc.fleet.transport import Node, Transport


class Usage(Exception):
    """The command line, or a file that it names, cannot be used. One line."""

    status = EXIT_USAGE


class Unavailable(Usage):
    """Nothing is wrong with the command line, but who should know the nodes does not answer. One line."""

    status = EXIT_UNKNOWN


def writable(path: str) -> None:
    """See before the sweep, not after it, that its report can be written. Raises Usage."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(directory):
        raise Usage(f"{path}: {'a directory' if os.path.isdir(path) else f'there is no directory {directory}'}")
    if not os.access(directory, os.W_OK):
        raise Usage(f"{path}: you cannot write to {directory}")


def nodes(options: Mapping[str, Any]) -> List[Node]:
    """The nodes to judge, with what the command line says of all of them. Raises Usage."""
    facts = tuple(fact for fact in (*options["facts"], options["group_by"]) if fact)
    try:
        found = node_sources.nodes(
            node_sources.Wanted(
                options["sets"],
                options["exclude"],
                options["inventories"],
                options["limit"],
                options["sources"],
                options["files"],
                facts,
            )
        )
    except node_sources.NoAnswer as error:
        raise Unavailable(str(error)) from None
    except node_sources.NodesError as error:
        raise Usage(str(error)) from None
    password = _secret("NHC_SSH_PASSWORD", "SSH password: ") if options["ask_pass"] else ""
    sudo_password = _secret("NHC_SUDO_PASSWORD", "sudo password: ") if options["ask_sudo_pass"] else ""
    return [
        node._replace(
            user=node.user or options["user"],
            port=node.port or options["port"],
            identity=node.identity or options["identity"],
            python=node.python or options["python"],
            password=node.password or password,
            sudo_password=node.sudo_password or sudo_password,
        )
        for node in found
    ]


def _secret(variable: str, prompt: str) -> str:
    """A secret from the environment, else from the terminal; never from the command line."""
    return os.environ.get(variable) or getpass.getpass(prompt)


def settings(options: Mapping[str, Any], nodes: List[Node]) -> Any:
    """How to go about the sweep. Raises Usage."""
    from nhc.fleet import push, remote, shard
    from nhc.fleet.sweep import names_of

    try:
        site = push.site(options["config"], options["scripts"], options["profile"])
        engine = None if options["use"] == "installed" else push.engine(options["pyz"])
    except push.BadSite as error:
        raise Usage(str(error)) from None
    more: List[str] = ["--all"]
    for name in ("check", "tag"):
        for value in options[name]:
            more += [f"--{name}", value]
    if options["context"]:
        more += ["--context", options["context"]]
    if options["node_dir"] and not options["node_dir"].startswith("/"):
        raise Usage(f"--node-dir {options['node_dir']}: not an absolute path")
    task = remote.Task(
        engine, site, tuple(more), seconds=options["timeout"], login=options["connect_timeout"], use=options["use"],
        directory=options["node_dir"], sudo=options["sudo"], nonce=os.urandom(8).hex(),
    )  # fmt: skip
    return shard.Settings(
        task, _transports(options, nodes), options["transport"], options["fanout"], options["shards"],
        options["connect_timeout"], options["retries"], names_of(nodes),
    )  # fmt: skip


def _transports(options: Mapping[str, Any], nodes: List[Node]) -> Dict[str, Transport]:
    """The transports that these nodes use; each is loaded only where one does."""
    wanted = {node.connection or options["transport"] for node in nodes}
    found: Dict[str, Transport] = {}
    if "local" in wanted:
        from nhc.fleet.local import Local

        found["local"] = Local()
    if "openssh" in wanted:
        from nhc.fleet.ssh_openssh import OpenSSH

        arguments = ["-F", options["ssh_config"]] if options["ssh_config"] else []
        found["openssh"] = OpenSSH(arguments, options["accept_new"])
    if "ssh" in wanted:
        try:
            from nhc.fleet.ssh_paramiko import Paramiko
        except ModuleNotFoundError as error:
            from nhc.extras import how_to_install

            how = how_to_install(error.name or "paramiko", "fleet")
            raise Usage(f"{error.name} is not installed: {how}; --transport openssh needs no library") from None
        try:
            paramiko = Paramiko(options["ssh_config"], options["accept_new"])
        except ValueError as error:
            raise Usage(str(error)) from None
        paramiko.warm([node for node in nodes if (node.connection or options["transport"]) == "ssh"][:64])
        found["ssh"] = paramiko
    return found


def marking(options: Mapping[str, Any]) -> Any:
    """What hands the reports to an adapter, checked before any node is asked. Raises Usage."""
    from nhc.fleet.mark import BadMark, prepare

    try:
        return prepare(options)
    except BadMark as error:
        raise Usage(str(error)) from None
