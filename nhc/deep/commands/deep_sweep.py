"""`nhc deep sweep`: test many nodes with one another on their scheduler, and name who is to blame.

`nhc status deep`, `nhc show sweep` and `nhc deep history`: what sweeps and deep checks have found, from the store.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person
from nhc.core.command_line.printing import age, results, show_table, when
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.matching.node_ranges import expand, fold
from nhc.core.matching.nodeset import BadRange
from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.core.units import count, size_bytes
from nhc.deep.continuous import Endless
from nhc.deep.continuous import run as run_endless
from nhc.deep.continuous import window as read_window
from nhc.deep.group_output import NAME, WAYS, AskedMeasurement
from nhc.deep.group_test import Rules, Topology
from nhc.deep.sweep import THE_NODE, Surroundings, Sweeper, SweepStopped, next_step
from nhc.deep.sweep_plan import BadPlan, SweepPlan, read, write
from nhc.deep.topology_sources import BadTopology, guess_and_read, not_placed
from nhc.jobs.job_site import open_controller
from nhc.jobs.settings import PATH, JobControllerSettings, load
from nhc.marks.plugins import JOB_CONTROLLERS
from nhc.marks.plugins import launcher as launcher_of
from nhc.marks.ports.adapter import AdapterError, SettingError
from nhc.marks.ports.job_control import JobName, JobView
from nhc.marks.ports.runner import Launcher
from nhc.store import audit, deep, job_restarts
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.database import Store
from nhc.store.deep import MeasuredRate, StoredSweep, SweepTest, rates
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.rounds.leader import Leader

# What a command line asks a sweep for: nodes, topology, rails, power, the tool and its limits, as a plan.


class RefusedSweep(CommandError):
    """What is wrong with the command line or its files, in one line."""

    def __init__(self, why: str) -> None:
        super().__init__(why, EXIT_USAGE)


def plan_of(args: DeepSweepOptions, more: Sequence[str] = (), first: Sequence[str] = ()) -> SweepPlan:
    """The plan of a command line. `more` are nodes beside --nodes, `first` suspects after --suspects.

    Raises RefusedSweep, BadTopology.
    """
    try:
        nodes = tuple(sorted({*expand(args.node_set), *more}))
        suspects = tuple(dict.fromkeys([*expand(args.suspect_set), *first]))
        size = size_bytes(args.size)
    except ValueError as error:
        raise RefusedSweep(str(error)) from None
    strange = next((node for node in suspects if node not in nodes), "")
    if strange:
        raise RefusedSweep(f"--suspects {args.suspect_set}: {strange} is none of the nodes")
    if len(nodes) < (1 if args.suite else 2):
        raise RefusedSweep("a sweep takes two nodes at least, one with --suite: --nodes gpu[001-064]")
    if args.suite and (args.rail_set or args.scale or suspects):
        raise RefusedSweep("--suite tests each node alone: not with --rails, --scale, --suspects, --job")
    topology = Topology()
    if args.topology_path:
        path = args.topology_path
        try:
            topology = guess_and_read(read_text(path), path)
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedSweep(f"{path}: {cause(error)}") from None
    argv: Tuple[str, ...] = args.tool or (
        "env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", f"{args.collective}_perf", "-b", str(size),
        "-e", str(size), "-g", "1", "-n", "20", "-c", "1",
    )  # fmt: skip
    if args.suite:
        argv = args.tool or ("nhc", "deep", "run", args.suite, "-n", THE_NODE, "-f", "jsonl", "-q")
    rails = _rails(args.rail_set)
    tasks = 1 if args.suite else args.tasks
    asked = AskedMeasurement(args.collective, size, tasks, not args.any_transport)
    return SweepPlan(
        uuid.uuid4().hex[:16], nodes, topology,
        Rules(failures=args.failures, scale=args.scale, rails=rails), argv, asked,
        args.floor, seconds=args.limit, patience=args.patience, most=args.most / 100,
        settings=tuple(sorted(settings_of(args).items())), rail_by=args.rail_by,
        rail_floor=args.rail_floor,
        watts=_watts(args.watts, nodes, args.power), power=_power(args.power),
        suspects=suspects, suite=args.suite,
    )  # fmt: skip


def settings_of(args: DeepSweepOptions) -> Dict[str, str]:
    """The settings of the launcher. Raises RefusedSweep."""
    settings = {}
    for pair in args.pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise RefusedSweep(f"--set {pair}: is not NAME=VALUE")
        settings[name] = value
    return settings


def _rails(text: str) -> Tuple[str, ...]:
    try:
        rails = tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise RefusedSweep(f"--rails {text}: {error}") from None
    wrong = next((rail for rail in rails if not NAME.fullmatch(rail)), "")
    if wrong:
        raise RefusedSweep(f"--rails {text}: {wrong!r} is no adapter's name, as mlx5_0 or eth2")
    return rails


def _power(text: str) -> float:
    """Watts: `200k` is 200,000."""
    try:
        return float(count(text.removesuffix("W"))) if text else 0.0
    except ValueError as error:
        raise RefusedSweep(f"--power {text}: {error}") from None


def _watts(text: str, nodes: Sequence[str], power: str) -> Tuple[Tuple[str, float], ...]:
    """What each node draws: one figure for all, or a file with lines `gpu[001-064] 10200`."""
    if not power:
        return ()
    if not text:
        raise RefusedSweep("--power needs --watts: what a node draws under test, a figure or a file of them")
    if text.removesuffix("W")[:1].isdigit() and "/" not in text:
        return tuple((node, _power(text)) for node in nodes)
    watts_of: Dict[str, float] = {}
    try:
        lines = read_text(text).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedSweep(f"{text}: {cause(error)}") from None
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            if len(fields) != 2:
                raise ValueError("expected a node set and its watts")
            watts_of.update(dict.fromkeys(expand(fields[0]), _power(fields[1])))
        except (ValueError, RefusedSweep) as error:
            raise RefusedSweep(f"{text}:{number}: {line.strip()!r}: {error}") from None
    missing = [node for node in nodes if node not in watts_of]
    if missing:
        raise RefusedSweep(f"{text}: says nothing of {missing[0]}")
    return tuple((node, watts_of[node]) for node in nodes)


# Whom a sweep tests for a job: the nodes that it ran on, and its suspects, in the order that its evidence gives them.
#
# The nodes are those that the job's scheduler still shows, else those that `nhc serve job` last saw it on, else those
# that `nhc job watch --store` was given. Kubernetes deletes the pods that still ran when their job failed, and with
# them says where they were: there all of these count. The order is what `nhc job watch --store` kept in the audit log.


FORGETTING = ("kubernetes",)
"""Launchers whose scheduler shows of a failed job only the nodes of the pods that failed."""
WATCHES = 1000
"""Newest results of `nhc job watch` in the audit log among which a job's is looked for."""


