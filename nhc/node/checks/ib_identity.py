"""RDMA adapters: equal firmware on equal models, and addresses that exist and are unique."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, unknown, warn
from nhc.core.units import text
from nhc.node.checks.ib import NAMES, NO_PORT, chosen
from nhc.node.facts.infiniband import CLASS, EFA_LAYER, RdmaAdapter, adapter, gids, pkeys

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Sequence


@check(
    "check_ib_firmware",
    opt("-b --board", "board", text, "board id (PSID) that every adapter must have, as MT_0000000838"),
    arg("version", text, "firmware version that every adapter must have, as 28.39.1002"),
    timeout=5,
)
def check_ib_firmware(host: Host, version: Optional[str] = None, board: Optional[str] = None) -> Judged:
    """RDMA adapters of one model run one firmware, the one that the site wants where it names one.

    Reads fw_ver and board_id of each device below /sys/class/infiniband. Adapters of one board id with
    different firmware are WARN: collectives run at the pace of the one that misbehaves. Another version than
    the one given, or another board id than -b, is CRIT. EFA devices have neither and are left out.

    Example: {gpu[01-64]} || check_ib_firmware -b MT_0000000838 28.39.1002
    """
    ports, _ = chosen(host, ())
    devices = dict.fromkeys(port.device for port in ports if port.link_layer != EFA_LAYER)
    adapters = [adapter(host, device) for device in devices]
    if not adapters:
        return NO_PORT
    outcomes: List[Outcome] = []
    models: Dict[str, List[RdmaAdapter]] = {}
    for each in adapters:
        if not each.firmware:
            message = f"{each.name} does not tell its firmware version"
            outcomes.append(unknown("IbFirmwareUnknown", message, target=each.name))
            continue
        models.setdefault(each.board or each.model, []).append(each)
        if version and each.firmware != version:
            message = f"{each.name} runs firmware {each.firmware}, {version} expected"
            outcomes.append(crit("IbFirmwareMismatch", message, target=each.name))
        if board and each.board != board:
            message = f"{each.name} is board {each.board or 'unknown'}, {board} expected"
            outcomes.append(crit("IbBoardMismatch", message, target=each.name))
    if not version:
        outcomes += [_mixed(model, alike) for model, alike in models.items() if len({a.firmware for a in alike}) > 1]
    versions = ", ".join(sorted({each.firmware for each in adapters if each.firmware}))
    return outcomes or ok(f"{len(adapters)} RDMA adapters with firmware {versions}")


def _mixed(model: str, alike: Sequence[RdmaAdapter]) -> Outcome:
    by_version: Dict[str, List[str]] = {}
    for each in alike:
        by_version.setdefault(each.firmware, []).append(each.name)
    listing = "; ".join(f"{firmware} on {', '.join(names)}" for firmware, names in sorted(by_version.items()))
    return warn("IbFirmwareMixed", f"adapters of board {model or 'unknown'} run different firmware: {listing}",
                action=Action.INSPECT)  # fmt: skip


@check("check_ib_guid", NAMES, timeout=5)
def check_ib_guid(host: Host, ports: Sequence[str] = ()) -> Judged:
    """RDMA devices have a GUID, ports have an address, and no two devices have the same GUID.

    Reads node_guid and the GID table below /sys/class/infiniband. A device whose GUID is zero, as a virtual
    function that the hypervisor has not configured, or a port without any GID cannot be reached: CRIT. Two devices
    with one GUID are CRIT too, unless they are ports of one adapter that share it by design (their PCI
    addresses differ in the function only).

    Example: * || check_ib_guid
    """
    judged, outcomes = chosen(host, ports)
    if not judged and not outcomes:
        return NO_PORT
    owners: Dict[str, str] = {}
    for port in judged:
        guid = adapter(host, port.device).node_guid
        digits = guid.replace(":", "").lower()
        if not digits:
            outcomes.append(unknown("IbGuidUnknown", f"{port.device} does not tell its GUID", target=port.name))
        elif not digits.strip("0"):
            outcomes.append(crit("IbGuidMissing", f"{port.device} has no GUID: all zeros", target=port.name))
        elif owners.setdefault(digits, port.device) != port.device and not _siblings(host, owners[digits], port.device):
            message = f"{port.device} has the same GUID as {owners[digits]}: {guid}"
            outcomes.append(crit("IbGuidDuplicate", message, target=port.name))
        elif port.up and not gids(host, port, limit=16):
            outcomes.append(crit("IbGidMissing", f"{port.name} is up but has no GID", target=port.name))
    return outcomes or ok(f"{len(judged)} RDMA ports with addresses")


def _siblings(host: Host, device: str, other: str) -> bool:
    """Whether two devices are functions of one PCI device."""
    ours, theirs = (host.link_name(f"{CLASS}/{name}/device").rpartition(".")[0] for name in (device, other))
    return bool(ours) and ours == theirs


def pkey(value: str) -> int:
    """A partition key as sysfs has it, 0x8001. The top bit is full membership."""
    try:
        key = int(value, 16)
    except ValueError:
        key = 0
    if not 0 < key <= 0xFFFF:
        raise ValueError(f"{value!r} is not a partition key (as 0x8001)")
    return key


@check(
    "check_ib_pkeys",
    opt("-p --port", "ports", text, "judge only this port, device or match string; may be repeated", many=True),
    rest("keys", pkey, "the partition keys that each port must have, and no other"),
    timeout=5,
)
def check_ib_pkeys(host: Host, keys: Sequence[int] = (), ports: Sequence[str] = ()) -> Judged:
    """InfiniBand ports are in the same partitions, in those that the site wants where it names them.

    Reads the partition keys that the subnet manager gave each port that is up (pkeys below /sys/class/infiniband).
    Two ports talk only in a partition that both have. Another key than the ones given, or one that lacks, is CRIT.
    Without keys ports of one model of adapter that differ are WARN: a second fabric has partitions of its own. To
    compare a fleet, give every node the keys of a good one: nhc fleet check -e 'check_ib_pkeys 0x8001 0xffff'.

    Example: {gpu[01-64]} || check_ib_pkeys 0x8001 0xffff
    """
    judged, outcomes = chosen(host, ports)
    up = [port for port in judged if port.up and port.link_layer == "InfiniBand"]
    if not up:
        return outcomes or NO_PORT
    wanted = frozenset(keys)
    by_model: Dict[str, Dict[FrozenSet[int], List[str]]] = {}
    for port in up:
        held = pkeys(host, port)
        if not held:
            outcomes.append(unknown("IbPkeysUnknown", f"{port.name} tells no partition key", target=port.name))
        elif wanted and held != wanted:
            parts = [f"lacks {_keys(wanted - held)}"] if wanted - held else []
            parts += [f"has {_keys(held - wanted)} besides"] if held - wanted else []
            message = f"{port.name} {' and '.join(parts)}"
            outcomes.append(crit("IbPkeyMismatch", message, target=port.name, action=Action.INSPECT))
        else:
            device = adapter(host, port.device)
            by_model.setdefault(device.board or device.model, {}).setdefault(held, []).append(port.name)
    for model, sets in by_model.items():
        if len(sets) > 1:
            listing = "; ".join(f"{_keys(held)} on {', '.join(names)}" for held, names in sets.items())
            message = f"ports of board {model or 'unknown'} differ in partitions: {listing}"
            outcomes.append(warn("IbPkeysMixed", message, action=Action.INSPECT))
    if outcomes:
        return outcomes
    every = frozenset().union(*(held for sets in by_model.values() for held in sets))
    return ok(f"{len(up)} InfiniBand ports in partitions {_keys(every)}")


def _keys(keys: FrozenSet[int]) -> str:
    return " ".join(f"{key:#06x}" for key in sorted(keys))
