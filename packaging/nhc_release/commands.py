"""Other programs, run by argument lists in an environment that this machine's user does not colour."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Mapping, Optional, Sequence, Union

Word = Union[str, "os.PathLike[str]"]
KEPT = ("HOME", "PATH", "TMPDIR", "SSH_AUTH_SOCK", "XDG_CACHE_HOME", "NHC_KUBE_BIN")
KEPT_PREFIXES = ("PIP_", "SSL_", "REQUESTS_", "http_", "https_", "no_", "HTTP_", "HTTPS_", "NO_", "GO")
LONGEST = 1800.0
"""Seconds that a program may take."""


class BuildError(Exception):
    """Something cannot be built, or what was built is not right. One line, or a program's own last lines."""


def environment(epoch: int, more: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """What decides the bytes, and how this machine reaches its package index; nothing else of the caller's."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    fixed = {
        "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
    }  # fmt: skip
    return {**kept, **fixed, **(more or {})}


def run(
    argv: Sequence[Word], epoch: int = 0, cwd: Optional[Path] = None, more: Optional[Mapping[str, str]] = None,
    stdin: Optional[bytes] = None,
) -> str:  # fmt: skip
    """Run a program to its end; its standard output. Raises BuildError with the last lines of what it said."""
    words = [os.fspath(word) for word in argv]
    try:
        done = subprocess.run(
            words, cwd=cwd, env=environment(epoch, more), input=stdin, capture_output=True, timeout=LONGEST, check=False
        )
    except FileNotFoundError:
        raise BuildError(f"{words[0]} is missing: CONTRIBUTING.md lists what a build needs") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{words[0]}: not done within {LONGEST:.0f} s") from None
    if done.returncode:
        said = (done.stdout + b"\n" + done.stderr).decode(errors="replace").strip().splitlines()
        raise BuildError("\n".join([f"{' '.join(words[:4])}: status {done.returncode}", *said[-25:]]))
    return done.stdout.decode(errors="replace")


def need(program: str, package: str) -> str:
    """The path of a program. Raises BuildError with the Debian package that has it."""
    found = shutil.which(program)
    if found is None:
        raise BuildError(f"{program} is missing: apt-get install {package}")
    return found
