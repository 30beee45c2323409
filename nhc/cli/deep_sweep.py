"""`nhc deep sweep`: test many nodes with one another on their scheduler, and name who is to blame."""

from __future__ import annotations

import signal
import time
import uuid
from typing import Any, Dict, Optional, Tuple

import click

from nhc.cli.deep_results import show_sweep
from nhc.cli.durations import DURATION
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import person
from nhc.cli.store import SETTINGS, URL, found, guarded
from nhc.deep.group_output import AskedMeasurement
from nhc.deep.group_test import Rules, Topology
from nhc.deep.planner import next_round
from nhc.deep.sweep import Surroundings, Sweeper
from nhc.deep.sweep_plan import BadPlan, SweepPlan, read, write
from nhc.deep.topology_sources import BadTopology, guess_and_read, not_placed
from nhc.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.group_launch import Launcher
from nhc.matching.nodeset import expand, fold
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.plugins import launcher as launcher_of
from nhc.ports import AdapterError
from nhc.store import deep
from nhc.store.errors import LeadershipLost
from nhc.store.leader import Leader
from nhc.store.settings import opened
from nhc.system.bounded_read import cause, read_text
from nhc.units import size_bytes


class _Refused(Exception):
    """What is wrong with the command line or its files, in one line."""


class _SweepInterrupted(Exception):
    """A signal to end: the sweep stays open, and its running tests go on."""


_nodes = under("What is tested")
_how = under("How it is tested")
_yield = under("How it gives way")


@click.command("sweep", cls=GroupedCommand)
@click.argument("tool", nargs=-1, metavar="[-- TOOL ARGUMENT...]")
@_nodes("-n", "--nodes", "node_set", metavar="SET", default="", help="The nodes: gpu[001-064].")
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
@_how("--scale", is_flag=True, help="After the pairs, test all sound nodes at once.")
@_how("--limit", type=DURATION, default="10m", show_default=True, metavar="TIME", help="The limit of one test.")
@_how("--launcher", "launcher_name", default="slurm", show_default=True, help="What starts the tests.")
@_how("--set", "pairs", multiple=True, metavar="NAME=VALUE",
      help="A setting of the launcher, as docs/deep-sweeps.md lists them. Repeatable.")  # fmt: skip
@_yield("--most", type=click.IntRange(1, 100), default=100, show_default=True, metavar="PERCENT",
        help="The largest share of the nodes that is under test at once.")  # fmt: skip
@_yield("--patience", type=DURATION, default="5m", show_default=True, metavar="TIME",
        help="How long a test waits for its nodes to be idle.")  # fmt: skip
@_yield("--every", type=DURATION, default="2s", show_default=True, metavar="TIME", help="The pause between two looks.")
@SETTINGS
@URL
@under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")
@under("What is shown")("--dry-run", is_flag=True, help="Show the first round and launch nothing.")
@under("What is shown")("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text",
                        show_default=True, help="Output format.")  # fmt: skip
def command(**options: Any) -> None:
    """Test nodes in pairs, round by round, until the bad node, link or leaf is named.

    TOOL is a test of nccl-tests or rccl-tests built with MPI, or one that prints as they do; all_reduce_perf with the
    size unless it is given. Tests run on idle nodes alone, as exclusive jobs that a partition or QOS can preempt. A
    sweep that is killed goes on with --go-on.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 wrong usage, 3 could not tell.
    """
    try:
        if options["dry_run"]:
            _dry_run(_plan(options))
            return
        guarded(lambda: _run(options))
    except (_Refused, BadTopology, BadPlan, NoAdapter) as error:
        click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
        raise SystemExit(EXIT_USAGE) from None
    except AdapterError as error:
        click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
        raise SystemExit(EXIT_UNKNOWN) from None


