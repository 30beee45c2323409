"""Digests and their signature, with keys of ssh-keygen's that are thrown away."""

import shutil
import subprocess

import pytest

from nhc_release import signing
from nhc_release.commands import BuildError
from tests.support.require import need


def key(path):
    need("ssh-keygen", shutil.which("ssh-keygen"), "package openssh-client")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return path, (path.parent / f"{path.name}.pub").read_text().strip()


@pytest.fixture
def signer(tmp_path):
    """The key's file, and the file of those who may sign."""
    path, public = key(tmp_path / "key")
    allowed = tmp_path / "allowed"
    allowed.write_text(f'{signing.IDENTITY} namespaces="{signing.NAMESPACE}" {public}\n')
    return str(path), allowed


@pytest.fixture
def out(tmp_path, signer):
    """Two files, their digests, and the signature."""
    made = tmp_path / "dist"
    made.mkdir()
    (made / "a.deb").write_bytes(b"a")
    (made / "b.rpm").write_bytes(b"b")
    signing.write_sums(made)
    signing.sign(made, signer[0])
    return made


def test_what_was_signed_is_verified(out, signer):
    signing.verify(out, signer[1])
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0


def test_the_documented_command_verifies(out, signer):
    words = ["ssh-keygen", "-Y", "verify", "-f", signer[1], "-I", "releases@nodehealth", "-n", "nodehealth-release"]
    with (out / "SHA256SUMS").open("rb") as sums:
        done = subprocess.run([*words, "-s", out / "SHA256SUMS.sig"], stdin=sums, capture_output=True, check=False)
    assert done.returncode == 0


def test_a_changed_file_fails(out, signer):
    (out / "a.deb").write_bytes(b"x")
    with pytest.raises(BuildError, match=r"^changed: a\.deb$"):
        signing.verify(out, signer[1])


def test_changed_digests_fail(out, signer):
    (out / "a.deb").write_bytes(b"x")
    signing.write_sums(out)
    with pytest.raises(BuildError, match="SHA256SUMS: the signature is not one of allowed"):
        signing.verify(out, signer[1])


@pytest.mark.parametrize(("change", "said"), [("missing", r"missing: b\.rpm"), ("added", "not in SHA256SUMS: c")])
def test_a_file_too_few_or_too_many_fails(out, signer, change, said):
    if change == "missing":
        (out / "b.rpm").unlink()
    else:
        (out / "c").write_bytes(b"")
    with pytest.raises(BuildError, match=said):
        signing.verify(out, signer[1])


def test_a_strangers_key_fails(out, signer, tmp_path):
    stranger, _ = key(tmp_path / "stranger")
    signing.sign(out, str(stranger))
    with pytest.raises(BuildError, match="the signature is not one of allowed"):
        signing.verify(out, signer[1])


def test_a_signature_for_something_else_fails(out, signer):
    """The same key, over the same text, but as a Git commit is signed."""
    (out / "SHA256SUMS.sig").unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", signer[0], "-n", "git", out / "SHA256SUMS"], check=True)
    with pytest.raises(BuildError, match="the signature is not one of allowed"):
        signing.verify(out, signer[1])


def test_no_signature_fails(out, signer):
    (out / "SHA256SUMS.sig").unlink()
    with pytest.raises(BuildError, match=r"SHA256SUMS\.sig is missing"):
        signing.verify(out, signer[1])


def test_a_key_that_is_not_there_is_said(out):
    with pytest.raises(BuildError, match="nonesuch"):
        signing.sign(out, "nonesuch")


def test_a_line_that_is_no_digest_is_named(out, signer):
    sums = out / "SHA256SUMS"
    sums.write_text(sums.read_text() + "x  ../y\n")
    with pytest.raises(BuildError, match="SHA256SUMS:3: not a digest"):
        signing.verify_sums(out)
