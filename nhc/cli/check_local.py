"""`nhc check local`: judge the node this runs on, now.

It imports nothing that a scheduler's prolog would notice: see docs/decisions/0001-start-up.md.
"""

from __future__ import annotations

import os
import sys

from nhc.cli.options import CHECK_LOCAL, UsageError, read
from nhc.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN
from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict
from nhc.plan import BUILT_IN, Plan

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.host import Host

CONFIG = "/etc/nhc/nhc.conf"
SCRIPTS = "/etc/nhc/scripts"

EXIT = {
    Verdict.OK: EXIT_HEALTHY,
    Verdict.WARN: EXIT_HEALTHY,
    Verdict.UNKNOWN: EXIT_UNKNOWN,
    Verdict.CRIT: EXIT_UNHEALTHY,
}


def main(argv: Sequence[str]) -> int:
    """Read the command line and run. Returns the exit status."""
    try:
        return run(read(CHECK_LOCAL, argv))
    except UsageError as error:
        print(f"nhc check local: {error}\nTry 'nhc check local --help'.", file=sys.stderr)
        from nhc.cli import unusable

        return unusable.tell("WrongUsage", [str(error)], **unusable.asked(argv))


def run(options: Mapping[str, Any]) -> int:
    """Carry out `nhc check local` with its options as a dictionary. Raises UsageError."""
    from nhc.state.store import State

    if options["context"]:
        _known_context(options["context"])
    deadline = _time(options, "timeout")
    max_age = _time(options, "max_age")
    state = State()
    host = live_host(options["root"], state)
    name = options["node"] or host.system.hostname()
    if max_age is not None:
        fresh = fresh_report(state, max_age, host, options) or _agents_report(state, max_age, host, options)
        if fresh is not None:
            return _told(fresh, options)
    problems: List[str] = []
    plan = load_plan(options, name, host, state, problems)
    if plan is None:
        from nhc.cli import unusable

        return unusable.tell("BadConfiguration", problems, options["format"], options["output"], name)
    plan = select(plan, options)
    if not plan.items:
        raise UsageError(_nothing(options, name))
    from nhc.run.engine import run as judge

    report = judge(
        plan,
        host,
        state=state,
        check_all=bool(options["all"]),
        deadline=deadline,
        name=name,
        progress=_progress if _show_progress(options) else None,
        meanwhile=lambda: _load_renderer(options),
    )
    if _show_progress(options):
        sys.stderr.write("\r\033[K")
    if max_age is not None:
        remember(state, report, options)
    return _told(report, options)


def _told(report: Report, options: Mapping[str, Any]) -> int:
    """Print the report; the exit status, an unknown verdict counted as --on-unknown says."""
    status = emit(report, options)
    choice = options.get("on_unknown", "tell")
    if choice == "tell":
        return status
    from nhc.cli.gate import status as decided

    return decided(report, status, choice)


def _known_context(name: str) -> None:
    """Raises UsageError: a run for a context that there is not would judge by the lines without one."""
    from nhc.language.line_options import unknown_context
    from nhc.language.lines import CONTEXTS

    if name not in CONTEXTS:
        raise UsageError(f"--{unknown_context(name)}")


def root_of(asked: str) -> str:
    """Where the root of the node to judge is: as asked, else $NHC_ROOT; "" for this process's own."""
    found = (asked or os.environ.get("NHC_ROOT", "")).rstrip("/")
    return os.path.abspath(found) if found else ""


def live_host(asked: str, memory: Any) -> Host:
    """The node to judge: this machine, unless `asked` or $NHC_ROOT names another root. Raises UsageError."""
    root = root_of(asked)
    if not root:
        from nhc.host import Host

        return Host(memory=memory)
    from nhc.hosts.container import BadRoot, NodeHost

    try:
        return NodeHost(root, memory=memory)
    except BadRoot as error:
        raise UsageError(f"{'root' if asked else 'NHC_ROOT'} {error}") from None


def _time(options: Mapping[str, Any], name: str) -> Optional[float]:
    from nhc.units import seconds

    value = options[name]
    if value is None:
        return None
    try:
        return seconds(value)
    except ValueError as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error}") from None


def load_plan(
    options: Mapping[str, Any], name: str, host: Any, state: Any, said: Optional[List[str]] = None
) -> Optional[Plan]:
    """The plan that the options ask for; None where the configuration cannot be used, which is said on stderr.

    What is said there is added to `said` as well.
    A run in a scheduler's context, which holds a job up, never asks a cloud's metadata service for the node's type.
    """
    from nhc.language.site_settings import site_settings
    from nhc.planning.node_plan import node_plan
    from nhc.planning.profiles import NoProfile

    site = site_settings()
    paths = site.paths(options["config"])
    profile = options.get("profile", "none")
    try:
        plan = node_plan(
            state, host, name, paths, settings=site.settings,
            scripts=site.scripts_directories(options["scripts"]), profile=profile, ask=not options["context"],
            default=default_text, default_path=site.config,
        )  # fmt: skip
    except NoProfile as error:
        raise UsageError(f"--profile: {error}") from None
    except OSError as error:
        raise UsageError(f"--profile {profile}: {error.strerror}") from None
    except Exception as error:
        problems = getattr(error, "problems", None)  # config.ConfigError, whose module most runs never load
        if problems is None:
            raise
        shown = [problem.show() for problem in problems]
        print("\n".join(shown), file=sys.stderr)
        if said is not None:
            said += shown
        return None
    if not paths:
        plan = plan._replace(notes=(f"no {site.config}: running the built-in default checks", *plan.notes))
    return plan._replace(notes=(*plan.notes, site.note)) if site.note else plan


