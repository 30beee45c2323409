"""`nhc deep`: deep checks of this node alone. The commands for many nodes are in the modules deep_*.py beside it.

What a run found goes to nhc's server as the agent's reports do; `nhc.store.deep_delivery` has the way straight into a
store. So each node's last deep verdict has an age there. A delivery that fails is reported, and does not change the
verdict.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from typing import Any, Callable, Dict, List, Optional, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.on_unknown import status as on_unknown
from nhc.core.command_line.options import LostOutput, ReportOutput, UsageError
from nhc.core.command_line.printing import show
from nhc.core.command_line.report_output import emit, write_atomically
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, printable
from nhc.core.resource_manager import detect
from nhc.core.settings.settings_file import SettingsError
from nhc.core.settings.settings_file import load as load_settings
from nhc.core.state.reports import suite_name
from nhc.core.state.store import State
from nhc.core.system.node_name import scheduler_name
from nhc.core.units import show_seconds
from nhc.deep import fleet_norm, hyperpod, journal, runner
from nhc.deep.fleet_norm import LEAST, propose
from nhc.marks import push
from nhc.marks.plugins import open_adapter
from nhc.marks.ports.adapter import AdapterError, NodeSource
from nhc.node.planning import node_type, suites
from nhc.store.deep_delivery import to_store

if TYPE_CHECKING:
    from nhc.agent.server_push import Pusher, PushSettings
    from nhc.agent.spool import Spool
    from nhc.store.deep import DeepResult

# What a node is called in tables of expected figures: its types as profiles know them, then its processors.


def kinds(host: Host, ask: bool = True) -> List[str]:
    """Names for this node, the most exact first. `ask` lets a cloud's metadata service be asked, once a boot."""
    known, _new = node_type.known(host, ask)
    return [*known.names, *_processors(host)]


def _processors(host: Host) -> List[str]:
    """`cpu-amd-epyc-9654-96-core-processor-192`: the model, and how many the kernel sees."""
    model, count = "", 0
    try:
        text = host.read("/proc/cpuinfo", 8 << 20)
    except OSError:
        return []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            count += 1
        elif name.strip() == "model name" and not model:
            model = value.strip()
    slug = "-".join("".join(char if char.isalnum() else " " for char in model.lower()).split())
    return [f"cpu-{slug}-{count}"] if slug and count else []


def _suites(incomplete: str) -> List[str]:
    return [name for name in (*suites.suites(Host()), suites.OWN) if name.startswith(incomplete)]


class DeepRunOptions(ReportOutput):
    suite: str = options.argument("[SUITE]", default="quick", complete=_suites)
    node: str = options.text(
        "-n --node", "NAME", "The node's name. Default: the kernel's host name.", heading="The node"
    )
    adapter: str = options.text(
        "--adapter", "NAME", "Who is asked whether the node is free: slurm, kubernetes ..., auto, or none.", "auto"
    )
    force: bool = options.flag("--force", "Run although the node is in use. What is disturbed is said.")
    timeout: float = options.duration("-t --timeout", "Deadline of the whole run.", "0", heading="How it runs")
    seed: int = options.whole(
        "--seed",
        "N",
        "Draw the numbers of check_gpu_proof again that this seed drew: a report's message has it.",
        least=0,
    )
    require: Tuple[str, ...] = options.texts(
        "--require", "TOOL", "Without this tool its check is unknown; otherwise it is skipped. all: every tool. "
        "Repeatable.",
    )  # fmt: skip
    on_unknown: str = options.ON_UNKNOWN
    since: float = options.real(
        "--since", "TIME", "Show a kept report of this suite that began after this Unix time, where there is one, and "
        "test nothing.", 0.0, least=0,
    )  # fmt: skip
    hyperpod_log: str = options.text(
        "--hyperpod-log", "FILE",
        f"Append the lines of HyperPod's log. Default for its suites: {hyperpod.LOG}, where that folder is.",
    )  # fmt: skip
    record: str = options.text("--record", "DIR", "Keep all that the checks see in DIR, for `nhc replay DIR`.")
    store: str = options.text("--store", "URL", "Keep the results in this store, too.", heading="Where it goes")
    server: str = options.text(
        "--server", "FILE", "Send the results to nhc's server, as [sinks.server] of this file says: "
        "/etc/nhc/agent.toml.",
    )  # fmt: skip


