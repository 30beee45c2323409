"""What `nhc fleet check` was given, made into what a sweep takes: nodes, transports, a task, a place to write to."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Set, Union

from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.fleet import node_sources
from nhc.fleet.sweep_request import SweepRequest
from nhc.fleet.transport import Node, Transport

if TYPE_CHECKING:
    from nhc.fleet.mark import MarkReports
    from nhc.fleet.ssh.config import Route, SshConfig
    from nhc.fleet.ssh.known_hosts import HostKeys
    from nhc.fleet.ssh.transport_paramiko import Paramiko
    from nhc.fleet.ssh.transport_ssh import Ssh
    from nhc.fleet.worker import SweepSettings


class UsageProblem(CommandError):
    """The command line, or a file that it names, cannot be used. A line for each thing that is wrong."""

    def __init__(self, why: str) -> None:
        super().__init__(why, EXIT_USAGE)


def writable(path: str) -> None:
    """See before the sweep, not after it, that its report can be written. Raises UsageProblem."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(directory):
        raise UsageProblem(f"{path}: {'a directory' if os.path.isdir(path) else f'there is no directory {directory}'}")
    if not os.access(directory, os.W_OK):
        raise UsageProblem(f"{path}: you cannot write to {directory}")


def usable(request: SweepRequest) -> None:
    """See that what is sent can be read and what is asked for exists, before it is asked for. Raises UsageProblem."""
    from nhc.fleet.bundles import BadSite
    from nhc.fleet.preflight import Wrong, refuse_wrong

    if request.apply and not request.mark:
        raise UsageProblem("--apply goes with --mark")
    if request.nodes.limit and not request.nodes.inventories:
        raise UsageProblem(
            f"--limit {request.nodes.limit} goes with -i: it is a pattern of the inventory's hosts and groups"
        )
    if request.ask_sudo_pass and not (request.site.sudo or request.nodes.inventories):
        raise UsageProblem("--ask-sudo-pass goes with --sudo, or with an inventory that says ansible_become")
    for name in request.site.vault_files:
        _readable(name.rpartition("@")[2], "vault-password-file")
    for path, flag in ((request.site.identity, "identity"), (request.site.ssh_config, "ssh-config")):
        if path:
            _readable(path, flag)
    try:
        refuse_wrong(request.checks)
    except (Wrong, BadSite) as error:
        raise UsageProblem(str(error)) from None


def _readable(path: str, flag: str) -> None:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageProblem(f"{flag} {path}: {error.strerror}") from None


SECRETS = ("NHC_SSH_PASSWORD", "NHC_SUDO_PASSWORD")


def take_secrets() -> Dict[str, str]:
    """Passwords of the environment, which has them no longer.

    An inventory's script, a ProxyCommand or a shell of this machine would inherit them, and has no business with them.
    """
    return {name: os.environ.pop(name, "") for name in SECRETS}


def nodes(request: SweepRequest, secrets: Mapping[str, str]) -> List[Node]:
    """The nodes to judge, with what the command line says of all of them. Raises UsageProblem."""
    try:
        chosen = node_sources.nodes(request.nodes)
    except node_sources.SourceUnavailable as error:
        raise CommandError(str(error)) from None  # nothing is wrong with the command line
    except node_sources.NodesError as error:
        raise UsageProblem(str(error)) from None
    password = _secret(secrets, "NHC_SSH_PASSWORD", "SSH password: ") if request.ask_pass else ""
    sudo_password = _secret(secrets, "NHC_SUDO_PASSWORD", "sudo password: ") if request.ask_sudo_pass else ""
    return [
        node._replace(
            user=node.user or request.site.user,
            port=node.port or request.site.port,
            identity=node.identity or request.site.identity,
            python=node.python or request.site.python,
            password=node.password or password,
            sudo_password=node.sudo_password or sudo_password,
        )
        for node in chosen
    ]


def _secret(secrets: Mapping[str, str], variable: str, prompt: str) -> str:
    """A secret from the environment, else from the terminal; never from the command line. Raises UsageProblem."""
    if secrets[variable]:
        return secrets[variable]
    try:
        secret = getpass.getpass(prompt)
    except EOFError:
        raise UsageProblem(
            f"{prompt.rstrip(': ')}: none was given, the input has ended (${variable} can hold it)"
        ) from None
    if not secret:
        raise UsageProblem(f"{prompt.rstrip(': ')}: an empty one was given")
    return secret


