"""What anybody who reaches the console's port may try: no traceback, few lines, and room for others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from tests.support.hostile_requests import REQUESTS, sent
from tests.support.new_store import new_store
from tests.support.ports import free_ports
from tests.support.waiting import until


class Process:
    """A console in a process of its own, so that all that it writes is seen."""

    def __init__(self, directory):
        new_store(str(directory), anchor="").close()
        self.listen = f"127.0.0.1:{free_ports(1)[0]}"
        settings = directory / "console.toml"
        settings.write_text(
            f'listen = "{self.listen}"\nstore = "sqlite:///{directory}/store.db"\n'
            '[limits]\nslow = "1s"\nconnections-an-address = 50\n'
        )
        self.log = directory / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nhc", "serve", "console", "--settings", settings], stderr=log, stdout=log
            )
        until(lambda: self.listen in self.said(), said=self.said)

    def said(self):
        return self.log.read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    made = Process(tmp_path_factory.mktemp("alone"))
    yield made
    made.process.terminate()
    made.process.wait(60)


@pytest.mark.thorough
@pytest.mark.parametrize("name", REQUESTS)
def test_a_malformed_request_is_a_400_and_one_line_at_most(alone, name):
    answer = sent(alone.listen, REQUESTS[name])
    # aiohttp before 3.14 ends the connection without an answer where the address cannot be parsed.
    assert (not answer and name == "no address") or answer.split()[1][0] == "4"
    assert "Traceback" not in alone.said()


@pytest.mark.thorough
def test_a_thousand_malformed_requests_are_a_few_lines(alone):
    before = len(alone.said())
    for _ in range(70):
        for data in REQUESTS.values():
            sent(alone.listen, data)
    assert len(alone.said()) - before < 600
    assert "refused a request from 127.0.0.1: 400: " in alone.said()


@pytest.mark.thorough
def test_silent_connections_of_one_address_leave_room_for_others_and_end(alone):
    host, port = alone.listen.split(":")
    silent = [socket.create_connection((host, int(port)), 20, ("127.0.0.3", 0)) for _ in range(200)]
    began = time.monotonic()
    request = f"GET /healthz HTTP/1.1\r\nHost: {alone.listen}\r\n\r\n"
    assert " 200 " in sent(alone.listen, request.encode())
    for one in silent:
        try:
            assert one.recv(1) == b""
        except ConnectionResetError:
            pass
        one.close()
    assert time.monotonic() - began < 30
    assert "127.0.0.3: 50 connections of this address are open" in alone.said()