@click_command
def run_command(args: DeepRunOptions) -> int:
    """Test this node deeply: load it, measure it, and see that its numbers are right.

    SUITE is quick (the default), standard, burn, InstanceStress, InstanceConnectivity, a suite of the site's in
    /etc/nhc/suites, a file, or site for the lines of the node's own nhc.conf in the context deep. The node must be
    free: out of service at its scheduler, with nobody on its accelerators and RDMA devices. Whatever ends the run, its
    tools are ended and the node is left as it was.

    Exit status: 0 good, 1 bad, 2 wrong usage, 3 could not tell.
    """
    host, state = _host(args.record), State()
    node = args.node or site_settings().local_node_name(host)
    started = (host.time(), host.monotonic())
    terminal = sys.stderr.isatty() and not args.quiet
    try:
        server = push_settings(args.server) if args.server else None
        plan = suites.plan_of(args.suite, host, node, state)
        wanted = runner.RunRequest(
            args.suite, plan, node, kinds(host), args.force, args.timeout,
            _source(args.adapter, host, dict(plan.settings)), terminal,
            lambda line: click.echo(f"nhc deep run: {line}", err=True), bool(args.quiet),
            args.node or scheduler_name(os.environ, plan.settings, host.system.hostname(), host.read_or),
            args.seed, args.require,
        )  # fmt: skip
    except (suites.NoSuite, UsageError) as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except OSError as error:
        raise CommandError(f"{error.filename or args.suite}: {error.strerror}", EXIT_USAGE) from None
    where = journal.directory()
    if args.since:
        kept = runner.kept(where, wanted.suite, node, args.since)
        if kept is not None:
            return emit(kept, ReportOutput(form=args.form, output=args.output))
    try:
        ran = runner.run(wanted, host, state, os.environ, where)
    except journal.JournalError as error:
        raise CommandError(str(error)) from None
    if args.record:
        _keep_recording(args.record, ran, host, node, started)
    return _show(ran, wanted, where, server, args)


def _host(record: str) -> Host:
    """The machine to test; what is seen of it goes to a directory where one is given."""
    if not record:
        return Host(memory=State())
    from nhc.node.commands.record import recording_host

    try:
        return recording_host(record)
    except OSError as error:
        raise CommandError(f"{record}: {error.strerror}", EXIT_USAGE) from None


def _keep_recording(record: str, ran: runner.Ran, host: Host, node: str, started: Tuple[float, float]) -> None:
    from nhc.node.commands.record import complete

    try:
        complete(record, ran.plan, host, node, started, False, ran.report)
    except OSError as error:
        click.echo(f"nhc deep run: {error.filename or record}: {error.strerror}: not recorded", err=True)


def _show(
    ran: runner.Ran, wanted: runner.RunRequest, where: str, server: Optional[PushSettings], args: DeepRunOptions
) -> int:
    """Print, keep and log the report; the exit status. Where a signal ended the run, it ends this process too."""
    report = ran.report
    name = wanted.suite.lower()
    if name in hyperpod.SUITES:
        report = report._replace(labels={**report.labels, **hyperpod.labels(report)})
    problems = [runner.keep(report, where), _log(ran, wanted, args.hyperpod_log, name)]
    if args.store:
        problems.append(to_store([report], suite_name(wanted.suite), args.store))
    if server is not None:
        problems.append(to_server(report, suite_name(wanted.suite), server))
    for problem in filter(None, problems):
        click.echo(f"nhc deep run: {problem}", err=True)
    try:
        status = emit(report, args)
    except UsageError as error:
        raise CommandError(str(error), EXIT_UNKNOWN if isinstance(error, LostOutput) else EXIT_USAGE) from None
    if args.on_unknown != "tell" and not ran.signal:
        status = on_unknown(report, status, args.on_unknown, "nhc deep run")
    if ran.signal == signal.SIGINT:
        return 128 + signal.SIGINT
    if ran.signal:
        signal.signal(ran.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ran.signal)
    return status


