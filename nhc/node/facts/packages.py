"""Installed packages, from dpkg or rpm."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Sequence

_RPM_DATABASES = ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")


class NoPackagesError(Exception):
    """The packages of this node cannot be read; the text says why."""


def parse_dpkg(text: str) -> Dict[str, List[str]]:
    """Versions by package, of lines `name<TAB>version<TAB>status`; only those that are installed."""
    versions: Dict[str, List[str]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2] == "installed":
            versions.setdefault(fields[0].partition(":")[0], []).append(fields[1])
    return versions


def parse_rpm(text: str) -> Dict[str, List[str]]:
    """Versions by package, of lines `name<TAB>epoch:version-release`; `package x is not installed` is left out."""
    versions: Dict[str, List[str]] = {}
    for line in text.splitlines():
        name, tab, version = line.partition("\t")
        if tab and version:
            versions.setdefault(name, []).append(version)
    return versions


def installed(host: Host, names: Sequence[str]) -> Dict[str, List[str]]:
    """The versions of each of these packages that is installed. Raises NoPackagesError."""
    if host.exists("/var/lib/dpkg/status") and host.which("dpkg-query"):
        argv = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n", *names]
        parse = parse_dpkg
    elif any(host.isdir(path) for path in _RPM_DATABASES) and host.which("rpm"):
        argv = ["rpm", "-q", "--qf", "%{NAME}\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n", *names]
        parse = parse_rpm
    else:
        raise NoPackagesError("this node has neither dpkg's nor rpm's database with its tool")
    ended = host.run(argv, timeout=20)
    if ended.timed_out:
        raise NoPackagesError(f"{argv[0]} did not answer within 20 s")
    versions = parse(ended.stdout)
    # Both exit 1 where a package is not installed; anything else said is a broken database.
    complaints = [line for line in ended.stderr.splitlines() if line and "no packages found matching" not in line]
    if complaints and not versions:
        raise NoPackagesError(f"{argv[0]}: {' '.join(complaints)[:200]}")
    return versions
