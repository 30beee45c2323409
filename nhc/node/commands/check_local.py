"""`nhc check local`: judge this node now.

It imports no module that would delay a scheduler's prolog: see docs/decisions/0001-start-up.md.
"""

from __future__ import annotations

import os
import sys

from nhc.core.command_line.clean_output import allow_colours
from nhc.core.command_line.options import FORMATS, CheckLocal, LostOutput, UsageError, read
from nhc.core.exit_status import EXIT_UNKNOWN
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.host import Host
    from nhc.core.language.site_settings import SiteSettings
    from nhc.core.model import Report
    from nhc.core.plan import Plan
    from nhc.core.state.store import State
    from nhc.node.planning.local import Question


def main(argv: Sequence[str]) -> int:
    """Read the command line and run. Returns the exit status."""
    try:
        return run(read(CheckLocal, argv))
    except LostOutput as error:
        print(f"nhc check local: {error}", file=sys.stderr)
        return EXIT_UNKNOWN
    except UsageError as error:
        print(f"nhc check local: {error}\nTry 'nhc check local --help'.", file=sys.stderr)
        from nhc.core.command_line import unusable

        return unusable.report_unusable("WrongUsage", [str(error)], **unusable.requested_output(argv))


def run(args: CheckLocal) -> int:
    """Carry out `nhc check local`. Raises UsageError."""
    from nhc.core.language.site_settings import site_settings
    from nhc.core.state.store import State
    from nhc.node.planning.local import select

    for secret in ("NHC_SSH_PASSWORD", "NHC_SUDO_PASSWORD"):  # a sweep's: no line of a configuration asks for them
        os.environ.pop(secret, None)
    if args.context:
        _known_context(args.context)
    max_age = args.max_age
    state = State()
    host = _host(args.root, state)
    site = site_settings()
    name = args.node or site.local_node_name(host)
    if max_age is not None:
        fresh = fresh_report(state, max_age, host, args) or _agents_report(state, max_age, host, args)
        if fresh is not None:
            return _print_report(fresh, args)
    problems: List[str] = []
    asked = question(args)
    plan = plan_of(asked, name, host, state, problems, site)
    if plan is None:
        from nhc.core.command_line import unusable

        return unusable.report_unusable("BadConfiguration", problems, args.form, args.output, name)
    plan = select(plan, asked)
    if not plan.items:
        raise UsageError(_nothing(args, name))
    from nhc.node.run.engine import run as judge

    report = judge(
        plan,
        host,
        state=state,
        check_all=bool(args.all),
        deadline=args.timeout,
        name=name,
        # A report on a terminal does not show it.
        identify=args.form in ("json", "jsonl") or max_age is not None,
        progress=_progress if _show_progress(args) else None,
        meanwhile=lambda: _load_renderer(args),
    )
    if _show_progress(args):
        sys.stderr.write("\r\033[K")
    if max_age is not None:
        remember(state, report, args)
    return _print_report(report, args)


def _print_report(report: Report, args: CheckLocal) -> int:
    """Print the report; returns the exit status, which counts an unknown verdict as --on-unknown says."""
    from nhc.core.command_line.report_output import emit

    status = emit(report, args)
    choice = args.on_unknown
    if choice == "tell":
        return status
    from nhc.core.command_line.on_unknown import status as decided

    return decided(report, status, choice)


def _known_context(name: str) -> None:
    """Raises UsageError for an unknown context: the run would judge only by the lines without a context."""
    from nhc.core.language.line_options import CONTEXTS, unknown_context
    from nhc.core.plan import DEEP

    if name == DEEP:
        raise UsageError("--context deep: deep checks need the node for themselves; nhc deep run sees to that")

    if name not in CONTEXTS:
        raise UsageError(f"--{unknown_context(name)}")


def _host(asked: str, state: State) -> Host:
    """The node to judge. Raises UsageError."""
    from nhc.core.host import BadRoot, Host, root_of

    if not root_of(asked):
        return Host(memory=state)  # as live_host says, which costs two modules
    from nhc.node.hosts.live import live_host

    try:
        return live_host(asked, state)
    except BadRoot as error:
        raise UsageError(str(error)) from None


