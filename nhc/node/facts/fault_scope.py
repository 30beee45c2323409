"""The scope of a fault: the node or, by its reason (nhc/core/data/scopes.tsv), one accelerator, a link, a board.

A fault of a device that cannot be reset alone is a fault of its board: GPUs before the Ampere generation with NVLink
are reset together (nvidia-smi's manual, --gpu-reset), as are AMD's in one XGMI hive (amdgpu_device_gpu_recover).
"""

from __future__ import annotations

from nhc.core.data.reader import table
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, Scope, Verdict

if TYPE_CHECKING:
    from typing import Dict, List, Sequence


def with_scope(host: Host, outcomes: Sequence[Outcome]) -> List[Outcome]:
    """The outcomes with scope and device, if a check has not set them. An UNKNOWN keeps the scope of the node."""
    scopes = _scopes()
    return [_about(host, outcome, scopes) for outcome in outcomes]


def scope_of(reason: str) -> Scope:
    """The scope of a fault with this reason, if its device is known."""
    return _scope(reason, _scopes())


def _scopes() -> Dict[str, str]:
    return {row[0]: row[1] for row in table("scopes.tsv")}


def _scope(reason: str, scopes: Dict[str, str]) -> Scope:
    numbered = f"{reason.rstrip('0123456789')}*"
    return Scope(scopes.get(reason) or scopes.get(numbered) or Scope.NODE)


def _about(host: Host, outcome: Outcome, scopes: Dict[str, str]) -> Outcome:
    if outcome.verdict not in (Verdict.WARN, Verdict.CRIT) or outcome.scope is not Scope.NODE:
        return outcome
    scope = _scope(outcome.reason, scopes)
    if scope is Scope.NODE:
        return outcome
    from nhc.node.facts import device_identity  # not needed for a fault of the node: its imports take 3 ms

    device = outcome.device if outcome.device.known else device_identity.device_of(host, outcome.target)
    if scope is Scope.DEVICE:
        if not device.known:
            return outcome
        if device.pci and device_identity.reset_together(host, device.pci):
            scope = Scope.BOARD
    return outcome._replace(scope=scope, device=device)
