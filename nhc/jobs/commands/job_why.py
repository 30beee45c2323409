"""`nhc job why`: why a job ended, by its logs, its scheduler, and its nodes."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import closing
from typing import Iterator, List, Optional, Sequence, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, open_file
from nhc.core.system.foreign_text import Unreadable
from nhc.jobs import why_nodes
from nhc.jobs.log_catalogue import GPU, NETWORK, NODE, STORAGE, UNKNOWN
from nhc.jobs.why import RECORD, Clue, dated, judge_end
from nhc.jobs.why_logs import HEAD, TAIL, JobLogs, JobLogSource, input_text, places, read_logs, record_clues
from nhc.jobs.why_report import JobWhy, Witness, as_json, evidence, summary
from nhc.marks.ports.job_control import JobEndRecord, JobEnds

PIECE = 1 << 20
"""Characters of one line that are read."""
_FILE = re.compile(r"^[./~]|\.(?:log|out|err|txt)$")


class JobWhyOptions(options.Formatted):
    names: Tuple[str, ...] = options.arguments("[JOB] [LOG...]", needed=True)
    controller: str = options.text(
        "--controller", "NAME", "Who runs the job: slurm, kubernetes. Default: by the name's form.",
        heading="What is asked",
    )  # fmt: skip
    kernel_logs: Tuple[str, ...] = options.texts(
        "--kernel-log", "[NODE=]FILE", "A node's kernel log: dmesg -T, journalctl -k -o short-iso. Repeatable."
    )
    store_url: str = options.text("--store", "URL", "Ask this store for the nodes' problems and proofs.")
    timeout: float = options.real(
        "--timeout", "SECONDS", "How long the scheduler may take for one answer.", 20.0, least=1, most=600
    )
    node_set: str = options.text(
        "-w --nodes", "SET", "The job's nodes, where no scheduler says them: gpu[001-016].", heading="Where the job ran"
    )
    full: bool = options.flag("-e --evidence", "Show what every witness said.", heading="What is shown")
    append: bool = options.flag("--append", "Append the answer to the output of a job that failed, and print nothing.")
    first_node: str = options.text("--first-node", "NODE", "With --append: only on the job's first node.")


@click_command
def command(args: JobWhyOptions) -> int:
    """Say why a job ended: the program, its limits, a node, the network or storage, the scheduler or a person.

    JOB is a job of Slurm (17, 17_3) or of Kubernetes (NAME, NAMESPACE/NAME, KIND/NAMESPACE/NAME); LOG is a file of its
    output, or - for standard input. Each is optional. No privileges are needed for a job of one's own. What could not
    be asked is named. The first initiating event over all ranks and nodes is the cause. docs/why.schema.json has the
    JSON.

    Exit status: 0 the cause is known and no node's, 1 a node, the network or storage, 2 wrong usage, 3 not known.
    """
    why = ask(args)
    if args.append:
        return _append(why, args.first_node)
    if args.form == "json":
        show(as_json(why))
    else:
        for line in summary(why) + (evidence(why) if args.full else []):
            click.echo(printable(line))
    if why.verdict.cause in (UNKNOWN, GPU):
        return EXIT_UNKNOWN
    return EXIT_UNHEALTHY if why.verdict.cause in (NODE, NETWORK, STORAGE) else EXIT_HEALTHY


def _append(why: JobWhy, first_node: str) -> int:
    """Write the answer into the job's own output, as its user: no more than he could do. Raises CommandError."""
    recorded = any(clue.witness == RECORD for clue in why.clues)  # else its scheduler does not say that it failed
    if not why.output or not recorded or (first_node and why.nodes[:1] != (first_node,)):
        return EXIT_HEALTHY
    text = "".join(f"nhc: {printable(line)}\n" for line in summary(why))
    try:
        handle = os.open(why.output, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "w", encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "it is no plain file")
            file.write(text)
    except OSError as error:
        raise CommandError(f"{why.output}: {error.strerror}", EXIT_UNKNOWN) from None
    return EXIT_HEALTHY


