"""`nhc fleet check` from its options to its exit status; `nhc fleet report` from the history."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
import time
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Collection,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    TextIO,
    Tuple,
    Type,
    Union,
)

from nhc import __version__
from nhc.core.command_line.clean_output import wants_colour
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.report_output import EXIT
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict, printable
from nhc.core.system.written_files import replace_output
from nhc.core.units import show_number
from nhc.fleet import node_sources, summary
from nhc.fleet.history import SweepHistory, default_path
from nhc.fleet.node_result import was_reached
from nhc.fleet.settings import FleetSettings
from nhc.fleet.summary import Picture
from nhc.fleet.sweep_request import FleetReport, SweepRequest, facts, vault
from nhc.fleet.transport import Node, Transport

if TYPE_CHECKING:
    from nhc.fleet.mark import MarkReports
    from nhc.fleet.ssh.config import Route, SshConfig
    from nhc.fleet.ssh.known_hosts import HostKeys
    from nhc.fleet.ssh.transport_paramiko import Paramiko
    from nhc.fleet.ssh.transport_ssh import Ssh
    from nhc.fleet.worker import SweepSettings


# The bar that is shown on a terminal while a sweep runs: nodes done, counts by verdict, and who is still awaited.


_STYLES = {Verdict.CRIT: "bold red", Verdict.UNKNOWN: "magenta", Verdict.WARN: "yellow", Verdict.OK: "green",
           Verdict.SKIP: "dim"}  # fmt: skip
NAMED = 64
"""Nodes still awaited are named once there are at most so many."""


class ProgressLine:
    """A context manager; without `on` it shows nothing and loads nothing. `names` are the nodes of the sweep."""

    def __init__(self, names: Sequence[str], on: bool) -> None:
        self.names, self.on = names, on
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> ProgressLine:  # noqa: PYI034 (Self is Python 3.11's)
        if self.on:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn(),
                TextColumn("{task.fields[awaited]}", markup=False),
                console=Console(file=self._terminal()), transient=True, refresh_per_second=5,
            )  # fmt: skip
            self.task = self.bar.add_task("", total=len(self.names), counts="", awaited="")
            try:
                self.bar.start()
            except RuntimeError:  # no thread can be started to draw it: the sweep goes on without
                self.bar = None
        return self

    def _terminal(self) -> TextIO:
        """Standard error as it is: the bar moves the cursor, which `nhc.core.command_line.clean_output` lets nobody do.

        All that is drawn is ours: numbers, verdicts, and names that are printable.
        """
        encoding = sys.stderr.encoding or "utf-8"
        return open(os.dup(sys.stderr.fileno()), "w", encoding=encoding, errors="backslashreplace")

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, done: int, counts: Mapping[Verdict, int], waiting: Collection[int]) -> None:
        """So many are done, with these verdicts; `waiting` are the places of those that are not."""
        if self.bar is not None:
            counted = (f"[{_STYLES[verdict]}]{count} {verdict.name}[/]" for verdict, count in counts.items() if count)
            awaited = ""
            if 0 < len(waiting) <= NAMED:
                awaited = printable(f"waiting for {fold([self.names[place] for place in sorted(waiting)])}", 120)
            self.bar.update(self.task, completed=done, counts=" ".join(counted), awaited=awaited)


# What `nhc fleet check` was given, made into what a sweep takes: nodes, transports, a task, a place to write to.


class UsageProblem(CommandError):
    """The command line, or a file that it names, cannot be used. A line for each thing that is wrong."""

    def __init__(self, why: str) -> None:
        super().__init__(why, EXIT_USAGE)


def require_writable(path: str) -> None:
    """See before the sweep, not after it, that its report can be written. Raises UsageProblem."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(directory):
        raise UsageProblem(f"{path}: {'a directory' if os.path.isdir(path) else f'there is no directory {directory}'}")
    if not os.access(directory, os.W_OK):
        raise UsageProblem(f"{path}: you cannot write to {directory}")