class JobSuspicion(NamedTuple):
    """The nodes of a job, the suspects among them, the first to be tested first, and who said which nodes they are."""

    nodes: Tuple[str, ...]
    suspects: Tuple[str, ...]
    source: str


def suspicion(name: str, launcher: str, settings: Mapping[str, str], store: Optional[Store]) -> JobSuspicion:
    """What is known of a job: `17`, `Job/team/llama`. `settings` are the launcher's.

    Raises RefusedSweep where nobody knows its nodes, and AdapterError, StoreError, SettingsError.
    """
    kept = _watched(name, store)
    suspects = tuple(node for node in _suspects(kept) if not node.startswith("rank "))
    view, problem = _asked(name, launcher, settings)
    witnesses = [(launcher, view.nodes if view is not None else ())]
    if not witnesses[0][1] or launcher in FORGETTING:
        witnesses.append(_remembered(name, kept, store, view))
    nodes = tuple(dict.fromkeys(node for _source, each in witnesses for node in each))
    if not nodes:
        if problem is not None:
            raise problem
        where = f"{launcher} shows none" if launcher in JOB_CONTROLLERS.ours else f"{launcher} knows no jobs"
        raise RefusedSweep(f"--job {name}: nobody knows its nodes: {where}, and the store has none; name them with -n")
    source = " and ".join(by for by, each in witnesses if each)
    if problem is not None:
        source += f" ({launcher} could not be asked: {problem})"
    return JobSuspicion(nodes, tuple(node for node in suspects if node in nodes), source)


