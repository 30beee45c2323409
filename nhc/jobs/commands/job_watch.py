"""`nhc job watch`: what a job's log and flight records say against its nodes, and whom to test first."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from typing import Any, Dict, Iterator, List, Sequence

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, DURATION, FORMAT, GroupedCommand, named_nodes, person, under
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, read_bytes, read_text
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.jobs import flight_record
from nhc.jobs.watch_judge import JobFindings, JobWatch

PIECE = 1 << 20
"""Characters of one line that are read; what follows counts as another line."""
LOOK = 0.5
"""Seconds between two looks at a log that grows."""
SUSPECTS = 50
"""Suspects that are kept in the store's audit log, the first ones."""
NODES = 16 << 10
"""Characters of the job's nodes, folded, that are kept there: a quarter of what a row may hold. More are not cut, which
would make another name of the last, but left out."""
_what, _who, _how = under("What is read"), under("Which node a rank is on"), under("How it goes on")


@click.command("watch", cls=GroupedCommand)
@click.argument("logs", nargs=-1, metavar="[LOG...]")
@_what("--flight-records", "records", multiple=True, metavar="PATH",
       help="PyTorch's NCCL flight records: files, or a directory of them. Repeatable.")  # fmt: skip
@_what("--job", default="", metavar="ID", help="The job's name or number, for the output and the store.")
@_who("-w", "--nodes", "node_set", default="", metavar="SET",
      help="The job's nodes in the order of ranks: gpu[001-016].")  # fmt: skip
@_who("--per-node", type=click.IntRange(1), default=8, show_default=True, help="Ranks on each of --nodes.")
@_who("--ranks", "rank_file", default="", metavar="FILE", help="Lines 'RANK NODE', instead of --nodes.")
@_how("--follow", is_flag=True, help="Go on reading as the log grows, until the job ends or a signal.")
@_how("--hang-after", type=DURATION, default="10m", show_default=True, metavar="TIME",
      help="With --follow: no new step for so long is a hang.")  # fmt: skip
@_how("--until-hang", is_flag=True, help="With --follow: end when the job hangs.")
@under("What is kept")(
    "--store", "store_url", default="", metavar="URL", help="Keep the order in this store's audit log."
)
@BY
@FORMAT
def command(**options: Any) -> int:
    """Read a job's log and name the suspects, in the order in which to test them.

    LOG is a file, several (one a rank), or - for standard input. Looked for are NaN, jumps of the loss, ranks that are
    slow, silent or failed first, device and network errors, NCCL's watchdog, and with --follow a hang. Flight records
    show who has not come to the collective that the others wait in; a pickle is read without running anything in it.
    The order is evidence, no verdict: test the first nodes with nhc deep sweep or nhc deep run.

    Exit status: 0 nothing found, 1 something was, 2 wrong usage, 3 nothing in the log was understood.
    """
    logs: Sequence[str] = options["logs"] or (() if options["records"] else ("-",))
    if options["follow"] and len(logs) != 1:
        raise CommandError("--follow takes one log", EXIT_USAGE)
    nodes = _nodes(options)
    records, problems = _records(options["records"])
    watch = JobWatch(nodes)
    signals = Signals()
    try:
        signals.take()
        for log in logs:
            _read(watch, log, options)
    except SignalToEnd:
        pass
    finally:
        signals.hold()
    findings = watch.findings(flight_record.lags(records))
    for problem in problems:
        click.echo(f"nhc job watch: {printable(problem)}", err=True)
    _show(findings, watch, options)
    if options["store_url"]:
        _keep(findings, watch, options)
    if findings.suspects or findings.job:
        return EXIT_UNHEALTHY
    if problems or (logs and not findings.understood and not records):
        click.echo("nhc job watch: no line was understood: no step, no loss, no error of a known form", err=True)
        return EXIT_UNKNOWN
    return EXIT_HEALTHY


def _read(watch: JobWatch, log: str, options: Dict[str, Any]) -> None:
    """Take every line of a log; say what is new where the log is followed."""
    last_step, since, hangs = watch.step, time.monotonic(), False
    for line in _lines(log, options["follow"]):
        if line:
            for event in watch.line(line):
                if options["follow"] and options["form"] == "text":
                    click.echo(printable(event), err=True)
        if not options["follow"]:
            continue
        if watch.step != last_step:
            last_step, since = watch.step, time.monotonic()
            if hangs:
                watch.moves_again()
            hangs = False
        elif not hangs and time.monotonic() - since >= options["hang_after"]:
            hangs = True
            click.echo(printable(watch.stalled(time.monotonic() - since)), err=True)
            if options["until_hang"]:
                return


