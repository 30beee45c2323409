"""The events of a watch, read from the bytes as they come: one JSON object a line."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, NamedTuple

from nhc.core.system.bounded_read import parse_json
from nhc_adapters.kubernetes.api.errors import ApiError, Gone, Unreachable

LARGEST_EVENT = 64 << 20
"""Bytes of one event. etcd keeps objects of 1.5 MB at most."""

JsonObject = Dict[str, Any]
"""An object of the API. Its fields are Kubernetes' own, by its OpenAPI schema, or a site's: the reader checks them."""


class WatchEvent(NamedTuple):
    """One line of a watch. `kind` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: JsonObject


def read_events(chunks: Iterable[bytes]) -> Iterator[WatchEvent]:
    """Each event as soon as its line is whole. The server flushes once an event.

    Raises Gone or ApiError as the server says, and Unreachable where it sends something that is no event.
    """
    rest = b""
    for chunk in chunks:
        rest += chunk
        if len(rest) > LARGEST_EVENT:
            raise Unreachable("the watch sent an event without an end")
        if b"\n" not in chunk:
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.strip():
                yield _event(line)


def _event(line: bytes) -> WatchEvent:
    try:
        event = parse_json(line)
        kind, item = str(event["type"]), event["object"]
    except (ValueError, KeyError, TypeError):
        raise Unreachable("the watch sent something that is no event") from None
    if not isinstance(item, dict):
        raise Unreachable("the watch sent an event without an object")
    if kind != "ERROR":
        return WatchEvent(kind, item)
    code = item.get("code")
    if code == 410:
        raise Gone(str(item.get("message", "")))
    raise ApiError(code if isinstance(code, int) else 500, str(item.get("reason", "")), str(item))
