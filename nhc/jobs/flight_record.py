"""PyTorch's NCCL flight record (`TORCH_NCCL_DUMP_ON_TIMEOUT`): who has not come to the collective that others wait in.

Each rank leaves a file whose name ends in its number. PyTorch writes a pickle; JSON is read as well. A pickle can run
any program while it is read, so this reader refuses every name in it: dicts, lists, texts and numbers are all that a
record consists of (Python's documentation of pickle, "Restricting Globals"). A pickle of some hundred bytes can hold a
list whose text, or a key whose hash, has more parts than can ever be counted, and one of nine bytes asks for 32 GB
(LONG_BINPUT with the index 0x7fffffff): its opcodes are checked before any of it is loaded, nothing but texts and
numbers is made a text, and a record is read in a child process with a deadline and a bound of memory. Fields:
torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from collections import Counter, deque
from typing import Any, Deque, Dict, Iterable, List, Mapping, NamedTuple, Tuple

from nhc.core.system.foreign_text import Unreadable, read_apart

LIMIT = 256 << 20
"""Bytes of one record that are read: 2000 entries with their stacks are some megabytes."""
SECONDS = 60.0
"""For reading one record: a whole one of LIMIT takes a few."""
MEMORY = 4 << 30
"""Bytes that reading one may take: the values of a record of LIMIT have some ten times its size."""
LONGEST_NAME = 200
_PLAIN = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET",
    "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
    "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE",
    "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "EMPTY_LIST", "APPEND", "APPENDS", "LIST",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET",
    "ADDITEMS", "FROZENSET",
})  # fmt: skip
"""The opcodes that make containers, texts and numbers. All others make, call or fetch something."""
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


class BadFlightRecord(Unreadable):
    """A file that is no flight record: one line."""


class GroupPlace(NamedTuple):
    """How far a rank is in one process group: the last collective that it has begun to wait in, and that has ended."""

    enqueued: int
    completed: int
    name: str


class FlightRecord(NamedTuple):
    """One rank's record: its place in each process group, and which ranks a group has, where the record says."""

    rank: int
    places: Mapping[str, GroupPlace]
    members: Mapping[str, Tuple[int, ...]]


class Lag(NamedTuple):
    """A rank that the others of a group wait for."""

    rank: int
    why: str


class _Plain(pickle.Unpickler):
    """Reads containers, texts and numbers; whatever names a class or a function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadFlightRecord(f"it names {module}.{name}, which no flight record needs: not read")

    def persistent_load(self, pid: Any) -> Any:
        raise BadFlightRecord("it refers to something outside itself: not read")


def rank_of(path: str) -> int:
    """The rank in a file's name. Raises BadFlightRecord."""
    match = re.search(r"(\d+)(?:\.json|\.pkl|\.pickle)?$", path)
    if match is None:
        raise BadFlightRecord("its name does not end in a rank")
    return int(match[1])


def read(content: bytes, rank: int, seconds: float = SECONDS) -> FlightRecord:
    """One record, read in a child process. Raises BadFlightRecord, OSError where no process can be started."""
    try:
        return read_apart(lambda: _read(content, rank), seconds, MEMORY)
    except Unreadable as error:
        raise BadFlightRecord(f"{error}: not read" if "within" in str(error) else str(error)) from None


def _check_opcodes(content: bytes) -> None:
    """Look through a pickle without loading it. Raises BadFlightRecord, ValueError where it is none.

    A place in the memory of the unpickler is a number in the stream, and it makes room up to that: it counts what it
    puts there from 0, so no number is larger than the count of opcodes before it.
    """
    texts: Deque[str] = deque(("", ""), maxlen=2)
    for number, (opcode, argument, _at) in enumerate(pickletools.genops(content)):
        if opcode.name not in _PLAIN:
            named = argument.replace(" ", ".") if isinstance(argument, str) else ".".join(texts)
            what = f"it names {named}" if "GLOBAL" in opcode.name or opcode.name == "INST" else f"it has {opcode.name}"
            raise BadFlightRecord(f"{what[:200]}, which no flight record needs: not read")
        if isinstance(argument, str):
            texts.append(argument)
        if opcode.name in _PUTS and (argument is None or argument > number):
            raise BadFlightRecord(f"it asks for room for {argument} values after {number}: not read")


def _read(content: bytes, rank: int) -> FlightRecord:
    try:
        is_json = content.lstrip()[:1] in (b"{", b"[")
        if not is_json:
            _check_opcodes(content)
        value = json.loads(content) if is_json else _Plain(io.BytesIO(content)).load()
    except (BadFlightRecord, MemoryError):
        raise
    except Exception as error:  # the unpickler raises whatever a broken stream leads it to
        raise BadFlightRecord(f"cannot be read: {type(error).__name__}: {str(error)[:120]}") from None
    try:
        return _record(value, rank)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise BadFlightRecord(f"is not a flight record: {type(error).__name__}: {str(error)[:120]}") from None


