"""`nhc status|hold|release|ack agent` and `nhc agent check|reload`: a Unix socket that only the agent's user may open.

A question is one line of JSON, and so is the answer. The mode of the socket keeps other users out; the agent also asks
the kernel who has connected.
"""

from __future__ import annotations

import json
import os
from typing import List, Mapping, Set

from nhc import __version__
from nhc.agent import node_view
from nhc.agent.check_round import Finished
from nhc.agent.control_answers import AgentStatus, Answer, CheckStatus
from nhc.agent.event_loop import Loop
from nhc.agent.node_view import NodeView
from nhc.agent.pause import LONGEST as LONGEST_PAUSE
from nhc.agent.service import Agent
from nhc.agent.sockets import Connection, SocketServer, listen_unix
from nhc.core.json_values import list_in, number_of, parse_object, text_in, texts_of
from nhc.core.model import Verdict, describe, printable
from nhc.core.state.store import default_directory

LIMIT = 65536
LONGEST = 600.0
"""Seconds that `nhc agent check` waits for its answer."""

Question = Mapping[str, object]
"""The request, as JSON: `do` names the command."""


def default_socket(state: str = "") -> str:
    """agent.sock in the state directory."""
    return f"{state or default_directory()}/agent.sock"


class Control:
    """The agent's socket. Raises OSError if it cannot be created."""

    def __init__(self, loop: Loop, agent: Agent, path: str) -> None:
        self.loop, self.agent, self.path = loop, agent, path
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.server = SocketServer(loop, listen_unix(path), self._answer, LIMIT)
        self._inode = os.stat(path).st_ino

    def close(self) -> None:
        self.server.close()
        try:
            if os.stat(self.path).st_ino == self._inode:  # not one that another agent has put there since
                os.unlink(self.path)
        except OSError:
            pass

    def _answer(self, peer: Connection) -> None:
        line, end, _rest = bytes(peer.received).partition(b"\n")
        if not end:
            return
        if peer.uid not in (0, os.geteuid()):
            _send(peer, {"error": "only the agent's own user may ask"})
            return
        try:
            asked = parse_object(line)
            do = getattr(self, f"_do_{text_in(asked, 'do')}", None)
        except ValueError:
            _send(peer, {"error": "not understood"})
            return
        if do is None:
            _send(peer, {"error": f"no such command: {printable(str(asked['do']), 80)}"})
            return
        try:
            do(peer, asked)
        except ValueError as error:
            _send(peer, {"error": f"not understood: {error}"})

    def _do_status(self, peer: Connection, _asked: Question) -> None:
        _send(peer, status(self.agent.node))

    def _do_pause(self, peer: Connection, asked: Question) -> None:
        seconds = _number(asked, "seconds", 3600.0)
        if not 0 < seconds <= LONGEST_PAUSE:
            raise ValueError("a pause lasts between a second and 30 days")
        self.agent.pause(seconds, str(asked.get("by", "")), str(asked.get("why", "")))
        _send(peer, {"paused_until": self.agent.node.runtime.host.time() + seconds})

    def _do_resume(self, peer: Connection, asked: Question) -> None:
        was = self.agent.node.pause.current is not None
        self.agent.resume(f"by {asked.get('by', '')}")
        self.agent.tick()
        _send(peer, {"was_paused": was})

    def _do_reload(self, peer: Connection, _asked: Question) -> None:
        _send(peer, {"problems": self.agent.reload(), "checks": len(self.agent.node.checks.items)})

    def _do_ack(self, peer: Connection, asked: Question) -> None:
        keys = texts_of(list_in(asked, "keys"))
        ended = self.agent.ack(keys, str(asked.get("device", "")), bool(asked.get("all")), str(asked.get("by", "")),
                               str(asked.get("note", "")))  # fmt: skip
        _send(peer, {"ended": ended, "missing": [key for key in keys if key not in ended]})

    def _do_check(self, peer: Connection, asked: Question) -> None:
        """Run checks now; the answer is their results, when all have ended."""
        if self.agent.node.pause.current:
            _send(peer, {"error": str(self.agent.node.pause.current)})
            return
        chosen = self.agent.run_now(texts_of(list_in(asked, "names")))
        if not chosen:
            _send(peer, {"error": "no configured check has such a name"})
            return
        if not asked.get("wait", True):
            _send(peer, {"started": len(chosen)})
            return
        peer.keep_open(LONGEST)
        _Waiter(self.agent.node, peer, chosen)


