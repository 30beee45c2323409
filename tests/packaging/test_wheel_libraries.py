"""The C libraries inside wheels: the bill of materials names them, and none is older than a year without a word why."""

import datetime
import json
import re
import sysconfig
from pathlib import Path

import pytest

from nhc_release import wheel_libraries
from nhc_release.source import ROOT

SITE = Path(sysconfig.get_paths()["purelib"])
SHIPPED = {*re.findall(r"^(\S+)==", (ROOT / "packaging/libraries.txt").read_text(), re.MULTILINE), "grpcio"}
"""What packages carry, and what `pip install nodehealth[...]` brings besides."""
OLD = {
    ("psycopg-binary", "cyrus-sasl-lib"): "libldap's, for `ldap://` in a service file: nhc's URLs name a host",
    ("psycopg-binary", "keyutils-libs"): "libkrb5's, for GSSAPI: asked only where PostgreSQL demands it",
    ("psycopg-binary", "libcom_err"): "libkrb5's, the texts of its errors",
}
"""CentOS 7's, which psycopg's wheel takes along (docs/security.md). One that is there no more is taken out here."""


@pytest.fixture(scope="module")
def found():
    return [one for one in wheel_libraries.carried(SITE) if one.wheel.replace("_", "-") in SHIPPED]


def test_no_library_in_a_wheel_is_older_than_a_year(found):
    today = datetime.date.today()
    old = {(one.wheel.replace("_", "-"), one.name): one for one in found if one.is_old(today)}
    assert set(old) == set(OLD), "; ".join(
        f"{one.wheel} has {one.name} {one.version} of {one.day}" for one in old.values()
    )


def test_each_openssl_says_its_day(found):
    """cryptography has it built in, psycopg beside it."""
    openssl = {one.wheel: one for one in found if one.name == "openssl"}
    assert set(openssl) >= {"cryptography", "psycopg-binary"}
    assert all(one.day is not None for one in openssl.values())


def test_ssh_is_the_distributions():
    assert "ssh-python" not in SHIPPED


def made(directory, name, libraries=(), documents=None, extension=b""):
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (directory / name).mkdir()
    (directory / name / "_x.abi3.so").write_bytes(extension)
    for library, data in libraries:
        (directory / f"{name}.libs").mkdir(exist_ok=True)
        (directory / f"{name}.libs" / library).write_bytes(data)
    if documents is not None:
        (info / "sboms").mkdir()
        (info / "sboms" / "auditwheel.cdx.json").write_text(json.dumps({"components": documents}))


def shown(directory):
    return [(one.wheel, one.name, one.version, str(one.day or "")) for one in wheel_libraries.carried(directory)]


def test_a_wheel_without_a_document_is_read_by_its_files(tmp_path):
    """As ssh-python 1.2.0 was: OpenSSL of October 2024."""
    made(tmp_path, "ssh_x", [("libcrypto-780c8c9c.so.3", b"..\0OpenSSL 3.4.0 22 Oct 2024\0.."),
                             ("libssh-483587a0.so.4.10.3", b"")])  # fmt: skip
    assert shown(tmp_path) == [("ssh_x", "libcrypto", "3", ""), ("ssh_x", "libssh", "4.10.3", ""),
                               ("ssh_x", "openssl", "3.4.0", "2024-10-22")]  # fmt: skip
    openssl = wheel_libraries.carried(tmp_path)[-1]
    assert openssl.is_old(datetime.date(2026, 1, 1))
    assert not openssl.is_old(datetime.date(2025, 1, 1))


def test_a_wheels_own_document_comes_first(tmp_path):
    documents = [
        {"name": "y", "version": "1.0", "purl": "pkg:pypi/y@1.0"},
        {"name": "openssl", "version": "3.5.9", "purl": "pkg:generic/openssl@3.5.9?download_url=https://example.org/x"},
        {
            "name": "cyrus-sasl-lib",
            "version": "2.1.26-24.el7_9",
            "purl": "pkg:rpm/centos/cyrus-sasl-lib@2.1.26-24.el7_9",
        },
    ]
    made(tmp_path, "y", [("libssl-0a1b2c3d.so.3", b"")], documents, b"\0OpenSSL 3.5.9 29 Sep 2026\0")
    assert shown(tmp_path) == [
        ("y", "cyrus-sasl-lib", "2.1.26-24.el7_9", "2024-06-30"), ("y", "openssl", "3.5.9", "2026-09-29"),
    ]  # fmt: skip
