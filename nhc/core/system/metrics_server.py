"""/metrics and /healthz of a service in the foreground: read-only, on loopback unless the settings say otherwise.

`nhc serve` serves them, of one service (remedy, job, notices, kubernetes) or of those that it hosts together.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Iterable, Protocol, Tuple

from nhc.core.prometheus_family import TEXT, page_for
from nhc.core.system.addresses import host_and_port


class Answering(Protocol):
    """What answers requests; it is asked from several threads."""

    def page(self, path: str) -> Tuple[int, str]:
        """The status and the text of a path."""


class Pages:
    """What a service that goes round has to answer: set by each service of the process after its rounds."""

    def __init__(self, services: Iterable[str] = ("",)) -> None:
        self._lock = threading.Lock()
        self._pages = dict.fromkeys(services, ("", "no round has ended yet"))

    def update(self, metrics: str, problem: str, service: str = "") -> None:
        """The pages after a round of a service; `problem` is why it is not healthy, "" where it is."""
        with self._lock:
            self._pages[service] = metrics, problem

    def page(self, path: str) -> Tuple[int, str]:
        """The status and the text of a path."""
        with self._lock:
            pages = dict(self._pages)
        if path == "/metrics":
            return 200, "".join(metrics for metrics, _problem in pages.values())
        if path == "/healthz":
            problems = [f"{name}: {why}" if name else why for name, (_metrics, why) in pages.items() if why]
            return (503, "\n".join(problems) + "\n") if problems else (200, "ok\n")
        return 404, "there are /metrics and /healthz\n"


def serve(address: str, pages: Answering) -> ThreadingHTTPServer:
    """Serve until `shutdown`, on loopback if the address names no host.

    Raises ValueError for what is no address, OSError where it cannot be listened on.
    """
    try:
        host, port = host_and_port(address if ":" in address else f"127.0.0.1:{address}")
    except ValueError:
        raise ValueError(f"{address!r} is no address such as 127.0.0.1:9469 or 9469") from None

    class MetricsHandler(BaseHTTPRequestHandler):
        timeout = 10

        def version_string(self) -> str:
            return "nhc"  # no version: it would name known flaws

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            status, text = pages.page(path)
            kind = TEXT
            if path == "/metrics":
                kind, text = page_for(self.headers.get("Accept", ""), text)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer((host or "127.0.0.1", port), MetricsHandler)
    threading.Thread(target=server.serve_forever, name="nhc-metrics-http", daemon=True).start()
    return server
