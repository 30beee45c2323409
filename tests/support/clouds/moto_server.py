"""moto's server, which plays AWS, with nothing in it: what it keeps is the process's, whichever server was asked."""

from __future__ import annotations

import contextlib
import urllib.request
from typing import Iterator

from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Its URL."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=60).close()
        yield url
    finally:
        server.stop()
