"""One run of a suite on this node: see that it is free, note what must be put back, test, put it back, keep the report.

The checks run one after the other, under the engine's deadlines. When the run ends for any reason (a signal, a
deadline, an error), its tools are ended in their own way and the node is left as it was; if the run itself is killed,
the next run does that (`nhc.deep.journal`).

A tool that is not installed is not a fault of the node: its check is skipped. But a device on which no test ran has not
passed, even if the rest of the node has.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc import __version__
from nhc.core.check import find
from nhc.core.host import Host
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict, unknown
from nhc.core.plan import Plan
from nhc.core.state.reports import RUN_ITSELF, UNPROVED
from nhc.core.state.store import State
from nhc.core.system import written_files
from nhc.core.system.bounded_read import read_text
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.core.system.process import adopt_orphans
from nhc.deep import gpu_settings, idle, journal
from nhc.deep.journal import JournalError, RestoreJournal
from nhc.deep.progress import RunProgress
from nhc.marks.ports.adapter import AdapterError, NodeSource
from nhc.node.checks.deep import KIND, REQUIRE, RUN, SCRATCH, SLOW, UNJUDGED
from nhc.node.checks.gpu_proof import SEED
from nhc.node.facts import systemd
from nhc.node.facts.accelerator import accelerators
from nhc.node.planning.suites import TIMES, estimate
from nhc.node.run import engine

GRACE = journal.GRACE
"""Seconds that a tool gets to end by itself."""
STOP, ALLOW = "NHC_DEEP_STOP", "NHC_DEEP_ALLOW"
"""Variables of a configuration: services to stop for the run, and names of processes that may hold devices."""


class RunRequest(NamedTuple):
    """What to run. `deadline` in seconds for the whole, 0 for none; `source` is the scheduler, where there is one.

    `known_as` is what that calls the node, "" for the same name: a host's full name is none of Slurm's. `seed` is that
    of a proof of GPUs that is to be carried out again. `require` names tools without which a check is UNKNOWN, not
    skipped.
    """

    suite: str
    plan: Plan
    node: str
    kinds: Sequence[str]
    force: bool = False
    deadline: float = 0.0
    source: Optional[NodeSource] = None
    terminal: bool = False
    say: Callable[[str], None] = lambda line: None
    quiet: bool = False
    known_as: str = ""
    seed: Optional[int] = None
    require: Sequence[str] = ()


class Ran(NamedTuple):
    """The report, the signal that ended the run, 0 for none, and the plan as it was carried out."""

    report: Report
    signal: int
    plan: Plan = Plan(())


def run(wanted: RunRequest, host: Host, state: State, environ: Mapping[str, str], where: str) -> Ran:
    """Run a suite. Raises JournalError where nothing was begun."""
    lock = journal.lock(where)
    signals = Signals()
    signals.take()
    host = host.with_settings(dict(wanted.plan.settings))  # its PATH is where our own commands are looked for, too
    try:
        return _locked(wanted, host, state, environ, where, signals)
    except SignalToEnd:
        signals.hold()
        left = journal.read(where)
        done, failed = journal.restore(host, where, left) if left else ([], [])
        why = f"the run was ended by signal {signals.number} before a check began"
        results = [_itself(unknown("NotRun", why)), *(_itself(unknown("DeepNotRestored", line)) for line in failed)]
        report = _report(wanted, host, host.time(), time.monotonic(), tuple(results), done)
        return Ran(report, signals.number)
    finally:
        signals.hold()
        os.close(lock)
        signals.leave()


def _locked(
    wanted: RunRequest, host: Host, state: State, environ: Mapping[str, str], where: str, signals: Signals
) -> Ran:
    begun, started = time.monotonic(), host.time()
    notes: List[str] = []
    left = journal.read(where)
    if left is not None:
        done, failed = journal.restore(host, where, left)
        notes += [f"put back after a run that was killed: {line}" for line in done]
        if failed:
            raise JournalError(f"a run of {left.suite} was killed and not all can be put back: {'; '.join(failed)}")
    view = look(wanted, host, environ)
    notes += view.notes
    if view.busy and not wanted.force:
        results = tuple(_itself(unknown("DeepNodeBusy", f"the node is not free: {occupant}")) for occupant in view.busy)
        return Ran(_report(wanted, host, started, begun, results, notes), 0)
    for occupant in view.busy:
        wanted.say(f"--force: this disturbs {occupant.who} ({occupant.what})")
        notes.append(f"--force: this disturbed {occupant.who} ({occupant.what})")
    begin = _prepare(wanted, host, started, where)
    judged: Optional[Report] = None
    try:
        begin = _stop_services(wanted, host, where, begin, notes)
        judged = _judge(wanted, host, state, begin)
    except SignalToEnd:
        pass
    finally:
        signals.hold()
        done, failed = journal.restore(host, where, _written(where, begin))
    notes += [f"put back: {line}" for line in done if not line.endswith(" ended")]
    results = () if judged is None else judged.results
    if judged is not None:
        notes += judged.notes
    if signals.number:
        missing = len(wanted.plan.items) - len({result.source + result.line for result in results})
        why = f"the run was ended by signal {signals.number}; {max(missing, 0)} checks have no result"
        results = (*results, _itself(unknown("NotRun", why)))
    results += tuple(_itself(unknown("DeepNotRestored", line)) for line in failed)
    report = _report(wanted, host, started, begun, results, notes)
    unproved = unproved_parts(results, _devices(host))
    if unproved:
        report = report._replace(labels={**report.labels, UNPROVED: " ".join(unproved)})
    return Ran(report, signals.number, _own(wanted, begin))


def _written(where: str, begin: RestoreJournal) -> RestoreJournal:
    """The journal as it is on the disk: a run that was ended while it stopped services has stopped some of them."""
    try:
        return journal.read(where) or begin
    except JournalError:
        return begin


def look(wanted: RunRequest, host: Host, environ: Mapping[str, str]) -> idle.Occupancy:
    """What is in the way of a run now."""
    allowed = wanted.plan.settings.get(ALLOW, "").split()
    seen = idle.devices(host, allowed)
    if wanted.source is None:
        return idle.Occupancy(seen.busy, (*seen.notes, "no scheduler was asked: nothing keeps work away from the node"))
    try:
        scheduler = idle.scheduler(wanted.source, wanted.known_as or wanted.node, environ)
    except AdapterError as error:
        scheduler = idle.Occupancy((idle.Occupant("the scheduler", f"it cannot be asked: {error}"),))
    return idle.Occupancy((*seen.busy, *scheduler.busy), (*seen.notes, *scheduler.notes))


def _prepare(wanted: RunRequest, host: Host, started: float, where: str) -> RestoreJournal:
    """Make the run's folder and write down what is to be put back. Raises JournalError."""
    try:
        gpus = gpu_settings.read(host)
    except (OSError, ValueError) as error:
        if not wanted.force:
            raise JournalError(
                f"the settings of the GPUs cannot be read, so that nothing could be put back: {error}"
            ) from None
        gpus = ()
    scratch = f"{where}/scratch-{int(started)}-{os.getpid()}"
    boot, path = host.boot_id(), host.settings.get("PATH", "")
    begin = RestoreJournal(uuid.uuid4().hex, boot, wanted.suite, started, scratch, (), gpus, path)
    journal.write(where, begin)
    try:
        os.mkdir(scratch, 0o700)
    except OSError as error:
        raise JournalError(f"{scratch}: {error.strerror}") from None
    return begin


