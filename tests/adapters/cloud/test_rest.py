"""What one HTTP request to a cloud proves when it fails: a server on loopback that does to it what networks do."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nhc.marks.ports.repair import Answer
from nhc_adapters.cloud import rest
from nhc_adapters.cloud.rest import AccessToken, Bearer, ProviderMessage, Rest, json_at, plain_message
from nhc_adapters.repair import CallFailed

TOKEN = "Bearer secret-token"


class Wire:
    """Reads a request, and answers with these bytes; `then` says what it does to the connection."""

    def __init__(self, answer: bytes, then: str = "close") -> None:
        self.answer, self.then, self.requests = answer, then, 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1/thing?sig=secret-signature"
        self._ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            with connection:
                if self.then == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                while b"\r\n\r\n" not in connection.recv(1 << 16):
                    pass
                self.requests += 1
                if self.then == "drip":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                    while not self._ended.wait(0.05):
                        try:
                            connection.sendall(b"x")
                        except OSError:
                            break
                elif self.then == "silent":
                    self._ended.wait(20)
                else:
                    connection.sendall(self.answer)

    def close(self) -> None:
        self._ended.set()
        self._socket.close()


@pytest.fixture
def wire():
    made = []

    def make(*words):
        made.append(Wire(*words))
        return made[-1]

    yield make
    for one in made:
        one.close()


def words(answer):
    error = json_at(answer, "error")
    return ProviderMessage(str(error["code"]), str(error["message"])) if error else plain_message(answer)


def failed(url, timeout=20.0, refused=frozenset()):
    with pytest.raises(CallFailed) as caught:
        Rest(timeout, words, refused).call("reset", "POST", url, {"Authorization": TOKEN})
    said = str(caught.value)
    assert "\n" not in said
    assert "secret" not in said, "neither header nor address is shown"
    assert said.startswith("reset: ")
    return caught.value


def answer(status, body=b"", *headers):
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind", "later"),
    [
        (400, b"", (), Answer.REFUSED, 0),
        (401, b"", (), Answer.REFUSED, 30),
        (404, b"", (), Answer.REFUSED, 0),
        (409, b"", (), Answer.REFUSED, 30),
        (429, b"", ("Retry-After: 7",), Answer.REFUSED, 7),
        (429, b"", ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT",), Answer.REFUSED, 30),
        (307, b"", ("Location: http://127.0.0.1:1/elsewhere",), Answer.REFUSED, 0),
        (500, b"", (), Answer.AMBIGUOUS, 0),
        (502, b"<html>bad\ngateway</html>", (), Answer.AMBIGUOUS, 0),
        (503, b"", ("Retry-After: 7",), Answer.AMBIGUOUS, 0),
        (503, b'{"error": {"code": "Busy", "message": "not now"}}', ("Retry-After: 7",), Answer.REFUSED, 7),
        (403, b'{"error": {"code": "Busy", "message": "not now"}}', (), Answer.REFUSED, 30),
        (403, b"[" * 5000, (), Answer.REFUSED, 0),
    ],
)
def test_what_a_status_proves(wire, status, body, headers, kind, later):
    server = wire(answer(status, body, *headers))
    error = failed(server.url, refused=frozenset({"Busy"}))
    assert (error.answer, error.retry_after, server.requests) == (kind, later, 1)


@pytest.mark.parametrize("then", ["close", "reset", "silent", "drip"])
@pytest.mark.thorough
def test_no_whole_answer_is_ambiguous_after_one_request_and_in_time(wire, then):
    server = wire(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", then)
    began = time.monotonic()
    error = failed(server.url, timeout=0.5)
    assert (error.answer, error.retry_after, server.requests) == (Answer.AMBIGUOUS, 0, 1)
    assert time.monotonic() - began < 15


def test_an_answer_without_end_is_cut(wire, monkeypatch):
    monkeypatch.setattr(rest, "LARGEST", 1000)
    assert failed(wire(answer(200, b"x" * 200_000)).url).answer is Answer.AMBIGUOUS


def test_an_answer_that_is_no_object_makes_no_sense(wire):
    for body in (b"<html>", b"[1]", b"{" * 9000):
        reply = Rest(2.0, words).call("get", "GET", wire(answer(200, body)).url)
        with pytest.raises(CallFailed, match="makes no sense"):
            reply.json()
    assert Rest(2.0, words).call("get", "GET", wire(answer(204)).url).json() == {}


def test_nobody_listening_proves_that_nothing_was_sent():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", "http://no-such-host.invalid/"):
        error = failed(url)
        assert (error.answer, error.retry_after) == (Answer.REFUSED, 30)
    with pytest.raises(CallFailed) as caught:
        Rest(2.0, words, proxy=f"http://127.0.0.1:{port}").call("reset", "POST", "https://example.org/", {})
    assert caught.value.answer is Answer.REFUSED


def test_a_token_is_fetched_again_shortly_before_its_end_and_never_shown():
    now, fetched = [0.0], []

    def fetch():
        fetched.append(now[0])
        return AccessToken(f"secret-{len(fetched)}", 3600.0)

    bearer = Bearer(fetch, lambda: now[0])
    assert [bearer.header(), bearer.header()] == ["Bearer secret-1"] * 2
    now[0] = 3470.0
    assert bearer.header() == "Bearer secret-1"
    now[0] = 3490.0
    assert bearer.header() == "Bearer secret-2"
    assert "secret" not in repr(AccessToken("secret", 1.0))
