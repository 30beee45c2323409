"""/metrics and /healthz of a service in the foreground."""

from __future__ import annotations

import urllib.request

import pytest

from nhc.core.system.metrics_server import Pages, serve


@pytest.mark.thorough
def test_the_answer_names_no_version():
    pages = Pages()
    pages.update("metric 1\n", "")
    server = serve("127.0.0.1:0", pages)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/healthz", timeout=60) as answer:
            assert answer.headers["Server"] == "nhc"
    finally:
        server.shutdown()
        server.server_close()
