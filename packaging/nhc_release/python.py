"""Wheel, sdist, nhc.pyz, and the trees of Python packages that deb, rpm and image hold."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import List

from nhc_release.commands import BuildError, run
from nhc_release.source import Source, normalise

NODE = "usr/share/nodehealth"
"""nhc itself and what it carries along; pure Python, for any Python since 3.9."""
LIBRARIES = "usr/lib/nodehealth"
"""What the services, fleets, clusters and clouds need; for the one Python that it was built with."""
LAUNCHERS = ("nhc", "nhc-healthcheck", "nhc-prolog", "nhc-epilog")


def wheel_and_sdist(source: Source, tree: Path, out: Path) -> List[Path]:
    """Build both from an exported tree, by the backend that pyproject.toml names."""
    run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree],
        source.epoch, more={"PYTHONPATH": ""},
    )  # fmt: skip
    made = [out / f"nodehealth-{source.version}-py3-none-any.whl", out / f"nodehealth-{source.version}.tar.gz"]
    for path in made:
        if not path.is_file():
            raise BuildError(f"{path.name} was not built")
    return made


def node_tree(source: Source, tree: Path, wheel: Path, top: Path) -> Path:
    """Nhc and what it carries along, below `top`/NODE."""
    target = top / NODE
    _install(source, tree / "packaging/node.txt", target)
    run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--no-index", "--target", target,
         "--find-links", wheel.parent, f"nodehealth=={source.version}"],
        source.epoch,
    )  # fmt: skip
    _clean(target, source.epoch)
    return target


def library_tree(source: Source, tree: Path, python: str, node: Path, top: Path) -> Path:
    """The locked libraries below `top`/LIBRARIES, without those that are in the node's tree."""
    target = top / LIBRARIES
    _install(source, tree / "packaging/libraries.txt", target, python)
    for name in sorted(os.listdir(node)):
        shutil.rmtree(target / name, ignore_errors=True)
        (target / name).unlink(missing_ok=True)
    _clean(target, source.epoch)
    return target


def _install(source: Source, lock: Path, target: Path, python: str = "") -> None:
    """Unpack what a lock names: wheels alone, each with the digest that stands there."""
    words = ["--only-binary", ":all:"]
    if python:
        words += ["--python-version", version_of(python), "--implementation", "cp"]
    else:
        words += ["--python-version", "3.9", "--platform", "any"]
    run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--require-hashes", *words,
         "--target", target, "-r", lock],
        source.epoch,
    )  # fmt: skip


def version_of(python: str) -> str:
    """`3.11` of an interpreter. Raises BuildError."""
    return run([python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()


def _clean(target: Path, epoch: int) -> None:
    """Take out what names this machine, or lies elsewhere in a package: programs, shared data, what pip notes."""
    for name in ("bin", "etc", "share"):
        shutil.rmtree(target / name, ignore_errors=True)
    for pattern in ("*.dist-info/REQUESTED", "*.dist-info/direct_url.json", "*.dist-info/RECORD"):
        for path in target.glob(pattern):
            path.unlink()
    for path in sorted(target.rglob("__pycache__")):
        shutil.rmtree(path)
    (target / "example.py").unlink(missing_ok=True)  # of nvidia-ml-py: its wheel puts it beside every other module
    for path in target.rglob("*"):
        if path.is_file():
            path.chmod(0o644)  # modules: nobody starts them, whatever their wheel says
    normalise(target, epoch)


def archive(source: Source, tree: Path, node: Path, target: Path) -> None:
    """nhc.pyz, out of the node's tree: compiled for every Python that this machine has."""
    run(
        [sys.executable, "-I", "-S", "-c", _ARCHIVE, tree, node, target],
        source.epoch,
    )  # fmt: skip


_ARCHIVE = """\
import runpy, sys
tree, node, target = sys.argv[1:]
sys.path[:0] = [tree, tree + "/adapters", node]
sys.argv = ["nhc.core.archive.build", target]
runpy.run_module("nhc.core.archive.build", run_name="__main__")
"""


def launchers(tree: Path, top: Path, libraries: str, names: tuple[str, ...] = LAUNCHERS) -> None:
    """The programs in /usr/bin: nhc's own launchers, which look for its code where the packages put it.

    With the libraries installed, every command but `nhc check local` starts there, by the Python that they are for.
    """
    for name in names:
        text = (tree / "nhc/core/launch" / name).read_text(encoding="utf-8")
        if text.startswith("#!/bin/sh\n"):  # it looks for the Python that pip installed for: a package's is known
            text = f"#!/usr/bin/python3 -S\n{text.partition(_END_OF_SHELL)[2]}"
        head, found, tail = text.partition("\nif sys.path[0] == ")
        head = f"{head.partition(_UNBLOCKS)[0].rstrip()}\n"
        rest = tail.partition("\ntry:\n")[2]
        if not found or not rest:
            raise BuildError(f"nhc/core/launch/{name} has another form than packaging/nhc_release/python.py knows")
        hand_over = _HAND_OVER.format(program=f"/{libraries}/nhc") if name == "nhc" else ""
        target = top / "usr/bin" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{head}\n{hand_over}{_PATH}\ntry:\n{rest}", encoding="utf-8")
        target.chmod(0o755)


_UNBLOCKS = '\nif "nhc-sigint" in '
_END_OF_SHELL = "\n'''\n"
_HAND_OVER = """\
if sys.argv[1:3] != ["check", "local"]:
    import os

    if os.access("{program}", os.X_OK):
        os.execv("{program}", ["{program}", *sys.argv[1:]])

"""
_PATH = f"""\
if sys.path[0] == __file__.rpartition("/")[0]:
    sys.path[0] = "/{NODE}"
else:
    sys.path.insert(0, "/{NODE}")
"""
LIBRARY_LAUNCHER = f'''\
#!{{python}} -S
"""nhc with its libraries, which are for this Python alone; /usr/bin/nhc starts it. See the launcher of nhc."""
import _signal
import site
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
site.main()
sys.path[0:1] = ["/{NODE}", "/{LIBRARIES}"]
sys.argv[0] = "nhc"

from nhc.cli.main import entry

entry("nhc.cli.main")
'''


def library_launcher(top: Path, python: str) -> None:
    """The program that /usr/bin/nhc hands over to."""
    target = top / LIBRARIES / "nhc"
    target.write_text(LIBRARY_LAUNCHER.format(python=python), encoding="utf-8")
    target.chmod(0o755)
