"""Import modules out of one piece: nhc.pyz holds all that it compiled for an interpreter as a single entry.

Python's own zipimport reads an archive's whole directory at each start, 8 microseconds an entry. A module an
entry for each of five interpreters made that longer than a run of twelve checks, and the sources alone an eighth of
one (docs/performance.md). So the sources are a zip archive within the archive: for tracebacks, for an interpreter that
nothing was compiled for, for people. Data stay ordinary entries.

Such an interpreter keeps what it compiles in a directory of its user: compiling took 0.8 s of each start.
"""

from __future__ import annotations

import marshal
import sys
import zlib

TYPE_CHECKING = False  # nothing of nhc can be imported before this is in place

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any, Dict, List, Optional, Tuple
    from zipfile import ZipFile
    from zipimport import zipimporter
else:
    ModuleSpec = type(sys.__spec__)  # importlib.machinery costs more than this module

SOURCE = "lib/source"
"""Where in the archive a module's file is said to lie, and where data do."""
SOURCES = "lib/source.zip"
"""The entry that holds the sources."""


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
    """An importer (PEP 451) for what `pack` made, which begins at `at` in a piece.

    `zipped` is Python's importer for the archive.
    """

    def __init__(self, zipped: zipimporter, piece: bytes, at: int = 0) -> None:
        self.zipped = zipped
        self.archive = zipped.archive
        self.start = at + 4 + int.from_bytes(piece[at : at + 4], "little")
        head = piece[at + 4 : self.start]
        self.index: Dict[str, Tuple[int, int, bool]] = marshal.loads(head)  # noqa: S302 (our archive)
        self.piece = piece
        self._sources: Optional[ZipFile] = None

    def install(self) -> None:
        """Import from here from now on."""
        sys.meta_path.insert(0, self)
        sys.path_hooks.insert(0, self.listing)

    def listing(self, path: str) -> Listing:
        """Of a package's directory, what pkgutil lists. Raises ImportError for a path that is not here."""
        base = f"{self.archive}/{SOURCE}"
        if path != base and not path.startswith(f"{base}/"):
            raise ImportError(path)
        package = path[len(base) + 1 :].replace("/", ".")
        return Listing(f"{package}." if package else "", self.index)

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
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
        path = self.get_filename(name)[len(self.archive) + len(SOURCE) + 2 :]
        return self.sources().read(path).decode()

    def sources(self) -> ZipFile:
        """The archive of the sources. Raises OSError where it cannot be read."""
        if self._sources is None:
            import io
            from zipfile import ZipFile

            self._sources = ZipFile(io.BytesIO(self.zipped.get_data(f"{self.archive}/{SOURCES}")))
        return self._sources

    def get_data(self, path: str) -> bytes:
        """A file beside the sources. Raises OSError when there is none."""
        return self.zipped.get_data(path)

    def _below(self, name: str) -> str:
        return f"{self.archive}/{SOURCE}/{name.replace('.', '/')}"


class Listing:
    """The modules of one package, as pkgutil asks for them. What imports them is the importer itself."""

    def __init__(self, begins: str, index: Dict[str, Tuple[int, int, bool]]) -> None:
        self.begins, self.index = begins, index

    def find_spec(self, name: str, target: object = None) -> None:
        return None

    def iter_modules(self, prefix: str = "") -> List[Tuple[str, bool]]:
        inner = [(name[len(self.begins) :], name) for name in self.index if name.startswith(self.begins)]
        return [(prefix + own, self.index[name][2]) for own, name in inner if own and "." not in own]


class Uncompiled(Compiled):
    """The same for an interpreter that nothing was compiled for: each start compiles what it imports."""

    def __init__(self, zipped: zipimporter) -> None:
        super().__init__(zipped, pack({}))
        for path in self.sources().namelist():
            is_package = path.endswith("/__init__.py")
            name = path[: -len("/__init__.py")] if is_package else path[: -len(".py")]
            self.index[name.replace("/", ".")] = (0, 0, is_package)

    def get_code(self, name: str) -> CodeType:
        code: CodeType = compile(self.get_source(name), self.get_filename(name), "exec", dont_inherit=True)
        return code


class CachedModules(Uncompiled):
    """The same, with what was compiled kept in a directory that only its user can write to."""

    def __init__(self, zipped: zipimporter, directory: str) -> None:
        self.directory = directory
        index = self._read("index")
        if isinstance(index, dict):
            Compiled.__init__(self, zipped, pack({}))
            self.index = index
        else:
            super().__init__(zipped)
            self._keep("index", self.index)

    def get_code(self, name: str) -> CodeType:
        code = self._read(name)
        if not isinstance(code, CODE):
            code = super().get_code(name)
            self._keep(name, code)
        return code

    def _read(self, name: str) -> object:
        """What was kept, None where it was not, or not whole."""
        try:
            with open(f"{self.directory}/{name}", "rb") as file:
                data = file.read()
        except OSError:
            return None
        body = data[4:]
        return marshal.loads(body) if zlib.crc32(body) == int.from_bytes(data[:4], "little") else None  # noqa: S302

    def _keep(self, name: str, value: Any) -> None:
        """Keep it for the next start. A full disk only costs time."""
        import os

        if sys.dont_write_bytecode:
            return
        body = marshal.dumps(value)
        path = f"{self.directory}/{name}"
        own = f"{path}.{os.getpid()}"
        try:
            with open(own, "xb") as file:
                file.write(zlib.crc32(body).to_bytes(4, "little") + body)
            os.replace(own, path)
        except OSError:
            try:
                os.unlink(own)
            except OSError:
                pass


CODE = type(pack.__code__)
OTHERS = 3
"""What was compiled of other sources that stays."""


def from_sources(zipped: zipimporter, interpreter: str, digest: str) -> Uncompiled:
    """The importer of an interpreter that nothing was compiled for; `digest` is that of the sources."""
    try:
        return CachedModules(zipped, directory_of_user(interpreter, digest))
    except OSError:
        return Uncompiled(zipped)


def directory_of_user(interpreter: str, digest: str) -> str:
    """Where this user keeps what an interpreter compiled of these sources. Of others the newest OTHERS stay: a node may
    have one nhc.pyz, and get another one from a sweep, again and again.

    In $NHC_CACHE_DIR, else in /var/cache/nhc for root and in the user's own cache for others (XDG base directory
    specification). Raises OSError where there is none, or where somebody else owns it or could write to it.
    """
    import os

    user = os.geteuid()
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "") + "/.cache"
    base = os.environ.get("NHC_CACHE_DIR") or ("/var/cache/nhc" if user == 0 else f"{home}/nhc")
    if not os.path.isabs(base):
        raise OSError(f"{base} is not absolute")
    path = f"{base}/{interpreter}-{digest}"
    if not os.path.isdir(path):
        os.makedirs(base, 0o700, exist_ok=True)
        _own(base, user)
        others = [f"{base}/{name}" for name in os.listdir(base) if name.startswith(f"{interpreter}-")]
        for other in sorted(others, key=lambda path: os.lstat(path).st_mtime, reverse=True)[OTHERS:]:
            import shutil

            shutil.rmtree(other, ignore_errors=True)
        os.mkdir(path, 0o700)
    for directory in (base, path):
        _own(directory, user)
    return path


def _own(directory: str, user: int) -> None:
    """Raises PermissionError for what is not a directory that this user alone can write to."""
    import os
    import stat

    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
        raise PermissionError(f"{directory} is not this user's alone")