def _plan(options: Dict[str, Any]) -> SweepPlan:
    """The plan of a command line. Raises _Refused, BadTopology."""
    try:
        nodes = tuple(sorted(set(expand(options["node_set"]))))
        size = size_bytes(options["size"])
    except ValueError as error:
        raise _Refused(str(error)) from None
    if len(nodes) < 2:
        raise _Refused("a sweep takes two nodes at least: --nodes gpu[001-064]")
    topology = Topology()
    if options["topology_path"]:
        path = options["topology_path"]
        try:
            topology = guess_and_read(read_text(path), path)
        except (OSError, UnicodeDecodeError) as error:
            raise _Refused(f"{path}: {cause(error)}") from None
    settings = []
    for pair in options["pairs"]:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise _Refused(f"--set {pair}: is not NAME=VALUE")
        settings.append((name, value))
    argv: Tuple[str, ...] = options["tool"] or (
        "env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", f"{options['collective']}_perf", "-b", str(size),
        "-e", str(size), "-g", "1", "-n", "20", "-c", "1",
    )  # fmt: skip
    asked = AskedMeasurement(options["collective"], size, options["tasks"], not options["any_transport"])
    return SweepPlan(
        uuid.uuid4().hex[:16], nodes, topology, Rules(failures=options["failures"], scale=options["scale"]), argv,
        asked, options["floor"], seconds=options["limit"], patience=options["patience"], most=options["most"] / 100,
        settings=tuple(sorted(settings)),
    )  # fmt: skip


def _dry_run(plan: SweepPlan) -> None:
    step = next_round(plan.nodes, plan.topology, [], plan.rules)
    if step is None:
        return
    loose = not_placed(plan.nodes, plan.topology)
    if loose:
        click.echo(f"{len(loose)} nodes have no place in the topology and count as one leaf: {fold(loose)}")
    click.echo(f"round 1: {step.why}")
    for test in step.tests:
        click.echo(f"  {' '.join(test.nodes)}")
    met = {node for test in step.tests for node in test.nodes}
    left = sorted(set(plan.nodes) - met)
    if left:
        click.echo(f"later, with a proven partner: {fold(left)}")
    click.echo(f"on each node {plan.asked.tasks} ranks of: {' '.join(plan.argv)}")


def _run(options: Dict[str, Any]) -> int:
    store = opened(found(options["path"], options["url"]))
    leader = Leader(store, name="sweep")
    try:
        if not leader.attempt():
            raise _Refused(f"another runs a sweep on {store.name}")
        number, plan, launcher = _begun(options, store)
        around = Surroundings(options["every"], time.time, time.sleep,
                              lambda line: click.echo(f"sweep {number}: {printable(line)}", err=True))  # fmt: skip
        sweeper = Sweeper(store, number, plan, launcher, leader, around)
        before = {one: signal.signal(one, _end) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            sweeper.run()
        except _SweepInterrupted:
            click.echo(f"nhc deep sweep: ended; go on with: nhc deep sweep --go-on {number}", err=True)
            return EXIT_UNKNOWN
        except LeadershipLost as error:
            click.echo(f"nhc deep sweep: {printable(str(error))}", err=True)
            return EXIT_UNKNOWN
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
        return show_sweep(store, number, options["form"])
    finally:
        leader.release()
        store.close()


def _begun(options: Dict[str, Any], store: Any) -> Tuple[int, SweepPlan, Launcher]:
    """The sweep to carry out: a new one, written down before anything is launched, or an open one."""
    number: Optional[int] = options["number"]
    if number:
        with store.read() as connection:
            row = deep.sweep(connection, number)
        if row is None or row.state != deep.OPEN:
            raise _Refused(f"sweep {number} is {'not known' if row is None else row.state}")
        plan = read(row.plan)
        return number, plan, launcher_of(row.launcher)(dict(plan.settings))
    plan = _plan(options)
    launcher: Launcher = launcher_of(options["launcher_name"])(dict(plan.settings))
    with store.write() as connection:
        row = deep.begin_sweep(
            connection, write(plan), launcher=options["launcher_name"], by=person(options["by"]), now=time.time()
        )
    return row.id, plan, launcher


def _end(_number: int, _frame: object) -> None:
    raise _SweepInterrupted
