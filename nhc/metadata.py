"""The instance type that a cloud's metadata service tells, asked once and soon given up.

Plain HTTP/1.1 over a socket: importing http.client costs 30 ms. The services listen on a link-local address
that only the node's own hypervisor answers. Only the machine type is read, never credentials or user data.
"""

from __future__ import annotations

import time

from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

BASE = "http://169.254.169.254"
DEADLINE = 0.8
"""Seconds for everything together, a session token included."""
_LIMIT = 65536

# Cloud: path, headers, what the answer looks like before its last slash is cut off.
# Sources: EC2's, Compute Engine's, Azure's and OCI's documentation of their metadata services.
_QUESTIONS: Dict[str, Tuple[str, Dict[str, str]]] = {
    "aws": ("/latest/meta-data/instance-type", {}),
    "gcp": ("/computeMetadata/v1/instance/machine-type", {"Metadata-Flavor": "Google"}),
    "azure": ("/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text", {"Metadata": "true"}),
    "oci": ("/opc/v2/instance/shape", {"Authorization": "Bearer Oracle"}),
}
_SESSION = "/latest/api/token"


class NoAnswer(Exception):
    """The metadata service did not tell; the text says why."""


def instance_type(cloud: str, base: str = BASE, deadline: float = DEADLINE) -> str:
    """What `cloud` calls this machine's type (`p5.48xlarge`, `Standard_ND96isr_H100_v5`). Raises NoAnswer."""
    until = time.monotonic() + deadline
    path, headers = _QUESTIONS[cloud]
    if cloud == "aws":  # IMDSv2; the first version answers without a token, where it is still allowed
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = request("PUT", f"{base}{_SESSION}", lifetime, until)
        headers = {"X-aws-ec2-metadata-token": token}
    answer = request("GET", f"{base}{path}", headers, until).rsplit("/", 1)[-1].strip()
    if not answer or len(answer) > 100 or not answer.replace(".", "").replace("-", "").replace("_", "").isalnum():
        raise NoAnswer(f"the answer is not the name of a machine type: {answer[:60]!r}")
    return answer


def request(method: str, url: str, headers: Dict[str, str], until: float) -> str:
    """The body of a small HTTP answer with status 200. Raises NoAnswer."""
    import socket

    host, port, path = _split(url)
    lines = [f"{method} {path} HTTP/1.0", f"Host: {host}", "Content-Length: 0", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    data = b""
    try:
        with socket.create_connection((host, port), _left(until)) as connection:
            connection.settimeout(_left(until))
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            while len(data) < _LIMIT:
                connection.settimeout(_left(until))
                more = connection.recv(8192)
                if not more:
                    break
                data += more
                if _whole(data):
                    break
    except OSError as error:
        raise NoAnswer(f"{host}: {error.strerror or error}") from None
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) < 2 or words[1] != b"200":
        status = words[1].decode(errors="replace") if len(words) > 1 else "no HTTP"
        raise NoAnswer(f"{host} answered {status} to {path.partition('?')[0]}")
    return body.decode(errors="replace")


def _whole(data: bytes) -> bool:
    """Whether the answer is there as long as its head says: some services keep the connection open."""
    head, end, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if end and name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise OSError(110, "did not answer in time")
    return left


def _split(url: str) -> Tuple[str, int, str]:
    """Host, port and path of a plain http URL. Raises NoAnswer."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    host, colon, port = place.partition(":")
    if scheme != "http" or not host or (colon and not port.isdigit()):
        raise NoAnswer(f"{url}: not an http:// address")
    return host, int(port) if port else 80, slash + path


def ask(cloud: str, base: Optional[str] = None) -> Dict[str, str]:
    """`instance_type` as plain values for a recording: {"type": ...} or {"problem": ...}."""
    try:
        return {"type": instance_type(cloud, base or BASE)}
    except NoAnswer as error:
        return {"problem": str(error)}
