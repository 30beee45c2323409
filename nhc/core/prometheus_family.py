"""One metric in Prometheus' text format, and a page of them as a scraper asks for it.

https://prometheus.io/docs/instrumenting/exposition_formats/, https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

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


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def page_for(accept: str, text: str) -> Tuple[str, str]:
    """The content type and the page for a scraper that sent this Accept header: OpenMetrics where it names that.

    There a counter's family has no `_total`, and `# EOF` says that the page is whole. `text` is in Prometheus' format.
    """
    kinds = [kind.partition(";")[0].strip() for kind in accept.split(",")]
    if "application/openmetrics-text" not in kinds:
        return TEXT, text
    lines = text.splitlines()
    counters = {line.split(" ")[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")}
    for place, line in enumerate(lines):
        words = line.split(" ", 3)
        if line.startswith(("# TYPE ", "# HELP ")) and words[2] in counters:
            if words[2].endswith("_total"):
                lines[place] = " ".join([*words[:2], words[2][: -len("_total")], *words[3:]])
            elif words[1] == "TYPE":
                lines[place] = f"# TYPE {words[2]} unknown"
    return OPEN_METRICS, "".join(f"{line}\n" for line in [*lines, "# EOF"])


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
