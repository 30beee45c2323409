"""What goes wrong below the handlers: a request that is none, a connection that breaks. One line, now and then.

aiohttp and asyncio write a traceback for each. Anybody who reaches the port could fill the log with them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Awaitable, Callable, Dict

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from nhc.core.model import printable
from nhc.core.system.web_connections import ConnectionLimits
from nhc.core.system.web_refusals import WebRefusals

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class OneLine(logging.Handler):
    """Counts what a library logs, and says it at most once a minute for each kind and address."""

    def __init__(self, refusals: WebRefusals) -> None:
        super().__init__(logging.WARNING)
        self._refusals = refusals

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        error = record.exc_info[1] if record.exc_info else None
        text = error.message if isinstance(error, HttpProcessingError) else str(error or record.getMessage())
        what = f"{type(error).__name__}: {text}" if error is not None else text
        peer = str(record.args[0]) if record.args and isinstance(record.args, tuple) else "somebody"
        self._refusals.refuse("malformed", printable(peer, 100), f"400: {printable(what, 200)}", time.monotonic())


def logger(refusals: WebRefusals) -> logging.Logger:
    """The logger of the libraries of this server."""
    handler = OneLine(refusals)
    for name in ("asyncio", "aiohttp.server", "aiohttp.web", "aiohttp.internal"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [handler], False
    return logging.getLogger("aiohttp.server")


def complain(refusals: WebRefusals) -> Callable[[asyncio.AbstractEventLoop, Dict[str, object]], None]:
    """The event loop's handler of errors that nobody caught."""

    def handle(_loop: asyncio.AbstractEventLoop, context: Dict[str, object]) -> None:
        error = context.get("exception")
        what = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(context.get("message"))
        refusals.mention("a connection", printable(what, 200), time.monotonic())

    return handle


def guarded(handler: Handler, refusals: WebRefusals, limits: ConnectionLimits) -> Handler:
    """A handler whose own errors are an answer and a line: 400 for text that cannot be text, else 500.

    Its connection is not waited for while it works.
    """

    async def guard(request: web.BaseRequest) -> web.StreamResponse:
        limits.busy(request)
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            status, why, answer = 500, "internal", "internal error"
            if isinstance(error, UnicodeError):
                status, why, answer = 400, "malformed", "malformed"
            what = f"{status}: {type(error).__name__}: {error}"
            refusals.refuse(why, request.remote or "somebody", printable(what, 200), time.monotonic())
            response = web.json_response({"error": answer}, status=status)
            response.force_close()
            return response
        finally:
            limits.idle(request)

    return guard