def question(args: CheckLocal) -> Question:
    """The question that the options put to the node's plan."""
    from nhc.node.planning.local import Question

    return Question(args.config, args.scripts, args.profile, args.context, args.check, args.tag)


def plan_of(
    asked: Question, name: str, host: Host, state: State, lines: Optional[List[str]] = None,
    site: Optional[SiteSettings] = None,
) -> Optional[Plan]:  # fmt: skip
    """The node's whole plan; None if the configuration cannot be used, which is reported on stderr.

    Each line of that report is added to `lines` as well. Raises UsageError for a profile that cannot be used.
    """
    from nhc.node.planning.local import load_plan
    from nhc.node.planning.profiles import NoProfile

    try:
        return load_plan(asked, name, host, state, site)
    except NoProfile as error:
        raise UsageError(f"--profile: {error}") from None
    except OSError as error:
        raise UsageError(f"--profile {asked.profile}: {error.strerror}") from None
    except Exception as error:
        problems = getattr(error, "problems", None)  # ConfigError, whose module most runs never load
        if problems is None:
            raise
        texts = [problem.show() for problem in problems]
        print("\n".join(texts), file=sys.stderr)
        if lines is not None:
            lines += texts
        return None


def _nothing(args: CheckLocal, name: str) -> str:
    asked = [f"--check {name}" for name in args.check] + [f"--tag {tag}" for tag in args.tag]
    if args.context:
        asked.append(f"--context {args.context}")
    if asked:
        return f"no configured check matches {' '.join(asked)} on {name}"
    return f"the configuration has no check for {name}"


def _selected(args: CheckLocal) -> str:
    """What a remembered report covers: reports of different questions are never exchanged."""
    parts: List[Tuple[str, object]] = [
        ("config", args.config), ("scripts", args.scripts), ("profile", args.profile),
        ("check", args.check), ("tag", args.tag), ("context", args.context), ("all", args.all),
        ("node", args.node),
    ]  # fmt: skip
    from nhc.core.host import root_of

    root = root_of(args.root)
    return repr([*parts, ("root", root)] if root else parts)


def remember(state: State, report: Report, args: CheckLocal) -> None:
    """Keep the report for `--max-age`, for the hooks and for the agent."""
    from nhc.core.render.json import to_dict

    state.save("last", {"asked": _selected(args), "report": to_dict(report)})


def fresh_report(state: State, max_age: float, host: Host, args: CheckLocal) -> Optional[Report]:
    """The last report of the same question, from this boot, at most `max_age` seconds old."""
    from nhc.core.state.reports import fresh

    kept: Mapping[str, Any] = state.load("last")
    last, now = kept.get("report"), host.time()
    if kept.get("asked") != _selected(args) or not isinstance(last, dict):
        return None
    report = fresh(last, max_age, now, host.boot_id())
    if report is None:
        return None
    age = now - report.started
    return report._replace(notes=(*report.notes, f"this report is {age:.0f} s old (--max-age)"))


def _load_renderer(args: CheckLocal) -> None:
    """Import what `emit` will need, while the first checks run."""
    __import__("nhc.core.command_line.report_output")
    if args.form in FORMATS:
        __import__(f"nhc.core.render.{'json' if args.form == 'jsonl' else args.form}")


def _agents_report(state: State, max_age: float, host: Host, args: CheckLocal) -> Optional[Report]:
    """The resident agent's report, if an agent runs on this node and has a fresh report."""
    from nhc.node.commands.answer import of_agent

    return of_agent(state, max_age, host.time(), host.boot_id(), args)


def _show_progress(args: CheckLocal) -> bool:
    shown = args.form == "text" and not args.quiet and sys.stderr.isatty()
    if shown:
        allow_colours(sys.stderr)
    return shown


def _progress(done: int, total: int, name: str) -> None:
    sys.stderr.write(f"\r\033[K{done}/{total} {name}"[:78])
    sys.stderr.flush()
