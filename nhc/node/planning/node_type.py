"""What type of node this is: a cloud's instance type, a maker's system, or the accelerator board in it.

It is found by the firmware's tables (/sys/class/dmi/id), by the cloud's metadata service where the firmware names a
cloud that does not write the type there, and by the accelerators on the PCI bus.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.machine_identity import DMI, cloud_of
from nhc.node.facts.pci import accelerator_functions, other_accelerators, switch_functions

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple


STORE = "node-type"
"""Memory: the type found in this boot."""

_DGX = re.compile(r"DGX[ -]?(A100|H100|H200|B200|B300)", re.IGNORECASE)
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")

# PCI device ids of accelerators on boards of eight that are joined (pci.ids).
_BOARDS: Dict[Tuple[int, int], str] = {
    (0x10DE, 0x20B0): "hgx-a100",
    (0x10DE, 0x20B2): "hgx-a100",
    (0x10DE, 0x2330): "hgx-h100",
    (0x10DE, 0x2335): "hgx-h200",
    (0x10DE, 0x2901): "hgx-b200",
    (0x1002, 0x74A1): "oam-mi300x",
    (0x1002, 0x74B5): "oam-mi300x",
}


class NodeType(NamedTuple):
    """What was found out.

    `names` are the profiles that would fit, the most exact first. `cloud` is aws, gcp, azure, oci or "",
    `type` what the cloud calls the machine or the firmware the product; `why` says for a person where that
    comes from, `problem` why the cloud's own name for it is not known. `asked` tells whether the metadata
    service was to be asked.
    """

    names: Tuple[str, ...] = ()
    cloud: str = ""
    type: str = ""
    why: str = ""
    problem: str = ""
    asked: bool = False


def worth_a_look(host: Host) -> bool:
    """Whether the node has an accelerator or an RDMA device: only for such nodes there are profiles."""
    try:
        if host.fact(accelerator_functions) or host.fact(other_accelerators):
            return True
    except OSError:
        pass
    try:
        return bool(host.listdir("/sys/class/infiniband"))
    except OSError:
        return False


def detect(host: Host, ask: bool = True, base: Optional[str] = None) -> NodeType:
    """Find out again. With `ask`, a cloud whose firmware does not tell the type is asked by its metadata service."""
    cloud = cloud_of(host)
    product = host.read_or(f"{DMI}/product_name")
    names: List[str] = []
    kind = why = problem = ""
    if cloud == "aws" and _EC2_TYPE.fullmatch(product):
        kind, why = product, "the firmware's product name"
    elif cloud and ask:
        kind, problem = _from_metadata(host, cloud, base)
        why = f"the metadata service of {cloud}" if kind else ""
    elif cloud:
        problem = f"the metadata service of {cloud} was not asked"
    if kind:
        names.append(profile_name(cloud, kind))
    for source in ("product_name", "product_family", "board_name"):
        match = None if cloud else _DGX.search(host.read_or(f"{DMI}/{source}"))
        if match:
            names.append(f"dgx-{match[1].lower()}")
            kind, why = host.read_or(f"{DMI}/{source}"), f"the firmware's {source.replace('_', ' ')}"
            break
    board = _board(host)
    if board:
        names.append(board)
        why = why or "the accelerators on the PCI bus"
    return NodeType(tuple(names), cloud, kind or ("" if cloud else product), why, problem, ask)


def known(host: Host, ask: bool) -> Tuple[NodeType, bool]:
    """The type as it was found in this boot, else found out now and remembered; and whether that is new.

    A type found without asking is looked up again once asking is allowed.
    """
    boot = host.boot_id()
    remembered = _valid(host.memory.load(STORE), boot)
    if remembered is not None and (remembered.asked or not ask or not remembered.problem):
        return remembered, False
    detected = detect(host, ask)
    remember(host, detected)
    return detected, True


def remember(host: Host, detected: NodeType) -> None:
    boot = host.boot_id()

    def change(stored: Dict[str, Any]) -> None:
        stored.clear()
        stored.update(boot=boot, names=list(detected.names), cloud=detected.cloud, type=detected.type, why=detected.why,
                      problem=detected.problem, asked=detected.asked)  # fmt: skip

    host.memory.update(STORE, change)


def profile_name(cloud: str, kind: str) -> str:
    """The profile's name for a cloud's machine type: `azure-nd96isr_h100_v5`, `oci-bm.gpu.h100.8`."""
    name = kind.lower()
    if cloud == "azure" and name.startswith("standard_"):
        name = name[len("standard_") :]
    return f"{cloud}-{name}"


def _from_metadata(host: Host, cloud: str, base: Optional[str]) -> Tuple[str, str]:
    def question() -> Dict[str, str]:
        from nhc.node.facts.cloud_metadata import ask

        return ask(cloud, base or host.environ.get("NHC_METADATA_URL"))

    try:
        answer = host.system.ask("instance-type", question)
    except OSError as error:
        return "", str(error)
    return str(answer.get("type", "")), str(answer.get("problem", ""))


def _board(host: Host) -> str:
    """The board of eight that the accelerators are on, "" for none.

    A board with a GPU missing is still that board, or the missing one would never be noticed: more than four of
    a kind, or any beside NVSwitches, are eight.
    """
    functions = host.fact(accelerator_functions)
    counts: Dict[str, int] = {}
    for function in functions:
        name = _BOARDS.get((function.vendor, function.device))
        if name:
            counts[name] = counts.get(name, 0) + 1
    if len(counts) != 1:
        return ""
    ((name, count),) = counts.items()
    if count > 8 or (count <= 4 and not host.fact(switch_functions)):
        return ""
    return f"{name}-8"


def _valid(stored: Dict[str, Any], boot: str) -> Optional[NodeType]:
    """What was remembered in this boot; None if it is of another form: state is never trusted."""
    names = stored.get("names")
    if stored.get("boot") != boot or not isinstance(names, list):
        return None
    values = [stored.get(key) for key in ("cloud", "type", "why", "problem")]
    if not all(isinstance(value, str) for value in (*values, *names)):
        return None
    cloud, kind, why, problem = (str(value) for value in values)
    return NodeType(tuple(names), cloud, kind, why, problem, stored.get("asked") is True)
