"""The agent's sink for nhc's own server: this node's reports, pushed over HTTPS, kept on the disk while it is away.

    [sinks.server]
    url = "https://nhc.example.org:20259"
    token-file = "/etc/nhc/server.token"

A report is pushed at once when it says something new, else every `every`. Needs the package urllib3 (extra `remedy`);
imported only in the sink's own process.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from typing import Callable, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

import urllib3

from nhc import __version__
from nhc.agent.deep_spool import FolderInUse, take_over
from nhc.agent.spool import Spool
from nhc.model import Report, printable
from nhc.ports import AdapterError
from nhc.render import push
from nhc.settings_file import SettingsError, of
from nhc.sinks import Delivery, Standing
from nhc.system.bounded_read import cause, read_text

BATCH = 50
"""Reports of a spool in one push."""
PENDING = 20
"""Reports held in memory where the disk takes none."""
BACKOFF = (1.0, 300.0)
"""Seconds between two tries, doubled from the first to the last; each waits for a random part of it and no less than
half, so that the nodes of a fleet do not come back all at once."""
LAST_TRY = 3.0
"""Seconds that the end of the agent waits for a push."""
ANSWER = 64 << 10
_HOPELESS = (400, 413, 415, 422)


class PushSettings:
    """The table [sinks.server]. Raises AdapterError."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        table = of(settings, "sinks", "server")
        try:
            table.require("url")
            self.url = table.converted("url", _url, "")
            self.token_file = table.text("token-file")
            self.certificate = table.text("certificate")
            self.key = table.text("key")
            self.ca = table.text("ca")
            self.every = table.seconds("every", 60.0, least=1.0)
            self.timeout = table.seconds("timeout", 15.0, least=0.1, most=300.0)
            self.spool = table.text("spool", "/var/lib/nhc/server-spool")
            self.spool_size = table.size("spool-size", 64 << 20, least=4096)
            self.spool_age = table.seconds("spool-age", 86400.0, least=60.0)
            if not self.token_file and not self.certificate:
                raise table.error("token-file", "missing: it takes token-file, or certificate and key")
            table.finish()
        except SettingsError as error:
            raise AdapterError(str(error)) from None


