"""What NVML is asked only by the checks that judge it: peer-to-peer states of pairs, and InfoROM checksums."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts import nvml
from nhc.node.facts.nvml_codes import error_code, error_text

if TYPE_CHECKING:
    from typing import List, TypedDict, Union

    from typing_extensions import TypeAlias

    class NvmlRefusal(TypedDict):
        """What NVML answers in place of a value: its code."""

        error: int

    PeerState: TypeAlias = "Union[int, NvmlRefusal]"
    """NVML's state of a pair (`nhc.node.facts.nvml_codes.PEER_STATES`), 0 where one reaches the other."""

    class PeerStates(TypedDict, total=False):
        """A row for each device, in the order of indices; `error` where NVML gave none."""

        read: List[List[PeerState]]
        nvlink: List[List[PeerState]]
        error: int

    class Inforoms(TypedDict, total=False):
        """`devices` in the order of indices, None where it is whole; else why NVML gave none."""

        devices: List[Union[int, NvmlRefusal, None]]
        error: int
        text: str


class Peers:
    """Which GPUs can reach each other: `read` over any path, `nvlink` over NVLink, by pair of indices."""

    def __init__(self, answers: PeerStates) -> None:
        code = error_code(answers)
        self.problem = "" if code is None else error_text(code)
        self.read = answers.get("read", [])
        self.nvlink = answers.get("nvlink", [])


def peers(host: Host) -> Peers:
    """The peer-to-peer matrix."""
    answers: PeerStates = host.system.ask("nvml-peers", nvml.peers)
    return Peers(answers)


def inforoms(host: Host) -> Inforoms:
    """Each device's InfoROM checksums, or why NVML gave none."""
    answers: Inforoms = host.system.ask("nvml-inforom", nvml.inforom)
    return answers
