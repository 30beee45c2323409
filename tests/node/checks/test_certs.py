"""Certificates: made by ssh-keygen and openssl, read by ourselves."""

import datetime
import functools
import shutil
import subprocess
import time

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.certificates import FOREVER, parse_ssh, parse_x509
from tests.support.judge import judge, judge_all
from tests.support.require import need

DAY = 86400


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """Makes a certificate of a key of that kind, good from now on for so long."""
    need("ssh-keygen", shutil.which("ssh-keygen"), "package openssh-client")
    at = tmp_path_factory.mktemp("ssh")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / "ca"], check=True)

    @functools.cache
    def make(validity="-1h:+90d", kind="ed25519", host=True):
        for old in at.glob("key*"):
            old.unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", at / "key"], check=True)
        subprocess.run(["ssh-keygen", "-q", "-s", at / "ca", "-I", "node", "-n", "node001,node001.example",
                        *(["-h"] if host else []), *(["-V", validity] if validity else []), at / "key.pub"],
                       check=True)  # fmt: skip
        return (at / "key-cert.pub").read_text()

    return make


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_what_ssh_keygen_made_is_read(ssh, kind):
    begin = time.time()
    found = parse_ssh(ssh("-1h:+90d", kind))
    assert found.kind == 2
    assert begin - 3700 < found.begins < time.time() - 3500
    assert begin + 90 * DAY - 120 < found.ends < time.time() + 90 * DAY + 120
    assert parse_ssh(ssh("", kind)).ends == FOREVER


def node(text, now=None):
    host = FakeHost({"/etc/ssh/sshd_config": "Port 22\nInclude /etc/ssh/sshd_config.d/*.conf\n",
                     "/etc/ssh/sshd_config.d/50-host.conf": "hostcertificate=/etc/ssh/host-cert.pub\n",
                     "/etc/ssh/host-cert.pub": text})  # fmt: skip
    host.system.now = now or time.time()
    return host


@pytest.mark.parametrize(
    ("ahead", "options", "expected"),
    [
        (0, "", (Verdict.OK, "")),
        (70 * DAY, "", (Verdict.OK, "")),
        (83 * DAY, "", (Verdict.WARN, "CertificateEnds")),
        (70 * DAY, "-w 30d", (Verdict.WARN, "CertificateEnds")),
        (89 * DAY, "-c 2d", (Verdict.CRIT, "CertificateEnds")),
        (91 * DAY, "", (Verdict.CRIT, "CertificateExpired")),
        (-2 * DAY, "", (Verdict.CRIT, "CertificateNotYet")),
    ],
)
def test_a_host_certificate_as_its_end_comes_near(ssh, ahead, options, expected):
    found = judge(node(ssh(), time.time() + ahead), f"check_ssh_hostcert {options}")
    assert (found.verdict, found.reason) == expected, found


def test_a_users_certificate_is_none_for_a_host(ssh):
    assert judge(node(ssh(host=False)), "check_ssh_hostcert").reason == "CertificateWrongType"
    assert judge(node(ssh("")), "check_ssh_hostcert").verdict is Verdict.OK


def test_no_host_certificate_and_one_that_cannot_be_read():
    assert judge(FakeHost(), "check_ssh_hostcert").verdict is Verdict.SKIP
    assert (
        judge(FakeHost({"/etc/ssh/sshd_config": "#HostCertificate /x\n"}), "check_ssh_hostcert").verdict is Verdict.SKIP
    )
    assert judge(node("ssh-ed25519 AAAA node\n"), "check_ssh_hostcert").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(), "check_ssh_hostcert /etc/none").reason == "CertificateMissing"
    loop = {"/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config\n"}
    assert judge(FakeHost(loop), "check_ssh_hostcert").verdict is Verdict.SKIP


@pytest.fixture(scope="module")
def x509(tmp_path_factory):
    need("openssl", shutil.which("openssl"), "package openssl")
    at = tmp_path_factory.mktemp("x509")

    @functools.cache
    def make(days=365, form="PEM"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout",
                        at / "key.pem", "-out", at / "c.pem", "-days", str(days), "-subj", "/CN=n"],
                       check=True, capture_output=True)  # fmt: skip
        subprocess.run(["openssl", "x509", "-in", at / "c.pem", "-outform", form, "-out", at / "c"], check=True)
        return (at / "key.pem").read_bytes(), (at / "c").read_bytes()

    return make


def openssls_end(data, tmp_path):
    (tmp_path / "c").write_bytes(data)
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", tmp_path / "c"], capture_output=True, text=True
    )
    end = datetime.datetime.strptime(said.stdout.strip(), "notAfter=%b %d %H:%M:%S %Y GMT")
    return end.replace(tzinfo=datetime.timezone.utc).timestamp()


@pytest.mark.thorough
@pytest.mark.parametrize("days", [1, 365, 20000])
def test_what_openssl_made_is_read_as_openssl_reads_it(x509, tmp_path, days):
    key, certificate = x509(days)
    (found,) = parse_x509(key + certificate)
    assert found.ends == openssls_end(certificate, tmp_path)
    assert parse_x509(x509(days, "DER")[1])[0].ends == pytest.approx(found.ends, abs=60)


def test_years_of_two_digits_are_of_1950_to_2049(x509):
    der = x509(365, "DER")[1]
    at = der.index(b"\x17\x0d") + 2  # notBefore, a UTCTime
    for text, begins in ((b"700101000000Z", 0.0), (b"500101000000Z", -631152000.0), (b"491231235959Z", 2524607999.0)):
        assert parse_x509(der[:at] + text + der[at + 13 :])[0].begins == begins


KUBELET = "/var/lib/kubelet/pki/kubelet-client-current.pem"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("days", "passed", "options", "expected"),
    [(365, 0, "", Verdict.OK), (365, 340, "", Verdict.OK), (365, 352, "", Verdict.WARN), (365, 366, "", Verdict.CRIT),
     (10, 0, "", Verdict.OK), (10, 8.5, "", Verdict.OK), (10, 9.5, "", Verdict.WARN), (10, 0, "-w 30d", Verdict.WARN)],
)  # fmt: skip
def test_the_kubelets_certificate_as_its_end_comes_near(x509, days, passed, options, expected):
    key, certificate = x509(days)
    host = FakeHost({KUBELET: certificate + key})
    host.system.now = time.time() + passed * DAY
    found = judge(host, f"check_tls_cert {options}")
    assert found.verdict is expected, found
    assert found.metrics[0].name == "certificate_time_left"


@pytest.mark.thorough
def test_a_chain_ends_with_its_first_certificate_unless_all_are_asked_for(x509):
    host = FakeHost({"/c": x509(365)[1] + x509(3)[1]})
    host.system.now = time.time() + 5 * DAY
    assert judge(host, "check_tls_cert /c").verdict is Verdict.OK
    assert [o.reason for o in judge_all(host, "check_tls_cert -a /c")] == ["CertificateExpired"]


@pytest.mark.thorough
def test_no_certificate_and_files_that_are_none(x509):
    assert judge(FakeHost(), "check_tls_cert").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_tls_cert /c").reason == "CertificateMissing"
    der = x509(3, "DER")[1]
    for junk in (
        b"",
        b"junk",
        b"\x30",
        b"\x30\x03\x30\x01\x00",
        der[:60],
        b"-----BEGIN CERTIFICATE-----\n!\n-----END",
        x509()[0],
    ):
        assert judge(FakeHost({"/c": junk}), "check_tls_cert /c").verdict is Verdict.UNKNOWN, junk