def _remembered(
    name: str, kept: Mapping[str, object], store: Optional[Store], view: Optional[JobView]
) -> Tuple[str, Tuple[str, ...]]:
    """Who in the store knows the job's nodes, and which: of the object that is shown, not of one of its name before."""
    rows = []
    if store is not None:
        with store.read() as connection:
            rows = job_restarts.find(connection, name)
    for row in rows:
        if row.nodes and (view is None or row.uid == view.job.uid):
            return "nhc serve job", row.node_names
    return "nhc job watch", _named_nodes(kept)


def _asked(name: str, launcher: str, settings: Mapping[str, str]) -> Tuple[Optional[JobView], Optional[AdapterError]]:
    """The job as its scheduler shows it, None where it shows none; and why it could not be asked."""
    try:
        return _look_up(name, launcher, settings), None
    except SettingError:
        raise
    except AdapterError as error:
        return None, error


def _look_up(name: str, launcher: str, settings: Mapping[str, str]) -> Optional[JobView]:
    """Raises AdapterError, SettingsError."""
    if launcher not in JOB_CONTROLLERS.ours:
        return None
    *before, last = name.split("/")
    if launcher == "kubernetes" and len(before) != 2:
        return None  # a name alone is one of several in a cluster: the store knows which was watched
    kind, namespace = before if launcher == "kubernetes" else (before[0] if before else "batch", "")
    return open_controller(_controller(launcher, settings)).look(JobName(kind, namespace, last))


def _controller(launcher: str, settings: Mapping[str, str]) -> JobControllerSettings:
    """How jobs.toml reaches the scheduler, else how the launcher does."""
    if os.path.exists(PATH):
        for controller in load(PATH).controllers:
            if controller.type == launcher:
                return controller
    same = {key: settings[key] for key in ("path", "kubeconfig", "context") if key in settings}
    return JobControllerSettings(launcher, launcher, 30.0, same)


def _watched(name: str, store: Optional[Store]) -> Dict[str, Any]:
    """What `nhc job watch` last kept of a job, {} for nothing."""
    if store is None:
        return {}
    with store.read() as connection:
        rows = audit.entries(connection, what="job.suspects", limit=WATCHES, newest=True)
    last = name.rpartition("/")[2]
    for row in reversed(rows):
        detail = json.loads(row.detail)
        if detail.get("job") in (name, last):
            return dict(detail)
    return {}


def _suspects(kept: Mapping[str, Any]) -> List[str]:
    return [str(suspect.get("node", "")) for suspect in kept.get("suspects") or ()]


def _named_nodes(kept: Mapping[str, object]) -> Tuple[str, ...]:
    try:
        return tuple(expand(str(kept.get("nodes") or "")))
    except BadRange:
        return ()


