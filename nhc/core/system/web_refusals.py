"""What a server of ours refuses: counted, and logged at most once a minute for each reason and address."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Sequence

from nhc.core.system.service_log import ServiceLog, problem

QUIET = 60.0
"""Seconds in which the same refusal of the same peer is counted and not logged again."""
REMEMBERED = 10_000
"""Peers and reasons whose last line is remembered."""
WHYS = ("connections", "internal", "login", "malformed", "slow")
"""Why any server of ours refuses."""


class WebRefusals:
    """For one process and one thread. `server` is the command that it is, `asked` what it is sent.

    `whys` are further reasons of its own for refusing; each is 0 before the first refusal.
    """

    def __init__(self, server: str, asked: str = "a request", whys: Sequence[str] = ()) -> None:
        self._log, self._asked = ServiceLog(server), asked
        self.refused: Counter[str] = Counter(dict.fromkeys((*WHYS, *whys), 0))
        self.connections = 0
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def refuse(self, why: str, peer: str, detail: str, now: float) -> None:
        """Count a refusal, and log it unless it was logged of this peer a moment ago."""
        self.refused[why] += 1
        self.once(why, peer, f"refused {self._asked} from {peer}: {detail}", now)

    def mention(self, peer: str, line: str, now: float) -> None:
        """Log a line about a peer, unless one was logged a moment ago."""
        self.once("", peer, f"{peer}: {line}", now)

    def once(self, why: str, peer: str, line: str, now: float) -> None:
        """Log a line, unless one of this peer and reason was logged a moment ago."""
        quiet = now - self._logged.pop((why, peer), float("-inf")) < QUIET
        self._logged[why, peer] = now
        if not quiet:
            if len(self._logged) > REMEMBERED:
                self._logged.popitem(last=False)
            self.note(problem(line))

    def count_connections(self, count: int) -> None:
        """So many more connections are open, or fewer."""
        self.connections += count

    def note(self, line: str) -> None:
        """One line on standard error, where systemd's journal takes it."""
        self._log(line)
