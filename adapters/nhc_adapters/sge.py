"""Grid Engine (Son of Grid Engine, Open Grid Scheduler, Altair). Standard library only.

On a node nhc is a load sensor (`nhc-healthcheck` with NHC_RM=sge): the queues' own threshold on `healthy` then keeps
jobs away, and no mark is needed. From outside, a mark is what this adapter makes of two things: the host's queue
instances are disabled, and the reason is stored in the host complex `nhc_mark`, which the site defines once
(docs/slurm.md). The queues that nhc disabled are stored with it, so that a queue that an operator had disabled before
stays disabled.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from nhc.core.system.bounded_read import parse_xml
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters._command import CommandMarker, Failures, complaint, understood

COMPLEX = "nhc_mark"


class GridEngine(CommandMarker):
    """Grid Engine, through `qhost`, `qmod` and `qconf`."""

    def _prepare(self) -> None:
        self._queues: Dict[str, Dict[str, str]] = {}

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        chosen = [] if names is None else ["-h", ",".join(names)]
        done = self.command("qhost", "-q", "-F", COMPLEX, "-xml", *chosen)
        if done.status and not done.stdout.lstrip().startswith("<"):
            raise AdapterError(f"qhost: {complaint(done)}")
        self._queues = {}
        return understood("qhost's", parse_qhost, done.stdout, self._queues)

    def _queues_of(self, states: Sequence[NodeState]) -> Dict[str, Dict[str, str]]:
        """The queues of these nodes; read again if some are missing from the last reading."""
        if not all(state.name in self._queues for state in states):
            self._read([state.name for state in states])
        return {state.name: self._queues.get(state.name, {}) for state in states}

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        failures: Failures = {}
        queues_of = self._queues_of(states)
        for state in states:
            queues = queues_of[state.name]
            free = [queue for queue in queues if queue and "d" not in queues[queue]]
            ours = free if state.available else _disabled_by_us(queues)
            value = f"{COMPLEX}={_quote(text)}/{_quote(','.join(ours))}"
            failed = self.try_([state.name], "qconf", "-mattr", "exechost", "complex_values", value, state.name)
            if not failed and state.available and ours:
                instances = [f"{queue}@{state.name}" for queue in ours]
                failed = self.try_([state.name], "qmod", "-d", *instances)
            failures.update(failed)
        return failures

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        failures: Failures = {}
        queues_of = self._queues_of(states)
        for state in states:
            ours = _disabled_by_us(queues_of[state.name])
            failed = self.try_([state.name], "qmod", "-e", *(f"{queue}@{state.name}" for queue in ours)) if ours else {}
            if not failed:
                failed = self.try_([state.name], "qconf", "-dattr", "exechost", "complex_values", COMPLEX, state.name)
            failures.update(failed)
        return failures


def parse_qhost(text: str, queues: Optional[Dict[str, Dict[str, str]]] = None) -> List[NodeState]:
    """`qhost -q -F nhc_mark -xml`; each host's queues and their states go into `queues`. Raises ValueError."""
    root = parse_xml(text)
    return [_host(host, queues) for host in root.iter("host") if host.get("name") not in (None, "global")]


def _host(host: Any, queues: Optional[Dict[str, Dict[str, str]]]) -> NodeState:
    name = str(host.get("name"))
    states: Dict[str, str] = {}
    used = 0
    for queue in host.iter("queue"):
        values = {value.get("name"): (value.text or "").strip() for value in queue.iter("queuevalue")}
        states[str(queue.get("name"))] = values.get("state_string", "")
        used += int(values["slots_used"]) if values.get("slots_used", "").isdigit() else 0
    kept = next((v.text or "" for v in host.iter("resourcevalue") if v.get("name") == COMPLEX), "")
    text, _slash, ours = kept.strip().partition("/")
    if queues is not None:
        queues[name] = {**states, **({"": _unquote(ours)} if ours else {})}
    letters = "".join(states.values())
    # d and D: disabled; E: error; u: unreachable; S, s: suspended. One queue that takes jobs is a node in service.
    available = any(not set(state) & set("dDEuoS") for state in states.values())
    return NodeState(
        name=name,
        shown=",".join(f"{queue}:{state or 'ok'}" for queue, state in sorted(states.items())) or "no queue",
        available=available,
        busy=used > 0,
        mark=read_mark_text(_unquote(text)),
        groups=tuple(sorted(states)),
        flags=frozenset(letters),
    )


def _disabled_by_us(queues: Dict[str, str]) -> List[str]:
    """The queues that our mark says we disabled and that still exist."""
    return [queue for queue in queues.get("", "").split(",") if queue and queue in queues]


def _quote(text: str) -> str:
    """Free text as a complex value holds it: no blank, comma, equals sign, quote or slash."""
    from urllib.parse import quote

    return quote(text, safe="._-")


def _unquote(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text)