def _lines(path: str, follow: bool) -> Iterator[str]:
    """Lines of a log; with `follow` an empty one at each look that brought nothing. Raises CommandError."""
    try:
        if path == "-":
            stream = sys.stdin
            while True:
                line = stream.readline(PIECE)
                if not line:
                    return
                yield line
        with open(path, encoding="utf-8", errors="replace") as file:
            rest = ""
            while True:
                piece = file.readline(PIECE)
                if piece.endswith("\n") or len(piece) >= PIECE:
                    yield rest + piece
                    rest = ""
                    continue
                rest += piece
                if not follow:
                    if rest:
                        yield rest
                    return
                if _shortened(path, file.tell()):
                    file.seek(0)
                    rest = ""
                yield ""
                time.sleep(LOOK)
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: {cause(error)}", EXIT_USAGE) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", EXIT_USAGE) from None


def _shortened(path: str, at: int) -> bool:
    """Whether the log was begun anew under us."""
    try:
        return os.stat(path).st_size < at
    except OSError:
        return False


def _nodes(options: Dict[str, Any]) -> Dict[int, str]:
    """The node of each rank, as the command line says. Raises CommandError."""
    if options["rank_file"]:
        path, by_rank = options["rank_file"], {}
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: {cause(error)}", EXIT_USAGE) from None
        for number, line in enumerate(text.splitlines(), 1):
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            if len(fields) != 2 or not fields[0].isdigit():
                raise CommandError(f"{path}:{number}: {printable(line, 60)!r} is not 'RANK NODE'", EXIT_USAGE)
            by_rank[int(fields[0])] = fields[1]
        return by_rank
    names, each = named_nodes(options["node_set"]), options["per_node"]
    return {at * each + slot: name for at, name in enumerate(names) for slot in range(each)}


def _records(paths: Sequence[str]) -> tuple[List[flight_record.FlightRecord], List[str]]:
    """The flight records, and what is wrong with files. Raises CommandError for a path that is not there."""
    records: List[flight_record.FlightRecord] = []
    problems: List[str] = []
    for path in paths:
        try:
            names = sorted(f"{path}/{name}" for name in os.listdir(path)) if os.path.isdir(path) else [path]
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}", EXIT_USAGE) from None
        for name in names:
            try:
                records.append(flight_record.read(read_bytes(name, flight_record.LIMIT), flight_record.rank_of(name)))
            except OSError as error:
                if not os.path.isdir(path):
                    raise CommandError(f"{name}: {error.strerror}", EXIT_USAGE) from None
                problems.append(f"{name}: {error.strerror}")
            except flight_record.BadFlightRecord as error:
                problems.append(f"{name}: {error}")
    return records, problems


def _show(findings: JobFindings, watch: JobWatch, options: Dict[str, Any]) -> None:
    if options["form"] == "json":
        show({
            "job": options["job"], "step": findings.steps, "lines": findings.lines, "nodes": watch.nodes,
            "findings": list(findings.job), "suspects": [suspect._asdict() for suspect in findings.suspects],
        })  # fmt: skip
        return
    name = f"job {options['job']}: " if options["job"] else ""
    last = findings.steps if findings.steps >= 0 else "none"
    click.echo(printable(f"{name}{findings.lines} lines, last step {last}"))
    for finding in findings.job:
        click.echo(f"  {printable(finding)}")
    for number, suspect in enumerate(findings.suspects, 1):
        click.echo(printable(f"{number:>3}. {suspect.node} ({suspect.score})"))
        for why in suspect.why:
            click.echo(f"       {printable(why)}")
    named = [suspect.node for suspect in findings.suspects if not suspect.node.startswith("rank ")]
    others = [node for node in watch.nodes if node not in named]
    if named and len(named) + len(others) > 1:
        which = f"-w {fold([*named, *others])} --suspects {','.join(named)}"
        if options["store_url"] and options["job"]:
            which = f"--job {options['job']}"
            if options["store_url"].startswith("sqlite:"):  # another may hold a password
                which += f" --store {options['store_url']}"
        click.echo(printable(f"test first: nhc deep sweep {which}"))


def _keep(findings: JobFindings, watch: JobWatch, options: Dict[str, Any]) -> None:
    from nhc.store import audit
    from nhc.store.settings import fleet_store

    nodes = fold(watch.nodes)
    with closing(fleet_store(options["store_url"])) as store, store.write() as connection:
        audit.append(connection, time.time(), person(options["by"]), "job.suspects", detail={
            "job": options["job"], "step": findings.steps, "nodes": nodes if len(nodes) <= NODES else "",
            "findings": [printable(finding, 300) for finding in findings.job],
            "suspects": [{"node": suspect.node, "ranks": list(suspect.ranks[:16]), "score": suspect.score,
                          "why": [printable(why, 200) for why in suspect.why]}
                         for suspect in findings.suspects[:SUSPECTS]],
        })  # fmt: skip
