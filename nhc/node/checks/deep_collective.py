"""Collectives within a node: nccl-tests, rccl-tests, and nccom-test of Neuron."""

from __future__ import annotations

import sys

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, skip, unknown, warn
from nhc.core.units import one_of, show_kb, size_bytes, text, whole
from nhc.node.checks import deep
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts.tools import collective
from nhc.node.facts.tools.collective import Nccom, parse_nccom

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence, Tuple

    from nhc.core.host import Completed
    from nhc.node.facts.accelerator_values import Device
    from nhc.node.facts.tools.collective import Collective, DataPath, Row

LAYERS: Dict[str, Tuple[str, ...]] = {
    "all": (),
    "nvlink": ("NCCL_P2P_LEVEL=NVL",),
    "nic": ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"),
}
"""What to leave NCCL to travel by: whatever it chooses, NVLink alone, the network adapters alone."""

USUAL = 8 << 30
"""The size whose figure has the metric's plain name, and that most published figures are of."""

NETWORKS = frozenset(["IB", "efa", "gIB"])
NAMES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")
DEADLINE = 900.0
"""Seconds: one size of 20 iterations takes one or two minutes with the start (OCI allows 2, CHS 10 minutes)."""


@check(
    "check_deep_collective",
    DEVICES,
    opt("-c --collective", "name", one_of(NAMES), "all_reduce, all_gather, reduce_scatter, alltoall ...", "all_reduce"),
    opt("-s --size", "size", size_bytes, "the size whose row is judged", USUAL),
    opt(
        "-i --isolate", "only", one_of(LAYERS), "all, nvlink (NVLink alone) or nic (the network adapters alone)", "all"
    ),
    opt("-n --iterations", "iterations", whole, "iterations", 20),
    opt("-b --binary", "binary", text, "the test (default: COLLECTIVE_perf)", ""),
    deep.FLOOR,
    timeout=deep.OVERHEAD + DEADLINE,
    tags=("gpu", "nvidia", "amd"),
)
def check_deep_collective(
    host: Host,
    name: str = "all_reduce",
    size: int = USUAL,
    only: str = "all",
    iterations: int = 20,
    binary: str = "",
    floor: Optional[float] = None,
    devices: str = "",
) -> Judged:
    """All GPUs of the node together are as fast as they should be, and give right sums.

    Runs nccl-tests (NVIDIA) or rccl-tests (AMD) over all GPUs of the node in one process. Judged is the bus bandwidth
    of the row of SIZE, never the average, which small sizes drag down. Before that the test must have run: as many
    ranks as GPUs, by the header and by the figures, every value checked, and its last line there. A wrong value is
    CRIT. How the data travelled is proved first: through shared memory or TCP it is a configuration fault, UNKNOWN.

    Example: * |context deep| check_deep_collective -s 8G -f 460
    """
    picked = pick(host, devices)
    gpus = [device for device in picked.devices if device.vendor in ("nvidia", "amd")]
    if len(gpus) < 2:
        if gpus:
            return [*picked.outcomes, skip("NotSupported", "a collective takes two GPUs, there is one")]
        return list(picked.outcomes)
    size = min(size, room(gpus))
    variable = "CUDA_VISIBLE_DEVICES" if gpus[0].vendor == "nvidia" else "HIP_VISIBLE_DEVICES"
    chosen = ",".join(str(device.number) for device in gpus)
    argv = ["env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,P2P", f"{variable}={chosen}", *LAYERS[only],
            binary or f"{name}_perf", "-b", str(size), "-e", str(size), "-g", str(len(gpus)), "-n", str(iterations),
            "-c", "1"]  # fmt: skip
    ran = deep.measure(host, argv, DEADLINE, name, lambda done: collective.parse(done.output))
    if isinstance(ran, Outcome):
        return [*picked.outcomes, ran]
    done, result = ran
    travelled = collective.transport(done.output)
    return [*picked.outcomes, judge(host, name, size, len(gpus), only, done, result, travelled, floor)]