class DeepSweepOptions(StoreOptions, options.Formatted):
    tool: Tuple[str, ...] = options.arguments("[-- TOOL ARGUMENT...]")
    node_set: str = options.text("-w --nodes", "SET", "The nodes: gpu[001-064].", heading="What is tested")
    job: str = options.text(
        "--job", "ID", "The nodes of this job, its suspects first: 17, or Job/team/llama. With --nodes: those, too."
    )
    suspect_set: str = options.text(
        "--suspects", "SET", "Of the nodes, whom to test first, in this order, with partners that are proven before."
    )
    topology_path: str = options.text(
        "--topology", "FILE", "Slurm's topology.conf, ibnetdiscover's output, or lines 'n[1-32] spine1/leaf3'."
    )
    number: int = options.whole("--go-on", "ID", "Go on with this sweep.", 0)
    suite: str = options.text(
        "--suite", "NAME", "Each node alone, by this suite (quick): nhc deep run, or what TOOL is.",
        heading="How it is tested",
    )  # fmt: skip
    collective: str = options.text("--collective", "TEXT", "Which collective the tool runs.", "all_reduce")
    size: str = options.text("--size", "TEXT", "The size whose figure is judged.", "8G")
    tasks: int = options.whole("--tasks", "N", "Ranks on each node: its GPUs.", 8, least=1)
    floor: float = options.real(
        "--floor", "GB/S", "The least bus bandwidth that is good. Default: 80% of the median of all pairs.", 0.0,
        least=0,
    )  # fmt: skip
    any_transport: bool = options.flag("--any-transport", "Take figures of data that did not travel by RDMA, too.")
    failures: int = options.whole(
        "--failures", "N", "Bad tests with as many proven partners that convict a node.", 2, least=1, most=10
    )
    rail_set: str = options.text(
        "--rails", "SET", "The rails, the same on each node: mlx5_[0-7]. Each alone is tested on nodes that fail."
    )
    rail_by: str = options.choice(
        "--rail-by", sorted(WAYS), "How the tool is held to a rail: RDMA adapters, or network interfaces.", "hca"
    )
    rail_floor: float = options.real(
        "--rail-floor", "GB/S", "The least bandwidth of one rail that is good. Default: its part of a good pair's.",
        0.0, least=0,
    )  # fmt: skip
    scale: bool = options.flag("--scale", "After the pairs, test all sound nodes at once.")
    limit: float = options.duration("--limit", "The limit of one test.", "10m")
    launcher_name: str = options.text("--launcher", "TEXT", "What starts the tests.", "slurm")
    pairs: Tuple[str, ...] = options.texts(
        "--set", "NAME=VALUE", "A setting of the launcher, as docs/deep-checks.md lists them. Repeatable."
    )
    most: int = options.whole(
        "--most", "PERCENT", "The largest share of the nodes that is under test at once.", 100, least=1, most=100,
        heading="How it gives way",
    )  # fmt: skip
    power: str = options.text("--power", "WATTS", "The most that nodes under test may draw at once: 200k.")
    watts: str = options.text(
        "--watts", "WATTS|FILE", "What a node draws under test: one figure, or lines 'gpu[001-064] 10200'."
    )
    patience: float = options.duration("--patience", "How long a test waits for its nodes to be idle.", "5m")
    every: float = options.duration("--every", "The pause between two looks.", "2s")
    continuous: bool = options.flag(
        "--continuous", "Sweep after sweep for ever: idle nodes, the oldest verdict first.", heading="When it runs"
    )
    window_text: str = options.text(
        "--window", "TIME", "Test from 22:00-06:00 each day, or for 4h from now; what runs then is ended."
    )
    fresh: float = options.duration(
        "--fresh", "With --continuous or --window: who has a verdict as young as this is not due.", "7d"
    )
    by: str = options.BY
    dry_run: bool = options.flag("--dry-run", "Show the first round and launch nothing.", heading="What is shown")


@click_command
def command(args: DeepSweepOptions) -> int:
    """Test nodes in pairs, round by round, until the bad node, link or leaf is named.

    TOOL is a test of nccl-tests or rccl-tests built with MPI, or one that prints as they do; all_reduce_perf with the
    size unless it is given. With --suite each node is tested alone. Tests run on idle nodes alone, as exclusive jobs
    that a partition or QOS can preempt. A sweep that is killed goes on with --go-on; nhc abort sweep ends one.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 wrong usage, 3 could not tell.
    """
    try:
        endless = args.continuous or args.window_text
        if (endless or args.number) and (args.job or args.suspect_set):
            raise RefusedSweep("--job and --suspects are for one new sweep")
        if args.dry_run:
            status: int = results(args.form, lambda: _dry_run(args))
            return status
        if endless and args.number:
            raise RefusedSweep("--go-on is for one sweep; --continuous and --window go on by themselves")
        return _endless(args) if endless else _run(args)
    except (BadTopology, BadPlan) as error:
        raise RefusedSweep(str(error)) from None


