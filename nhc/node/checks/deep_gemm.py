"""Devices under the load of matrix products: right numbers, equal bits and similar speed on all devices of a model.

The GPUs by torch or a vendor's burn; processors and their memory's bandwidth by two programs of our own, compiled on
the node.

The result of our own burns (nhc/core/data/gemm_burn.py, nhc/core/data/gemm_cpu.c): one JSON object a line, the
last its end.

{"kind": "begin", "engine": "torch", "version": "2.5.1", "size": 8192, "dtype": "bf16", "seconds": 60}
{"kind": "device", "device": 0, "name": "...", "rounds": 812, "seconds": 60.0, "tflops": 712.4, "slowest": 690.1,
"hash": "91c1...", "changed": 0, "wrong": 0, "nan": 0}
{"kind": "end", "devices": 8}

Those of others: gpu-burn and gpu-fryer (NVIDIA), rvs (AMD). Sources: wilicc/gpu-burn, huggingface/gpu-fryer, RVS.

gpu-burn ends with status 0 although a GPU is FAULTY, and compares within one GPU alone: a consistent miscompute and a
NaN pass. gpu-fryer verifies no numbers.
"""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.json_values import parse_object, text_in, whole_in
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import one_of, seconds, show_kb, size_bytes, text, whole
from nhc.node.checks import deep
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts.meminfo import memory
from nhc.node.facts.memory_tests import parse_triad
from nhc.node.facts.tool_output import figure, lines

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

    from nhc.core.host import Completed, Host


class Burned(NamedTuple):
    """One device or processor. Rounds that gave other bits than its own first are `changed`; values that a row or
    column sum proves wrong are `wrong`; `hash` is of the first product's bytes. `tflops` 0 if not measured.
    """

    device: int
    name: str
    rounds: int
    seconds: float
    tflops: float
    slowest: float
    hash: str
    changed: int
    wrong: int
    nan: int


class Burn(NamedTuple):
    """A whole burn. `ended` says that its last line is there and agrees with the list; `trouble` is its own message."""

    engine: str
    version: str
    size: int
    dtype: str
    seconds: float
    devices: Tuple[Burned, ...]
    ended: bool
    trouble: str = ""


def parse_burn(text: str) -> Burn:
    """What a burn printed. Raises ValueError."""
    burn = Burn("", "", 0, "", 0.0, (), False)
    devices: List[Burned] = []
    begun = False
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = parse_object(line)
        except ValueError:
            raise ValueError(f"a line that is cut off or mixed with another: {line[:80]}") from None
        kind = value.get("kind")
        if kind == "begin":
            begun = True
            burn = burn._replace(engine=str(value.get("engine", "")), version=str(value.get("version", "")),
                                   size=int(figure(value.get("size", 0))), dtype=str(value.get("dtype", "")),
                                   seconds=figure(value.get("seconds", 0)))  # fmt: skip
        elif kind == "device":
            devices.append(_device(value))
        elif kind == "trouble":
            burn = burn._replace(trouble=str(value.get("message", "it failed"))[:300])
        elif kind == "end":
            burn = burn._replace(ended=value.get("devices") == len(devices))
    if not begun and not burn.trouble:
        raise ValueError("no burn has begun")
    if len({device.device for device in devices}) != len(devices):
        raise ValueError("a device is there twice")
    return burn._replace(devices=tuple(devices))


def _device(value: Dict[str, Any]) -> Burned:
    return Burned(
        whole_in(value, "device"), str(value.get("name", "")), whole_in(value, "rounds"), figure(value.get("seconds")),
        figure(value.get("tflops")), figure(value.get("slowest", 0)), text_in(value, "hash"),
        whole_in(value, "changed"), whole_in(value, "wrong"), whole_in(value, "nan", 0),
    )  # fmt: skip


