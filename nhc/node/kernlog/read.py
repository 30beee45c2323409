"""What is new in a kernel log since the last run, and the findings that follow, kept in the host's memory.

One memory a source: a cursor (so that nothing is read twice and nothing missed) and the findings. Reading and
remembering are one step under the memory's lock; asking devices how they are, which can hang, is not.

A machine can die without a word: a boot that follows no shutdown is counted, and comes back as a finding. Nothing in a
kernel's log tells of a power failure, a hang or a reset by a watchdog: the next boot does. One can be anybody's mishap.
The second within a week is a person's to look at, the third takes the node out (repeats.tsv).
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action
from nhc.node.facts import kmsg
from nhc.node.kernlog.findings import enter_boot, identity, restarted
from nhc.node.kernlog.lasting import agent_ended
from nhc.node.kernlog.match import INFO, Match
from nhc.node.kernlog.shape import fit
from nhc.node.kernlog.source import DMESG, FILE, JOURNAL, KMSG, OTHER, SYSLOG_FILES, LogSource
from nhc.node.kernlog.store import load, register

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.host import Host
    from nhc.node.kernlog.match import Match
    from nhc.node.kernlog.npd_rules import Rule
    from nhc.node.kernlog.state_types import LogState


class LogReading(NamedTuple):
    """A log as it stands: the state of its findings, what this run read, and what it could not.

    `lost` counts lines overwritten since the last run (-1: some, nothing tells how many), `unseen` those gone
    before the first run of this boot. `problem` says what else of the source was not read, "" for nothing.
    """

    state: LogState
    source: str
    lines: int
    lost: int
    unseen: int
    problem: str = ""


class Followed(NamedTuple):
    """What a process that follows a log has read of it since the last run, and filed: how much, and what it lost."""

    lines: int
    lost: int


def followed(host: Host) -> Mapping[str, Followed]:
    """The logs that another process reads for this run, by their stores: none, unless the caller knows of some."""
    return {}


def default_log(host: Host) -> LogReading:
    """/dev/kmsg, or where it cannot be read, journald, or a syslog file. Raises OSError when there is none."""
    return read_log(host, LogSource())


def read_log(host: Host, source: LogSource, since_boot: bool = False) -> LogReading:
    """Read what is new and remember what follows. With `since_boot` read all of this boot and remember nothing.

    Raises OSError when the source cannot be read, BadRules for a bad rule file.
    """
    read = None if since_boot else host.fact(followed).get(source.store)
    if read is not None:
        state = load(host.memory, source.store)
        _keep(host, source, state)
        return LogReading(state, "/dev/kmsg", read.lines, read.lost, 0)
    rules: List[Rule] = []
    for path in source.rules:
        from nhc.node.kernlog.npd_rules import load_file

        rules += load_file(path).rules
    boot = host.boot_id()
    # Devices are asked before the memory is locked: a driver that hangs must not hold other runs up.
    clean: Dict[Tuple[str, str, str], Optional[bool]] = {}
    before: LogState = {} if since_boot else load(host.memory, source.store)
    recalled: LogState = {}
    if not since_boot and "boot" not in before:
        from nhc.node.kernlog.lasting import recall

        before = recalled = recall(host.memory, source.store, boot, kmsg.boot_time(host))
    if restarted(before, boot):
        from nhc.node.kernlog.device_state import clean_devices

        clean = clean_devices(host, before)
    unclean: Optional[Match] = None
    if not since_boot and source.kind != OTHER and (recalled or before.get("boot") != boot):
        unclean = unclean_boot(host, boot)
    readings: List[LogReading] = []  # two where the first met a memory that it could not work with

    def change(held: Dict[str, Any]) -> None:
        state = fit(held)
        if "boot" not in state:
            state.update(recalled)
        enter_boot(state, boot, lambda finding: clean.get(identity(finding)))
        if unclean is not None:
            from nhc.node.kernlog.collect import add

            add(state, unclean, kmsg.boot_time(host), host.time())
        readings.append(_advance(host, source, state, rules))

    if since_boot:
        change({})
    else:
        host.memory.update(source.store, change)
        register(host.memory, source.store)
        _keep(host, source, readings[-1].state)
    return readings[-1]


def _keep(host: Host, source: LogSource, state: LogState) -> None:
    """Have what must outlive the state directory written; a log that has told of nothing needs no part of this."""
    if state.get("findings") or state.get("history") or "kept" in state:
        from nhc.node.kernlog.lasting import store_lasting

        store_lasting(host.memory, source.store, state)


def _advance(host: Host, source: LogSource, state: LogState, rules: Sequence[Rule]) -> LogReading:
    """Bring a state up to the end of its log."""
    first = state.get("cursor") is None
    batch, name = _read(host, source, state.get("cursor"))
    records = batch.records
    if records:
        from nhc.node.kernlog.collect import take_in

        catalogue = source.kind != OTHER
        if first:
            from nhc.node.kernlog.lasting import covers, stored_acks

            # Acknowledged in this boot before the state was lost: ends again what the same lines begin again.
            for ack in stored_acks(host.memory, source.store, state.get("boot", "")):
                before = [r for r in records if covers(ack, source.store, r.number, r.when)]
                take_in(state, [(r.text, r.when) for r in before], host.time(), rules, catalogue, _origin(host))
                state.get("findings", {}).pop(ack["key"], None)
                records = records[len(before) :]
        take_in(state, [(r.text, r.when) for r in records], host.time(), rules, catalogue, _origin(host))
    state["cursor"] = batch.cursor
    lost, unseen = (0, batch.lost) if first else (batch.lost, 0)
    return LogReading(state, name, len(batch.records), lost, unseen, batch.problem)


def _origin(host: Host) -> Callable[[int], str]:
    """Looks up what a process belongs to; the first look-up loads the module."""

    def look(pid: int) -> str:
        from nhc.node.kernlog.programs import origin

        return origin(host)(pid)

    return look


def _read(host: Host, source: LogSource, cursor: object) -> Tuple[kmsg.Batch, str]:
    """The batch, and the name of where it came from."""
    if source.kind == JOURNAL:
        return _journal(host, cursor), "journald"
    if source.kind == OTHER and not source.path.startswith("/"):
        return _journal(host, cursor, source.path), f"journald's {source.path}"
    if source.kind in (FILE, DMESG, OTHER):
        return kmsg.read_file(host, source.path, cursor, keep_all=source.kind != FILE), source.path
    if isinstance(cursor, dict):  # an earlier run could not read /dev/kmsg: stay with what it used
        return _fallback(host, cursor)
    try:
        return kmsg.read_kmsg(host, cursor if isinstance(cursor, int) else None), "/dev/kmsg"
    except OSError:
        if source.kind == KMSG or cursor is not None:
            raise
    return _fallback(host, {})


def _journal(host: Host, cursor: object, identifier: str = "") -> kmsg.Batch:
    from nhc.node.facts.journal import read_journal

    return read_journal(host, cursor if isinstance(cursor, str) else "", identifier)


def _fallback(host: Host, cursor: Dict[str, Any]) -> Tuple[kmsg.Batch, str]:
    path = cursor.get("path", "")
    if not path and (cursor or host.which("journalctl")):
        try:
            batch = _journal(host, cursor.get("at"))
        except OSError:
            if cursor:
                raise
        else:
            if cursor or batch.records:
                return batch._replace(cursor={"path": "", "at": batch.cursor}), "journald"
    for candidate in (path,) if path else SYSLOG_FILES:
        try:
            batch = kmsg.read_file(host, candidate, cursor.get("at"))
        except OSError:
            if path:
                raise
            continue
        return batch._replace(cursor={"path": candidate, "at": batch.cursor}), candidate
    raise OSError(2, "not readable, and neither journald nor a syslog file has the kernel's messages", "/dev/kmsg")


CRASH_BEFORE = 86400.0
"""Seconds before a boot in which a record of a crash is taken for the cause of it."""


def unclean_boot(host: Host, boot: str) -> Optional[Match]:
    """The boot that runs, if the one before it ended without a shutdown and nobody reset the machine on purpose.

    Either witness acquits: the records of boots, and an agent that was told to end. Where neither tells there is none.
    """
    from nhc.core.timestamps import utc  # once a boot
    from nhc.node.facts import boots

    recorded, told = boots.ended_orderly(host), agent_ended(host.memory, boot)
    if recorded or told or (recorded is None and told is None) or boots.by_command(host):
        return None
    booted = host.time() - host.monotonic()
    cause = _cause(host, booted)
    message = f"the node went down without a shutdown{f': {cause}' if cause else ''}"
    line = f"the boot of {utc(booted)} follows no shutdown"
    return Match("boot", "Unclean", INFO, Action.NONE, "", message, line)


def _cause(host: Host, booted: float) -> str:
    """What a dying kernel left behind, "" for nothing."""
    from nhc.node.facts import boots, crashes

    try:
        found = [crash for crash in crashes.crashes(host) if -CRASH_BEFORE <= crash.at - booted <= boots.SKEW]
    except OSError:
        return ""
    return found[-1].cause if found else ""
