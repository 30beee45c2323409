"""systemd: the services a node is for are running, and none of its units has failed."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import show_number, text
from nhc.node.facts import systemd

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence


def _absent(host: Host) -> Optional[Outcome]:
    """Why systemd cannot be asked, None if it can."""
    if not systemd.booted(host):
        return skip("NoSystemd", "systemd does not run this system")
    if not host.which("systemctl"):
        return unknown("CommandMissing", "systemctl is not installed, though systemd runs this system")
    return None


@check(
    "check_systemd_units",
    rest("units", text, "units that must be active; a name without a suffix is a service", required=True),
    timeout=15,
    settles=("UnitNotActive",),
)
def check_systemd_units(host: Host, units: Sequence[str]) -> Judged:
    """Each named unit is active.

    Reads `systemctl show`. Active and reloading units pass; a unit on its way (activating) is WARN, and
    CRIT where it only waits to be started again after a crash (auto-restart); anything else, a unit that
    is not there or is masked included, is CRIT: the configuration asked for it. Unit states are
    systemd's (systemctl(1)). SKIP where systemd does not run the node.

    Example: * || check_systemd_units slurmd munge nvidia-fabricmanager
    """
    absent = _absent(host)
    if absent:
        return absent
    names = [systemd.full_name(name) for name in units]
    try:
        properties = systemd.units(host, names)
    except systemd.SystemdError as error:
        return unknown("SystemdUnreachable", str(error))
    outcomes = [_judge_unit(name, unit) for name, unit in zip(names, properties)]
    bad = [outcome for outcome in outcomes if outcome is not None]
    return bad or ok(f"{show_number(len(names), 'unit')} active")


def _judge_unit(name: str, unit: Dict[str, str]) -> Optional[Outcome]:
    """What is wrong with a unit, None if nothing is."""
    load, active, sub = unit["LoadState"], unit["ActiveState"], unit.get("SubState", "")
    evidence = tuple(f"{key}={value}" for key, value in unit.items())
    if load == "not-found":
        return crit("UnitMissing", f"{name} does not exist on this node", target=name, evidence=evidence)
    if load == "masked":
        return crit("UnitMasked", f"{name} is masked", target=name, evidence=evidence)
    if load != "loaded":
        return crit("UnitBroken", f"{name} cannot be loaded ({load})", target=name, evidence=evidence)
    if active in ("active", "reloading", "refreshing"):
        return None
    state = f"{active} ({sub})" if sub and sub != active else active
    if active == "activating" and sub != "auto-restart":
        return warn("UnitStarting", f"{name} is {state}", target=name, evidence=evidence)
    result = unit.get("Result", "")
    message = f"{name} is {state}" + (f", result {result}" if result not in ("", "success") else "")
    return crit("UnitNotActive", message, target=name, action=Action.RESTART_APP, evidence=evidence)


@check(
    "check_systemd_failed",
    opt("-i --ignore", "ignore", text, "units that may fail, as a shell pattern; may be repeated", many=True),
    opt(
        "-c --critical", "critical", text, "units whose failure is CRIT, as a shell pattern; may be repeated", many=True
    ),
    timeout=15,
)
def check_systemd_failed(host: Host, ignore: Sequence[str] = (), critical: Sequence[str] = ()) -> Judged:
    """No unit has failed.

    Reads `systemctl list-units --state=failed`. A failed unit is WARN, as which of them a job needs is the
    site's to say: name those with -c, or all with `-c '*'`. SKIP where systemd does not run the node.

    Example: * || check_systemd_failed -i 'fwupd*' -c 'nvidia-*' -c 'slurmd*'
    """
    from fnmatch import fnmatchcase

    absent = _absent(host)
    if absent:
        return absent
    try:
        failed = systemd.failed(host)
    except systemd.SystemdError as error:
        return unknown("SystemdUnreachable", str(error))
    outcomes = []
    for unit in failed:
        if any(fnmatchcase(unit.name, pattern) for pattern in ignore):
            continue
        say = crit if any(fnmatchcase(unit.name, pattern) for pattern in critical) else warn
        about = f" ({unit.description})" if unit.description else ""
        outcomes.append(
            say("UnitFailed", f"{unit.name} has failed{about}", target=unit.name,
                action=Action.RESTART_APP, evidence=(" ".join(unit),))
        )  # fmt: skip
    return outcomes or ok("no unit has failed")
