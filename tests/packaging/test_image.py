"""The image, read by tools that did not build it, and run without an engine: its root, in a namespace."""

import json
import os
import subprocess

import pytest

pytestmark = pytest.mark.slow

_ENTER = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root/etc/nhc"
cp "$1" "$root/etc/nhc/nhc.conf"; shift
mount -o remount,ro,bind "$root"
mount -t tmpfs tmpfs "$root/run"
exec setpriv "$@"
"""


@pytest.fixture(scope="module")
def bundle(release, tmp_path_factory):
    """The image unpacked as a runtime unpacks it: its root and its configuration."""
    top = tmp_path_factory.mktemp("image")
    (top / "layout").mkdir()
    subprocess.run(
        ["tar", "-C", top / "layout", "-xf", release.out / f"nodehealth-{release.version}-oci.tar"], check=True
    )
    image = f"{top}/layout:{release.version}"
    subprocess.run(["umoci", "unpack", "--image", image, top / "bundle"], check=True, capture_output=True)
    yield top / "bundle"
    subprocess.run(["rm", "-rf", "--one-file-system", top], check=True)


def run(bundle, tmp_path, *words, user=True):
    """The image's own entry point, as its own user, on a read-only root."""
    config = json.loads((bundle / "config.json").read_text())["process"]
    (tmp_path / "nhc.conf").write_text("* || check_file_test -d /etc\n* || [ 1 = 1 ]\n")
    who = config["user"]
    root = str(bundle / "rootfs")
    as_whom = [f"--reuid={who['uid']}", f"--regid={who['gid']}", "--clear-groups"] if user else ["--reuid=0"]
    words = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", _ENTER, "enter", root,
             str(tmp_path / "nhc.conf"), "--reuid=0", "chroot", root, "/usr/bin/setpriv", *as_whom,
             "/usr/bin/env", "-i", *config["env"], "NHC_STATE_DIR=/run/nhc" if not user else "HOME=/", *config["args"],
             *words]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def test_skopeo_reads_it(release):
    layout = f"oci-archive:{release.out}/nodehealth-{release.version}-oci.tar"
    done = subprocess.run(["skopeo", "inspect", "--config", layout], capture_output=True, text=True, check=True)
    config = json.loads(done.stdout)["config"]
    assert config["Entrypoint"] == ["/usr/bin/nhc"]
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == release.version


def test_it_judges_as_its_own_user_on_a_read_only_root(bundle, tmp_path):
    done = run(bundle, tmp_path, "check", "local", "--all")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_judges_as_root_as_the_agent_does(bundle, tmp_path):
    done = run(bundle, tmp_path, "check", "local", "--all", user=False)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(bundle, tmp_path, "serve", "agent", "--check-settings", user=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words", [("doctor", "kubernetes"), ("serve", "server"), ("serve", "remedy"), ("serve", "console")]
)
def test_every_service_is_in_it(bundle, tmp_path, words):
    done = run(bundle, tmp_path, *words, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: nhc ")


def test_it_has_what_checks_start_and_trusts_public_authorities(bundle):
    root = bundle / "rootfs"
    for program in ("nsenter", "chroot", "bash", "ssh", "ipmitool", "python3"):
        assert os.path.lexists(root / "usr/bin" / program) or os.path.lexists(root / "usr/sbin" / program), program
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100
    assert not os.path.lexists(root / "usr/bin/perl")


def test_nothing_in_it_is_of_the_machine_that_built_it(bundle):
    root = bundle / "rootfs"
    for path in ("etc/resolv.conf", "etc/hostname", "etc/machine-id"):
        assert not os.path.lexists(root / path)
    assert (root / "etc/passwd").read_text().count("\n") == 2