def _stop_services(
    wanted: RunRequest, host: Host, where: str, begin: RestoreJournal, notes: List[str]
) -> RestoreJournal:
    """Stop the services that the configuration names and that run, each written down before it is stopped."""
    for name in wanted.plan.settings.get(STOP, "").split():
        try:
            if not journal.is_active(host, name):
                continue
        except OSError:
            notes.append(f"{STOP}: {name}: there is no systemctl here")
            continue
        begin = begin._replace(stopped=(*begin.stopped, name))
        journal.write(where, begin)
        why = systemd.control(host, journal.SERVICE_TIMEOUT, "stop", "--", name)
        if why:
            notes.append(f"{STOP}: {name}: {why}")
    return begin


def _judge(wanted: RunRequest, host: Host, state: State, begin: RestoreJournal) -> Report:
    plan = _own(wanted, begin)
    items, until = plan.items, time.monotonic() + wanted.deadline
    adopt_orphans()  # what tools leave in sessions of their own comes to us, not to init
    steps = estimate(items, state)
    progress = None if wanted.quiet else RunProgress(steps, terminal=wanted.terminal)
    try:
        report = engine.run(
            plan, host, state=state, deadline=wanted.deadline, name=wanted.node, in_turn=True, grace=GRACE,
            progress=lambda _done, _all, _name: progress.ended() if progress else None,
        )  # fmt: skip
    finally:
        if progress:
            progress.close()
    took: Dict[str, float] = {}
    for result in report.results:
        took[result.line] = max(took.get(result.line, 0.0), result.elapsed)
    state.update(TIMES, lambda memory: memory.update(took))
    results = _again(wanted, plan, host, state, report.results, until)
    results += tuple(map(_itself, untested(results, _devices(host))))
    return report._replace(results=results, notes=(*report.notes, *notes(results)))


