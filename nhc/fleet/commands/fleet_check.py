"""`nhc fleet check` from its options to its exit status; `nhc fleet report` from the history."""

from __future__ import annotations

import sys
import time
from typing import List, Optional, TextIO, Tuple

from nhc import __version__
from nhc.core.command_line.clean_output import wants_colour
from nhc.core.command_line.report_output import EXIT
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.core.system.written_files import replace_output
from nhc.core.units import show_number
from nhc.fleet import summary
from nhc.fleet.commands import fleet_options
from nhc.fleet.history import SweepHistory, default_path
from nhc.fleet.node_result import was_reached
from nhc.fleet.progress import ProgressLine
from nhc.fleet.summary import Picture
from nhc.fleet.sweep_request import SweepRequest


def run(request: SweepRequest) -> int:
    """Carry out `nhc fleet check`; the exit status. Raises Usage."""
    from nhc.fleet.sweep import sweep

    secrets = fleet_options.take_secrets()
    fleet_options.usable(request)
    for path in filter(None, (request.site.html, request.site.json_path)):
        fleet_options.writable(path)
    marking = fleet_options.marking(request) if request.mark else None
    nodes = fleet_options.nodes(request, secrets)
    settings = fleet_options.settings(request, nodes)
    history = SweepHistory(request.site.history or default_path() if request.site.keep_history else "")
    started = time.time()
    number = history.begin(_command_line(), __version__, started, len(nodes))
    picture = Picture(nodes, started, request.site.group_by)
    waiting = dict.fromkeys(range(len(nodes)))
    notes: List[str] = []
    arrivals = sweep(nodes, settings, notes.append)
    interrupted = failed = False
    try:
        with ProgressLine(picture.names, request.form == "text" and sys.stderr.isatty()) as progress:
            progress.show(0, picture.folder.counts, waiting)
            for arrived in arrivals:
                waiting.pop(arrived.place, None)
                picture.add(arrived.place, arrived.verdict, arrived.findings, arrived.metrics, arrived.labels)
                history.add(number, nodes[arrived.place].name, arrived.verdict, arrived.seconds, arrived.line)
                if request.form == "jsonl":
                    _print(arrived.text() + "\n")
                progress.show(picture.folder.total, picture.folder.counts, waiting)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        arrivals.close()
    picture.end(time.time(), [nodes[place].name for place in waiting])
    history.end(number, interrupted=interrupted)
    try:
        _show(request, picture, history, number)
    except BrokenPipeError:
        raise
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
        failed = True
    if request.suite and request.site.store:
        notes.append(store_results(history, number, request.suite, request.site.store))
    for line in filter(None, (*notes, history.warning)):
        _say(line)
    status = exit_status(picture, request.max_unhealthy)
    if interrupted and waiting:
        _say(f"interrupted: {show_number(len(waiting), 'node')} not judged: {fold(picture.not_judged)}")
        status = 130
    elif failed:
        status = EXIT_UNKNOWN
    elif marking is not None and not interrupted:
        status = _worse(status, marking(history, number))
    history.close()
    return status


def store_results(history: SweepHistory, number: int, suite: str, url: str) -> str:
    """Keep in a store what a suite found of the nodes that a sweep reached; why it could not be, "" where it was."""
    from nhc.core.state.reports import suite_name
    from nhc.fleet.history import HistoryError
    from nhc.store.deep_delivery import to_store

    try:
        reports = [report for report, _extra in history.reports(number) if was_reached(report)]
    except HistoryError as error:
        return f"{error}: the results are not in the store"
    return to_store(reports, suite_name(suite), url)


def _print(text: str) -> None:
    """Raises OSError. What the terminal's character set lacks, the stream escapes
    (`nhc.core.command_line.clean_output`).
    """
    sys.stdout.write(text)
    sys.stdout.flush()


def _say(line: str) -> None:
    print(f"nhc fleet check: {printable(line)}", file=sys.stderr)


def _worse(status: int, other: int) -> int:
    """The exit status that says more: 1 before 3 before 0."""
    return max(status, other, key=(EXIT_HEALTHY, EXIT_UNKNOWN, EXIT_UNHEALTHY).index)


def exit_status(picture: Picture, limit: Optional[Tuple[Optional[int], float]]) -> int:
    """The worst node's status; 0 where no more nodes are unhealthy than the limit allows."""
    folder = picture.folder
    status = EXIT[folder.worst()]
    if limit is None or status == EXIT_HEALTHY:
        return status
    count, share = limit
    allowed = count if count is not None else share * folder.total
    return EXIT_HEALTHY if folder.unhealthy() <= allowed else status


def _show(request: SweepRequest, picture: Picture, history: SweepHistory, number: int) -> None:
    far = picture.outliers() if request.site.outliers else []
    form = request.form
    if request.site.json_path:
        replace_output(request.site.json_path, lambda file: summary.write_json(file, picture, history, number, far))
    if request.site.html:
        from nhc.fleet.html import write_html

        replace_output(request.site.html, lambda file: write_html(file, picture, history, number, far))
    if form == "json":
        summary.write_json(sys.stdout, picture, history, number, far)
    elif form == "text":
        colour = wants_colour(request.site.color, sys.stdout)
        _print(summary.text(picture, far, request.site.by, colour, request.quiet, request.site.skipped))
    sys.stdout.flush()


def again(
    *, sweep: str, listed: bool, history: Optional[str], form: str, by: str, group_by: str, output: Optional[str],
    skipped: bool, quiet: bool, outliers: bool, color: str,
) -> int:  # fmt: skip
    """Carry out `nhc fleet report`. Raises HistoryError, OSError."""
    kept = SweepHistory(history or default_path(), create=False)
    if listed:
        for each in kept.sweeps():
            _print(summary.sweep_line(each) + "\n")
        return EXIT_HEALTHY
    found = kept.find(sweep)
    picture = summary.picture_of(kept, found, group_by)
    far = picture.outliers() if outliers else []

    def write(file: TextIO) -> None:
        if form == "json":
            summary.write_json(file, picture, kept, found.id, far)
        elif form == "jsonl":
            for _node, line in kept.lines(found.id):
                file.write(line + "\n")
        elif form == "html":
            from nhc.fleet.html import write_html

            write_html(file, picture, kept, found.id, far)
        else:
            colour = wants_colour(color, file)
            file.write(summary.text(picture, far, by, colour, quiet, skipped))

    if output and output != "-":
        replace_output(output, write)
    else:
        write(sys.stdout)
        sys.stdout.flush()
    return EXIT_HEALTHY


def _command_line() -> str:
    """The command line as the history shows it. No secret is ever an argument."""
    import shlex

    return printable(shlex.join(["nhc", *sys.argv[1:]]), 2000)
