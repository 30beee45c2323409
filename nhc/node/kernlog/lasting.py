"""What of a kernel log outlives the state directory, which is on /run: a restart of the node clears that.

A restart repairs no device, ends no count of faults, and takes no acknowledgement back. So the findings of devices, the
counts and the acknowledgements are kept below /var/lib as well. They are written only when they have changed, and by a
child of this process: the disk may be what hangs.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.node.kernlog.findings import OF_A_DEVICE
from nhc.node.kernlog.repeats import RECOVERIES
from nhc.node.kernlog.shape import acknowledged, fit
from nhc.node.kernlog.source import ACKS

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from nhc.core.host import Memory
    from nhc.node.kernlog.state_types import LogState

LIFE = "agent-life"
"""Memory of the boot in which an agent runs or ran, and whether it was told to end."""
WRITE = 2.0
"""Seconds that the disk has to take a few kilobytes; the next run of a check tries again."""


def recall(memory: Memory, store: str, boot: str, began: float) -> LogState:
    """What is left of a store that is empty: of the boot before, or of this one where its state was lost.

    `began` is when this boot did (Unix time). What the log of this boot said, it says again.
    """
    where = memory.lasting()
    held = fit(where.load(store)) if where is not None else {}
    if not held.get("boot"):
        return {}
    kept: LogState = {"boot": held["boot"], "findings": held.get("findings", {}), "history": held.get("history", {})}
    if held["boot"] == boot:
        kept["findings"] = {key: finding for key, finding in kept["findings"].items() if finding.get("before_boot")}
        earlier = {name: [at for at in times if at < began] for name, times in kept["history"].items()}
        kept["history"] = {name: times for name, times in earlier.items() if times}
    return kept


def store_lasting(memory: Memory, store: str, state: LogState) -> None:
    """Write the lasting part of a store, if it has changed since it was written."""
    part: Dict[str, Any] = {
        "boot": state.get("boot", ""),
        "findings": {
            key: finding for key, finding in state.get("findings", {}).items()
            if (finding["kind"] in OF_A_DEVICE or finding.get("recurring")) and not finding.get("drill")
        },
        "history": {
            name: times for name, times in state.get("history", {}).items()
            if name.partition("/")[0] in (*OF_A_DEVICE, "boot")
        },
    }  # fmt: skip
    mark = _mark(part)
    if state.get("kept", 0) != mark and _written(memory, store, part):
        memory.update(store, lambda held: held.update(kept=mark))


def _mark(part: Dict[str, Any]) -> int:
    """A number that changes when another finding stands or a fault has come again; 0 for nothing to keep."""
    import zlib

    parts = [f"{key} {finding['severity']} {finding['action']}" for key, finding in part["findings"].items()]
    parts += [
        f"{name} {len(times)} {times[-2:-1]}"
        for name, times in part["history"].items()
        if name.split("/")[1] in ("*fatal", "Unclean", *RECOVERIES)
    ]
    return zlib.crc32("\n".join([part["boot"], *parts]).encode()) if parts else 0


def _written(memory: Memory, name: str, value: Dict[str, Any]) -> bool:
    from nhc.core.system.children import ask_child

    where = memory.lasting()
    if where is None:
        return False

    def write() -> bool:
        def change(held: Dict[str, Any]) -> None:
            held.clear()
            held.update(value)

        where.update(name, change)
        again = memory.lasting()
        return again is not None and again.load(name) == value

    try:
        return ask_child(write, WRITE) is True
    except OSError:  # no process can be started: the next run tries again
        return False


def agent_begins(memory: Memory, boot: str) -> None:
    """Note that an agent runs in this boot."""
    _written(memory, LIFE, {**_life(memory, boot), "ended": False})


def agent_ends(memory: Memory, boot: str) -> None:
    """Note that the agent was told to end, as at a shutdown: a machine that dies tells it nothing."""
    _written(memory, LIFE, {**_life(memory, boot), "ended": True})


def agent_ended(memory: Memory, boot: str) -> Optional[bool]:
    """Whether the agent of the boot before this one was told to end; None if none ran, or nobody looked then."""
    life = _life(memory, boot)
    if life["before"] is not None and "ended" not in life:
        _written(memory, LIFE, life)  # what is known is of that boot alone, and not of the next one's last
    return life["before"] if isinstance(life["before"], bool) else None


def _life(memory: Memory, boot: str) -> Dict[str, Any]:
    """What is known of the agent in this boot, and as `before` how it ended in the last."""
    where = memory.lasting()
    held = where.load(LIFE) if where is not None else {}
    if held.get("boot") == boot:
        return {"before": None, **held}
    return {"boot": boot, "before": held.get("ended")}


def store_acks(memory: Memory) -> None:
    """Write what is acknowledged."""
    _written(memory, ACKS, {"acks": acknowledged(memory.load(ACKS))})


def stored_acks(memory: Memory, store: str, boot: str) -> List[Dict[str, Any]]:
    """What was acknowledged of a store in this boot, oldest first: asked where its state was lost."""
    held = acknowledged(memory.load(ACKS))
    where = memory.lasting()
    if not held and where is not None:
        held = acknowledged(where.load(ACKS))
    fitting = [ack for ack in held if isinstance(ack, dict) and boot and ack.get("boot") == boot]
    return [ack for ack in fitting if isinstance(ack.get("cursors"), dict) and store in ack["cursors"]
            and isinstance(ack.get("at"), (int, float)) and isinstance(ack.get("key"), str)]  # fmt: skip


def covers(ack: Dict[str, Any], store: str, number: int, when: Optional[float]) -> bool:
    """Whether a record was there when this was acknowledged: by the kernel's number, else by its time."""
    cursor = ack["cursors"][store]
    if number >= 0 and isinstance(cursor, int):
        return number <= cursor
    return when is None or when <= ack["at"]
