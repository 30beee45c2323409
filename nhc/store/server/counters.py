"""What the server counts, as /metrics shows it, and its log lines about refusals: one line each, rate-limited."""

from __future__ import annotations

from collections import Counter
from typing import Callable, List

from nhc.core.system.web_listener import WebRefusals
from nhc.store.intake import Receipt

WHYS = ("busy", "held", "large", "node", "rate", "report", "request", "store", "volume")
"""Why a push is refused, besides the reasons of every server."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

TAKEN = "nhc_server_reports_total"
REFUSED = "nhc_server_refused_total"
CLOCKS = "nhc_server_clocks_off_total"
LOST = "nhc_server_reports_lost_total"
WAITING = "nhc_server_reports_waiting"
CONNECTIONS = "nhc_server_connections"
UP = "nhc_server_store_up"
SECONDS = "nhc_server_push_seconds"

HELP = {
    TAKEN: ("counter", "Reports taken in, by what they came to."),
    REFUSED: ("counter", "Pushes refused, by why."),
    CLOCKS: ("counter", "Pushes of nodes whose clock is off, dated by this server's."),
    LOST: ("counter", "Reports that agents say they lost while this server was away."),
    WAITING: ("gauge", "Reports that wait to be written."),
    CONNECTIONS: ("gauge", "Open connections."),
    UP: ("gauge", "Whether the store answers."),
    SECONDS: ("histogram", "From a push's first byte to its answer."),
}


class ServerCounters(WebRefusals):
    """All of them, for one process and one thread."""

    def __init__(self) -> None:
        super().__init__("server", "a push", WHYS)
        self.taken: Counter[str] = Counter({receipt.value: 0 for receipt in Receipt})
        self.lost = self.clocks = self.waiting = 0
        self.up = True
        self._times = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0
        self._more: Callable[[], str] = str

    def count_lost(self, node: str, count: int, now: float) -> None:
        """An agent reports that so many reports were lost."""
        self.lost += count
        self.once("lost", node, f"{node} lost {count} reports while it could not push them", now)

    def count_clock_off(self) -> None:
        """A push came from a node whose clock is off."""
        self.clocks += 1

    def count_waiting(self, count: int) -> None:
        """So many more reports wait, or fewer."""
        self.waiting += count

    def store_answers(self, answers: bool) -> None:
        """Whether the store answered just now."""
        self.up = answers

    def took(self, seconds: float) -> None:
        """One push was answered after so long."""
        self._sum += seconds
        self._times[next((at for at, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))] += 1

    def also(self, more: Callable[[], str]) -> None:
        """The counters of another part, in the same format."""
        self._more = more

    def text(self) -> str:
        """In Prometheus' text format."""
        lines: List[str] = []

        def family(name: str, *samples: str) -> None:
            kind, text = HELP[name]
            lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples))

        family(TAKEN, *(f'{TAKEN}{{receipt="{name}"}} {count}' for name, count in sorted(self.taken.items())))
        family(REFUSED, *(f'{REFUSED}{{why="{name}"}} {count}' for name, count in sorted(self.refused.items())))
        family(CLOCKS, f"{CLOCKS} {self.clocks}")
        family(LOST, f"{LOST} {self.lost}")
        family(WAITING, f"{WAITING} {self.waiting}")
        family(CONNECTIONS, f"{CONNECTIONS} {self.connections}")
        family(UP, f"{UP} {int(self.up)}")
        total, samples = 0, []
        for most, count in zip((*BUCKETS, float("inf")), self._times):
            total += count
            samples.append(f'{SECONDS}_bucket{{le="{"+Inf" if most == float("inf") else most}"}} {total}')
        family(SECONDS, *samples, f"{SECONDS}_sum {self._sum:.6f}", f"{SECONDS}_count {total}")
        return "\n".join(lines) + "\n" + self._more()
