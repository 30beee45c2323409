"""Plans kept from run to run: the same files give the same plan, so most runs need not read the language.

Reading sixty lines and loading the modules that understand them costs more than judging them
(docs/performance.md). A kept plan is used only while every file and directory it was made of has the same
inode, size and times, under the same nhc and for the same question. It lies in the state directory, which
nobody else can write to; anything odd about it is a miss.
"""

from __future__ import annotations

import binascii
import marshal
import os
import sys
import time

from nhc import __version__
from nhc.core.light import TYPE_CHECKING
from nhc.core.plan import BUILT_IN, Declared, Item, Plan
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence, Tuple

_FORMAT = 8
_SUM = 4
"""Bytes of the checksum before a kept plan."""
_LARGEST = 8 << 20
"""Bytes of a plan that are kept: the state directory lies in memory, and some 60,000 lines take this much."""
_KEPT = 64
"""Plans that are kept. A node asks a few questions; upgrades and pushed configurations leave others behind."""
_RACY = 20_000_000
"""Nanoseconds: the clock that file times are taken from ticks every 4 to 10 ms."""


def cached(state: State, question: Sequence[Any], make: Callable[[], Plan]) -> Plan:
    """The kept plan for `question` (everything that was asked, plain values), else `make()`'s, kept for next time.

    What `make` raises is raised. A plan whose `inputs` are empty is not kept, nor one with notes: those are
    worth saying with their explanations.
    """
    where = sys.prefix, os.environ.get("PYTHONPATH", "")  # what is installed there may offer checks
    key = repr((_FORMAT, __version__, _stamp(code_path()), where, tuple(question)))
    name = f"plan-{binascii.crc32(key.encode()):08x}.cache"
    plan = _decode(state.load_bytes(name), key)
    if plan is None:
        _in_force(())
        begun = time.time_ns()
        plan = make()
        if plan.inputs and not plan.notes:
            stamps = tuple((path, _stamp(path)) for path in plan.inputs)
            # What was changed while it was read, or just before, may not be what was read.
            if all(stamp is None or stamp[3] < begun - _RACY for _, stamp in stamps):
                content = _encode(plan, key, stamps)
                if len(content) <= _LARGEST:
                    state.save_bytes(name, content, most=_KEPT)
    _in_force(plan.offered)
    return plan


def _in_force(offered: Sequence[Tuple[str, str, str]]) -> None:
    """Say which checks of installed packages a plan knows. Their table is loaded only where there are any."""
    if offered or "nhc.core.check_index" in sys.modules:
        from nhc.core.check_index import OFFERED

        OFFERED.clear()
        OFFERED.update((name, (where, distribution)) for name, where, distribution in offered)


def directory(paths: Sequence[str]) -> str:
    """What relative paths are relative to: part of the question where there are any."""
    if all(path.startswith("/") for path in paths if path):
        return ""
    try:
        return os.getcwd()
    except OSError:  # it has been removed, and they name nothing
        return ""


def code_path() -> str:
    """What changes when nhc is upgraded: a check that was renamed makes a kept plan wrong, and a kept verdict."""
    import nhc.node.checks

    loader: Any = nhc.node.checks.__spec__.loader
    return str(getattr(loader, "archive", None) or os.path.dirname(nhc.node.checks.__file__))


def _stamp(path: str) -> Optional[Tuple[int, ...]]:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _encode(plan: Plan, key: str, stamps: Sequence[Any]) -> bytes:
    items = [_plain(item) for item in plan.items]
    body = marshal.dumps((key, tuple(stamps), items, dict(plan.settings), plan.scripts, plan.offered))
    return binascii.crc32(body).to_bytes(_SUM, "little") + body


def _decode(content: bytes, key: str) -> Optional[Plan]:
    body = content[_SUM:]
    if not body or int.from_bytes(content[:_SUM], "little") != binascii.crc32(body):
        return None
    try:
        kept_key, stamps, items, settings, scripts, offered = marshal.loads(body)  # noqa: S302 (nobody else can write it)
        if kept_key != key or any(_stamp(path) != stamp for path, stamp in stamps):
            return None
        inputs = tuple(path for path, _ in stamps)
        return Plan(tuple(_item(item) for item in items), settings, scripts, (), inputs, offered)
    except (ValueError, TypeError, EOFError):
        return None


def _plain(item: Item) -> Tuple[Any, ...]:
    """An item in the plain tuples and dicts that marshal keeps, with what its check declares.

    A line that is wrong is not declared: it has to be reported again, and may have been corrected elsewhere.
    """
    from nhc.core.declare import declare

    declared = declare(item.argv) if item.kind == BUILT_IN else None
    return (
        *item._replace(settings=dict(item.settings), declared=None)[:-1],
        tuple(declared) if isinstance(declared, Declared) else None,
    )


def _item(kept: Sequence[Any]) -> Item:
    *fields, declared = kept
    return Item(*fields)._replace(declared=Declared(*declared) if declared else None)
