"""`nhc deep sweep`: test many nodes with one another on their scheduler, and name who is to blame."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, Optional, Set, Tuple

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, FORMAT, person
from nhc.core.command_line.formatted import results
from nhc.core.command_line.option_groups import GroupedCommand, under
from nhc.core.command_line.param_types import DURATION
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.deep.commands.deep_results import show_sweep
from nhc.deep.commands.deep_sweep_job import suspicion
from nhc.deep.commands.deep_sweep_plan import RefusedSweep, plan_of, settings_of
from nhc.deep.continuous import Endless
from nhc.deep.continuous import run as run_endless
from nhc.deep.continuous import window as read_window
from nhc.deep.planner import next_round
from nhc.deep.rails import WAYS
from nhc.deep.sweep import Surroundings, Sweeper, SweepStopped
from nhc.deep.sweep_plan import BadPlan, SweepPlan, read, write
from nhc.deep.topology_sources import BadTopology, not_placed
from nhc.marks.plugins import launcher as launcher_of
from nhc.marks.ports.adapter import SettingError
from nhc.marks.ports.group_launch import Launcher
from nhc.store import deep
from nhc.store.commands.store_options import SETTINGS, URL, opened
from nhc.store.database import Store
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.rounds.leader import Leader

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
@_how("--collective", default="all_reduce", show_default=True, help="Which collective the tool runs.")
@_how("--size", default="8G", show_default=True, help="The size whose figure is judged.")
@_how("--tasks", type=click.IntRange(1), default=8, show_default=True, help="Ranks on each node: its GPUs.")
@_how("--floor", type=click.FloatRange(0), default=0.0, metavar="GB/S",
      help="The least bus bandwidth that is good. Default: 80% of the median of all pairs.")  # fmt: skip
@_how("--any-transport", is_flag=True, help="Take figures of data that did not travel by RDMA, too.")
@_how("--failures", type=click.IntRange(1, 10), default=2, show_default=True,
      help="Bad tests with as many proven partners that convict a node.")  # fmt: skip
@_how("--rails", "rail_set", metavar="SET", default="",
      help="The rails, the same on each node: mlx5_[0-7]. Each alone is tested on nodes that fail.")  # fmt: skip
@_how("--rail-by", type=click.Choice(sorted(WAYS)), default="hca", show_default=True,
      help="How the tool is held to a rail: RDMA adapters, or network interfaces.")  # fmt: skip
@_how("--rail-floor", type=click.FloatRange(0), default=0.0, metavar="GB/S",
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
@SETTINGS
@URL
@BY
@under("What is shown")("--dry-run", is_flag=True, help="Show the first round and launch nothing.")
@FORMAT
def command(**options: Any) -> int:
    """Test nodes in pairs, round by round, until the bad node, link or leaf is named.

    TOOL is a test of nccl-tests or rccl-tests built with MPI, or one that prints as they do; all_reduce_perf with the
    size unless it is given. Tests run on idle nodes alone, as exclusive jobs that a partition or QOS can preempt. A
    sweep that is killed goes on with --go-on; nhc abort sweep ends one.

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
                store = stack.enter_context(opened(options["path"], options["url"]))
            except StoreError as error:
                click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
        return _planned(options, store)


def _dry_run(options: Dict[str, Any]) -> int:
    plan = _new_plan(options)
    step = next_round(plan.nodes, plan.topology, [], plan.rules, plan.suspects)
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
    with opened(options["path"], options["url"], create=new is not None) as store, _leading(store) as leader:
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
    with opened(options["path"], options["url"], create=True) as store, _leading(store) as leader:
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
