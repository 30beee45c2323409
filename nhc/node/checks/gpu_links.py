"""Links between accelerators (NVLink, XGMI, Gaudi's ports), and whether the devices can reach each other over them.

Counters are judged by how much they grew, never by their totals: what happened before is not reported again.
The rates are DCGM's (dcgm_gpu_hardware_limits in its sources): within a minute one replay or recovery
is a failing link, and CRC errors matter from 100 a second on.
"""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, whole
from nhc.node.checks.gpu import COMING_UP, DEVICES, SOURCE, each, not_reported, partly_unread, pick
from nhc.node.facts.accelerator_values import Device
from nhc.node.facts.history import Growth, amount, growth

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Tuple

CRC_RATE = 100.0
MINUTE = 60.0
_CRC = ("crc_flit", "crc_data", "ecc_data", "effective_errors")
_SERIOUS = ("replay", "recovery", "recovery_events")


def _down(device: Device, expected: Optional[int]) -> Iterable[Outcome]:
    """Judge which links are up; `expected` is how many must be, None for all."""
    target = device.label
    if device.links is None:
        if expected:
            message = f"{target}: {device.name} shows no links, {expected} expected"
            yield crit("LinkMissing", message, target=target)
        else:
            yield not_reported(device, "links", "links to other devices")
        return
    kind = device.links[0].kind
    up = [link for link in device.links if link.up]
    down = [link for link in device.links if link.up is False]
    open_question = [link for link in device.links if link.up is None]
    metrics = (Metric("gpu_links_up", len(up)), Metric("gpu_links", len(device.links)))
    states = {None: "unreadable", False: "down"}
    evidence = tuple(f"{target} {kind} {link.number}: {states[link.up]}" for link in device.links if not link.up)
    wanted = len(device.links) if expected is None else expected
    if len(up) >= wanted:
        yield ok(f"{target}: {len(up)} of {len(device.links)} {kind}s up", target=target, metrics=metrics)
    elif len(up) + len(open_question) >= wanted:
        numbers = ", ".join(str(link.number) for link in open_question)
        reason = device.unread.get("links", "")
        message = f"{target}: the state of {kind} {numbers} cannot be read: {reason}"
        yield unknown("GpuUnreadable", message, target=target, metrics=metrics, evidence=evidence)
    else:
        numbers = ", ".join(str(link.number) for link in down)
        asked = f", {expected} expected" if expected is not None else ""
        message = f"{target}: {kind} {numbers} down ({len(up)} of {len(device.links)} up{asked})"
        yield crit("LinkDown", message, target=target, metrics=metrics, action=Action.RESET_DEVICE, evidence=evidence)


LINKS = opt("-l --links", "links", whole, "how many links of each device must be up (default: all it has)")


@check(
    "check_nvlink_status",
    DEVICES,
    LINKS,
    arg("links_per_gpu", whole, "the same as -l"),
    timeout=30,
    settles=("LinkDown", "LinkMissing", *COMING_UP),
    source=SOURCE,
    parts=("links",),
    tags=("gpu",),
)
def check_nvlink_status(
    host: Host, links: Optional[int] = None, links_per_gpu: Optional[int] = None, devices: str = ""
) -> Judged:
    """Every NVLink of every GPU is up.

    Asks NVML for the state of each link. CRIT when one is down, and of course when all of them are. Where
    a board has fewer links in use than the GPU has, say how many: a pair of H100 NVL in Azure's
    NC80adis_H100_v5 joins 12 of its 18; PCIe boards without a bridge have 0. SKIP for GPUs without NVLink.

    Example: * || check_nvlink_status
    Example: nc80* || check_nvlink_status -l 12
    """
    expected = links if links is not None else links_per_gpu
    return each(host, devices, lambda device: _down(device, expected), vendor="nvidia")


@check(
    "check_gpu_links",
    DEVICES,
    LINKS,
    timeout=60,
    settles=("LinkDown", "LinkMissing", *COMING_UP),
    source=SOURCE,
    parts=("links",),
    tags=("nvidia", "amd", "neuron", "gaudi"),
)
def check_gpu_links(host: Host, links: Optional[int] = None, devices: str = "") -> Judged:
    """Every link between the node's accelerators is up, whoever made them.

    NVLink through NVML, XGMI through the kfd topology (a link for each other GPU of the hive), Gaudi's
    ports through `hl-smi -n link`. SKIP for Neuron devices: their driver tells which devices are joined by
    design, not whether the links are up.

    Example: * || check_gpu_links
    """

    def judge(device: Device) -> Iterable[Outcome]:
        if device.vendor == "neuron":
            message = "the Neuron driver does not tell whether links are up"
            return [skip("NotSupported", message, target=device.label)]
        return _down(device, links)

    return each(host, devices, judge)


