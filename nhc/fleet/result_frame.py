"""A finished node on its way from a shard to the sweep's own process."""

from __future__ import annotations

import pickle
import struct
import time
import zlib
from typing import Dict, Iterator, NamedTuple, Tuple, Union

from nhc.fleet import node_result
from nhc.fleet.clean_report import Finding, Number
from nhc.fleet.transport import Node, Trouble

LENGTH = struct.Struct(">I")
"""What precedes each result in the pipe: its size."""


class Arrived(NamedTuple):
    """A finished node as the parent gets it: its place in the list of nodes. `line` is its JSON, compressed."""

    place: int
    verdict: int
    seconds: float
    findings: Tuple[Finding, ...]
    metrics: Tuple[Number, ...]
    labels: Dict[str, str]
    line: bytes

    def text(self) -> str:
        return zlib.decompress(self.line).decode()


def arrival(index: int, done: node_result.NodeResult) -> Arrived:
    """What the parent gets about the node at this place."""
    report = done.report
    return Arrived(
        index, int(report.verdict), done.seconds, node_result.findings(report), node_result.metrics(report),
        dict(report.labels), zlib.compress(node_result.line(done).encode(errors="replace"), 1),
    )  # fmt: skip


def failed(node: Node, trouble: Trouble, seconds: float, attempts: int) -> node_result.NodeResult:
    """The result of a node that could not be judged."""
    return node_result.NodeResult(node, node_result.unreached(node, trouble, time.time(), attempts), seconds, attempts)


class Returned(NamedTuple):
    """Nodes that a shard hands back, having had nothing to reach them with."""

    places: Tuple[int, ...]


class Scarce(NamedTuple):
    """A shard had fewer nodes in hand at a time than it was to have, for want of processes, threads or descriptors."""

    least: int
    most: int


def pack(message: Union[Arrived, Returned, Scarce]) -> bytes:
    """A finished node, or a shard's message, as the pipe carries it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def unpack(buffer: bytearray) -> Iterator[Union[Arrived, Returned, Scarce]]:
    """The whole arrivals and messages at the start of what came over the pipe, which they are taken from."""
    at = 0
    while len(buffer) - at >= LENGTH.size:
        (size,) = LENGTH.unpack_from(buffer, at)
        if len(buffer) - at - LENGTH.size < size:
            break
        at += LENGTH.size
        yield pickle.loads(bytes(buffer[at : at + size]))  # noqa: S301 (from our own child)
        at += size
    del buffer[:at]
