"""What the agent sends to a sink, and what it asks of one: an event, a delivery, and the Protocols of sinks."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Protocol, Tuple, Type, TypedDict, TypeVar

from nhc.core.model import Report
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, of
from nhc.marks.ports.adapter import AdapterError

REFUSED = "refused: "
"""What a sink's problem begins with if the other side answers but rejects what it is sent: that does not pass by
itself, and the agent is not ready."""


T = TypeVar("T")


def sink_settings(kind: Type[T], settings: Mapping[str, object], name: str) -> T:
    """What the table [sinks.NAME] says, which the sink declares. Raises AdapterError."""
    try:
        return declared.whole(kind, of(settings, "sinks", name))
    except SettingsError as error:
        raise AdapterError(str(error)) from None


class NotYetDelivered(AdapterError):
    """A sink has accepted and stored the events, but could not deliver them yet: it must be called again."""


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
    """A fault that a sink already shows when the agent starts. `since` is in Unix time."""

    type: str
    reason: str
    message: str
    since: float


class Delivery(NamedTuple):
    """What the agent sends to a sink: the state of its node, and the events since the last time.

    While `complete` is false some checks have not been judged yet: a fault may be raised from it, none cleared.
    `events` come oldest first. `lost` counts events that were dropped because the sink was not reachable for too long.
    `contexts` are those that a line is limited to, by its `source` and `line` with a space between them.
    """

    report: Report
    complete: bool
    events: Tuple[Event, ...] = ()
    conditions: Tuple[NodeCondition, ...] = ()
    lost: int = 0
    contexts: Mapping[str, Tuple[str, ...]] = {}


class Sink(Protocol):
    """A destination of the agent's reports and events. It runs in its own process: it may block, and use threads.

    `deliver` raises AdapterError if it fails; it is then called again with the state of that time and with the events
    that it has not accepted.
    """

    def standing(self) -> List[Standing]:
        """The faults that are already shown there. Called once, before anything is delivered. Raises AdapterError."""

    def deliver(self, delivery: Delivery) -> None: ...

    def close(self) -> None:
        """Deliver what is under way, for a few seconds at most, and end."""


class BufferedSink(Sink, Protocol):
    """A sink that accepts every delivery at once and writes it later."""

    def problem(self) -> str:
        """What prevents writing, "" while all is written. Cheap: called every few seconds."""
