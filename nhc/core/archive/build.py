"""Build nhc.pyz: the whole node side in one file that runs on any Linux with Python 3.9 and nothing else.

    python -m nhc.core.archive.build dist/nhc.pyz

The archive holds the sources in one piece, and the same modules compiled for each interpreter found at build time,
in one piece an interpreter (`nhc.core.archive.importer`): compiling at every start costs 40 ms and more. click and
pynvml
travel along, so that every command of a node works; the adapters that need only the standard library do too. The same
inputs give the same bytes, so a digest identifies a version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from nhc.core.archive.importer import SOURCE, SOURCES, pack

INTERPRETERS = tuple(f"python3.{minor}" for minor in range(9, 15))
ENTRY_POINTS = {
    "nhc-healthcheck": "nhc.hooks.commands.healthcheck",
    "nhc-prolog": "nhc.hooks.commands.prolog",
    "nhc-epilog": "nhc.hooks.commands.epilog",
}
"""What the archive does when it is called by one of these names (a link or a copy)."""

_MAIN = '''\
"""Start nhc from this archive, with the modules compiled for this interpreter where they are there."""
import _signal
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # until `entry` takes it
_zip = __loader__
sys.path[0] = _zip.archive + "/{source}"
_magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex()
_names = {{"__name__": "nhc.core.archive.importer"}}
try:
    _piece = _zip.get_data(f"{{_zip.archive}}/lib/{{sys.implementation.cache_tag}}-{{_magic}}")
except OSError:
    import io
    import zipfile

    _sources = zipfile.ZipFile(io.BytesIO(_zip.get_data(f"{{_zip.archive}}/{sources}")))
    exec(compile(_sources.read("nhc/core/archive/importer.py"), "nhc/core/archive/importer.py", "exec"), _names)
    _names["from_sources"](_zip, f"{{sys.implementation.cache_tag}}-{{_magic}}", "{digest}").install()
else:
    import marshal

    _size = int.from_bytes(_piece[:4], "little")
    exec(marshal.loads(_piece[4 : 4 + _size]), _names)
    _names["Compiled"](_zip, _piece, 4 + _size).install()
_name = sys.argv[0].rpartition("/")[2]
_name = _name[:-4] if _name.endswith(".pyz") else _name
from nhc.cli.main import entry

entry({entries!r}.get(_name, "nhc.cli.main"))
'''

_COMPILE = """\
import marshal, sys
for line in sys.stdin:
    source, target, name = line.rstrip("\\n").split("\\t")
    with open(source, "rb") as file:
        data = file.read()
    code = compile(data, name, "exec", dont_inherit=True)
    with open(target, "wb") as file:
        file.write(marshal.dumps(code))
"""


def build(output: str, python: str = "/usr/bin/env python3", interpreters: Sequence[str] = INTERPRETERS) -> List[str]:
    """Write the archive to `output`, executable; `python` is its first line's interpreter.

    Returns the tags of the interpreters it holds compiled modules for. Raises OSError when it cannot be
    written, RuntimeError when a package it should contain is not installed.
    """
    import tempfile

    sources = dict(_sources())
    with tempfile.TemporaryDirectory() as scratch:
        compiled = _compile_all(sources, scratch, interpreters)
        temporary = f"{output}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(f"#!{python}\n".encode())
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                zipped = _zipped({name: path for name, path in sources.items() if _is_module(name)})
                digest = hashlib.sha256(zipped).hexdigest()
                main_text = _MAIN.format(source=SOURCE, sources=SOURCES, entries=ENTRY_POINTS, digest=digest)
                _add(archive, "__main__.py", main_text.encode())
                for tag, directory in sorted(compiled.items()):
                    _add(archive, f"lib/{tag}", _piece(sources, directory), zipfile.ZIP_STORED)
                _add(archive, SOURCES, zipped)
                for name, path in sorted(sources.items()):
                    if _is_data(name):
                        _add(archive, f"{SOURCE}/{name}", _read(path))
        os.chmod(temporary, 0o755)  # noqa: S103 (a program)
        os.replace(temporary, output)
    return sorted(tag.rpartition("-")[0] for tag in compiled)


def _is_module(name: str) -> bool:
    return name.endswith(".py")


def _is_data(name: str) -> bool:
    """Whether a file is read as it is: what lies in nhc/core/data may be a program that is sent elsewhere."""
    return not _is_module(name) or "/data/" in name


def _zipped(files: Dict[str, str]) -> bytes:
    """An archive of these files, uncompressed: the entry that holds it is compressed as a whole."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, path in sorted(files.items()):
            _add(archive, name, _read(path), zipfile.ZIP_STORED)
    return made.getvalue()


def _piece(sources: Iterable[str], directory: str) -> bytes:
    """The importer's own code, then everything that was compiled."""
    wanted = [name for name in sources if _is_module(name) and not name.startswith(CONTROLLER)]
    code = {name: _read(f"{directory}/{_flat(name)}") for name in wanted}
    importer = code["nhc/core/archive/importer.py"]
    modules = {
        name[:-3].replace("/", ".").replace(".__init__", ""): (data, name.endswith("/__init__.py"))
        for name, data in code.items()
    }
    return len(importer).to_bytes(4, "little") + importer + pack(modules)


