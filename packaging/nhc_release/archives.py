"""Tar archives whose bytes depend on names and contents alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Callable, Iterable, Iterator, Tuple


def files_below(top: Path) -> Iterator[Tuple[str, Path]]:
    """Everything below a directory, sorted: the name in an archive, and where it is."""
    for path in sorted(top.rglob("*"), key=lambda one: str(one.relative_to(top))):
        yield str(path.relative_to(top)), path


def write_tar(target: Path, entries: Iterable[Tuple[str, Path]], epoch: int) -> None:
    """An uncompressed archive: root's files, each of the time `epoch`."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in entries:
            info = archive.gettarinfo(path, name)
            _plain(info, epoch)
            if info.isreg():
                info.type = tarfile.REGTYPE  # two names of one file are two files here
                info.size = path.stat().st_size
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


def repack(made: Path, epoch: int, order: Callable[[str], object] = str) -> None:
    """Write a tar.gz of another tool again, without its times, owners and order."""
    with tarfile.open(made, "r:gz") as archive:
        found = [(info, archive.extractfile(info).read() if info.isreg() else b"") for info in archive]  # type: ignore[union-attr]
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in sorted(found, key=lambda one: order(one[0].name)):  # type: ignore[arg-type,return-value]
            _plain(info, epoch)
            archive.addfile(info, io.BytesIO(content))
    made.write_bytes(compressed(written.getvalue()))


def compressed(data: bytes) -> bytes:
    """gzip, without name and time."""
    return gzip.compress(data, 9, mtime=0)


def _plain(info: tarfile.TarInfo, epoch: int) -> None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = epoch
    info.pax_headers = {}
    if info.isreg() or info.isdir():
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644


def sha256(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            hashed.update(piece)
    return hashed.hexdigest()
