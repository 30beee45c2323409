"""Proves that GPUs compute, store and copy correctly; the node needs only NVIDIA's driver (or ROCm, for AMD's).

`nhc.node.gpu_proof` does it, in a process for each GPU; here its answer is judged. Only a result that is wrong twice is
a fault. If the proof cannot run (another program, too little memory, an old driver, a call that hangs), the GPU is not
proved.
"""

from __future__ import annotations

from nhc.core import memory as memories
from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, DeviceId, Metric, Outcome, Scope, Verdict, crit, ok, printable, unknown, warn
from nhc.core.units import one_of, seconds, show_seconds, size_bytes, whole
from nhc.node.checks.gpu import DEVICES, SOURCE, pick
from nhc.node.facts.pci import normal_address

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence, Tuple

    from nhc.node.facts.accelerator_values import Device

    Answer = Dict[str, Any]

KINDS = ("bf16", "fp16", "tf32", "int8", "fp64", "fp8")
SEED = "NHC_PROOF_SEED"
"""The setting with the seed of a proof that is to be carried out again: `nhc deep run --seed` sets it."""
SETTING_UP = 30.0
"""Seconds to start the driver and to release the GPUs: over ten with eight GPUs if nothing keeps the driver awake."""
ANSWERING = 5.0
"""Seconds for the check itself: what NVML and `nvidia-smi -L` take, and judging."""
BESIDE = 1 << 30
"""Bytes of memory that a proof takes on a GPU that another program uses, so that enough is left for the program."""
BESIDE_TIME = 0.2
"""Seconds that it takes there."""
FATAL = (214, 220)
"""CUresults by which the GPU itself says that it is broken: CUDA_ERROR_ECC_UNCORRECTABLE, _NVLINK_UNCORRECTABLE."""
HELD, NO_MEMORY = (46,), (2,)
"""CUDA_ERROR_DEVICE_UNAVAILABLE: exclusive mode, and another process holds the GPU. CUDA_ERROR_OUT_OF_MEMORY."""
FLAKY = "gpu-proof-flaky"
"""Memory of how often a result was wrong once and right afterwards, by UUID."""
WRONG = "gpu-proof-wrong"
"""Memory of GPUs that `nhc.node.checks.gpu_proof_beside` found wrong, by UUID: the outcome, when, and in which boot."""
UNITS = {"memory written": "GB/s", "memory read": "GB/s", "L2": "GB/s", "from the GPU": "GB/s", "to the GPU": "GB/s"}
METRICS = {"from the GPU": "proof_device_to_host", "to the GPU": "proof_host_to_device"}


THOROUGH = 60.0
"""Seconds that a thorough proof of a GPU may take."""


def _one_gpu(arguments: Mapping[str, Any]) -> float:
    """Seconds for one GPU, set-up and release included; the copies between GPUs get as many."""
    proving = THOROUGH if arguments["thorough"] else 4 * arguments["time"]
    return float(arguments["wait"] + proving)


def _lasts(arguments: Mapping[str, Any]) -> float:
    """Seconds for a line: a GPU may hang, and then the copies between the others, and the answer still counts."""
    from nhc.node.gpu_proof.request import LAUNCHING

    return 2 * _one_gpu(arguments) + LAUNCHING + ANSWERING


class Target(NamedTuple):
    """What one process proves: a device, or an instance of it. `visible` is what CUDA_VISIBLE_DEVICES calls it."""

    label: str
    visible: str
    device: Device