def _log(ran: runner.Ran, wanted: runner.RunRequest, path: str, suite: str) -> Optional[str]:
    """Append HyperPod's lines, where they are asked for; why that failed."""
    if not path and (suite not in hyperpod.SUITES or not os.path.isdir(os.path.dirname(hyperpod.LOG))):
        return None
    path = path or hyperpod.LOG
    kind = next((node_kind[len("aws-") :] for node_kind in wanted.kinds if node_kind.startswith("aws-")), "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    text = "".join(f"{line}\n" for line in hyperpod.lines(ran.report, f"ml.{kind}" if kind else "", region))
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{path}: {error.strerror}: its lines are not written"
    return None


def _source(name: str, host: Host, settings: Dict[str, str]) -> Optional[NodeSource]:
    """Who knows whether the node is free, None for nobody. Raises UsageError, NoAdapter."""
    if name == "none":
        return None
    chosen = name
    if name == "auto":
        detected = detect(os.environ, settings, host)
        if detected.unsure:
            raise UsageError(f"{detected.how}, or give --adapter")
        if not detected.name:
            return None
        chosen = detected.name
    known = {variable: value for variable, value in os.environ.items() if variable.startswith("NHC_")}
    try:
        source: NodeSource = open_adapter(chosen, {**settings, **known}, os.environ)
        return source
    except AdapterError as error:
        raise UsageError(f"--adapter {chosen}: {error}") from None


class ListOptions(options.Formatted):
    suite: str = options.argument("[SUITE]", complete=_suites)
    node: str = options.text("-n --node", "NAME", "The node's name, which targets are matched against.")


@click_command
def list_command(args: ListOptions) -> None:
    """List the suites, or what one of them runs on this node, and about how long that takes."""
    host, state = Host(memory=State()), State()
    name = args.node or site_settings().local_node_name(host)
    try:
        there = suites.suites(host)
        chosen = [args.suite] if args.suite else [known.name for known in there.values()]
        descriptions = [_suite_value(suite_name, host, name, state) for suite_name in chosen]
    except suites.NoSuite as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except OSError as error:
        raise CommandError(f"{error.filename or args.suite}: {error.strerror}", EXIT_USAGE) from None
    if args.form == "json":
        show(descriptions)
        return
    for description in descriptions:
        name, count, about, summary = (description[key] for key in ("suite", "count", "about", "summary"))
        click.echo(f"{name:<22} {count:>3} checks  {about:>8}  {summary}")
        for check in description["checks"] if args.suite else []:
            click.echo(f"    {show_seconds(round(check['seconds'])):>8}  {check['line']}")


def _suite_value(name: str, host: Host, node: str, state: State) -> Dict[str, Any]:
    plan = suites.plan_of(name, host, node, state)
    own_suite = None if name == suites.OWN else suites.find(name, host)
    steps = suites.estimate(plan.items, state)
    total = sum(step.seconds for step in steps)
    return {
        "suite": name,
        "source": own_suite.source if own_suite else "nhc.conf",
        "summary": own_suite.summary if own_suite else "the node's own lines in the context deep",
        "count": len(steps),
        "seconds": round(total),
        "about": f"{max(1, round(total / 60))} min",
        "checks": [{"check": item.name, "line": item.line, "seconds": round(step.seconds)}
                   for item, step in zip(plan.items, steps)],
    }  # fmt: skip


class CalibrateOptions(options.CommandOptions):
    paths: Tuple[str, ...] = options.arguments("[REPORT...]")
    url: str = options.text("--store", "URL", "Take the results that this store has, too.")
    days: float = options.real("--days", "NUMBER", "Of the store, results no older than this.", 90.0, above=0)
    least: int = options.whole("--least", "N", "Fewest nodes for a row.", LEAST, least=3)
    output: str = options.text("-o --output", "FILE", "Write the table to this file.")


@click_command
def calibrate_command(args: CalibrateOptions) -> int:
    """Propose expected figures from the reports of healthy nodes.

    REPORT is a report of `nhc deep run -f json`, or a directory of them; --store has the fleet's own results. For each
    kind of node and each metric the median is proposed, with a tolerance that covers the nodes' own spread. A node that
    stands out is named and left out. Look at the table before you copy it to /etc/nhc/deep-expected.tsv on the nodes.
    """
    if not args.paths and not args.url:
        raise CommandError("name reports, or a store (--store)", EXIT_USAGE)
    try:
        files = fleet_norm.reports(args.paths)
        samples, remarks = fleet_norm.samples(files.reports)
        remarks = [*files.problems, *(files.notes if args.paths else ()), *remarks]
        if args.url:
            own, more = fleet_norm.samples_of(_stored(args.url, time.time() - args.days * 86400))
            samples, remarks = samples + own, remarks + more
    except fleet_norm.BadInput as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    proposal = propose(samples, time.strftime("%Y-%m-%d", time.gmtime()), args.least)
    text = fleet_norm.calibration_table(proposal._replace(remarks=(*remarks, *proposal.remarks)))
    if args.output:
        try:
            write_atomically(args.output, text)
        except UsageError as error:
            raise CommandError(str(error), EXIT_USAGE) from None
    else:
        click.echo(text, nl=False)
    click.echo(f"{len(proposal.rows)} rows, {len(remarks) + len(proposal.remarks)} remarks", err=True)
    return EXIT_HEALTHY if proposal.rows else EXIT_UNHEALTHY


def _stored(url: str, then: float) -> List[DeepResult]:
    """The results of a store. Raises BadInput."""
    try:
        from nhc.store import deep
        from nhc.store.errors import StoreError
        from nhc.store.settings import fleet_store
    except ImportError as error:
        raise fleet_norm.BadInput(f"the store needs the extra nodehealth[remedy]: {error}") from None
    try:
        with closing(fleet_store(url, create=False)) as store, store.read() as connection:
            return deep.since(connection, then)
    except StoreError as error:
        raise fleet_norm.BadInput(str(error)) from None


@click_command
def restore_command() -> int:
    """Put back what a run that was killed has left: its processes, services, GPU settings and files.

    The next `nhc deep run` does so by itself. Exit status: 0 done or nothing to do, 1 not all of it could be.
    """
    where, host = journal.directory(), Host()
    try:
        lock = journal.lock(where)
        left = journal.read(where)
    except journal.JournalError as error:
        raise CommandError(str(error)) from None
    try:
        if left is None:
            click.echo("nothing is left to put back")
            return EXIT_HEALTHY
        done, failed = journal.restore(host, where, left)
    finally:
        os.close(lock)
    for line in done:
        click.echo(f"put back: {printable(line)}")
    for line in failed:
        click.echo(f"not put back: {printable(line)}", err=True)
    if not done and not failed:
        click.echo(f"a run of {printable(left.suite)} had left its folder only: removed")
    return EXIT_UNHEALTHY if failed else EXIT_HEALTHY


TRIES = (0.0, 2.0, 10.0)
"""Seconds before each try to reach the server: a run of an hour is worth a quarter of a minute."""
IN_USE = 60.0
"""Seconds to wait for another process that sends what waits: the agent takes it over in a moment, a run's three tries
take longer."""


def push_settings(path: str) -> PushSettings:
    """What [sinks.server] of a file like agent.toml says. Raises UsageError.

    Read before the node is tested: an hour's results would be lost to a path that is mistyped.
    """
    try:
        from nhc.agent.server_push import read_push_settings
    except ImportError as error:
        raise UsageError(f"--server needs the extra nodehealth[remedy]: {error}") from None
    try:
        tables = load_settings(path).table("sinks").tables()
        if "server" not in tables:
            raise UsageError(f"{path}: there is no [sinks.server]")
        return read_push_settings(tables["server"].raw())
    except (SettingsError, AdapterError) as error:
        raise UsageError(str(error)) from None


def to_server(report: Report, suite: str, settings: PushSettings, sleep: Callable[[float], None] = time.sleep) -> str:
    """Push a report to the server of these settings; why not, "" where it was.

    It waits on the disk until the server has taken it, with those of earlier runs: the next run sends it.
    """
    from nhc.agent.deep_spool import deep_spool
    from nhc.agent.server_push import Hopeless, NotNow, Pusher

    pusher, now = Pusher(settings), time.time()
    text = push.to_text(push.Pushed(report, not report.not_run, now, suite))

    def tried(work: Callable[[], List[str]]) -> List[str]:
        for wait in TRIES[:-1]:
            sleep(wait)
            try:
                return work()
            except NotNow:
                pass
        sleep(TRIES[-1])
        return work()

    try:
        with deep_spool(settings.spool, settings.spool_size, settings.spool_age, IN_USE) as spool:
            spool.add(text, now)
            try:
                refused = tried(lambda: _send_all(spool, pusher, report.host))
            except NotNow as error:
                what = "the results wait" if len(spool) == 1 else f"the results of {len(spool)} runs wait"
                return f"{error}: {what} in {spool.directory} for the agent, or the next run, to send them"
    except OSError as error:  # the disk takes nothing: sent at once it is not lost
        kept = f"{error.filename or settings.spool}: {error.strerror}"
        try:
            refused = tried(lambda: pusher.push(push.pack(report.host, [text])).refused)
        except (NotNow, Hopeless) as failure:
            return f"{failure}: the results are not sent, nor kept ({kept})"
    finally:
        pusher.close()
    return f"the server refuses the results: {refused[0]}" if refused else ""


def _send_all(spool: Spool, pusher: Pusher, node: str) -> List[str]:
    """Send all that waits, the oldest first; what the server refused for good, a line each. Raises NotNow."""
    from nhc.agent.server_push import Hopeless
    from nhc.agent.server_sink import BATCH

    refused: List[str] = []
    count = BATCH
    while len(spool):
        files, texts = spool.oldest(count)
        if not texts:
            continue  # damaged ones: they are dropped by now
        lost = spool.lost
        try:
            refused += pusher.push(push.pack(node, texts, lost)).refused
        except Hopeless as error:
            if len(texts) > 1:
                count = 1  # one of them is what it does not take: the others go one by one
                continue
            refused.append(str(error))
            spool.count_lost(1)
        else:
            spool.forget_lost(lost)
        spool.remove(files)
    return refused
