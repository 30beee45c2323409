"""Whether this node waits for a reboot, and how long ago the last one was."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.versions import compare

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

_DISTRIBUTION = re.compile(r"\.(?:el|fc|amzn|lp)\d[0-9._]*")
"""What of a release belongs to its version although it holds letters: `.el9_4`, `.fc40`."""


class Pending(NamedTuple):
    """What says that a reboot is due: `why` for a person, `evidence` the raw lines."""

    why: str
    evidence: Sequence[str] = ()


def flavour(release: str) -> str:
    """What tells kernels of one version apart: `amd64` of 6.1.0-18-amd64, `aws` of 6.8.0-1015-aws, `debug` builds."""
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
        if release[:1].isdigit() and flavour(release) == flavour(running) and compare(release, best) > 0:
            best = release
    return None if best == running else best


def marks(host: Host) -> bool:
    """Whether packages of this node can leave a mark: Ubuntu's update-notifier-common, Debian's unattended-upgrades."""
    hooks = ("/usr/share/update-notifier/notify-reboot-required", "/usr/share/unattended-upgrades")
    return any(host.exists(path) for path in hooks)


def marker(host: Host) -> Optional[Pending]:
    """Debian's and Ubuntu's mark, with the packages that asked for it."""
    for path in ("/run/reboot-required", "/var/run/reboot-required"):
        if host.exists(path):
            packages = sorted(set(host.read_or(f"{path}.pkgs").split()))
            asked = f" by {', '.join(packages[:5])}" if packages else ""
            return Pending(f"a reboot was asked for{asked}", packages)
    return None


def asked_of_dnf(host: Host) -> Optional[List[str]]:
    """What `needs-restarting -r` (dnf-utils) says to reboot for, [] for nothing, None where it cannot be asked.

    It exits 1 where a reboot is due, 0 where not.
    """
    if not host.which("needs-restarting"):
        return None
    ended = host.run(["needs-restarting", "-r"], timeout=20)
    if ended.timed_out or ended.status not in (0, 1):
        return None
    updated = [line.strip(" *") for line in ended.stdout.splitlines() if line.lstrip().startswith("*")]
    if ended.status == 0:
        return []
    # Status 1 is also Python's own for a crash: then it lists nothing and says nothing of a reboot.
    return updated or (["needs-restarting"] if "reboot" in ended.stdout.lower() else None)