def settings(request: SweepRequest, nodes: List[Node]) -> SweepSettings:
    """How to go about the sweep. Raises UsageProblem."""
    from nhc.fleet import bundles, node_session, worker
    from nhc.fleet.sweep import names_of

    checks = request.checks
    try:
        site = bundles.site(checks.config, () if request.suite else checks.scripts, checks.profile)
        engine = None if request.site.use == "installed" else bundles.engine(request.site.pyz or None)
    except bundles.BadSite as error:
        raise UsageProblem(str(error)) from None
    suite = _suite(request)
    # A second on free devices needs no drain; what loads a node for longer runs where the scheduler keeps work away.
    more: List[str] = (["--adapter", "none"] if suite == "prejob" else []) if suite else ["--all"]
    for name, values in (("check", checks.checks), ("tag", checks.tags)):
        for value in values:
            more += [f"--{name}", value]
    if checks.context:
        more += ["--context", checks.context]
    task = node_session.SweepTask(
        engine, site, tuple(more), suite, request.site.timeout, request.site.connect_timeout, request.site.use,
        directory=request.site.node_dir, sudo=request.site.sudo, nonce=os.urandom(8).hex(),
    )  # fmt: skip
    return worker.SweepSettings(
        task, _transports(request, nodes), request.site.transport, request.site.fanout, request.site.shards,
        request.site.connect_timeout, request.site.retries, names_of(nodes),
    )  # fmt: skip


def _suite(request: SweepRequest) -> str:
    """The suite that nodes are to run, "" for their configuration. Raises UsageProblem where both are asked for."""
    suite = request.suite
    if not suite:
        return ""
    wanted = request.checks
    lines = {"config": wanted.config, "profile": wanted.profile, "check": wanted.checks, "tag": wanted.tags,
             "context": wanted.context}  # fmt: skip
    beside = [f"--{option}" for option, value in lines.items() if value]
    if beside:
        raise UsageProblem(f"--suite {suite} runs the lines of that suite: it takes no {', '.join(beside)}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,62}", suite):
        raise UsageProblem(f"--suite {suite}: a suite's name, as nhc list suites shows them")
    return suite


def _transports(request: SweepRequest, nodes: List[Node]) -> Dict[str, Transport]:
    """The transports that these nodes use; each is loaded only where one does."""
    wanted = {node.connection or request.site.transport for node in nodes}
    transports: Dict[str, Transport] = {}
    if "local" in wanted:
        from nhc.fleet.transport_local import Local

        transports["local"] = Local()
    if "openssh" in wanted:
        from nhc.fleet.ssh.transport_openssh import OpenSSH

        arguments = ["-F", request.site.ssh_config] if request.site.ssh_config else []
        transports["openssh"] = OpenSSH(arguments, request.site.accept_new)
    if wanted & {"ssh", "paramiko"}:
        transports.update(_in_process(request, nodes, wanted))
    return transports


def _in_process(request: SweepRequest, nodes: List[Node], wanted: Set[str]) -> Dict[str, Transport]:
    """The transports that need no other program: one ssh_config, one known_hosts, two names."""
    try:
        from nhc.fleet.ssh.config import SshConfig
        from nhc.fleet.ssh.known_hosts import HostKeys

        config, host_keys = SshConfig(request.site.ssh_config), HostKeys(request.site.accept_new)
        made = {name: _ssh(name, config, host_keys) for name in sorted(wanted & {"ssh", "paramiko"})}
        "".encode("idna")  # a codec that socket loads with the first host
        for name, transport in made.items():
            some = [node for node in nodes if (node.connection or request.site.transport) == name][:64]
            routes = list(_routes(config, some))
            for route in routes:
                host_keys.files(route)
            transport.warm(routes)
    except ModuleNotFoundError as error:
        from nhc.core.extras import how_to_install

        how = how_to_install(error.name or "paramiko", "fleet")
        raise UsageProblem(f"{error.name} is not installed: {how}; transport=openssh needs no library") from None
    except ValueError as error:
        raise UsageProblem(str(error)) from None
    return dict(made)


def _routes(config: SshConfig, nodes: List[Node]) -> Iterator[Route]:
    from nhc.fleet.transport import Trouble

    for node in nodes:
        with contextlib.suppress(Trouble):  # whoever connects says so
            yield config.lookup(node)


def _ssh(name: str, config: SshConfig, host_keys: HostKeys) -> Union[Paramiko, Ssh]:
    """The transport `ssh` has libssh for the plain case, where there is a libssh."""
    if name == "ssh":
        with contextlib.suppress(ImportError):
            from nhc.fleet.ssh.transport_ssh import Ssh

            return Ssh(config, host_keys)
    from nhc.fleet.ssh.paramiko_import import import_paramiko

    import_paramiko()
    from nhc.fleet.ssh.transport_paramiko import Paramiko

    return Paramiko(config, host_keys)


def marking(request: SweepRequest) -> MarkReports:
    """What hands the reports to an adapter, checked before any node is request. Raises UsageProblem."""
    from nhc.fleet.mark import BadMark, prepare

    try:
        return prepare(request)
    except BadMark as error:
        raise UsageProblem(str(error)) from None
