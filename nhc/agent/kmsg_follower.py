"""The kernel log, live: each record is judged as it comes, within the reach of one thread.

Records are read in batches and searched as one text; only a record that the catalogue may know is looked at
closely, so that 100,000 lines a second cost a part of a core and not the node. What the kernel overwrote before
it could be read is counted.

The agent reads the log here and nowhere else: its rounds of checks are handed what was read (`hand_over`).
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional, Sequence

from nhc.agent.app_faults import leaves_no_finding
from nhc.agent.event_loop import Loop, Timer
from nhc.agent.kmsg_filing import Filing
from nhc.core.host import Host
from nhc.core.state.store import State
from nhc.core.system.kernel_ring import KMSG
from nhc.node.facts.kernel_lines import Record, parse_record
from nhc.node.facts.kmsg import boot_time, ring_records
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.match import Match
from nhc.node.kernlog.read import Followed

BATCH = 4096
"""Records read before anything else gets its turn."""
PAUSE = 0.003
"""Seconds between batches while records come in crowds: the kernel's ring holds far more than come in that time."""
AGAIN = 5.0
"""Seconds between two tries to open a log that failed."""
CROWD = 16
ALIKE = 8
"""Records of one text that are judged in a batch: a driver that repeats itself says nothing new."""
RING = 1 << 20
"""Records that are passed over when the follower begins, at most: the kernel's largest ring holds fewer."""
_RECORD = 8192

Judge = Callable[[Sequence[Record]], None]


class Follower:
    """Follows /dev/kmsg from now on. `on_finding` is called when the store of findings has changed."""

    def __init__(
        self,
        loop: Loop,
        host: Host,
        state: State,
        on_finding: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self.loop, self.host, self.on_finding, self.log = loop, host, on_finding, log
        self.readers: Sequence[Judge] = ()
        """Called with every record, parsed: readers that have rules of their own."""
        self.records = 0
        self.lost = 0
        self.problem = ""
        self.findings = Filing(loop, host, state, on_finding)
        self._fd = -1
        self._gap = False
        self._handed = (0, 0)
        self._timer: Optional[Timer] = None
        """When reading goes on, after a crowd of records or after the log failed."""
        self._matcher = Matcher("")
        self._apps: Callable[[List[Match]], None] = lambda matches: None

    def call_for_apps(self, call: Callable[[List[Match]], None]) -> None:
        """Call this with faults of applications, which leave no finding: no check has anything to say of them."""
        self._apps = call

    def start(self) -> bool:
        """Begin at the end of the log; what stood in it before is for a round of check_kmsg. False where it cannot."""
        self.close()
        try:
            self._fd = os.open(self.host.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            last = _pass_over(self._fd)
        except OSError as error:
            self.problem = f"{KMSG}: {error.strerror}"
            self.close()
            return False
        self.findings.begin_after(last)
        self.follow(self._fd)
        return True

    def tell_every_record(self, *readers: Judge) -> None:
        """From now on these functions get every record, and no others do."""
        self.readers = readers

    def follow(self, fd: int) -> None:
        """Read records from a descriptor that gives one at a time."""
        self._fd = fd
        self.problem = ""
        self.loop.watch(fd, lambda _events: self.read())

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._fd >= 0:
            self.loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    @property
    def live(self) -> bool:
        return self._fd >= 0

    def read(self) -> None:
        """Take in one batch."""
        raws: List[bytes] = []
        while len(raws) < BATCH:
            try:
                data = os.read(self._fd, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel overwrote what was to come next; it goes on with the oldest it has
                self._count_gap(raws)
                continue
            except OSError as error:
                if error.errno == 22:  # EINVAL: a record longer than any there should be
                    os.lseek(self._fd, 0, os.SEEK_END)
                    break
                self._broken(error)
                break
            if not data:
                self._broken(OSError(5, "it ended"))
                break
            raws.append(data)
            if self._gap:
                self._close_gap(data)
        if raws:
            self.records += len(raws)
            self.findings.read(_number(raws[0]), _number(raws[-1]))
            self._judge(raws)
        if len(raws) >= CROWD and self._fd >= 0:
            self.loop.forget(self._fd)
            self._timer = self.loop.after(PAUSE, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._fd >= 0:
            self.loop.watch(self._fd, lambda _events: self.read())
            self.read()

    def _broken(self, error: OSError) -> None:
        """The log itself has failed: say so, and begin anew in a while."""
        self.problem = f"{KMSG}: {error.strerror}"
        self.log(f"{self.problem}: followed again in 5 s")
        self.close()
        self._timer = self.loop.after(AGAIN, self._resume)

    def _resume(self) -> None:
        if self.start():
            self.on_finding()
        else:
            self._timer = self.loop.after(AGAIN, self._resume)

    def _count_gap(self, raws: List[bytes]) -> None:
        if raws:
            self.findings.read_up_to(_number(raws[-1]))
        self._gap = True

    def _close_gap(self, data: bytes) -> None:
        self._gap = False
        number = _number(data)
        if self.findings.last is not None and number > self.findings.last + 1:
            self.lost += number - self.findings.last - 1

    def _judge(self, raws: List[bytes]) -> None:
        text = b"".join(raws).decode(errors="replace")
        if self.readers:
            records = ring_records(self.host, _split(text))
            for reader in self.readers:
                reader(records)
        candidates = self._candidates(text)
        if candidates:
            self.findings.file(candidates)
            apps = self._app_faults(candidates)
            if apps:
                self._apps(apps)

    def _candidates(self, text: str) -> List[Record]:
        """The records that the catalogue may know, few of each wording."""
        began = 0.0
        alike: Dict[str, int] = {}
        records: List[Record] = []
        for start, end, _numbers in self._matcher.candidates(text):
            record = parse_record(text[start:end])
            if record is None:
                continue  # a line of properties
            times = alike.get(record.text, 0)
            if times >= ALIKE:
                continue
            alike[record.text] = times + 1
            began = began or boot_time(self.host)
            records.append(record._replace(when=began + (record.since_boot or 0.0)))
        return records

    def _app_faults(self, records: Sequence[Record]) -> List[Match]:
        judged = (self._matcher.judge(record.text) for record in records)
        return [match for match in judged if match is not None and leaves_no_finding(self.host, match)]

    def hand_over(self) -> Optional[Followed]:
        """What was read since the last time, for a round that need not read the log. None where it has to itself.

        It has to before the follower has read anything of this boot, and where the store of findings is behind. The
        store keeps how far we have read, so that nothing that we have seen counts as lost to a check by hand.
        """
        if not self.live or self.findings.first is None or not self.findings.is_current():
            return None
        if not self.problem:
            self.findings.note()
        lines, lost = self.records - self._handed[0], self.lost - self._handed[1]
        self._handed = (self.records, self.lost)
        return Followed(lines, lost)


def _pass_over(fd: int) -> Optional[int]:
    """Go to the end of the log. The number of its last record, None where it has none."""
    last: Optional[int] = None
    for _ in range(RING):
        try:
            data = os.read(fd, _RECORD)
        except BrokenPipeError:
            continue
        except BlockingIOError:
            break
        if not data:
            break
        last = _number(data)
    return last


def _number(data: bytes) -> int:
    """A record's sequence number."""
    field = data.split(b",", 2)[1:2]
    return int(field[0]) if field and field[0].isdigit() else 0


def _split(text: str) -> List[str]:
    """Lines that begin a record: those of properties begin with a blank."""
    return [line for line in text.split("\n") if line and line[0] != " "]
