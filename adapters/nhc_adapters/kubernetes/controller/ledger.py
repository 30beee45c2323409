"""The controller's recent operations, stored in a ConfigMap: time budgets survive a restart and a change of leader.

The ceilings need no memory, since the nodes themselves show what is out. A rate ("at most 20 nodes an hour")
and the count of repairs do: each operation that one of them counts is written here before it is done, as
`nhc.marks.policy.ledger` does in a file on a head node.
"""

from __future__ import annotations

import json
from typing import Any, Dict, FrozenSet, Iterable, List, Optional

from nhc.core.json_values import list_of, number_of
from nhc.core.system.bounded_read import parse_json
from nhc.marks.policy.bounds import BegunAction
from nhc.marks.policy.ledger import SPENT_NOTHING
from nhc.marks.policy.mark_decision import Policy, history_needed
from nhc.marks.ports.adapter import Applied, Operation, PlannedOperation
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced

KEY = "deeds"
LIMIT = 6000
"""Operations kept: 60 bytes each stay well below the 1 MiB of a ConfigMap."""


class ClusterLedger:
    """The history of operations that `policy` counts. One writer at a time: the holder of the Lease."""

    def __init__(self, client: Client, namespace: str, name: str, policy: Policy) -> None:
        self.client, self.namespace, self.name = client, namespace, name
        self.policy = policy
        self._past: List[BegunAction] = []
        self._version = ""

    @property
    def counted(self) -> FrozenSet[Operation]:
        """The kinds of operations worth remembering."""
        return frozenset(self.policy.rates) | frozenset(self.policy.repairs)

    def load(self) -> None:
        """Read the history again, as after a change of leader. Raises AdapterError."""
        item = self.client.find(namespaced(self.namespace, "configmaps", self.name)) or {}
        self._past = _read((item.get("data") or {}).get(KEY, ""))
        self._version = str(item.get("metadata", {}).get("resourceVersion", ""))

    def history(self, since: float = 0.0) -> List[BegunAction]:
        return [past for past in self._past if past.when >= since]

    def begin(self, operations: Iterable[PlannedOperation], now: float) -> None:
        """Write down what is about to be done, before it is. Raises AdapterError: then nothing may be done."""
        counted = self.counted
        new = [BegunAction(now, one.node, one.operation.value) for one in operations if one.operation in counted]
        if not new:
            return
        horizon = now - history_needed(self.policy)
        kept = [past for past in self._past if past.when >= horizon] + new
        self._save(kept[-LIMIT:])

    def end(self, operation: Operation, applied: Iterable[Applied], now: float) -> None:
        """Forget what turned out not to be needed. Kept in memory until the next `begin`."""
        del now
        for result in applied:
            if result.effect in SPENT_NOTHING:
                self._forget(result.node, operation)

    def _forget(self, node: str, operation: Operation) -> None:
        for place in range(len(self._past) - 1, -1, -1):
            if (self._past[place].node, self._past[place].action) == (node, operation.value):
                del self._past[place]
                return

    def _save(self, past: List[BegunAction]) -> None:
        data = {"data": {KEY: "\n".join(json.dumps([p.when, p.node, p.action]) for p in past)}}
        if not self._version:
            body: Dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, **data}
            saved = self.client.post(namespaced(self.namespace, "configmaps"), body)
        else:
            # The version makes a second writer fail: two controllers must not spend one budget.
            body = {"metadata": {"resourceVersion": self._version}, **data}
            saved = self.client.patch(namespaced(self.namespace, "configmaps", self.name), body, MERGE_PATCH)
        self._past, self._version = past, str(saved["metadata"]["resourceVersion"])


def _read(text: str) -> List[BegunAction]:
    """Operations, one JSON list a line; a line that makes no sense is skipped."""
    return [past for past in map(_line, text.splitlines()) if past is not None]


def _line(line: str) -> Optional[BegunAction]:
    try:
        when, node, operation = list_of(parse_json(line))
        moment = number_of(when)
        return None if moment is None else BegunAction(moment, str(node), Operation(operation).value)
    except ValueError:
        return None
