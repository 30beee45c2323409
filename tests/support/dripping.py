"""A server whose answer never ends, and never stops either: each byte begins a socket's timeout anew."""

import contextlib
import socket
import threading


@contextlib.contextmanager
def dripping(first=b""):
    """A server that takes a connection, answers with `first`, and then one byte every 50 ms, for ever; its port."""
    stop, threads = threading.Event(), []

    def drip(connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(first)
            while not stop.wait(0.05):
                connection.sendall(b"x")

    def listen():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                threads.append(threading.Thread(target=drip, args=(server.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            listener.join()
            for thread in threads:
                thread.join()
