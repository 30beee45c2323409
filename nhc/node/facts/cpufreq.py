"""Processor frequencies and the clocksource, from sysfs (Documentation/admin-guide/pm/cpufreq.rst)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.units import whole_of_digits

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

POLICIES = "/sys/devices/system/cpu/cpufreq"
CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0"


class FrequencyPolicy(NamedTuple):
    """One group of processors that share a frequency. Frequencies in kHz, None if they cannot be read.

    `ceiling` is what the policy allows now, `maximum` what the hardware can do.
    """

    name: str
    governor: str
    ceiling: Optional[int]
    maximum: Optional[int]


POWERCAP = "/sys/class/powercap"


class PackagePower(NamedTuple):
    """A processor package's lasting power limit in watts (RAPL); `most` is what it is built for, None if not told.

    Documentation/power/powercap/powercap.rst: constraint_N_name, _power_limit_uw and _max_power_uw. AMD's processors
    have the same names. A limit that is not enabled holds nothing down and is left out.
    """

    name: str
    limit: float
    most: Optional[float]


def packages(host: Host) -> Tuple[PackagePower, ...]:
    """The limits of all packages. Raises OSError or ValueError if one is there and cannot be read."""
    found: List[PackagePower] = []
    for zone in host.names(POWERCAP):
        base = f"{POWERCAP}/{zone}"
        if not zone.startswith("intel-rapl:") or zone.count(":") != 1 or host.read_or(f"{base}/enabled", "1") == "0":
            continue
        name = host.read_or(f"{base}/name")
        if not name.startswith("package"):
            continue
        numbers = [n for n in range(3) if host.read_or(f"{base}/constraint_{n}_name") == "long_term"] or [0]
        limit = int(host.read(f"{base}/constraint_{numbers[0]}_power_limit_uw"))
        most = host.number(f"{base}/constraint_{numbers[0]}_max_power_uw")
        found.append(PackagePower(name, limit / 1e6, most / 1e6 if most else None))
    return tuple(sorted(found))


def policy_names(host: Host) -> Tuple[str, ...]:
    """None if the kernel does not scale frequencies: virtual machines, or the firmware does it."""
    names = [name for name in host.names(POLICIES) if name[:6] == "policy" and name[6:].isdigit()]
    return tuple(sorted(names, key=lambda name: int(name[6:])))


def policies(host: Host) -> Tuple[FrequencyPolicy, ...]:
    names = policy_names(host)
    leaves = ("scaling_governor", "scaling_max_freq", "cpuinfo_max_freq")
    governor, ceiling, maximum = (host.read_each(POLICIES, names, leaf) for leaf in leaves)
    return tuple(
        FrequencyPolicy(name, (governor.get(name) or "").strip(), _khz(ceiling.get(name)), _khz(maximum.get(name)))
        for name in names
    )


def current_khz(host: Host) -> List[int]:
    """The frequency of each policy now. Takes up to 10 ms for each idle processor, so use it only if needed."""
    texts = host.read_each(POLICIES, policy_names(host), "scaling_cur_freq")
    return [khz for text in texts.values() for khz in (_khz(text),) if khz]


def _khz(text: Optional[str]) -> Optional[int]:
    return whole_of_digits((text or "").strip())


class Clocksource(NamedTuple):
    current: str
    available: Tuple[str, ...]


def clocksource(host: Host) -> Clocksource:
    """Raises OSError."""
    current = host.read(f"{CLOCKSOURCE}/current_clocksource").strip()
    return Clocksource(current, tuple(host.read_or(f"{CLOCKSOURCE}/available_clocksource").split()))
