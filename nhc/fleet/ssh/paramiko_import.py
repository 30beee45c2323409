"""paramiko without invoke: it imports that library, half of what its own start costs, for `Match exec` alone.

What invoke does there is to run a command and tell whether it succeeded. It would read our standard input meanwhile,
where a sweep may have its nodes from; OpenSSH gives such a command none.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import ModuleType
from typing import NamedTuple


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


def import_paramiko() -> None:
    """Import paramiko, unless it is already. Raises ImportError."""
    if "paramiko" in sys.modules or "invoke" in sys.modules:
        return
    sys.modules["invoke"] = _MatchExec("invoke")
    try:
        importlib.import_module("paramiko")
    finally:
        del sys.modules["invoke"]
