"""Bearer tokens that expire: fetched when needed, kept until shortly before their end, never shown."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional

EARLY = 120.0
"""Seconds before its end at which a token is fetched anew. Google's and Azure's metadata services hand out a new one at
five minutes before the end at the latest."""


class AccessToken(NamedTuple):
    """A token, and the seconds for which it is good."""

    text: str
    seconds: float

    def __repr__(self) -> str:
        return f"AccessToken(…, {self.seconds:g} s)"


class Bearer:
    """The Authorization header of the moment."""

    def __init__(self, fetch: Callable[[], AccessToken], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._token: Optional[AccessToken] = None
        self._until = 0.0

    def header(self) -> str:
        """Raises what `fetch` raises."""
        if self._token is None or self._clock() >= self._until:
            self._token = self._fetch()
            self._until = self._clock() + max(0.0, self._token.seconds - EARLY)
        return f"Bearer {self._token.text}"
