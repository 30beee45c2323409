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

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, DURATION, FORMAT, FiniteNumber, GroupedCommand, person, under
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
from nhc.store.commands.store_options import URL, opened
from nhc.store.database import Store
from nhc.store.deep import MeasuredRate, StoredSweep, SweepTest, rates
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.rounds.leader import Leader

# What a command line asks a sweep for: nodes, topology, rails, power, the tool and its limits, as a plan.


class RefusedSweep(CommandError):
    """What is wrong with the command line or its files, in one line."""

    def __init__(self, why: str) -> None:
        super().__init__(why, EXIT_USAGE)


def plan_of(options: Dict[str, Any], more: Sequence[str] = (), first: Sequence[str] = ()) -> SweepPlan:
    """The plan of a command line. `more` are nodes beside --nodes, `first` suspects after --suspects.

    Raises RefusedSweep, BadTopology.
    """
    try:
        nodes = tuple(sorted({*expand(options["node_set"]), *more}))
        suspects = tuple(dict.fromkeys([*expand(options["suspect_set"]), *first]))
        size = size_bytes(options["size"])
    except ValueError as error:
        raise RefusedSweep(str(error)) from None
    strange = next((node for node in suspects if node not in nodes), "")
    if strange:
        raise RefusedSweep(f"--suspects {options['suspect_set']}: {strange} is none of the nodes")
    if len(nodes) < (1 if options["suite"] else 2):
        raise RefusedSweep("a sweep takes two nodes at least, one with --suite: --nodes gpu[001-064]")
    if options["suite"] and (options["rail_set"] or options["scale"] or suspects):
        raise RefusedSweep("--suite tests each node alone: not with --rails, --scale, --suspects, --job")
    topology = Topology()
    if options["topology_path"]:
        path = options["topology_path"]
        try:
            topology = guess_and_read(read_text(path), path)
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedSweep(f"{path}: {cause(error)}") from None
    argv: Tuple[str, ...] = options["tool"] or (
        "env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", f"{options['collective']}_perf", "-b", str(size),
        "-e", str(size), "-g", "1", "-n", "20", "-c", "1",
    )  # fmt: skip
    if options["suite"]:
        argv = options["tool"] or ("nhc", "deep", "run", options["suite"], "-n", THE_NODE, "-f", "jsonl", "-q")
    rails = _rails(options["rail_set"])
    tasks = 1 if options["suite"] else options["tasks"]
    asked = AskedMeasurement(options["collective"], size, tasks, not options["any_transport"])
    return SweepPlan(
        uuid.uuid4().hex[:16], nodes, topology,
        Rules(failures=options["failures"], scale=options["scale"], rails=rails), argv, asked,
        options["floor"], seconds=options["limit"], patience=options["patience"], most=options["most"] / 100,
        settings=tuple(sorted(settings_of(options).items())), rail_by=options["rail_by"],
        rail_floor=options["rail_floor"],
        watts=_watts(options["watts"], nodes, options["power"]), power=_power(options["power"]),
        suspects=suspects, suite=options["suite"],
    )  # fmt: skip


def settings_of(options: Dict[str, Any]) -> Dict[str, str]:
    """The settings of the launcher. Raises RefusedSweep."""
    settings = {}
    for pair in options["pairs"]:
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


_nodes = under("What is tested")
_how = under("How it is tested")
_yield = under("How it gives way")
_when = under("When it runs")


@click.command("sweep", cls=GroupedCommand)
@click.argument("tool", nargs=-1, metavar="[-- TOOL ARGUMENT...]")
@_nodes("-w", "--nodes", "node_set", metavar="SET", default="", help="The nodes: gpu[001-064].")
@_nodes("--job", default="", metavar="ID",
        help="The nodes of this job, its suspects first: 17, or Job/team/llama. With --nodes: those, too.")  # fmt: skip
@_nodes("--suspects", "suspect_set", metavar="SET", default="",
        help="Of the nodes, whom to test first, in this order, with partners that are proven before.")  # fmt: skip
@_nodes("--topology", "topology_path", metavar="FILE", default="",
        help="Slurm's topology.conf, ibnetdiscover's output, or lines 'n[1-32] spine1/leaf3'.")  # fmt: skip
@_nodes("--go-on", "number", type=int, default=0, metavar="ID", help="Go on with this sweep.")
@_how("--suite", default="", metavar="NAME",
      help="Each node alone, by this suite (quick): nhc deep run, or what TOOL is.")  # fmt: skip
