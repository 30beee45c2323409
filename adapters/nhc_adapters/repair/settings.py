"""An adapter's own table of a settings file ([repairers.aws] …): text by name, and its mistakes named."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.units import seconds
from nhc.marks.ports.adapter import SettingError

Given = Optional[Mapping[str, str]]
"""Settings, or an environment, that an adapter is made with; None: none, or the process's own."""


class AdapterSettings:
    """One adapter's settings. Raises SettingError for a name that is not in `known`.

    `section` is written before a name in messages, where whoever constructs the adapter does not know its table.
    """

    def __init__(self, settings: Given, known: Sequence[str], section: str = "") -> None:
        self._settings, self._prefix = settings or {}, f"{section}." if section else ""
        for key in self._settings:
            if key not in known:
                near = get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                raise self.error(printable(key, 60), f"no such setting ({hint})")

    def text(self, key: str, default: str = "") -> str:
        return str(self._settings.get(key, "")) or default

    def choice(self, key: str, options: Sequence[str]) -> str:
        """One of `options`, the first by default."""
        value = self.text(key, options[0])
        if value not in options:
            raise self.wrong(key, f"one of {', '.join(options)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no; true and false are taken too, since TOML has them."""
        value = self.text(key).lower()
        if value not in ("", "yes", "no", "true", "false"):
            raise self.wrong(key, "yes or no")
        return default if not value else value in ("yes", "true")

    def digits(self, key: str, default: str = "", expected: str = "a number") -> str:
        """A whole number as text, `default` where it is not set."""
        value = self.text(key, default)
        if value != default and not (value.isascii() and value.isdigit()):
            raise self.wrong(key, expected)
        return value

    def seconds(self, key: str, default: str) -> float:
        """A duration, as 5m."""
        try:
            return seconds(self.text(key, default))
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def parts(self, key: str) -> Tuple[str, ...]:
        """What stands between commas."""
        return tuple(part.strip() for part in self.text(key).split(",") if part.strip())

    def url(self, key: str, default: str) -> str:
        """An address without a trailing slash. http is for a loopback or a link-local address alone."""
        value = self.text(key, default).rstrip("/")
        local = re.match(
            r"http://(127\.|\[::1\]|localhost|169\.254\.|\[fd00:ec2::254\]|metadata\.google\.internal)", value
        )
        if not local and not re.match(r"https://[^/\s]+", value):
            raise self.wrong(key, "an https:// address")
        return value

    def pair(self, key: str) -> Optional[Tuple[str, str]]:
        """NAME=VALUE, None where it is not set."""
        value = self.text(key)
        name, equals, rest = value.partition("=")
        if value and not (name and equals):
            raise self.wrong(key, "NAME=VALUE")
        return (name, rest) if value else None

    def wrong(self, key: str, expected: str) -> SettingError:
        """`KEY: VALUE is not EXPECTED`, to be raised."""
        return self.error(key, f"{printable(self.text(key), 60)!r} is not {expected}")

    def error(self, key: str, problem: str) -> SettingError:
        """`KEY: PROBLEM`, to be raised."""
        return SettingError(self._prefix + key, problem)
