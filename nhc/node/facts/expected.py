"""Expected figures of deep checks: a table by node type and metric, each row with tolerance and source.

Ours is nhc/core/data/deep_expected.tsv, a site's own /etc/nhc/deep-expected.tsv (`nhc deep calibrate` writes one). A
metric without a row has no threshold: nothing is judged by a figure without a known source.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

    from nhc.core.host import Host

SITE = "/etc/nhc/deep-expected.tsv"
SHIPPED = "deep_expected.tsv"
COLUMNS = ("kind", "metric", "bound", "expected", "unit", "tolerance", "from", "source", "spread")
"""The last may be missing: tables of earlier versions have none."""
UNITS = ("GB/s", "Gb/s", "TFLOPS", "us", "Cel", "MHz", "%")


class Expected(NamedTuple):
    """One row. `at_least` says that less is worse; `tolerance` is a share; `size` the smallest size it applies to, in
    bytes.

    `spread` is the share by which healthy machines of the kind differ, 0 if that is not known.
    """

    kind: str
    metric: str
    at_least: bool
    expected: float
    unit: str
    tolerance: float
    size: int
    source: str
    spread: float = 0.0

    @property
    def threshold(self) -> float:
        """The worst figure that passes."""
        return self.expected * (1 - self.tolerance if self.at_least else 1 + self.tolerance)

    def share(self, part: float) -> float:
        """The figure that is `part` (0 to 1) of what is expected: so much less of a speed, so much more of a time."""
        return self.expected * part if self.at_least else self.expected / part


def parse(text: str, name: str) -> Tuple[Expected, ...]:
    """The rows of a table. Raises ValueError naming file, line and what was expected."""
    rows: List[Expected] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split("\t")
        try:
            if len(cells) not in (len(COLUMNS) - 1, len(COLUMNS)):
                raise ValueError(f"expected {len(COLUMNS)} columns with tabs between them, not {len(cells)}")
            rows.append(_row([cell.strip() for cell in cells]))
        except ValueError as error:
            raise ValueError(f"{name}:{number}: {error}") from None
    return tuple(rows)


def _row(cells: Sequence[str]) -> Expected:
    kind, metric, bound, expected, unit, tolerance, size, source, *more = cells
    if bound not in ("least", "most"):
        raise ValueError(f"bound: expected least or most, not {bound!r}")
    if unit not in UNITS:
        raise ValueError(f"unit: expected one of {', '.join(UNITS)}, not {unit!r}")
    if not kind or not metric or not source:
        raise ValueError("kind, metric and source must not be empty")
    figure, share = _number("expected", expected), _number("tolerance", tolerance)
    if not 0 < figure < 1e12 or not 0 <= share < 100:
        raise ValueError(f"expected above 0 and a tolerance of 0 to 99 percent, not {expected} and {tolerance}")
    spread = _number("spread", more[0]) if more and more[0] else 0.0
    if not 0 <= spread < 100:
        raise ValueError(f"spread: expected 0 to 99 percent, not {more[0]}")
    if not size.isdigit():
        raise ValueError(f"from: expected a size in bytes, not {size!r}")
    return Expected(kind, metric, bound == "least", figure, unit, share / 100, int(size), source, spread / 100)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: expected a number, not {text!r}") from None


def format_row(row: Expected) -> str:
    """The row as a line of the table."""
    cells = (row.kind, row.metric, "least" if row.at_least else "most", f"{row.expected:g}", row.unit,
             f"{row.tolerance * 100:g}", str(row.size), row.source,
             *([f"{row.spread * 100:.3g}"] if row.spread else []))  # fmt: skip
    return "\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells)


def find(
    tables: Sequence[Sequence[Expected]], kinds: Sequence[str], metric: str, size: int = 0, device: str = ""
) -> Optional[Expected]:
    """The row to judge by: from the first table that has one, by the first kind that has one, else by the GPU's name.
    Of several rows that a size allows, the one for the greatest size counts; of several names, the longest.
    """
    for table in tables:
        rows = [row for row in table if row.metric == metric and row.size <= size]
        for kind in kinds:
            own = [row for row in rows if row.kind == kind]
            if own:
                return max(own, key=lambda row: row.size)
        named = [row for row in rows if row.kind.startswith("gpu:") and _named(device, row.kind[4:])]
        if named:
            return max(named, key=lambda row: (len(row.kind), row.size))
    return None


def _named(device: str, name: str) -> bool:
    return bool(device) and (device.startswith(name[:-1]) if name.endswith("*") else device == name)


def tables(host: Host) -> Tuple[Tuple[Expected, ...], Tuple[Expected, ...]]:
    """The site's table, empty if it has none, and ours. Raises ValueError for a site's line that makes no sense."""
    from nhc.core.data.reader import read

    shipped = parse(read(SHIPPED), SHIPPED)
    path = host.setting("NHC_DEEP_EXPECTED") or SITE
    try:
        own = parse(host.read(path, 16 << 20), path)
    except FileNotFoundError:
        return (), shipped
    return own, shipped