def _again(
    wanted: RunRequest, plan: Plan, host: Host, state: State, results: Tuple[CheckResult, ...], until: float
) -> Tuple[CheckResult, ...]:  # fmt: skip
    """The results once what was slow has been measured again, as far as the run's deadline allows."""
    lines = lines_again(results)
    if not lines:
        return results
    left = until - time.monotonic()
    if wanted.deadline and left <= 0:
        return tuple(merge(results, (), "the run's deadline had passed"))
    if not wanted.quiet:
        wanted.say(f"{len(lines)} lines were slow: measured again")
    second = engine.run(
        plan._replace(items=tuple(item for item in plan.items if (item.source, item.line) in lines)), host, state=state,
        deadline=left if wanted.deadline else 0.0, name=wanted.node, in_turn=True, grace=GRACE,
    )  # fmt: skip
    return tuple(merge(results, second.results))


def _devices(host: Host) -> Tuple[str, ...]:
    """The labels of the accelerators; none where they cannot be asked, which their checks say."""
    try:
        return tuple(device.label for device in accelerators(host).devices)
    except (OSError, ValueError):
        return ()


def _own(wanted: RunRequest, begin: RestoreJournal) -> Plan:
    """The plan with what the checks need to know of the run."""
    own = {RUN: begin.run, SCRATCH: begin.scratch, KIND: " ".join(wanted.kinds)}
    if wanted.seed is not None:
        own[SEED] = str(wanted.seed)
    if wanted.require:
        own[REQUIRE] = " ".join(wanted.require)
    items = tuple(item._replace(settings={**item.settings, **own}) for item in wanted.plan.items)
    return wanted.plan._replace(items=items)


def _itself(outcome: Outcome) -> CheckResult:
    return CheckResult(RUN_ITSELF, outcome)


def _report(
    wanted: RunRequest, host: Host, started: float, begun: float, results: Tuple[CheckResult, ...], notes: Sequence[str]
) -> Report:
    return Report(
        host=wanted.node,
        boot_id=host.boot_id(),
        started=started,
        elapsed=time.monotonic() - begun,
        results=results,
        notes=tuple(dict.fromkeys(notes)),
        version=__version__,
        labels={"suite": wanted.suite, "kind": (list(wanted.kinds) or [""])[0]},
    )


KEPT = 50
"""Reports that a node keeps of its own runs."""
KEPT_SIZE = 64 << 20
"""Bytes of one of them that are read."""


def keep(report: Report, where: str) -> Optional[str]:
    """Keep a report among the last ones; why it could not be, None where it was. What is oldest goes."""
    from nhc.core.render.json import render

    folder = f"{where}/runs"
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(report.started))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = f"{folder}/{name}-{report.labels['suite'].replace('/', '_')}.json"
        written_files.write_whole(path, render(report).encode(), 0o600)
        for old in sorted(entry for entry in os.listdir(folder) if entry.endswith(".json"))[:-KEPT]:
            os.unlink(f"{folder}/{old}")
    except OSError as error:
        return f"{folder}: {error.strerror}: the report is not kept"
    return None


def kept(where: str, suite: str, node: str, since: float) -> Optional[Report]:
    """The newest kept report of a suite that began after `since` and could tell, None where there is none."""
    from nhc.core.render.json import parse

    folder = f"{where}/runs"
    try:
        names = sorted((name for name in os.listdir(folder) if name.endswith(".json")), reverse=True)
    except OSError:
        return None
    for name in names:
        try:
            report = parse(read_text(f"{folder}/{name}", KEPT_SIZE))
        except (OSError, ValueError):
            continue
        judged = report.verdict not in (Verdict.UNKNOWN, Verdict.SKIP)
        if judged and report.host == node and report.labels.get("suite") == suite and report.started > since:
            return report
    return None


# What a second measurement makes of a slow result. Pure: the results of both, the results to report out.
#
# A speed differs between runs: a result that is slow once is a warning. It convicts when it is measured again and is
# slow again. Wrong data convicts at once, in whichever measurement it shows.


Key = Tuple[str, str, str, str]


def slow(result: CheckResult) -> bool:
    """Whether a result convicts by its speed."""
    return result.verdict is Verdict.CRIT and result.outcome.reason == SLOW


def lines_again(results: Sequence[CheckResult]) -> Set[Tuple[str, str]]:
    """The lines, by their source and text, that are to be run again."""
    return {(result.source, result.line) for result in results if slow(result)}


