"""Proves GPUs while jobs use them: one GPU a run, so briefly that no job notices.

A wrong GPU is remembered: the next run proves another GPU, and must not end the fault of this one.
"""

from __future__ import annotations

from nhc.core import memory as remembered
from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, Verdict, crit, ok, skip
from nhc.core.timestamps import utc
from nhc.core.units import seconds, size_bytes
from nhc.node.checks.gpu import DEVICES, SOURCE, pick
from nhc.node.checks.gpu_proof import ANSWERING, WRONG, Target, ask_driver, judge
from nhc.node.facts.accelerator_values import Device
from nhc.node.kernlog.programs import origin

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence, Set

    from nhc.node.checks.gpu_proof import Answer

TURNS = "gpu-proof-turns"
"""Memory of the number of the run in which each GPU was proved last, by UUID."""
LEFT_FREE = 1 << 30
"""Bytes of a GPU's memory that the job still finds while it is proved. The driver takes about half of it for a context.
(On an H100 with driver 580.)"""
LEAST = 64 << 20
"""Bytes of memory that a proof needs (`nhc.node.gpu_proof.device`)."""
NOT_NOW = ("GpuProofHeld", "GpuProofNoMemory", "GpuProofPartial")
"""Failures that a job causes: exclusive mode, memory that it has just taken, SMs that it keeps."""


def _lasts(arguments: Mapping[str, Any]) -> float:
    from nhc.node.gpu_proof.request import LAUNCHING

    return float(2 * (arguments["wait"] + 10 * arguments["time"]) + LAUNCHING + ANSWERING)


@check(
    "check_gpu_proof_beside",
    DEVICES,
    opt("-t --time", "time", seconds, "how long the GPU computes products", 0.03),
    opt("-m --memory", "memory", size_bytes, "prove so much of its memory, less where less is free", 1 << 30),
    opt("-w --wait", "wait", seconds, "how long setting up and giving back may take besides", 10.0),
    timeout=60.0, source=SOURCE, parts=("mig_mode", "processes"), every=900, lasts=_lasts,
    tags=("gpu", "nvidia"),
)  # fmt: skip
def check_gpu_proof_beside(
    host: Host, time: float = 0.03, memory: int = 1 << 30, wait: float = 10.0, devices: str = ""
) -> List[Outcome]:
    """One GPU after another computes exactly and keeps every bit, beside the job that uses it.

    check_gpu_proof for so short that it can run at any time: at each look one GPU, the one whose last proof is the
    longest ago, with 30 ms of products and 1 GiB of memory. Its speed is not judged. A result that was wrong again is
    CRIT and names the job, which goes on: the node is to be drained, and takes no other job. It stays CRIT until
    check_gpu_proof has found that GPU right with nobody on it, or this check has after the node restarted, or the GPU
    is gone. SKIP where the job leaves less than 1.1 GiB of memory free, has the GPU in exclusive mode, or the GPU is
    divided (MIG).

    Example: * |context agent, every 15m| check_gpu_proof_beside
    """
    picked = pick(host, devices, "nvidia")
    outcomes, there = list(picked.outcomes), {_name(device): device for device in picked.devices}
    here = {_name(device) for device in picked.inventory.devices}  # those that other lines or hooks pick, too
    boot = host.boot_id()
    wrong = remembered.recall(host.memory, WRONG)
    whole = [name for name, device in there.items() if not device.modes.mig]
    turns = host.memory.load(TURNS)
    again = [name for name in whole if name in wrong and wrong[name]["boot"] != boot]
    waiting = again or sorted((name for name in whole if name not in wrong), key=lambda name: turns.get(name, 0))
    if there and not whole:
        outcomes.append(skip("GpuProofMig", "the GPUs are divided (MIG): jobs have all their memory"))
    name, proved = "", []
    if waiting:
        name = waiting[0]
        proved = _prove(host, there[name], time, memory, wait)
        _take_turn(host, name, here)
    if there:
        wrong = _remember(host, name, proved, here, boot)
    outcomes += [] if name in wrong else proved
    return [*outcomes, *(_still_wrong(there[name], kept) for name, kept in wrong.items() if name in there)]


