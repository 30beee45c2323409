"""Requests over HTTP: one deadline for an exchange, whoever makes it, and what an error proves."""

from __future__ import annotations

import gzip
import select
import socket
import threading
import time

import pytest

from nhc.agent.server_push import NotNow, Pusher, read_push_settings
from nhc.console.notices.sender import Sender, SendLater
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import BadAddress, CertificateRefused, HttpClient, NoAnswer, NotSent, Tls
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.bmc.redfish import RedfishSession
from nhc_adapters.cloud.rest import Rest, plain_message
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.controller.loki import Loki, LokiSettings
from nhc_adapters.repair import CallFailed
from nhc_adapters.slurm.rest import SlurmRest
from tests.support.dripping import dripping
from tests.support.waiting import until

LIMIT = 0.5


def push(url, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token")
    table = {"url": url, "token-file": str(token), "timeout": f"{LIMIT}s"}
    Pusher(read_push_settings(table)).push(b"")


def notice(url, tmp_path):
    with Exchange(LIMIT) as exchange:
        Sender().post(exchange, url, {})


def cloud(url, tmp_path):
    Rest(LIMIT, plain_message).call("reset", "POST", f"{url}/x")


def redfish(url, tmp_path):
    with RedfishSession(url, "u", "p", Tls(verify=False), LIMIT):
        pass


def slurm(url, tmp_path):
    adapter = SlurmRest({"NHC_SLURMREST": url}, {})
    adapter.command.timeout = LIMIT
    adapter.request("GET", "/openapi/v3")


def loki(url, tmp_path):
    Loki(LokiSettings(url, "{}"), timeout=LIMIT).look()


def kubernetes(url, tmp_path):
    Client(Access(url), retry_for=0.0, answer_time=LIMIT).get("/api/v1/nodes")


CLIENTS = {
    push: NotNow, notice: SendLater, cloud: CallFailed, redfish: CallFailed, slurm: AdapterError, loki: AdapterError,
    kubernetes: AdapterError,
}  # fmt: skip
DRIPS = {
    "head": b"HTTP/1.1 200 OK\r\nX: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n",
    "error": b"HTTP/1.1 500 No\r\nContent-Length: 999999\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
    "tls": b"\x16\x03\x03\x40\x00\x02",
}


@pytest.mark.thorough
@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_server_that_drips_holds_none_of_our_clients(client, drip, tmp_path):
    if client is notice and drip in ("body", "chunks"):
        return  # it is taken with its head
    with dripping(DRIPS[drip]) as port:
        began = time.monotonic()
        with pytest.raises(CLIENTS[client], match=rf"no whole answer within {LIMIT} s|500|in time") as caught:
            client(f"{'https' if drip == 'tls' else 'http'}://127.0.0.1:{port}", tmp_path)
        assert time.monotonic() - began < 15
    assert "\n" not in str(caught.value)


class Wire:
    """Reads one request after another on each connection, and answers each with the next of these bytes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.requests, self.connections = list(answers), [], 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/a"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self.answers:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile("rb") as lines:
                while self.answers:
                    head = [line for line in iter(lines.readline, b"\r\n") if line] if lines.peek(1) else []
                    if not head:
                        break
                    self.requests.append(b"".join(head).decode())
                    answer = self.answers.pop(0)
                    connection.sendall(answer)
                    if b"close" in answer.partition(b"\r\n\r\n")[0]:
                        break

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def wire():
    made = []

    def make(*answers):
        made.append(Wire(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ok(body=b"x", head=b""):
    return b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def send(client, url, limit=1 << 20, **more):
    with Exchange(20.0) as exchange:
        return client.send(exchange, "GET", url, limit=limit, **more)


def test_requests_follow_on_one_connection_while_it_lasts(wire):
    server, client = wire(ok(), ok(b"", b"Connection: close\r\n"), ok(b"z")), HttpClient(keep=True)
    assert [send(client, server.url).data for _ in range(3)] == [b"x", b"", b"z"]
    assert server.connections == 2
    client.close()


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used_again(wire):
    server, client = wire(ok() + b"more than was asked for", ok(b"y")), HttpClient(keep=True)
    assert send(client, server.url).data == b"x"
    kept = client._kept[1].sock
    kept.shutdown(socket.SHUT_WR)
    until(lambda: select.select([kept], [], [], 0)[0], what="the server to close it")
    assert send(client, server.url).data == b"y"
    client.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf", "breaks off"),
        (ok(b"x" * 101), "more than 100 bytes"),
        (ok(gzip.compress(b"x" * 100_000, mtime=0), b"Content-Encoding: gzip\r\n"), "more than 100 bytes"),
        (ok(b"x", b"Content-Encoding: gzip\r\n"), "cannot be unpacked"),
        (b"SSH-2.0-server close\r\n\r\n", "no HTTP"),
    ],
)
def test_what_is_no_whole_answer_may_have_been_carried_out(wire, answer, said):
    with pytest.raises(NoAnswer, match=said):
        send(HttpClient(), wire(answer).url, limit=100)


def test_an_answer_is_unpacked_and_a_redirect_is_not_followed(wire):
    server = wire(ok(gzip.compress(b"hello"), b"Content-Encoding: gzip\r\nConnection: close\r\n"))
    assert send(HttpClient(), server.url).data == b"hello"
    server = wire(b"HTTP/1.1 307 X\r\nLocation: /b\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", ok())
    answer = send(HttpClient(), server.url)
    assert (answer.status, answer.retry_after, len(server.requests)) == (307, 7.0, 1)


def test_a_wait_that_is_no_number_is_none(wire):
    answer = send(HttpClient(), wire(b"HTTP/1.1 503 X\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n").url)
    assert (answer.status, answer.retry_after) == (503, 0.0)


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://[::1", "http://127.0.0.1:0/", "http://x..y/", "/a"])
def test_what_is_no_address_is_not_sent(url):
    with pytest.raises(BadAddress):
        send(HttpClient(), url)
    with pytest.raises(BadAddress):
        send(HttpClient(proxy=url), "https://127.0.0.1/")


def test_a_header_that_http_does_not_take_is_not_sent(wire):
    server = wire(ok())
    with pytest.raises(BadAddress):
        send(HttpClient(), server.url, headers={"X": "a\r\nb"})
    assert server.requests == []


def test_a_proxy_is_given_the_address_and_its_login(wire):
    server = wire(ok(b"x", b"Connection: close\r\n"))
    proxy = f"http://me:s%40crt@127.0.0.1:{server.port}"
    assert send(HttpClient(proxy=proxy), "http://example.org/a?b=c d").data == b"x"
    assert server.requests[0].startswith("GET http://example.org/a?b=c%20d HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6c0BjcnQ=\r\n" in server.requests[0]


def test_a_proxy_that_opens_no_tunnel_proves_that_nothing_was_sent(wire):
    server = wire(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    with pytest.raises(NotSent):
        send(HttpClient(proxy=f"http://127.0.0.1:{server.port}"), "https://example.org/", headers={"Secret": "s"})
    assert server.requests[0].startswith("CONNECT example.org:443 ")
    assert "Secret" not in server.requests[0]


@pytest.mark.thorough
def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    for tls in (Tls(ca=f"{tmp_path}/none"), Tls(certificate=f"{tmp_path}/none")):
        with pytest.raises(CertificateRefused, match=f"{tmp_path}/none: No such file"):
            tls.context()
    (tmp_path / "empty").touch()
    with pytest.raises(CertificateRefused, match="empty: holds no certificates"):
        Tls(certificate=f"{tmp_path}/empty").context()


@pytest.mark.thorough
def test_an_address_that_swallows_packets_leaves_time_for_the_next(monkeypatch, wire):
    """As a name with IPv6 and IPv4 does on a network that drops one of them: here a listener whose queue is full."""
    server = wire(ok(b"x", b"Connection: close\r\n"))
    deaf = socket.create_server(("127.0.0.1", 0), backlog=0)
    filled = []
    for _ in range(4):
        filled.append(socket.socket())
        filled[-1].setblocking(False)
        filled[-1].connect_ex(deaf.getsockname())
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        for port in (deaf.getsockname()[1], server.port)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: both)
    with Exchange(4.0) as exchange:
        assert HttpClient().send(exchange, "GET", server.url).data == b"x"
    [one.close() for one in (deaf, *filled)]


def test_where_no_thread_can_be_started_nothing_is_sent(monkeypatch, wire):
    """Without one that watches it, the deadline would not hold."""

    def full(_thread):
        raise RuntimeError("can't start new thread")

    server = wire(ok())
    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(NotSent, match="no thread can be started"):
        send(HttpClient(), server.url)
    assert server.requests == []
