"""After a scheduler's reboot of a node, judge it once more as soon as it has registered again.

slurmd runs its HealthCheckProgram once before it registers, and then after HealthCheckInterval. A state that is set on
the node in between may be lost: Slurm 22.05 keeps a drain that was set between boot and registration of a plain reboot,
but drops it after `scontrol reboot ASAP`; a mark of ours cannot be cleared before the registration. So a separate
process waits for the registration, and acts on the same report.
"""

from __future__ import annotations

import os
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.state.store import State
from nhc.hooks import log
from nhc.marks.ports.adapter import AdapterError, Marker

if TYPE_CHECKING:
    from typing import Any, Callable, Dict

MEMORY = "after-boot"
WAIT = 120.0
"""Longest wait for the registration, in seconds: it follows the health check at once."""
EVERY = 0.3
"""Seconds between two queries. Only a few nodes query: unhealthy or marked ones, right after their boot."""


def is_rebooted(adapter: Marker, node: str) -> bool:
    """Whether the scheduler waits for the node after a reboot. Raises AdapterError."""
    return any(state.rebooting for state in adapter.nodes([node]) if state.name == node)


def act_once_rejoined(adapter: Marker, node: str, state: State, act: Callable[[], object]) -> None:
    """Call `act` in a process of its own when the node has registered with the scheduler, within WAIT seconds."""
    if not _first(node, state):
        return

    def child() -> None:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        ends = time.monotonic() + WAIT
        while time.monotonic() < ends:
            try:
                if not is_rebooted(adapter, node):
                    act()
                    break
            except AdapterError:
                pass  # it may be the controller that restarts
            time.sleep(EVERY)
        state.update(MEMORY, lambda memory: memory.pop(node, None))

    from nhc.core.system.children import fork

    try:
        fork(child, pipes=0)
    except OSError as error:
        log.error(f"{node}: no process can wait for its registration: {error.strerror}")


def _first(node: str, state: State) -> bool:
    """Whether no process is waiting for this node yet."""
    now = time.time()
    first = False

    def claim(memory: Dict[str, Any]) -> None:
        nonlocal first
        until = memory.get(node)
        first = not isinstance(until, (int, float)) or not now < until <= now + WAIT
        if first:
            memory[node] = now + WAIT

    state.update(MEMORY, claim)
    return first