@check(
    "check_gpu_proof",
    DEVICES,
    opt("-t --time", "time", seconds, "how long each GPU is under test, without setting up and giving back", 1.0),
    opt("-k --kind", "kinds", one_of(KINDS), "prove these products only; repeats (default: all that the GPU has)",
        many=True),
    opt("-m --memory", "memory", size_bytes, "prove so much memory of each GPU (default: all that is free)", 0),
    opt("-s --seed", "seed", whole, "use the numbers that this seed draws (default: new ones)", -1),
    opt("-w --wait", "wait", seconds, "how long setting up and giving back may take besides", SETTING_UP),
    flag("--thorough", "thorough", "take the time to prove all memory, with a walking bit, too"),
    flag("--alone", "alone", "leave out the copies between GPUs"),
    flag("--amd", "amd", "prove AMD's GPUs instead (needs ROCm; never tried on hardware)"),
    timeout=120.0, source=SOURCE, parts=("mig_mode", "processes"), lasts=_lasts,
    tags=("gpu", "nvidia"),
)  # fmt: skip
def check_gpu_proof(
    host: Host,
    time: float = 1.0,
    kinds: Sequence[str] = (),
    memory: int = 0,
    seed: int = -1,
    wait: float = SETTING_UP,
    thorough: bool = False,
    alone: bool = False,
    amd: bool = False,
    devices: str = "",
) -> List[Outcome]:
    """Every GPU computes exactly, on each of its SMs, and its memory and copies keep every bit.

    Needs NVIDIA's driver (520 or newer) and nothing else. All GPUs at once, each in a process of its own: tensor
    products of bf16, fp16, tf32, int8, fp64 and fp8 on whole numbers that are drawn anew each time, chains of ordinary
    operations, shared memory, the L2, all free memory twice, copies to the host and back, and between GPUs that
    reach each other. Every result is compared with what the host computed, exactly. What is wrong is tried again with
    the same numbers and with others: wrong again is CRIT with the SM or the address, right again is WARN, and counted.

    A GPU that could not be proved is UNKNOWN: another program holds it, its memory is full, a call hangs, the driver is
    too old. Beside another program it takes 1 GiB of memory at most and a fifth of a second.

    With --amd it proves AMD's GPUs (MI200, MI300X, MI325X, MI350) instead. That needs ROCm's runtime, and has never
    been tried on such hardware.

    Example: * |context prolog| check_gpu_proof
    """
    picked = pick(host, devices, "amd" if amd else "nvidia")
    outcomes = list(picked.outcomes)
    targets: List[Target] = []
    for device in picked.devices:
        if amd:
            targets.append(Target(device.label, device.pci, device))
        elif device.modes.mig:
            instances, why = _instances(host, device)
            targets += instances
            outcomes += why
        else:
            targets.append(Target(device.label, device.id or str(device.number), device))
    if not targets:
        return outcomes
    given = [_limits(target.device, time, memory) for target in targets]
    asked: Answer = {
        "gpus": [{"visible": target.visible, **limits} for target, limits in zip(targets, given)],
        "kinds": list(kinds),
        "thorough": thorough,
        "seed": _seed(host, seed),
        "pairs": not (alone or any(map(_in_use, picked.devices))),
        "timeout": _one_gpu({"wait": wait, "thorough": thorough, "time": time}),
    }
    if amd:
        asked["architecture"] = _architecture(host, picked.devices)
    answer = ask_driver(host, asked)
    if isinstance(answer, Outcome):
        return [*outcomes, answer]
    for target, proof in zip(targets, answer["gpus"]):
        outcomes += judge(host, target, proof)
        device, free = target.device, not (_in_use(target.device) or target.device.modes.mig)
        if free and not (kinds or memory) and outcomes[-1].verdict is Verdict.OK:
            _forget_wrong(host, device)
    return [*outcomes, *_judge_pairs(targets, answer["pairs"], answer["seed"])]


def _architecture(host: Host, devices: Sequence[Device]) -> str:
    """The compilers' name for the instruction set of these AMD GPUs; "several" cannot be proved."""
    from nhc.node.facts.amd import topology

    known = {node.pci: node.architecture for node in topology(host)}
    [architecture, *others] = {known.get(device.pci) or "unknown" for device in devices}
    return "several" if others else architecture


def _forget_wrong(host: Host, device: Device) -> None:
    """A whole proof has found this GPU right while no job used it: an earlier fault has been repaired."""
    name = device.id or device.label
    if name in memories.recall(host.memory, WRONG):

        def right(wrong: Dict[str, Any]) -> None:
            wrong.pop(name, None)

        memories.revise(host.memory, WRONG, right)


def _in_use(device: Device) -> bool:
    """Whether another program uses a GPU. If its processes cannot be listed, used memory decides."""
    return bool(device.processes) if device.processes is not None else (device.memory_used or 0) > BESIDE


def _limits(device: Device, time: float, memory: int) -> Answer:
    if _in_use(device):
        return {"seconds": min(time, BESIDE_TIME), "memory": min(memory or BESIDE, BESIDE)}
    return {"seconds": time, "memory": memory}


def _seed(host: Host, given: int) -> int:
    """The seed to use, -1 for a new one."""
    setting = host.setting(SEED)
    return given if given >= 0 else int(setting) if setting.isdigit() else -1


