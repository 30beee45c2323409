"""The HTTPS server that API servers ask: /preflight, and /healthz, /readyz and /metrics beside it.

The pods of gangs ask it for /gang (`gang_server`).
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional, Protocol, Tuple

from nhc.core.prometheus_family import Family, gauge
from nhc.core.system.addresses import host_and_port
from nhc.core.system.service_log import failure, problem
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.preflight import certificate
from nhc_adapters.kubernetes.preflight.certificate import Pair
from nhc_adapters.kubernetes.preflight.gang_server import GangServer, PodRefused
from nhc_adapters.kubernetes.preflight.webhook import (
    BadReview,
    PreflightSettings,
    Review,
    answer,
    preflight_of,
    read_review,
)

BODY = 3 << 20
"""Bytes of a review: an object of the API has at most 1.5 MiB (etcd's limit), and the request holds little else."""

CONNECTIONS = 64
"""Connections that are served at once: an API server keeps few, and each is a thread."""

SLOW = 10.0
"""Seconds in which a handshake, a head and a body come, as the API server waits for a webhook at most 30."""

EVERY = 60.0
"""Seconds between two looks at the certificate."""


class Certificates(Protocol):
    """The source of the certificate."""

    def look(self) -> Pair:
        """The one to show now. Raises AdapterError."""


class Webhook:
    """The webhook: its settings as they are now, its counters, and its answers. Safe to use from several threads."""

    def __init__(
        self,
        read: Callable[[], Tuple[PreflightSettings, bool]],
        log: Callable[[str], None],
        gangs: Optional[GangServer] = None,
    ) -> None:
        self._read, self.log, self._gangs = read, log, gangs
        self.authorities = ""
        """Of the certificate in use, for the pods of gangs; "" if not known."""
        self.counts: Counter[str] = Counter()
        self.unready = "no certificate yet"
        """Why no API server can be answered, "" if it can."""
        self.ends = 0.0
        self._lock = threading.Lock()

    def review(self, body: bytes) -> dict[str, Any]:
        """The answer to a review. Raises BadReview."""
        review = read_review(body)
        settings, apply = self._read()
        done = preflight_of(review.pod, settings, review.namespace, self.authorities if self._gangs else "")
        if done.ops:
            self._count("added" if apply else "dry_run")
            self.log(f"{'' if apply else 'dry run: would add '}preflight {done.suite}: {_pod(review)}")
        else:
            self._count("left")
        return answer(review, done, apply)

    def gang(self, authorization: str, body: bytes) -> dict[str, Any]:
        """What a gang's pod is to do. Raises PodRefused."""
        if self._gangs is None:
            raise PodRefused(404, "there are no gangs")
        return self._gangs.answer(authorization, body, self._read()[0])

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def page(self, path: str) -> Tuple[int, str]:
        """The status and the text of a path that is asked for with GET."""
        if path == "/metrics":
            pods = Family("nhc_preflight_pods_total", "counter", "Pods that were asked about, by what was done.")
            for what in ("added", "dry_run", "left", "refused"):
                pods.add(self.counts[what], effect=what)
            ends = gauge("nhc_preflight_certificate_ends", "When the certificate ends (Unix time).", self.ends)
            return 200, pods.render() + ends.render()
        if path == "/readyz":
            return (503, f"{self.unready}\n") if self.unready else (200, "ok\n")
        return (200, "ok\n") if path == "/healthz" else (404, "there are /preflight, /healthz, /readyz and /metrics\n")


def _pod(review: Review) -> str:
    metadata = review.pod.get("metadata") or {}
    return f"{review.namespace}/{metadata.get('name') or metadata.get('generateName') or '?'}"


class WebhookServer(ThreadingHTTPServer):
    """Serves one webhook over TLS. Each handshake has its own thread: a silent client blocks no other."""

    daemon_threads = True

    def __init__(self, listen: str, webhook: Webhook, context: ssl.SSLContext) -> None:
        self.webhook, self.context = webhook, context
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        try:
            host, port = host_and_port(listen)
            super().__init__((host or "127.0.0.1", port), _Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise AdapterError(f"cannot listen on {listen!r} (expected host:port): {error}") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(SLOW)
            try:
                secure = self.context.wrap_socket(request, server_side=True)
            except (OSError, ValueError):  # what speaks no TLS, or does not believe us
                self.shutdown_request(request)
                return
            super().process_request_thread(secure, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    timeout = SLOW
    protocol_version = "HTTP/1.1"
    server: WebhookServer

    def version_string(self) -> str:
        return "nhc"  # no version: it would name known flaws

    def do_GET(self) -> None:
        self._say(*self.server.webhook.page(self.path.partition("?")[0]), kind="text/plain; charset=utf-8")

    def do_POST(self) -> None:
        webhook = self.server.webhook
        length = self.headers.get("Content-Length") or ""
        path = self.path.partition("?")[0]
        if path not in ("/preflight", "/gang"):
            self._refuse(404, "there are /preflight and /gang")
        elif not length.isdecimal() or len(length) > 9 or not 0 < int(length) <= BODY:
            self._refuse(413 if length.isdecimal() else 411, f"expected a body of at most {BODY} bytes")
        else:
            body = self.rfile.read(int(length))
            try:
                answer = webhook.gang(self.headers.get("Authorization") or "", body) if path == "/gang" else (
                    webhook.review(body))  # fmt: skip
                self._say(200, json.dumps(answer))
            except BadReview as error:
                self._refuse(400, str(error))
            except PodRefused as error:
                self._refuse(error.status, str(error))
            except Exception as error:  # after any error the API server lets the pod in (failurePolicy Ignore)
                webhook.log(problem(f"a review could not be answered: {failure(error)}"))
                self._refuse(500, "it could not be answered")

    def _refuse(self, status: int, why: str) -> None:
        self.server.webhook._count("refused")
        self.close_connection = True
        self._say(status, f"{why}\n", kind="text/plain; charset=utf-8")

    def _say(self, status: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_arguments: object) -> None:
        return


class ServedCertificate:
    """Keeps the certificate that a server shows up to date."""

    def __init__(self, certificates: Certificates, webhook: Webhook) -> None:
        self.certificates, self.webhook = certificates, webhook
        self.context = _Tls(ssl.PROTOCOL_TLS_SERVER)
        self._shown: Optional[Pair] = None

    def look(self) -> None:
        """Take what is new. What cannot be had leaves the one that is shown, and is said."""
        webhook = self.webhook
        try:
            pair = self.certificates.look()
            if self._shown is None or pair.certificate != self._shown.certificate:
                certificate.load(self.context, pair)
                self._shown, webhook.ends = pair, pair.until
            webhook.authorities = pair.authorities
        except AdapterError as error:
            text = f"no certificate: {error}"
            if text != webhook.unready:
                webhook.log(problem(text))
            webhook.unready = text
        else:
            webhook.unready = ""

    def keep(self, stop: threading.Event, every: float = EVERY) -> None:
        """Look again and again until `stop` is set. For a thread of its own."""
        self.look()
        while not stop.wait(min(every, 5.0) if self.webhook.unready else every):
            self.look()


class _Tls(ssl.SSLContext):
    def __init__(self, _protocol: int) -> None:
        self.minimum_version = ssl.TLSVersion.TLSv1_2
