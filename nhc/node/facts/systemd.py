"""The state of systemd's units. Only the manager is asked: if it hangs, systemctl hangs until its deadline."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

PROPERTIES = "Id,LoadState,ActiveState,SubState,Result,NRestarts"


class SystemdError(Exception):
    """systemctl failed; the text says why."""


class FailedUnit(NamedTuple):
    """One line of `systemctl list-units --state=failed`."""

    name: str
    load: str
    active: str
    sub: str
    description: str


def booted(host: Host) -> bool:
    """Whether systemd runs this system, as sd_booted(3) tells."""
    return host.isdir("/run/systemd/system")


def full_name(name: str) -> str:
    """A unit's name with its suffix: a name without one is a service's."""
    return name if "." in name else f"{name}.service"


def parse_properties(text: str) -> Dict[str, str]:
    """The `KEY=VALUE` lines that `show` prints, of systemctl and of timedatectl."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, equals, value in pairs if equals}


def parse_units(text: str) -> List[Dict[str, str]]:
    """`systemctl show` of several units, an empty line between them."""
    return [unit for unit in map(parse_properties, text.split("\n\n")) if unit]


def parse_failed(text: str) -> Tuple[FailedUnit, ...]:
    """The lines of `list-units --plain --no-legend`; older versions draw a dot in front all the same."""
    failed_units = []
    for line in text.splitlines():
        fields = line.replace("●", " ").replace("*", " ").split(None, 4)
        if len(fields) >= 4 and "." in fields[0]:
            failed_units.append(FailedUnit(fields[0], fields[1], fields[2], fields[3], "".join(fields[4:])))
    return tuple(failed_units)


def _systemctl(host: Host, arguments: Sequence[str]) -> str:
    """What systemctl prints. Raises SystemdError if it failed, OSError where it is not there."""
    ended = host.run(["systemctl", *arguments], timeout=10)
    if ended.timed_out:
        raise SystemdError("systemctl did not answer within 10 s")
    # `show` and `list-units` exit 0 whatever the units' states are.
    if ended.status:
        raise SystemdError(f"systemctl: {ended.complaint}")
    return ended.stdout


def control(host: Host, timeout: float, *arguments: str) -> str:
    """Let systemctl act on a unit; returns why that failed, "" if it worked."""
    try:
        ended = host.run(["systemctl", *arguments], timeout)
    except OSError as error:
        return error.strerror or str(error)
    return ended.complaint if ended.status else ""


def units(host: Host, names: Sequence[str]) -> List[Dict[str, str]]:
    """The properties of each unit, in the order asked for. Raises SystemdError, OSError."""
    listed = parse_units(_systemctl(host, ["show", f"--property={PROPERTIES}", "--", *names]))
    if len(listed) != len(names) or any("ActiveState" not in unit or "LoadState" not in unit for unit in listed):
        raise SystemdError(f"systemctl show told of {len(listed)} units, asked for {len(names)}")
    return listed


def failed(host: Host) -> Tuple[FailedUnit, ...]:
    """The units in state failed. Raises SystemdError, OSError."""
    return parse_failed(
        _systemctl(host, ["list-units", "--state=failed", "--plain", "--no-legend", "--no-pager", "--full"])
    )


def up_for(host: Host, name: str) -> float:
    """Seconds since systemd last began to start a unit. Raises SystemdError, OSError.

    InactiveExitTimestamp, not ActiveEnterTimestamp: a unit that is killed while it starts has only the first
    (node-problem-detector's health-checker).
    """
    from nhc.node.facts.kernel import uptime

    wanted = full_name(name)
    output = _systemctl(host, ["show", "--property=InactiveExitTimestampMonotonic", "--", wanted])
    value = output.partition("=")[2].strip()
    if not value.isdigit() or not int(value):
        raise SystemdError(f"{wanted} is not running")
    return max(0.0, uptime(host) - int(value) / 1e6)
