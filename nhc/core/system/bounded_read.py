"""Read what somebody else wrote, a file or what is packed in it: bounded in size and in time.

A file may have no end (/dev/zero), a pipe no writer, and a symbolic link may lead to either. What is no file at
all, or larger than any such file is, is an OSError that says so. A few bytes may be packed from gigabytes, and a few
lines of XML may name an entity that is as large: neither is followed.
"""

from __future__ import annotations

import os
import stat
import time

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List, Union
    from xml.etree.ElementTree import Element

LIMIT = 64 << 20
"""Bytes of a file that a person or a program of theirs wrote."""
PIPE_WAIT = 30.0
"""Seconds within which a pipe (`-c <(command)`) has to be written to its end."""


def read_bytes(path: str, limit: int = LIMIT) -> bytes:
    """The content of a regular file, of a pipe that has a writer (one without is empty) or of /dev/null.

    Raises OSError, also for what is no such file or is larger than `limit` bytes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", path)
        if stat.S_ISFIFO(mode):
            return _within(fd, path, limit)
        if not stat.S_ISREG(mode) and path != os.devnull:
            raise OSError(22, "not a file", path)
        return _to_the_end(fd, path, limit)
    finally:
        os.close(fd)


def open_file(path: str) -> int:
    """The descriptor of a regular file, to be read piece by piece. Raises OSError, also for what is no file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a file", path)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_text(path: str, limit: int = LIMIT, errors: str = "strict") -> str:
    """What `read_bytes` reads, as text. Raises OSError; UnicodeDecodeError where `errors` is strict."""
    return read_bytes(path, limit).decode("utf-8", errors)


def read_head(path: str, limit: int) -> bytes:
    """The first `limit` bytes of a regular file. Raises OSError."""
    fd = open_file(path)
    try:
        return _up_to(fd, limit)
    finally:
        os.close(fd)


def cause(error: Exception) -> str:
    """Why a file could not be read as text, for a person: what the system says, or which byte is no UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8 text"
    return str(getattr(error, "strerror", None) or error)


def read_input(limit: int = LIMIT) -> str:
    """Standard input to its end, as text. Raises OSError and UnicodeDecodeError."""
    return _to_the_end(0, "standard input", limit).decode()


def parse_json(text: Union[str, bytes]) -> Any:
    """A JSON value. Raises ValueError, also for arrays within arrays beyond what the parser can follow."""
    import json

    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


class TooLarge(ValueError):
    """More bytes, or more values, than it may have."""


GZIP = 31
"""zlib's number for gzip's form alone; 47 takes zlib's as well."""


def unpacked(data: bytes, limit: int = LIMIT, form: int = 47) -> bytes:
    """What zlib packed, of at most `limit` bytes, whole. Raises TooLarge, ValueError."""
    import zlib

    unpacker = zlib.decompressobj(form)
    try:
        body = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"not {'gzip' if form == GZIP else 'what zlib packs'}: {error}") from None
    if len(body) > limit:
        raise TooLarge(f"more than {limit} bytes when unpacked")
    if not unpacker.eof:
        raise ValueError("the gzip stream is cut")
    if unpacker.unused_data:
        raise ValueError("something stands after the gzip stream")
    return body


def parse_xml(text: str) -> Element:
    """The root of an XML document that declares no entities. Raises ValueError."""
    from xml.etree import ElementTree

    if "<!ENTITY" in text:
        raise ValueError("it has entities of its own")
    try:
        return ElementTree.fromstring(text)  # noqa: S314 (entities are refused)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _up_to(fd: int, limit: int) -> bytes:
    parts: List[bytes] = []
    while limit:
        data = os.read(fd, min(1 << 20, limit))
        if not data:
            break
        parts.append(data)
        limit -= len(data)
    return b"".join(parts)


def _to_the_end(fd: int, path: str, limit: int) -> bytes:
    data = _up_to(fd, limit + 1)
    if len(data) > limit:
        raise too_large(path, limit)
    return data


def _within(fd: int, path: str, limit: int) -> bytes:
    """A pipe's content: what is written until the last writer closes it, within PIPE_WAIT."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + PIPE_WAIT
    parts: List[bytes] = []
    size = 0
    while size <= limit:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(110, f"not written to its end within {PIPE_WAIT:g} s", path) from None
            poll.poll(left * 1000)
            continue
        if not data:
            return b"".join(parts)
        parts.append(data)
        size += len(data)
    raise too_large(path, limit)


def too_large(path: str, limit: int) -> OSError:
    return OSError(27, f"larger than {limit >> 20} MiB" if limit >> 20 else f"larger than {limit} bytes", path)
