"""What the results of burns mean: right numbers, the same bits on all devices of a model, alike in speed."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.node.checks import deep

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from nhc.core.host import Completed, Host
    from nhc.node.facts.tools.gemm import Burn, Burned, Fryer, GpuBurn, Rvs


def label(burn: Burn, device: Burned) -> str:
    return f"{'cpu' if burn.engine == 'cpu' else 'gpu'}{device.device}"


def judge(
    host: Host, done: Completed, burn: Burn, duration: float, expect: Optional[int], floor: Optional[float]
) -> List[Outcome]:
    """One outcome a device, those that compute wrongly first. `expect` is how many devices there must be."""
    tool = f"the {burn.engine or 'gemm'} burn"
    if not burn.devices:
        return [
            unknown("DeepToolFailed", f"{tool}: {burn.trouble or f'status {done.status}'}", evidence=deep.tail(done))
        ]
    bad = _wrong(burn)
    outcomes = list(bad.values())
    if burn.trouble:
        outcomes.append(unknown("DeepToolFailed", f"{tool}: {burn.trouble}", evidence=deep.tail(done)))
    if not burn.ended or done.status:
        outcomes.append(deep.no_proof(tool, f"its last line is missing (status {done.status})", done))
    elif expect is not None and len(burn.devices) != expect:
        outcomes.append(deep.no_proof(tool, f"{len(burn.devices)} of {expect} devices", done))
    outcomes += [_speed(host, burn, device, duration, floor) for device in burn.devices if device.device not in bad]
    if burn.engine == "cpu":
        return _folded(outcomes)
    return deep.among_peers(outcomes, {label(burn, device): device.name for device in burn.devices}, floor)


def _wrong(burn: Burn) -> Dict[int, Outcome]:
    """The devices whose numbers are not right."""
    outcomes: Dict[int, Outcome] = {}
    for device in burn.devices:
        if device.wrong or device.changed or device.nan:
            faults = [f"{count} {what}" for count, what in (
                (device.wrong, "rows that are wrong"), (device.changed, "products with other bits than the first"),
                (device.nan, "values that are no number")) if count]  # fmt: skip
            outcomes[device.device] = _crit(burn, device, f"in {device.rounds} rounds {', '.join(faults)}")
    models: Dict[str, Dict[str, List[Burned]]] = {}
    for device in burn.devices:
        if device.device not in outcomes:
            models.setdefault(device.name, {}).setdefault(device.hash, []).append(device)
    for by_hash in models.values():
        ranked = sorted(by_hash.values(), key=len, reverse=True)
        if len(ranked) > 1:
            tie = len(ranked[0]) == len(ranked[1])
            odd = [device for group in (ranked if tie else ranked[1:]) for device in group]
            fault = "half of the devices give other bits than the rest" if tie else "other bits than the other devices"
            outcomes.update((device.device, _crit(burn, device, f"{fault}, of the same product")) for device in odd)
    return outcomes


def _crit(burn: Burn, device: Burned, fault: str) -> Outcome:
    target = label(burn, device)
    metrics = (Metric("gemm_wrong", float(device.wrong + device.changed + device.nan)),)
    return crit("DeepWrongResult", f"{target}: {fault}", target=target, metrics=metrics, action=Action.REPLACE)


def _speed(host: Host, burn: Burn, device: Burned, duration: float, floor: Optional[float]) -> Outcome:
    target = label(burn, device)
    if device.rounds < 2 or device.seconds < duration * deep.ENOUGH:
        return deep.no_proof(target, f"{device.rounds} rounds in {device.seconds:g} of {duration:g} s", target=target)
    metric = f"gemm_{burn.dtype}" if burn.engine != "cpu" else "cpu_gemm"
    return deep.hold(host, deep.Measured(metric, device.tflops, "TFLOPS", target, burn.size, device.name), floor)


def _folded(outcomes: List[Outcome]) -> List[Outcome]:
    """Cores are many: those that pass share one outcome."""
    passed = [outcome for outcome in outcomes if not outcome.verdict > 1]
    rest = [outcome for outcome in outcomes if outcome.verdict > 1]
    if not passed:
        return rest
    total = sum(metric.value for outcome in passed for metric in outcome.metrics if metric.name == "cpu_gemm")
    metrics = (Metric("cpu_gemm", total, "TFLOPS"),)
    return [*rest, ok(f"{len(passed)} cores compute rightly and alike", target="processors", metrics=metrics)]


def judge_gpu_burn(
    host: Host, burn: GpuBurn, done: Completed, models: Sequence[str], floor: Optional[float]
) -> List[Outcome]:  # fmt: skip
    """gpu-burn, whose status says nothing. `models` names the GPUs in their order. Its figures are those of one matrix
    size of its own: they have a metric of their own.
    """
    expect = len(models)
    if burn.failures or burn.tested is None or len(burn.verdicts) != burn.tested or burn.progress < 100:
        bad = [f"gpu{gpu}" for gpu, fine in burn.verdicts.items() if not fine]
        wrong = [crit("DeepWrongResult", f"{label}: gpu-burn calls it faulty", target=label, action=Action.REPLACE)
                 for label in bad]  # fmt: skip
        why = (burn.failures or (f"it came to {burn.progress:g}%, {len(burn.verdicts)} verdicts",))[0]
        return [*wrong, deep.no_proof("gpu-burn", why, done)]
    outcomes: List[Outcome] = []
    if burn.tested != expect:
        outcomes.append(deep.no_proof("gpu-burn", f"{burn.tested} of {expect} GPUs", done))
    for at, (gpu, fine) in enumerate(sorted(burn.verdicts.items())):
        target = f"gpu{gpu}"
        errors = burn.errors[at] if at < len(burn.errors) else 0
        speed = burn.gflops[at] / 1000 if at < len(burn.gflops) else 0.0
        if not fine or errors:
            message = f"{target}: gpu-burn calls it faulty ({errors} errors)"
            outcomes.append(crit("DeepWrongResult", message, target=target, action=Action.REPLACE))
        elif speed <= 0:
            outcomes.append(deep.no_proof("gpu-burn", "it tells no speed", done, target))
        else:
            measured = deep.Measured("gpu_burn", speed, "TFLOPS", target, device=_model(models, gpu))
            outcomes.append(deep.hold(host, measured, floor))
    return _by_model(outcomes, models, floor)


def _model(models: Sequence[str], gpu: int) -> str:
    return models[gpu] if gpu < len(models) else ""


def _by_model(outcomes: Sequence[Outcome], models: Sequence[str], floor: Optional[float]) -> List[Outcome]:
    return deep.among_peers(outcomes, {f"gpu{gpu}": name for gpu, name in enumerate(models)}, floor)


def judge_fryer(
    host: Host, burn: Fryer, done: Completed, models: Sequence[str], floor: Optional[float]
) -> List[Outcome]:  # fmt: skip
    """gpu-fryer, which compares speeds and verifies no numbers. `models` names the GPUs in their order."""
    expect = len(models)
    if burn.healthy is None or done.status > 1 or (burn.healthy and done.status):
        return [deep.no_proof("gpu-fryer", f"it came to no verdict (status {done.status})", done)]
    # It holds each GPU to the best of the node: that names one to look at, and its figures are judged below.
    outcomes = [warn(deep.SLOW, f"gpu-fryer: {reason}") for reason in burn.reasons]
    if not burn.healthy and not burn.reasons:
        outcomes.append(warn(deep.SLOW, "gpu-fryer: some GPUs are not healthy", evidence=deep.tail(done)))
    if len(burn.gflops) != expect:
        outcomes.append(deep.no_proof("gpu-fryer", f"{len(burn.gflops)} of {expect} GPUs", done))
    for gpu, speed in sorted(burn.gflops.items()):
        measured = deep.Measured("gpu_fryer", speed / 1000, "TFLOPS", f"gpu{gpu}", 8192, _model(models, gpu))
        outcomes.append(deep.hold(host, measured, floor))
    return _by_model(outcomes, models, floor)


def judge_rvs(burn: Rvs, done: Completed, expect: int) -> List[Outcome]:
    """AMD's rvs, which holds each GPU to the targets of its configuration."""
    outcomes = [crit("DeepSlow", f"GPU id {gpu}: rvs: below its target", target=f"gpu-id {gpu}")
                for gpu, met in burn.met.items() if not met]  # fmt: skip
    outcomes += [crit("DeepGpuDiag", f"rvs: {line}") for line in burn.failures]
    if len(burn.met) != expect or (done.status and not outcomes):
        outcomes.append(deep.no_proof("rvs", f"{len(burn.met)} of {expect} GPUs (status {done.status})", done))
    if not outcomes:
        metrics = tuple(Metric("rvs_gst", speed / 1000, "TFLOPS") for speed in burn.gflops.values())
        outcomes.append(ok(f"rvs: {len(burn.met)} GPUs met their targets", metrics=metrics))
    return outcomes
