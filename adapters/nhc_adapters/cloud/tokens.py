"""Bearer tokens that expire: fetched when needed, kept until shortly before their end, never shown."""

from __future__ import annotations

import time
from typing import Callable, Mapping, NamedTuple, Optional

from nhc.core.json_values import number_of, text_in
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.cloud.rest import Rest
from nhc_adapters.repair.calls import CallFailed

EARLY = 120.0
"""Seconds before its end at which a token is fetched anew. Google's and Azure's metadata services hand out a new one at
five minutes before the end at the latest."""


class AccessToken(NamedTuple):
    """A token, and the seconds for which it is good."""

    text: str
    seconds: float

    def __repr__(self) -> str:
        return f"AccessToken(…, {self.seconds:g} s)"


def of_machine(rest: Rest, provider: str, address: str, headers: Mapping[str, str]) -> AccessToken:
    """The token of this machine's own account, from its metadata service. Raises CallFailed, AdapterError."""
    service = f"{provider}'s metadata service"
    try:
        answer = rest.call(service, "GET", address, headers).json()
        seconds = number_of(answer.get("expires_in"))
        seconds = whole_of_digits(answer.get("expires_in")) if seconds is None else seconds  # Azure writes a text
        if seconds is None:
            raise ValueError("expires_in")
        return AccessToken(text_in(answer, "access_token"), float(seconds))
    except CallFailed as error:
        hint = f"outside of {provider}'s machines set repairers.{provider.lower()}.credentials"
        raise CallFailed(error.answer, f"{error} ({hint})", error.code, error.retry_after) from None
    except ValueError:
        raise AdapterError(f"{service}: its answer holds no token") from None


CREDENTIALS = ("auto", "metadata", "default")
"""Where a token comes from: this machine's own account, or what the provider's library finds."""


def by_library(how: str, configured: object) -> bool:
    """Whether the provider's library finds the credentials: by the setting, else where they are `configured`."""
    return how == "default" or (how == "auto" and bool(configured))


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