@check(
    "check_nvlink_errors",
    DEVICES,
    opt("-c --crc", "crc", count, "CRC errors of a link a second that are CRIT", int(CRC_RATE)),
    opt("-r --replays", "replays", count, "replays and recoveries of a link a minute that are CRIT", 1),
    timeout=30,
    source=SOURCE,
    parts=("links", "link_errors"),
    tags=("gpu",),
)
def check_nvlink_errors(host: Host, crc: int = int(CRC_RATE), replays: int = 1, devices: str = "") -> Judged:
    """No NVLink sees errors.

    Reads NVML's counters of each link (replay, recovery, CRC; from NVLink 5 on also link recoveries and
    effective errors) and judges what was added within the last minute, so that it needs a second run to
    say anything. CRIT from one replay or recovery a minute, from 100 CRC errors a second, and for a
    recovery that failed; fewer CRC errors are WARN, as the link repeats what it lost.

    Example: * || check_nvlink_errors
    """
    picked = pick(host, devices, "nvidia")
    counters: Dict[str, float] = {
        f"{device.id}/{link.number}/{name}": float(number)
        for device in picked.devices
        for link in device.links or ()
        for name, number in link.errors.items()
    }
    grown = growth(host, "nvlink_errors", counters, MINUTE, since_boot=False) if counters else {}
    judged: List[Outcome] = []
    for device in picked.devices:
        if not device.links:
            judged.append(not_reported(device, "links", "NVLinks"))
        elif not any(link.errors for link in device.links):
            judged.append(not_reported(device, "links", "errors of its NVLinks"))
        else:
            judged += _link_errors(device, grown, crc, replays)
    judgements = [outcome for outcome in judged if outcome.verdict]
    return [*picked.outcomes, *(judgements or judged[:1])]


def _link_errors(device: Device, grown: Dict[str, Growth], crc: int, replays: int) -> List[Outcome]:
    target = device.label
    total = 0.0
    faults = []
    for link in device.links or ():
        added = {name: amount(grown, f"{device.id}/{link.number}/{name}") for name in link.errors}
        total += sum(added.values())
        place = f"{target} NVLink {link.number}"
        failed = sum(added[name] for name in link.fatal if name in added)
        repeats = sum(added[name] for name in _SERIOUS if name in added)
        checksum = sum(added[name] for name in _CRC if name in added)
        evidence = tuple(
            f"{place} {name}: +{number:g} (total {link.errors[name]})" for name, number in added.items() if number
        )
        say, action = crit, Action.INSPECT
        if failed:
            message, action = f"{place}: {failed:g} recoveries failed within a minute", Action.RESET_DEVICE
        elif repeats and repeats >= replays:
            message = f"{place}: {repeats:g} replays and recoveries within a minute"
        elif checksum / MINUTE >= crc:
            message = f"{place}: {checksum / MINUTE:.0f} CRC errors a second (limit {crc})"
        elif checksum or repeats:
            say = warn
            message = f"{place}: {checksum:g} CRC errors, {repeats:g} replays and recoveries within a minute"
        else:
            continue
        faults.append(say("NvlinkErrors", message, target=target, action=action, evidence=evidence))
    return faults or [ok(f"{target}: no new NVLink errors", target=target, metrics=(Metric("nvlink_errors", total),))]


