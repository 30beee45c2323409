"""What a sweep needs of paramiko, and no more: its reader of ssh_config by itself, and no invoke.

The package imports all of its cryptography, 0.1 s and 25 MB, which a sweep does not need whose nodes libssh reaches.
And it imports invoke, half of what its own start costs, for `Match exec` alone.

What invoke does there is to run a command and tell whether it succeeded. It would read our standard input meanwhile,
where a sweep may have its nodes from; OpenSSH gives such a command none.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from types import ModuleType
from typing import Iterable, NamedTuple


class _Ended(NamedTuple):
    ok: bool


class _MatchExec(ModuleType):
    """What `paramiko.config` takes for invoke."""

    @staticmethod
    def run(command: str, **_options: object) -> _Ended:
        """Run the command as OpenSSH does (readconf.c execute_in_shell): by the user's shell, its messages shown."""
        shell = os.environ.get("SHELL") or "/bin/sh"
        null = subprocess.DEVNULL
        return _Ended(subprocess.run([shell, "-c", command], stdin=null, stdout=null, check=False).returncode == 0)


class _Package(ModuleType):
    """A package by its directories alone: its own `__init__` is not run."""

    def __init__(self, name: str, directories: Iterable[str]) -> None:
        super().__init__(name)
        self.__path__ = list(directories)


def paramiko_config() -> ModuleType:
    """The module `paramiko.config`, without its package where that is not there yet. Raises ImportError."""
    loaded = sys.modules.get("paramiko.config")
    if loaded is not None:
        return loaded
    spec = importlib.util.find_spec("paramiko")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("No module named 'paramiko'", name="paramiko")
    stand_ins = {"paramiko": _Package("paramiko", spec.submodule_search_locations), "invoke": _MatchExec("invoke")}
    new = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(new)
    try:
        return importlib.import_module("paramiko.config")
    finally:
        for name in new:
            del sys.modules[name]


def import_paramiko() -> None:
    """Import the package. Raises ImportError."""
    paramiko_config()
    package = importlib.import_module("paramiko")
    for name in ("config", "ssh_exception"):  # an import sets these only where it loads the module
        setattr(package, name, sys.modules[f"paramiko.{name}"])
