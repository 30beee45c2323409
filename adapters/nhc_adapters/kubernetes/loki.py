"""Kernel logs out of Loki, for clusters that collect them there: query_range, from a cursor, tolerant of its absence.

Each look asks for what came after the last line seen, oldest first and page by page, so a Loki that was away
costs delay and no lines. Lines that are equal in time and text are told once. What a line means is for nhc's
catalogue to say; here it becomes a condition of its node.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlencode

import urllib3

from nhc.model import printable
from nhc.ports import AdapterError

PAGE = 1000
MAX_PAGES = 50
LOOKBACK = 300.0
"""Seconds looked back on at the first look: lines from before are not news."""

OVERLAP = 30_000_000_000
"""Nanoseconds asked for twice: collectors deliver late, and Loki takes lines in any order within a stream."""


class LokiError(AdapterError):
    """Loki did not answer, or not sensibly."""


class LogLine(NamedTuple):
    """One line. `when` is nanoseconds since 1970."""

    node: str
    when: int
    text: str


def read_answer(answer: Any, node_label: str) -> List[LogLine]:
    """The lines of a query_range answer, oldest first; streams without the node's label are left out. Pure.

    Raises LokiError where it is no such answer.
    """
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "streams":
            raise LokiError(f"not streams: {printable(str(answer.get('error') or answer)[:200])}")
        found = [
            LogLine(str(stream["stream"][node_label]), int(value[0]), str(value[1]))
            for stream in answer["data"]["result"]
            if node_label in stream["stream"]
            for value in stream["values"]
        ]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise LokiError(f"an answer without {error}") from None
    return sorted(found, key=lambda line: line.when)


@dataclass
class Loki:
    """One query, asked again and again. `since` is where the next look begins (nanoseconds)."""

    url: str
    query: str
    node_label: str = "k8s_node_name"
    tenant: str = ""
    timeout: float = 10.0
    clock: Callable[[], float] = time.time
    since: int = 0
    http: Optional[urllib3.PoolManager] = None
    _told: Dict[Tuple[str, int, str], None] = field(default_factory=dict)

    def look(self) -> List[LogLine]:
        """The lines that are new since the last look. Raises LokiError; then the next look asks for the same."""
        now = int(self.clock() * 1e9)
        begin = self.since - OVERLAP if self.since else now - int(LOOKBACK * 1e9)
        fresh, last = [], begin
        for line in self._lines(begin, now):
            last = max(last, line.when)
            if line not in self._told:
                self._told[line] = None
                fresh.append(line)
        # Never past now: a collector with a wrong clock would blind us until then.
        self.since = max(self.since, min(last, now))
        self._told = {line: None for line in self._told if line[1] >= self.since - OVERLAP}
        return fresh

    def _lines(self, begin: int, end: int) -> Iterator[LogLine]:
        for _page in range(MAX_PAGES):
            lines = read_answer(self._ask(begin, end), self.node_label)
            yield from lines
            if len(lines) < PAGE:
                return
            # The last instant again, whose lines may have been cut apart; unless it alone fills a page.
            begin = lines[-1].when if lines[-1].when > begin else begin + 1

    def _ask(self, begin: int, end: int) -> Any:
        if self.http is None:
            self.http = urllib3.PoolManager(
                retries=urllib3.Retry(2, backoff_factor=0.2, status_forcelist=[502, 503, 504])
            )
        query = {"query": self.query, "start": begin, "end": end, "limit": PAGE, "direction": "forward"}
        headers: Mapping[str, str] = {"X-Scope-OrgID": self.tenant} if self.tenant else {}
        url = f"{self.url.rstrip('/')}/loki/api/v1/query_range?{urlencode(query)}"
        try:
            response = self.http.request("GET", url, headers=dict(headers), timeout=self.timeout)
        except urllib3.exceptions.HTTPError as error:
            raise LokiError(f"{self.url}: {printable(str(error.__cause__ or error), 160)}") from None
        if response.status != 200:
            raise LokiError(f"{self.url}: {response.status} {printable(response.data[:160].decode(errors='replace'))}")
        try:
            return json.loads(response.data)
        except ValueError:
            raise LokiError(f"{self.url}: an answer that is no JSON") from None
