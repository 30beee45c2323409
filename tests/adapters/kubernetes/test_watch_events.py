"""The bytes of a watch become events; what is none is a broken connection, never an exception of another kind."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import WatchEvent, read_events
from nhc_adapters.kubernetes.api.errors import ApiError, Gone, Unreachable

ADDED = {"type": "ADDED", "object": {"metadata": {"name": "n1"}}}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_come_whole_however_the_bytes_are_cut(size: int) -> None:
    text = (json.dumps(ADDED) + "\n\n" + json.dumps({**ADDED, "type": "DELETED"}) + "\n").encode()

    events = list(read_events(text[at : at + size] for at in range(0, len(text), size)))

    assert events == [WatchEvent("ADDED", ADDED["object"]), WatchEvent("DELETED", ADDED["object"])]


@pytest.mark.parametrize("found", [None, "text", 7, []])
@pytest.mark.parametrize("kind", ["ERROR", "ADDED"])
def test_an_event_without_an_object_is_a_broken_connection(kind: str, found: object) -> None:
    """As a proxy between may send it: the thread that follows a collection must live on."""
    with pytest.raises(Unreachable, match="without an object"):
        list(read_events([json.dumps({"type": kind, "object": found}).encode() + b"\n"]))


def test_the_servers_errors_are_told_apart() -> None:
    def error(**status: object) -> bytes:
        return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"

    with pytest.raises(Gone, match="too old"):
        list(read_events([error(code=410, message="too old")]))
    for code, status in ((403, 403), ("many", 500), (None, 500)):
        with pytest.raises(ApiError) as caught:
            list(read_events([error(code=code, reason="Forbidden")]))
        assert caught.value.status == status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "object", "code", "message"]) | st.text(), inner)
    ),
)


@pytest.mark.thorough
@given(JSON)
def test_any_json_is_an_event_or_an_error_of_the_adapter(value: object) -> None:
    with contextlib.suppress(AdapterError):
        assert len(list(read_events([json.dumps(value).encode() + b"\n"]))) == 1
