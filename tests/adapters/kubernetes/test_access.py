"""Where credentials come from, and that they are renewed: kubeconfigs, a pod's own, programs."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import stat
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator, Sequence

import pytest

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.access import SERVICE_ACCOUNT, TOKEN_AGE, TokenFile, find, from_kubeconfig, in_cluster
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.kube import Kube
from tests.support.require import need


def kubeconfig(tmp_path: Path, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    path = tmp_path / "config"
    value = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(value))
    return path


def test_a_kubeconfig_names_server_user_and_namespace(tmp_path: Path) -> None:
    access = from_kubeconfig(str(kubeconfig(tmp_path, {"token": "t"})))
    assert (access.server, access.namespace, access.authorization()) == ("https://api.example:6443", "ns", "Bearer t")


def test_relative_paths_lie_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    path = kubeconfig(tmp_path, {"tokenFile": "token"}, **{"certificate-authority": "ca.crt"})
    access = from_kubeconfig(str(path))
    assert access.known_by.ca_file == str(tmp_path / "ca.crt")
    assert access.authorization() == "Bearer from-file"


def test_data_in_the_file_is_decoded(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"CERTIFICATE").decode()
    assert (
        from_kubeconfig(str(kubeconfig(tmp_path, **{"certificate-authority-data": encoded}))).known_by.ca_data
        == b"CERTIFICATE"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a kubeconfig"),
        ("[1, 2", "while parsing"),
        ("current-context: nowhere", "no context 'nowhere'"),
        ("contexts: []", "no current-context"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_line_with_its_path(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(AdapterError) as caught:
        from_kubeconfig(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_removed_way_to_log_in_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="use exec"):
        from_kubeconfig(str(kubeconfig(tmp_path, {"auth-provider": {"name": "gcp"}})))


def test_a_token_file_is_read_again_as_it_is_rotated(tmp_path: Path) -> None:
    path, now = tmp_path / "token", [0.0]
    path.write_text("first")
    token = TokenFile(str(path), lambda: now[0])
    assert token.header() == "Bearer first"
    path.write_text("second")
    assert token.header() == "Bearer first"
    now[0] = TOKEN_AGE
    assert token.header() == "Bearer second"
    path.write_text("third")
    token.forget()  # the server said 401: at once
    assert token.header() == "Bearer third"
    path.unlink()
    now[0] += TOKEN_AGE
    assert token.header() == "Bearer third"


def test_a_pod_finds_its_own_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("here")
    access = in_cluster(str(tmp_path), {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "here")
    assert access.known_by.ca_file == str(tmp_path / "ca.crt")


def test_without_any_cluster_it_is_said_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AdapterError, match="KUBECONFIG not set"):
        find()
    assert SERVICE_ACCOUNT.startswith("/var/run")


PROGRAM = """#!/bin/sh
echo x >> "$COUNT"
printf '{"kind":"ExecCredential","status":%s}' "$STATUS"
"""


def program(tmp_path: Path, status: str, body: str = PROGRAM) -> dict[str, Any]:
    path = tmp_path / "login"
    path.write_text(body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    environment = {"COUNT": str(tmp_path / "count"), "STATUS": status}
    pairs = [{"name": name, "value": value} for name, value in environment.items()]
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "env": pairs}}


def asked(tmp_path: Path) -> int:
    return (tmp_path / "count").read_text().count("x")


def test_a_program_is_asked_once_while_its_token_lasts(tmp_path: Path) -> None:
    status = '{"token":"from-program","expirationTimestamp":"2999-01-01T00:00:00Z"}'
    access = from_kubeconfig(str(kubeconfig(tmp_path, program(tmp_path, status))))
    assert [access.authorization() for _ in range(3)] == ["Bearer from-program"] * 3
    assert asked(tmp_path) == 1
    access.forget()
    access.authorization()
    assert asked(tmp_path) == 2


def test_a_program_whose_token_ran_out_is_asked_again(tmp_path: Path) -> None:
    status = '{"token":"old","expirationTimestamp":"2001-01-01T00:00:00Z"}'
    access = from_kubeconfig(str(kubeconfig(tmp_path, program(tmp_path, status))))
    access.authorization()
    access.authorization()
    assert asked(tmp_path) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("#!/bin/sh\necho not logged in >&2; exit 3", "exited 3: not logged in"),
        ("#!/bin/sh\necho hello", "no ExecCredential"),
        ("#!/bin/sh\necho '{\"status\":{}}'", "neither a token nor a certificate"),
    ],
)
def test_a_program_that_fails_is_one_line(tmp_path: Path, body: str, said: str) -> None:
    access = from_kubeconfig(str(kubeconfig(tmp_path, program(tmp_path, "", body))))
    with pytest.raises(AdapterError) as caught:
        access.authorization()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_that_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    user = {"exec": {"command": "aws-of-nowhere", "installHint": "Install the AWS CLI."}}
    with pytest.raises(AdapterError, match=r"not found\. Install the AWS CLI"):
        from_kubeconfig(str(kubeconfig(tmp_path, user))).authorization()


def test_a_rotated_token_is_used_without_a_restart(kube: Kube, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("not yet good")
    user = {"tokenFile": str(path)}
    config = kubeconfig(tmp_path, user, server=kube.plane.url, **{"certificate-authority": str(kube.plane.ca)})
    client = Client(from_kubeconfig(str(config)))
    client._send("GET", "/version", None, "", None)
    path.write_text(kube.plane.token)

    found = client.get(f"/api/v1/namespaces/{kube.namespace}")  # a 401 makes it read the file again

    assert found["metadata"]["name"] == kube.namespace
    client.close()


def test_a_server_that_we_do_not_trust_is_not_spoken_to(kube: Kube, tmp_path: Path) -> None:
    client = Client(from_kubeconfig(str(kubeconfig(tmp_path, {"token": "t"}, server=kube.plane.url))), retry_for=0.1)
    with pytest.raises(AdapterError, match="certificate"):
        client.get("/version")
    client.close()


def test_private_keys_do_not_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kube: Kube) -> None:
    """A certificate in the kubeconfig goes through a file, since ssl takes no other; it must be gone again."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = {
        "client-certificate-data": base64.b64encode(kube.plane.ca.read_bytes()).decode(),
        "client-key-data": base64.b64encode((kube.plane.certificates / "apiserver.key").read_bytes()).decode(),
    }
    home = tmp_path / "home"
    home.mkdir()
    from_kubeconfig(str(kubeconfig(home, data))).tls()
    assert os.listdir(tmp_path) == ["home"]


