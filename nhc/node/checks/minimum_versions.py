"""The node's software has the published security fixes: GPU driver, runtimes, toolkits, adapters' firmware.

A distribution patches its own packages without a new upstream number, so its builds are not compared: they are named in
`Components.distribution`. Formats: each program's `--version`; /sys/module/nvidia/version; CUDA's version.json;
fw_ver of the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.core.model import Action, Outcome, ok, skip, unknown, warn
from nhc.core.units import text
from nhc.node.facts.infiniband import CLASS
from nhc.node.facts.packages import compare_versions

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Set, Tuple

NVIDIA_NIC = "nvidia-nic-firmware-"
"""The name of an adapter's component: this and its family, the first number of its firmware's version."""

_SECONDS = 5.0
_NUMBER = regex(r"(?<![\d.])\d+(?:\.\d+)+(?:-rc\.?\d+)?")
_UBUNTU_KERNEL = regex(r"(6\.8\.0-\d+)-(?:generic|lowlatency)")
_MELLANOX = "0x15b3"


class Component(NamedTuple):
    """One installed component: `name` as in minimum_versions.tsv, `where` it was found."""

    name: str
    version: str
    where: str


class Components(NamedTuple):
    """What was found; `distribution`: builds of the distribution; `unread`: those without a known version, and why."""

    found: Tuple[Component, ...]
    distribution: Tuple[str, ...]
    unread: Dict[str, str]


class DistributionBuild(Exception):
    """A build of the distribution, whose number does not show which fixes it has."""


def number(text: str) -> str:
    """The first version in what a program prints: `4.2.3` of `dcgmi  version: 4.2.3`. Raises ValueError."""
    match = _NUMBER.search(text)
    if match is None:
        raise ValueError(f"no version in {text.strip()[:60]!r}")
    return match[0]


def runc(text: str) -> str:
    """Of `runc --version`; its own releases have `commit: v1.2.3-0-g...`. Raises ValueError, DistributionBuild."""
    version = number(text)
    if f"\ncommit: v{version}-0-g" not in text:
        raise DistributionBuild
    return version


def docker(text: str) -> str:
    """Of `dockerd --version`. A release of Docker's ends in `build HASH`. Raises ValueError, DistributionBuild."""
    version = number(text)
    build = text.rpartition("build ")[2].strip()
    if not (build and all(letter in "0123456789abcdef" for letter in build)):
        raise DistributionBuild
    return version


_PROGRAMS = (
    ("nvidia-container-toolkit", ("nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk"), number),
    ("dcgm", ("dcgmi",), number),
    ("docker", ("dockerd",), docker),
    ("runc", ("runc",), runc),
)


def components(host: Host) -> Components:
    """All components that this node has."""
    found: List[Component] = []
    distribution: List[str] = []
    unread: Dict[str, str] = {}
    driver = host.read_or("/sys/module/nvidia/version")
    if driver:
        found.append(Component("nvidia-driver", driver, "the loaded module"))
    for name, programs, parse in _PROGRAMS:
        program = next(filter(host.which, programs), None)
        if program is None:
            continue
        try:
            done = host.run([program, "--version"], _SECONDS)
            if done.timed_out:
                raise ValueError(f"no answer within {_SECONDS:.0f} s")
            found.append(Component(name, parse(done.stdout), program))
        except DistributionBuild:
            distribution.append(name)
        except (OSError, ValueError) as error:
            unread[name] = str(error)
    found += _cuda(host, unread)
    found += _adapters(host)
    kernel = _UBUNTU_KERNEL.match(host.read_or("/proc/sys/kernel/osrelease"))
    if kernel and _is_ubuntu(host, "24.04"):
        found.append(Component("ubuntu-24.04-kernel", kernel[1], "the running kernel"))
    return Components(tuple(found), tuple(distribution), unread)


