"""Where the API server is and how to prove who we are: in a pod, or with a kubeconfig outside.

In a pod, the kubelet writes a token and replaces it before it expires (an hour by default), so the file is
read again as it changes. Outside, the kubeconfig's user may hold a token, a file of one, a certificate, or
the name of a program that prints credentials (the clouds' way). Everything here is read lazily and again
after a 401: no credential outlives its replacement.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.json_values import object_in, parse_object
from nhc.core.settings import declared
from nhc.core.system.bounded_read import read_bytes, read_text
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given

# How we prove who we are: a bearer token, a file with one that somebody keeps fresh, or a program that prints one.
#
# Each is read again when it runs out, and after a 401.


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
        """A certificate and key that came with the token, if a program gave them."""
        return None

    def forget(self) -> None:
        """Do nothing: this token never changes."""


class TokenFile(Credentials):
    """A token in a file that another program renews."""

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


SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet puts a pod's credentials."""

IN_CLUSTER = "in-cluster"
"""The `source` of a pod's own account."""


@dataclass
class ClusterTls:
    """How a server is verified, and the client certificate that we send. Files are read again for each connection."""

    ca_file: str = ""
    ca_data: bytes = b""
    verify: bool = True
    server_name: str = ""
    cert: str = ""
    key: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""

    def context(self, given: Optional[Tuple[bytes, bytes]] = None) -> ssl.SSLContext:
        """A fresh context; `given` is a certificate and its key that a program gave. Raises OSError, ValueError."""
        context = ssl.create_default_context(
            cafile=self.ca_file or None, cadata=self.ca_data.decode() if self.ca_data else None
        )
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if given is not None:
            self.cert_data, self.key_data = given
        if self.cert_data:  # ssl reads certificates from files only; these live as long as the call
            with tempfile.TemporaryDirectory(prefix="nhc-") as directory:
                paths = []
                for name, data in (("cert", self.cert_data), ("key", self.key_data)):
                    path = Path(directory, name)
                    path.touch(mode=0o600)
                    path.write_bytes(data)
                    paths.append(str(path))
                context.load_cert_chain(*paths)
        elif self.cert:
            context.load_cert_chain(self.cert, self.key or None)
        return context