_PROGRESS = regex(r"(\d+(?:\.\d+)?)%\s+proc'd:\s+(.*?)\s+errors:\s+([\d\s-]*\d)")
_VERDICT = regex(r"^\s*GPU (\d+): (OK|FAULTY)\s*$")
_FRYER = regex(r"^GPU #(\d+):\s+([\d.]+) Gflops/s \(min: ([\d.]+), max: ([\d.]+), dev: ([\d.]+)\)")
_RVS = regex(r"\[RESULT\s*\].*\[GPU::\s*(\d+)\].*met:\s*(TRUE|FALSE)")
_RVS_FIGURE = regex(r"GFLOPS\s+([\d.]+)")


class GpuBurn(NamedTuple):
    """A run of gpu-burn. `verdicts` by GPU, True for OK, are printed at the end; `progress` is the last percentage.

    `errors` and `gflops` are the last progress line's, one a GPU.
    """

    verdicts: Dict[int, bool]
    tested: Optional[int]
    progress: float
    gflops: Tuple[float, ...]
    errors: Tuple[int, ...]
    failures: Tuple[str, ...]


def parse_gpu_burn(text: str) -> GpuBurn:
    """What gpu_burn printed. Raises ValueError."""
    verdicts: Dict[int, bool] = {}
    failures: List[str] = []
    tested: Optional[int] = None
    progress = 0.0
    gflops: Tuple[float, ...] = ()
    errors: Tuple[int, ...] = ()
    for line in text.replace("\r", "\n").split("\n"):
        progressed = _PROGRESS.search(line)
        verdict = _VERDICT.match(line)
        fields = line.split()
        if progressed:
            progress = float(progressed[1])
            gflops = tuple(figure(part.split()[0]) for part in progressed[2].split("(")[1:])
            errors = tuple(int(part) for part in progressed[3].split(" - "))
        elif fields[:1] == ["Tested"] and len(fields) == 3 and fields[1].isdigit():
            tested = int(fields[1])
        elif verdict and tested is not None:
            verdicts[int(verdict[1])] = verdict[2] == "OK"
        elif "Couldn't init" in line or "No clients are alive" in line or "Failure during compute" in line:
            failures.append(line.strip()[:300])
    if tested is None and not failures and not errors:
        raise ValueError("not an output of gpu_burn, or one that is cut off")
    return GpuBurn(verdicts, tested, progress, gflops, errors, tuple(failures))


class Fryer(NamedTuple):
    """A run of gpu-fryer: GFLOP/s by GPU, its own verdict (None if it did not come to one) and its reasons."""

    gflops: Dict[int, float]
    healthy: Optional[bool]
    reasons: Tuple[str, ...]


def parse_gpu_fryer(text: str) -> Fryer:
    """What gpu-fryer printed. Raises ValueError."""
    gflops: Dict[int, float] = {}
    healthy: Optional[bool] = None
    reasons: List[str] = []
    for line in lines(text):
        row = _FRYER.match(line.strip())
        if row:
            gflops[int(row[1])] = figure(row[2])
        elif "All GPUs seem healthy" in line:
            healthy = True
        elif "Some GPUs are not healthy" in line:
            healthy = False
        elif healthy is False and line.strip().startswith("- "):
            reasons.append(line.strip()[2:][:300])
    if not gflops and healthy is None:
        raise ValueError("not an output of gpu-fryer")
    return Fryer(gflops, healthy, tuple(reasons))


class Rvs(NamedTuple):
    """A run of rvs: by GPU whether every target was met, the best GFLOP/s seen, and lines that tell of a fault."""

    met: Dict[int, bool]
    gflops: Dict[int, float]
    failures: Tuple[str, ...]


_FAULTS = regex(r"\[ERROR\s*\]|RVS-ERROR|pass:\s*FALSE|peqt false|\bFAIL\b")


