"""A TCP load balancer on loopback: each connection goes to the next backend that takes it, bytes as they are."""

import socket
import threading


class Balancer:
    """`url` is where it listens; `taken` counts connections by backend. Backends are `HOST:PORT`."""

    def __init__(self, backends):
        self.backends, self.taken = list(backends), dict.fromkeys(backends, 0)
        self._next, self._lock = 0, threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = self._connected()
        if server is None:
            client.close()
            return
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()
        client.close()
        server.close()

    def _connected(self):
        for _ in self.backends:
            with self._lock:
                backend = self.backends[self._next % len(self.backends)]
                self._next += 1
            host, port = backend.split(":")
            try:
                connection = socket.create_connection((host, int(port)), 5)
            except OSError:
                continue
            connection.settimeout(None)
            self.taken[backend] += 1
            return connection
        return None


def _copy(source, target):
    """Until the source ends; then both ends see that."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for one in (source, target):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
