"""Kernel logs out of Loki, for clusters that collect them there: query_range, from a cursor that moves with time.

Each query asks for the lines since the last one, in windows of bounded length, oldest first and page by page. So an
outage of Loki costs delay but no lines, and a query never asks for more than the server allows. Lines that are equal in
time and text count once. A line that cannot be parsed, or whose stream does not name a node, is skipped and counted.
nhc's catalogue decides what a line means; here it becomes a condition of its node.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple
from urllib.parse import urlencode

from nhc.core.json_values import list_of
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpClient, HttpError
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError

PAGE = 1000
"""Lines asked for at a time. A Loki refuses more than its `max_entries_limit_per_query`, 5,000 by default."""

MAX_PAGES = 50
"""Pages read in one look; the next look goes on from there."""

LOOKBACK = 3600.0
"""Seconds looked back on where no cursor is known: what is older, a restart of the node has likely ended."""

SECOND = 1_000_000_000

OVERLAP = 300 * SECOND
"""Nanoseconds asked for again: collectors deliver late, and Loki takes lines in any order within a stream."""

WINDOW = 6 * 3600 * SECOND
"""Nanoseconds asked for at most in one query. A Loki refuses more than its `max_query_length`, 721 h by default."""

SMALLEST_WINDOW = 60 * SECOND

LARGEST = 64 << 20
"""Bytes of one answer: a thousand lines of 64 KiB."""

TOO_LONG = "exceeds the limit"
"""Loki's words for a time range that is too long: "the query time range exceeds the limit (query length: ..."."""


@declared.settings
class LokiSettings(NamedTuple):
    """A Loki that holds the kernel logs of nodes. `node_label` is the stream's label that names the node."""

    url: str = declared.text("url", "", shown='"http://loki.loki.svc.cluster.local:3100"')
    query: str = declared.text("query", '{job="dmesg"} |~ "(?i)NVRM: xid|SXid|NEURON_HW_ERR="')
    node_label: str = declared.text("node-label", "k8s_node_name")
    every: float = declared.seconds("every", 10.0)
    tenant: str = declared.text("tenant")
    lookback: float = declared.seconds(
        "lookback", LOOKBACK, "how far back the very first look goes; later ones go on from the last"
    )


class LokiError(AdapterError):
    """Loki did not answer, or not sensibly."""


class LogLine(NamedTuple):
    """One line. `when` is nanoseconds since 1970."""

    node: str
    when: int
    text: str


class Page(NamedTuple):
    """One answer. `entries` counts all its lines, skipped ones too; `last` is the time of the latest of them."""

    lines: Tuple[LogLine, ...]
    entries: int = 0
    last: int = 0
    aside: Tuple[int, ...] = ()
    """The times of lines whose stream does not name a node, or which are not a time and a text (0 then)."""
    labels: Tuple[str, ...] = ()
    """What the first stream that names no node is labelled with."""


def read_answer(answer: Any, node_label: str) -> Page:
    """A query_range answer, its lines oldest first. Pure. Raises LokiError where it is no such answer."""
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "streams":
            raise LokiError(f"not streams: {printable(str(answer.get('error') or answer)[:200])}")
        streams = [(dict(stream["stream"]), list(stream["values"])) for stream in answer["data"]["result"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LokiError(f"an answer without {error}") from None
    lines: List[LogLine] = []
    aside: List[int] = []
    labels: Tuple[str, ...] = ()
    entries = last = 0
    for stream, values in streams:
        node = stream.get(node_label)
        if not node:
            labels = labels or tuple(sorted(stream))
        for value in values:
            entries += 1
            pair = list_of(value)
            when, text = (whole_of_digits(pair[0]), pair[1]) if len(pair) > 1 else (None, "")
            if when is None:
                aside.append(0)
                continue
            last = max(last, when)
            if node and isinstance(text, str):
                lines.append(LogLine(str(node), when, text))
            else:
                aside.append(when)
    return Page(tuple(sorted(lines, key=lambda line: line.when)), entries, last, tuple(aside), labels)


@dataclass
class Loki:
    """One query, repeated. `since` is how far the log has been read (nanoseconds), 0 for not at all."""

    asked: LokiSettings
    timeout: float = 10.0
    clock: Callable[[], float] = time.time
    since: int = 0
    http: HttpClient = field(default_factory=lambda: HttpClient(keep=True))
    window: int = WINDOW
    """Nanoseconds asked for at most: halved when the server refuses so much."""
    aside: int = 0
    """Lines set aside since the start: they name no node, or make no sense."""
    labels: Tuple[str, ...] = ()
    """The labels of a stream that names no node."""
    _reported: Dict[LogLine, None] = field(default_factory=dict)
    _counted: int = 0
    """Up to when lines set aside have been counted: the overlap asks for the same ones again."""
    _overlap: bool = False

    def go_on_from(self, since: int) -> None:
        """Go on from this time (nanoseconds since 1970); 0: look back as at the very first look."""
        self.since = since

    def look(self) -> List[LogLine]:
        """The lines that are new since the last look.

        Raises LokiError where there is none and something failed. The next look goes on from where this one failed.
        """
        now = int(self.clock() * 1e9)
        if not self.since:
            self.since = now - int(self.asked.lookback * 1e9)
        # Not at the first look: the lines before the cursor were reported by who gave us the cursor.
        begin = self.since - OVERLAP if self._overlap else self.since
        fresh: List[LogLine] = []
        pages = MAX_PAGES
        try:
            while begin < now and pages:
                pages -= 1
                end = min(now, begin + self.window)
                page = read_answer(self._ask(begin, end), self.asked.node_label)
                self._set_aside(page)
                new = {line: None for line in page.lines if line not in self._reported}
                self._reported.update(new)
                fresh += new
                # After a full page the last instant again, whose lines may be cut apart; unless it fills the page.
                again = page.last if page.last > begin else begin + 1
                begin = again if page.entries >= PAGE and page.last else end
                self.since = max(self.since, begin)
            # Behind, a look begins where the last one ended: the overlap would be read for ever.
            self._overlap = begin >= now
        except LokiError:
            if not fresh:
                raise
        oldest = self.since - OVERLAP
        self._reported = {line: None for line in self._reported if line.when >= oldest}
        return fresh

    def _set_aside(self, page: Page) -> None:
        self.labels = self.labels or page.labels
        self.aside += sum(1 for when in page.aside if (when or page.last) > self._counted)
        self._counted = max(self._counted, page.last)

    def _ask(self, begin: int, end: int) -> Any:
        query = {"query": self.asked.query, "start": begin, "end": end, "limit": PAGE, "direction": "forward"}
        headers: Mapping[str, str] = {"X-Scope-OrgID": self.asked.tenant} if self.asked.tenant else {}
        url = f"{self.asked.url.rstrip('/')}/loki/api/v1/query_range?{urlencode(query)}"
        try:
            with Exchange(self.timeout) as exchange:
                answer = self.http.send(exchange, "GET", url, headers=headers, limit=LARGEST)
        except HttpError as error:
            raise LokiError(f"{self.asked.url}: {printable(str(error), 200)}") from None
        if answer.status != 200:
            text = printable(answer.data[:160].decode(errors="replace"))
            if answer.status == 400 and TOO_LONG in text and self.window > SMALLEST_WINDOW:
                self.window = max(self.window // 2, SMALLEST_WINDOW)
            raise LokiError(f"{self.asked.url}: {answer.status} {text}")
        try:
            return parse_json(answer.data)
        except ValueError:
            raise LokiError(f"{self.asked.url}: an answer that is no JSON") from None