def _add(archive: zipfile.ZipFile, name: str, content: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same inputs, the same bytes
    info.compress_type = how
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _flat(name: str) -> str:
    return name.replace("/", "__") + "c"


def _sources() -> Iterator[Tuple[str, str]]:
    """Every file that the archive holds: its name there and where it is."""
    for package in ("nhc", "click", "pynvml", "nhc_adapters"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            if package == "nhc_adapters":
                continue  # a checkout without adapters/ on its path: the node side works without
            raise RuntimeError(f"{package} is not installed: nhc.pyz would not be whole")
        if not spec.submodule_search_locations:
            yield f"{package}.py", spec.origin
            continue
        base = next(iter(spec.submodule_search_locations))
        for directory, names, files in os.walk(base):
            names[:] = sorted(name for name in names if name != "__pycache__" and name[0] != ".")
            for file in sorted(files):
                relative = os.path.relpath(f"{directory}/{file}", base)
                if not file.endswith(".pyc") and _wanted(package, relative):
                    yield f"{package}/{relative}", f"{directory}/{file}"


def _wanted(package: str, relative: str) -> bool:
    """Whether a node needs this file: not what runs elsewhere, and of the adapters those without an SDK."""
    if package == "nhc":
        return relative.startswith(ON_NODES) or not (relative.startswith(ELSEWHERE) or relative.endswith(".md"))
    if package == "nhc_adapters":
        return relative in NODE_ADAPTERS
    return not relative.endswith((".pyi", "py.typed"))


ELSEWHERE = ("console/", "core/archive/build.py", "core/launch/", "lab/", "remedy/", "store/")
"""Rooms that run on a management host alone, with packages that no node has."""
ON_NODES = (
    "lab/__init__.py", "lab/commands/__init__.py", "lab/commands/inject",
    "remedy/__init__.py", "remedy/commands/__init__.py", "remedy/commands/gate_", "remedy/gates/",
    "store/__init__.py", "store/deep_delivery.py",
)  # fmt: skip
"""Of these rooms, what runs on a node: drills of its kernel log, its gate, and what delivers deep reports."""
CONTROLLER = ("nhc/fleet/",)
"""What no node runs, and the Ansible collection's controller does, from the archive that it carries: sources alone."""
NODE_ADAPTERS = (
    "__init__.py", "_command.py", "flux.py", "lsf.py", "pbs.py", "sge.py",
    "slurm/__init__.py", "slurm/adapter.py", "slurm/marker.py", "slurm/states.py",
)  # fmt: skip
"""Adapters that a node's own hooks use; they import the standard library alone (a test holds them to it)."""


def _compile_all(sources: Dict[str, str], scratch: str, interpreters: Sequence[str]) -> Dict[str, str]:
    """Compile every module with each interpreter there is; a directory for each by its cache tag."""
    compiled: Dict[str, str] = {}
    for interpreter in (sys.executable, *interpreters):
        tag = _tag(interpreter)
        if tag is None or tag in compiled:
            continue
        directory = f"{scratch}/{tag}"
        os.mkdir(directory)
        lines = [f"{path}\t{directory}/{_flat(name)}\t{name}\n" for name, path in sources.items() if _is_module(name)]
        # The order of a set's members, and so of a constant's, goes with the seed.
        environ = {"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
        argv = [interpreter, "-S", "-s", "-c", _COMPILE]
        subprocess.run(argv, input="".join(lines), text=True, check=True, cwd=directory, env=environ)
        compiled[tag] = directory
    return compiled


def _tag(interpreter: str) -> Optional[str]:
    """The interpreter's cache tag and bytecode version, None where it is not there or does not run."""
    try:
        code = "import sys, importlib.util as i; print(sys.implementation.cache_tag, i.MAGIC_NUMBER.hex(), sep='-')"
        ended = subprocess.run(
            [interpreter, "-I", "-S", "-c", code], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.strip() or None if ended.returncode == 0 else None


def main(argv: Optional[Sequence[str]] = None) -> int:
    """`python -m nhc.core.archive.build [FILE [PYTHON ...]]`: FILE is nhc.pyz unless named, compiled for each
    PYTHON.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and arguments[0].startswith("-"):
        print("usage: python -m nhc.core.archive.build [FILE [PYTHON ...]]", file=sys.stderr)
        return 2
    output = arguments[0] if arguments else "nhc.pyz"
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
    try:
        tags = build(output, interpreters=(*arguments[1:], *INTERPRETERS))
    except (OSError, RuntimeError) as error:
        print(f"nhc.pyz: {error}", file=sys.stderr)
        return 1
    digest = hashlib.sha256(_read(output)).hexdigest()
    print(f"{output}: {os.path.getsize(output) // 1024} KB, compiled for {', '.join(tags)}, sha256 {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
