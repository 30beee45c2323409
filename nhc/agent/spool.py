"""Reports that wait on the disk for a server that is away: bounded in bytes and age, the oldest dropped first.

Each report is one small packed file, named by the time of writing, so that a restart finds them in their order. The
number of dropped reports is kept, too, until the server knows it.
"""

from __future__ import annotations

import os
import zlib
from typing import List, NamedTuple, Tuple

from nhc.core.system import written_files
from nhc.core.system.bounded_read import read_bytes, read_text, unpacked
from nhc.core.system.process import NOTHING_LEFT
from nhc.core.units import whole_of_digits

SUFFIX = ".report"
LARGEST = 64 << 20
"""Bytes of one report, unpacked; nhc writes none that large."""


class Kept(NamedTuple):
    """One file: its name, size and when it was written (Unix time)."""

    name: str
    size: int
    at: float


class Spool:
    """A directory that only this process uses. Raises OSError if it cannot be used."""

    def __init__(self, directory: str, size: int, age: float) -> None:
        self.directory, self.size, self.age = directory, size, age
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._files: List[Kept] = []
        self._number = 0
        for name in sorted(os.listdir(directory)):
            path = f"{directory}/{name}"
            stamp, _, number = name.removesuffix(SUFFIX).partition("-")
            if name.endswith(".tmp"):
                os.unlink(path)
            elif name.endswith(SUFFIX) and stamp.isdecimal() and number.isdecimal():
                self._files.append(Kept(name, os.stat(path).st_size, int(stamp) / 1000))
                self._number = max(self._number, int(number))
        self.lost = self._read_lost()
        """Reports dropped and not yet reported to the server."""

    def __len__(self) -> int:
        return len(self._files)

    def add(self, text: str, now: float) -> None:
        """Store one report; drop those that are too old or too many. Raises OSError: then nothing of it is stored."""
        data = zlib.compress(text.encode(), 6)
        self._number += 1
        name = f"{max(0, int(now * 1000)):015d}-{self._number:09d}{SUFFIX}"
        self._write(name, data)
        self._files.append(Kept(name, len(data), now))
        self._files.sort()  # a clock that was set back
        self.trim(now)

    def trim(self, now: float) -> None:
        """Drop reports that are too old, or stamped by a wrong clock; then the oldest beyond the size."""
        drop = [file for file in self._files if now - file.at > self.age]
        rest = self._files[len(drop) :]
        total = sum(file.size for file in rest)
        for file in rest[:-1]:
            if total <= self.size:
                break
            drop.append(file)
            total -= file.size
        if drop:
            self.count_lost(len(drop))
            self.remove(drop)

    def oldest(self, count: int) -> Tuple[List[Kept], List[str]]:
        """The first so many reports; a damaged one is dropped and counted. Raises OSError, as without descriptors."""
        files: List[Kept] = []
        texts: List[str] = []
        for file in self._files[:count]:
            try:
                text = unpacked(read_bytes(f"{self.directory}/{file.name}"), LARGEST).decode()
                if not text.startswith("{"):
                    raise ValueError("no report")
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in NOTHING_LEFT:
                    raise  # the report is whole, and can be read later
                self.count_lost(1)
                self.remove([file])
                continue
            files.append(file)
            texts.append(text)
        return files, texts

    def remove(self, files: List[Kept]) -> None:
        """Delete reports."""
        gone = {file.name for file in files}
        for name in gone:
            try:
                os.unlink(f"{self.directory}/{name}")
            except OSError:
                pass  # at worst it is sent once more, which changes nothing there
        self._files = [file for file in self._files if file.name not in gone]

    def count_lost(self, count: int) -> None:
        """So many reports are lost."""
        self.lost += count
        self._save_lost()

    def forget_lost(self, count: int) -> None:
        """So many dropped reports are now known to the server."""
        if count:
            self.lost = max(0, self.lost - count)
            self._save_lost()

    def _save_lost(self) -> None:
        try:
            self._write("lost", str(self.lost).encode())
        except OSError:
            pass  # a full disk: the number is still in memory

    def _read_lost(self) -> int:
        try:
            text = read_text(f"{self.directory}/lost", 20, "replace").strip()
        except OSError:
            return 0
        return whole_of_digits(text) or 0

    def _write(self, name: str, data: bytes) -> None:
        written_files.write_whole(f"{self.directory}/{name}", data, 0o600)