@_how("--collective", default="all_reduce", show_default=True, help="Which collective the tool runs.")
@_how("--size", default="8G", show_default=True, help="The size whose figure is judged.")
@_how("--tasks", type=click.IntRange(1), default=8, show_default=True, help="Ranks on each node: its GPUs.")
@_how("--floor", type=FiniteNumber(0), default=0.0, metavar="GB/S",
      help="The least bus bandwidth that is good. Default: 80% of the median of all pairs.")  # fmt: skip
@_how("--any-transport", is_flag=True, help="Take figures of data that did not travel by RDMA, too.")
@_how("--failures", type=click.IntRange(1, 10), default=2, show_default=True,
      help="Bad tests with as many proven partners that convict a node.")  # fmt: skip
@_how("--rails", "rail_set", metavar="SET", default="",
      help="The rails, the same on each node: mlx5_[0-7]. Each alone is tested on nodes that fail.")  # fmt: skip
@_how("--rail-by", type=click.Choice(sorted(WAYS)), default="hca", show_default=True,
      help="How the tool is held to a rail: RDMA adapters, or network interfaces.")  # fmt: skip
@_how("--rail-floor", type=FiniteNumber(0), default=0.0, metavar="GB/S",
      help="The least bandwidth of one rail that is good. Default: its part of a good pair's.")  # fmt: skip
@_how("--scale", is_flag=True, help="After the pairs, test all sound nodes at once.")
@_how("--limit", type=DURATION, default="10m", show_default=True, metavar="TIME", help="The limit of one test.")
@_how("--launcher", "launcher_name", default="slurm", show_default=True, help="What starts the tests.")
@_how("--set", "pairs", multiple=True, metavar="NAME=VALUE",
      help="A setting of the launcher, as docs/deep-checks.md lists them. Repeatable.")  # fmt: skip
@_yield("--most", type=click.IntRange(1, 100), default=100, show_default=True, metavar="PERCENT",
        help="The largest share of the nodes that is under test at once.")  # fmt: skip
@_yield("--power", metavar="WATTS", default="", help="The most that nodes under test may draw at once: 200k.")
@_yield("--watts", metavar="WATTS|FILE", default="",
        help="What a node draws under test: one figure, or lines 'gpu[001-064] 10200'.")  # fmt: skip
@_yield("--patience", type=DURATION, default="5m", show_default=True, metavar="TIME",
        help="How long a test waits for its nodes to be idle.")  # fmt: skip
@_yield("--every", type=DURATION, default="2s", show_default=True, metavar="TIME", help="The pause between two looks.")
@_when("--continuous", is_flag=True, help="Sweep after sweep for ever: idle nodes, the oldest verdict first.")
@_when("--window", "window_text", metavar="TIME", default="",
       help="Test from 22:00-06:00 each day, or for 4h from now; what runs then is ended.")  # fmt: skip
@_when("--fresh", type=DURATION, default="7d", show_default=True, metavar="TIME",
       help="With --continuous or --window: who has a verdict as young as this is not due.")  # fmt: skip
@URL
@BY
@under("What is shown")("--dry-run", is_flag=True, help="Show the first round and launch nothing.")
@FORMAT
def command(**options: Any) -> int:
    """Test nodes in pairs, round by round, until the bad node, link or leaf is named.

    TOOL is a test of nccl-tests or rccl-tests built with MPI, or one that prints as they do; all_reduce_perf with the
    size unless it is given. With --suite each node is tested alone. Tests run on idle nodes alone, as exclusive jobs
    that a partition or QOS can preempt. A sweep that is killed goes on with --go-on; nhc abort sweep ends one.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 wrong usage, 3 could not tell.
    """
    try:
        endless = options["continuous"] or options["window_text"]
        if (endless or options["number"]) and (options["job"] or options["suspect_set"]):
            raise RefusedSweep("--job and --suspects are for one new sweep")
        if options["dry_run"]:
            status: int = results(options["form"], lambda: _dry_run(options))
            return status
        if endless and options["number"]:
            raise RefusedSweep("--go-on is for one sweep; --continuous and --window go on by themselves")
        return _endless(options) if endless else _run(options)
    except (BadTopology, BadPlan) as error:
        raise RefusedSweep(str(error)) from None


def _planned(options: Dict[str, Any], store: Optional[Store]) -> SweepPlan:
    """The plan of the command line, with what is known of the job that it names."""
    if not options["job"]:
        return plan_of(options)
    job = suspicion(options["job"], options["launcher_name"], settings_of(options), store)
    plan = plan_of(options, job.nodes, job.suspects)
    order_text = f"; first {', '.join(plan.suspects)}" if plan.suspects else ""
    click.echo(printable(f"job {options['job']}: {fold(job.nodes)} by {job.source}{order_text}"), err=True)
    return plan


