"""`nhc agent ...`: the resident agent, and the commands that speak with it."""

from __future__ import annotations

import json
import os
from typing import Any, List, Mapping, Optional, Tuple, Type, TypeVar, cast, get_type_hints

import click

from nhc.agent.control_answers import Acknowledged, AgentStatus, ChecksJudged, ChecksStarted, Paused, Reloaded, Resumed
from nhc.agent.settings import FILE, AgentSettings
from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person, service_command
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.units import show_seconds

T = TypeVar("T")


class SocketOptions(options.CommandOptions):
    """Which agent."""

    socket: str = options.text(
        "--socket", "FILE", "The agent's socket. Default: as /etc/nhc/agent.toml says, else agent.sock in the state "
        "directory (/run/nhc).",
    )  # fmt: skip


class AgentOptions(options.CommandOptions):
    settings: str = options.settings_file("agent.toml")
    config: Tuple[str, ...] = options.setting(
        "-c --config", AgentSettings, "config", "FILE", "The checks (repeatable)."
    )
    node: str = options.text("-n --node", "NAME", "The node's name. Default: $NODE_NAME, else the kernel's.")
    root: Optional[str] = options.setting("--root", AgentSettings, "root", "DIR")
    listen: Tuple[str, ...] = options.setting("--listen", AgentSettings, "listen", "HOST:PORT")
    socket: Optional[str] = options.setting(
        "--socket", AgentSettings, "socket", "FILE", "Where it answers `nhc agent`."
    )
    check_settings: bool = options.flag(
        "--check-settings", "Only read the settings and the files they name, and say what is wrong with them."
    )


@service_command
def run(args: AgentOptions) -> int:
    """Watch this node: every check on its own cadence, the kernel log live.

    Runs in the foreground, for systemd or a container. SIGHUP reads settings and configuration anew, SIGTERM
    ends it. Exit status: 0 after SIGTERM, 2 where settings or configuration cannot be used.
    """

    def read() -> AgentSettings:
        settings = FILE.load(args.settings, overrides=args.overrides(AgentSettings))
        return settings._replace(node=args.node or settings.node or os.environ.get("NODE_NAME", ""))

    from nhc.agent import main, npd_monitors

    if not args.check_settings:
        return main.run(read)
    settings = read()  # raises what the agent would refuse in it and in the files that it names
    npd_monitors.load(settings)
    main.sinks(settings, settings.node)
    return EXIT_HEALTHY


class AgentStatusOptions(SocketOptions, options.Formatted):
    checks: bool = options.flag("--checks", "Show every check: its cadence, its age, its verdict.", heading="Other")
    events: int = options.whole("--history", "N", "Show the last N events of the history.", 0)


@click_command
def status(args: AgentStatusOptions) -> int:
    """Show how the node is and what the agent does.

    Exit status: 0 healthy (WARN too), 1 unhealthy, 3 unknown or no answer.
    """
    answer = _ask(args.socket, {"do": "status"}, AgentStatus)
    past: List[Mapping[str, Any]] = []
    if args.events:
        from nhc.agent import history

        try:
            past = [*history.read(answer["history"], args.events)]
        except OSError as error:
            raise CommandError(f"{error.filename or 'history'}: {error.strerror}", EXIT_USAGE) from None
    if args.form == "json":
        show({**answer, "events": past} if args.events else answer)
    else:
        _show(answer, args.checks)
        for piece in past:
            subject = " ".join(str(piece[key]) for key in ("check", "target", "reason", "message") if piece.get(key))
            click.echo(f"{piece['time']}  {piece['event']}  {subject}")
    return {"OK": EXIT_HEALTHY, "WARN": EXIT_HEALTHY, "CRIT": EXIT_UNHEALTHY}.get(answer["verdict"], EXIT_UNKNOWN)


def _show(answer: AgentStatus, checks: bool) -> None:
    click.echo(f"{answer['node']}: {answer['verdict']}: {len(answer['checks'])} checks, agent {answer['version']} "
               f"(pid {answer['pid']}) up {show_seconds(answer['uptime'])}")  # fmt: skip
    if answer["health"]:
        click.echo(f"agent: {answer['health']}")
    for problem in answer["config_problems"]:
        click.echo(f"configuration refused: {problem}")
    for wrong in answer["problems"]:
        click.echo(f"{wrong['verdict']:7}  {wrong['text']}")
    log = answer["kernel_log"]
    how = "followed live" if log["live"] else f"not followed live{': ' + log['problem'] if log['problem'] else ''}"
    click.echo(f"kernel log: {how}, {log['records']} records" + (f", {log['lost']} lost" if log["lost"] else ""))
    if log["journald"] or log["journald_problem"]:
        click.echo(f"kernel log in journald: {log['journald_problem'] or 'followed live'}")
    for problem in answer["log_problems"]:
        click.echo(f"log not read: {problem}")
    for name, sink in answer["sinks"].items():
        state = sink["problem"] or "delivering"
        more = f", {sink['lost']} events lost" if sink["lost"] else ""
        click.echo(f"sink {name}: {state}{more}")
    if checks:
        for check in answer["checks"]:
            age = "never run" if check["age"] is None else f"{show_seconds(check['age'])} ago"
            verdict = check["verdict"] or "-"
            now = ", running" if check["running"] else ""
            took = show_seconds(check["elapsed"])
            click.echo(f"{verdict:7}  every {show_seconds(check['every']):6} {age}, took {took}{now}  {check['line']}")


