"""The Debian packages in a minimal root: installed, upgraded with what a site changed, removed, purged."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NODE = ("nodehealth", "nodehealth-agent", "nodehealth-hooks")


def later(package: Path, into: Path, version: str = "99.0") -> Path:
    """The same package of another version, whose settings say something new."""
    tree = into / package.stem
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    text = re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE)
    control.write_text(re.sub(r"\(= [^)]+\)", f"(= {version})", text))
    settings = tree / "etc/nhc/agent.toml"
    if settings.exists():
        settings.write_text(settings.read_text() + "# of the new version\n")
    made = into / f"{package.name.partition('_')[0]}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "-b", "-Znone", "--root-owner-group", tree, made], check=True, capture_output=True)
    return made


def installed(root, *names):
    said = root.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names, check=False).stdout
    return dict(line.split() for line in said.splitlines())


def test_a_node_installs_upgrades_removes_and_purges(release, root, tmp_path):
    before = root.files("/usr", "/etc", "/var/lib/nhc", "/run")
    root.run("dpkg", "-i", *root.take(release.debs(*NODE)))
    assert set(installed(root, *NODE).values()) == {"installed"}

    assert root.run("nhc", "--version").stdout == f"nhc {release.version}\n"
    root.write("/etc/nhc/nhc.conf", "* || check_file_test -d /etc\n")
    assert root.run("nhc", "check", "local").returncode == 0
    root.write("/etc/nhc/nhc.conf", "* || check_file_test -f /etc/nonesuch\n")
    assert root.run("nhc", "check", "local", check=False).returncode == 1
    assert root.run("nhc-healthcheck", "-e", "check_file_test -d /etc").returncode == 0
    root.run("nhc-prolog", "--help")
    assert root.run("nhc", "serve", "agent", "--check-settings").returncode == 0

    compiled = [name for name in root.files("/usr/share/nodehealth") if name.endswith(".pyc")]
    assert len(compiled) > 300  # each start would compile them
    assert not list((root.path / "etc/systemd/system").rglob("nhc-*"))  # no unit is enabled
    refused = root.run("nhc", "status", "store", check=False)
    assert refused.returncode in (2, 3)
    assert "install the package nodehealth-libs" in refused.stderr

    root.write("/etc/nhc/agent.toml", '[agent]\nprofile = "none"\n')
    root.write("/var/lib/nhc/ledger", "kept")
    newer = [later(package, tmp_path) for package in release.debs(*NODE)]
    root.run("dpkg", "-i", "--force-confold", *root.take(newer))
    assert root.run("dpkg-query", "-W", "-f", "${Version}", "nodehealth-agent").stdout == "99.0"
    assert root.read("/etc/nhc/agent.toml") == '[agent]\nprofile = "none"\n'
    assert "# of the new version" in root.read("/etc/nhc/agent.toml.dpkg-dist")
    assert root.read("/var/lib/nhc/ledger") == "kept"

    root.run("dpkg", "--remove", *NODE)
    assert root.files("/usr") <= {name for name in before if name.startswith("/usr")}
    assert root.read("/etc/nhc/agent.toml") == '[agent]\nprofile = "none"\n'
    root.run("dpkg", "--purge", *NODE)
    left = root.files("/etc", "/var/lib/nhc", "/run/nhc") - before
    assert left == {"/etc/nhc", "/etc/nhc/nhc.conf"}  # what the site wrote itself
    root.run("rm", "-r", "/etc/nhc")


def test_maintainer_scripts_may_run_again(release, root):
    """As after a power failure within an installation."""
    packages = root.take(release.debs(*NODE))
    for _ in range(2):
        root.run("dpkg", "-i", *packages)
    root.run("dpkg-reconfigure", "nodehealth")
    root.run("dpkg", "--purge", *NODE)
    for script in sorted((root.path / "var/lib/dpkg/info").glob("nodehealth*")):
        raise AssertionError(f"{script.name} is left")


def test_services_install_with_their_user_and_are_ready_to_be_configured(release, root):
    names = ("nodehealth", "nodehealth-libs", "nodehealth-server", "nodehealth-console")
    root.run("dpkg", "-i", *root.take(release.debs(*names)))
    assert root.run("getent", "passwd", "nhc").stdout.split(":")[5:6] == ["/var/lib/nhc-server"]
    assert not list((root.path / "etc/systemd/system").rglob("nhc-*"))

    root.run("mkdir", "-p", "/var/lib/nhc-server")
    root.run("nhc", "store", "migrate")
    assert "problems" in root.run("nhc", "status", "store").stdout
    examples = "/usr/share/doc/nodehealth-{}/examples/{}"
    root.run("nhc", "serve", "console", "--check-settings", "--settings", examples.format("console", "console.toml"))
    root.run("nhc", "serve", "notices", "--check-settings", "-s", examples.format("server", "notices.toml"))
    root.run("nhc", "fleet", "check", "--help")
    root.run("nhc", "doctor", "kubernetes", "--help")
    missing = root.run("nhc", "doctor", "remedy", check=False)
    assert missing.returncode == 2
    assert "/etc/nhc/remedy.toml: sources.adapter: missing" in missing.stderr
    root.run("sed", "-i", 's/^# adapter = "slurm"/adapter = "slurm"/', "/etc/nhc/remedy.toml")
    doctor = root.run("nhc", "doctor", "remedy", check=False)
    assert "marking is not enabled: nothing will be done" in doctor.stdout
    started = root.run("/usr/lib/nodehealth/nhc", "--version")
    assert started.stdout == f"nhc {release.version}\n"

    root.run("dpkg", "--purge", *reversed(names))
    assert not (root.path / "usr/lib/nodehealth").exists()
    assert not list((root.path / "var/lib").glob("nhc*"))


def test_a_package_of_another_version_is_not_taken_for_this_one(release, root, tmp_path):
    (base,) = release.debs("nodehealth")
    root.run("dpkg", "-i", *root.take([later(base, tmp_path)]))
    refused = root.run("dpkg", "-i", *root.take(release.debs("nodehealth-agent")), check=False)
    assert refused.returncode != 0
    assert "depends on nodehealth (= " in refused.stderr