@dataclass
class Access:
    """One cluster seen by one user."""

    server: str
    namespace: str = "default"
    known_by: ClusterTls = field(default_factory=ClusterTls)
    proxy: str = ""
    source: str = ""
    headers: Dict[str, str] = field(default_factory=dict)
    credentials: Optional[Credentials] = None

    def authorization(self) -> str:
        """The Authorization header to send now, "" if a client certificate identifies us."""
        return self.credentials.header() if self.credentials else ""

    def forget(self) -> None:
        """The server refused our credentials: ask for new ones."""
        if self.credentials:
            self.credentials.forget()

    def tls(self) -> Optional[ssl.SSLContext]:
        """A fresh TLS context, so that rotated certificates count; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        try:
            return self.known_by.context(self.credentials.certificate() if self.credentials is not None else None)
        except (OSError, ValueError) as error:
            raise AdapterError(f"{self.source}: TLS to {self.server}: {error}") from None


def find(kubeconfig: str = "", context: str = "") -> Access:
    """The cluster to talk to: the kubeconfig named, else `$KUBECONFIG`, else this pod's, else `~/.kube/config`.

    Raises AdapterError saying what was looked for.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        # kubectl merges a list of files; we read the first that exists, which is what a list is used for.
        path = next((path for path in named.split(os.pathsep) if os.path.exists(path)), None)
        if path is None:
            raise AdapterError(f"kubeconfig {named}: no such file")
        return from_kubeconfig(path, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(f"{SERVICE_ACCOUNT}/token"):
        return in_cluster()
    usual = os.path.expanduser("~/.kube/config")
    if os.path.exists(usual):
        return from_kubeconfig(usual, context)
    raise AdapterError("no cluster: not in a pod, KUBECONFIG not set, and no ~/.kube/config")


@declared.settings
class ClusterSettings(NamedTuple):
    """Which cluster an adapter speaks to."""

    kubeconfig: str = declared.text("kubeconfig", "", "default: $KUBECONFIG, this pod's account, ~/.kube/config")
    context: str = declared.text("context", "", "default: the kubeconfig's current one")

    def kubeconfig_in(self, environ: Given) -> str:
        """The kubeconfig, else that of the environment that the adapter is given; "" for what `find` finds."""
        return self.kubeconfig or (environ or {}).get("KUBECONFIG", "")

    def find(self, environ: Given) -> Access:
        """The cluster. Raises AdapterError."""
        return find(self.kubeconfig_in(environ), self.context)


def in_cluster(directory: str = SERVICE_ACCOUNT, environ: Optional[Mapping[str, str]] = None) -> Access:
    """The ServiceAccount of the pod we run in."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AdapterError("not in a pod: KUBERNETES_SERVICE_HOST is not set")
    if ":" in host:
        host = f"[{host}]"
    try:
        namespace = read_text(f"{directory}/namespace", 4096).strip()
    except OSError:
        namespace = "default"
    return Access(
        f"https://{host}:{port}",
        namespace,
        ClusterTls(f"{directory}/ca.crt"),
        source=IN_CLUSTER,
        credentials=TokenFile(f"{directory}/token"),
    )


def from_kubeconfig(path: str, context: str = "") -> Access:
    """The cluster and user of one context of a kubeconfig file, the current one by default."""
    import yaml

    try:
        text = read_text(path)
        config = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are the safe one)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise AdapterError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict):
        raise AdapterError(f"{path}: not a kubeconfig (expected a mapping)")
    name = context or config.get("current-context") or ""
    if not name:
        raise AdapterError(f"{path}: no current-context; name one with --context")
    chosen = _named(path, config, "contexts", name, "context")
    cluster = _named(path, config, "clusters", str(chosen.get("cluster", "")), "cluster")
    user = _named(path, config, "users", str(chosen["user"]), "user") if chosen.get("user") else {}
    base = os.path.dirname(os.path.abspath(path))
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise AdapterError(f"{path}: cluster {chosen.get('cluster')!r}: server {server!r} is not a URL")
    if user.get("auth-provider"):
        raise AdapterError(
            f"{path}: user {chosen['user']!r} uses auth-provider, which Kubernetes 1.26 removed; use exec"
        )
    return Access(
        server.rstrip("/"),
        str(chosen.get("namespace") or "default"),
        ClusterTls(
            _below(base, cluster.get("certificate-authority")),
            _decoded(path, cluster, "certificate-authority-data"),
            not cluster.get("insecure-skip-tls-verify"),
            str(cluster.get("tls-server-name") or ""),
            _below(base, user.get("client-certificate")),
            _below(base, user.get("client-key")),
            _decoded(path, user, "client-certificate-data"),
            _decoded(path, user, "client-key-data"),
        ),
        proxy=str(cluster.get("proxy-url") or ""),
        source=f"{path} ({name})",
        headers={"Impersonate-User": str(user["as"])} if user.get("as") else {},
        credentials=_credentials(user, base, cluster),
    )


def _credentials(user: Mapping[str, Any], base: str, cluster: Mapping[str, Any]) -> Optional[Credentials]:
    # The order of client-go: a token file outranks a token, and either outranks a program.
    if user.get("tokenFile"):
        return TokenFile(_below(base, user["tokenFile"]))
    if user.get("token"):
        return Credentials(str(user["token"]))
    if user.get("exec"):
        return Program(user["exec"], base, cluster)
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return Credentials(basic=f"Basic {base64.b64encode(pair).decode()}")
    return None


def _named(path: str, config: Mapping[str, Any], section: str, name: str, key: str) -> Dict[str, Any]:
    entries: List[Any] = config.get(section) or []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            return dict(entry[key])
    known = ", ".join(sorted(str(e.get("name")) for e in entries if isinstance(e, dict))) or "none"
    raise AdapterError(f"{path}: no {key} {name!r} (there are: {known})")


def _below(base: str, path: object) -> str:
    return os.path.join(base, str(path)) if path else ""


def _decoded(path: str, section: Mapping[str, object], key: str) -> bytes:
    try:
        return base64.b64decode(str(section.get(key) or ""), validate=True)
    except ValueError:
        raise AdapterError(f"{path}: {key} is not base64") from None