def _instances(host: Host, device: Device) -> Tuple[List[Target], List[Outcome]]:
    """The MIG instances of a GPU, and the outcome if there are none."""
    from nhc.node.facts import nvidia

    try:
        listed = nvidia.parse_mig(host.run(["nvidia-smi", "-L"], 20.0).stdout).get(device.id, [])
    except (OSError, ValueError) as error:
        message = f"{device.label} is divided (MIG), and nvidia-smi -L does not list its instances: {error}"
        return [], [unknown("GpuProofMig", message, target=device.label)]
    if not listed:
        return [], [
            unknown("GpuProofMig", f"{device.label} is divided (MIG), and has no instance", target=device.label)
        ]
    return [Target(f"{device.label}.{number}", uuid, device) for number, (_, uuid) in enumerate(listed)], []


def ask_driver(host: Host, asked: Answer) -> Answer | Outcome:
    """Run the proof; returns the answer as a recording keeps it, or why it could not run."""
    from json import dumps

    from nhc.node.gpu_proof.request import carry_out

    environ, watch = {**host.environ, **host.settings}, host.system.watch
    try:
        answer: Answer = host.system.ask(f"gpu proof {dumps(asked)}", lambda: carry_out(asked, environ, watch))
    except OSError as error:
        answer = {"failed": error.strerror or str(error)}
    if "failed" in answer:
        return unknown("GpuProofNotRun", f"the proof could not be carried out: {answer['failed']}")
    return answer


def judge(host: Host, target: Target, proof: Answer) -> List[Outcome]:
    """Judge the answer of one GPU's process: its faults, or why it was not proved, or that it is right."""
    name = f"{target.label} ({target.device.pci or target.visible})"
    if "error" in proof:
        return [_unproved(target, name, proof["error"])]
    if "unsupported" in proof:
        return [unknown("GpuProofUnsupported", f"{name}: {proof['unsupported']}", target=target.label)]
    if target.device.pci and normal_address(proof["pci"]) != target.device.pci:
        message = f"{name}: the driver gave the GPU at {proof['pci']} under its name"
        return [unknown("GpuProofOther", message, target=target.label)]
    # Its rates are tracked by the board's number: the label changes with each GPU that is taken out.
    identity = DeviceId(target.device.pci, target.device.id, "", target.device.serial or "")
    beside = _in_use(target.device)  # then its rates say nothing
    metrics = () if beside else tuple(_metric(what, rate) for what, rate in proof["rates"].items())
    unit = "CU" if target.device.vendor == "amd" else "SM"
    outcomes = [_fault(host, target, name, fault, proof, unit) for fault in proof["faults"]]
    if outcomes:
        return outcomes
    if proof["missing"]:
        message = f"{name}: {'; '.join(proof['missing'])}: the rest is not proved"
        return [unknown("GpuProofPartial", message, target=target.label, metrics=metrics)]
    to_gpu, from_gpu = (proof["rates"][way] / 1e9 for way in ("to the GPU", "from the GPU"))
    proved = f"{' '.join(proof['kinds'])} on {proof['sms']} {unit}s, {proof['bytes'] / 1e9:.1f} GB of memory"
    copies = f"copies with {to_gpu:.1f} and {from_gpu:.1f} GB/s"
    left_out = f" (left out: {'; '.join(proof['left_out'])})" if proof["left_out"] else ""
    took = show_seconds(round(proof["elapsed"], 2))
    message = f"{name}: {proved}, {copies}: all right in {took}{', beside another program' if beside else ''}{left_out}"
    right = ok(message, target=target.label, metrics=metrics)
    return [right._replace(scope=Scope.DEVICE, device=identity)] if identity.known else [right]


def _metric(what: str, rate: float) -> Metric:
    if what in UNITS:
        return Metric(METRICS.get(what, f"proof_{what.replace(' ', '_').lower()}"), rate / 1e9, UNITS[what])
    return Metric(f"proof_{what}", rate / 1e12, "TFLOPS")


def _fault(host: Host, target: Target, name: str, fault: Answer, answer: Answer, unit: str) -> Outcome:
    """A result that was wrong: confirmed, or gone in both further tries. `answer` is all that the process reported."""
    seed = answer["seed"]
    serial = f", serial {target.device.serial}" if target.device.serial else ""
    where = f"{name}{serial}: {fault['test']}: {_place(fault, unit)}"
    again = f"nhc check local with check_gpu_proof -s {seed} draws the same numbers"
    evidence = (again, f"UUID {target.device.id}")
    if not fault["again"]:
        times = _count_flaky(host, target.device.id or target.label)
        message = f"{where}, and right in two more tries ({times} so far on this GPU); seed {seed}"
        return warn("GpuProofFlaky", message, target=target.label, evidence=evidence)
    message = f"{where}, and again in {fault['again']} of two more tries; seed {seed}"
    if unit == "CU" and len(fault.get("sms", ())) > answer["sms"] / 2:
        doubt = "so many at once speak against the proof, which was never tried on AMD's GPUs"
        return unknown("GpuProofFailed", f"{message}: {doubt}", target=target.label, evidence=evidence)
    reason, action = "GpuProofWrong", Action.REPLACE
    if fault["test"] == "memory":
        reason, action = "GpuProofMemory", Action.RESET_DEVICE
    elif fault["test"] == "host copies":
        reason, action = "GpuProofCopy", Action.INSPECT
    return crit(reason, message, target=target.label, evidence=evidence, action=action)


