"""Installed packages, from dpkg or rpm."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from typing_extensions import TypeAlias

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
    # Both exit 1 if a package is not installed; any other message means a broken database.
    complaints = [line for line in ended.stderr.splitlines() if line and "no packages found matching" not in line]
    if complaints and not versions:
        raise NoPackagesError(f"{argv[0]}: {' '.join(complaints)[:200]}")
    return versions


_DISTRIBUTION = re.compile(r"\.(?:el|fc|amzn|lp)\d[0-9._]*")
"""The part of a release that belongs to its version although it has letters: `.el9_4`, `.fc40`."""


class Pending(NamedTuple):
    """Why a reboot is due: `why` for a person, `evidence` the raw lines."""

    why: str
    evidence: Sequence[str] = ()


def flavour(release: str) -> str:
    """The flavour of a kernel: `amd64` of 6.1.0-18-amd64, `aws` of 6.8.0-1015-aws, `debug` builds."""
    return "-".join(re.findall(r"[A-Za-z_]{2,}[A-Za-z0-9_]*", _DISTRIBUTION.sub("", release)))


def newer_kernel(running: str, names: Sequence[str]) -> Optional[str]:
    """The newest of the kernels in /boot if it is newer than the running one and of its flavour, else None.

    None as well where the running kernel is not among them: a netboot image's /boot says nothing.
    """
    installed = [name[len("vmlinuz-") :] for name in names if name.startswith("vmlinuz-")]
    if running not in installed:
        return None
    best = running
    for release in installed:
        if release[:1].isdigit() and flavour(release) == flavour(running) and compare_versions(release, best) > 0:
            best = release
    return None if best == running else best


def reboot_marks(host: Host) -> bool:
    """Whether packages of this node can leave a mark: Ubuntu's update-notifier-common, Debian's unattended-upgrades."""
    hooks = ("/usr/share/update-notifier/notify-reboot-required", "/usr/share/unattended-upgrades")
    return any(host.exists(path) for path in hooks)


def marker(host: Host) -> Optional[Pending]:
    """Debian's and Ubuntu's mark, with the packages that require the reboot."""
    for path in ("/run/reboot-required", "/var/run/reboot-required"):
        if host.exists(path):
            packages = sorted(set(host.read_or(f"{path}.pkgs").split()))
            asked = f" by {', '.join(packages[:5])}" if packages else ""
            return Pending(f"a reboot was asked for{asked}", packages)
    return None


def asked_of_dnf(host: Host) -> Optional[List[str]]:
    """What `needs-restarting -r` (dnf-utils) says to reboot for, [] for nothing, None if it cannot be asked.

    It exits 1 where a reboot is due, 0 if not.
    """
    if not host.which("needs-restarting"):
        return None
    ended = host.run(["needs-restarting", "-r"], timeout=20)
    if ended.timed_out or ended.status not in (0, 1):
        return None
    updated = [line.strip(" *") for line in ended.stdout.splitlines() if line.lstrip().startswith("*")]
    if ended.status == 0:
        return []
    # Status 1 is also Python's own for a crash: then it lists nothing and does not mention a reboot.
    return updated or (["needs-restarting"] if "reboot" in ended.stdout.lower() else None)


_Piece: TypeAlias = "Tuple[int, int, str]"

_PIECE = re.compile(r"\d+|[A-Za-z]+|~|\^")


def compare_versions(left: str, right: str) -> int:
    """-1, 0 or 1 as `left` is older than, as old as or newer than `right`.

    An epoch (`1:`) comes first. The rest is compared piece by piece as rpm does: numbers as numbers and
    newer than letters, letters as text, `~` older than the end (a release candidate), `^` newer than it.
    Debian's rules (deb-version(7)) differ only in how they order punctuation.
    """
    ours, theirs = _parts(left), _parts(right)
    if len(ours) != len(theirs):
        ours, theirs = ours[:2], theirs[:2]  # one of them names no release: any will do
    return (ours > theirs) - (ours < theirs)


def _parts(version: str) -> List[List[_Piece]]:
    """Epoch, version and, if it is named, release: two numbers, as 1.2-9 is older than 1.2.1-1."""
    epoch, colon, rest = version.partition(":")
    number, dash, release = (rest if colon else version).partition("-")
    parts = [epoch if colon and epoch.isdigit() else "0", number, *([release] if dash else [])]
    return [[*map(_ordered, _PIECE.findall(part)), _END] for part in parts]


def _ordered(piece: str) -> _Piece:
    """A piece of a version as it compares with others: by its kind, then as a number or as text."""
    if piece.isdigit():
        return 4, int(piece), ""
    return {"~": 0, "^": 2}.get(piece, 3), 0, piece


_END: _Piece = (1, 0, "")
"""What stands behind the last piece: `~` is older than it, everything else newer."""


class Requirement(NamedTuple):
    """What a version must be: `operator` is one of >= <= > < = or "glob"."""

    operator: str
    value: str

    def holds(self, version: str) -> bool:
        if self.operator == "glob":
            from fnmatch import fnmatchcase

            return fnmatchcase(version, self.value)
        order = compare_versions(version, self.value)
        return {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0, "=": order == 0}[self.operator]

    def __str__(self) -> str:
        return self.value if self.operator == "glob" else f"{self.operator}{self.value}"


_REQUIREMENT = re.compile(r"(>=|<=|>|<|==|=)?\s*(\S+)")


def read_requirement(text: str) -> Requirement:
    """`>=5.14`, `<6`, `=6.1` or a shell pattern such as `5.14.*`. Raises ValueError."""
    match = _REQUIREMENT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a version requirement (as >=5.14, <6 or the pattern 5.14.*)")
    operator = {None: "glob", "==": "="}.get(match[1], match[1])
    return Requirement(str(operator), match[2])


class PackageRequirement(NamedTuple):
    """A package that must be there, and the versions that will do."""

    name: str
    versions: Tuple[Requirement, ...]


_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9+._:-]*?)((?:>=|<=|>|<|=).+)?")


def read_package_requirement(text: str) -> PackageRequirement:
    """`munge`, `slurm-slurmd>=23.11`, `cuda-toolkit-12-4=12.4.*`, `ucx>=1.15,<1.17`. Raises ValueError."""
    match = _PACKAGE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a package requirement (as munge, slurm>=23.11 or ucx=1.15.*)")
    versions = []
    for part in (match[2] or "").split(",") if match[2] else ():
        wanted = read_requirement(part)
        if wanted.operator == "glob":
            raise ValueError(f"{part!r} in {text!r} lacks one of >= <= > < =")
        wild = wanted.operator == "=" and any(letter in wanted.value for letter in "*?[")
        versions.append(wanted._replace(operator="glob") if wild else wanted)
    return PackageRequirement(match[1], tuple(versions))
