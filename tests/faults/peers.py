"""What our doors talk to, and how it dies: a scheduler's or a cluster's HTTP server, at each step of an answer."""

import json
import socket
import threading
from email.utils import formatdate

EMPTY = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
"""What a Kubernetes API server without anything in it answers to any list."""


def well(asked):
    """What an API server answers to a request: one object by its name, or an empty list."""
    path = asked.split(b" ", 2)[1].partition(b"?")[0].decode()
    before, _, name = path.rpartition("/")
    if before.endswith(("/nodes", "/leases", "/configmaps")):
        meta = {"name": name, "resourceVersion": "1", "uid": "u"}
        return {"kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": {"renewTime": None}, "status": {}}
    return EMPTY


class Peer:
    """An HTTP server that dies at a step of its answer (accept, request, head, body), answers nonsense, or is well."""

    STEPS = ("refuse", "accept", "head", "half-head", "half-body", "nonsense", "deep", "list")

    def __init__(self, step):
        self.step = step
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        if step == "refuse":
            return
        self.socket.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self.socket.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                if self.step == "accept":
                    return
                asked = b""
                while b"\r\n\r\n" not in asked:
                    data = connection.recv(65536)
                    if not data:
                        return
                    asked += data
                connection.sendall(self._said(asked))
            except OSError:
                return

    def _said(self, asked):
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        head += f"Date: {formatdate(usegmt=True)}\r\n"
        bodies = {
            "well": json.dumps(well(asked)),
            "nonsense": "\0\x1b[2J not JSON",
            "deep": "[" * 100_000,
            "list": json.dumps([1, {"items": 5}]),
        }
        if self.step == "head":
            return b""
        if self.step == "half-head":
            return head[:25].encode()
        body = bodies.get(self.step, '{"kind": "NodeList", "items": [')
        length = len(body) + (1000 if self.step == "half-body" else 0)
        return f"{head}Content-Length: {length}\r\n\r\n{body}".encode()