def _planned(args: DeepSweepOptions, store: Optional[Store]) -> SweepPlan:
    """The plan of the command line, with what is known of the job that it names."""
    if not args.job:
        return plan_of(args)
    job = suspicion(args.job, args.launcher_name, settings_of(args), store)
    plan = plan_of(args, job.nodes, job.suspects)
    order_text = f"; first {', '.join(plan.suspects)}" if plan.suspects else ""
    click.echo(printable(f"job {args.job}: {fold(job.nodes)} by {job.source}{order_text}"), err=True)
    return plan


def _new_plan(args: DeepSweepOptions) -> SweepPlan:
    """The plan of a new sweep. The store is only read for it: wrong usage must not leave an empty store behind."""
    with ExitStack() as stack:
        store: Optional[Store] = None
        if args.job:
            try:
                store = stack.enter_context(opened(args.url))
            except StoreError as error:
                click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
        return _planned(args, store)


def _dry_run(args: DeepSweepOptions) -> int:
    plan = _new_plan(args)
    step = next_step(plan, [])
    if step is None:
        return EXIT_HEALTHY
    loose = not_placed(plan.nodes, plan.topology)
    if loose:
        click.echo(f"{len(loose)} nodes have no place in the topology and count as one leaf: {fold(loose)}")
    click.echo(f"round 1: {step.why}")
    for test in step.tests:
        click.echo(f"  {' '.join(test.nodes)}")
    met = {node for test in step.tests for node in test.nodes}
    first = [node for node in plan.suspects if node not in met]
    if first:
        click.echo(f"next, with proven partners, in this order: {', '.join(first)}")
    left = sorted(set(plan.nodes) - met - set(first))
    if left:
        click.echo(f"later, with a proven partner: {fold(left)}")
    click.echo(f"on each node {plan.asked.tasks} ranks of: {' '.join(plan.argv)}")
    return EXIT_HEALTHY


def _run(args: DeepSweepOptions) -> int:
    by, new = person(args.by), None
    if not args.number:
        plan = _new_plan(args)
        new = plan, _launcher(args.launcher_name, plan)
    with opened(args.url, create=new is not None) as store, _leading(store) as leader:
        if new is None:
            number, plan, launcher = _stored(store, args.number)
        else:
            plan, launcher = new
            number = _kept(store, plan, args.launcher_name, by)
        around = Surroundings(args.every, time.time, time.sleep,
                              lambda line: click.echo(f"sweep {number}: {printable(line)}", err=True))  # fmt: skip
        sweeper = Sweeper(store, number, plan, launcher, leader, around)
        signals = Signals()
        try:
            signals.take()
            sweeper.run()
        except SweepStopped as stopped:
            click.echo(f"nhc deep sweep: stopped: {printable(str(stopped))}", err=True)
        except SignalToEnd:  # the sweep stays open, and its running tests go on
            raise CommandError(f"ended; go on with: nhc deep sweep --go-on {number}") from None
        finally:
            signals.hold()
        return show_sweep(store, number, args.form)


@contextmanager
def _leading(store: Store) -> Iterator[Leader]:
    """The lead of a store's sweeps for that long. Raises RefusedSweep where another has it."""
    leader = Leader(store, name="sweep")
    try:
        if not leader.attempt():
            raise RefusedSweep(f"another runs a sweep on {store.name}")
        yield leader
    finally:
        leader.release()


def _endless(args: DeepSweepOptions) -> int:
    """Pass after pass; 1 where one of them has blamed somebody."""
    plan = plan_of(args)
    try:
        window = read_window(args.window_text, time.time())
    except ValueError as error:
        raise RefusedSweep(f"--window {error}") from None
    launcher = _launcher(args.launcher_name, plan)
    by = person(args.by)
    statuses: Set[int] = set()
    signals = Signals()
    with opened(args.url, create=True) as store, _leading(store) as leader:
        try:
            signals.take()
            around = Surroundings(args.every, time.time, time.sleep,
                                  lambda line: click.echo(printable(line), err=True))  # fmt: skip
            wanted = Endless(plan, args.launcher_name, by, args.fresh, window,
                             args.continuous)  # fmt: skip
            run_endless(wanted, store, launcher, leader, around,
                        lambda number, _blames: statuses.add(show_sweep(store, number, args.form)))  # fmt: skip
        except SignalToEnd:
            raise CommandError("ended") from None
        except (LeadershipLost, SweepStopped) as error:
            raise CommandError(f"ended: {error}") from None
        finally:
            signals.hold()
    return EXIT_UNHEALTHY if EXIT_UNHEALTHY in statuses else EXIT_HEALTHY


