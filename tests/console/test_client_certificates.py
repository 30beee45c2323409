"""People who are known by a client certificate, over real TLS: whose acts count, and who is nobody."""

from __future__ import annotations

import json

import pytest

from nhc.console.settings import parse
from nhc.console.sources import StoreSource
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import CertificateRefused, HttpClient, HttpError, NotSent, Tls
from tests.console.conftest import Running
from tests.store.server.test_tls import keys, make  # noqa: F401 (a fixture)
from tests.support.ports import free_ports

pytestmark = pytest.mark.thorough


@pytest.fixture
def secure(site, keys):  # noqa: F811
    make(keys, "anna", "DNS:anna")
    make(keys, "lying", "DNS:anna")
    make(keys, "other-anna", "DNS:anna", ca="other")
    found = parse(f"""
listen = "127.0.0.1:{free_ports(1)[0]}"
refresh = "0.5s"
anyone = []
[tls]
certificate = "{keys}/server.crt"
key = "{keys}/server.key"
clients = "{keys}/ca.crt"
[people.anna]
roles = ["operator"]
certificates = ["anna"]
""")
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    yield lambda who, method="GET", path="/api/me", body=None: asked(running, keys, who, method, path, body)
    running.stop()


def asked(running, directory, who, method, path, body):
    own = (f"{directory}/{who}.crt", f"{directory}/{who}.key") if who else ("", "")
    client = HttpClient(Tls(f"{directory}/ca.crt", *own))
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if content else {}
    with Exchange(30.0) as exchange:
        return client.send(exchange, method, f"https://{running.address}{path}", content, headers)


HOLD = {"scope": "node", "name": "a1", "why": "a new board", "until": "3600", "confirm": "1"}


def test_a_certificate_is_a_person(secure):
    me = json.loads(secure("anna").data)
    assert "anna" in json.dumps(me)
    assert secure("anna", "POST", "/api/hold", HOLD).status == 200


@pytest.mark.parametrize("who", ["", "n1", "lying"])
def test_who_shows_none_or_another_s_is_nobody(secure, who):
    """A certificate counts by its common name alone, not by further names that it carries."""
    assert secure(who, "GET", "/api/fleet").status in (401, 403)
    assert secure(who, "POST", "/api/hold", HOLD).status in (401, 403)


def test_the_same_name_by_another_authority_does_not_come_in(secure):
    with pytest.raises(HttpError):
        secure("other-anna")


def test_the_console_s_own_certificate_is_checked_by_our_client(secure, site, keys):  # noqa: F811
    lines = f'[tls]\ncertificate = "{keys}/server.crt"\nkey = "{keys}/server.key"\n'
    found = parse(f'listen = "127.0.0.1:{free_ports(1)[0]}"\n{lines}')
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    url = f"https://{running.address}/healthz"
    with Exchange(30.0) as exchange, pytest.raises(CertificateRefused, match="not trusted"):
        HttpClient(Tls(f"{keys}/other.crt")).send(exchange, "GET", url)
    with Exchange(30.0) as exchange, pytest.raises(NotSent, match="another fingerprint"):
        HttpClient(Tls(fingerprint="AB:" * 31 + "CD")).send(exchange, "GET", url)
    running.stop()
