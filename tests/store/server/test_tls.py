"""HTTPS: a node shows a token or a certificate of its own, and can report for nobody else."""

import shutil
import signal
import subprocess
import time

import pytest
import urllib3

from nhc.agent.server_push import Pusher, read_push_settings
from nhc.store.server import access
from tests.support.intake import Server, packed, report
from tests.support.require import need

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(directory, *words):
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True, timeout=60)


def make(directory, name, names, ca="ca"):
    """A key and a certificate for these DNS names, of an authority or of itself."""
    (directory / f"{name}.ext").write_text(f"subjectAltName={names}\n")
    openssl(directory, "req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-days", "2",
            "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    need("openssl", shutil.which("openssl"))
    directory = tmp_path_factory.mktemp("keys")
    for name in ("ca", "other"):
        out = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        openssl(directory, "req", "-x509", *NEW_KEY, *out, "-days", "2", "-subj", f"/CN={name}")
    make(directory, "server", "IP:127.0.0.1,DNS:localhost")
    make(directory, "n1", "DNS:n1,DNS:n1.example.org")
    make(directory, "star", "DNS:*.example.org")
    make(directory, "stranger", "DNS:n1", ca="other")
    return directory


@pytest.fixture(scope="module")
def secure(keys, tmp_path_factory):
    directory = tmp_path_factory.mktemp("secure")
    made = Server(
        directory, f"sqlite:///{directory}/store.db",
        f'[tls]\ncertificate = "{keys}/server.crt"\nkey = "{keys}/server.key"\nclient-ca = "{keys}/ca.crt"\n',
    )  # fmt: skip
    made.own = {"ca_certs": f"{keys}/ca.crt"}
    made.push_as = lambda name, body, token="": made.push(
        body, token, **made.own, cert_file=f"{keys}/{name}.crt", key_file=f"{keys}/{name}.key"
    )
    yield made
    made.stop()


def test_a_certificate_is_for_its_names(secure):
    assert secure.push_as("n1", packed(report()))[0] == 200
    assert secure.push_as("n1", packed(report("n1.example.org"), node="n1.example.org"))[0] == 200
    status, answer, _ = secure.push_as("n1", packed(report("n2"), node="n2"))
    assert (status, answer) == (403, {"error": "the certificate is for n1, n1.example.org, not for n2"})


def test_a_wildcard_is_nobody(secure):
    assert secure.push_as("star", packed(report("n1.example.org"), node="n1.example.org"))[0] == 401


def test_an_agent_s_pushes_follow_on_one_connection(secure, keys):
    files = {"ca": f"{keys}/ca.crt", "certificate": f"{keys}/n1.crt", "key": f"{keys}/n1.key"}
    pusher = Pusher(read_push_settings({"url": secure.url, **files}))
    pushed = [(pusher.push(packed(report(at=time.time()))), pusher._http._kept) for _ in range(3)]
    assert [answer.refused for answer, _ in pushed] == [[], [], []]
    assert len({kept[1] for _, kept in pushed}) == 1
    pusher.close()


def test_a_strangers_certificate_is_refused(secure):
    with pytest.raises(urllib3.exceptions.HTTPError):
        secure.push_as("stranger", packed(report()))


def test_a_client_without_certificate_shows_a_token(secure):
    with secure.store() as store, store.write() as connection:
        token = access.make_token(connection, "n2", by="t", now=1.0)
    assert secure.push(packed(report()), **secure.own)[0] == 401
    body = packed(report("n2"), node="n2")
    until = time.monotonic() + 60
    while secure.push(body, token, **secure.own)[0] == 401 and time.monotonic() < until:
        time.sleep(0.05)
    assert secure.push(body, token, **secure.own)[0] == 200
    assert secure.push_as("n1", body, token)[0] == 403  # who shows both must be the node by both


def test_plain_http_is_not_answered_on_its_port(secure):
    with pytest.raises(urllib3.exceptions.HTTPError), urllib3.PoolManager(retries=False, timeout=60) as pool:
        pool.request("GET", secure.url.replace("https", "http") + "/healthz")


def test_a_new_certificate_is_taken_without_a_restart(keys, tmp_path):
    for name in ("server.crt", "server.key"):
        shutil.copy(keys / name, tmp_path / name)
    made = Server(
        tmp_path, f"sqlite:///{tmp_path}/store.db",
        f'[tls]\ncertificate = "{tmp_path}/server.crt"\nkey = "{tmp_path}/server.key"\n',
    )  # fmt: skip
    try:
        (tmp_path / "server.crt").write_text("damaged")
        made.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while "the old certificate stays" not in made.said() and time.monotonic() < until:
            time.sleep(0.05)
        assert made.push(packed(report()), ca_certs=f"{keys}/ca.crt")[0] == 401
        make(keys, "renewed", "IP:127.0.0.1")
        shutil.copy(keys / "renewed.crt", tmp_path / "server.crt")
        shutil.copy(keys / "renewed.key", tmp_path / "server.key")
        made.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while "was read again" not in made.said() and time.monotonic() < until:
            time.sleep(0.05)
        assert made.push(packed(report()), ca_certs=f"{keys}/ca.crt")[0] == 401
    finally:
        assert made.stop() == 0


@pytest.mark.parametrize(("certificate", "said"), [("none.crt", "No such file"), ("n1.ext", "n1.ext: ")])
def test_a_certificate_that_cannot_be_read_is_one_line(keys, tmp_path, certificate, said):
    settings = f'[tls]\ncertificate = "{keys}/{certificate}"\nkey = "{keys}/server.key"\n'
    with pytest.raises(AssertionError, match="does not listen") as raised:
        Server(tmp_path, f"sqlite:///{tmp_path}/store.db", settings)
    assert said in str(raised.value)
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize(
    ("certificate", "found"),
    [
        (None, set()),
        ({"subject": ((("commonName", "n1"),),)}, {"n1"}),
        ({"subject": ((("commonName", "n1"),),), "subjectAltName": (("DNS", "n2"), ("IP Address", "1.2.3.4"))}, {"n2"}),
        ({"subject": ((("commonName", "*"),),)}, set()),
    ],
)
def test_names_of_a_certificate(certificate, found):
    assert access.names(certificate) == found
