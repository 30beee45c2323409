"""A node's accelerators, described alike for every vendor (`nhc.node.facts.accelerator_values`).

`accelerators(host)` asks the drivers of the vendors whose devices the PCI bus shows. A node without any reads one file
only. `answering(host)` is for callers that must go on without an answer: it asks in a process that may hang.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.node.facts.accelerator_values import Inventory, Source
from nhc.node.facts.pci import accelerator_functions, other_accelerators, switch_functions

ANSWER = 4.0
"""Seconds for drivers to answer a caller that can go on without them. NVML of eight GPUs answers within one or two."""


VENDORS = ("nvidia", "amd", "neuron", "gaudi")


def _source(vendor: str, host: Host) -> Source:
    """The answer of a vendor's driver. A node imports only what its own devices need."""
    if vendor == "nvidia":
        from nhc.node.facts.nvidia import nvidia as gather
    elif vendor == "amd":
        from nhc.node.facts.amd import amd as gather
    elif vendor == "neuron":
        from nhc.node.facts.neuron import neuron as gather
    else:
        from nhc.node.facts.gaudi import gaudi as gather
    return gather(host)


def accelerators(host: Host) -> Inventory:
    """The node's accelerators, each vendor on the bus asked once for the parts that `host.parts` names.

    They are asked again only if a check reads more than the checks before it: `nhc.node.run.engine` asks at once for
    all that the checks of a run read.
    """
    known = host.fact(asked)
    if _lacks(host, known):
        more = None if host.parts is None or known.parts is None else host.parts | known.parts
        known = asked(host.reading(more))
        host.know(asked, known)
    return known


def _lacks(host: Host, known: Inventory) -> bool:
    """Whether a part that is needed now was not asked for."""
    return known.parts is not None and (host.parts is None or not host.parts <= known.parts)


def asked(host: Host) -> Inventory:
    """The answers of the vendors on the bus: the fact that `accelerators` reads, and that a caller may know already."""
    functions, others = host.fact(accelerator_functions), host.fact(other_accelerators)
    if not functions:
        return Inventory(others=others)
    present = {function.vendor_name for function in functions}
    sources = tuple(_source(vendor, host) for vendor in VENDORS if vendor in present)
    return Inventory(functions, sources, host.fact(switch_functions), host.parts, others)


def answering(host: Host) -> Inventory:
    """The node's accelerators, if their drivers answer within `ANSWER` seconds; the answer is then kept for this
    process.

    A driver that hangs, or a library that crashes, costs a child process and not the caller. Raises OSError if
    there is no answer, which they had once.
    """
    known = host.knows(asked) and not _lacks(host, host.fact(asked))
    if known or not host.fact(accelerator_functions):
        return accelerators(host)
    if not host.knows(answering):
        from nhc.core.system.children import ask_child

        answer = ask_child(lambda: accelerators(host), ANSWER)
        if isinstance(answer, Inventory):
            host.know(asked, answer)
            return answer
        host.know(answering, None)
    raise OSError(5, "the accelerators' drivers gave no answer")
