"""`nhc fleet check` from its options to its exit status; `nhc fleet report` from the history."""

from __future__ import annotations

import getpass
import os
import sys
import time
from typing import Any, Dict, List, Mapping

from nhc import __version__
from nhc.cli import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.fleet import nodes as node_sources
from nhc.fleet import output
from nhc.fleet.history import History, default_path
from nhc.fleet.output import Picture
from nhc.fleet.progress import Progress
from nhc.fleet.transport import Node, Transport
from nhc.model import Verdict

EXIT = {Verdict.SKIP: EXIT_UNKNOWN, Verdict.OK: EXIT_HEALTHY, Verdict.WARN: EXIT_HEALTHY,
        Verdict.UNKNOWN: EXIT_UNKNOWN, Verdict.CRIT: EXIT_UNHEALTHY}  # fmt: skip


class Usage(Exception):
    """The command line, or a file that it names, cannot be used. One line."""

    status = EXIT_USAGE


class Unavailable(Usage):
    """Nothing is wrong with the command line, but who should know the nodes does not answer. One line."""

    status = EXIT_UNKNOWN


def run(options: Mapping[str, Any]) -> int:
    """Carry out `nhc fleet check`; the exit status. Raises Usage."""
    from nhc.fleet.sweep import sweep

    if options["apply"] and not options["mark"]:
        raise Usage("--apply goes with --mark")
    for path in filter(None, (options["html"], options["json_path"])):
        _writable(path)
    marking = _marking(options) if options["mark"] else None
    nodes = _nodes(options)
    settings = _settings(options, nodes)
    history = History("" if options["no_history"] else options["history"] or default_path())
    started = time.time()
    number = history.begin(_words(), __version__, started)
    picture = Picture(nodes, started, options["group_by"])
    arrivals = sweep(nodes, settings)
    interrupted = False
    try:
        with Progress(len(nodes), options["form"] == "text" and sys.stderr.isatty()) as progress:
            for arrived in arrivals:
                picture.add(arrived.place, arrived.verdict, arrived.findings, arrived.metrics, arrived.labels)
                history.add(number, nodes[arrived.place].name, arrived.verdict, arrived.seconds, arrived.line)
                if options["form"] == "jsonl":
                    sys.stdout.write(arrived.text() + "\n")
                    sys.stdout.flush()
                progress.show(picture.folder.total, picture.folder.counts)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        arrivals.close()
    history.end(number)
    picture.ended = time.time()
    try:
        _show(options, picture, history, number)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"nhc fleet check: {error.filename}: {error.strerror}", file=sys.stderr)
        interrupted = True
    if history.warning:
        print(f"nhc fleet check: {history.warning}", file=sys.stderr)
    if interrupted:
        left = len(nodes) - picture.folder.total
        if left:
            nodes_left = "1 node was" if left == 1 else f"{left} nodes were"
            print(f"nhc fleet check: interrupted, {nodes_left} not judged", file=sys.stderr)
        history.close()
        return 130 if left else EXIT_UNKNOWN
    status = exit_status(picture, options["max_unhealthy"])
    if marking is not None:
        status = _worse(status, marking(history, number, options))
    history.close()
    return status


def _writable(path: str) -> None:
    """See before the sweep, not after it, that its report can be written. Raises Usage."""
    directory = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(directory):
        raise Usage(f"{path}: {'a directory' if os.path.isdir(path) else f'there is no directory {directory}'}")
    if not os.access(directory, os.W_OK):
        raise Usage(f"{path}: you cannot write to {directory}")


def _worse(one: int, other: int) -> int:
    """The exit status that says more: 1 before 3 before 0."""
    return max(one, other, key=(EXIT_HEALTHY, EXIT_UNKNOWN, EXIT_UNHEALTHY).index)


def exit_status(picture: Picture, limit: Any) -> int:
    """The worst node's status; 0 where no more nodes are unhealthy than the limit allows."""
    folder = picture.folder
    status = EXIT[folder.worst()]
    if limit is None or status == EXIT_HEALTHY:
        return status
    count, share = limit
    allowed = count if count is not None else share * folder.total
    return EXIT_HEALTHY if folder.unhealthy() <= allowed else status


def _show(options: Mapping[str, Any], picture: Picture, history: History, number: int) -> None:
    far = picture.outliers() if options["outliers"] else []
    form = options["form"]
    if options["json_path"]:
        output.write_file(options["json_path"], lambda file: output.write_json(file, picture, history, number, far))
    if options["html"]:
        from nhc.fleet.html import write_html

        output.write_file(options["html"], lambda file: write_html(file, picture, history, number, far))
    if form == "json":
        output.write_json(sys.stdout, picture, history, number, far)
    elif form == "text":
        colour = output.wants_colour(options["color"], sys.stdout)
        sys.stdout.write(output.text(picture, far, options["by"], colour, options["quiet"]))
    sys.stdout.flush()


def again(options: Mapping[str, Any]) -> int:
    """Carry out `nhc fleet report`. Raises HistoryError, OSError."""
    history = History(options["history"] or default_path(), create=False)
    if options["listed"]:
        for sweep in history.sweeps():
            sys.stdout.write(output.sweep_line(sweep) + "\n")
        return EXIT_HEALTHY
    sweep = history.find(options["sweep"])
    picture = output.picture_of(history, sweep, options["group_by"])
    far = picture.outliers() if options["outliers"] else []
    form = options["form"]

    def write(file: Any) -> None:
        if form == "json":
            output.write_json(file, picture, history, sweep.id, far)
        elif form == "jsonl":
            for _node, line in history.lines(sweep.id):
                file.write(line + "\n")
        elif form == "html":
            from nhc.fleet.html import write_html

            write_html(file, picture, history, sweep.id, far)
        else:
            colour = output.wants_colour(options["color"], file)
            file.write(output.text(picture, far, options["by"], colour, options["quiet"]))

    if options["output"]:
        output.write_file(options["output"], write)
    else:
        write(sys.stdout)
        sys.stdout.flush()
    return EXIT_HEALTHY


# From options to what a sweep takes.


def _words() -> str:
    """The command line as the history shows it. No secret is ever an argument."""
    import shlex

    return shlex.join(["nhc", *sys.argv[1:]])[:2000]


def _nodes(options: Mapping[str, Any]) -> List[Node]:
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


def _settings(options: Mapping[str, Any], nodes: List[Node]) -> Any:
    from nhc.fleet import push, remote, sweep

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
    return sweep.Settings(
        task, _transports(options, nodes), options["transport"], options["fanout"], options["shards"],
        options["connect_timeout"], options["retries"], sweep.names_of(nodes),
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
            raise Usage(f"{error.name} is not installed: pip install 'nhc[fleet]', or --transport openssh") from None
        try:
            paramiko = Paramiko(options["ssh_config"], options["accept_new"])
        except ValueError as error:
            raise Usage(str(error)) from None
        paramiko.warm([node for node in nodes if (node.connection or options["transport"]) == "ssh"][:64])
        found["ssh"] = paramiko
    return found


def _marking(options: Mapping[str, Any]) -> Any:
    """What hands the reports to an adapter, checked before any node is asked. Raises Usage."""
    from nhc.fleet.mark import BadMark, prepare

    try:
        return prepare(options)
    except BadMark as error:
        raise Usage(str(error)) from None
