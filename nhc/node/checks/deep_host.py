"""Memory bandwidth and arithmetic of the processors: two programs of our own, compiled on the node."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Metric, Outcome, crit, unknown
from nhc.core.units import seconds, show_kb, size_bytes, text
from nhc.node.checks import deep
from nhc.node.checks.deep_burns import judge as judge_burn
from nhc.node.facts.meminfo import memory
from nhc.node.facts.tools import gemm
from nhc.node.facts.tools.memory_tests import parse_triad

if TYPE_CHECKING:
    from typing import Dict, Optional, Union

COMPILERS = ("cc", "gcc", "clang")
LEAST = 64 << 20
"""Bytes of an array at least: far above the caches of processors that do not tell their size."""
CACHES = "/sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"
BINARY = opt("-b --binary", "binary", text, "the program, compiled beforehand (default: compiled here with cc)", "")


def built(host: Host, name: str, binary: str) -> Union[str, Outcome]:
    """The path of one of our C programs, compiled for this node's processor; the UNKNOWN where it cannot be."""
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
    """Bytes of all last-level caches of the node, each once; 0 where the kernel does not tell."""
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
    ran = deep.measure(host, argv, duration + deep.START, "gemm_cpu", lambda done: gemm.parse(done.stdout))
    return ran if isinstance(ran, Outcome) else judge_burn(host, *ran, duration, expect=None, floor=deep.NONE)
