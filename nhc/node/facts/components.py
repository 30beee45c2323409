"""Versions of what security bulletins speak of: GPU driver, runtimes, toolkits, adapters' firmware, kernel.

A distribution mends its own packages without a new upstream number, so its builds are not compared: they are named in
`Components.distribution`. Formats: each program's `--version`; /sys/module/nvidia/version; CUDA's version.json;
fw_ver of the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.infiniband import CLASS

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

NVIDIA_NIC = "nvidia-nic-firmware-"
"""What an adapter's component is called: this and its family, the first number of its firmware's version."""

_SECONDS = 5.0
_NUMBER = regex(r"(?<![\d.])\d+(?:\.\d+)+(?:-rc\.?\d+)?")
_UBUNTU_KERNEL = regex(r"(6\.8\.0-\d+)-(?:generic|lowlatency)")
_MELLANOX = "0x15b3"


class Component(NamedTuple):
    """One thing that is there: `name` as in minimum_versions.tsv, `where` it was found."""

    name: str
    version: str
    where: str


class Components(NamedTuple):
    """What was found; `distribution` are those that it mends itself, `unread` those that did not say, and why."""

    found: Tuple[Component, ...]
    distribution: Tuple[str, ...]
    unread: Dict[str, str]


class DistributionBuild(Exception):
    """A build of the distribution, whose number does not tell what was mended in it."""


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
    """All that this node has of them."""
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
    """The newest CUDA toolkit: sites keep older ones beside it for programs that were built with them."""
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
