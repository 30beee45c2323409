"""What DCGM's background watches say of the GPUs."""

from __future__ import annotations

from nhc.core.check import Judged, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, printable, unknown, warn
from nhc.node.checks.gpu import DEVICES, SOURCE, pick
from nhc.node.facts.dcgm import FAILURE, HEALTHY, NVLINK, WARNING, parse_health

if TYPE_CHECKING:
    from typing import Dict, Union

    from nhc.node.facts.accelerator_values import Device
    from nhc.node.facts.dcgm import DcgmHealth, DcgmIncident

ARGV = ("dcgmi", "health", "-g", "0", "-c", "-j")
DEADLINE = 20.0
"""Seconds for dcgmi, which asks the host engine on this node; it has no deadline of its own."""
OFF = "watches not enabled"


@check(
    "check_dcgm_health",
    DEVICES,
    timeout=45,
    every=60,
    source=SOURCE,
    parts=("links",),
    tags=("gpu", "nvidia"),
    samples=("DcgmFailure",),
)
def check_dcgm_health(host: Host, devices: str = "") -> Judged:
    """DCGM's background watches find nothing wrong with the GPUs.

    Asks `dcgmi health -g 0 -c -j`. A failure is CRIT once the next look finds one as well, since a watch tells of one
    moment; a warning is WARN. What the NVLink watch says of a GPU of which no link is up is left out: boards without a
    bridge have links that lead nowhere, and check_nvlink_status judges the others. UNKNOWN where DCGM is not installed
    or does not answer, or where its watches are off: nothing is switched on here, `dcgmi health -g 0 -s a` does that.

    Example: * |every 60s, strikes 2| check_dcgm_health
    """
    picked = pick(host, devices, "nvidia")
    if not picked.devices:
        return list(picked.outcomes)
    health = _ask(host)
    if isinstance(health, Outcome):
        return [*picked.outcomes, health]
    every = {str(device.number): device for source in picked.inventory.sources for device in source.devices}
    chosen = {str(device.number) for device in picked.devices} if devices or host.setting("NHC_DEVICES") else set(every)
    ours = [one for one in health.incidents if one.group != "GPU" or one.entity in chosen]
    told = [one for one in ours if not _leads_nowhere(one, every)]
    outcomes = [_outcome(one) for one in told]
    if not outcomes and health.overall != HEALTHY and not health.incidents:
        outcomes.append(unknown("DcgmSilent", f"DCGM says {printable(health.overall, 60)!r} and not of what"))
    if not outcomes:
        left_out = f"; {len(ours)} of NVLink left out: no link is up there" if ours else ""
        outcomes.append(ok(f"DCGM finds {len(chosen)} GPUs healthy{left_out}"))
    return [*picked.outcomes, *outcomes]


def _ask(host: Host) -> Union[DcgmHealth, Outcome]:
    if host.which("dcgmi") is None:
        return unknown("CommandMissing", "dcgmi is not installed, though there are NVIDIA GPUs")
    try:
        done = host.run(list(ARGV), DEADLINE)
    except OSError as error:
        return unknown("CommandUnusable", f"dcgmi cannot be run: {error.strerror}")
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    if done.timed_out:
        return unknown("DcgmSilent", f"dcgmi health gave no answer within {DEADLINE:.0f} s")
    if OFF in done.stdout:
        return unknown("DcgmNotWatching", "DCGM's watches are off: dcgmi health -g 0 -s a switches them on")
    if done.status != 0:
        why = printable(lines[-1], 200) if lines else f"status {done.status}"
        return unknown("DcgmSilent", f"dcgmi health: {why}")
    try:
        return parse_health(done.stdout)
    except ValueError as error:
        return unknown("DcgmSilent", f"dcgmi health cannot be read: {error}", evidence=tuple(lines[:5]))


def _leads_nowhere(incident: DcgmIncident, devices: Dict[str, Device]) -> bool:
    """Whether it is about NVLinks of a GPU that is known to have none up."""
    device = devices.get(incident.entity)
    if incident.system != NVLINK or incident.group != "GPU" or device is None or device.unread.get("links"):
        return False
    return not any(link.up for link in device.links or ())


def _outcome(incident: DcgmIncident) -> Outcome:
    target = f"gpu{incident.entity}" if incident.group == "GPU" else f"{incident.group} {incident.entity}"
    message = f"{target}: {incident.system}: {printable(incident.text, 300)}"
    if incident.health == FAILURE:
        return crit("DcgmFailure", message, target=target, action=Action.INSPECT)
    if incident.health == WARNING:
        return warn("DcgmWarning", message, target=target, action=Action.INSPECT)
    return unknown("DcgmSilent", f"{message} ({printable(incident.health, 60)})", target=target)
