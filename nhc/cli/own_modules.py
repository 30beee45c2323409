"""Find nhc's modules in Python's bytecode files, without a search.

Python's own finder lists each directory, tries four endings for a package and asks for the source's state twice: twelve
system calls a module, for the 70 modules of a run (docs/decisions/0001-start-up.md). This one opens the bytecode and
accepts it if Python would: it is for this interpreter, and for a source of that size and time. All other modules are
left to Python's finder, which compiles them.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False  # the first module of nhc to be imported: nhc.core.light is found by it

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import CodeType, ModuleType
    from typing import Any, Optional, Sequence

_machinery: Any = sys.modules["_frozen_importlib_external"]  # importlib.machinery costs more than this module
if not TYPE_CHECKING:
    ModuleSpec, SourceFileLoader = type(sys.__spec__), _machinery.SourceFileLoader

ENDING = f".{sys.implementation.cache_tag}.pyc"
TIMED = _machinery.MAGIC_NUMBER + bytes(4)
"""The beginning of bytecode that is valid as long as its source has a certain time and size: PEP 552."""


class Loader(SourceFileLoader):
    """Python's source loader, given bytecode that has been read already."""

    bytecode: Optional[memoryview] = None

    def get_code(self, fullname: str) -> Optional[CodeType]:
        bytecode, self.bytecode = self.bytecode, None  # once: it is most of a run's memory
        if bytecode is None:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(bytecode)  # noqa: S302 (what Python would read)
        return code


class OwnModules:
    """A finder for `sys.meta_path` (PEP 451)."""

    @staticmethod
    def find_spec(
        name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if not path or name[:4] != "nhc." or sys.flags.optimize or sys.pycache_prefix:
            return None
        directory, leaf = path[0], name.rpartition(".")[2]
        try:
            try:
                compiled = f"{directory}/__pycache__/{leaf}{ENDING}"
                fd = os.open(compiled, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                directory, leaf = f"{directory}/{leaf}", "__init__"
                compiled = f"{directory}/__pycache__/{leaf}{ENDING}"
                fd = os.open(compiled, os.O_RDONLY | os.O_CLOEXEC)
            try:
                content = os.read(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
            source = os.stat(f"{directory}/{leaf}.py")
        except OSError:
            return None
        head = TIMED + b"".join((int(n) & 0xFFFFFFFF).to_bytes(4, "little") for n in (source.st_mtime, source.st_size))
        if content[:16] != head:
            return None
        loader = Loader(name, f"{directory}/{leaf}.py")
        loader.bytecode = memoryview(content)[16:]
        spec = ModuleSpec(name, loader, origin=loader.path, is_package=leaf == "__init__")
        spec.has_location, spec.cached = True, compiled
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(directory)
        return spec


sys.meta_path.insert(sys.meta_path.index(_machinery.PathFinder), OwnModules)
