"""The few forms of protobuf's wire format that OTLP needs: fields are written, and those of one message read.

Source: "Encoding" of the Protocol Buffers documentation. OpenTelemetry's messages by protobuf's own library would be
5 MB of each node's memory.
"""

from __future__ import annotations

import struct
from typing import Dict, Tuple, Union


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


def fields(data: bytes) -> Dict[int, Union[int, bytes]]:
    """The fields of a message by their numbers, each as it came last. Raises ValueError where it is none."""
    found: Dict[int, Union[int, bytes]] = {}
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        kind = key & 7
        if kind == 0:
            found[key >> 3], place = _read_varint(data, place)
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, place = _read_varint(data, place)
        elif not size:
            raise ValueError(f"wire type {kind}")
        if place + size > len(data):
            raise ValueError("cut")
        found[key >> 3] = data[place : place + size]
        place += size
    return found


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _read_varint(data: bytes, place: int) -> Tuple[int, int]:
    value = 0
    for count in range(10):
        if place + count >= len(data):
            raise ValueError("cut")
        byte = data[place + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, place + count + 1
    raise ValueError("a number of more than ten bytes")
