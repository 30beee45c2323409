"""What the agent serves over HTTP, read-only: /metrics, /healthz, /conditions.

On loopback unless the settings say otherwise. /healthz is 200 only while checks really run. /livez is 200 while the
agent answers at all: a liveness probe should use it, because a paused agent must not be killed.
"""

from __future__ import annotations

import json
from typing import Dict, List, Tuple

from nhc.agent import node_view
from nhc.agent.event_loop import Loop
from nhc.agent.events import EVENTS
from nhc.agent.node_view import NodeView
from nhc.agent.sockets import Connection, SocketServer, listen_tcp
from nhc.core.model import Verdict, printable
from nhc.core.plan import BUILT_IN, DEEP
from nhc.core.prometheus_family import Family, counter, gauge, page_for
from nhc.core.render import prometheus
from nhc.core.timestamps import utc_milliseconds
from nhc.marks.ports.sinks import NodeCondition

# /metrics: the report's own series (nhc.core.render.prometheus), the agent's, and node-problem-detector's names.


def render_metrics(node: NodeView) -> str:
    """The whole page."""
    checks = [item.name for item in node.checks.items.values() if item.kind in (BUILT_IN, DEEP)]
    return prometheus.render(node_view.report(node), checks) + "".join(family.render() for family in families(node))


def families(node: NodeView) -> List[Family]:
    now = node.runtime.host.monotonic()
    made = [
        gauge("nhc_agent_healthy", "1 while every check runs as often as it should.",
              float(not node_view.health(node))),
        gauge("nhc_agent_paused", "1 while checks are paused.", float(node.pause.current is not None)),
        gauge("nhc_agent_checks", "Checks configured for this node.", len(node.checks.items)),
        gauge("nhc_agent_overdue", "Checks that have not run for too long.", len(node.checks.schedule.overdue(now))),
        gauge("nhc_agent_oldest_result_seconds", "Age of the oldest word of a check that is to be fresh.",
              max(0.0, node.runtime.host.time() - node_view.report(node).started)),
        gauge("nhc_agent_uptime_seconds", "Since when the agent runs.", now - node.runtime.began),
        gauge("nhc_agent_round_seconds", "How long the last round of checks took.", node.rounds.seconds),
        gauge("nhc_agent_config_refused", "1 while changed files are refused.", float(bool(node.config.refused))),
    ]  # fmt: skip
    rounds = Family("nhc_agent_rounds_total", "counter", "Rounds of checks, by how they came out.")
    rounds.add(node.publisher.counts.get("rounds", 0) - node.publisher.counts.get("rounds_failed", 0), outcome="done")
    rounds.add(node.publisher.counts.get("rounds_failed", 0), outcome="failed")
    events = Family("nhc_agent_events_total", "counter", "Events, by kind.")
    told = {what[6:]: number for what, number in node.publisher.counts.items() if what.startswith("event ")}
    for kind in sorted({*EVENTS, *told}):
        events.add(told.get(kind, 0), event=kind)
    sinks = Family("nhc_agent_sink_up", "gauge", "1 while a sink delivers.")
    waiting = Family("nhc_agent_sink_waiting", "gauge", "Events that wait for a sink.")
    lost = Family("nhc_agent_sink_lost_total", "counter", "Events that a sink did not take in time.")
    for name, handle in node.publisher.sinks.items():
        sinks.add(float(not handle.problem), sink=name)
        waiting.add(handle.waiting, sink=name)
        lost.add(handle.lost, sink=name)
    made += [rounds, events, sinks, waiting, lost]
    follower = node.sources.follower
    if follower:
        made += [
            gauge("nhc_agent_kernel_log_live", "1 while the kernel log is followed live.", float(follower.live)),
            counter("nhc_agent_kernel_log_records_total", "Records read.", follower.records),
            counter("nhc_agent_kernel_log_lost_total", "Records overwritten before they were read.",
                    follower.lost),
        ]  # fmt: skip
    return [*made, *problems(node), *(node.monitors.families() if node.monitors else ())]


def problems(node: NodeView) -> List[Family]:
    """problem_counter and problem_gauge, as node-problem-detector's dashboards and alarms know them.

    Beside the conditions and events of its configuration files, each of nhc's own faults is a problem: its type is
    the check, its reason the finding's.
    """
    counters = Family("problem_counter", "counter", "Number of times a specific type of problem have occurred.")
    gauges = Family("problem_gauge", "gauge", "Whether a specific type of problem is affecting the node or not.")
    for reason, number in sorted(node.publisher.problem_counts.items()):
        counters.add(number, reason=reason)
    values: Dict[Tuple[str, str], float] = dict.fromkeys(node.publisher.problem_seen, 0.0)
    for key, problem in node.checks.board.problems():
        if node.monitors and node.monitors.owns(key):
            continue
        if problem.result.verdict is Verdict.CRIT:
            values[problem.result.check, problem.result.outcome.reason] = 1.0
    if node.monitors:
        values.update(node.monitors.gauges())
    for (kind, reason), value in sorted(values.items()):
        gauges.add(value, type=kind, reason=reason)
    return [counters, gauges]


LIMIT = 8192
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_PATHS = ("/metrics", "/healthz", "/livez", "/conditions", "/report")
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Http:
    """All addresses of one agent. Raises OSError if it cannot listen on one of them."""

    def __init__(self, loop: Loop, node: NodeView) -> None:
        self.loop, self.node = loop, node
        self.servers: dict[str, SocketServer] = {}
        self.listen()

    def listen(self) -> None:
        """Listen on the addresses of the settings, and on no others."""
        wanted = self.node.settings.listen
        for address in wanted:
            if address not in self.servers:
                self.servers[address] = SocketServer(self.loop, listen_tcp(address), self._answer, LIMIT)
        for address in [known for known in self.servers if known not in wanted]:
            self.servers.pop(address).close()

    def relisten(self) -> None:
        """After a reload: log an address on which it cannot listen, and serve the others."""
        try:
            self.listen()
        except OSError as error:
            self.node.runtime.log(f"{error.filename or 'HTTP'}: {error.strerror}")

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
        node = self.node
        if path == "/metrics":
            return (200, *page_for(accept, render_metrics(node)))
        if path == "/healthz":
            problem = node_view.health(node)
            return (503, TEXT, f"{printable(problem)}\n") if problem else (200, TEXT, "ok\n")
        if path == "/livez":
            return 200, TEXT, "ok\n"
        if path == "/conditions":
            return 200, JSON, json.dumps(conditions(node), ensure_ascii=False) + "\n"
        if path == "/report":
            from nhc.core.render import json as render

            return 200, JSON, render.render(node_view.report(node))
        return 404, TEXT, f"there are {', '.join(_PATHS)}\n"


def conditions(node: NodeView) -> list[NodeCondition]:
    """The node's conditions as node-problem-detector shows its own: type, status, transition, reason, message."""
    from nhc.core.model import Verdict, describe

    report = node_view.report(node)
    worst = max(report.results, key=lambda result: result.verdict, default=None)
    status = {Verdict.CRIT: "False", Verdict.UNKNOWN: "Unknown"}.get(report.verdict, "True")
    if not node.checks.complete() and status == "True":
        status = "Unknown"
    bad = worst is not None and worst.verdict > Verdict.WARN
    since = min((p.since for _k, p in node.checks.board.problems() if p.result.verdict is report.verdict), default=0.0)
    own: NodeCondition = {
        "type": "NhcHealthy",
        "status": status,
        "transition": utc_milliseconds(since or node.config.reloaded),
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
