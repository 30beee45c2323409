"""A store of each kind, and a receiver on loopback whose answers a test chooses."""

import contextlib
import email
import threading

import pytest
from aiosmtpd.controller import Controller

from nhc.store.connect import open_store
from tests.support.http_server import Handler, serving
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])])
def store_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgresql").database()


@pytest.fixture
def store(store_url, tmp_path):
    is_file = store_url.startswith("sqlite:")
    made = new_store(str(tmp_path)) if is_file else open_store(store_url, anchor=str(tmp_path / "anchor"))
    yield made
    made.close()


class Receiver:
    """What came, and what is answered: (status, headers, body), "lost" takes the request and says nothing."""

    def __init__(self):
        self.came, self.answers, self.lock = [], [], threading.Lock()
        self.default = (200, {}, b"{}")
        self.url = ""


@pytest.fixture
def receiver():
    made = Receiver()

    class Answers(Handler):
        def do_POST(self):  # noqa: N802 (http.server's name)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with made.lock:
                made.came.append((self.command, self.path, dict(self.headers), body))
                answer = made.answers.pop(0) if made.answers else made.default
            if callable(answer):
                answer = answer(self.command, self.path)
            if answer == "lost":
                with contextlib.suppress(OSError):
                    self.connection.shutdown(2)
                self.close_connection = True
                return
            status, headers, data = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST  # noqa: N815

    with serving(Answers) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made


class Mailbox:
    """A handler of aiosmtpd that keeps what came."""

    def __init__(self):
        self.mails, self.answers = [], []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 (aiosmtpd's name)
        if self.answers:
            return self.answers.pop(0)
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"


@pytest.fixture
def mailbox():
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    box.port = controller.port
    yield box
    controller.stop()