def _record(value: Any, rank: int) -> FlightRecord:
    entries: List[Mapping[str, Any]] = value["entries"]
    enqueued: Dict[str, int] = {}
    completed: Dict[str, int] = {}
    names: Dict[str, str] = {}
    for entry in entries:
        if entry.get("is_p2p"):
            continue
        group = _group(entry)
        number = _number(entry.get("collective_seq_id", entry.get("seq_id", 0)))
        if number >= enqueued.get(group, 0):
            enqueued[group] = number
            names[group] = _text(entry.get("profiling_name", ""))
        if entry.get("state") == "completed":
            completed[group] = max(completed.get(group, 0), number)
    status: Mapping[str, Mapping[str, Any]] = value.get("pg_status") or {}
    for group, counts in status.items():
        key = _text(group)
        enqueued[key] = max(enqueued.get(key, 0), _number(counts.get("last_enqueued_collective", 0)))
        completed[key] = max(completed.get(key, 0), _number(counts.get("last_completed_collective", 0)))
    places = {
        group: GroupPlace(number, completed.get(group, 0), names.get(group, "")) for group, number in enqueued.items()
    }
    return FlightRecord(rank, places, _members(value.get("pg_config") or {}))


def _group(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    return _text(group[0] if isinstance(group, (list, tuple)) and group else entry.get("pg_id", 0))


def _members(config: Mapping[str, Any]) -> Dict[str, Tuple[int, ...]]:
    members = {}
    for group, settings in config.items():
        ranks = settings.get("ranks", "") if isinstance(settings, Mapping) else ""
        listed = ranks if isinstance(ranks, (list, tuple)) else re.findall(r"\d{1,9}", _text(ranks, LIMIT))
        if listed:
            members[_text(group)] = tuple(_number(rank) for rank in listed)
    return members


def _text(value: Any, most: int = LONGEST_NAME) -> str:
    """A name as text. Raises BadFlightRecord for what holds other values."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise BadFlightRecord(f"is not a flight record: a number of {value.bit_length()} bits")
    if value is not None and not isinstance(value, (str, int, float)):
        raise BadFlightRecord(f"is not a flight record: a {type(value).__name__} where a name or a number stands")
    return str(value)[:most]


def _number(value: Any) -> int:
    """A count. Raises BadFlightRecord."""
    text = _text(value)
    if re.fullmatch("-?[0-9]{1,18}", text) is None:  # -1: none yet
        raise BadFlightRecord(f"is not a flight record: {text[:40]!r} where a number stands")
    return int(text)


def lags(records: Iterable[FlightRecord]) -> List[Lag]:
    """The ranks that others wait for, by the records of one job. Pure.

    In each group those that have begun fewer collectives than most; of those that have begun as many, those that have
    not ended what others have. Members that left no record, where others did.
    """
    by_rank = {record.rank: record for record in records}
    groups: Dict[str, Dict[int, GroupPlace]] = {}
    members: Dict[str, set[int]] = {}
    for record in by_rank.values():
        for group, place in record.places.items():
            groups.setdefault(group, {})[record.rank] = place
        for group, ranks in record.members.items():
            members.setdefault(group, set()).update(ranks)
    behind: List[Lag] = []
    for group, places in sorted(groups.items()):
        most = max(place.enqueued for place in places.values())
        waiting = [rank for rank, place in places.items() if place.enqueued == most]
        for rank, place in sorted(places.items()):
            if place.enqueued < most:
                name = next((places[rank].name for rank in waiting if places[rank].name), "")
                what = f"{name} {most}" if name else f"collective {most}"
                behind.append(Lag(rank, f"has not come to {what} of group {group}: it is at {place.enqueued}, "
                                       f"{len(waiting)} ranks wait"))  # fmt: skip
        if len(waiting) == len(places) and len(places) > 1:
            behind += _unfinished(group, places)
        for rank in sorted(members.get(group, set()) - set(by_rank)):
            behind.append(Lag(rank, f"left no flight record, {len(by_rank)} others did"))
    return list(dict.fromkeys(behind))


def _unfinished(group: str, places: Mapping[int, GroupPlace]) -> List[Lag]:
    """Ranks that have not ended a collective that most have."""
    counts = Counter(place.completed for place in places.values())
    furthest = max(counts)
    behind = [rank for rank, place in places.items() if place.completed < furthest]
    if not behind or len(behind) * 2 > len(places):
        return []
    return [Lag(rank, f"has not ended collective {furthest} of group {group}, which "
                      f"{len(places) - len(behind)} ranks have") for rank in sorted(behind)]  # fmt: skip
