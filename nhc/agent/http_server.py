"""What the agent serves over HTTP, read-only: /metrics, /healthz, /conditions.

On loopback unless the settings say otherwise. /healthz is 200 only while checks really run; /livez while the agent
answers at all, which is what a liveness probe should ask: a paused agent must not be killed.
"""

from __future__ import annotations

import json
from typing import Tuple

from nhc.agent import latest_report, prometheus_text
from nhc.agent.event_loop import Loop
from nhc.agent.node_view import NodeView
from nhc.agent.service import Agent
from nhc.agent.sockets import Connection, SocketServer, listen_tcp
from nhc.core.model import printable
from nhc.core.prometheus_family import page_for
from nhc.core.timestamps import utc_milliseconds
from nhc.marks.ports.sinks import NodeCondition

LIMIT = 8192
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_PATHS = ("/metrics", "/healthz", "/livez", "/conditions", "/report")
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Http:
    """All addresses of one agent. Raises OSError where one cannot be listened on."""

    def __init__(self, loop: Loop, agent: Agent) -> None:
        self.loop, self.agent = loop, agent
        self.servers: dict[str, SocketServer] = {}
        self.listen()

    def listen(self) -> None:
        """Listen where the settings say, and nowhere else any more."""
        wanted = self.agent.settings.listen
        for address in wanted:
            if address not in self.servers:
                self.servers[address] = SocketServer(self.loop, listen_tcp(address), self._answer, LIMIT)
        for address in [known for known in self.servers if known not in wanted]:
            self.servers.pop(address).close()

    def relisten(self) -> None:
        """After a reload: an address that cannot be listened on is logged, and the others are served."""
        try:
            self.listen()
        except OSError as error:
            self.agent.log(f"{error.filename or 'HTTP'}: {error.strerror}")

    def close(self) -> None:
        for server in self.servers.values():
            server.close()
        self.servers.clear()

    def _answer(self, peer: Connection) -> None:
        head, end, _body = bytes(peer.received).partition(b"\r\n\r\n")
        if not end:
            return
        request = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(request) != 3 or not request[2].startswith("HTTP/1."):
            peer.answer(_response(400, TEXT, "not HTTP\n", True))
            return
        method, target = request[0], request[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            peer.answer(_response(405, TEXT, "only GET\n", True))
            return
        accept = next((line[7:] for line in head.decode("latin-1").split("\r\n") if line[:7].lower() == "accept:"), "")
        status, kind, text = self._page(target, accept)
        peer.answer(_response(status, kind, text, method == "GET"))

    def _page(self, path: str, accept: str) -> Tuple[int, str, str]:
        node = self.agent.view()
        if path == "/metrics":
            return (200, *page_for(accept, prometheus_text.render(node)))
        if path == "/healthz":
            problem = latest_report.health(node)
            return (503, TEXT, f"{printable(problem)}\n") if problem else (200, TEXT, "ok\n")
        if path == "/livez":
            return 200, TEXT, "ok\n"
        if path == "/conditions":
            return 200, JSON, json.dumps(conditions(node), ensure_ascii=False) + "\n"
        if path == "/report":
            from nhc.core.render import json as render

            return 200, JSON, render.render(latest_report.report(node))
        return 404, TEXT, f"there are {', '.join(_PATHS)}\n"


def conditions(node: NodeView) -> list[NodeCondition]:
    """The node's conditions as node-problem-detector shows its own: type, status, transition, reason, message."""
    from nhc.core.model import Verdict, describe

    report = latest_report.report(node)
    worst = max(report.results, key=lambda result: result.verdict, default=None)
    status = {Verdict.CRIT: "False", Verdict.UNKNOWN: "Unknown"}.get(report.verdict, "True")
    if not latest_report.complete(node) and status == "True":
        status = "Unknown"
    bad = worst is not None and worst.verdict > Verdict.WARN
    since = min((p.since for _k, p in node.board.problems() if p.result.verdict is report.verdict), default=0.0)
    own: NodeCondition = {
        "type": "NhcHealthy",
        "status": status,
        "transition": utc_milliseconds(since or node.reloaded),
        "reason": (worst.outcome.reason or "CheckFailed") if bad and worst else "NhcHealthy",
        "message": printable(describe(worst)) if bad and worst else "every check passes",
    }
    return [own, *(node.monitors.conditions() if node.monitors else [])]


def _response(status: int, kind: str, text: str, body: bool) -> bytes:
    data = text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        "Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    return head.encode() + (data if body else b"")
