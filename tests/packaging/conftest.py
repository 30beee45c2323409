"""A release of this checkout, as `make release` builds it: twice, compared, linted, signed. Every test installs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Iterator, List, NamedTuple

import pytest

from nhc_release import source
from tests.support.clean_root import CleanRoot, base
from tests.support.require import need

TOOLS = {
    "dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "dh_python3": "dh-python", "lintian": "lintian",
    "rpmbuild": "rpm", "rpmlint": "rpmlint", "mmdebstrap": "mmdebstrap", "umoci": "umoci", "skopeo": "skopeo",
    "ssh-keygen": "openssh-client", "ansible-galaxy": "",
}  # fmt: skip
DATE = "2026-01-31"


class Release(NamedTuple):
    """The files, where they were built, the version, who may sign, and what the build said."""

    out: Path
    work: Path
    version: str
    allowed: Path
    said: str

    def debs(self, *names: str) -> List[Path]:
        return [next(self.out.glob(f"{name}_*.deb")) for name in names]

    def rpms(self, *names: str) -> List[Path]:
        return [next(self.out.glob(f"{name}-{self.version}-*.rpm")) for name in names]


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What `make release` makes of this checkout, committed and with a date in its changelog."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for tool, package in TOOLS.items():
        need(tool, which(tool, path=environ["PATH"]), f"apt-get install {package}" if package else "")
    top = tmp_path_factory.mktemp("release")
    found = source.read()
    checkout = source.export(found, top / "checkout")
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(re.sub(r"^(## \S+), unreleased$", rf"\1, {DATE}", changelog.read_text(), flags=re.MULTILINE))
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Release"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / "key"], check=True)
    allowed = top / "allowed"
    allowed.write_text(f"releases@nodehealth {(top / 'key.pub').read_text()}")
    argv = [sys.executable, "-m", "nhc_release", "release", "--key", top / "key", "--allowed-signers", allowed,
            "--out", top / "dist", "--work", top / "work"]  # fmt: skip
    environ["PYTHONPATH"] = str(checkout / "packaging")
    done = subprocess.run(argv, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Release(top / "dist", top / "work/first", found.version, allowed, done.stdout)


@pytest.fixture(scope="session")
def base_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("base") / "root.tar")


@pytest.fixture(scope="module")
def root(base_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    """One for the tests of a file, in their order: each takes its packages away again."""
    made = CleanRoot(tmp_path_factory.mktemp("roots") / "root", base_root)
    yield made
    subprocess.run(["rm", "-rf", "--one-file-system", made.path], check=True)