@contextmanager
def tls_server(directory: Path, names: Sequence[str]) -> Iterator[tuple[str, list[bytes]]]:
    """An API server, as `server`, that answers 401 to every certificate but the last of `names`, as for one that has
    expired. Each name is a certificate and a key, signed by itself.
    """
    for name in ("server", *names):
        options = ("-addext", "subjectAltName=IP:127.0.0.1", "-subj", f"/CN={name}", "-nodes", "-days", "2")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", f"{name}.key", "-out", f"{name}.crt")
        subprocess.run(["openssl", "req", "-x509", *key, *options], cwd=directory, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    for name in names:
        context.load_verify_locations(directory / f"{name}.crt")
    good = ssl.PEM_cert_to_DER_cert((directory / f"{names[-1]}.crt").read_text())
    shown: list[bytes] = []

    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            shown.append(self.connection.getpeercert(binary_form=True) or b"")  # type: ignore[attr-defined]
            self.send_response(200 if shown[-1] == good else 401)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", shown
    finally:
        server.shutdown()
        server.server_close()


def test_a_certificate_that_was_replaced_is_used_once_the_old_one_is_refused(tmp_path: Path) -> None:
    """The API server asks for a certificate without judging it, and answers 401 to one that has expired."""
    need("openssl", shutil.which("openssl"))
    with tls_server(tmp_path, ("old", "new")) as (url, shown):
        for kind in ("crt", "key"):
            shutil.copy(tmp_path / f"old.{kind}", tmp_path / f"client.{kind}")
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        where = kubeconfig(tmp_path, user, server=url, **{"certificate-authority": "server.crt"})
        client = Client(from_kubeconfig(str(where)), retry_for=0.1)
        with pytest.raises(ApiError, match="401"):
            client.get("/version")
        for kind in ("crt", "key"):
            shutil.copy(tmp_path / f"new.{kind}", tmp_path / f"client.{kind}")

        assert client.get("/version") == {}

        client.close()
    assert len(set(shown)) == 2
