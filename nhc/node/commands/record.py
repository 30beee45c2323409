"""`nhc record` and `nhc replay`: store a faulty node in a directory, and judge it again elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from fnmatch import fnmatchcase

import click

from nhc import __version__
from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.options import LostOutput, ReportOutput, UsageError
from nhc.core.command_line.report_output import emit
from nhc.core.data.reader import table
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.language.loader import load
from nhc.core.language.site_settings import is_secret, site_settings
from nhc.core.language.targets import OwnTargets
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Outcome, Report, printable
from nhc.core.render import json as wire
from nhc.core.state.store import State
from nhc.core.system.bounded_read import read_text
from nhc.node.commands.check_local import plan_of
from nhc.node.facts.packages import compare_versions
from nhc.node.hosts.recording import RecordingHost, Replay, finish
from nhc.node.planning.local import CONFIG, Question, select
from nhc.node.run.engine import run

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.host import Host
    from nhc.core.plan import Plan


class RecordOptions(options.CommandOptions):
    directory: str = options.argument("DIR", needed=True)
    config: Tuple[str, ...] = options.texts("-c --config", "FILE", f"Configuration. Default: {CONFIG}.")
    check: Tuple[str, ...] = options.texts("--check", "NAME", "Only checks of this name (repeatable).")
    profile: str = options.text("--profile", "NAME", "As for nhc check local.", "auto")
    node: str = options.text("-n --node", "NAME", "The node's name.")
    raw: bool = options.flag("--raw", "Keep everything as it is: secrets, names, addresses, serial numbers.")


@click_command
def record_command(args: RecordOptions) -> None:
    """Run the checks and keep in DIR all that they read, for `nhc replay DIR` on another machine.

    The directory holds what the checks saw: file contents, command outputs, the kernel's log. What looks like a
    secret is cut out, and hosts, users, addresses, serial numbers and UUIDs get other names, the same ones
    throughout, so that it can be handed on; look it through first all the same.
    """
    try:
        _record(args.directory, list(args.config), list(args.check), args.profile, args.node, args.raw)
    except OSError as error:
        raise CommandError(f"{error.filename or args.directory}: {error.strerror}: not recorded") from None


def recording_host(directory: str, raw: bool = False) -> RecordingHost:
    """The machine; what checks read of it is written to a new or empty directory. Raises UsageError, OSError."""
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise click.UsageError(f"{directory} is there already and not an empty directory")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return RecordingHost(directory, raw=raw)


def _record(directory: str, config: List[str], check: List[str], profile: str, node: str, raw: bool) -> None:
    """Raises OSError if the directory cannot be written."""
    host = recording_host(directory, raw)
    name = node or site_settings().local_node_name(host)
    started = (host.time(), host.monotonic())
    try:
        plan = _plan(Question(config, profile=profile, checks=check), name, host)
    except (click.UsageError, SystemExit):
        for entry in os.scandir(directory):  # what reading a plan has asked: the command can be given again
            shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)
        raise
    with tempfile.TemporaryDirectory() as memory:
        state = State(memory)
        for store, kept in _remembered(State()).items():
            state.save(store, host.recorder.answer([REMEMBERED, store], lambda kept=kept: kept))  # type: ignore[misc]
        report = run(plan, host, state=state, check_all=True, name=name)
    complete(directory, plan, host, name, started, raw, report)


def _plan(asked: Question, name: str, host: Host) -> Plan:
    """What is to be recorded. Raises UsageError, and SystemExit if the configuration has said what is wrong."""
    try:
        loaded = plan_of(asked, name, host, State())
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    if loaded is None:
        raise SystemExit(EXIT_USAGE)
    plan = select(loaded, asked)
    if not plan.items:
        raise click.UsageError(f"no configured check applies to {name}")
    return plan


REMEMBERED = "remembered"
"""The key under which a recording has what the node remembers of a log."""


def _remembered(state: State) -> Dict[str, Dict[str, Any]]:
    """Findings that are active on this node although its log no longer has their lines: by store, the boot and the
    findings.

    Logs are rotated, and the kernel's ring wraps: a recording without them would replay as a healthy node.
    """
    from nhc.core.host import Host
    from nhc.node.kernlog.read import read_log
    from nhc.node.kernlog.source import STORE, LogSource
    from nhc.node.kernlog.store import load as load_findings
    from nhc.node.kernlog.store import stores

    in_log: List[str] = []
    try:
        in_log = list(read_log(Host(), LogSource(), since_boot=True).state.get("findings", {}))
    except OSError:
        pass  # no log can be read: all that is remembered counts
    kept = {}
    for store in stores(state, STORE):
        held = load_findings(state, store)
        findings = {key: finding for key, finding in held.get("findings", {}).items() if key not in in_log}
        if findings:
            kept[store] = {"boot": held.get("boot", ""), "findings": findings}
    return kept


def complete(
    directory: str, plan: Plan, host: Host, name: str, started: Tuple[float, float], raw: bool, report: Report
) -> None:
    """Finish the recording of a run, judge it again, and report differences. Raises OSError."""
    finish(directory, _without_secrets(plan, raw), host, name, started, raw)
    replayed = _judge(Replay(directory))
    with open(f"{directory}/report.json", "w", encoding="utf-8") as file:
        file.write(wire.render(replayed))
    click.echo(f"{directory}: {len(report.results)} results recorded, {report.verdict.name}")
    for line in differences(report, replayed):
        click.echo(f"note: replays differently (it depends on more than what was read): {line}")


def _recording(path: str) -> str:
    """Raises ValueError."""
    if not os.path.isdir(path):
        raise ValueError(f"there is no directory {path!r}")
    return path


class ReplayOptions(options.CommandOptions):
    directory: str = options.argument("DIR", needed=True, convert=_recording)
    config: Tuple[str, ...] = options.texts("-c --config", "FILE", "Judge by this configuration instead.")
    form: str = options.REPORT_FORMAT
    compare: bool = options.flag(
        "--compare", "Compare with DIR/report.json: exit 1 where a verdict differs, 3 where all that differs is judged "
        "so on purpose since then.",
    )  # fmt: skip
    verbose: int = options.flag("-v --verbose", "Show where each check is configured and how long it took.", many=True)
    evidence: bool = options.flag("-e --evidence", "Show the lines behind each verdict.")


@click_command
def replay_command(args: ReplayOptions) -> int:
    """Judge the node that `nhc record` kept in DIR again. The exit status is that of `nhc check local`.

    With --compare: 0 all is judged as it was; 1 something is judged differently, which is a fault or depends on more
    than was recorded; 3 all that differs was changed on purpose since the version that recorded it, or a newer version
    did.
    """
    try:
        replay = Replay(args.directory)
        if args.compare:
            golden = wire.parse(read_text(f"{args.directory}/report.json"))
    except (OSError, ValueError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        raise CommandError(why, EXIT_USAGE) from None
    report = _judge(replay, list(args.config))
    if args.compare:
        return _compared(differences(golden, report), str(replay.machine["version"]))
    try:
        return emit(report, ReportOutput(form=args.form, verbose=args.verbose, evidence=args.evidence))
    except LostOutput as error:
        raise CommandError(str(error), EXIT_UNKNOWN) from None
    except UsageError as error:
        raise click.UsageError(str(error)) from None


def judge(directory: str) -> Report:
    """The report that a recorded machine gives now. For tests: `judge(d)` against `d/report.json`."""
    return _judge(Replay(directory))


def _judge(replay: Replay, config: List[str] | None = None) -> Report:
    host = replay.host()
    name = str(replay.machine["name"])
    plan = replay.plan(load(config or [f"{replay.directory}/nhc.conf"], name, targets=OwnTargets()))
    with tempfile.TemporaryDirectory() as memory:
        state = State(memory)
        for store, kept in replay.recorded(REMEMBERED):
            state.save(store, kept)
        report = run(plan, host, state=state, check_all=True, name=name, in_turn=True)
    # What varies from run to run is no part of a golden report.
    results = tuple(result._replace(elapsed=0.0, source=os.path.basename(result.source)) for result in report.results)
    return report._replace(results=results, elapsed=0.0)


class ReplayDifference(NamedTuple):
    """A result that differs between two reports. None: the report has no such result."""

    check: str
    target: str
    before: Optional[Outcome]
    after: Optional[Outcome]

    def __str__(self) -> str:
        texts = [f"{side.verdict.name} {side.reason} {side.message}".strip() if side else "no result"
                 for side in (self.before, self.after)]  # fmt: skip
        return f"{' '.join(part for part in (self.check, self.target) if part)}: {texts[0]} -> {texts[1]}"


def differences(golden: Report, report: Report) -> List[ReplayDifference]:
    """The differences in what was judged."""
    found = []
    keyed = [{(r.check, r.line, r.outcome.target): r.outcome for r in side.results} for side in (golden, report)]
    for key in dict.fromkeys([*keyed[0], *keyed[1]]):
        before, after = keyed[0].get(key), keyed[1].get(key)
        if before is None or after is None or (before.verdict, before.reason) != (after.verdict, after.reason):
            found.append(ReplayDifference(key[0], key[2], before, after))
    return found


def _compared(found: Sequence[ReplayDifference], recorder: str) -> int:
    """Say what differs, and the exit status. `recorder` is the version that recorded, "" for one too old to say."""
    newer = compare_versions(recorder, __version__) > 0
    status = EXIT_HEALTHY
    for difference in found:
        why = (
            f"nhc {printable(recorder, 40)}, which is newer, recorded it"
            if newer
            else _on_purpose(difference, recorder)
        )
        if why:
            click.echo(f"other version: {difference} ({why})")
            status = status or EXIT_UNKNOWN
        else:
            click.echo(str(difference))
            status = EXIT_UNHEALTHY
    return status


def _on_purpose(difference: ReplayDifference, recorder: str) -> str:
    """Why newer versions than the recording one judge a result this way; "" if no row of judgements.tsv tells."""
    before, after = (f"{side.verdict.name} {side.reason}".strip() if side else "none"
                     for side in (difference.before, difference.after))  # fmt: skip
    for since, check, was, becomes, why in table("judgements.tsv"):
        fits = fnmatchcase(difference.check, check) and fnmatchcase(before, was) and fnmatchcase(after, becomes)
        if fits and compare_versions(recorder, since) < 0:
            return f"since {since}: {why}"
    return ""


def _without_secrets(plan: Plan, raw: bool) -> Plan:
    """A plan without the variables whose names suggest secrets, unless `raw`, and without those that no line can set,
    such as a matcher's arrays: which lines apply has been decided.
    """

    def public(settings: Mapping[str, str]) -> Dict[str, str]:
        kept = {name: value for name, value in settings.items() if name.isidentifier()}
        return kept if raw else {name: value for name, value in kept.items() if not is_secret(name)}

    items = tuple(item._replace(settings=public(item.settings)) for item in plan.items)
    return plan._replace(items=items, settings=public(plan.settings))
