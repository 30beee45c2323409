"""Minimal Debian roots that hold nothing but Python: made once, copied for each test, entered by chroot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import which
from typing import Sequence

from tests.support.require import need

INCLUDED = ("python3", "systemd-standalone-sysusers")
"""What the packages depend on, from Debian's archive; dpkg itself sees that nothing else is needed."""
_ENTER = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \\
  PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


def base(tar: Path) -> Path:
    """The root as an archive."""
    need("root", os.geteuid() == 0, "roots are made and entered by root")
    need("mmdebstrap", which("mmdebstrap"), "apt-get install mmdebstrap")
    words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(INCLUDED)}", "bookworm", str(tar)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return tar


class CleanRoot:
    """One root, of its own."""

    def __init__(self, path: Path, tar: Path) -> None:
        self.path = path
        path.mkdir()
        subprocess.run(["tar", "-C", path, "--exclude=./dev/*", "-xf", tar], check=True)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as root; fails the test where that fails, unless `check` is false."""
        argv = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", _ENTER, "enter"]
        done = subprocess.run([*argv, self.path, *words], capture_output=True, text=True, check=False, timeout=300)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def files(self, *places: str) -> set[str]:
        """Every file and directory below these places."""
        found = set()
        for place in places:
            top = self.path / place.lstrip("/")
            found |= {f"/{path.relative_to(self.path)}" for path in top.rglob("*")}
        return found

    def take(self, packages: Sequence[Path]) -> list[str]:
        """Copy packages into it; where they are there."""
        into = self.path / "packages"
        into.mkdir(exist_ok=True)
        for package in packages:
            (into / package.name).write_bytes(package.read_bytes())
        return [f"/packages/{package.name}" for package in packages]

    def write(self, path: str, text: str) -> None:
        target = self.path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def read(self, path: str) -> str:
        return (self.path / path.lstrip("/")).read_text()
