"""The content of a notice about one incident, before a channel formats it. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple, Tuple

from nhc.core.json_values import parse_object
from nhc.core.timestamps import utc

JOB = "nhc job"
"""What stands where a notice names the check of a node, if it is about a job."""
OPEN, UPDATE, REPEAT, REFRESH, RESOLVED, TEST = "open", "update", "repeat", "refresh", "resolved", "test"
"""Why a notice is sent. REFRESH goes to channels alone that forget an alert which is not said again."""


class Incident(NamedTuple):
    """What is remembered of one incident.

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