class NotNow(Exception):
    """The push was not taken, and is to be tried again. `after`: the server said for how long not."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class Hopeless(Exception):
    """The push is not taken as it is, now or ever."""


def sink(settings: Mapping[str, object], node: str, log: Callable[[str], None]) -> ServerSink:
    """A sink from the table [sinks.server]. Raises AdapterError."""
    return ServerSink(PushSettings(settings), node, log)


class Pusher:
    """Sends pushes. A token is read from its file each time: it may be another by now."""

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        timeout = urllib3.Timeout(connect=min(10.0, settings.timeout), read=settings.timeout)
        self._pool = urllib3.PoolManager(
            1, timeout=timeout, retries=False, maxsize=1, block=True, cert_reqs="CERT_REQUIRED",
            ca_certs=settings.ca or None, cert_file=settings.certificate or None, key_file=settings.key or None,
        )  # fmt: skip

    def push(self, body: bytes) -> List[str]:
        """Send one push; what the server refused of it. Raises NotNow, Hopeless."""
        headers = {
            "Content-Type": "application/json", "Content-Encoding": "gzip", "User-Agent": f"nhc-agent/{__version__}",
        }  # fmt: skip
        if self._settings.token_file:
            headers["Authorization"] = f"Bearer {self._token()}"
        try:
            response = self._pool.request(
                "POST",
                self._settings.url + push.PATH,
                body=body,
                headers=headers,
                preload_content=False,
                redirect=False,
            )
            try:
                answer = response.read(ANSWER)
                status, after = response.status, response.headers.get("Retry-After", "")
            finally:
                response.drain_conn() if response.length_remaining in (0, None) else response.close()
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise NotNow(f"{self._settings.url}: {_why(error)}") from None
        if status == 200:
            return _refused(answer)
        said = f"{self._settings.url}: HTTP {status}: {_error(answer)}"
        if status in _HOPELESS:
            raise Hopeless(said)
        raise NotNow(said, float(after) if after.isascii() and after.isdigit() else 0.0)

    def close(self) -> None:
        """End the connection."""
        self._pool.clear()

    def _token(self) -> str:
        try:
            token = read_text(self._settings.token_file, 4096).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotNow(f"{self._settings.token_file}: {cause(error)}") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise NotNow(f"{self._settings.token_file}: holds no token")
        return token


class ServerSink:
    """`nhc.sinks.Writing`: takes reports at once and pushes them in a thread of its own."""

    def __init__(
        self,
        settings: PushSettings,
        node: str,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._node, self._log, self._clock = settings, node, log, clock
        self._pusher = Pusher(settings)
        self._changed = threading.Condition()
        self._pending: List[str] = []
        self._last: Optional[Tuple[object, float]] = None
        self._ending = False
        self._problem = ""
        self._wait = 0.0
        self._spool: Optional[Spool] = None
        self._lost = 0
        self._open_spool()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    def standing(self) -> List[Standing]:
        """The server is told how the node is; it tells the agent nothing."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        """Take a report, unless one that says the same was taken a moment ago."""
        now = self._clock()
        said = (_gist(delivery.report), delivery.complete)
        if self._last is not None and self._last[0] == said and 0 <= now - self._last[1] < self._settings.every * 0.95:
            return
        self._last = (said, now)
        text = push.to_text(push.Pushed(delivery.report, delivery.complete, now))
        with self._changed:
            self._take_over_deep()
            self._pending.append(text)
            if len(self._pending) > 1 or self._wait:  # the one before has not gone yet
                self._store_pending(now)
            self._changed.notify()

    def problem(self) -> str:
        """Why the newest report has not been pushed, "" while it has."""
        return self._problem

    def close(self) -> None:
        """Push what waits if that goes at once, else leave it on the disk."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(LAST_TRY)
        with self._changed:
            self._store_pending(self._clock())
        if not self._thread.is_alive():
            self._pusher.close()

    # In the thread.

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._ending and (self._wait or not (self._pending or self._spool)):
                    if self._wait:
                        self._changed.wait(self._wait)
                        if self._waited():
                            break
                    else:
                        self._changed.wait()
                if self._ending and (self._wait or not (self._pending or self._spool)):
                    return
            try:
                self._push_some()
            except NotNow as error:
                failures += 1
                most = min(BACKOFF[1], BACKOFF[0] * 2 ** min(failures - 1, 16))
                self._trouble(str(error))
                with self._changed:
                    self._until = time.monotonic() + max(error.after, 0.0) + random.uniform(most / 2, most)  # noqa: S311
                    self._wait = self._until - time.monotonic()
                    self._store_pending(self._clock())
            else:
                failures = 0
                self._trouble("")

    _until = 0.0

    def _waited(self) -> bool:
        self._wait = max(0.0, self._until - time.monotonic())
        return not self._wait

    def _push_some(self, count: int = BATCH) -> None:
        """One push: of the spool first, which is older. What the server takes for hopeless is tried one by one."""
        with self._changed:
            spool = self._spool
            if spool is not None:
                spool.trim(self._clock())
            files, texts = spool.oldest(count) if spool is not None else ([], [])
            held = self._pending[: count - len(texts)] if not spool or len(spool) == len(files) else []
            texts = texts + held
            lost = (spool.lost if spool is not None else 0) + self._lost
        if not texts:
            return
        hopeless = False
        refused: List[str] = []
        try:
            refused = self._pusher.push(push.pack(self._node, texts, lost))
        except Hopeless as error:
            if len(texts) > 1:
                for _ in range(len(texts)):
                    self._push_some(1)
                return
            hopeless = True
            self._log(f"the server does not take a report: {error}")
        for line in refused[:3]:
            self._log(f"the server refused a report: {printable(line, 300)}")
        with self._changed:
            if spool is not None:
                spool.remove(files)
            if hopeless:
                self._lost += 1
            elif lost:
                told = min(lost, spool.lost) if spool is not None else 0
                self._lost = max(0, self._lost - (lost - told))
                if spool is not None:
                    spool.told_lost(told)
            # Some may lie in the spool by now: they are sent once more, which changes nothing there.
            self._pending = [text for text in self._pending if not any(text is sent for sent in held)]

    def _store_pending(self, now: float) -> None:
        """Put what is in memory on the disk; where that takes none, keep the newest."""
        if self._spool is None:
            self._open_spool()
        try:
            while self._pending and self._spool is not None:
                self._spool.add(self._pending[0], now)
                del self._pending[0]
        except OSError as error:
            self._log(f"{self._settings.spool}: {error.strerror or error}: reports wait in memory")
        if len(self._pending) > PENDING:
            self._lost += len(self._pending) - PENDING
            del self._pending[:-PENDING]

    def _take_over_deep(self) -> None:
        """Send what a run of deep checks could not; while another process is at it, at the next report."""
        try:
            if self._spool is not None:
                take_over(self._spool)
        except FolderInUse:
            pass
        except OSError as error:
            self._log(f"{error.filename or self._settings.spool}: {error.strerror}: results of deep checks wait there")

    def _open_spool(self) -> None:
        try:
            self._spool = Spool(self._settings.spool, self._settings.spool_size, self._settings.spool_age)
        except OSError as error:
            self._log(f"{self._settings.spool}: {error.strerror or error}: no report outlasts a restart")

    def _trouble(self, problem: str) -> None:
        with contextlib.suppress(ValueError):
            self._problem = printable(problem, 400)


def _gist(report: Report) -> object:
    """What a report says, figures aside."""
    return report.boot_id, frozenset(
        (result.check, result.outcome.target, result.outcome.reason, result.verdict, result.outcome.action)
        for result in report.results
    )


def _url(text: str) -> str:
    parts = urlsplit(text)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or parts.scheme not in ("http", "https") or parts.query or parts.username:
        raise ValueError("expected https://HOST:PORT")
    if parts.scheme == "http" and not local:
        raise ValueError("expected https: a token does not travel in the clear")
    return text.rstrip("/")


def _why(error: Exception) -> str:
    """A library's words without its objects: `Connection refused`, `certificate verify failed`."""
    cause_of: Optional[BaseException] = getattr(error, "reason", None) or error.__cause__ or error.__context__
    inner = getattr(cause_of, "strerror", None) or getattr(error, "strerror", None)
    if inner:
        return printable(str(inner), 200)
    return printable(str(error).partition("object at")[2].partition(">: ")[2] or str(error), 200)


def _refused(answer: bytes) -> List[str]:
    try:
        listed = json.loads(answer)["refused"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotNow("the answer is no answer of nhc's server") from None
    return [str(line) for line in listed] if isinstance(listed, list) else []


def _error(answer: bytes) -> str:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return "no answer of nhc's server"
    return printable(str(value.get("error", "")), 200) if isinstance(value, dict) else "no answer of nhc's server"
