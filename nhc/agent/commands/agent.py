"""`nhc agent ...`: the resident agent, and the commands that speak with it."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Type, TypeVar, cast, get_type_hints

import click

from nhc.agent.control_answers import Acknowledged, AgentStatus, ChecksJudged, ChecksStarted, Paused, Reloaded, Resumed
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import DURATION, FORMAT, person, service_log
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.units import show_seconds

T = TypeVar("T")

SOCKET = click.option("--socket", "path", default="", metavar="FILE", help="The agent's socket. Default: as "
                      "/etc/nhc/agent.toml says, else agent.sock in the state directory (/run/nhc).")  # fmt: skip


@click.command("run")
@service_log
@click.option("-s", "--settings", "path", default="", metavar="FILE", help="Settings (TOML). Default: "
              "/etc/nhc/agent.toml, if any.")  # fmt: skip
@click.option(
    "-c", "--config", multiple=True, metavar="FILE", help="The checks, instead of the settings' (repeatable)."
)
@click.option(
    "-n", "--node", default="", metavar="NAME", help="The node's name. Default: $NODE_NAME, else the kernel's."
)
@click.option("--root", default="", metavar="DIR", help="The node's whole root directory, from a container. "
              "Default: the settings' root, $NHC_ROOT, else /.")  # fmt: skip
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Serve HTTP there, instead of 127.0.0.1:20258.")
@click.option("--socket", default="", metavar="FILE", help="The control socket.")
@click.option("--check-settings", is_flag=True, help="Only read the settings and "
              "the files they name, and say what is wrong with them.")  # fmt: skip
def run(
    path: str, config: List[str], node: str, root: str, listen: List[str], socket: str, check_settings: bool
) -> int:
    """Watch this node: every check on its own cadence, the kernel log live.

    Runs in the foreground, for systemd or a container. SIGHUP reads settings and configuration anew, SIGTERM
    ends it. Exit status: 0 after SIGTERM, 2 where settings or configuration cannot be used.
    """
    import os

    from nhc.agent import settings as agent_settings
    from nhc.agent.settings import AgentSettings

    options = {"config": tuple(config), "root": root, "listen": tuple(listen), "socket": socket}
    changes: Dict[str, Any] = {name: value for name, value in options.items() if value}

    def read() -> AgentSettings:
        settings = agent_settings.load(path)
        name = node or settings.node or os.environ.get("NODE_NAME", "")
        return settings._replace(**changes, node=name)

    from nhc.agent import main, npd_monitors

    if not check_settings:
        return main.run(read)
    settings = read()  # what in it, and in the files that it names, the agent would refuse, is raised
    npd_monitors.load(settings)
    main.sinks(settings, settings.node)
    return EXIT_HEALTHY


@click.command("status")
@SOCKET
@FORMAT
@click.option("--checks", is_flag=True, help="Show every check: its cadence, its age, its verdict.")
@click.option("--history", "events", type=int, default=0, metavar="N", help="Show the last N events of the history.")
def status(path: str, form: str, checks: bool, events: int) -> int:
    """Show how the node is and what the agent does.

    Exit status: 0 healthy (WARN too), 1 unhealthy, 3 unknown or no answer.
    """
    answer = _ask(path, {"do": "status"}, AgentStatus)
    past: List[Mapping[str, Any]] = []
    if events:
        from nhc.agent import history

        try:
            past = [*history.read(answer["history"], events)]
        except OSError as error:
            raise CommandError(f"{error.filename or 'history'}: {error.strerror}", EXIT_USAGE) from None
    if form == "json":
        show({**answer, "events": past} if events else answer)
    else:
        _show(answer, checks)
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


@click.command("pause")
@SOCKET
@click.option("--for", "lasts", type=DURATION, default="1h", show_default=True, metavar="TIME", help="How long.")
@click.argument("why", nargs=-1)
def pause(path: str, lasts: float, why: List[str]) -> None:
    """Run no checks for a while, for maintenance. The kernel log is still followed.

    What was said of the node stands. /healthz is false meanwhile; /livez stays true.
    """
    _ask(path, {"do": "pause", "seconds": lasts, "by": person(), "why": " ".join(why)}, Paused)
    click.echo(f"paused for {show_seconds(lasts)}")


@click.command("resume")
@SOCKET
def resume(path: str) -> None:
    """End a pause: every check runs at once."""
    answer = _ask(path, {"do": "resume", "by": person()}, Resumed)
    click.echo("resumed" if answer["was_paused"] else "was not paused")


@click.command("check")
@SOCKET
@click.option("--no-wait", is_flag=True, help="Do not wait for the results.")
@click.argument("names", nargs=-1)
def run_now(path: str, no_wait: bool, names: List[str]) -> int:
    """Have the agent run checks now (all, or those of these names; shell patterns work), and show their results.

    Exit status: 0 healthy (WARN too), 1 unhealthy, 3 unknown.
    """
    question = {"do": "check", "names": list(names), "wait": not no_wait}
    if no_wait:
        click.echo(f"{_ask(path, question, ChecksStarted)['started']} checks started")
        return EXIT_HEALTHY
    from nhc.core.model import Verdict, printable, subject
    from nhc.core.render.json import from_result

    results = [from_result(result) for result in _ask(path, question, ChecksJudged, timeout=620.0)["results"]]
    for result in results:
        text = printable(result.outcome.message)
        click.echo(f"{result.verdict.name:7}  {result.check}{subject(result.outcome)}{': ' + text if text else ''}")
    worst = max((result.verdict for result in results), default=Verdict.UNKNOWN)
    return {Verdict.CRIT: EXIT_UNHEALTHY, Verdict.UNKNOWN: EXIT_UNKNOWN}.get(worst, EXIT_HEALTHY)


@click.command("ack")
@SOCKET
@click.option("--device", default="", metavar="PCI", help="All findings of this device.")
@click.option("--all", "everything", is_flag=True, help="All findings that stand.")
@click.option("--note", default="", metavar="TEXT", help="What was done.")
@click.argument("keys", nargs=-1)
def ack(path: str, device: str, everything: bool, note: str, keys: List[str]) -> int:
    """End findings of the kernel log that a person has dealt with.

    Keys are as `nhc ack` lists them (xid/79/0000:3b:00.0); condition/REASON ends a fault that stood on the node before
    the agent. Exit status: 0 ended, 1 nothing of that kind stands.
    """
    if not (keys or device or everything):
        raise click.UsageError("name findings, --device or --all")
    asked = {"do": "ack", "keys": list(keys), "device": device, "all": everything, "by": person(), "note": note}
    answer = _ask(path, asked, Acknowledged)
    for key in answer["ended"]:
        click.echo(f"acknowledged {key}")
    for key in answer["missing"]:
        click.echo(f"nhc agent: no finding {key} stands", err=True)
    return EXIT_HEALTHY if answer["ended"] and not answer["missing"] else EXIT_UNHEALTHY


@click.command("reload")
@SOCKET
def reload(path: str) -> None:
    """Read settings and configuration anew. With a mistake in them nothing changes.

    Exit status: 0 done, 2 refused.
    """
    answer = _ask(path, {"do": "reload"}, Reloaded)
    for problem in answer["problems"]:
        click.echo(problem, err=True)
    if answer["problems"]:
        raise CommandError("refused; the configuration that was in force still is", EXIT_USAGE)
    click.echo(f"reloaded: {answer['checks']} checks")


def _socket() -> str:
    """Where this node's agent listens: as its settings say, where this user may read them."""
    from nhc.agent import settings
    from nhc.agent.control_socket import default_socket
    from nhc.core.settings.settings_file import SettingsError

    try:
        agent_settings = settings.load()
    except SettingsError:  # the agent says what is wrong with them
        agent_settings = settings.AgentSettings()
    return agent_settings.socket or default_socket(agent_settings.state)


def _ask(path: str, question: Mapping[str, object], kind: Type[T], timeout: float = 30.0) -> T:
    """The agent's answer, of this kind. Raises CommandError where there is none, or one that lacks something."""
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
    """What is wrong with an answer, "" where it has all that its kind has: the agent may be another version's."""
    if not isinstance(answer, dict):
        return "no answer"
    if "error" in answer:
        return str(answer["error"])
    missing = sorted(key for key in get_type_hints(kind) if key not in answer)
    return f"the agent's answer has no {missing[0]}: is it another version?" if missing else ""
