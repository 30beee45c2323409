"""nhc's modules are found as Python would find them, with fewer calls of the kernel."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Optional

import pytest

from nhc.cli.own_modules import Loader, OwnModules

ROOT = Path(__file__).resolve().parents[2]


def found(directory: Path, name: str = "nhc.sample") -> Optional[ModuleType]:
    """The module as the finder finds it, None where it leaves it to Python's."""
    spec = OwnModules.find_spec(name, [str(directory)])
    if spec is None:
        return None
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text("value = 1\n")
    py_compile.compile(str(path), doraise=True)
    return path


def test_bytecode_of_its_source_is_taken(source: Path) -> None:
    module = found(source.parent)
    assert module
    assert module.value == 1
    assert module.__file__ == str(source)
    assert module.__cached__ == importlib.util.cache_from_source(str(source))
    assert isinstance(module.__loader__, Loader)
    assert module.__loader__.get_source("nhc.sample") == "value = 1\n"
    again = module.__loader__.get_code("nhc.sample")  # what a debugger or `python -m` asks for
    assert again
    assert again.co_filename == str(source)


def test_a_package_is_one(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").write_text("value = 2\n")
    py_compile.compile(str(tmp_path / "part" / "__init__.py"), doraise=True)
    module = found(tmp_path, "nhc.part")
    assert module
    assert module.value == 2
    assert list(module.__path__) == [str(tmp_path / "part")]
    assert module.__package__ == "nhc.part"


@pytest.mark.parametrize("change", ["size", "time", "gone", "interpreter", "hash", "cut", "no bytecode"])
def test_what_python_would_not_believe_is_left_to_python(source: Path, change: str) -> None:
    compiled = Path(importlib.util.cache_from_source(str(source)))
    stat = source.stat()
    if change == "size":
        source.write_text("value = 10\n")
        os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "time":
        os.utime(source, (stat.st_atime, stat.st_mtime + 2))
    elif change == "gone":
        source.unlink()
    elif change == "interpreter":
        compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:])
    elif change == "hash":
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
    elif change == "cut":
        compiled.write_bytes(compiled.read_bytes()[:12])
    else:
        compiled.unlink()
    assert found(source.parent) is None


@pytest.mark.parametrize("name", ["json.decoder", "nhcother.sample", "nhc"])
def test_other_packages_are_not_its_own(source: Path, name: str) -> None:
    assert OwnModules.find_spec(name, [str(source.parent)]) is None
    assert OwnModules.find_spec(name, None) is None


def test_a_run_finds_its_modules_so(tmp_path: Path) -> None:
    """Bytecode of this very tree is written by the first start and taken by the second."""
    script = (
        "import nhc.cli.main, nhc.node.run.engine, sys\n"
        "ours = [m for name, m in sys.modules.items() if name.startswith('nhc.')]\n"
        "print(sum(type(m.__loader__).__name__ == 'Loader' for m in ours), len(ours))\n"
    )
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{script}"],
            capture_output=True, text=True, timeout=60, check=True, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        counts = [int(word) for word in done.stdout.split()]
    assert counts[0] == counts[1] - 3  # `nhc.cli`, its `main` and the finder itself come before it
