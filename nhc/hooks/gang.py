"""A pod's part in the collective of its gang, in the init container that the preflight webhook added.

The pod has no rights in the cluster. It shows a token that identifies it, and asks the webhook's server what to do,
until the server sends the outcome. If the server does not answer, no node is blamed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, Verdict, crit, ok, printable, unknown
from nhc.core.system import process
from nhc.core.system.bounded_read import read_text
from nhc.core.units import seconds

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping

SERVER, AUTHORITY, GANG, TOKEN, LONGEST = (
    "NHC_GANG_SERVER",
    "NHC_GANG_CA",
    "NHC_GANG",
    "NHC_GANG_TOKEN",
    "NHC_GANG_TIME",
)
ITSELF = "nhc_gang"
"""The name under which results about a gang are filed."""
FAILED, UNTOLD = "GangNodeFailed", "GangUntold"
SILENCE = 60.0
"""After so many seconds without an answer the server is not asked again."""
ANSWER, TOKEN_LIMIT = 1 << 20, 64 << 10
"""Bytes of an answer and of a token."""
OUTPUT = 1 << 20
"""Bytes of a tool's output that are handed on: the last ones, where its table is."""


class _NoAnswer(Exception):
    """The server could not be asked, and why."""


def takes_part(environ: Mapping[str, str]) -> bool:
    """Whether the webhook has set that this pod belongs to a gang."""
    return bool(environ.get(SERVER))


def result(environ: Mapping[str, str], withdrawn: str = "", pause: Callable[[float], None] = time.sleep) -> CheckResult:
    """The outcome of the gang's collective for this pod's node. `withdrawn` tells the others why it takes no part."""
    try:
        verdict, message = _play(environ, withdrawn, pause)
    except (_NoAnswer, ValueError, KeyError) as error:
        verdict, message = Verdict.UNKNOWN, str(error)
    text = printable(message, 600)
    if verdict is Verdict.CRIT:
        return CheckResult(ITSELF, crit(FAILED, text))
    return CheckResult(ITSELF, ok(text) if verdict is Verdict.OK else unknown(UNTOLD, text))


def _play(environ: Mapping[str, str], withdrawn: str, pause: Callable[[float], None]) -> tuple[Verdict, str]:
    said: Dict[str, object] = {"withdrawn": withdrawn} if withdrawn else {}
    until = time.monotonic() + seconds(environ.get(LONGEST, "") or "15m")
    answered = time.monotonic()
    while True:
        try:
            order = _ask(environ, said)
            answered = time.monotonic()
        except _NoAnswer:
            if withdrawn or time.monotonic() > answered + SILENCE:
                raise
            order = {"do": "wait", "seconds": 2.0}
        else:
            said = {}
        if withdrawn:
            return Verdict.UNKNOWN, withdrawn
        if order.get("do") == "end":
            return Verdict[str(order.get("verdict"))], str(order.get("message"))
        if time.monotonic() > until:
            raise _NoAnswer(f"no end within {environ.get(LONGEST)}")
        if order.get("do") == "run":
            said = _run(order, environ)
        else:
            wait = order.get("seconds")
            pause(min(max(float(wait) if isinstance(wait, (int, float)) else 1.0, 0.1), 60.0))


def _run(order: Mapping[str, object], environ: Mapping[str, str]) -> Dict[str, object]:
    """Run this pod's part of a test; returns what to report about it."""
    argv, env, limit = order.get("argv"), order.get("env"), order.get("seconds")
    if not isinstance(argv, list) or not argv or not isinstance(env, dict) or not isinstance(limit, (int, float)):
        raise ValueError("the server's order makes no sense")
    own = {name: value for name, value in environ.items() if not name.startswith("NHC_")}
    words: List[str] = [str(word) for word in argv]
    given = {**own, "PATH": own.get("PATH", process.PATH), **{str(name): str(value) for name, value in env.items()}}
    try:
        done = process.run(words, timeout=float(limit), env=given)
    except OSError as error:
        return {"test": order.get("test"), "status": 127, "output": f"{words[0]}: {error.strerror}"}
    output = done.stdout + (f"\n{done.stderr}" if done.stderr else "")
    return {"test": order.get("test"), "status": 124 if done.timed_out else done.status, "output": output[-OUTPUT:]}


def _ask(environ: Mapping[str, str], said: Mapping[str, object]) -> Dict[str, object]:
    """One request. Raises _NoAnswer."""
    host, _colon, port = environ[SERVER].rpartition(":")
    try:
        token = read_text(environ.get(TOKEN, ""), TOKEN_LIMIT).strip()  # the kubelet renews it
        context = ssl.create_default_context(cadata=environ.get(AUTHORITY, ""))
        connection = _GangConnection(host, int(port), _chosen(host, int(port), environ.get(GANG, "")), context)
        try:
            connection.request("POST", "/gang", json.dumps(said).encode(), {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close",
            })  # fmt: skip
            answer = connection.getresponse()
            body = answer.read(ANSWER)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _NoAnswer(f"{environ[SERVER]} cannot be asked: {error}") from None
    if answer.status != 200:
        raise _NoAnswer(f"{environ[SERVER]}: {printable(body.decode(errors='replace').strip(), 200)}")
    try:
        order = json.loads(body)
    except ValueError:
        order = None
    if not isinstance(order, dict):
        raise _NoAnswer(f"{environ[SERVER]} gave no answer that can be read")
    return order


class _GangConnection(http.client.HTTPConnection):
    """Connects to one address of a name; the certificate must be for the name."""

    def __init__(self, host: str, port: int, address: str, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=10.0)
        self._address, self._context = address, context

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), timeout=self.timeout)
        self.sock = self._context.wrap_socket(plain, server_hostname=self.host)


def _chosen(host: str, port: int, gang: str) -> str:
    """Of all addresses of the name, the one that all pods of a gang ask."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return max(found, key=lambda one: hashlib.sha256(f"{gang} {one}".encode()).digest())
