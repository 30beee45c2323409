"""`nhc store ...`: look after the store of a fleet's reports, episodes and audit log."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.model import Report, printable
from nhc.core.plugins import attribute_of
from nhc.core.timestamps import utc_milliseconds as utc
from nhc.marks.policy.reconcile import BadReports
from nhc.store import nodes
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.database import Store
from nhc.store.episodes import REPAIR
from nhc.store.schema import audit, count, episodes, problems, report_history
from nhc.store.schema import nodes as nodes_table

SWEEPS = "nhc.fleet.history:reports_of_file"
EVIDENCE = "nhc.remedy.remedy_file:evidence_of_store"
"""What rooms above this one read for the store's commands, by name."""


@click_command
def migrate(args: StoreOptions) -> None:
    """Bring the store to the schema of this nhc; make it where there is none.

    Exit status: 0 it has it now, 2 wrong settings, 3 it cannot be reached or is another's.
    """
    from nhc.store import schema
    from nhc.store.migrate import upgrade

    with opened(args.url, create=True, check=False) as store:
        done = upgrade(store, time.time())
        print(f"{store.name}: {f'migrated ({chr(44).join(done)})' if done else 'has'} schema {schema.REVISION}")


@click_command
def check(args: StoreOptions) -> int:
    """Say whether the store can be used by this nhc. Changes nothing.

    Exit status: 0 it can, 1 its tables are not what they should be or it needs nhc store migrate, 3 it cannot be told.
    """
    from nhc.store import schema
    from nhc.store.database import revision
    from nhc.store.migrate import differences

    with opened(args.url, check=False) as store:
        with store.read() as connection:
            standing = revision(connection, store.name)
        if standing != schema.REVISION:
            print(f"{store.name}: has schema {standing or 'none'}, needs {schema.REVISION}: run nhc store migrate")
            return EXIT_UNHEALTHY
        other = differences(store)
        for line in other:
            print(f"{store.name}: {line}")
        print(f"{store.name}: schema {standing}" + (f", {len(other)} differences" if other else ""))
        return EXIT_UNHEALTHY if other else EXIT_HEALTHY


@click_command
def verify(args: StoreOptions) -> int:
    """See whether the audit log is whole: each row, each archived segment, and against the anchor.

    Exit status: 0 whole, 1 changed, cut or not anchored, 3 it cannot be read.
    """
    from nhc.store.audit import verify as verified

    with opened(args.url) as store, store.read() as connection:
        seen = verified(connection, store.anchor)
    for line in seen.mistakes:
        print(line)
    loose = seen.head - seen.anchored
    print(
        f"audit: {seen.rows} rows and {seen.archived} archived, the newest is {seen.head}, "
        f"anchored to {seen.anchored} in {store.anchor.path}"
        + (f": {loose} newest are not anchored yet" if loose > 0 else "")
        + (f": {len(seen.mistakes)} mistakes" if seen.mistakes else ": whole")
    )
    return EXIT_UNHEALTHY if seen.mistakes else EXIT_HEALTHY


class ImportOptions(StoreOptions):
    paths: Sequence[str] = options.arguments("PATH...", needed=True)
    source: str = options.text(
        "--source", "TEXT", "The way by which these reports came, as the store has it.", "import",
        heading="What is imported",
    )  # fmt: skip


@click_command
def import_command(args: ImportOptions) -> int:
    """Bring reports in: JSON files of them, directories of those, - for standard input, sweeps' fleet.sqlite.

    Older reports than a node's newest go into its history; what was imported before is left. Exit status: 0 all came
    in, 1 some were refused or could not be read, 2 a path that was named could not be read, 3 the store could not be
    used.
    """
    from nhc.store import settings as store_settings
    from nhc.store.reports import import_reports

    pace = store_settings.load(url=args.url).pace
    try:
        reports, whole = _reports(args.paths)
    except (BadReports, UnicodeDecodeError) as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    with opened(args.url, create=True) as store:
        done = import_reports(store, reports, printable(args.source, 100), pace, time.time())
    for line in done.refused:
        print(f"nhc: refused: {line}", file=sys.stderr)
    print(", ".join(f"{count} {name}" for name, count in done.receipts.items() if count) or "no reports")
    return EXIT_UNHEALTHY if done.receipts["refused"] or not whole else EXIT_HEALTHY


def _reports(paths: Sequence[str]) -> Tuple[List[Report], bool]:
    """The reports in files, and whether all could be read. Raises BadReports."""
    from nhc.marks.commands.sync import read_report_files

    kept = [path for path in paths if path.endswith((".sqlite", ".db"))]
    reports = [report for path in kept for report in _sweeps(path)]
    others = [path for path in paths if path not in kept]
    if not others:
        return reports, True
    files = read_report_files("nhc store import", others)
    return [*reports, *files.reports], not files.problems


