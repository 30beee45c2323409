"""GPUs under the load of matrix products: heat, speed and numbers that must be right."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome
from nhc.core.units import one_of, seconds, text, whole
from nhc.node.checks import deep, deep_burns
from nhc.node.checks.deep_host import burn_processors
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts.tools import gemm
from nhc.node.facts.tools.gemm import parse_gpu_burn, parse_gpu_fryer, parse_rvs

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

    from nhc.core.host import Completed

ENGINES = ("auto", "torch", "gpu-burn", "gpu-fryer", "rvs", "cpu")
BURNS = ("torch", "gpu_burn", "gpu-fryer", "rvs")
DTYPES = ("bf16", "fp16", "fp32", "fp64")
PYTHON = opt("-P --python", "python", text, "the Python that has torch", "python3")
PREPARE = 180.0
"""Seconds for what comes before the load: importing torch, making the inputs, the first product."""


@check(
    "check_deep_gemm",
    DEVICES,
    opt("-t --time", "duration", seconds, "how long to load each GPU", 60.0),
    opt("-s --size", "size", whole, "rows and columns of the matrices", 8192),
    opt("-y --dtype", "kind", one_of(DTYPES), "bf16, fp16, fp32 or fp64", "bf16"),
    opt("-e --engine", "chosen", one_of(ENGINES), "torch, gpu-burn, gpu-fryer, rvs, cpu or auto", "auto"),
    PYTHON,
    deep.FLOOR,
    timeout=deep.OVERHEAD + PREPARE,
    tags=("gpu", "nvidia", "amd"),
)
def check_deep_gemm(
    host: Host,
    duration: float = 60.0,
    size: int = 8192,
    kind: str = "bf16",
    chosen: str = "auto",
    python: str = "python3",
    floor: Optional[float] = None,
    devices: str = "",
) -> Judged:
    """Every GPU computes rightly under full load, bit by bit like its peers, and as fast.

    Multiplies matrices on all GPUs at once. With torch (of the Python given with -P) each product's bits must be the
    same every time and on every GPU of a model, and a product of small whole numbers must have the row sums that its
    factors prove: silent corruption is CRIT by GPU, as is a GPU more than 10 percent behind the median of its peers.
    Without torch gpu-burn, gpu-fryer (which verifies nothing) or AMD's rvs are used. Where none is there the
    GPUs are SKIP, with the reason, and the processors are tested alone.

    Example: * |context deep| check_deep_gemm -t 10m -P /opt/venv/bin/python
    """
    picked = pick(host, devices)
    gpus = [device for device in picked.devices if device.vendor in ("nvidia", "amd")]
    if not gpus and chosen != "cpu":
        return list(picked.outcomes)
    if not host.setting(deep.RUN):
        return deep.NOT_ALONE
    burn, why = ("cpu", "asked for") if chosen == "cpu" else _choose(host, chosen, python, gpus[0].vendor)
    if burn == "torch":
        named = [str(device.number) for device in gpus] if devices or host.setting("NHC_DEVICES") else []
        outcomes = _torch(host, duration, size, kind, python, named, len(gpus), floor)
    elif burn == "cpu":
        judged: Judged = burn_processors(host, duration)
        outcomes = judged
        if chosen != "cpu":
            rest = [judged] if isinstance(judged, Outcome) else judged
            outcomes = [
                deep.missing(host, f"the {len(gpus)} GPUs were not burnt, the processors alone: {why}", *BURNS),
                *rest,
            ]
    else:
        outcomes = _other(host, burn, duration, [device.name for device in gpus], floor)
    return [*picked.outcomes, *([outcomes] if isinstance(outcomes, Outcome) else outcomes)]


def _choose(host: Host, chosen: str, python: str, vendor: str) -> Tuple[str, str]:
    """Which burn to use, and for the one without a GPU why."""
    if chosen != "auto":
        return chosen, ""
    why = f"{python} is not installed"
    if host.which(python) is not None:
        try:
            done = host.run([python, "-c", "import torch; print(torch.cuda.device_count())"], 60.0)
            if not done.status and done.stdout.strip().isdigit() and int(done.stdout.strip()):
                return "torch", ""
            why = f"{python} has no torch that sees a GPU"
        except OSError as error:
            why = f"{python}: {error.strerror}"
    others = (("gpu-burn", "gpu_burn"), ("gpu-fryer", "gpu-fryer")) if vendor == "nvidia" else (("rvs", "rvs"),)
    for name, command in others:
        if deep.located(host, command):
            return name, ""
    return "cpu", f"{why}, and there is no {' or '.join(command for _, command in others)}"


def _torch(
    host: Host, duration: float, size: int, kind: str, python: str, named: Sequence[str], expect: int,
    floor: Optional[float],
) -> Judged:  # fmt: skip
    from nhc.core.data.reader import read

    argv = [python, "-c", read("gemm_burn.py"), f"{duration:g}", str(size), kind, *([",".join(named)] if named else [])]
    limit = duration + PREPARE + deep.START
    ran = deep.measure(host, argv, limit, "gemm_burn", lambda done: gemm.parse(done.stdout))
    return ran if isinstance(ran, Outcome) else deep_burns.judge(host, *ran, duration, expect, floor)


def _other(host: Host, burn: str, duration: float, models: Sequence[str], floor: Optional[float]) -> Judged:
    length = str(max(1, round(duration)))
    argv = {"gpu-burn": ["gpu_burn", *_compared(host), "-tc", length], "gpu-fryer": ["gpu-fryer", length],
            "rvs": ["rvs", "-c", "gst_single.conf"]}[burn]  # fmt: skip
    limit = duration + PREPARE + deep.START
    ran = deep.measure(host, argv, limit, burn, lambda done: _judge_other(host, burn, done, models, floor))
    return ran if isinstance(ran, Outcome) else ran[1]


def _compared(host: Host) -> List[str]:
    """The option with gpu-burn's own kernel, which it looks for in the working directory otherwise."""
    located = deep.located(host, "gpu_burn")
    path = host.which(located) if located else None
    if path is None:
        return []
    folder = host.realpath(path).rpartition("/")[0]
    names = [f"{folder}/{name}" for name in ("compare.fatbin", "compare.ptx")]
    return next((["-c", name] for name in names if host.exists(name)), [])


def _judge_other(
    host: Host, burn: str, done: Completed, models: Sequence[str], floor: Optional[float]
) -> List[Outcome]:  # fmt: skip
    if burn == "gpu-burn":
        return deep_burns.judge_gpu_burn(host, parse_gpu_burn(done.output), done, models, floor)
    if burn == "gpu-fryer":
        return deep_burns.judge_fryer(host, parse_gpu_fryer(done.output), done, models, floor)
    return deep_burns.judge_rvs(parse_rvs(done.output), done, len(models))
