"""The software a node needs is installed."""

from __future__ import annotations

from nhc.core.check import Judged, check, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import crit, ok, unknown
from nhc.core.units import show_number
from nhc.node.facts import packages as facts
from nhc.node.facts.packages import PackageRequirement, read_package_requirement

if TYPE_CHECKING:
    from typing import Sequence


@check(
    "check_packages_installed",
    rest(
        "packages",
        read_package_requirement,
        "packages, with versions where they matter: ucx>=1.15,<1.17",
        required=True,
    ),
    timeout=30,
    every=3600,
)
def check_packages_installed(host: Host, packages: Sequence[PackageRequirement]) -> Judged:
    """The required packages are installed, in the required versions.

    Asks dpkg-query or rpm, whichever database the node has. A version is compared as package managers do
    (epoch, version, release); `=1.15.*` is a pattern. Where several versions are installed, as of kernels,
    one that fits is enough. Missing or of another version is CRIT; UNKNOWN where there is no database.

    Example: * |every 1h| check_packages_installed munge 'slurm-slurmd>=23.11' 'nvidia-driver=550.*'
    """
    try:
        installed = facts.installed(host, [each.name for each in packages])
    except facts.NoPackagesError as error:
        return unknown("NoPackageDatabase", str(error))
    outcomes = []
    for name, versions in packages:
        have = installed.get(name, [])
        if not have:
            outcomes.append(crit("PackageMissing", f"{name} is not installed", target=name))
        elif not any(all(wanted.holds(version) for wanted in versions) for version in have):
            wanted = ",".join(str(each) for each in versions)
            outcomes.append(crit("PackageVersion", f"{name} is {', '.join(have)}, not {wanted}", target=name))
    return outcomes or ok(f"{show_number(len(packages), 'package')} installed")
