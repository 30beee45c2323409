"""How long a certificate is valid: OpenSSH's (PROTOCOL.certkeys) and X.509 (RFC 5280), read without any tool.

ssh-keygen and openssl print times in forms that change with their version and the time zone; the files do not.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

FOREVER = float("inf")
SSHD_CONFIG = "/etc/ssh/sshd_config"
HOST, USER = 2, 1


class Validity(NamedTuple):
    """From when until when (Unix times). `kind` is an ssh certificate's type, 0 for X.509."""

    begins: float
    ends: float
    kind: int = 0


# How many strings stand between the nonce and the serial number, by the key's type.
_KEY_STRINGS = {
    "ssh-rsa-cert-v01@openssh.com": 2, "rsa-sha2-256-cert-v01@openssh.com": 2, "rsa-sha2-512-cert-v01@openssh.com": 2,
    "ssh-dss-cert-v01@openssh.com": 4, "ssh-ed25519-cert-v01@openssh.com": 1,
    "sk-ssh-ed25519-cert-v01@openssh.com": 2, "ecdsa-sha2-nistp256-cert-v01@openssh.com": 2,
    "ecdsa-sha2-nistp384-cert-v01@openssh.com": 2, "ecdsa-sha2-nistp521-cert-v01@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com": 3,
}  # fmt: skip


def parse_ssh(text: str) -> Validity:
    """The line of a `*-cert.pub` file. Raises ValueError."""
    fields = text.split()
    if len(fields) < 2 or fields[0] not in _KEY_STRINGS:
        raise ValueError("not an OpenSSH certificate")
    try:
        blob = a2b_base64(fields[1])
    except Error:
        raise ValueError("not an OpenSSH certificate") from None
    at = 0

    def string() -> bytes:
        nonlocal at
        size = int.from_bytes(blob[at : at + 4], "big")
        if at + 4 + size > len(blob):
            raise ValueError("the certificate ends too early")
        at += 4 + size
        return blob[at - size : at]

    def number(size: int) -> int:
        nonlocal at
        if at + size > len(blob):
            raise ValueError("the certificate ends too early")
        at += size
        return int.from_bytes(blob[at - size : at], "big")

    if string().decode(errors="replace") != fields[0]:
        raise ValueError("not an OpenSSH certificate")
    for _ in range(1 + _KEY_STRINGS[fields[0]]):  # the nonce, then the key
        string()
    number(8)  # serial
    kind = number(4)
    string()  # key id
    string()  # principals
    begins, ends = number(8), number(8)
    return Validity(float(begins), FOREVER if ends >= 2**63 else float(ends), kind)


_PEM = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----(.*?)-----END", re.DOTALL)


def parse_x509(data: bytes) -> Tuple[Validity, ...]:
    """The certificates in a PEM file, in order, or the one of a DER file. Raises ValueError if there is none."""
    blocks: List[bytes] = []
    for match in _PEM.finditer(data):
        try:
            blocks.append(a2b_base64(match[1]))
        except Error:
            raise ValueError("its certificate is not base64") from None
    if not blocks:
        if data[:1] != b"\x30":
            raise ValueError("no certificate in it")
        blocks = [data]
    return tuple(_validity(block) for block in blocks)


def _element(data: bytes, at: int) -> Tuple[int, int, int]:
    """Tag of the DER element at `at`, where its content begins and ends. Raises ValueError."""
    if at + 2 > len(data):
        raise ValueError("the certificate ends too early")
    size, begin = data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, begin = int.from_bytes(data[begin : begin + count], "big"), begin + count
    if begin + size > len(data):
        raise ValueError("the certificate ends too early")
    return data[at], begin, begin + size


def _validity(der: bytes) -> Validity:
    tag, at, end = _element(der, 0)
    inner, at, end = _element(der, at)
    if tag != 0x30 or inner != 0x30:
        raise ValueError("not an X.509 certificate")
    # TBSCertificate: [0] version, serialNumber, signature, issuer, validity ...
    tag, _, after = _element(der, at)
    if tag == 0xA0:
        at = after
    for _ in range(3):
        _, _, at = _element(der, at)
    tag, at, end = _element(der, at)
    times: List[float] = []
    while at < end and len(times) < 2:
        kind, begin, at = _element(der, at)
        times.append(_time(kind, der[begin:at].decode("ascii", "replace")))
    if tag != 0x30 or len(times) != 2:
        raise ValueError("not an X.509 certificate")
    return Validity(times[0], times[1])


def _time(kind: int, text: str) -> float:
    """UTCTime or GeneralizedTime, which RFC 5280 wants in UTC with seconds."""
    from calendar import timegm

    form = {0x17: r"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", 0x18: r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z"}.get(kind)
    match = re.fullmatch(form, text) if form else None
    if not match:
        raise ValueError("not an X.509 certificate")
    year, *rest = map(int, match.groups())
    if kind == 0x17:
        year += 1900 if year >= 50 else 2000
    if year >= 9999:
        return FOREVER
    return float(timegm((year, *rest)))


def host_certificates(host: Host, path: str = SSHD_CONFIG, depth: int = 4) -> Tuple[str, ...]:
    """The HostCertificate files of sshd_config and what it includes (sshd_config(5)). Raises OSError."""
    files: List[str] = []
    try:
        lines = host.lines(path)
    except FileNotFoundError:
        return ()
    for line in lines:
        keyword, value = _directive(line)
        if keyword == "hostcertificate" and value:
            files.append(value)
        elif keyword == "match":
            break  # HostCertificate has no place in a Match block
        elif keyword == "include" and depth:
            for pattern in value.split():
                where = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
                for name in host.glob(where):
                    files += host_certificates(host, name, depth - 1)
    return tuple(dict.fromkeys(files))


def _directive(line: str) -> Tuple[str, str]:
    match: Optional[re.Match[str]] = re.match(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*?)\s*$", line)
    return (match[1].lower(), match[2].strip('"')) if match else ("", "")
