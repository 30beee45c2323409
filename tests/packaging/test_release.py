"""What `make release` makes: the same bytes twice, complete, signed; and what a tampered file does to it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nhc.cli.command_table import COMMANDS
from nhc_release import artifacts, signing, source
from nhc_release.commands import BuildError

pytestmark = pytest.mark.slow


def test_a_release_is_complete_compared_and_signed(release):
    assert artifacts.complete(source.read(), release.out) == []
    assert "a second build made the same bytes" in release.said
    signing.verify(release.out, release.allowed)


def test_notes_are_the_changelogs(release):
    notes = (release.out / "NOTES.md").read_text()
    assert notes.startswith(f"# nodehealth {release.version}\n\n")
    assert source.read().notes in notes


def test_a_tampered_package_fails(release, tmp_path):
    copied = tmp_path / "dist"
    shutil.copytree(release.out, copied)
    package = next(copied.glob("nodehealth_*.deb"))
    data = bytearray(package.read_bytes())
    data[len(data) // 2] ^= 1
    package.write_bytes(data)
    with pytest.raises(BuildError, match=f"changed: {package.name}"):
        signing.verify(copied, release.allowed)


def test_the_wheel_installs_and_runs(release, tmp_path):
    wheel = release.out / f"nodehealth-{release.version}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("tests/", "nhc_release/"))]
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", tmp_path, wheel]
    subprocess.run(words, check=True)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    first = {path.name: path.read_text().partition("\n")[0] for path in (tmp_path / "bin").glob("nhc*")}
    assert first == {"nhc": "#!/bin/sh", "nhc-healthcheck": "#!/bin/sh", "nhc-prolog": f"#!{sys.executable}",
                     "nhc-epilog": f"#!{sys.executable}"}  # fmt: skip
    argv = [tmp_path / "bin" / "nhc", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    assert (done.stdout, done.stderr) == (f"nhc {release.version}\n", "")


def test_the_archive_judges_a_node(release, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_file_test -d /\n")
    argv = ["/usr/bin/python3", "-I", "-S", release.out / f"nhc-{release.version}.pyz", "check", "local"]
    done = subprocess.run(
        [*argv, "-c", tmp_path / "nhc.conf"], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "NHC_STATE_DIR": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def components(release, subject):
    document = json.loads((release.out / f"{subject}-{release.version}.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    return {one["purl"].partition("?")[0] for one in document["components"]}


def test_the_sboms_name_what_is_there(release):
    node = components(release, "nodehealth")
    assert f"pkg:pypi/nodehealth@{release.version}" in node
    assert {one.rpartition("@")[0] for one in node} == {
        "pkg:npm/modern-normalize", "pkg:npm/uplot", "pkg:pypi/click", "pkg:pypi/nodehealth", "pkg:pypi/nvidia-ml-py",
        "pkg:pypi/tomli",
    }  # fmt: skip
    libraries = components(release, "nodehealth-libs")
    locked = (Path(source.ROOT) / "packaging/libraries.txt").read_text()
    aiohttp = next(one for one in libraries if one.startswith("pkg:pypi/aiohttp@"))
    assert f"aiohttp=={aiohttp.rpartition('@')[2]} " in locked
    assert [one for one in libraries if one.startswith("pkg:generic/openssl@")]  # inside a wheel
    image = components(release, "nodehealth-image")
    assert node | libraries < image
    assert [one for one in image if one.startswith("pkg:deb/debian/python3.11@")]


def test_each_command_of_the_table_is_known_without_the_libraries(release):
    """The archive is the node's part: what it lacks is said in a line, never a traceback."""
    pyz = release.out / f"nhc-{release.version}.pyz"
    for name in COMMANDS:
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", pyz, name, "--help"], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
