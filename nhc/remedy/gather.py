"""Collect evidence before a repair, in the background: the loop asks whether it is done, and handles other episodes.

Each source is tried once. A source that fails leaves a row that says why. The collection ends after its time budget,
even if a source is still running: a machine that hangs must not delay its own repair. Files are named by the SHA-256 of
their content, so equal files are stored once.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.core.system import written_files
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import EvidenceBudget, EvidenceSource, Exhibit, Machine
from nhc.node.hosts import redaction
from nhc.remedy.cases import EpisodeCase
from nhc.store import evidence
from nhc.store.database import Store
from nhc.store.errors import StoreError

STRAY = 3600.0
"""Seconds beyond the retention time of evidence after which a file without a row is deleted as a stray."""
Sources = Callable[[str], Sequence[Tuple[str, EvidenceSource]]]


class Piece(NamedTuple):
    """What one source gave; `sha256` is "" if it failed, and `message` says why."""

    name: str
    kind: str = ""
    sha256: str = ""
    size: int = 0
    cut: bool = False
    message: str = ""


class _Going:
    """One collection. `pieces` is only added to."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.pieces: List[Piece] = []
        self.over = threading.Event()


class Gatherer:
    """Collects for one attempt of an episode at a time; `sources` names the sources that can show
    something of a node.
    """

    def __init__(
        self, store: Store, sources: Sources, budget: EvidenceBudget, directory: str, keep: float,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.store, self.sources, self.budget = store, sources, budget
        self.directory, self.keep, self.clock = directory, keep, clock
        self._going: Dict[Tuple[int, int], _Going] = {}

    def collected(self, case: EpisodeCase, machine: Machine) -> bool:
        """Whether the evidence for the next attempt is stored, or cannot be collected; begins the collection if need
        be.
        """
        key = (case.episode.id, len(case.attempts) + 1)
        going = self._going.get(key)
        if going is None:
            going = self._going[key] = _Going(time.monotonic())
            name = f"nhc-evidence-{case.episode.id}"
            threading.Thread(target=self._collect, args=(going, machine), name=name, daemon=True).start()
        late = time.monotonic() - going.began > self.budget.seconds
        if not going.over.is_set() and not late:
            return False
        pieces = list(going.pieces)
        if late and not going.over.is_set():
            pieces.append(Piece("collection", message=f"not all of it came within {self.budget.seconds:g} s"))
        self._write(case, pieces)
        del self._going[key]
        return True

    def wait(self) -> None:
        """Wait until all collections have ended or timed out: for a process that ends afterwards."""
        for going in list(self._going.values()):
            going.over.wait(max(0.0, going.began + self.budget.seconds - time.monotonic()) + 0.1)

    def _collect(self, going: _Going, machine: Machine) -> None:
        left = self.budget.size
        try:
            for name, source in self.sources(machine.node):
                spent = time.monotonic() - going.began
                if left <= 0 or spent >= self.budget.seconds:
                    going.pieces.append(Piece(name, message="the budget of this collection was spent before"))
                    continue
                left -= self._from(going, name, source, machine, EvidenceBudget(left, self.budget.seconds - spent))
        finally:
            going.over.set()

    def _from(self, going: _Going, name: str, source: EvidenceSource, machine: Machine, budget: EvidenceBudget) -> int:
        size = 0
        try:
            for exhibit in source.evidence(machine, budget):
                readable = without_secrets(exhibit)
                content = readable[: budget.size - size]
                cut = exhibit.cut or len(content) < len(readable)
                going.pieces.append(self._kept(f"{name}/{exhibit.name}", exhibit, content, cut))
                size += len(content)
                if size >= budget.size:
                    break
        except (AdapterError, OSError) as error:
            going.pieces.append(Piece(name, message=printable(str(error), 500)))
        except Exception as error:  # a source of a site's own: its bug must not cost the repair
            going.pieces.append(Piece(name, message=printable(f"{type(error).__name__}: {error}", 500)))
        return size

    def _kept(self, name: str, exhibit: Exhibit, content: bytes, cut: bool) -> Piece:
        """Write a piece to the disk before its row names it. Raises OSError."""
        digest = hashlib.sha256(content).hexdigest()
        folder = f"{self.directory}/{digest[:2]}"
        path = f"{folder}/{digest}"
        try:
            os.utime(path)  # it is there already; nobody deletes a fresh one before its new row is there
        except FileNotFoundError:
            _write_new(folder, path, content)
        return Piece(name, exhibit.kind, digest, len(content), cut)

    def _write(self, case: EpisodeCase, pieces: Sequence[Piece]) -> None:
        now = self.clock()
        rows = pieces or [Piece("collection", message="nothing here can show what the machine looked like")]
        try:
            with self.store.write() as connection:
                there = self._of_this_attempt(connection, case)
                for row in rows:
                    if (row.name, row.sha256) in there:
                        continue
                    evidence.add(
                        connection, case.episode, row.name, now=now, kind=row.kind, sha256=row.sha256, size=row.size,
                        cut=row.cut, expires=now + self.keep, message=row.message,
                    )  # fmt: skip
        except StoreError:
            return  # the repair does not fail for it; the next round's own writes will say that the store is away

    def _of_this_attempt(self, connection: Connection, case: EpisodeCase) -> Set[Tuple[str, str]]:
        """The evidence that a process, killed before the next step, has already stored for the same attempt."""
        since = max((attempt.written for attempt in case.attempts), default=0.0)
        pieces = evidence.of_episode(connection, case.episode.id)
        return {(piece.name, piece.sha256) for piece in pieces if piece.collected > since}

    def expire(self) -> Optional[int]:
        """Delete evidence past its retention time; returns how many files were deleted. Raises StoreError."""
        gone = evidence.forget_expired(self.store, self.clock()).files
        self.delete(gone)
        return len(gone) + self._delete_strays()

    def _delete_strays(self) -> int:
        """Delete collected files without a row: the process ended in between, or the collection came too late. They
        hold parts of a node's logs, and are kept no longer than files with a row.
        """
        now = self.clock()
        old = list(evidence.strays(self.directory, now - self.keep - STRAY))
        with self.store.read() as connection:
            lost = evidence.unnamed(connection, [name for name in old if "." not in name])
        half = [name for name in old if "." in name]
        return evidence.delete(self.directory, [*lost, *half], now)

    def delete(self, gone: Sequence[str]) -> None:
        """Delete evidence files that no row names any more."""
        evidence.delete(self.directory, gone, self.clock())


def _write_new(folder: str, path: str, content: bytes) -> None:
    """Raises OSError."""
    written_files.make_directories(folder, 0o700)
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    fd = written_files.make_file(temporary, os.O_WRONLY, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def without_secrets(exhibit: Exhibit) -> bytes:
    """A text without values that look like secrets, which occur in logs and command lines. Other kinds of evidence stay
    unchanged.
    """
    if not exhibit.kind.startswith(("text/", "application/json")):
        return exhibit.content
    text = exhibit.content.decode("utf-8", "surrogateescape")
    return redaction.secrets(text).encode("utf-8", "surrogateescape")
