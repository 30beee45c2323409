"""The webhook's certificate: read from files that another program renews (cert-manager), or made and renewed by nhc.

A self-made certificate is in a Secret that all replicas read; the first replica that finds it missing or old makes the
next one. Each has its own authority, whose key is deleted at once, so that it can sign nothing else. The API server
gets the new authority, beside the earlier ones, before any replica uses a certificate of it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import os
import ssl
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.system.bounded_read import read_text
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import AdapterError
from nhc.node.facts.certificates import parse_x509
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import get

LASTS = 90 * 86400.0
"""Seconds for which a self-made certificate counts."""

RENEWED = 30 * 86400.0
"""Seconds before its end from which it is renewed."""

EARLIER = 300.0
"""Seconds that it counts from before now: clocks differ."""

SETTLING = 10.0
"""Seconds in which API servers learn of an authority (each follows the webhook's configuration by a watch)."""

LARGEST = 1 << 20
"""Bytes of a file of certificates."""

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PEM_END = "-----END CERTIFICATE-----"


class Pair(NamedTuple):
    """A certificate, its key and the trusted authorities (PEM), and until when it is valid (Unix time)."""

    certificate: str
    key: str
    authorities: str
    until: float


def make(names: Sequence[str], now: float) -> Pair:
    """A certificate for these DNS names, of an authority that signs nothing else. Raises AdapterError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise AdapterError(
            "a self-made certificate needs the Python package cryptography; or mount one (--certificate DIRECTORY)"
        ) from None
    begin, end = _moment(now - EARLIER), _moment(now + LASTS)

    def name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begun(subject: Any, issuer: Any, key: Any, authority: bool) -> Any:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        return builder.add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), True)

    signer, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = name(f"nhc preflight {utc(now)}")
    authority = begun(issuer, issuer, signer, True).sign(signer, hashes.SHA256())
    leaf = begun(name(names[0][:64]), issuer, own, False)
    leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), False)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = leaf.sign(signer, hashes.SHA256()).public_bytes(pem)
    return Pair(certificate.decode(), key.decode(), authority.public_bytes(pem).decode(), now + LASTS)


def _moment(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc)


def until(certificates: str) -> float:
    """When the first of some certificates ends (Unix time), 0 if it cannot be read."""
    try:
        return parse_x509(certificates.encode())[0].ends
    except ValueError:
        return 0.0


def blocks(authorities: str) -> List[str]:
    """The certificates of a bundle, one by one."""
    return [f"{part.strip()}\n{PEM_END}\n" for part in authorities.split(PEM_END) if "BEGIN CERTIFICATE" in part]


class OwnCertificate:
    """The self-made certificate in its Secret. `look` is called periodically and returns the one to use now."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        webhook: str,
        service: str,
        clock: Callable[[], float] = time.time,
        renewed: float = RENEWED,
        settling: float = SETTLING,
    ) -> None:
        self.client, self.namespace, self.name, self.webhook, self.clock = client, namespace, name, webhook, clock
        self.renewed, self.settling = renewed, settling
        self.names = (
            f"{service}.{namespace}.svc",
            f"{service}.{namespace}.svc.cluster.local",
            f"{service}.{namespace}",
            f"{service}-gangs.{namespace}.svc",
        )

    def look(self) -> Pair:
        """The valid certificate; a new one if it is missing or old. Raises AdapterError."""
        standing = self._read()
        if standing is None or standing.until - self.clock() < self.renewed:
            standing = self._renew(standing)
        self._tell(standing.authorities)
        return standing

    def _read(self) -> Optional[Pair]:
        secret = self.client.find(namespaced(self.namespace, "secrets", self.name))
        data = get(secret, "data") or {}
        certificate, key, authorities = (_text(data.get(name)) for name in (CERTIFICATE, KEY, AUTHORITIES))
        if not (certificate and key and authorities):
            return None
        return Pair(certificate, key, authorities, until(certificate))

    def _renew(self, before: Optional[Pair]) -> Pair:
        """Make the next one: first tell the API server, then write the Secret, whose first writer decides."""
        made = make(self.names, self.clock())
        # Those that still count: the one that is shown until all replicas have seen the next.
        old = [one for one in blocks(before.authorities) if until(one) > self.clock()] if before is not None else []
        made = made._replace(authorities="".join([*blocks(made.authorities), *old[:1]]))
        if old:
            self._tell("".join([*blocks(made.authorities), *old]))
            time.sleep(self.settling)
        data = {CERTIFICATE: made.certificate, KEY: made.key, AUTHORITIES: made.authorities}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        path = namespaced(self.namespace, "secrets")
        meta: Dict[str, Any] = {"name": self.name, "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": encoded}
        secret = self.client.find(f"{path}/{self.name}")
        try:
            if secret is None:
                self.client.post(path, body, retry=False)
            else:
                meta["resourceVersion"] = secret["metadata"]["resourceVersion"]
                self.client.patch(f"{path}/{self.name}", {"metadata": meta, "data": encoded}, MERGE_PATCH)
        except ApiError as error:
            if error.status != 409:
                raise
            other = self._read()  # another replica was first
            if other is None:
                raise
            return other
        return made

    def _tell(self, authorities: str) -> None:
        """The API server believes these authorities, whom the configuration names for each of its webhooks."""
        path = f"{WEBHOOKS}/{self.webhook}"
        encoded = base64.b64encode(authorities.encode()).decode()

        def plan(standing: Mapping[str, Any]) -> List[Dict[str, Any]]:
            ops = [
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": encoded}
                for number, one in enumerate(standing.get("webhooks") or ())
                if get(one, "clientConfig", "caBundle") != encoded
            ]
            version = standing["metadata"]["resourceVersion"]
            return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *ops] if ops else []

        self.client.change(path, plan)


def _text(value: object) -> str:
    try:
        return base64.b64decode(str(value or ""), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


class FileCertificate:
    """A certificate that another program keeps in a directory (`tls.crt`, `tls.key`), like a Secret of cert-manager."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def look(self) -> Pair:
        """The certificate as it lies there now. Raises AdapterError."""
        texts = []
        for name in (CERTIFICATE, KEY):
            path = os.path.join(self.directory, name)
            try:
                texts.append(read_text(path, LARGEST))
            except (OSError, ValueError) as error:
                raise AdapterError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        try:
            authorities = read_text(os.path.join(self.directory, AUTHORITIES), LARGEST)
        except (OSError, ValueError):
            authorities = ""  # the pods of gangs then get no address to ask
        return Pair(texts[0], texts[1], authorities, until(texts[0]))


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Show this certificate from the next connection on. Raises AdapterError."""
    with contextlib.ExitStack() as stack:
        paths = []
        for text in (pair.certificate, pair.key):
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".pem"))
            file.write(text)
            file.flush()
            paths.append(file.name)
        try:
            context.load_cert_chain(*paths)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise AdapterError(f"the webhook's certificate makes no sense: {error}") from None
