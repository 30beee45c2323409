"""The kubelet: it calls itself healthy."""

from __future__ import annotations

import time

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown
from nhc.core.system import plain_http
from nhc.core.system.plain_http import NoHttpResponse
from nhc.core.units import seconds, text
from nhc.node.facts.kubelet import is_set_up

if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

HEALTHZ = "http://127.0.0.1:10248/healthz"
"""The kubelet's healthzBindAddress and healthzPort, as they are by default."""
PROXY = "http://127.0.0.1:10256/livez"
"""kube-proxy's healthz-bind-address. livez fails where the proxy itself is stuck, not where the node is drained."""


@check(
    "check_kubelet_healthz",
    opt("-u --url", "url", text, "the kubelet's health endpoint", HEALTHZ),
    opt("-t --timeout", "deadline", seconds, "how long it may take to answer", 5.0),
    timeout=15,
    settles=("KubeletSilent", "KubeletUnhealthy"),
)
def check_kubelet_healthz(host: Host, url: str = HEALTHZ, deadline: float = 5.0) -> Outcome:
    """The kubelet answers that it is healthy.

    Asks its health endpoint, which answers 200 as long as its own loops turn (syncloop, log and ping checks).
    Another status, no answer in time and nothing that listens are CRIT on a node that a kubelet runs or was set
    up on (/var/lib/kubelet). SKIP where
    there is no trace of one.

    Example: * || check_kubelet_healthz
    """
    status, body, took = ask(host, url, deadline)
    metrics = (Metric("response_time", took, "s"),)
    if status == 200:
        return ok(f"the kubelet is healthy ({body[:40]})", metrics=metrics)
    if not status and not is_set_up(host):
        return skip("NoKubelet", "no kubelet runs on this node")
    if status == -1:
        return unknown("NotPermitted", f"{url}: {body}")
    if status:
        return crit("KubeletUnhealthy", f"the kubelet answers {status} to {url}: {body[:200]}", metrics=metrics,
                    action=Action.RESTART_APP)  # fmt: skip
    return crit("KubeletSilent", f"the kubelet does not answer: {body}", action=Action.RESTART_APP)


def ask(host: Host, url: str, deadline: float) -> Tuple[int, str, float]:
    """HTTP status (0: none, -1: not permitted), what was said, and seconds taken."""

    def question() -> Dict[str, Any]:
        try:
            response = plain_http.request("GET", url, until=time.monotonic() + deadline)
        except NoHttpResponse as error:
            return {"status": 0, "said": str(error)}
        except PermissionError as error:
            return {"status": -1, "said": error.strerror or str(error)}
        return {"status": response.status, "said": response.body.strip()[:1000]}

    if not host.system.in_network():
        return -1, "nhc runs in a network of its own, where the node's 127.0.0.1 is not", 0.0
    begin = host.monotonic()
    answer = host.system.ask(f"http {url}", question)
    return int(answer["status"]), str(answer["said"]), host.monotonic() - begin
