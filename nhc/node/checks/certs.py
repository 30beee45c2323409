"""Certificates that expire: sshd's host certificates, the kubelet's, and those of a site."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.timestamps import utc
from nhc.core.units import seconds, show_seconds, text
from nhc.node.facts import certificates
from nhc.node.facts.certificates import FOREVER, HOST, Validity

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

_DAY = 86400.0
_WARN = opt("-w --warn", "warn_at", seconds,
            "WARN where less than this is left (default: 14 days, or a tenth of a shorter life)")  # fmt: skip
_CRIT = opt("-c --crit", "crit_at", seconds, "CRIT where less than this is left", 0.0)
KUBELET = tuple(f"/var/lib/kubelet/pki/{name}" for name in
                ("kubelet-client-current.pem", "kubelet-server-current.pem", "kubelet.crt"))  # fmt: skip


@check("check_ssh_hostcert", _WARN, _CRIT, rest("files", text, "certificates; none means those of sshd_config"),
       every=3600)  # fmt: skip
def check_ssh_hostcert(
    host: Host, warn_at: Optional[float] = None, crit_at: float = 0.0, files: Sequence[str] = ()
) -> Judged:
    """Sshd's host certificates are good for a while.

    Reads the HostCertificate files of /etc/ssh/sshd_config and what it includes. Clients refuse a host whose
    certificate has ended: CRIT, as is one that is not yet good, or is a user's certificate. WARN where less than
    14 days are left, for certificates with a shorter life a tenth of it. OpenSSH itself warns of nothing. SKIP
    where sshd has no host certificate; UNKNOWN where one cannot be read.

    Example: * |every 1h| check_ssh_hostcert -w 30d
    """
    if not files:
        try:
            files = certificates.host_certificates(host)
        except OSError as error:
            return unknown("Unreadable", f"{error.filename}: {error.strerror}")
        if not files:
            return skip("NoCertificate", "sshd has no host certificate")
    outcomes = []
    for path in files:
        try:
            validity = certificates.parse_ssh(host.read(path, 65536))
        except (OSError, ValueError) as error:
            outcomes.append(_unreadable(path, error))
            continue
        if validity.kind != HOST:
            outcomes.append(crit("CertificateWrongType", f"{path} is a user's certificate, not a host's", target=path))
        else:
            outcomes.append(_judge(host, path, validity, warn_at, crit_at))
    return _result(outcomes)


@check(
    "check_tls_cert",
    _WARN,
    _CRIT,
    flag("-a --all", "every", "every certificate in a file, not only the first: a chain ends with its first"),
    rest("files", text, "certificates, PEM or DER; none means the kubelet's"),
    every=3600,
)
def check_tls_cert(
    host: Host,
    warn_at: Optional[float] = None,
    crit_at: float = 0.0,
    every: bool = False,
    files: Sequence[str] = (),
) -> Judged:
    """X.509 certificates are good for a while.

    Without names, the kubelet's own in /var/lib/kubelet/pki: it renews its client certificate when 10 to 30 % of
    its life is left, and a node whose certificate has ended is NotReady for good. CRIT where one has ended or is
    not yet good, WARN where less than 14 days are left, for certificates with a shorter life a tenth of it, so
    that one that is about to be renewed is not reported. Reads the files itself, without openssl; private keys beside
    a certificate are not looked at. SKIP where there is no kubelet certificate and none is named; UNKNOWN where
    one cannot be read.

    Example: * |every 1h| check_tls_cert -w 30d /etc/pki/tls/certs/node.pem
    """
    named = bool(files)
    paths = list(files) or [path for path in KUBELET if host.exists(path)]
    if not paths:
        return skip("NoCertificate", "the kubelet has no certificate here")
    outcomes = []
    for path in paths:
        try:
            chain = certificates.parse_x509(host.read_bytes(path, 1 << 20))
        except (OSError, ValueError) as error:
            outcomes.append(_unreadable(path, error))
            continue
        outcomes += [_judge(host, path, each, warn_at, crit_at) for each in (chain if every and named else chain[:1])]
    return _result(outcomes)


def _unreadable(path: str, error: Exception) -> Outcome:
    if isinstance(error, FileNotFoundError):
        return crit("CertificateMissing", f"{path} does not exist", target=path)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return unknown("CertificateUnreadable", f"{path}: {why}", target=path)


def _judge(host: Host, path: str, validity: Validity, warn_at: Optional[float], crit_at: float) -> Outcome:
    now = host.time()
    if validity.ends == FOREVER:
        return ok(f"{path} does not end", target=path)
    left = validity.ends - now
    limit = min(14 * _DAY, (validity.ends - validity.begins) / 10) if warn_at is None else warn_at
    metrics = (Metric("certificate_time_left", left, "s", f"{limit:.0f}:", f"{crit_at:.0f}:"),)
    at = utc(validity.ends)
    if left <= 0:
        return crit("CertificateExpired", f"{path} has ended {show_seconds(-left)} ago, {at}", target=path,
                    metrics=metrics)  # fmt: skip
    if validity.begins > now:
        begins = utc(validity.begins)
        message = f"{path} is not good before {begins}: is the clock right?"
        return crit("CertificateNotYet", message, target=path, metrics=metrics)
    message = f"{path} ends in {show_seconds(left)}, {at}"
    if left < crit_at:
        return crit("CertificateEnds", message, target=path, metrics=metrics)
    if left < limit:
        return warn("CertificateEnds", message, target=path, metrics=metrics, action=Action.INSPECT)
    return ok(message, target=path, metrics=metrics)


def _result(outcomes: List[Outcome]) -> Judged:
    bad = [outcome for outcome in outcomes if outcome.reason]
    if bad:
        return bad
    soonest = min(outcomes, key=lambda each: each.metrics[0].value if each.metrics else FOREVER)
    more = f" (the first of {len(outcomes)})" if len(outcomes) > 1 else ""
    return ok(soonest.message + more, metrics=soonest.metrics)
