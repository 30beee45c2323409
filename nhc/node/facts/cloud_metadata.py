"""The instance type from a cloud's metadata service, asked once, with a short timeout.

The services listen on a link-local address that only the node's own hypervisor answers. Only the machine type is
read here (announced maintenance: nhc.node.checks.cloud), never credentials or user data.
"""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.system import plain_http
from nhc.core.system.plain_http import NoHttpResponse

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

__all__ = ["BASE", "DEADLINE", "NoHttpResponse", "answers", "ask", "instance_type"]

BASE = "http://169.254.169.254"
DEADLINE = 0.8
"""Seconds for everything together, a session token included."""

# Sources: EC2's, Compute Engine's, Azure's and OCI's documentation of their metadata services.
_TYPE_PATHS: Dict[str, str] = {
    "aws": "/latest/meta-data/instance-type",
    "gcp": "/computeMetadata/v1/instance/machine-type",
    "azure": "/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text",
    "oci": "/opc/v2/instance/shape",
}
_HEADERS: Dict[str, Dict[str, str]] = {
    "gcp": {"Metadata-Flavor": "Google"},
    "azure": {"Metadata": "true"},
    "oci": {"Authorization": "Bearer Oracle"},
}


def headers(cloud: str, base: str, until: float) -> Dict[str, str]:
    """What a service requires besides the path, so that no program reads it by mistake. Raises NoHttpResponse.

    EC2 requires a session of IMDSv2; IMDSv1 answers without one, if it is still allowed.
    """
    if cloud != "aws":
        return _HEADERS[cloud]
    token = request("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, until)
    return {"X-aws-ec2-metadata-token": token}


def instance_type(cloud: str, base: str = BASE, deadline: float = DEADLINE) -> str:
    """What `cloud` calls this machine's type (`p5.48xlarge`, `Standard_ND96isr_H100_v5`). Raises NoHttpResponse."""
    until = time.monotonic() + deadline
    answer = request("GET", f"{base}{_TYPE_PATHS[cloud]}", headers(cloud, base, until), until)
    answer = answer.rsplit("/", 1)[-1].strip()
    if not answer or len(answer) > 100 or not answer.replace(".", "").replace("-", "").replace("_", "").isalnum():
        raise NoHttpResponse(f"the answer is not the name of a machine type: {answer[:60]!r}")
    return answer


def answers(cloud: str, paths: Iterable[Tuple[str, str]], base: Optional[str], deadline: float) -> Dict[str, List[Any]]:
    """Status and body of each path by its name, [0, PROBLEM] where none came, within `deadline` seconds altogether."""
    base, until = base or BASE, time.monotonic() + deadline
    try:
        asked = headers(cloud, base, until)
    except NoHttpResponse as error:
        return {name: [0, str(error)] for name, _ in paths}
    told: Dict[str, List[Any]] = {}
    for name, path in paths:
        try:
            told[name] = list(plain_http.request("GET", f"{base}{path}", asked, until))
        except (NoHttpResponse, OSError) as error:
            told[name] = [0, str(error)]
    return told


def request(method: str, url: str, headers: Dict[str, str], until: float) -> str:
    """The body of a small HTTP answer with status 200. Raises NoHttpResponse."""
    try:
        status, body = plain_http.request(method, url, headers, until)
    except PermissionError as error:
        raise NoHttpResponse(f"{url}: {error.strerror}") from None
    if status != 200:
        place, _, path = url.partition("://")[2].partition("/")
        raise NoHttpResponse(f"{place} answered {status} to /{path.partition('?')[0]}")
    return body


def ask(cloud: str, base: Optional[str] = None) -> Dict[str, str]:
    """`instance_type` as plain values for a recording: {"type": ...} or {"problem": ...}."""
    try:
        return {"type": instance_type(cloud, base or BASE)}
    except NoHttpResponse as error:
        return {"problem": str(error)}