def merge(first: Sequence[CheckResult], second: Sequence[CheckResult], why_not: str = "") -> List[CheckResult]:
    """The first results, each slow one judged by its second measurement too.

    `why_not` says why there was no second measurement. Other faults that the second measurement shows are added.
    """
    seen: Dict[Key, CheckResult] = {_key(result): result for result in second}
    unsure = {
        (result.source, result.line): result.outcome.message or result.outcome.reason
        for result in second
        if result.verdict is Verdict.UNKNOWN
    }
    confirmed = [
        _confirmed(result, seen.get(_key(result)), unsure.get((result.source, result.line), why_not))
        if slow(result) else result
        for result in first
    ]  # fmt: skip
    return confirmed + [result for result in second if result.verdict is Verdict.CRIT and not slow(result)]


def _confirmed(first: CheckResult, second: Optional[CheckResult], why_not: str) -> CheckResult:
    message = first.outcome.message
    if second is not None and slow(second):
        return first._replace(outcome=first.outcome._replace(message=f"{message}; measured again: {_figure(second)}"))
    if second is not None and second.verdict in (Verdict.OK, Verdict.WARN):
        message = f"{message}; measured again it was {_figure(second)}"
    elif second is None and not why_not:
        message = f"{message}; measured again it was not slow"
    else:
        message = f"{message}; it could not be measured again: {why_not or (second.outcome.message if second else '')}"
    doubted = first.outcome._replace(verdict=Verdict.WARN, message=message, action=Action.NONE)
    return first._replace(outcome=doubted)


def _key(result: CheckResult) -> Key:
    metric = result.outcome.metrics[0].name if result.outcome.metrics else ""
    return result.source, result.line, result.outcome.target, metric


def _figure(result: CheckResult) -> str:
    metric = result.outcome.metrics[0] if result.outcome.metrics else None
    return f"{metric.value:.4g} {metric.unit}" if metric else "slow"


MISSING = "CommandMissing"
"""The reason of results of tools that are not installed."""
UNTESTED = "DeepNothingTested"
JUDGED = (Verdict.OK, Verdict.WARN, Verdict.CRIT)


def _of_devices(check: str) -> bool:
    """Whether a check tests accelerators under load; one that only reads what they say tests nothing."""
    known = find(check) if check.startswith(("check_deep_", "check_gpu_proof")) else None
    return known is not None and "gpu" in known.tags


def missing(results: Sequence[CheckResult]) -> List[str]:
    """What was skipped because it is not installed, one line each."""
    skipped = (result.outcome for result in results if result.verdict is Verdict.SKIP)
    return list(dict.fromkeys(outcome.message for outcome in skipped if outcome.reason == MISSING))


def unjudged(results: Sequence[CheckResult]) -> List[str]:
    """The metrics that were measured and held to nothing, with their devices: `hbm copy (gpu0, gpu1)`."""
    devices: Dict[str, List[str]] = {}
    for result in results:
        outcome = result.outcome
        if outcome.verdict is Verdict.OK and UNJUDGED in outcome.message and outcome.metrics:
            name = outcome.metrics[0].name.replace("_", " ")
            devices.setdefault(name, []).extend([outcome.target] if outcome.target else [])
    return [f"{name} ({', '.join(targets)})" if targets else name for name, targets in devices.items()]


def unproved_parts(results: Sequence[CheckResult], devices: Sequence[str]) -> List[str]:
    """The devices for which no test under load came to a result, where the suite has such tests.

    A result that names no device counts for all of them.
    """
    load = [result for result in results if _of_devices(result.check)]
    tested = {result.outcome.target for result in load if result.verdict in JUDGED}
    if not load or "" in tested:
        return []
    return [device for device in devices if not any(_is_of(target, device) for target in tested)]


def untested(results: Sequence[CheckResult], devices: Sequence[str]) -> List[Outcome]:
    """UNKNOWN for each device on which no test of the suite ran because tools are missing."""
    skipped = missing([result for result in results if _of_devices(result.check)])
    return [
        unknown(UNTESTED, f"{device}: no test ran on it: {'; '.join(skipped)}", target=device)
        for device in (unproved_parts(results, devices) if skipped else ())
    ]


def _is_of(target: str, device: str) -> bool:
    """Whether a result is of a device or of an instance of it: `gpu1` and `gpu1 MIG 1g.10gb`, not `gpu11`."""
    return target.startswith(device) and not target[len(device) :][:1].isdigit()


def notes(results: Sequence[CheckResult]) -> List[str]:
    """What a reader of the report has to know beside its verdict."""
    skipped, figures = "; ".join(missing(results)), "; ".join(unjudged(results))
    lines = [f"not tested: {skipped}"] if skipped else []
    return lines + ([f"measured and not judged: {figures} (nhc deep calibrate)"] if figures else [])