def room(gpus: Sequence[Device]) -> int:
    """The largest power of two that nccl-tests takes on the smallest of these GPUs, in bytes.

    With its check on it allots three buffers, of the memory less a sixteenth (4 GiB at most) and 1 GiB (common.cu).
    """
    least = min((gpu.memory_total for gpu in gpus if gpu.memory_total), default=0)
    if not least:
        return sys.maxsize
    limit = (least - min(-(-least // (16 << 30)), 4) * (1 << 30) - (1 << 30)) // 3
    return 1 << max(limit.bit_length() - 1, 20)


def judge(
    host: Host, name: str, size: int, ranks: int, only: str, done: Completed, result: Collective, travelled: DataPath,
    floor: Optional[float],
) -> Outcome:  # fmt: skip
    """What one run says. Wrong values first: they need no proof of anything else."""
    row = result.row(size)
    wrong = wrong_values(result)
    if wrong:
        return crit("DeepWrongResult", f"{name}: {wrong}", action=Action.INSPECT, evidence=deep.tail(done))
    why = unproven(name, size, ranks, result, row)
    if why:
        reason = "DeepToolFailed" if result.failures else "DeepNoProof"
        message = result.failures[0] if result.failures else f"{name} gave no proof that its test ran: {why}"
        return unknown(reason, message, evidence=deep.tail(done))
    if done.status:
        return unknown("DeepToolFailed", f"{name} ended with status {done.status}", evidence=deep.tail(done))
    wrong_way = _wrong_way(only, travelled)
    if wrong_way:
        return unknown("DeepWrongTransport", f"{name}: {wrong_way}", evidence=deep.tail(done))
    assert row is not None
    metric = f"collective_{name}" if only == "all" else f"collective_{name}_{only}"
    usual = "" if size == USUAL else f"{metric}_{show_kb(size // 1024)}"
    judged = deep.hold(host, deep.Measured(metric, row.busbw, "GB/s", size=size, name=usual), floor)
    if name == "all_reduce" and "NVLS" not in travelled.names:
        judged = _without_nvls(judged)
    algbw = Metric(f"{usual or metric}_algbw", max(row.out_of_place.algbw, row.in_place.algbw), "GB/s")
    message = f"{judged.message}, {ranks} ranks at {show_kb(size // 1024)}"
    return judged._replace(message=message, metrics=(*judged.metrics, algbw))


NVLS = 0.75
"""Share of what is expected with NVLS that rings reach: 370 of 480 GB/s on eight H100, 368 of 482 on H200, 682 of 846
on B200."""


def _without_nvls(judged: Outcome) -> Outcome:
    """A sum in the switches (NVLS) that is off is a setting, and no weak GPU: its figure is that of rings."""
    figures = {metric.name: metric.value for metric in judged.metrics}
    threshold = next((value for key, value in figures.items() if key.endswith("_threshold")), 0.0)
    if judged.reason != deep.SLOW or judged.metrics[0].value < NVLS * threshold:
        return judged
    message = f"{judged.message}; NVLS was not used, as with NCCL_NVLS_ENABLE=0 or without the fabric manager"
    return warn("DeepNvlsOff", message, metrics=judged.metrics)


def wrong_values(result: Collective) -> str:
    """What says that values were wrong, "" where nothing does. NaN is not right."""
    for row in result.rows:
        for timing in (row.out_of_place, row.in_place):
            if timing.wrong is not None and timing.wrong != 0:
                return f"{timing.wrong:g} wrong values at {show_kb(row.size // 1024)}"
    if result.bounds is not None and (result.bounds[0] != 0 or not result.bounds[1]):
        return f"{result.bounds[0]:g} values out of bounds"
    return ""


def unproven(name: str, size: int, ranks: int, result: Collective, row: Optional[Row]) -> str:
    """What is missing of the proof that the test ran, "" where it is whole."""
    if result.headers != 1:
        return f"{result.headers} headers: the binary ran as separate tests" if result.headers else "no header"
    if row is None:
        limit = f", memory limited it to {show_kb(result.reduced // 1024)}" if result.reduced else ""
        return f"no row of {show_kb(size // 1024)}{limit}"
    if not result.concluded or result.bounds is None:
        return "its last lines are missing"
    seen = len({(rank.host, rank.rank) for rank in result.ranks})
    if len(result.ranks) != ranks or seen != ranks:
        return f"{seen} of {ranks} ranks"
    if row.out_of_place.wrong is None or row.in_place.wrong is None:
        return "the values were not checked"
    for timing in (row.out_of_place, row.in_place):
        figures = (timing.time, timing.algbw, timing.busbw)
        if not all(0 < figure < float("inf") for figure in figures):  # NaN is not between them
            return "a figure that is 0, or none"
        if not collective.agrees(row.size, timing):
            return f"its figures contradict one another: {timing.time:g} us and {timing.algbw:g} GB/s"
        if not collective.could_be_ranks(name, timing.algbw, timing.busbw, ranks):
            implied = collective.ranks_by_figures(name, timing.algbw, timing.busbw)
            return f"its figures are those of {f'{implied:.0f}' if implied else 'no number of'} ranks, not {ranks}"
    return ""


def _wrong_way(only: str, travelled: DataPath) -> str:
    """What is wrong with how the data travelled, "" for nothing."""
    if not travelled.names:
        return "nothing says how the data travelled (no NCCL INFO lines)"
    if only == "nic":
        if travelled.names & NETWORKS and not travelled.fell_back:
            return ""
        return f"the data travelled by {', '.join(sorted(travelled.names))}, not by the network adapters"
    if travelled.names & {"P2P", "NVLS"}:
        return "" if "SHM" not in travelled.names else "some of the data travelled through shared memory, not P2P"
    return f"the data travelled by {', '.join(sorted(travelled.names))}, not from GPU to GPU"


@check(
    "check_deep_nccom",
    opt("-r --ranks", "ranks", whole, "NeuronCores that take part", 2),
    opt("-s --size", "size", size_bytes, "the size whose row is judged", 32 << 20),
    opt("-c --collective", "name", text, "allr, allg, redsct, alltoall ...", "allr"),
    deep.FLOOR,
    timeout=deep.OVERHEAD + DEADLINE,
    tags=("gpu", "neuron"),
)
def check_deep_nccom(
    host: Host, ranks: int = 2, size: int = 32 << 20, name: str = "allr", floor: Optional[float] = None
) -> Judged:
    """Neuron devices of the node together are as fast as they should be, and give right sums.

    Runs nccom-test within the node, with its checks on. Judged is the bus bandwidth of the row of SIZE. Its GB/s are
    GiB/s; here they are GB/s.

    Example: * |context deep| check_deep_nccom -r 32 -s 1G
    """
    picked = pick(host, "", "neuron")
    if not picked.devices:
        return list(picked.outcomes)
    argv = ["nccom-test", "-r", str(ranks), name, "-b", str(size), "-e", str(size), "-f", "2", "-c",
            "--non-interactive"]  # fmt: skip
    ran = deep.measure(host, argv, DEADLINE, "nccom-test", lambda done: parse_nccom(done.output))
    return [*picked.outcomes, ran if isinstance(ran, Outcome) else judge_nccom(host, name, size, *ran, floor)]


def judge_nccom(host: Host, name: str, size: int, done: Completed, result: Nccom, floor: Optional[float]) -> Outcome:
    """What one run of nccom-test says."""
    wrong = [line for line in result.failures if "errors found" in line and not line.startswith("0 ")]
    if wrong:
        return crit("DeepWrongResult", f"nccom-test: {wrong[0]}", evidence=deep.tail(done))
    row = next((row for row in result.rows if row.size == size), None)
    if result.failures or done.status:
        why = (result.failures or (f"status {done.status}",))[0]
        return unknown("DeepToolFailed", f"nccom-test: {why}", evidence=deep.tail(done))
    if row is None or result.average is None or row.time <= 0 or row.busbw <= 0:
        why = "its last line is missing" if row else f"no row of {show_kb(size // 1024)}"
        return deep.no_proof("nccom-test", why, done)
    return deep.hold(host, deep.Measured(f"nccom_{name}", row.busbw, "GB/s", size=size), floor)
