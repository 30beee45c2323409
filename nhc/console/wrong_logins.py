"""Wrong tokens and logins: each is a line in the log and a row of the audit log, both in bounds.

Whoever guesses would fill both: the log has a line of each address and minute, the audit log so many rows a minute, and
the next row says how many it stands for.
"""

from __future__ import annotations

import asyncio
import time
from typing import Dict, Optional, Set

from aiohttp import web

from nhc.core.model import printable
from nhc.core.system.web_listener import WebRefusals
from nhc.store import audit
from nhc.store.database import Store
from nhc.store.errors import StoreError

ACTOR = "nhc console"
ROWS = 10
MINUTE = 60.0


class WrongLogins:
    """For one console. `store` None: the log alone."""

    def __init__(self, refusals: WebRefusals, store: Optional[Store]) -> None:
        self._refusals, self._store = refusals, store
        self._began, self._rows, self._unwritten = float("-inf"), 0, 0
        self._writing: Set[asyncio.Future[None]] = set()

    def note(self, request: web.Request, door: str) -> None:
        """Somebody showed what is not known, at this `door`: token, login, certificate, proxy."""
        now, peer = time.monotonic(), printable(request.remote or "a local socket", 100)
        self._refusals.refuse("login", peer, f"an unknown {printable(door, 100)}", now)
        if self._store is None:
            return
        if now - self._began >= MINUTE:
            self._began, self._rows = now, 0
        if self._rows >= ROWS:
            self._unwritten += 1
            return
        self._rows += 1
        detail: Dict[str, object] = {
            "door": door,
            "from": peer,
            **({"others": self._unwritten} if self._unwritten else {}),
        }
        self._unwritten = 0
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, self._write, self._store, detail)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _write(self, store: Store, detail: Dict[str, object]) -> None:
        try:
            with store.write() as connection:
                audit.append(connection, time.time(), ACTOR, "console.login-refused", detail=detail)
        except StoreError as error:
            self._refusals.note(f"a refused login is not in the audit log: {error}")
