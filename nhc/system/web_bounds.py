"""The bounds of a server that strangers may reach."""

from __future__ import annotations

from typing import NamedTuple


class WebBounds(NamedTuple):
    """How many connections may be open, how many of one address, and in how many seconds a head comes in whole."""

    connections: int = 5000
    connections_each: int = 500
    slow: float = 20.0
