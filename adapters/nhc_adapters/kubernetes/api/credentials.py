"""How we prove who we are: a bearer token, a file with one that somebody keeps fresh, or a program that prints one.

Each is read again when it runs out, and after a 401.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any, Callable, Dict, Mapping, Optional

from nhc.core.json_values import object_in, parse_object
from nhc.core.system.bounded_read import read_bytes
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError

TOKEN_AGE = 60.0
"""Seconds after which a token file is read again. The kubelet rotates a token of at least 600 s after 80 % of them."""

EXEC_TIMEOUT = 60.0
"""Seconds that a credential program may take; the clouds' own need a few."""

Clock = Callable[[], float]


class Credentials:
    """A bearer token that never changes."""

    def __init__(self, token: str = "", basic: str = "") -> None:
        self._header = f"Bearer {token}" if token else basic

    def header(self) -> str:
        return self._header

    def certificate(self) -> Optional[tuple[bytes, bytes]]:
        """A certificate and key that came with the token, where a program gave them."""
        return None

    def forget(self) -> None:
        """Do nothing: this token never changes."""


class TokenFile(Credentials):
    """A token in a file that somebody else keeps fresh."""

    def __init__(self, path: str, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self.path = path
        self._clock = clock
        self._read_at: Optional[float] = None

    def header(self) -> str:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= TOKEN_AGE:
            try:
                token = read_bytes(self.path, 1 << 20).decode("ascii").strip()
            except (OSError, ValueError) as error:
                if self._read_at is None:
                    raise AdapterError(f"token file {self.path}: {error}") from None
                token = ""  # unreadable for a moment: the last token may still be good
            if token:
                self._header = f"Bearer {token}"
            self._read_at = now
        return self._header

    def forget(self) -> None:
        if self._read_at is not None:
            self._read_at = float("-inf")


class Program(Credentials):
    """A program that prints an ExecCredential (client.authentication.k8s.io), asked again when it expires."""

    def __init__(self, spec: Mapping[str, Any], base: str, cluster: Mapping[str, Any]) -> None:
        super().__init__()
        self._command = str(spec.get("command", ""))
        if "/" in self._command and not os.path.isabs(self._command):
            self._command = os.path.join(base, self._command)
        self._argv = [self._command, *map(str, spec.get("args") or ())]
        self._version = str(spec.get("apiVersion") or "client.authentication.k8s.io/v1")
        self._env = {str(pair["name"]): str(pair["value"]) for pair in spec.get("env") or ()}
        self._hint = str(spec.get("installHint") or "")
        self._cluster = dict(cluster) if spec.get("provideClusterInfo") else None
        self._until = float("-inf")
        self._certificate: Optional[tuple[bytes, bytes]] = None

    def header(self) -> str:
        self._fresh()
        return self._header

    def certificate(self) -> Optional[tuple[bytes, bytes]]:
        self._fresh()
        return self._certificate

    def forget(self) -> None:
        self._until = float("-inf")

    def _fresh(self) -> None:
        if time.time() < self._until:
            return
        status = self._ask()
        token = status.get("token")
        self._header = f"Bearer {token}" if token else ""
        cert, key = status.get("clientCertificateData"), status.get("clientKeyData")
        self._certificate = (str(cert).encode(), str(key).encode()) if cert and key else None
        if not self._header and self._certificate is None:
            raise AdapterError(f"{self._command}: printed neither a token nor a certificate")
        expires = status.get("expirationTimestamp")
        # Ten seconds early: a token must not run out between here and the server.
        self._until = from_utc(expires, time.time() + 60.0) - 10.0 if expires else float("inf")

    def _ask(self) -> Mapping[str, Any]:
        info: Dict[str, Any] = {"interactive": False}
        if self._cluster is not None:
            info["cluster"] = self._cluster
        request = {"apiVersion": self._version, "kind": "ExecCredential", "spec": info}
        environment = {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(request)}
        try:
            done = subprocess.run(
                self._argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=EXEC_TIMEOUT,
                check=False,
            )
        except FileNotFoundError:
            raise AdapterError(f"credential program {self._command!r} not found. {self._hint}".strip()) from None
        except (OSError, subprocess.SubprocessError) as error:
            raise AdapterError(f"credential program {self._command!r}: {error}") from None
        if done.returncode:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise AdapterError(f"credential program {self._command!r} exited {done.returncode}: {last}")
        try:
            return object_in(parse_object(done.stdout), "status")
        except ValueError:
            raise AdapterError(f"credential program {self._command!r} printed no ExecCredential") from None
