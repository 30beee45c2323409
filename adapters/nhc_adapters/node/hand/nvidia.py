"""Parses NVIDIA's output: the list of `nvidia-smi -q -x`, and a reset's message for each GPU."""

from __future__ import annotations

import re
from typing import Dict, List, Sequence
from xml.etree.ElementTree import Element

from nhc.core.system.bounded_read import parse_xml
from nhc_adapters.node.hand.values import RepairDevice, RepairResult

SINGLE = ("ampere", "ada", "hopper", "blackwell")
"""Architectures of which one GPU of several that are joined by NVLink can be reset (nvidia-smi(1), --gpu-reset)."""

QUIET = ("", "none", "n/a")


def parse_devices(text: str) -> List[RepairDevice]:
    """The GPUs in the order of nvidia-smi's numbers. Raises ValueError where the text is no such list."""
    try:
        root = parse_xml(text)
    except ValueError as error:
        raise ValueError(f"nvidia-smi -q -x printed no XML: {error}") from None
    gpus = []
    for number, gpu in enumerate(root.iter("gpu")):
        minor = _text(gpu, "minor_number")
        mode = _text(gpu, "persistence_mode").lower()
        gpus.append(
            RepairDevice(
                number, gpu.get("id", ""), _text(gpu, "uuid"),
                (f"/dev/nvidia{minor}",) if minor.isdigit() else (),
                _text(gpu, "product_architecture").lower(),
                {"enabled": True, "disabled": False}.get(mode),
                _text(gpu, "gpu_recovery_action"),
                len(list(gpu.iter("mig_device"))),
            )
        )  # fmt: skip
    return gpus


def parse_links(text: str) -> Dict[int, bool]:
    """Which GPUs have an NVLink that is up, of `nvidia-smi nvlink -s`."""
    linked: Dict[int, bool] = {}
    number = -1
    for line in text.splitlines():
        head = re.match(r"GPU (\d+):", line)
        if head:
            number = int(head[1])
            linked[number] = False
        elif re.match(r"\s+Link \d+: [0-9.]+ GB/s", line) and number >= 0:
            linked[number] = True
    return linked


def bus(text: str) -> str:
    """A PCI address in one form: 0000:18:00.0 and 00000000:18:00.0 are the same."""
    match = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.strip().lower())
    return f"{(match[1] or '0').lstrip('0') or '0'}:{match[2]}" if match else text


def judge_reset(status: int, output: str, devices: Sequence[RepairDevice]) -> RepairResult:
    """What a reset printed, for each GPU. nvidia-smi ends with 255 where one of several failed."""
    results: Dict[str, str] = {}
    for line in output.splitlines():
        done = re.search(r"GPU (\S+) was successfully reset", line)
        failed = re.match(r"\s*GPU ([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-7]): (.+)", line)
        if done:
            results[bus(done[1])] = "reset"
        elif failed:
            results[bus(failed[1])] = failed[2].strip()
    mine = {device.label: results.get(bus(device.bus), "") for device in devices}
    bad = {label: text for label, text in mine.items() if text and text != "reset"}
    if bad:
        return RepairResult(False, "; ".join(f"{label}: {text}" for label, text in bad.items()), mine)
    silent = [label for label, text in mine.items() if not text]
    if status or silent:
        last = " ".join(output.split())[-200:] or "nothing"
        return RepairResult(
            False, f"nvidia-smi ended with {status} and said of {', '.join(silent) or 'the reset'}: {last}", mine
        )
    return RepairResult(True, f"{', '.join(mine)} reset", mine)


def judge_after(devices: Sequence[RepairDevice], now: Sequence[RepairDevice]) -> RepairResult:
    """Whether the GPUs answer after a repair, and ask for no other."""
    if not now:
        return RepairResult(False, "nvidia-smi lists no GPU")
    there = {bus(device.bus): device for device in now}
    bad = []
    for device in devices:
        after = there.get(bus(device.bus))
        if after is None:
            bad.append(f"{device.label} is not listed any more")
        elif after.recovery.lower() not in QUIET:
            bad.append(f"{device.label} still asks for: {after.recovery}")
    return RepairResult(not bad, "; ".join(bad) or f"{', '.join(device.label for device in devices or now)} answers")


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
