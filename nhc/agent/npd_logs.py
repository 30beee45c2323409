"""Logs that node-problem-detector's rules are applied to, live: the kernel's, journald's, a file's."""

from __future__ import annotations

from typing import Callable, List, Match, Optional, Sequence, Tuple

from nhc.agent.event_loop import Loop, Timer
from nhc.agent.journal_follower import Journalctl
from nhc.agent.npd_conditions import TRUE, RuleConditions
from nhc.agent.npd_config import LogMonitor
from nhc.core.host import Host
from nhc.core.system.kernel_ring import KMSG
from nhc.node.facts.journal import FIELDS, NO_JOURNAL, is_kept, same_entry
from nhc.node.facts.kernel_lines import Record, parse_journal, parse_line
from nhc.node.facts.kmsg import log_tail, ring_records, rotated_to, unread
from nhc.node.kernlog.npd_rules import PERMANENT, Rule, needle

POLL = 1.0
"""Seconds between looks at a file."""
JOURNAL_LOOK = 5.0
"""Seconds between looks whether journald keeps a journal: journalctl waits for one without a word."""
RUNS = 2.0
"""Seconds after which a journalctl that has not ended reads the journal."""
CHUNK = 8 << 20


class LogReader:
    """One monitor's rules on its log. Lines from before `since` (Unix time) are of the past and are left out."""

    def __init__(self, monitor: LogMonitor, conditions: RuleConditions, changed: Callable[[], None]) -> None:
        self.monitor, self.conditions, self.changed = monitor, conditions, changed
        self.since = 0.0
        self.problem = ""
        """What is to be said of the log: that it cannot be read, or what of it is no lines."""
        self._unread = ""
        self._last: List[str] = []
        self._rules = [(rule, needle(rule.pattern.pattern[:-2]), suffix, f"{monitor.path}#{number}")
                       for number, (rule, suffix) in enumerate(zip(monitor.rules, monitor.suffixes), 1)]  # fmt: skip
        for rule, _needle, _suffix, name in self._rules:
            if rule.type == PERMANENT:
                conditions.rule(name, rule.condition, rule.reason, monitor.metrics)
            elif monitor.metrics:
                conditions.count("", rule.reason, 0)

    def begin_at(self, since: float) -> None:
        """Leave out lines from before this Unix time."""
        self.since = since

    def cannot_read(self, problem: str) -> None:
        """From now on nothing of the log is read, for this reason; "" for read again.

        A rule that has found nothing says then that it cannot tell. What one has found stands.
        """
        self.problem = problem
        if problem == self._unread:
            return
        self._unread = problem
        changed = False
        for rule, _needle, _suffix, name in self._rules:
            if rule.type == PERMANENT:
                changed |= self.conditions.cannot_tell(name, rule.condition, rule.reason, problem)
        if changed:
            self.changed()

    def read(self, records: Sequence[Record]) -> None:
        """Put new lines before the rules."""
        lines = [record.text for record in records
                 if (record.when is None or record.when >= self.since)
                 and not any(text in record.text for text in self.monitor.skip)]  # fmt: skip
        if not lines:
            return
        # Most batches hold nothing that any rule could match: one search for each rule shows that.
        whole = "\n".join((*self._last, *lines))
        rules = [entry for entry in self._rules if entry[1] in whole]
        span = self.monitor.buffer
        changed = False
        if rules:
            for line in lines:
                self._last = [*self._last[-(span - 1) :], line] if span > 1 else [line]
                for rule, text, suffix, name in rules:
                    hit = rule.search(text, self._last, line)
                    if hit is not None:
                        block, start = hit
                        message = block[block.rfind("\n", 0, start) + 1 :]  # from the start of the line
                        changed |= self._hit(rule, name, f"{message}; {suffix}" if suffix else message)
        elif span > 1:
            self._last = [*self._last, *lines][-(span - 1) :]
        if changed:
            self.changed()

    def _hit(self, rule: Rule, name: str, message: str) -> bool:
        if rule.type == PERMANENT:
            return self.conditions.say(name, rule.condition, TRUE, rule.reason, message)
        self.conditions.temporary(
            name, self.monitor.source, rule.reason, message, every=True, metrics=self.monitor.metrics
        )
        return False


def catch_up(host: Host, readers: Sequence[LogReader], after: int) -> int:
    """Have readers read what the kernel's ring holds behind record number `after`. Returns the last record's number."""
    try:
        raws = host.system.kernel_log(after)
    except OSError as error:
        for reader in readers:
            reader.cannot_read(f"{KMSG}: {error.strerror}")
        return after
    records = ring_records(host, raws)
    for reader in readers:
        reader.read(records)
    return records[-1].number if records else after