@check(
    "check_gpu_xgmi",
    DEVICES,
    opt("-c --corrected", "corrected", count, "corrected errors to tolerate since the driver loaded", 0),
    timeout=30,
    settles=("LinkDown", *COMING_UP),
    source=SOURCE,
    parts=(),
    tags=("amd",),
)
def check_gpu_xgmi(host: Host, corrected: int = 0, devices: str = "") -> Judged:
    """Every AMD GPU reaches every other of its hive over XGMI, without errors.

    Reads the kfd topology, which tells the GPUs that the driver has joined when it started, and the
    driver's RAS counts of the XGMI block, where a link that failed since then shows. A GPU that is not
    joined to each other of its hive is CRIT, as is any uncorrected error; corrected ones beyond -c are WARN.
    The file xgmi_error is not read, because reading it clears it. SKIP without AMD GPUs or without XGMI.

    Example: * || check_gpu_xgmi
    """

    def judge(device: Device) -> Iterable[Outcome]:
        yield from _down(device, None)
        if device.links is not None:
            yield from partly_unread(device, "links", "errors of its XGMI links")
        for link in device.links or ():
            uncorrected = link.errors.get("uncorrected", 0)
            seen = link.errors.get("corrected", 0)
            if uncorrected:
                message = f"{device.label}: {uncorrected} uncorrected XGMI errors"
                yield crit("XgmiErrors", message, target=device.label, action=Action.RESET_DEVICE)
            elif seen > corrected:
                message = f"{device.label}: {seen} corrected XGMI errors (limit {corrected})"
                yield warn("XgmiErrors", message, target=device.label, action=Action.INSPECT)

    return each(host, devices, judge, vendor="amd")


@check(
    "check_gpu_p2p", DEVICES, timeout=60, source=SOURCE, parts=("links",), tags=("nvidia",),
    settles=("GpuPeerUnreachable", *COMING_UP),
)  # fmt: skip
def check_gpu_p2p(host: Host, devices: str = "") -> Judged:
    """Every pair of GPUs can read each other's memory, over NVLink where the GPUs have it.

    Asks NVML for the peer-to-peer state of each pair. With NVLinks up, a pair that NVLink does not join is
    CRIT; so is one of a node's pairs that cannot read each other over PCIe where others can. SKIP where
    the GPUs have no NVLink and no pair can (the platform does not do it), or with fewer than two GPUs.

    Example: * || check_gpu_p2p
    """
    picked = pick(host, devices, "nvidia")
    if len(picked.devices) < 2:
        few = skip("NotSupported", "fewer than two NVIDIA GPUs to reach each other")
        return list(picked.outcomes) or few
    from nhc.node.facts.nvml import ask_peers
    from nhc.node.facts.nvml_codes import PEER_STATES

    matrix = host.fact(ask_peers)
    if matrix.problem:
        return [*picked.outcomes, unknown("GpuUnreadable", f"the peer-to-peer states cannot be read: {matrix.problem}")]
    linked = any(link.up for device in picked.devices for link in device.links or ())
    states = matrix.nvlink if linked else matrix.read
    chosen = [device.number for device in picked.devices]
    pairs = [(a, b) for a in chosen for b in chosen if a < b and b < len(states)]
    bad = {pair: states[pair[0]][pair[1]] for pair in pairs if states[pair[0]][pair[1]] != 0}
    unread = [pair for pair, state in bad.items() if not isinstance(state, int) or state == 6]
    metrics = (Metric("gpu_peers_unreachable", len(bad)),)
    path = "NVLink" if linked else "PCIe"
    evidence = tuple(
        f"gpu{a} gpu{b}: {PEER_STATES.get(state, 'unreadable') if isinstance(state, int) else 'unreadable'}"
        for (a, b), state in bad.items()
    )
    if not bad:
        outcome = ok(f"all {len(pairs)} pairs of GPUs reach each other over {path}", metrics=metrics)
    elif len(unread) == len(bad):
        outcome = unknown(
            "GpuUnreadable", f"the peer-to-peer state of {_pairs(unread)} cannot be read", evidence=evidence
        )
    elif not linked and len(bad) == len(pairs):
        known = next(state for state in bad.values() if isinstance(state, int) and state != 6)  # not all are unread
        outcome = skip("NotSupported", f"this platform has no peer-to-peer reads: {PEER_STATES.get(known)}")
    else:
        message = f"{_pairs(list(bad))} cannot reach each other over {path}"
        outcome = crit("GpuPeerUnreachable", message, metrics=metrics, action=Action.INSPECT, evidence=evidence)
    return [*picked.outcomes, outcome]


def _pairs(pairs: List[Tuple[int, int]]) -> str:
    listing = ", ".join(f"gpu{a} and gpu{b}" for a, b in pairs[:4])
    return listing + (f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else "")
