"""The RPM packages. No root of Fedora can be had here: they are installed into Debian's, --nodeps, by rpm itself, whose
scriptlets then run with that root's shell and Python.
"""

import subprocess

import pytest

from nhc_release import deb

pytestmark = pytest.mark.slow

NODE = ("nodehealth", "nodehealth-agent", "nodehealth-hooks")


def rpm(root, *words):
    """rpm of this machine on that root, in a namespace where scriptlets find /proc and /dev."""
    script = 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; root=$1; shift; exec rpm --root "$root" "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "rpm", root.path, *words]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def next_version(release, into):
    """The packages of the node again, of a later version, by the same spec."""
    stage = release.work / "rpm/stage"
    settings = stage / "nodehealth-agent/etc/nhc/agent.toml"
    settings.write_text(settings.read_text() + "# of the new version\n")
    defines = {"_topdir": into, "nhc_stage": stage, "nhc_version": "99.0", "nhc_date": "Thu Jan 01 2026"}
    words = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
    spec = release.work / "source/packaging/nodehealth.spec"
    subprocess.run(["rpmbuild", "-bb", "--quiet", *words, spec], check=True, capture_output=True)
    return [next(into.glob(f"RPMS/*/{name}-99.0-1.*.rpm")) for name in NODE]


def test_a_node_installs_upgrades_and_removes(release, root, tmp_path):
    before = root.files("/usr")
    rpm(root, "-i", "--nodeps", *release.rpms(*NODE))
    assert rpm(root, "-V", "--nodeps", *NODE) == ""
    root.write("/etc/nhc/nhc.conf", "* || check_file_test -d /etc\n")
    assert root.run("nhc", "check", "local").returncode == 0
    assert root.run("nhc-healthcheck", "-e", "check_file_test -d /etc").returncode == 0
    assert len([name for name in root.files("/usr/share/nodehealth") if name.endswith(".pyc")]) > 300
    for program in (root.path / "usr/bin").glob("nhc*"):
        assert (root.path / f"usr/share/man/man1/{program.name}.1.gz").is_file()
    assert (root.path / "usr/share/zsh/site-functions/_nhc").is_file()

    root.write("/etc/nhc/agent.toml", '[agent]\nprofile = "none"\n')
    rpm(root, "-U", "--nodeps", *next_version(release, tmp_path))
    assert rpm(root, "-q", "nodehealth") == "nodehealth-99.0-1.noarch\n"
    assert root.read("/etc/nhc/agent.toml") == '[agent]\nprofile = "none"\n'
    assert "# of the new version" in root.read("/etc/nhc/agent.toml.rpmnew")
    assert root.run("nhc", "check", "local").returncode == 0

    rpm(root, "-e", *NODE)
    # The database of rpm, and a directory that the package `filesystem` has where rpm is at home.
    assert root.files("/usr") <= before | {"/usr/lib/sysimage", "/usr/share/licenses"} | root.files("/usr/lib/sysimage")
    assert root.read("/etc/nhc/agent.toml.rpmsave") == '[agent]\nprofile = "none"\n'


def test_services_install_with_their_user(release, root):
    names = ("nodehealth", "nodehealth-libs", "nodehealth-server", "nodehealth-console")
    rpm(root, "-i", "--nodeps", *release.rpms(*names))
    assert root.run("getent", "passwd", "nhc").stdout.split(":")[5] == "/var/lib/nhc-server"
    root.run("mkdir", "-p", "/var/lib/nhc-server")
    root.run("nhc", "store", "migrate")
    assert "problems" in root.run("nhc", "status", "store").stdout
    rpm(root, "-e", *names)
    assert not (root.path / "usr/lib/nodehealth").exists()


def test_the_libraries_ask_for_their_python_and_a_c_library_that_is_new_enough(release):
    (libraries,) = release.rpms("nodehealth-libs")
    asked = subprocess.run(["rpm", "-qp", "--requires", libraries], capture_output=True, text=True, check=True).stdout
    assert "/usr/bin/python3.11\n" in asked
    assert "glibc >= 2.34\n" in asked  # Enterprise Linux 9 has 2.34


def test_a_candidate_is_older_than_its_release():
    script = "%{lua: print(rpm.vercmp('0.2.0~rc1', '0.2.0'))}"
    assert deb.debian_version("0.2.0rc1") == "0.2.0~rc1"
    assert subprocess.run(["rpm", "--eval", script], capture_output=True, text=True, check=True).stdout == "-1\n"
