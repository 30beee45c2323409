"""The result of our own burns (nhc/core/data/gemm_burn.py, nhc/core/data/gemm_cpu.c): one JSON object a line, the
last its end.

{"kind": "begin", "engine": "torch", "version": "2.5.1", "size": 8192, "dtype": "bf16", "seconds": 60}
{"kind": "device", "device": 0, "name": "...", "rounds": 812, "seconds": 60.0, "tflops": 712.4, "slowest": 690.1,
"hash": "91c1...", "changed": 0, "wrong": 0, "nan": 0}
{"kind": "end", "devices": 8}
"""

from __future__ import annotations

from nhc.core.json_values import parse_object, text_in, whole_in
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure

if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


class Burned(NamedTuple):
    """One device or processor. Rounds that gave other bits than its own first are `changed`; values that a row or
    column sum proves wrong are `wrong`; `hash` is of the first product's bytes. `tflops` 0 where not measured.
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
    """A whole burn. `ended` says that its last line is there and counts what is listed; `trouble` is its own word."""

    engine: str
    version: str
    size: int
    dtype: str
    seconds: float
    devices: Tuple[Burned, ...]
    ended: bool
    trouble: str = ""


def parse(text: str) -> Burn:
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