def _sweeps(path: str) -> Iterator[Report]:
    read: Callable[[str], Iterator[Report]] = attribute_of(SWEEPS)
    yield from read(path)


class PruneOptions(StoreOptions):
    apply: bool = options.flag("--apply/--dry-run", "Do it, or only count (the default).", heading="What may be done")
    evidence: str = options.text(
        "--evidence", "DIR", "The evidence's files. Default: as remedy.toml of this store says.", heading="Which store"
    )


@click_command
def prune(args: PruneOptions) -> None:
    """Delete what is older than the settings keep it; move old rows of the audit log into files.

    Expired evidence goes with its files, where their directory is known and is on this machine. Exit status: 0 done,
    2 wrong settings, 3 the store or a file could not be written.
    """
    from nhc.store import evidence as store_evidence
    from nhc.store import settings as store_settings
    from nhc.store.retention import due
    from nhc.store.retention import prune as delete

    settings, now = store_settings.load(url=args.url), time.time()
    directory = args.evidence or _evidence_of(settings.url)
    with opened(args.url) as store:
        with_files = bool(directory) and os.path.isdir(directory)
        counts = due(store, settings.prune.keep, now)
        if not with_files and counts.pop("evidence", 0):
            where = f"{directory} is no directory here" if directory else "no remedy.toml here names this store"
            print(f"evidence: left, {printable(where)}: nhc serve remedy prunes it, or --evidence DIR", file=sys.stderr)
        if not args.apply:
            print("would go: " + _counted(counts.items()))
            return
        done = delete(
            store, settings.prune.keep, now, segments=settings.prune.segments, by=person(), with_evidence=with_files
        )
        print("gone: " + _counted(done.rows.items()))
        if with_files and done.files:
            print(f"evidence: {store_evidence.delete(directory, done.files, now)} files deleted in {directory}")
        if done.segment:
            print(f"audit: archived in {done.segment}")


class StoreStatusOptions(StoreOptions, options.Formatted):
    pass


@click_command
def status(args: StoreStatusOptions) -> None:
    """Show what the store holds. Exit status: 0, 2 wrong settings, 3 it cannot be reached."""
    from nhc.store import schema
    from nhc.store.rounds.leader import lead_of

    with opened(args.url) as store:
        seen = overview(store, schema.REVISION)
        lead = lead_of(store)
        if args.form == "json":
            leads = {"leader": lead.holder if lead.stands else "", "leader_since": lead.since if lead.stands else None}
            print(json.dumps({**seen._asdict(), **leads}))
            return
        verdicts = ", ".join(f"{count} {name or 'without a report'}" for name, count in sorted(seen.nodes.items()))
        lines: List[str] = [
            f"store     {store.name}, schema {seen.revision}, {seen.size / (1 << 20):.1f} MiB",
            f"nodes     {sum(seen.nodes.values())}" + (f": {verdicts}" if verdicts else ""),
            f"problems  {seen.problems} open",
            f"episodes  {seen.episodes} open",
            f"history   {seen.history} rows",
            f"audit     {seen.audit} rows, anchored in {store.anchor.path}",
        ]
        if seen.newest is not None and seen.oldest is not None:
            lines.append(f"received  {utc(seen.newest)} the newest, {utc(seen.oldest)} the node silent longest")
        if lead.holder:
            began = f"{printable(lead.holder)} since {utc(lead.since)}"
            lines.append(f"leader    {began if lead.stands else 'nobody; the last was ' + began}")
        print("\n".join(lines))


def _evidence_of(url: str) -> str:
    """The directory of evidence that the remedy loop of this store uses, "" where its settings are not here."""
    find: Callable[[str], str] = attribute_of(EVIDENCE)
    return find(url)


def _counted(rows: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in rows if count) or "nothing"


class Overview(NamedTuple):
    """Counts, and times as Unix seconds; None where there is nothing yet."""

    store: str
    revision: str
    size: int
    nodes: Dict[str, int]
    problems: int
    episodes: int
    history: int
    audit: int
    oldest: Optional[float]
    newest: Optional[float]


def overview(store: Store, revision: str) -> Overview:
    """What it holds now. Raises StoreError."""
    with store.read() as connection:
        if store.sqlite:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
            size = pages * (connection.exec_driver_sql("PRAGMA page_size").scalar() or 0)
        else:
            size = connection.scalar(sa.select(sa.func.pg_database_size(sa.func.current_database()))) or 0
        times = connection.execute(
            sa.select(sa.func.min(nodes_table.c.received_at), sa.func.max(nodes_table.c.received_at))
        ).one()

        return Overview(
            store.id,
            revision,
            int(size),
            nodes.counts(connection),
            count(connection, problems, problems.c.ended.is_(None)),
            count(connection, episodes, REPAIR, episodes.c.ended.is_(None)),
            count(connection, report_history),
            int(connection.scalar(sa.select(sa.func.max(audit.c.seq))) or 0),
            times[0],
            times[1],
        )
