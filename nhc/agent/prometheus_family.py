"""One metric in Prometheus' text format."""

from __future__ import annotations

from typing import Dict, Tuple

from nhc.model import printable
from nhc.render import prometheus

Labels = Tuple[Tuple[str, str], ...]


class Family:
    """One metric's samples in Prometheus' text format."""

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name, self.kind, self.help = name, kind, help
        self.samples: Dict[Labels, float] = {}

    def add(self, value: float, /, **labels: str) -> None:
        self.samples[tuple(labels.items())] = value

    def render(self) -> str:
        if not self.samples:
            return ""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{_labels(labels)} {prometheus.number(value)}" for labels, value in self.samples.items()]
        return "\n".join(lines) + "\n"


def gauge(name: str, help: str, value: float) -> Family:
    family = Family(name, "gauge", help)
    family.add(value)
    return family


def counter(name: str, help: str, value: float) -> Family:
    family = Family(name, "counter", help)
    family.add(value)
    return family


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