class _Waiter:
    """Answers when every chosen check has been judged again."""

    def __init__(self, node: NodeView, peer: Connection, keys: Set[str]) -> None:
        self.node, self.peer, self.keys = node, peer, keys
        self.left = set(keys)
        # A run that was under way when the request came does not answer it; a run that the request has just started
        # does.
        before = node.runtime.host.monotonic() - 0.01
        began = {key: node.checks.schedule.entries[key].running for key in keys}
        self.running = {key for key, at in began.items() if at is not None and at < before}
        node.rounds.call_each(self)

    def __call__(self, finished: Finished) -> None:
        if self.node.pause.current:
            self.node.rounds.call_no_more(self)
            _send(self.peer, {"error": str(self.node.pause.current)})
            return
        for key in finished.keys:
            if key in self.running:
                self.running.discard(key)
                self.node.checks.schedule.hurry(key, self.node.runtime.host.monotonic())
            else:
                self.left.discard(key)
        self.left.intersection_update(self.node.checks.items)  # a reload may have dropped some: these are never judged
        if self.left and self.peer.fd >= 0:
            return
        self.node.rounds.call_no_more(self)
        from nhc.core.render.json import to_result

        order = [key for key in self.node.checks.items if key in self.keys]
        _send(self.peer, {"results": [to_result(result) for result in self.node.checks.board.results(order)]})


def status(node: NodeView) -> AgentStatus:
    """What `nhc status agent` shows."""
    now = node.runtime.host.monotonic()
    report = node_view.report(node)
    entries = node.checks.schedule.entries
    checks: List[CheckStatus] = []
    for key, item in node.checks.items.items():
        entry, row = entries[key], node.checks.board.rows.get(key)
        results = row.report_results(node.checks.board.recover) if row else []
        verdict = max((result.verdict for result in results), default=None)
        checks.append(
            {
                "check": item.name,
                "line": item.line,
                "source": item.source,
                "every": entry.every,
                "verdict": verdict.name if verdict is not None else None,
                "age": None if entry.judged is None else round(now - entry.judged, 3),
                "running": entry.running is not None,
                "elapsed": round(entry.elapsed, 6),
            }
        )
    follower, journal = node.sources.follower, node.sources.journal
    return {
        "version": __version__,
        "pid": os.getpid(),
        "node": node.runtime.node,
        "uptime": round(now - node.runtime.began, 3),
        "health": node_view.health(node),
        "verdict": report.verdict.name,
        "complete": node.checks.complete(),
        "paused_until": node.pause.current.until if node.pause.current else None,
        "paused_by": node.pause.current.by if node.pause.current else "",
        "config_problems": list(node.config.refused),
        "problems": [
            {"check": result.check, "verdict": result.verdict.name, "text": printable(describe(result), 400),
             "reason": result.outcome.reason, "target": printable(result.outcome.target)}
            for result in report.results if result.verdict > Verdict.OK
        ],
        "inherited": [f"condition/{fault.reason}" for fault in node.kernel.inherited],
        "kernel_log": {
            "live": bool(follower and follower.live),
            "records": follower.records if follower else 0,
            "lost": follower.lost if follower else 0,
            "problem": follower.problem if follower else "",
            "journald": bool(journal.pid),
            "journald_problem": journal.problem,
        },
        "sinks": {
            name: {"problem": handle.problem, "waiting": handle.waiting, "lost": handle.lost, "pid": handle.pid}
            for name, handle in node.publisher.sinks.items()
        },
        "log_problems": node.monitors.problems() if node.monitors else [],
        "history": node.settings.history,
        "checks": checks,
    }  # fmt: skip


def _number(asked: Question, name: str, default: float) -> float:
    """Raises ValueError."""
    value = number_of(asked.get(name, default))
    if value is None:
        raise ValueError(f"{name}: not a number")
    return value


def _send(peer: Connection, answer: Answer) -> None:
    peer.answer(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
