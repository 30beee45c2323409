"""The instances into which GPUs are divided (NVIDIA's MIG), as `nvidia-smi -L` lists them below their GPU."""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")


def parse(text: str) -> Dict[str, List[Tuple[str, str]]]:
    """By each GPU's UUID its instances: profile (`3g.20gb`) and UUID. A GPU that is whole has none.

    Raises ValueError where the text names no GPU.
    """
    instances: Dict[str, List[Tuple[str, str]]] = {}
    below = ""
    for line in text.splitlines():
        gpu, instance = _GPU.match(line), _INSTANCE.match(line)
        if gpu:
            below = gpu.group(1)
            instances[below] = []
        elif instance and below:
            instances[below].append((instance.group(1), instance.group(3)))
    if not instances:
        raise ValueError("no GPU is listed")
    return instances