def _stored(store: Store, number: int) -> Tuple[int, SweepPlan, Launcher]:
    """An open sweep to go on with. Raises RefusedSweep."""
    with store.read() as connection:
        row = deep.sweep(connection, number)
    if row is None or row.state != deep.OPEN:
        raise RefusedSweep(f"sweep {number} is {'not known' if row is None else row.state}")
    plan = read(row.plan)
    return number, plan, _launcher(row.launcher, plan)


def _launcher(name: str, plan: SweepPlan) -> Launcher:
    """The launcher with the plan's settings. Raises RefusedSweep, NoAdapter, AdapterError."""
    try:
        launcher: Launcher = launcher_of(name)(dict(plan.settings))
    except SettingError as error:
        raise RefusedSweep(f"--set {error} (launcher {name})") from None
    return launcher


def _kept(store: Store, plan: SweepPlan, launcher: str, by: str) -> int:
    """Write a new sweep down, before anything is launched; its number."""
    with store.write() as connection:
        return deep.begin_sweep(connection, write(plan), launcher=launcher, by=by, now=time.time()).id


SHOWN = 20


class SweepStatusOptions(StoreOptions, options.Formatted):
    older_than: float = options.real("--older-than", "DAYS", "Only verdicts of at least this age.", 0.0, least=0,
                                      heading="What is shown")  # fmt: skip


@click_command
def status(args: SweepStatusOptions) -> None:
    """Show the newest sweeps, and for each node the last verdict of each suite with its age."""
    now = time.time()
    with opened(args.url) as store, store.read() as connection:
        newest = deep.newest_sweeps(connection, SHOWN)
        counts = {row.id: _counts(deep.tests_of(connection, row.id)) for row in newest if row.state == deep.OPEN}
        last = [verdict for verdict in deep.last_verdicts(connection) if verdict.age(now) >= args.older_than * 86400]
    if args.form == "json":
        show_value({
            "sweeps": [_sweep(row) for row in newest],
            "nodes": [{**verdict._asdict(), "age": round(verdict.age(now))} for verdict in last],
        })  # fmt: skip
        return
    rows = [[str(row.id), row.state, when(row.began), row.by, counts.get(row.id, _summary(row))] for row in newest]
    show_table([["sweep", "state", "began", "by", ""], *rows], "no sweep was begun")
    click.echo()
    show_table([["node", "suite", "verdict", "age"],
                *([row.node, row.suite, row.verdict, age(row.at)] for row in last)],
               f"no node has a deep verdict{' of that age' if args.older_than else ''}")  # fmt: skip


class SweepShowOptions(StoreOptions, options.Formatted):
    number: int = options.argument("ID", needed=True, number="whole")


@click_command
def show(args: SweepShowOptions) -> int:
    """Show a sweep: whom it blames, and the tests that speak for it.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 there is no such sweep, 3 could not tell.
    """
    with opened(args.url) as store:
        return show_sweep(store, args.number, args.form)


