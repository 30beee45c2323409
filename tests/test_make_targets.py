"""What a make target installs as root: what it needs, and no more; daemons of packages are not started."""

import os
import shutil
import subprocess

import pytest

from tests.support.require import need
from tests.support.run import ROOT

DAEMONS = {
    "slurmctld",
    "slurmd",
    "slurmrestd",
    "munge",
    "postgresql",
    "prometheus",
    "prometheus-alertmanager",
    "openssh-server",
}


def installed(target):
    """The packages that a target may install, of which recipes name all."""
    need("make", shutil.which("make"))
    done = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True)
    found = set()
    for line in done.stdout.splitlines():
        if "dpkg-query" in line:
            found |= set(line.partition("Status-Status}\\n' ")[2].partition("2>")[0].split())
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    "target", ["site", "kube", "packages", "release", "verify-release", "chart", "fuzz", "ptx", "quick"]
)
def test_no_target_but_the_tests_installs_a_daemon(target):
    assert not installed(target) & DAEMONS


@pytest.mark.thorough
def test_each_target_installs_its_own(tmp_path):
    assert installed("site") == installed("fuzz") == set()
    assert {"lintian", "rpm", "umoci"} <= installed("packages")
    assert installed("test") >= DAEMONS
    assert "prometheus" not in installed("bench")


@pytest.mark.thorough
def test_while_packages_are_installed_no_daemon_may_start(tmp_path):
    need("root", os.geteuid() == 0, "to have file systems of its own")
    need("unshare", shutil.which("unshare"))
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\nsh /usr/sbin/policy-rc.d; echo $? >> {tmp_path}/seen\n")
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\n")
    for name in ("apt-get", "dpkg-query"):
        (tmp_path / name).chmod(0o755)
    script = (
        f"mount -t tmpfs none /usr/sbin && make system-packages PACKAGES=postgresql && ls /usr/sbin > {tmp_path}/left"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "101" in (tmp_path / "seen").read_text().splitlines()
    assert "no daemon" in done.stdout
    assert (tmp_path / "left").read_text() == ""