def _cuda(host: Host, unread: Dict[str, str]) -> List[Component]:
    """The newest CUDA toolkit: sites keep older ones for programs that were built with them."""
    import json

    from nhc.node.facts.packages import compare_versions

    newest: List[Component] = []
    for path in host.glob("/usr/local/cuda*/version.json"):
        try:
            version = json.loads(host.read(path, 1 << 20))["cuda"]["version"]
            one = Component("cuda-toolkit", number(version), path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            unread["cuda-toolkit"] = f"{path}: {error}"
            continue
        if not newest or compare_versions(newest[0].version, one.version) < 0:
            newest = [one]
    return newest


def _adapters(host: Host) -> List[Component]:
    """One for each firmware version that NVIDIA's adapters of a family run."""
    seen: Dict[Tuple[str, str], List[str]] = {}
    for device in host.names(CLASS):
        version = host.read_or(f"{CLASS}/{device}/fw_ver")
        family, dot, _ = version.partition(".")
        if dot and family.isdigit() and host.read_or(f"{CLASS}/{device}/device/vendor", _MELLANOX) == _MELLANOX:
            seen.setdefault((NVIDIA_NIC + family, version), []).append(device)
    return [Component(name, version, ", ".join(on)) for (name, version), on in sorted(seen.items())]


def _is_ubuntu(host: Host, release: str) -> bool:
    lines = host.read_or("/etc/os-release").split("\n")
    return "ID=ubuntu" in lines and f'VERSION_ID="{release}"' in lines


SITE = "/etc/nhc/minimum-versions.tsv"
BUILT_IN = "minimum_versions.tsv"
OLD = 90
"""Days after which the bulletins must be read again: NVIDIA publishes driver bulletins every three to four months."""


class Minimum(NamedTuple):
    """The lowest good version of a component's branch. `read` is the day since 1970 when bulletins were last read."""

    component: str
    branch: str
    version: str
    read: int
    bulletin: str

    def is_of(self, version: str) -> bool:
        return (
            self.branch == "*" or version == self.branch or version.startswith((f"{self.branch}.", f"{self.branch}-"))
        )


def parse(content: str, source: str) -> List[Minimum]:
    """The rows of a table; `#` begins a comment, the head is optional. Raises ValueError naming the line."""
    from datetime import date

    rows = []
    for number, line in enumerate(content.splitlines(), 1):
        cells = line.split()
        if not cells or cells[0].startswith("#") or cells[0] == "component":
            continue
        try:
            component, branch, version, published, read, bulletin = cells
            date.fromisoformat(published)
            day = date.fromisoformat(read).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError as error:
            raise ValueError(f"{source}:{number}: {line.strip()[:80]!r}: {error}") from None
        rows.append(Minimum(component, branch, version, day, bulletin))
    return rows


@check(
    "check_minimum_versions", opt("-f --file", "file", text, "the table to compare with", ""), timeout=40, every=86400
)
def check_minimum_versions(host: Host, file: str = "") -> Judged:
    """No software of the node is older than a published security fix.

    Compares the NVIDIA driver, container toolkit, CUDA toolkit, DCGM, Docker, runc, the firmware of ConnectX and
    BlueField adapters and Ubuntu's kernel with a table of least versions, each with its bulletin
    (nhc/core/data/minimum_versions.tsv; /etc/nhc/minimum-versions.tsv or -f take its place). Nothing is asked over the
    network. Older is WARN, and never more: whether it matters is the site's to say. An older branch without a row gets
    no fixes any more and is WARN; one newer than all rows is newer than the bulletin. The newest of several CUDA
    toolkits counts. What the distribution builds itself (its runc, its Docker) is left to its own updates, since its
    numbers do not tell what was mended. The message says whose bulletins were last read over 90 days ago.

    Example: * |every 1d| check_minimum_versions
    """
    path = file or (SITE if host.ours.exists(SITE) else "")
    try:
        rows = parse(host.ours.read(path), path) if path else _built_in()
    except OSError as error:
        return unknown("MinimumVersionsUnusable", f"{path}: {error.strerror}")
    except ValueError as error:
        return unknown("MinimumVersionsUnusable", str(error))
    there = components(host)
    outcomes: List[Outcome] = [
        unknown("ComponentUnread", f"{name} does not tell its version: {why}", target=name)
        for name, why in sorted(there.unread.items())
    ]
    compared: Set[Minimum] = set()
    for name, version, where in there.found:
        of_it = [row for row in rows if row.component == name]
        compared.update(of_it)
        fix = _missing(version, of_it)
        if fix is not None:
            outcomes.append(warn("VersionVulnerable", f"{name} {version} ({where}) is older than {fix.version}: "
                                 f"{fix.bulletin}", target=name, action=Action.INSPECT))  # fmt: skip
        elif of_it:
            outcomes.append(ok(f"{name} {version} has the published fixes", target=name))
    if not outcomes:
        left = f"; left to the distribution: {', '.join(there.distribution)}" if there.distribution else ""
        return skip("NothingToCompare", f"nothing here that the table of least versions knows{left}")
    said = _age(compared, host.time())
    return [outcome._replace(message=outcome.message + said) for outcome in outcomes] if said else outcomes


def _built_in() -> List[Minimum]:
    from nhc.core.data.reader import read

    return parse(read(BUILT_IN), BUILT_IN)


def _missing(version: str, rows: Sequence[Minimum]) -> Optional[Minimum]:
    """The fix that `version` lacks: its branch's or, if its branch has none, the next newer branch's."""
    from functools import cmp_to_key

    own = [row for row in rows if row.is_of(version)]
    lacking = [row for row in own or rows if compare_versions(version, row.version) < 0]
    if not lacking:
        return None
    by_version = cmp_to_key(compare_versions)
    return min(lacking, key=lambda row: by_version(row.version))


def _age(rows: Set[Minimum], now: float) -> str:
    old = sorted({row.component for row in rows if now / 86400 - row.read > OLD})
    if not old:
        return ""
    oldest = min(row.read for row in rows)
    return f" (bulletins of {', '.join(old)} last read {int(now // 86400) - oldest} days ago)"
