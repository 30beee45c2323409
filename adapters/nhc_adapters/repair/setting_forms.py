"""Forms of settings that several adapters have: an address, a pair, services of systemd. Each raises ValueError."""

from __future__ import annotations

import re
import shlex
from typing import Optional, Tuple

from nhc.core.model import printable

_LOCAL = r"http://(127\.|\[::1\]|localhost|169\.254\.|\[fd00:ec2::254\]|metadata\.google\.internal)"


def https_url(text: str) -> str:
    """An address without a trailing slash. http is for a loopback or a link-local address alone."""
    url = text.rstrip("/")
    if not re.match(_LOCAL, url) and not re.match(r"https://[^/\s]+", url):
        raise ValueError(f"{printable(text, 60)!r} is not an https:// address")
    return url


def pair(text: str) -> Optional[Tuple[str, str]]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"{printable(text, 60)!r} is not NAME=VALUE")
    return name, value


def services(text: str) -> Tuple[str, ...]:
    """Names of systemd services, with blanks between them."""
    names = tuple(shlex.split(text))
    for name in names:
        if (
            name.startswith("-")
            or not name.endswith(".service")
            or not all(c.isalnum() or c in "@._-:\\" for c in name)
        ):
            raise ValueError(f"{printable(text, 60)!r} is not names of services, each NAME.service")
    return names
