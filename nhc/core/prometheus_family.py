"""One metric in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable

if TYPE_CHECKING:
    from typing import Dict, Tuple

    from typing_extensions import TypeAlias

Labels: TypeAlias = "Tuple[Tuple[str, str], ...]"


class Family:
    """The samples of one metric. `kind` is gauge or counter; without a sample nothing is shown."""

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name, self.kind, self.help = name, kind, help
        self.samples: Dict[Labels, float] = {}

    def add(self, value: float, /, **labels: str) -> None:
        self.samples[tuple(labels.items())] = value

    def render(self) -> str:
        if not self.samples:
            return ""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{_labels(labels)} {number(value)}" for labels, value in self.samples.items()]
        return "\n".join(lines) + "\n"


def gauge(name: str, help: str, value: float) -> Family:
    """A gauge of one sample."""
    family = Family(name, "gauge", help)
    family.add(value)
    return family


def counter(name: str, help: str, value: float) -> Family:
    """A counter of one sample."""
    family = Family(name, "counter", help)
    family.add(value)
    return family


def number(value: float) -> str:
    """A value without the noise of its binary form: 0.3, not 0.29999999999999999 nor 0.30000000000000004."""
    return str(int(value)) if isinstance(value, int) else repr(float(f"{value:.15g}")).removesuffix(".0")


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
