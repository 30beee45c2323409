"""The content of a notice about one incident, before a channel formats it. Pure.

Only plain words of a receiver's answer are stored, in one line, without any that may be part of a channel's secret. A
receiver, or a proxy before it, may repeat the request. Its address (Slack, Teams), its body (PagerDuty) or its headers
(Jira, ServiceNow) are secrets. The line goes to the log, into the store and to `nhc status notices`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Iterable, NamedTuple, Tuple

from nhc.core.json_values import parse_object
from nhc.core.timestamps import utc

JOB = "nhc job"
"""What stands where a notice names the check of a node, if it is about a job."""
OPEN, UPDATE, REPEAT, REFRESH, RESOLVED, TEST = "open", "update", "repeat", "refresh", "resolved", "test"
"""Why a notice is sent. REFRESH goes only to channels that forget an alert if it is not repeated."""


class Incident(NamedTuple):
    """What is stored about one incident.

    `notified` is the kind of the last notice, `notified_affected` how many nodes it named. `gone` is when the last node
    recovered, 0.0 while one is affected. `returns` are the times at which it came back. `joined` is the key of the
    incident that it is told of with, "" for none; `newest` when the newest joined this one, `notified_causes` how many
    causes its last notice named.
    """

    key: str
    check: str
    reason: str
    place: str
    verdict: str
    action: str
    message: str
    nodes: str
    affected: int
    began: float
    opened: float
    number: int = 1
    gone: float = 0.0
    notified: str = ""
    notified_at: float = 0.0
    notified_affected: int = 0
    notified_verdict: str = ""
    refreshed: float = 0.0
    returns: Tuple[float, ...] = ()
    joined: str = ""
    newest: float = 0.0
    notified_causes: int = 1


class Notice(NamedTuple):
    """One message. Times are Unix seconds. `cluster`, `check`, `reason` and `place` never change within an incident;
    everything else may. `number` tells the occurrences of one incident apart. `to` is the address of the one person
    that it is for, "" for those whom the channel's settings name. `also` are lines about other causes of the burst.
    """

    kind: str
    key: str
    number: int
    cluster: str
    check: str
    reason: str
    place: str
    verdict: str
    action: str
    message: str
    nodes: str
    affected: int
    began: float
    at: float
    flaps: int = 0
    link: str = ""
    to: str = ""
    also: Tuple[str, ...] = ()

    @property
    def resolved(self) -> bool:
        return self.kind == RESOLVED

    @property
    def id(self) -> str:
        """The same for each try of this message, another one for the next."""
        return hashlib.sha256(f"{self.key}\0{self.number}\0{self.kind}\0{self.at}".encode()).hexdigest()[:32]

    @property
    def title(self) -> str:
        """One line."""
        if self.to:
            return self.message.partition("\n")[0]
        what = "Resolved" if self.resolved else "Test" if self.kind == TEST else self.verdict
        where = f" in {self.place}" if self.place else ""
        nodes = "1 node" if self.affected == 1 else f"{self.affected} nodes"
        more = f" and {len(self.also)} more" if self.also else ""
        return f"{what}: {self.reason or self.check}{more}{where}: {nodes}"

    @property
    def text(self) -> str:
        """Several lines."""
        if self.to:
            return self.message
        more = [f"Also: {line}" for line in self.also]
        lines = [self.message, *more, f"Nodes: {self.nodes}", f"Check: {self.check}", f"Since: {utc(self.began)}"]
        if self.action:
            lines.append(f"Action: {self.action}")
        if self.flaps:
            lines.append(f"Flapping, {self.flaps} times in 1 h")
        if self.link:
            lines.append(self.link)
        return "\n".join(line for line in lines if line)


def cut(text: str, limit: int) -> str:
    """A text of at most `limit` characters; one that was cut ends in a mark."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def dump(notice: Notice) -> str:
    """As the outbox keeps it."""
    return json.dumps(notice._asdict(), ensure_ascii=False)


def load(content: str) -> Notice:
    """What `dump` wrote. Raises ValueError."""
    try:
        notice = Notice(**parse_object(content))
        return notice._replace(also=tuple(notice.also))
    except TypeError as error:
        raise ValueError(f"no notice: {error}") from None


MOST = 120
"""Characters of the line."""
LONGEST_WORD = 16
"""Letters in a run; keys are longer, or hold digits."""
SHORTEST_PIECE = 4
"""Letters of a word that is compared with the secrets: "no" and "the" are in many."""
_RUN = rf"(?:[A-Z]?[a-z]{{1,{LONGEST_WORD - 1}}}|[A-Z]{{1,{LONGEST_WORD}}})"
_WORDS = re.compile(rf"(?<![A-Za-z0-9]){_RUN}(?:[_'-]{_RUN})*(?![A-Za-z0-9])")


def cleaned(text: str, secrets: Iterable[str] = ()) -> str:
    """The words of an answer; "" for none. `secrets` are the values that were sent and must not be kept."""
    hidden = [form.casefold() for secret in secrets if secret for form in (secret, _base64(secret))]
    kept = []
    for match in _WORDS.finditer(text[:4000]):
        pieces = [piece for piece in re.split("[_'-]", match.group().casefold()) if len(piece) >= SHORTEST_PIECE]
        if not any(piece in secret for piece in pieces for secret in hidden):
            kept.append(match.group())
    line = " ".join(kept)
    return line if len(line) <= MOST else line[: MOST - 1] + "…"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
