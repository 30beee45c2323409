"""How a request to Oracle's cloud is signed: HTTP signatures with an RSA key (draft-cavage-http-signatures-08).

The key is a user's (~/.oci/config), or that of an instance or workload principal, whose tokens Oracle's library gets
(extra `oci`). The library itself has 286 MB and takes over a second to load, so it is imported for principals alone.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
from email.utils import formatdate
from functools import cache, partial
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from nhc.core.model import printable
from nhc.core.system.bounded_read import read_bytes
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.repair.settings import AdapterSettings

CONFIG = "~/.oci/config"


class Key(NamedTuple):
    """What signs: the key's id, as Oracle knows it, and the signature of some bytes. `region` is "" where not known."""

    id: str
    sign: Callable[[bytes], bytes]
    region: str = ""

    def __repr__(self) -> str:
        return "Key(…)"


def signed(key: Key, verb: str, url: str, body: Optional[bytes]) -> Dict[str, str]:
    """The headers of one request with its signature."""
    parts = urlsplit(url)
    target = f"{verb.lower()} {parts.path}{f'?{parts.query}' if parts.query else ''}"
    headers = {"date": formatdate(usegmt=True), "host": parts.netloc}
    if verb in ("POST", "PUT", "PATCH"):
        content = body or b""
        headers["x-content-sha256"] = base64.b64encode(hashlib.sha256(content).digest()).decode()
        headers["content-type"] = "application/json"
        headers["content-length"] = str(len(content))
    text = "\n".join([f"(request-target): {target}", *(f"{name}: {value}" for name, value in headers.items())])
    signature = base64.b64encode(key.sign(text.encode())).decode()
    names = " ".join(["(request-target)", *headers])
    header = f'Signature version="1",keyId="{key.id}",algorithm="rsa-sha256",headers="{names}",signature="{signature}"'
    return {**headers, "authorization": header}


def find(table: AdapterSettings, environ: Optional[Mapping[str, str]]) -> Callable[[], Key]:
    """What gives the key of the moment, by the setting `credentials`. Raises AdapterError, as does what it returns."""
    how = table.choice("credentials", ("auto", "config", "instance-principal", "workload-identity"))
    given = os.environ if environ is None else environ
    path = os.path.expanduser(table.text("config-file") or given.get("OCI_CONFIG_FILE", "") or CONFIG)
    if how == "auto":
        how = "config" if os.path.exists(path) else "instance-principal"
    if how == "config":
        return cache(partial(_of_config, path, table.text("profile", "DEFAULT")))
    return _Principal(how)


def _of_config(path: str, profile: str) -> Key:
    """A user's key, as Oracle's tools write it down."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_bytes(path, 1 << 20).decode(), path)
        own = dict(parser[profile])
        name = os.path.expanduser(own["key_file"])
        pem = read_bytes(name, 1 << 20)
        key_id = f"{own['tenancy']}/{own['user']}/{own['fingerprint']}"
    except KeyError as error:
        raise AdapterError(f"{path}: no {error} in [{profile}]") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise AdapterError(f"{path}: {printable(str(error), 200)}") from None
    except OSError as error:
        raise AdapterError(f"{error.filename or path}: {error.strerror}") from None
    return Key(key_id, _signer(pem, own.get("pass_phrase", ""), name), own.get("region", ""))


def _signer(pem: bytes, password: str, name: str) -> Callable[[bytes], bytes]:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise AdapterError(
            "signing for Oracle needs the Python package cryptography: install nhc's extra oci"
        ) from None
    try:
        key: Any = load_pem_private_key(pem, password.encode() or None)
    except (ValueError, TypeError):
        raise AdapterError(f"{name}: no private key, or its pass_phrase is wrong") from None
    return lambda content: _rsa(key, content)


def _rsa(key: Any, content: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return bytes(key.sign(content, padding.PKCS1v15(), hashes.SHA256()))


class _Principal:
    """The key of the instance or the workload that this runs on, from Oracle's library, which renews its tokens."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._source: Any = None

    def __call__(self) -> Key:
        source = self._open()
        try:
            token, key = source.get_security_token(), source.session_key_supplier.get_key_pair()["private"]
            region = str(getattr(source, "region", "") or "")
        except Exception as error:  # the library's own and its transport's errors have no common base
            raise AdapterError(f"Oracle's {self._how}: {printable(str(error), 300)}") from None
        return Key(f"ST${token}", lambda content: _rsa(key, content), region)

    def _open(self) -> Any:
        if self._source is None:
            try:
                from oci.auth import signers
            except ModuleNotFoundError:
                raise AdapterError(f"Oracle's {self._how} needs Oracle's library: install nhc's extra oci") from None
            try:
                make = {
                    "instance-principal": signers.InstancePrincipalsSecurityTokenSigner,
                    "workload-identity": signers.get_oke_workload_identity_resource_principal_signer,
                }[self._how]
                self._source = make()
            except Exception as error:
                raise AdapterError(f"Oracle's {self._how}: {printable(str(error), 300)}") from None
        return self._source
