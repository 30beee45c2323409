"""What our HTTP servers call themselves: nhc, without a version that would name known flaws."""

from __future__ import annotations

NAME = "nhc"


def of_aiohttp() -> None:
    """Name the server so in every answer of aiohttp from now on, also to requests that no handler sees."""
    from aiohttp import web_response

    web_response.SERVER_SOFTWARE = NAME  # type: ignore[attr-defined]