class PauseOptions(SocketOptions):
    lasts: float = options.duration("--for", "How long.", "1h")
    why: Tuple[str, ...] = options.arguments("[WHY]...")


@click_command
def pause(args: PauseOptions) -> None:
    """Run no checks for a while, for maintenance. The kernel log is still followed.

    What was said of the node stands. /healthz is false meanwhile; /livez stays true.
    """
    _ask(args.socket, {"do": "pause", "seconds": args.lasts, "by": person(), "why": " ".join(args.why)}, Paused)
    click.echo(f"paused for {show_seconds(args.lasts)}")


@click_command
def resume(args: SocketOptions) -> None:
    """End a pause: every check runs at once."""
    answer = _ask(args.socket, {"do": "resume", "by": person()}, Resumed)
    click.echo("resumed" if answer["was_paused"] else "was not paused")


class RunNowOptions(SocketOptions):
    no_wait: bool = options.flag("--no-wait", "Do not wait for the results.")
    names: Tuple[str, ...] = options.arguments("[NAMES]...")


@click_command
def run_now(args: RunNowOptions) -> int:
    """Have the agent run checks now (all, or those of these names; shell patterns work), and show their results.

    Exit status: 0 healthy (WARN too), 1 unhealthy, 3 unknown.
    """
    question = {"do": "check", "names": list(args.names), "wait": not args.no_wait}
    if args.no_wait:
        click.echo(f"{_ask(args.socket, question, ChecksStarted)['started']} checks started")
        return EXIT_HEALTHY
    from nhc.core.model import Verdict, printable, subject
    from nhc.core.render.json import from_result

    results = [from_result(result) for result in _ask(args.socket, question, ChecksJudged, timeout=620.0)["results"]]
    for result in results:
        text = printable(result.outcome.message)
        click.echo(f"{result.verdict.name:7}  {result.check}{subject(result.outcome)}{': ' + text if text else ''}")
    worst = max((result.verdict for result in results), default=Verdict.UNKNOWN)
    return {Verdict.CRIT: EXIT_UNHEALTHY, Verdict.UNKNOWN: EXIT_UNKNOWN}.get(worst, EXIT_HEALTHY)


class AgentAckOptions(SocketOptions):
    device: str = options.text("--device", "PCI", "All findings of this device.")
    everything: bool = options.flag("--all", "All findings that stand.")
    note: str = options.text("--note", "TEXT", "What was done.")
    keys: Tuple[str, ...] = options.arguments("[KEYS]...")


@click_command
def ack(args: AgentAckOptions) -> int:
    """End findings of the kernel log that a person has dealt with.

    Keys are as `nhc ack` lists them (xid/79/0000:3b:00.0); condition/REASON ends a fault that stood on the node before
    the agent. Exit status: 0 ended, 1 nothing of that kind stands.
    """
    if not (args.keys or args.device or args.everything):
        raise click.UsageError("name findings, --device or --all")
    asked = {"do": "ack", "keys": list(args.keys), "device": args.device, "all": args.everything, "by": person(),
             "note": args.note}  # fmt: skip
    answer = _ask(args.socket, asked, Acknowledged)
    for key in answer["ended"]:
        click.echo(f"acknowledged {key}")
    for key in answer["missing"]:
        click.echo(f"nhc agent: no finding {key} stands", err=True)
    return EXIT_HEALTHY if answer["ended"] and not answer["missing"] else EXIT_UNHEALTHY


@click_command
def reload(args: SocketOptions) -> None:
    """Read settings and configuration anew. With a mistake in them nothing changes.

    Exit status: 0 done, 2 refused.
    """
    answer = _ask(args.socket, {"do": "reload"}, Reloaded)
    for problem in answer["problems"]:
        click.echo(problem, err=True)
    if answer["problems"]:
        raise CommandError("refused; the configuration that was in force still is", EXIT_USAGE)
    click.echo(f"reloaded: {answer['checks']} checks")


def _socket() -> str:
    """Where this node's agent listens: as its settings say, if this user may read them."""
    from nhc.agent import settings
    from nhc.agent.control_socket import default_socket
    from nhc.core.settings.settings_file import SettingsError

    try:
        agent_settings = settings.load()
    except SettingsError:  # the agent says what is wrong with them
        agent_settings = settings.AgentSettings()
    return agent_settings.socket or default_socket(agent_settings.state)


def _ask(path: str, question: Mapping[str, object], kind: Type[T], timeout: float = 30.0) -> T:
    """The agent's answer, of this kind. Raises CommandError if there is none, or if it lacks something."""
    from nhc.agent.sockets import ask
    from nhc.core.json_values import parse_object

    where = path or _socket()
    answer: object = None
    try:
        answer = parse_object(ask(where, json.dumps(question).encode(), timeout))
    except (FileNotFoundError, ConnectionRefusedError):
        problem = f"no agent listens at {where}"
    except PermissionError:
        problem = f"{where}: only the agent's own user may ask"
    except (OSError, ValueError) as error:
        problem = f"{where}: {getattr(error, 'strerror', None) or 'no answer'}"
    else:
        problem = _problem(answer, kind)
    if problem:
        raise CommandError(problem)
    return cast(T, answer)


def _problem(answer: object, kind: type) -> str:
    """What is wrong with an answer, "" if it has all fields of its kind: the agent may be another version."""
    if not isinstance(answer, dict):
        return "no answer"
    if "error" in answer:
        return str(answer["error"])
    missing = sorted(key for key in get_type_hints(kind) if key not in answer)
    return f"the agent's answer has no {missing[0]}: is it another version?" if missing else ""