def _place(fault: Answer, unit: str = "SM") -> str:
    if "sms" in fault:
        sms: Dict[str, int] = fault["sms"]
        listing = ", ".join(f"{unit} {sm}" for sm in list(sms)[:4]) + (
            f" and {len(sms) - 4} more" if len(sms) > 4 else ""
        )
        return f"wrong on {listing} ({sum(sms.values())} results)"
    bits = ", ".join(str(bit) for bit in range(64) if fault["bits"] >> bit & 1)
    return f"{fault['count']} wrong words of 16 bytes, the first at offset {fault['first']:#x}, bits {bits}"


def _count_flaky(host: Host, device: str) -> int:
    def count(kept: Dict[str, Any]) -> None:
        kept[device] = int(kept.get(device, 0)) + 1

    return int(host.memory.update(FLAKY, count)[device])


def _unproved(target: Target, name: str, error: Answer) -> Outcome:
    """Why a GPU was not proved. Only an error that the GPU itself reports is its fault."""
    during = f"while {error['step']}" if error["step"].endswith("ing") else f"at {error['step']}"
    if "hung" in error:
        stuck = f", and process {error['stuck']} cannot be ended" if "stuck" in error else ""
        message = f"{name}: no answer from the driver after {show_seconds(error['hung'])} {during}{stuck}"
        return unknown("GpuProofTimeout", message, target=target.label)
    if "code" not in error:
        why = error.get("driver") or error.get("broken") or f"its process ended by {error.get('died')}"
        reason = "GpuProofNoDriver" if "driver" in error else "GpuProofFailed"
        return unknown(reason, f"{name}: {printable(str(why), 300)} ({during})", target=target.label)
    message = f"{name}: {error['call']} says {error['name']} {during}"
    if error["code"] in FATAL:
        return crit("GpuProofEcc", message, target=target.label, action=Action.RESET_DEVICE)
    if error["code"] in HELD:
        return unknown("GpuProofHeld", f"{message}: another program has it for itself", target=target.label)
    if error["code"] in NO_MEMORY:
        return unknown("GpuProofNoMemory", f"{message}: too little memory is free", target=target.label)
    return unknown("GpuProofFailed", message, target=target.label)


def _judge_pairs(targets: Sequence[Target], copies: Any, seed: int) -> List[Outcome]:
    """Copies between GPUs: those that were wrong, with the GPU that is in all of them; else one line for all."""
    if isinstance(copies, dict):
        error = copies["error"]
        why = "no answer" if "hung" in error else error.get("name") or error.get("broken") or error.get("driver")
        return [unknown("GpuProofPairs", f"copies between GPUs are not proved: {why} at {error['step']}")]
    if not copies:
        return []
    labels = {normal_address(target.device.pci): target.label for target in targets}
    named = [
        (labels.get(normal_address(c["from"]), c["from"]), labels.get(normal_address(c["to"]), c["to"]), c)
        for c in copies
    ]
    wrong = [(source, other, copy) for source, other, copy in named if copy["wrong"]]
    if not wrong:
        slowest = min(named, key=lambda pair: pair[2]["rate"])
        message = f"{len(named)} ways between GPUs keep every bit, the slowest {slowest[0]} to {slowest[1]}"
        rate = slowest[2]["rate"] / 1e9
        return [ok(f"{message} with {rate:.1f} GB/s", metrics=(Metric("proof_between_gpus", rate, "GB/s"),))]
    common = set.intersection(*({source, other} for source, other, _ in wrong))
    target = min(common) if len(common) == 1 else ""
    twice = [pair for pair in wrong if pair[2]["wrong"] > 1]
    listing = "; ".join(f"{source} to {other}: {_place(copy)}" for source, other, copy in wrong[:4])
    message = f"{len(wrong)} of {len(named)} ways between GPUs gave wrong data: {listing}; seed {seed}"
    if not twice:
        return [warn("GpuProofFlaky", message, target=target)]
    return [crit("GpuProofPeer", message, target=target, action=Action.INSPECT)]
