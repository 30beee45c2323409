"""Settings of GPUs that a test may change: seen before a run, compared and put back after it.

Asked and set through nvidia-smi. Locked clocks (-lgc, -lmc) cannot be asked for, so that they cannot be put back: no
check of ours sets them. A MIG mode that has changed is put back without its instances, whose layout is gone.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from nhc.core.host import Host

QUERY = ("uuid", "persistence_mode", "compute_mode", "power.limit", "clocks.applications.graphics",
         "clocks.applications.memory", "mig.mode.current")  # fmt: skip
ABSENT = ("", "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]")
COMPUTE = {"Default": "0", "Exclusive_Thread": "1", "Prohibited": "2", "Exclusive_Process": "3"}
TIMEOUT = 60.0


class GpuSettings(NamedTuple):
    """One GPU's settings in nvidia-smi's words, "" for one that it does not have."""

    uuid: str
    persistence: str = ""
    compute: str = ""
    power_limit: str = ""
    graphics_clock: str = ""
    memory_clock: str = ""
    mig: str = ""


def parse(text: str) -> Tuple[GpuSettings, ...]:
    """What nvidia-smi --query-gpu printed as CSV without header and units. Raises ValueError."""
    gpus = []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(QUERY) or not cells[0].startswith(("GPU-", "MIG-")):
            raise ValueError(f"not a line of nvidia-smi: {line[:80]!r}")
        gpus.append(GpuSettings(*("" if cell in ABSENT else cell for cell in cells)))
    return tuple(gpus)


def read(host: Host) -> Tuple[GpuSettings, ...]:
    """The settings of all GPUs; none where there is no nvidia-smi. Raises ValueError or OSError where it fails."""
    if host.which("nvidia-smi") is None:
        return ()
    done = host.run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"], TIMEOUT)
    if done.status or done.timed_out:
        raise ValueError(f"nvidia-smi: {done.complaint}")
    return parse(done.stdout)


def commands(before: GpuSettings, now: Optional[GpuSettings]) -> List[Tuple[str, ...]]:
    """What puts one GPU's settings back, MIG first since it takes the rest with it. Pure."""
    if now is None or before == now:
        return []
    gpu = ("nvidia-smi", "-i", before.uuid)
    settings = (
        ("-mig", before.mig, now.mig, "1" if before.mig == "Enabled" else "0"),
        ("-pm", before.persistence, now.persistence, "1" if before.persistence == "Enabled" else "0"),
        ("-c", before.compute, now.compute, COMPUTE.get(before.compute, "")),
        ("-pl", before.power_limit, now.power_limit, before.power_limit),
    )
    argvs: List[Tuple[str, ...]] = [
        (*gpu, option, value) for option, was, there, value in settings if was and value and was != there
    ]
    clocks = (before.memory_clock, before.graphics_clock)
    if all(clocks) and clocks != (now.memory_clock, now.graphics_clock):
        argvs.append((*gpu, "-ac", ",".join(clocks)))
    return argvs


def put_back(host: Host, before: Tuple[GpuSettings, ...]) -> Tuple[List[str], List[str]]:
    """Put back what has changed: what was done, and what could not be, a line each."""
    done: List[str] = []
    failed: List[str] = []
    if not before:
        return done, failed
    try:
        now: Dict[str, GpuSettings] = {gpu.uuid: gpu for gpu in read(host)}
    except (OSError, ValueError) as error:
        return done, [f"the settings of the GPUs cannot be read: {error}"]
    for gpu in before:
        if gpu.uuid not in now:
            failed.append(f"{gpu.uuid} is gone: its settings cannot be put back")
        for argv in commands(gpu, now.get(gpu.uuid)):
            try:
                ended = host.run(list(argv), TIMEOUT)
                complaint = ended.complaint
                succeeded = not ended.status and not ended.timed_out
            except OSError as error:
                complaint, succeeded = str(error.strerror), False
            (done if succeeded else failed).append(f"{' '.join(argv)}{'' if succeeded else f': {complaint}'}")
    return done, failed
