"""Kernel lines that a collector brought to Loki, judged as the node itself would judge them.

Each line goes through nhc's own catalogue and findings, one memory a node, so application faults take nobody
out, harmless ones are counted, and a burst is one finding. What stands becomes a condition of the node.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Sequence

from nhc.core.model import Action, printable
from nhc.node.kernlog import findings, node_context, xid
from nhc.node.kernlog.catalogue import Matcher, rows
from nhc.node.kernlog.collect import add
from nhc.node.kernlog.match import FATAL, Match
from nhc_adapters.kubernetes.controller.acknowledged import covers
from nhc_adapters.kubernetes.controller.loki import LogLine
from nhc_adapters.kubernetes.nodes.conditions import FALSE, KERNEL_LOG, TRUE, Condition

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import Finding, LogState

NODES = 20_000
"""Nodes remembered, those heard from last."""


class _Node:
    def __init__(self) -> None:
        self.matcher = Matcher()
        self.state: LogState = {}
        self.reported = False


class KernelLogs:
    """The faults in the kernel logs of all nodes so far."""

    def __init__(
        self,
        acknowledged: Callable[[str], Mapping[str, float]] = lambda node: {},
        standing: Callable[[str], Mapping[str, float]] = lambda node: {},
    ) -> None:
        self.acknowledged = acknowledged
        """Up to which time each of a node's errors was acknowledged, by the key of its finding."""
        self.standing = standing
        """What a node's condition stands on already: keys of findings, with their times."""
        self._nodes: OrderedDict[str, _Node] = OrderedDict()

    def take(self, lines: Sequence[LogLine], now: float) -> Dict[str, Condition]:
        """Take in lines; the conditions that changed by them, by node."""
        touched: Dict[str, _Node] = {}
        for line in lines:
            node = self._nodes.get(line.node)
            if node is None:
                node = self._nodes[line.node] = self._recalled(line.node, now)
                while len(self._nodes) > NODES:
                    self._nodes.popitem(last=False)
            self._nodes.move_to_end(line.node)
            match = node.matcher.judge(line.text)
            if match is not None:
                add(node.state, match, line.when / 1e9, now)
                touched[line.node] = node
        changed = {}
        for name, node in sorted(touched.items()):
            condition = condition_of(node.state, self.acknowledged(name), now)
            if condition.status == TRUE and dict(condition.findings) == dict(self.standing(name)):
                node.reported = True
                continue  # nothing new: what was said of it stays as it was said
            if condition.status == TRUE or node.reported:
                changed[name] = condition
            node.reported = condition.status == TRUE
        return changed

    def _recalled(self, name: str, now: float) -> _Node:
        """A node by its condition: a finding of an earlier process stands until a line or a person ends it."""
        node = _Node()
        for key, when in self.standing(name).items():
            match = recall(key)
            if match is not None:
                add(node.state, match, when, now)
                finding = node.state.get("findings", {}).get(key)
                if finding is not None:
                    finding["severity"] = FATAL  # as it was judged, whatever else there was then
        node.reported = bool(node.state.get("findings"))
        return node


def recall(key: str) -> Optional[Match]:
    """A finding as the catalogue describes it, by its key alone; None for one that it does not have."""
    kind, _, rest = key.partition("/")
    code, _, device = rest.partition("/")
    if kind in ("xid", "sxid") and code.isdigit():
        if kind == "xid":
            return xid.read_xid(int(code), device, "", "")
        return xid.read_sxid(int(code), device, "", "Fatal", "")
    if kind == "neuron":
        return xid.read_neuron(code, "", "")._replace(device=device)
    for row in rows():
        if (row.kind, row.code) == (kind, code):
            return Match(kind, code, FATAL, Action(row.action), device, row.message)
    return None


def condition_of(state: LogState, acks: Optional[Mapping[str, float]] = None, now: Optional[float] = None) -> Condition:
    """The condition that a node's findings ask for: the fatal ones count, unless they were acknowledged.

    What only the node itself could tell (whether a volume is its own) is never fatal here.
    """
    standing = [
        (key, finding)
        for key, finding in findings.current(state, (), now)
        for finding in [node_context.apart(state, finding)]
        if finding["severity"] == FATAL and not covers(acks or {}, key, float(finding["last"]))
    ]
    fatal: List[Finding] = [finding for _key, finding in standing]
    if not fatal:
        return Condition(KERNEL_LOG, FALSE, "NoKernelLogFault", "no fault in the kernel log that stands")
    first = max(fatal, key=lambda finding: float(finding["last"]))
    more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
    device = f"{first['device']}: " if first["device"] else ""
    action = f" [action: {first['action']}]" if first["action"] != Action.NONE.value else ""
    kind = "Xid" if first["kind"] == "xid" else "SXid" if first["kind"] == "sxid" else ""
    message = printable(f"{device}{first['message']}", 600)
    return Condition(
        KERNEL_LOG,
        TRUE,
        f"{kind}{first['code']}" or "KernelLogFault",
        f"{message}{more}{action}",
        findings=tuple((key, float(finding["last"])) for key, finding in standing),
    )
