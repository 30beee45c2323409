"""The few forms of protobuf's wire format that nhc needs on a node: fields are written, and those of one message read.

Source: "Encoding" of the Protocol Buffers documentation. Protobuf's own library would be 5 MB of each node's memory.
"""

from __future__ import annotations

import struct

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List, Tuple


def message(number: int, data: bytes) -> bytes:
    """A field that is a message, or bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def text(number: int, value: str) -> bytes:
    return message(number, value.encode("utf-8", "replace"))


def integer(number: int, value: int) -> bytes:
    """int64, an enumeration or bool."""
    return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def fixed64(number: int, value: int) -> bytes:
    """fixed64 or sfixed64."""
    return _varint(number << 3 | 1) + struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)


def double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def fields(data: bytes) -> List[Tuple[int, Any]]:
    """The fields of a message as (number, value), in their order: whole numbers (fixed ones unsigned), or bytes.

    Raises ValueError where it is no message.
    """
    values: List[Tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            whole, at = _read_varint(data, at)
            values.append((key >> 3, whole))
            continue
        size, at = _read_varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}.get(key & 7, -1), at)
        if size < 0:
            raise ValueError(f"not a protobuf message: wire type {key & 7}")
        if at + size > len(data):
            raise ValueError("not a protobuf message: it is cut off")
        value = data[at : at + size]
        values.append((key >> 3, value if key & 7 == 2 else int.from_bytes(value, "little")))
        at += size
    return values


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _read_varint(data: bytes, at: int) -> Tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(data):
            break
        value |= (data[at + place] & 0x7F) << (7 * place)
        if data[at + place] < 0x80:
            return value, at + place + 1
    raise ValueError("not a protobuf message: a number is cut off or too long")
