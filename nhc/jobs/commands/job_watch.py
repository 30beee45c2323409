"""`nhc job watch`: what a job's log and flight records say against its nodes, and whom to test first."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from typing import Dict, Iterator, List, Sequence, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes, person
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


class JobWatchOptions(options.Formatted):
    logs: Tuple[str, ...] = options.arguments("[LOG...]")
    records: Tuple[str, ...] = options.texts(
        "--flight-records", "PATH", "PyTorch's NCCL flight records: files, or a directory of them. Repeatable.",
        heading="What is read",
    )  # fmt: skip
    job: str = options.text("--job", "ID", "The job's name or number, for the output and the store.")
    node_set: str = options.text(
        "-w --nodes", "SET", "The job's nodes in the order of ranks: gpu[001-016].", heading="Which node a rank is on"
    )
    per_node: int = options.whole("--per-node", "N", "Ranks on each of --nodes.", 8, least=1)
    rank_file: str = options.text("--ranks", "FILE", "Lines 'RANK NODE', instead of --nodes.")
    follow: bool = options.flag(
        "--follow", "Go on reading as the log grows, until the job ends or a signal.", heading="How it goes on"
    )
    hang_after: float = options.duration("--hang-after", "With --follow: no new step for so long is a hang.", "10m")
    until_hang: bool = options.flag("--until-hang", "With --follow: end when the job hangs.")
    store_url: str = options.text("--store", "URL", "Keep the order in this store's audit log.", heading="What is kept")
    by: str = options.BY


@click_command
def command(args: JobWatchOptions) -> int:
    """Read a job's log and name the suspects, in the order in which to test them.

    LOG is a file, several (one a rank), or - for standard input. Looked for are NaN, jumps of the loss, ranks that are
    slow, silent or failed first, device and network errors, NCCL's watchdog, and with --follow a hang. Flight records
    show who has not come to the collective that the others wait in; a pickle is read without running anything in it.
    The order is evidence, no verdict: test the first nodes with nhc deep sweep or nhc deep run.

    Exit status: 0 nothing found, 1 something was, 2 wrong usage, 3 nothing in the log was understood.
    """
    logs: Sequence[str] = args.logs or (() if args.records else ("-",))
    if args.follow and len(logs) != 1:
        raise CommandError("--follow takes one log", EXIT_USAGE)
    nodes = _nodes(args)
    records, problems = _records(args.records)
    watch = JobWatch(nodes)
    signals = Signals()
    try:
        signals.take()
        for log in logs:
            _read(watch, log, args)
    except SignalToEnd:
        pass
    finally:
        signals.hold()
    findings = watch.findings(flight_record.lags(records))
    for problem in problems:
        click.echo(f"nhc job watch: {printable(problem)}", err=True)
    _show(findings, watch, args)
    if args.store_url:
        _keep(findings, watch, args)
    if findings.suspects or findings.job:
        return EXIT_UNHEALTHY
    if problems or (logs and not findings.understood and not records):
        click.echo("nhc job watch: no line was understood: no step, no loss, no error of a known form", err=True)
        return EXIT_UNKNOWN
    return EXIT_HEALTHY


def _read(watch: JobWatch, log: str, args: JobWatchOptions) -> None:
    """Take every line of a log; say what is new where the log is followed."""
    last_step, since, hangs = watch.step, time.monotonic(), False
    for line in _lines(log, args.follow):
        if line:
            for event in watch.line(line):
                if args.follow and args.form == "text":
                    click.echo(printable(event), err=True)
        if not args.follow:
            continue
        if watch.step != last_step:
            last_step, since = watch.step, time.monotonic()
            if hangs:
                watch.moves_again()
            hangs = False
        elif not hangs and time.monotonic() - since >= args.hang_after:
            hangs = True
            click.echo(printable(watch.stalled(time.monotonic() - since)), err=True)
            if args.until_hang:
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


def _nodes(args: JobWatchOptions) -> Dict[int, str]:
    """The node of each rank, as the command line says. Raises CommandError."""
    if args.rank_file:
        path, by_rank = args.rank_file, {}
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
    names, each = named_nodes(args.node_set), args.per_node
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


def _show(findings: JobFindings, watch: JobWatch, args: JobWatchOptions) -> None:
    if args.form == "json":
        show({
            "job": args.job, "step": findings.steps, "lines": findings.lines, "nodes": watch.nodes,
            "findings": list(findings.job), "suspects": [suspect._asdict() for suspect in findings.suspects],
        })  # fmt: skip
        return
    name = f"job {args.job}: " if args.job else ""
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
        if args.store_url and args.job:
            which = f"--job {args.job}"
            if args.store_url.startswith("sqlite:"):  # another may hold a password
                which += f" --store {args.store_url}"
        click.echo(printable(f"test first: nhc deep sweep {which}"))


def _keep(findings: JobFindings, watch: JobWatch, args: JobWatchOptions) -> None:
    from nhc.store import audit
    from nhc.store.settings import fleet_store

    nodes = fold(watch.nodes)
    with closing(fleet_store(args.store_url)) as store, store.write() as connection:
        audit.append(connection, time.time(), person(args.by), "job.suspects", detail={
            "job": args.job, "step": findings.steps, "nodes": nodes if len(nodes) <= NODES else "",
            "findings": [printable(finding, 300) for finding in findings.job],
            "suspects": [{"node": suspect.node, "ranks": list(suspect.ranks[:16]), "score": suspect.score,
                          "why": [printable(why, 200) for why in suspect.why]}
                         for suspect in findings.suspects[:SUSPECTS]],
        })  # fmt: skip