def show_sweep(store: Store, number: int, form: str) -> int:
    """Print a sweep; its exit status. Raises StoreError, CommandError."""
    with store.read() as connection:
        row = deep.sweep(connection, number)
        tests = deep.tests_of(connection, number)
    if row is None:
        raise CommandError(f"there is no sweep {number}", EXIT_USAGE)
    findings = json.loads(row.findings)
    blames: List[Dict[str, Any]] = findings.get("blames", [])
    nodes: Dict[str, str] = findings.get("nodes", {})
    if form == "json":
        tested = [test._asdict() for test in tests]
        show_value({**_sweep(row), **findings, "tests": tested})
    else:
        click.echo(f"sweep {row.id}: {row.state}, begun {when(row.began)} by {row.by}: {_counts(tests)}")
        by_name = {test.name: test for test in tests}
        for blame in blames:
            click.echo(f"{blame['culprit']:<8} {printable(blame['message'])}")
            for name in blame["tests"]:
                test = by_name.get(name)
                if test is not None:
                    click.echo(f"         {name}: {printable(test.why)}")
        for state in sorted(set(nodes.values())):
            members = [node for node, standing in nodes.items() if standing == state]
            names = " ".join(members[:SHOWN]) + (" ..." if len(members) > SHOWN else "")
            click.echo(f"{len(members)} {state}: {names}")
        if row.message:
            click.echo(row.message)
    if any(blame["culprit"] in ("node", "link", "leaf", "rail", "path", "scale") for blame in blames):
        return EXIT_UNHEALTHY
    return EXIT_HEALTHY if row.state == deep.DONE and set(nodes.values()) == {"passed"} else EXIT_UNKNOWN


class SweepHistoryOptions(StoreOptions, options.Formatted):
    node: str = options.argument("[NODE]")
    serial: str = options.text(
        "--serial", "NUMBER", "Only the board with this serial number; without NODE on whatever node it was.",
        heading="What is shown",
    )  # fmt: skip
    folded: bool = options.flag("--rates", "How each measured value went, a row for each of a GPU.")
    last: int = options.whole("--last", "N", "So many.", 50, least=1, most=10_000)


@click_command
def history(args: SweepHistoryOptions) -> None:
    """Show what deep checks and sweeps found of a node or a GPU, the newest first."""
    if not (args.node or args.serial):
        raise click.UsageError("name a node, or a board with --serial")
    with opened(args.url) as store, store.read() as connection:
        rows = deep.history(connection, args.node, args.last, args.serial)
    if args.folded:
        _show_rates(rates(rows), args.form, args.serial or args.node)
    elif args.form == "json":
        show_value([row._asdict() for row in rows])
    else:
        cells = [
            [when(row.at), row.node, row.suite, row.test, row.device, row.serial, row.verdict,
             f"{row.value:g} {row.unit}" if row.value is not None else "", row.message]
            for row in rows
        ]  # fmt: skip
        heads = ["at", "node", "suite", "test", "device", "serial", "verdict", "value", ""]
        show_table([heads, *cells], f"no deep check of {args.serial or args.node} is known")


def _show_rates(found_rates: List[MeasuredRate], form: str, of: str) -> None:
    if form == "json":
        show_value([{**rate._asdict(), "median": rate.middle, "last": rate.last} for rate in found_rates])
        return
    cells = [
        [rate.node, rate.device, rate.serial, rate.test, str(len(rate.values)),
         f"{min(value for _, value in rate.values):g}", f"{rate.middle:g}", f"{rate.last:g} {rate.unit}",
         f"{rate.change:+.1f} %", when(rate.values[-1][0])]
        for rate in found_rates
    ]  # fmt: skip
    heads = ["node", "device", "serial", "test", "runs", "lowest", "median", "last", "from median", "at"]
    show_table([heads, *cells], f"no rate of {of} was measured")


def _counts(tests: List[SweepTest]) -> str:
    """How many tests are in each state, and of which round."""
    states = sorted({test.state for test in tests})
    turn = max((test.turn for test in tests), default=0)
    return f"round {turn}, " + ", ".join(f"{sum(t.state == state for t in tests)} {state}" for state in states)


def _summary(row: StoredSweep) -> str:
    blames = json.loads(row.findings).get("blames", [])
    return row.message or "; ".join(printable(blame["message"]) for blame in blames[:3]) or "nobody is to blame"


def _sweep(row: StoredSweep) -> Dict[str, Any]:
    value = row._asdict()
    value.pop("findings")
    return {**value, "plan": json.loads(row.plan)}