def ask(args: JobWhyOptions) -> JobWhy:
    """Ask every witness that a command line names. Raises CommandError."""
    job, files = _sorted(args.names)
    witnesses: List[Witness] = []
    record = _record(job, args, witnesses) if job else None
    if record is None and not job:
        witnesses.append(Witness("scheduler", "no job was named"))
    nodes = tuple(named_nodes(args.node_set)) or (record.nodes if record else ())
    logs = _read_logs(files, record, nodes, witnesses)
    ended = record.ended if record else None
    clues = logs.clues() + (record_clues(record) if record else [])
    clues += _kernel(args.kernel_logs, nodes, witnesses)
    clues += _memory(job, nodes, logs)
    done: Tuple[str, ...] = ()
    if args.store_url:
        store_clues, done = _store(args.store_url, job, nodes or _named(clues), ended or logs.last, witnesses)
        clues += store_clues
    else:
        witnesses.append(Witness("checks", "no store was named (--store)"))
    clues = dated(clues, ended or logs.last)
    verdict = judge_end(clues, ended or logs.last)
    if record and record.running:
        witnesses.append(Witness("end", "the job still runs"))
    output = next((log.path for log in reversed(record.logs)), "") if record else ""  # the standard output comes last
    return JobWhy(job, verdict, tuple(clues), tuple(witnesses), tuple(nodes), record.state if record else "",
                  record.started if record else None, ended, tuple(why_nodes.shared(clues)), done, output)  # fmt: skip


def _sorted(names: Sequence[str]) -> Tuple[str, List[str]]:
    """The job, "" for none, and the logs."""
    jobs = [name for name in names if name != "-" and not os.path.exists(name) and not _FILE.search(name)]
    if len(jobs) > 1:
        raise CommandError(
            f"{printable(jobs[1], 80)}: there is no such file, and one job at a time is asked for", EXIT_USAGE
        )
    return (jobs[0] if jobs else ""), [name for name in names if name not in jobs]


def _record(job: str, args: JobWhyOptions, witnesses: List[Witness]) -> Optional[JobEndRecord]:
    from nhc.marks import plugins
    from nhc.marks.ports.adapter import AdapterError

    name = args.controller or ("slurm" if re.fullmatch(r"\d+(?:[_+]\d+)?", job) else "kubernetes")
    try:
        controller = plugins.job_controller(name)({}, dict(os.environ), args.timeout)
        if not isinstance(controller, JobEnds):
            raise CommandError(f"{name} keeps no record of how jobs ended", EXIT_USAGE)
        record = controller.end(job)
    except AdapterError as error:
        witnesses.append(Witness("scheduler", printable(str(error), 300)))
        return None
    witnesses.append(Witness("scheduler", "" if record else f"{name} knows no job {printable(job, 80)}"))
    if record:
        part = "accounting" if name == "slurm" else "logs"
        witnesses.extend(Witness(part, printable(gap, 300)) for gap in record.missing)
    return record


def _read_logs(
    files: Sequence[str], record: Optional[JobEndRecord], nodes: Sequence[str], witnesses: List[Witness]
) -> JobLogs:
    """What the named files say, and the logs of the record. Raises CommandError where a named file cannot be read."""
    sources = [JobLogSource(_short(file), "" if file == "-" else file, input_text() if file == "-" else "",
                         year=_year(file)) for file in files]  # fmt: skip
    named = set(map(os.path.abspath, files))
    for log in record.logs if record else ():
        if not log.path or os.path.abspath(log.path) not in named:
            name = _short(log.path) if log.path else log.name
            sources.append(JobLogSource(name, log.path, log.text, log.rank, _year(log.path)))
    places_known = places(record) if record else {}
    try:
        logs, unread = read_logs(sources, nodes, places_known)
    except (Unreadable, OSError) as error:
        witnesses.append(Witness("log", str(error)))
        return JobLogs(nodes, places_known)
    for number, why in unread.items():
        if number < len(files):
            raise CommandError(f"{files[number]}: {why}", EXIT_USAGE)
        witnesses.append(Witness("log", f"{sources[number].path or sources[number].name}: {why}"))
    if not logs.lines and not any(witness.name == "log" for witness in witnesses):
        witnesses.append(Witness("log", "it is empty" if files or (record and record.logs) else "none was named"))
    return logs


