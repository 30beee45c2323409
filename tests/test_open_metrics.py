"""A page of metrics for a scraper that asks for OpenMetrics, and for one that does not."""

import urllib.request

import pytest

from nhc.core.prometheus_family import OPEN_METRICS, TEXT, Family, counter, gauge, page_for
from nhc.core.system.metrics_server import Pages, serve

# What Prometheus 3 sends.
ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def page():
    rest = Family("nhc_odd", "counter", "A counter without the ending.")
    rest.add(1)
    return (
        counter("nhc_rounds_total", "Rounds.", 3).render() + gauge("nhc_total", "A gauge.", 1).render() + rest.render()
    )


def test_open_metrics_ends_and_names_counters_without_their_ending():
    kind, text = page_for(ACCEPT, page())
    assert kind == OPEN_METRICS
    lines = text.splitlines()
    assert lines[-1] == "# EOF"
    assert lines[:3] == ["# HELP nhc_rounds Rounds.", "# TYPE nhc_rounds counter", "nhc_rounds_total 3"]
    assert "# TYPE nhc_total gauge" in lines
    assert "# TYPE nhc_odd unknown" in lines


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "application/json"])
def test_who_does_not_name_it_gets_the_text_as_before(accept):
    assert page_for(accept, page()) == (TEXT, page())


@pytest.mark.thorough
def test_a_service_serves_what_is_asked_for():
    pages = Pages()
    pages.update(page(), "")
    server = serve("127.0.0.1:0", pages)
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        for accept, kind in ((ACCEPT, OPEN_METRICS), ("", TEXT)):
            request = urllib.request.Request(address, headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.headers["Content-Type"] == kind
    finally:
        server.shutdown()
        server.server_close()