def default_text() -> str:
    """The configuration that suits any Linux node (nhc/data/default.conf), read in a way that works in a zip file."""
    from nhc.data import reader

    return reader.read("default.conf")


def select(plan: Plan, options: Mapping[str, Any]) -> Plan:
    """The items that `--check`, `--tag` and `--context` leave."""
    names, tags, context = options["check"], set(options["tag"]), options["context"]
    items = [item for item in plan.items if not item.contexts or not context or context in item.contexts]
    if names:
        from fnmatch import fnmatchcase

        items = [item for item in items if any(fnmatchcase(item.name, name) for name in names)]
    if tags:
        items = [item for item in items if tags & _tags(item)]
    return plan._replace(items=tuple(items))


def _tags(item: Any) -> set[str]:
    from nhc.check import find

    check = find(item.argv[0]) if item.kind == BUILT_IN else None
    return {*item.tags, *(check.tags if check else ())}


def _nothing(options: Mapping[str, Any], name: str) -> str:
    asked = [f"--{kind} {value}" for kind in ("check", "tag") for value in options[kind]]
    if options["context"]:
        asked.append(f"--context {options['context']}")
    if asked:
        return f"no configured check matches {' '.join(asked)} on {name}"
    return f"the configuration has no check for {name}"


def _selected(options: Mapping[str, Any]) -> str:
    """What a remembered report covers: reports of different questions are never exchanged."""
    parts: List[Tuple[str, Any]] = [
        (key, options[key]) for key in ("config", "scripts", "profile", "check", "tag", "context", "all", "node")
    ]
    root = root_of(options["root"])
    return repr([*parts, ("root", root)] if root else parts)


def remember(state: Any, report: Report, options: Mapping[str, Any]) -> None:
    """Keep the report for `--max-age`, for the hooks and for the agent."""
    from nhc.render.json import to_dict

    state.save("last", {"asked": _selected(options), "report": to_dict(report)})


def fresh_report(state: Any, max_age: float, host: Any, options: Mapping[str, Any]) -> Optional[Report]:
    """The last report of the same question, from this boot, at most `max_age` seconds old."""
    from nhc.render.json import from_dict

    kept: Dict[str, Any] = state.load("last")
    if kept.get("asked") != _selected(options):
        return None
    try:
        report = from_dict(kept.get("report"))
    except ValueError:
        return None
    age = host.time() - report.started
    same_boot = report.boot_id == host.read_or("/proc/sys/kernel/random/boot_id")
    if not same_boot or not 0 <= age <= max_age:
        return None
    return report._replace(notes=(*report.notes, f"this report is {age:.0f} s old (--max-age)"))


def _load_renderer(options: Mapping[str, Any]) -> None:
    """Import what `emit` is about to need, while the first checks run."""
    __import__(f"nhc.render.{options['format']}")


def _agents_report(state: Any, max_age: float, host: Any, options: Mapping[str, Any]) -> Optional[Report]:
    """The resident agent's, where one runs on this node and has a fresh one."""
    from nhc.cli.answer import of_agent

    return of_agent(state, max_age, host.time(), host.read_or("/proc/sys/kernel/random/boot_id"), options)


def emit(report: Report, options: Mapping[str, Any]) -> int:
    """Print or write the report; the exit status that its format asks for."""
    form = options["format"]
    status = EXIT[report.verdict]
    if form == "text":
        from nhc.render import text

        colour = _colour(options)
        shown = text.render(report, verbose=options["verbose"], quiet=options["quiet"],
                            evidence=options["evidence"], colour=colour, skipped=options["skipped"])  # fmt: skip
    elif form == "json":
        from nhc.render import json

        shown = json.render(report)
    elif form == "nagios":
        from nhc.render import nagios

        shown, status = nagios.render(report), nagios.exit_status(report)
    elif form == "npd":
        from nhc.render import npd

        shown, status = npd.render(report), npd.exit_status(report)
    else:
        from nhc.render import prometheus

        shown = prometheus.render(report)
    if options["output"] not in ("", "-", "/dev/stdout"):
        write_atomically(options["output"], shown)
    else:
        _print(shown)
    return status


def _print(text: str) -> None:
    """Write to standard output. A reader that has gone changes nothing about the node; a full disk is said."""
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:  # the locale's character set is a small one
            charset = sys.stdout.encoding
            sys.stdout.write(text.encode(charset, "backslashreplace").decode(charset))
        sys.stdout.flush()
        failure: Optional[OSError] = getattr(sys.stdout, "failure", None)  # nhc.cli.clean_output
        if failure is not None:
            sys.stdout.failure = None  # type: ignore[union-attr]
            raise failure
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains once more when it ends
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of it: said once
        raise UsageError(f"standard output: {error.strerror}: the report could not be written") from None


def write_atomically(path: str, text: str) -> None:
    """Replace `path` so that a reader sees the old content or the new one whole. Raises UsageError when it cannot."""
    from nhc.system.output_file import replace

    try:
        replace(path, lambda file: file.write(text))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: the report could not be written") from None


def _colour(options: Mapping[str, Any]) -> bool:
    if options["color"] == "auto":
        return not options["output"] and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return bool(options["color"] == "always")


def _show_progress(options: Mapping[str, Any]) -> bool:
    return options["format"] == "text" and not options["quiet"] and sys.stderr.isatty()


def _progress(done: int, total: int, name: str) -> None:
    sys.stderr.write(f"\r\033[K{done}/{total} {name}"[:78])
    sys.stderr.flush()
