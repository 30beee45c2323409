"""Import modules out of one piece: nhc.pyz holds all that it compiled for an interpreter as a single entry.

Python's own zipimport reads an archive's whole directory at each start, 8 microseconds an entry. A module an
entry for each of five interpreters made that longer than a run of twelve checks (docs/performance.md). Sources
and data stay ordinary entries: for tracebacks, for an interpreter that nothing was compiled for, for people.
"""

from __future__ import annotations

import marshal
import sys
import zlib

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any, Dict, List, Optional, Tuple
    from zipimport import zipimporter
else:
    ModuleSpec = type(sys.__spec__)  # importlib.machinery costs more than this module

SOURCE = "lib/source"
"""Where in the archive the sources lie."""


def pack(modules: Dict[str, Tuple[bytes, bool]]) -> bytes:
    """Marshalled code by module name, with whether the module is a package, as one piece."""
    pieces: List[bytes] = []
    index: Dict[str, Tuple[int, int, bool]] = {}
    at = 0
    for name, (code, is_package) in sorted(modules.items()):
        piece = zlib.compress(code, 9)
        pieces.append(piece)
        index[name] = (at, at + len(piece), is_package)
        at += len(piece)
    head = marshal.dumps(index, 2)  # version 2 knows no shared references: the same index, the same bytes
    return len(head).to_bytes(4, "little") + head + b"".join(pieces)


class Compiled:
    """An importer (PEP 451) for what `pack` made. `zipped` is Python's importer for the archive."""

    def __init__(self, zipped: zipimporter, piece: bytes) -> None:
        self.zipped = zipped
        self.archive = zipped.archive
        self.start = 4 + int.from_bytes(piece[:4], "little")
        self.index: Dict[str, Tuple[int, int, bool]] = marshal.loads(piece[4 : self.start])  # noqa: S302 (our archive)
        self.piece = piece

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in self.index:
            return None
        loader: Any = self  # typeshed asks for a class derived from Loader; the import system does not
        spec = ModuleSpec(name, loader, origin=self.get_filename(name), is_package=self.is_package(name))
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(self._below(name))
        return spec

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 (this is what importing is)

    def get_code(self, name: str) -> CodeType:
        begin, end, _ = self.index[name]
        code: CodeType = marshal.loads(zlib.decompress(self.piece[self.start + begin : self.start + end]))  # noqa: S302
        return code

    def is_package(self, name: str) -> bool:
        return self.index[name][2]

    def get_filename(self, name: str) -> str:
        return f"{self._below(name)}/__init__.py" if self.is_package(name) else f"{self._below(name)}.py"

    def get_source(self, name: str) -> str:
        """For tracebacks."""
        return self.get_data(self.get_filename(name)).decode()

    def get_data(self, path: str) -> bytes:
        """A file beside the sources. Raises OSError when there is none."""
        return self.zipped.get_data(path)

    def _below(self, name: str) -> str:
        return f"{self.archive}/{SOURCE}/{name.replace('.', '/')}"
