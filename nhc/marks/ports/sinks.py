"""What the agent sends to a sink, and what it asks of one: an event, a delivery, and the Protocols of sinks."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Protocol, Tuple, Type, TypedDict, TypeVar

from nhc.core.model import Report
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, of
from nhc.marks.ports.adapter import AdapterError

REFUSED = "refused: "
"""What a sink's problem begins with where the other side is there and does not take what it is sent: that does not pass
by itself, and the agent is not ready."""


T = TypeVar("T")


def sink_settings(kind: Type[T], settings: Mapping[str, object], name: str) -> T:
    """What the table [sinks.NAME] says, which the sink declares. Raises AdapterError."""
    try:
        return declared.whole(kind, of(settings, "sinks", name))
    except SettingsError as error:
        raise AdapterError(str(error)) from None


class NotYetDelivered(AdapterError):
    """A sink has taken the events and keeps them, but could not deliver yet: it is to be called again."""


class EventDetails(TypedDict, total=False):
    """What an event says besides when and where; which keys it has depends on its kind (docs/event.schema.json)."""

    check: str
    target: str
    reason: str
    verdict: str
    before: str
    message: str
    action: str
    scope: str
    device: Dict[str, str]
    evidence: List[str]
    since: str
    source: str
    type: str
    status: str
    severity: str
    version: str
    checks: int


class _EventHead(TypedDict):
    schema: int
    event: str
    time: str
    host: str
    boot_id: str


class Event(_EventHead, EventDetails):
    """One event, as docs/event.schema.json has it: `event` is its kind, `time` RFC 3339 in UTC."""


class NodeCondition(TypedDict):
    """A condition that rules of the site's own made, in Kubernetes' terms; `transition` is RFC 3339 in UTC."""

    type: str
    status: str
    transition: str
    reason: str
    message: str


class Standing(NamedTuple):
    """A fault that a sink already shows when the agent starts. `since` is Unix time."""

    type: str
    reason: str
    message: str
    since: float


class Delivery(NamedTuple):
    """What the agent sends to a sink: the state of its node, and the events since the last time.

    While `complete` is false some checks have not been judged yet: a fault may be raised on it, none cleared.
    `events` come oldest first. `lost` counts events that were dropped because the sink was away for too long.
    `contexts` are those that a line is limited to, by its `source` and `line` with a space between them.
    """

    report: Report
    complete: bool
    events: Tuple[Event, ...] = ()
    conditions: Tuple[NodeCondition, ...] = ()
    lost: int = 0
    contexts: Mapping[str, Tuple[str, ...]] = {}


class Sink(Protocol):
    """Somewhere that the agent's reports and events go. It has a process of its own: it may block, and use threads.

    `deliver` raises AdapterError where it could not; it is then called again with the state of that time and with the
    events it has not taken.
    """

    def standing(self) -> List[Standing]:
        """The faults that stand there already. Asked once, before anything is delivered. Raises AdapterError."""

    def deliver(self, delivery: Delivery) -> None: ...

    def close(self) -> None:
        """Deliver what is under way, for a few seconds at most, and end."""


class BufferedSink(Sink, Protocol):
    """A sink that takes every delivery at once and writes it in its own time."""

    def problem(self) -> str:
        """What keeps it from writing, "" while all is written. Cheap: asked every few seconds."""