class FileFollower:
    """A log file, looked at every second, across rotation."""

    def __init__(self, loop: Loop, host: Host, reader: LogReader) -> None:
        self.loop, self.host, self.reader = loop, host, reader
        self._message, self._stamp = reader.monitor.message, reader.monitor.timestamp
        self.cursor: Optional[Tuple[int, int]] = None
        self.left_out = 0
        """Bytes that are no lines: holes, lines without an end."""
        self._over = False

    def start(self) -> None:
        self._look()

    def close(self) -> None:
        self._over = True

    def _look(self) -> None:
        if self._over:
            return
        self.loop.after(POLL, self._look)
        path = self.reader.monitor.log_path
        try:
            self._follow(path)
            self.reader.cannot_read("")
            self.reader.problem = unread(path, self.left_out, 0)
        except OSError as error:
            self.reader.cannot_read(f"{path}: {error.strerror}")

    def _follow(self, path: str) -> None:
        stat = self.host.stat(path)
        if self.cursor is None and not self.reader.monitor.lookback:
            self.cursor = (stat.ino, stat.size)
            return
        inode, offset = self.cursor or (stat.ino, max(0, stat.size - CHUNK))
        before = ""
        if inode != stat.ino:
            rotated = rotated_to(self.host, path, inode)
            before = log_tail(self.host, rotated, offset, CHUNK)[0] if rotated else ""
            offset = 0
        elif stat.size < offset:
            offset = 0
        if stat.size == offset and not before:
            self.cursor = (stat.ino, offset)
            return
        text, end, left_out = log_tail(self.host, path, offset, CHUNK)
        first, self.cursor = self.cursor is None, (stat.ino, end)
        if not first or left_out >= CHUNK:  # a first read may begin within a line: its rest does not count
            self.left_out += left_out
        now = self.host.time()
        lines = f"{before}{text}".split("\n")
        self.reader.read([self._record(line, now) for line in lines if line])

    def _record(self, line: str, now: float) -> Record:
        """A line as the monitor's own expressions take it apart; where they do not fit, as syslog writes it."""
        record = parse_line(line, now)
        if self._message is None:
            return record
        match = self._message.search(line)
        if not match:
            return record._replace(text=line)
        stamp = self._stamp.search(line) if self._stamp else None
        when = None
        if stamp:
            from nhc.core.timestamps import from_iso
            from nhc.node.facts.kernel_lines import bsd_time

            written = _last(stamp)
            when = from_iso(written) or bsd_time(written, now)
        return record._replace(text=_last(match), when=when)


def _last(match: Match[str]) -> str:
    """What an expression's last group matched, the whole where it has none: logwatchers/filelog/translator.go."""
    return next((group for group in reversed(match.groups()) if group is not None), match[0])


class JournalFollower:
    """journald's entries of one identifier. `cursor` is the last one read, of before a restart too."""

    def __init__(self, loop: Loop, host: Host, reader: LogReader, cursor: str = "") -> None:
        self.loop, self.host, self.reader, self.cursor = loop, host, reader, cursor
        self._child = Journalctl(loop, host, self._options, self._take, reader.cannot_read)
        self._timer: Optional[Timer] = None

    @property
    def place(self) -> str:
        """Where to go on after a restart."""
        return self.cursor or f"@{self.reader.since:.0f}"

    def start(self) -> None:
        """Start journalctl, where there is a journal; look again later where there is none."""
        if is_kept(self.host):
            self._child.start()
            if self._child.runs_for() >= RUNS:
                self.reader.cannot_read("")
        else:
            self.reader.cannot_read(NO_JOURNAL)
        self._timer = self.loop.after(JOURNAL_LOOK, self.start)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._child.close()

    def _options(self) -> List[str]:
        identifier = self.reader.monitor.options.get("source", "")
        options = ["--no-tail", "--output=json", f"--output-fields={FIELDS}"]
        options += [f"--identifier={identifier}"] if identifier else []
        # From the cursor on, not after it: where its entry is gone, journalctl leaves out the one that came next.
        return [*options, f"--cursor={self.cursor}" if self.cursor else f"--since=@{int(max(self.reader.since, 0))}"]

    def _take(self, lines: Sequence[bytes]) -> None:
        records = []
        for line in lines:
            entry = parse_journal(line.decode(errors="replace"), whole=False)
            if entry is None or (self.cursor and same_entry(entry[1], self.cursor)):
                continue
            records.append(entry[0])
            self.cursor = entry[1] or self.cursor
        if records:
            self.reader.read(records)