def _name(device: Device) -> str:
    """The key under which a GPU is remembered."""
    return device.id or device.label


def _remember(host: Host, name: str, proved: Sequence[Outcome], here: Set[str], boot: str) -> Dict[str, Any]:
    """The GPUs that are wrong after this look at one of them; those that are gone are forgotten."""
    convicted = next((outcome for outcome in proved if outcome.verdict is Verdict.CRIT), None)
    right = any(outcome.verdict is Verdict.OK for outcome in proved)

    def change(wrong: Dict[str, Any]) -> None:
        for gone in [known for known in wrong if known not in here]:
            del wrong[gone]
        if convicted:
            wrong[name] = {"boot": boot, "when": host.time(), "reason": convicted.reason, "message": convicted.message,
                           "action": convicted.action.value, "evidence": list(convicted.evidence)}  # fmt: skip
        elif right:
            wrong.pop(name, None)

    return remembered.revise(host.memory, WRONG, change)


def _prove(host: Host, device: Device, time: float, memory: int, wait: float) -> List[Outcome]:
    from nhc.node.gpu_proof.device import TENSOR_SHARE

    job = _jobs(host, device)
    room = memory
    if device.memory_total is not None and device.memory_used is not None:
        room = min(memory, device.memory_total - device.memory_used - LEFT_FREE)
    if room < LEAST:
        message = f"{device.label}: {job or 'another program'} leaves too little of its memory free to prove it"
        return [skip("GpuProofNoMemory", message, target=device.label)]
    limits = {"seconds": time / TENSOR_SHARE, "memory": room}
    asked: Answer = {
        "gpus": [{"visible": device.id or str(device.number), **limits}], "kinds": [], "thorough": False, "seed": -1,
        "pairs": False, "timeout": wait + 10 * time,
    }  # fmt: skip
    answer = ask_driver(host, asked)
    if isinstance(answer, Outcome):
        return [answer._replace(target=device.label)]
    target = Target(device.label, asked["gpus"][0]["visible"], device)
    return [_beside(outcome, job) for outcome in judge(host, target, answer["gpus"][0])]


def _beside(outcome: Outcome, job: str) -> Outcome:
    """What was found of a GPU, without its speed, and with the job beside which it was."""
    outcome = outcome._replace(metrics=())
    if outcome.reason in NOT_NOW:
        return outcome._replace(verdict=Verdict.SKIP)
    if outcome.verdict is Verdict.OK:
        return ok(f"{outcome.target}: computes exactly{f', beside {job}' if job else ''}", target=outcome.target)
    if outcome.verdict is Verdict.CRIT and job:
        message = f"{outcome.message}; found beside {job}, which goes on and whose results are in doubt"
        return outcome._replace(message=message)
    return outcome


def _jobs(host: Host, device: Device) -> str:
    """What uses the GPU: jobs and pods by their control groups, other programs by their names.

    Another of nhc's proofs is not a job: the hook before the next job may prove the GPU at the same time.
    """
    from nhc.node.gpu_proof.running import is_proof

    look = origin(host)
    named: Dict[str, None] = {}
    for process in device.processes or ():
        if is_proof(host, process.pid):
            continue
        of = look(process.pid)
        kind = "job" if of.startswith("job") else "pod" if of.startswith("pod") else ""
        named[f"{kind} {of[3:].strip('-_')}" if kind else f"process {process.pid} ({process.name or '?'})"] = None
    users = list(named)
    return ", ".join(users[:4]) + (f" and {len(users) - 4} more" if len(users) > 4 else "")


def _take_turn(host: Host, name: str, here: Set[str]) -> None:
    def change(turns: Dict[str, Any]) -> None:
        latest = max(turns.values(), default=0)
        for gone in [known for known in turns if known not in here]:
            del turns[gone]
        turns[name] = latest + 1

    host.memory.update(TURNS, change)


def _still_wrong(device: Device, kept: Mapping[str, Any]) -> Outcome:
    evidence: Sequence[str] = kept["evidence"]
    message = f"{kept['message']} [{utc(kept['when'])}]"
    return crit(kept["reason"], message, target=device.label, action=Action(kept["action"]), evidence=tuple(evidence))
