"""The kubelet's question to a container runtime, asked by hand: is it ready?

CRI is gRPC over a Unix socket (kubernetes/cri-api, runtime/v1/api.proto). One call needs little of HTTP/2 (RFC
9113), of its header compression (RFC 7541, without Huffman and without the dynamic table) and of protobuf, and
saves a node the `crictl` command and its 50 ms of start.
"""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.plain_http import NoHttpResponse, left
from nhc.core.system.protobuf import fields

if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, Optional, Tuple

VERSIONS = ("runtime.v1", "runtime.v1alpha2")
"""The services that runtimes offer; the older one was all that containerd 1.5 had."""
UNIMPLEMENTED = 12
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
# The name of the header as HPACK writes it, with Huffman's code (which Go's servers use) and plain.
_STATUS = (b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f", b"\x0bgrpc-status")
_LIMIT = 4 << 20


class RuntimeCondition(NamedTuple):
    """One of the runtime's conditions: RuntimeReady, NetworkReady and what it adds."""

    type: str
    status: bool
    reason: str
    message: str


class Refused(NoHttpResponse):
    """The server answered the call with an error. `code` is gRPC's."""

    def __init__(self, code: Optional[int]) -> None:
        super().__init__(f"it answered with gRPC status {'unknown' if code is None else code}")
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _header(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call_bytes(path: str) -> bytes:
    """Everything that a client sends for a call of `path` with an empty message."""
    block = b"\x83\x86" + b"\x04" + bytes((len(path),)) + path.encode()  # :method POST, :scheme http, :path
    block += b"\x01\x09localhost"  # :authority
    block += _header(b"content-type", b"application/grpc") + _header(b"te", b"trailers")
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(_SETTINGS, 0, 0, b"")
        + frame(_HEADERS, _END_HEADERS, 1, block)
        + frame(_DATA, _END_STREAM, 1, b"\0\0\0\0\0")
    )


def grpc_status(block: bytes) -> Optional[int]:
    """The status in a compressed block of headers; None where it is not there, or written in a way not known here."""
    for name in _STATUS:
        at = block.find(name)
        if at >= 0:
            length = block[at + len(name)] if at + len(name) < len(block) else 0
            value = block[at + len(name) + 1 : at + len(name) + 1 + length]
            return int(value) if length < 4 and value.isdigit() else None
    return None


def parse_status(message: bytes) -> Tuple[RuntimeCondition, ...]:
    """The conditions of a StatusResponse. Raises ValueError."""
    conditions = []
    for number, status in fields(message):
        for inner, condition in fields(status) if number == 1 and isinstance(status, bytes) else ():
            if inner == 1 and isinstance(condition, bytes):
                values: Dict[int, Any] = dict(fields(condition))
                conditions.append(RuntimeCondition(_text(values.get(1)), bool(values.get(2)), _text(values.get(3)),
                                       _text(values.get(4))))  # fmt: skip
    return tuple(conditions)


def parse_version(message: bytes) -> Tuple[str, str]:
    """Name and version of the runtime in a VersionResponse. Raises ValueError."""
    values: Dict[int, Any] = dict(fields(message))
    return _text(values.get(2)), _text(values.get(3))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def call(socket_path: str, path: str, until: float) -> bytes:
    """The message that answers a call without arguments. Raises NoHttpResponse, Refused, PermissionError."""
    import socket

    data = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(left(until))
            connection.connect(socket_path)
            connection.sendall(call_bytes(path))
            body, acknowledged, spoke = b"", False, False
            while len(body) + len(data) < _LIMIT:
                while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                    size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
                    payload, data = data[9 : 9 + size], data[9 + size :]
                    spoke = spoke or kind == _SETTINGS
                    if not spoke:
                        raise NoHttpResponse("it does not speak gRPC")
                    if kind == _SETTINGS and not flags & _ACK and not acknowledged:
                        _acknowledge(connection, frame(_SETTINGS, _ACK, 0, b""))
                        acknowledged = True
                    elif kind == _PING and not flags & _ACK:
                        _acknowledge(connection, frame(_PING, _ACK, 0, payload))
                    elif kind in (_RST, _GOAWAY):
                        raise NoHttpResponse("it broke the call off")
                    elif kind == _DATA:
                        body += payload
                    if kind in (_HEADERS, _DATA) and flags & _END_STREAM:
                        code = grpc_status(payload) if kind == _HEADERS else 0
                        if code != 0 or len(body) < 5:
                            raise Refused(code)
                        return body[5 : 5 + int.from_bytes(body[1:5], "big")]
                connection.settimeout(left(until))
                more = connection.recv(65536)
                if not more:
                    raise NoHttpResponse("it closed the connection" if spoke else "it does not speak gRPC")
                data += more
                if not spoke and len(data) >= 4 and data[3] != _SETTINGS:
                    raise NoHttpResponse("it does not speak gRPC")
        except PermissionError:
            raise
        except OSError as error:
            gone = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
            raise NoHttpResponse(error.strerror or str(error), gone) from None
    raise NoHttpResponse("its answer does not end")


def _acknowledge(connection: socket.socket, reply: bytes) -> None:
    """A server that has answered and closed wants no acknowledgement: what it said is still to be read."""
    try:
        connection.sendall(reply)
    except (BrokenPipeError, ConnectionResetError):
        pass


def ask(socket_path: str, deadline: float) -> Dict[str, Any]:
    """What the runtime says, as plain values for a recording.

    {"runtime": NAME, "version": V, "conditions": [[...]]}, or {"problem": TEXT, "refused": BOOL, "code": gRPC's}.
    """
    until = time.monotonic() + deadline
    problem: Dict[str, Any] = {}
    for service in VERSIONS:
        try:
            name, version = parse_version(call(socket_path, f"/{service}.RuntimeService/Version", until))
            conditions = parse_status(call(socket_path, f"/{service}.RuntimeService/Status", until))
        except Refused as error:
            problem = {"problem": str(error), "code": error.code}
            if error.code == UNIMPLEMENTED:
                continue
            return problem
        except NoHttpResponse as error:
            return {"problem": str(error), "refused": error.refused}
        except ValueError as error:
            return {"problem": f"its answer is {error}"}
        return {"runtime": name, "version": version, "conditions": [list(each) for each in conditions]}
    return problem
