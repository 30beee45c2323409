"""The controller's own door: /healthz, /readyz and /metrics, on loopback unless told otherwise."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, List, Optional, Sequence

from nhc.ports import AdapterError

if TYPE_CHECKING:
    from nhc_adapters.kubernetes.controller.controller import Controller
    from nhc_adapters.kubernetes.controller.reload import Watched


def metrics(controller: Controller, watched: Optional[Watched] = None) -> str:
    """What the controller counts, in Prometheus' text format."""
    fleet = controller.fleet
    lines: List[str] = []

    def family(name: str, kind: str, help: str, samples: Sequence[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {help}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {value:g}" for labels, value in samples)

    family("nhc_kubernetes_nodes", "gauge", "Nodes followed.", [("", len(fleet.states))])
    family("nhc_kubernetes_nodes_sick", "gauge", "Nodes whose conditions say CRIT.", [("", len(fleet.sick()))])
    unknown = "Nodes of which nothing certain is known: silent, never heard of, or marked by a word not taken back."
    family("nhc_kubernetes_nodes_unknown", "gauge", unknown, [("", fleet.unknown())])
    family("nhc_kubernetes_nodes_marked", "gauge", "Nodes that carry nhc's mark.", [("", len(fleet.marked()))])
    family(
        "nhc_kubernetes_nodes_withheld", "gauge", "Deeds that a ceiling or rate withholds.", [("", len(fleet.withheld))]
    )
    family("nhc_kubernetes_leading", "gauge", "1 while this process holds the Lease.", [("", controller.lease.held())])
    if controller.loki is not None:
        aside = "Lines of Loki that name no node or make no sense."
        family("nhc_kubernetes_loki_lines_set_aside_total", "counter", aside, [("", controller.loki.loki.aside)])
        behind = "How much of the log in Loki is not read yet."
        family("nhc_kubernetes_loki_behind_seconds", "gauge", behind, [("", controller.loki.behind())])
    missing = [(f'{{right="{right}"}}', 1) for right in controller.rights.missing]
    family("nhc_kubernetes_right_missing", "gauge", "Rights that the API server does not grant us.", missing)
    if watched is not None:
        refused = "1 while the settings' files hold something that is not taken."
        family("nhc_kubernetes_settings_refused", "gauge", refused, [("", bool(watched.refused))])
    failing = [(f'{{what="{what}"}}', 1) for what in sorted(controller.outages.standing())]
    family("nhc_kubernetes_failing", "gauge", "What fails now; the log says why.", failing)
    family("nhc_kubernetes_drains", "gauge", "Drains under way.", [("", len(controller.drains.running()))])
    family(
        "nhc_kubernetes_deeds_total",
        "counter",
        "What was done to nodes, by operation and effect.",
        [(f'{{deed="{d}",effect="{e}"}}', n) for d, e, n in _operations(controller)],
    )
    counted = sorted(controller.client.counts.items())
    family(
        "nhc_kubernetes_requests_total",
        "counter",
        "Requests to the API server.",
        [(f'{{method="{method}"}}', number) for method, number in counted],
    )
    return "\n".join(lines) + "\n"


def _operations(controller: Controller) -> List[tuple[str, str, int]]:
    return [(*key.split("_", 1), number) for key, number in sorted(controller.counts.items())]  # type: ignore[misc]


class Server:
    """Serves one controller at a time on `host:port`. Raises AdapterError when it cannot listen there."""

    def __init__(self, listen: str, controller: Controller, watched: Optional[Watched] = None) -> None:
        host, _, port = listen.rpartition(":")
        self.controller = controller
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, text = _answer(self.path, outer.controller, watched)
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: probes every few seconds are no news."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise AdapterError(f"cannot listen on {listen!r} (expected host:port): {error}") from None
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def serve(self, controller: Controller) -> None:
        """Answer for another controller from now on: the settings have changed."""
        self.controller = controller

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="serve", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(path: str, controller: Controller, watched: Optional[Watched]) -> tuple[int, str]:
    if path == "/metrics":
        return 200, metrics(controller, watched)
    if path == "/healthz":
        sick = controller.healthy()
        return (503, f"{sick}\n") if sick else (200, "ok\n")
    if path == "/readyz":
        why = controller.unready()
        return (503, f"{why}\n") if why else (200, "ok\n")
    return 404, "there are /healthz, /readyz and /metrics\n"
