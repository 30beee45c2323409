"""What our HTTP servers call themselves: nhc, without a version. Whoever looks for a known flaw is told none."""

from __future__ import annotations

NAME = "nhc"


def of_aiohttp() -> None:
    """Every answer of aiohttp from here on, those to requests that no handler sees among them."""
    from aiohttp import web_response

    web_response.SERVER_SOFTWARE = NAME  # type: ignore[attr-defined]