def require_usable(request: SweepRequest, site: FleetSettings) -> None:
    """See that what is sent can be read and what is asked for exists, before it is asked for. Raises UsageProblem."""
    from nhc.fleet.bundles import BadSiteFiles
    from nhc.fleet.preflight import Wrong, refuse_wrong

    if request.apply and not request.mark:
        raise UsageProblem("--apply goes with --mark")
    if request.limit and not request.inventories:
        raise UsageProblem(f"--limit {request.limit} goes with -i: it is a pattern of the inventory's hosts and groups")
    if request.ask_sudo_pass and not (site.sudo or request.inventories):
        raise UsageProblem("--ask-sudo-pass goes with --sudo, or with an inventory that says ansible_become")
    for name in site.vault_files:
        _readable(name.rpartition("@")[2], "vault-password-file")
    for path, flag in ((site.identity, "identity"), (site.ssh_config, "ssh-config")):
        if path:
            _readable(path, flag)
    try:
        refuse_wrong(request, site.scripts)
    except (Wrong, BadSiteFiles) as error:
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


def chosen_nodes(request: SweepRequest, site: FleetSettings, secrets: Mapping[str, str]) -> List[Node]:
    """The nodes to judge, with what the command line says of all of them. Raises UsageProblem."""
    try:
        chosen = node_sources.nodes(request, facts(site), vault(site))
    except node_sources.SourceUnavailable as error:
        raise CommandError(str(error)) from None  # nothing is wrong with the command line
    except node_sources.NodesError as error:
        raise UsageProblem(str(error)) from None
    password = _secret(secrets, "NHC_SSH_PASSWORD", "SSH password: ") if request.ask_pass else ""
    sudo_password = _secret(secrets, "NHC_SUDO_PASSWORD", "sudo password: ") if request.ask_sudo_pass else ""
    return [
        node._replace(
            user=node.user or site.user,
            port=node.port or site.port,
            identity=node.identity or site.identity,
            python=node.python or site.python,
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


def sweep_settings(request: SweepRequest, site: FleetSettings, nodes: List[Node]) -> SweepSettings:
    """How to go about the sweep. Raises UsageProblem."""
    from nhc.fleet import bundles, node_session, worker
    from nhc.fleet.sweep import names_of

    try:
        files = bundles.site_files(request.config, () if request.suite else site.scripts, request.profile)
        engine = None if site.use == "installed" else bundles.engine(site.pyz or None)
    except bundles.BadSiteFiles as error:
        raise UsageProblem(str(error)) from None
    suite = _suite(request)
    # A second on free devices needs no drain; what loads a node for longer runs where the scheduler keeps work away.
    more: List[str] = (["--adapter", "none"] if suite == "prejob" else []) if suite else ["--all"]
    for name, values in (("check", request.checks), ("tag", request.tags)):
        for value in values:
            more += [f"--{name}", value]
    if request.context:
        more += ["--context", request.context]
    task = node_session.SweepTask(
        engine, files, tuple(more), suite, site.timeout, site.connect_timeout, site.use,
        directory=site.node_dir, sudo=site.sudo, nonce=os.urandom(8).hex(),
    )  # fmt: skip
    return worker.SweepSettings(
        task, _transports(site, nodes), site.transport, site.fanout, site.shards,
        site.connect_timeout, site.retries, names_of(nodes),
    )  # fmt: skip


def _suite(request: SweepRequest) -> str:
    """The suite that nodes are to run, "" for their configuration. Raises UsageProblem where both are asked for."""
    suite = request.suite
    if not suite:
        return ""
    lines = {"config": request.config, "profile": request.profile, "check": request.checks, "tag": request.tags,
             "context": request.context}  # fmt: skip
    beside = [f"--{option}" for option, value in lines.items() if value]
    if beside:
        raise UsageProblem(f"--suite {suite} runs the lines of that suite: it takes no {', '.join(beside)}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,62}", suite):
        raise UsageProblem(f"--suite {suite}: a suite's name, as nhc list suites shows them")
    return suite


def _transports(site: FleetSettings, nodes: List[Node]) -> Dict[str, Transport]:
    """The transports that these nodes use; each is loaded only where one does."""
    wanted = {node.connection or site.transport for node in nodes}
    transports: Dict[str, Transport] = {}
    if "local" in wanted:
        from nhc.fleet.transport_local import Local

        transports["local"] = Local()
    if "openssh" in wanted:
        from nhc.fleet.ssh.transport_openssh import OpenSSH

        arguments = ["-F", site.ssh_config] if site.ssh_config else []
        transports["openssh"] = OpenSSH(arguments, site.accept_new)
    if wanted & {"ssh", "paramiko"}:
        transports.update(_in_process(site, nodes, wanted))
    return transports


def _in_process(site: FleetSettings, nodes: List[Node], wanted: Set[str]) -> Dict[str, Transport]:
    """The transports that need no other program: one ssh_config, one known_hosts, two names."""
    try:
        from nhc.fleet.ssh.config import SshConfig
        from nhc.fleet.ssh.known_hosts import HostKeys

        config, host_keys = SshConfig(site.ssh_config), HostKeys(site.accept_new)
        made = {name: _ssh(name, config, host_keys) for name in sorted(wanted & {"ssh", "paramiko"})}
        "".encode("idna")  # a codec that socket loads with the first host
        for name, transport in made.items():
            some = [node for node in nodes if (node.connection or site.transport) == name][:64]
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


def prepare_marking(request: SweepRequest, site: FleetSettings) -> MarkReports:
    """What hands the reports to an adapter, checked before any node is request. Raises UsageProblem."""
    from nhc.fleet.mark import BadMark, prepare

    try:
        return prepare(request, site)
    except BadMark as error:
        raise UsageProblem(str(error)) from None


def run(request: SweepRequest, site: FleetSettings) -> int:
    """Carry out `nhc fleet check`; the exit status. Raises Usage."""
    from nhc.fleet.sweep import sweep

    secrets = take_secrets()
    require_usable(request, site)
    for path in filter(None, (site.html, site.json_path)):
        require_writable(path)
    marking = prepare_marking(request, site) if request.mark else None
    nodes = chosen_nodes(request, site, secrets)
    settings = sweep_settings(request, site, nodes)
    history = SweepHistory(site.history or default_path() if site.keep_history else "")
    started = time.time()
    number = history.begin(_command_line(), __version__, started, len(nodes))
    picture = Picture(nodes, started, site.group_by)
    waiting = dict.fromkeys(range(len(nodes)))
    notes: List[str] = []
    arrivals = sweep(nodes, settings, notes.append)
    interrupted = failed = False
    try:
        with ProgressLine(picture.names, request.form == "text" and sys.stderr.isatty()) as progress:
            progress.show(0, picture.folder.counts, waiting)
            for arrived in arrivals:
                waiting.pop(arrived.place, None)
                picture.add(arrived.place, arrived.verdict, arrived.findings, arrived.metrics, arrived.labels)
                history.add(number, nodes[arrived.place].name, arrived.verdict, arrived.seconds, arrived.line)
                if request.form == "jsonl":
                    _print(arrived.text() + "\n")
                progress.show(picture.folder.total, picture.folder.counts, waiting)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        arrivals.close()
    picture.end(time.time(), [nodes[place].name for place in waiting])
    history.end(number, interrupted=interrupted)
    try:
        _show(request, site, picture, history, number)
    except BrokenPipeError:
        raise
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
        failed = True
    if request.suite and site.store:
        notes.append(store_results(history, number, request.suite, site.store))
    for line in filter(None, (*notes, history.warning)):
        _say(line)
    status = exit_status(picture, request.max_unhealthy)
    if interrupted and waiting:
        _say(f"interrupted: {show_number(len(waiting), 'node')} not judged: {fold(picture.not_judged)}")
        status = 130
    elif failed:
        status = EXIT_UNKNOWN
    elif marking is not None and not interrupted:
        status = _worse(status, marking(history, number))
    history.close()
    return status


def store_results(history: SweepHistory, number: int, suite: str, url: str) -> str:
    """Keep in a store what a suite found of the nodes that a sweep reached; why it could not be, "" where it was."""
    from nhc.core.state.reports import suite_name
    from nhc.fleet.history import HistoryError
    from nhc.store.deep_delivery import to_store

    try:
        reports = [report for report, _extra in history.reports(number) if was_reached(report)]
    except HistoryError as error:
        return f"{error}: the results are not in the store"
    return to_store(reports, suite_name(suite), url)


def _print(text: str) -> None:
    """Raises OSError. What the terminal's character set lacks, the stream escapes
    (`nhc.core.command_line.clean_output`).
    """
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(line: str) -> None:
    print(f"nhc fleet check: {printable(line)}", file=sys.stderr)


def _worse(status: int, other: int) -> int:
    """The exit status that says more: 1 before 3 before 0."""
    return max(status, other, key=(EXIT_HEALTHY, EXIT_UNKNOWN, EXIT_UNHEALTHY).index)


def exit_status(picture: Picture, limit: Optional[Tuple[Optional[int], float]]) -> int:
    """The worst node's status; 0 where no more nodes are unhealthy than the limit allows."""
    folder = picture.folder
    status = EXIT[folder.worst()]
    if limit is None or status == EXIT_HEALTHY:
        return status
    count, share = limit
    allowed = count if count is not None else share * folder.total
    return EXIT_HEALTHY if folder.unhealthy() <= allowed else status


def _show(request: SweepRequest, site: FleetSettings, picture: Picture, history: SweepHistory, number: int) -> None:
    far = picture.outliers() if site.outliers else []
    form = request.form
    if site.json_path:
        replace_output(site.json_path, lambda file: summary.write_json(file, picture, history, number, far))
    if site.html:
        from nhc.fleet.html import write_html

        replace_output(site.html, lambda file: write_html(file, picture, history, number, far))
    if form == "json":
        summary.write_json(sys.stdout, picture, history, number, far)
    elif form == "text":
        colour = wants_colour(site.color, sys.stdout)
        _print(summary.text(picture, far, site.by, colour, request.quiet, site.skipped))
    sys.stdout.flush()


def show_again(args: FleetReport, site: FleetSettings) -> int:
    """Carry out `nhc fleet report`. Raises HistoryError, OSError."""
    kept = SweepHistory(site.history or default_path(), create=False)
    if args.listed:
        for each in kept.sweeps():
            _print(summary.sweep_line(each) + "\n")
        return EXIT_HEALTHY
    found = kept.find(args.sweep)
    picture = summary.picture_of(kept, found, site.group_by)
    far = picture.outliers() if site.outliers else []

    def write(file: TextIO) -> None:
        if args.form == "json":
            summary.write_json(file, picture, kept, found.id, far)
        elif args.form == "jsonl":
            for _node, line in kept.lines(found.id):
                file.write(line + "\n")
        elif args.form == "html":
            from nhc.fleet.html import write_html

            write_html(file, picture, kept, found.id, far)
        else:
            colour = wants_colour(site.color, file)
            file.write(summary.text(picture, far, site.by, colour, args.quiet, site.skipped))

    if args.output and args.output != "-":
        replace_output(args.output, write)
    else:
        write(sys.stdout)
        sys.stdout.flush()
    return EXIT_HEALTHY


def _command_line() -> str:
    """The command line as the history shows it. No secret is ever an argument."""
    import shlex

    return printable(shlex.join(["nhc", *sys.argv[1:]]), 2000)