def parse_rvs(text: str) -> Rvs:
    """What rvs printed. Raises ValueError."""
    met: Dict[int, bool] = {}
    gflops: Dict[int, float] = {}
    failures: List[str] = []
    for line in lines(text):
        row = _RVS.search(line)
        if row:
            gpu = int(row[1])
            met[gpu] = met.get(gpu, True) and row[2] == "TRUE"
            figures = _RVS_FIGURE.search(line)
            if figures:
                gflops[gpu] = max(gflops.get(gpu, 0.0), figure(figures[1]))
        elif _FAULTS.search(line):
            failures.append(line.strip()[:300])
    if not met and not failures:
        raise ValueError("no result of rvs in it")
    return Rvs(met, gflops, tuple(failures))


def label(burn: Burn, device: Burned) -> str:
    return f"{'cpu' if burn.engine == 'cpu' else 'gpu'}{device.device}"


def judge_burn(
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
    """gpu-burn, whose exit status says nothing. `models` names the GPUs in their order. Its figures are those of one
    matrix size of its own: they have a metric of their own.
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
    # It compares each GPU with the best of the node: that names one to look at, and its figures are judged below.
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
    """AMD's rvs, which compares each GPU with the targets of its configuration."""
    outcomes = [crit("DeepSlow", f"GPU id {gpu}: rvs: below its target", target=f"gpu-id {gpu}")
                for gpu, met in burn.met.items() if not met]  # fmt: skip
    outcomes += [crit("DeepGpuDiag", f"rvs: {line}") for line in burn.failures]
    if len(burn.met) != expect or (done.status and not outcomes):
        outcomes.append(deep.no_proof("rvs", f"{len(burn.met)} of {expect} GPUs (status {done.status})", done))
    if not outcomes:
        metrics = tuple(Metric("rvs_gst", speed / 1000, "TFLOPS") for speed in burn.gflops.values())
        outcomes.append(ok(f"rvs: {len(burn.met)} GPUs met their targets", metrics=metrics))
    return outcomes


COMPILERS = ("cc", "gcc", "clang")
LEAST = 64 << 20
"""The fewest bytes of an array: far above the caches of processors that do not report their size."""
CACHES = "/sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"
BINARY = opt("-b --binary", "binary", text, "the program, compiled beforehand (default: compiled here with cc)", "")


def built(host: Host, name: str, binary: str) -> Union[str, Outcome]:
    """The path of one of our C programs, compiled for this node's processor; the UNKNOWN if it cannot be."""
    if binary:
        return binary
    compiler = next((name for name in COMPILERS if host.which(name)), None)
    if compiler is None:
        return deep.missing(host, f"{name}: there is no C compiler here, and no --binary was given", *COMPILERS)
    if not deep.scratch(host):
        return deep.NOT_ALONE
    from nhc.core.data.reader import read

    path = f"{deep.scratch(host)}/{name}"
    argv = [compiler, "-O3", "-march=native", "-pthread", "-x", "c", "-o", path, "-", "-lm"]
    done = deep.attempt(host, argv, deep.START, stdin=read(f"{name}.c"))
    if isinstance(done, Outcome):
        return done
    if done.status:
        return unknown("DeepNoCompiler", f"{name} cannot be compiled here", evidence=deep.tail(done))
    return path


def last_level_cache(host: Host) -> int:
    """Bytes of all last-level caches of the node, each once; 0 if the kernel does not tell."""
    sizes: Dict[int, Dict[str, str]] = {}
    for path in host.glob(f"{CACHES}/size"):
        index = path.rpartition("/")[0]
        level = host.read_or(f"{index}/level")
        if level.isdigit():
            shared = host.read_or(f"{index}/shared_cpu_list") or index
            sizes.setdefault(int(level), {})[shared] = host.read_or(path)
    if not sizes:
        return 0
    try:
        return sum(size_bytes(size) for size in sizes[max(sizes)].values())
    except ValueError:
        return 0


@check(
    "check_deep_triad",
    opt("-t --time", "duration", seconds, "how long to measure", 10.0),
    opt("-s --size", "size", size_bytes, "bytes of one of the three arrays (default: four times the last-level cache)"),
    BINARY,
    deep.FLOOR,
    timeout=deep.OVERHEAD + deep.START,
    tags=("mem",),
)
def check_deep_triad(
    host: Host, duration: float = 10.0, size: Optional[int] = None, binary: str = "", floor: Optional[float] = None
) -> Judged:
    """Memory is as fast as it should be.

    Copy, scale, add and triad over three arrays on every processor, each bound and with its own part of the memory. A
    program of our own (nhc/core/data/triad.c), compiled on the node, or given with --binary. Its triad is what STREAM
    measures; STREAM's licence keeps that name for unmodified code, so that this is called triad. CRIT where the arrays
    do not hold what they must, or triad is below what a machine of this type reaches.

    Example: * |context deep| check_deep_triad -t 20s
    """
    sizes = memory(host)
    room = sizes.usable * 1024 // 5
    wanted = size or max(4 * last_level_cache(host), LEAST)
    if wanted > room:
        return unknown("DeepNoRoom", f"three arrays of {show_kb(wanted // 1024)} do not fit into the available memory")
    program = built(host, "triad", binary)
    if isinstance(program, Outcome):
        return program
    argv = [program, str(wanted), f"{duration:g}"]
    ran = deep.measure(host, argv, duration + deep.START, "triad", lambda done: parse_triad(done.stdout))
    if isinstance(ran, Outcome):
        return ran
    done, result = ran
    if result.validated is False:
        return crit("DeepWrongResult", "triad: the arrays do not hold what they must", evidence=deep.tail(done))
    if (
        done.status
        or not result.ended
        or result.validated is None
        or set(result.rates) != {"copy", "scale", "add", "triad"}
    ):
        return deep.no_proof("triad", f"status {done.status}, {len(result.rates)} of 4 kernels", done)
    if result.array < wanted - 8 or result.threads < 1:
        return deep.no_proof("triad", f"it measured arrays of {result.array} bytes, not {wanted}", done)
    judged = deep.hold(host, deep.Measured("host_triad", result.rates["triad"], "GB/s"), floor)
    others = tuple(Metric(f"host_{name}", rate, "GB/s") for name, rate in result.rates.items() if name != "triad")
    return judged._replace(metrics=(*judged.metrics, *others))


@check(
    "check_deep_cpu_gemm",
    opt("-t --time", "duration", seconds, "how long to compute", 60.0),
    BINARY,
    timeout=deep.OVERHEAD + deep.START,
    tags=("cpu",),
)
def check_deep_cpu_gemm(host: Host, duration: float = 60.0, binary: str = "") -> Judged:
    """Every core gives the same bits, and the right ones.

    Multiplies matrices on every core at once (nhc/core/data/gemm_cpu.c, compiled on the node or given with --binary):
    whole numbers, whose row sums prove the product exactly, and floating point, whose bits must be the same each time
    and on every core. A core that computes wrongly, always or now and then, is CRIT by name.

    Example: * |context deep| check_deep_cpu_gemm -t 10m
    """
    return burn_processors(host, duration, binary)


def burn_processors(host: Host, duration: float, binary: str = "") -> Judged:
    """What check_deep_cpu_gemm does, for others that fall back on it."""
    program = built(host, "gemm_cpu", binary)
    if isinstance(program, Outcome):
        return program
    argv = [program, f"{duration:g}"]
    ran = deep.measure(host, argv, duration + deep.START, "gemm_cpu", lambda done: parse_burn(done.stdout))
    return ran if isinstance(ran, Outcome) else judge_burn(host, *ran, duration, expect=None, floor=deep.NONE)


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
    ran = deep.measure(host, argv, limit, "gemm_burn", lambda done: parse_burn(done.stdout))
    return ran if isinstance(ran, Outcome) else judge_burn(host, *ran, duration, expect, floor)


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
        return judge_gpu_burn(host, parse_gpu_burn(done.output), done, models, floor)
    if burn == "gpu-fryer":
        return judge_fryer(host, parse_gpu_fryer(done.output), done, models, floor)
    return judge_rvs(parse_rvs(done.output), done, len(models))