def _short(path: str) -> str:
    """How a log is called; of one that is not read as a whole the lines are not counted from its begin."""
    try:
        cut = " (begin and end)" if path != "-" and os.stat(path).st_size > HEAD + TAIL else ""
    except OSError:
        cut = ""
    return "standard input" if path == "-" else path.rpartition("/")[2] + cut


def _year(path: str) -> int:
    try:
        return time.localtime(os.stat(path).st_mtime).tm_year if path and path != "-" else 0
    except OSError:
        return 0


def _lines(path: str) -> Iterator[str]:
    """The lines of a kernel log, of a large one those of its begin and end. Raises CommandError."""
    if path == "-":
        return iter(input_text().split("\n"))
    try:
        with os.fdopen(open_file(path), "rb") as file:  # a job's user says where its log is: a FIFO must hold nobody up
            size = os.fstat(file.fileno()).st_size
            data = file.read(HEAD + TAIL) if size <= HEAD + TAIL else file.read(HEAD)
            if size > HEAD + TAIL:
                file.seek(size - TAIL)
                data += b"\n" + file.read(TAIL)
    except OSError as error:
        raise CommandError(f"{path}: {cause(error)}", EXIT_USAGE) from None
    return (line[:PIECE] for line in data.decode("utf-8", "replace").split("\n"))


def _kernel(named: Sequence[str], nodes: Sequence[str], witnesses: List[Witness]) -> List[Clue]:
    from nhc.node.facts.kernel_lines import parse_line

    clues: List[Clue] = []
    for text in named:
        node, _, path = text.rpartition("=")
        node = node or (nodes[0] if len(nodes) == 1 else "")
        records = (parse_line(line.rstrip("\n"), time.time()) for line in _lines(path))
        clues += why_nodes.kernel_clues(node, ((record.text, record.when) for record in records if record.kernel))
    read = {text.rpartition("=")[0] for text in named}
    if not named:
        witnesses.append(Witness("kernel log", "of no node was named (--kernel-log)"))
    elif nodes and set(nodes) - read and "" not in read:
        witnesses.append(Witness("kernel log", f"not of {', '.join(sorted(set(nodes) - read)[:8])}"))
    return clues


def _memory(job: str, nodes: Sequence[str], logs: JobLogs) -> List[Clue]:
    """What the job's control group on this machine counts: it is there within the job, and until its last step ends."""
    from nhc.core.host import Host
    from nhc.core.language.site_settings import site_settings
    from nhc.core.system.node_name import scheduler_name
    from nhc.node.facts import jobs_here as jobs

    host = Host()
    events = jobs.of_job(host, job)
    here = logs.node(scheduler_name(os.environ, site_settings().settings, host.system.hostname(), host.read_or))
    return why_nodes.memory_clues(here if here in nodes else "", events) if events is not None else []


def _named(clues: Sequence[Clue]) -> Tuple[str, ...]:
    return tuple(sorted({clue.node for clue in clues if clue.node}))


def _store(
    url: str, job: str, nodes: Sequence[str], ended: Optional[float], witnesses: List[Witness]
) -> Tuple[List[Clue], Tuple[str, ...]]:
    from nhc.jobs import why_store
    from nhc.store.errors import StoreError
    from nhc.store.settings import fleet_store

    try:
        with closing(fleet_store(url, create=False)) as store:
            return why_store.node_clues(store, nodes, ended), why_store.done(store, job, nodes, ended)
    except StoreError as error:
        witnesses.append(Witness("checks", printable(str(error), 300)))
        return [], ()