def _new_plan(options: Dict[str, Any]) -> SweepPlan:
    """The plan of a new sweep. The store is only read for it: wrong usage must not leave an empty store behind."""
    with ExitStack() as stack:
        store: Optional[Store] = None
        if options["job"]:
            try:
                store = stack.enter_context(opened(options["url"]))
            except StoreError as error:
                click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
        return _planned(options, store)


def _dry_run(options: Dict[str, Any]) -> int:
    plan = _new_plan(options)
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


def _run(options: Dict[str, Any]) -> int:
    by, new = person(options["by"]), None
    if not options["number"]:
        plan = _new_plan(options)
        new = plan, _launcher(options["launcher_name"], plan)
    with opened(options["url"], create=new is not None) as store, _leading(store) as leader:
        if new is None:
            number, plan, launcher = _stored(store, options["number"])
        else:
            plan, launcher = new
            number = _kept(store, plan, options["launcher_name"], by)
        around = Surroundings(options["every"], time.time, time.sleep,
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
        return show_sweep(store, number, options["form"])


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


def _endless(options: Dict[str, Any]) -> int:
    """Pass after pass; 1 where one of them has blamed somebody."""
    plan = plan_of(options)
    try:
        window = read_window(options["window_text"], time.time())
    except ValueError as error:
        raise RefusedSweep(f"--window {error}") from None
    launcher = _launcher(options["launcher_name"], plan)
    by = person(options["by"])
    statuses: Set[int] = set()
    signals = Signals()
    with opened(options["url"], create=True) as store, _leading(store) as leader:
        try:
            signals.take()
            around = Surroundings(options["every"], time.time, time.sleep,
                                  lambda line: click.echo(printable(line), err=True))  # fmt: skip
            wanted = Endless(plan, options["launcher_name"], by, options["fresh"], window,
                             options["continuous"])  # fmt: skip
            run_endless(wanted, store, launcher, leader, around,
                        lambda number, _blames: statuses.add(show_sweep(store, number, options["form"])))  # fmt: skip
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


@click.command("status", cls=GroupedCommand)
@URL
@FORMAT
@under("What is shown")("--older-than", type=FiniteNumber(0), default=0.0, metavar="DAYS",
                        help="Only verdicts of at least this age.")  # fmt: skip
def status(url: str, form: str, older_than: float) -> None:
    """Show the newest sweeps, and for each node the last verdict of each suite with its age."""
    now = time.time()
    with opened(url) as store, store.read() as connection:
        newest = deep.newest_sweeps(connection, SHOWN)
        counts = {row.id: _counts(deep.tests_of(connection, row.id)) for row in newest if row.state == deep.OPEN}
        last = [verdict for verdict in deep.last_verdicts(connection) if verdict.age(now) >= older_than * 86400]
    if form == "json":
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
               f"no node has a deep verdict{' of that age' if older_than else ''}")  # fmt: skip


@click.command("show", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@URL
@FORMAT
def show(number: int, url: str, form: str) -> int:
    """Show a sweep: whom it blames, and the tests that speak for it.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 there is no such sweep, 3 could not tell.
    """
    with opened(url) as store:
        return show_sweep(store, number, form)


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


@click.command("history", cls=GroupedCommand)
@click.argument("node", default="")
@URL
@FORMAT
@under("What is shown")(
    "--serial",
    default="",
    metavar="NUMBER",
    help="Only the board with this serial number; without NODE on whatever node it was.",
)
@under("What is shown")(
    "--rates", "folded", is_flag=True, help="How each measured value went, a row for each of a GPU."
)
@under("What is shown")("--last", type=click.IntRange(1, 10_000), default=50, show_default=True, help="So many.")
def history(node: str, url: str, form: str, serial: str, folded: bool, last: int) -> None:
    """Show what deep checks and sweeps found of a node or a GPU, the newest first."""
    if not (node or serial):
        raise click.UsageError("name a node, or a board with --serial")
    with opened(url) as store, store.read() as connection:
        rows = deep.history(connection, node, last, serial)
    if folded:
        _show_rates(rates(rows), form, serial or node)
    elif form == "json":
        show_value([row._asdict() for row in rows])
    else:
        cells = [
            [when(row.at), row.node, row.suite, row.test, row.device, row.serial, row.verdict,
             f"{row.value:g} {row.unit}" if row.value is not None else "", row.message]
            for row in rows
        ]  # fmt: skip
        heads = ["at", "node", "suite", "test", "device", "serial", "verdict", "value", ""]
        show_table([heads, *cells], f"no deep check of {serial or node} is known")


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
