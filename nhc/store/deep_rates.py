"""What deep checks measured of each board over time, folded: how often, the range, the middle, and the last."""

from __future__ import annotations

from statistics import median
from typing import Dict, Iterable, List, NamedTuple, Tuple

from nhc.store.deep import DeepResult


class MeasuredRate(NamedTuple):
    """One value of one board (or, without a serial number, of one device of a node), as it went.

    `node` and `device` are where it was measured last. `values` are Unix times and values, the oldest first.
    """

    serial: str
    node: str
    device: str
    test: str
    unit: str
    values: Tuple[Tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The value that was measured last."""
        return self.values[-1][1]

    @property
    def middle(self) -> float:
        """The median of all."""
        return median(value for _at, value in self.values)

    @property
    def change(self) -> float:
        """How far the last is from the median, in percent; 0 where the median is 0."""
        return 100.0 * (self.last / self.middle - 1.0) if self.middle else 0.0


def rates(rows: Iterable[DeepResult]) -> List[MeasuredRate]:
    """The values of results, in the order of boards and tests. Results without a value or a device are left out."""
    results: Dict[Tuple[str, str, str, str, str], List[DeepResult]] = {}
    for row in sorted(rows, key=lambda row: row.at):
        if row.value is not None and row.device:
            where = ("", "") if row.serial else (row.node, row.device)
            results.setdefault((row.serial, *where, row.test, row.unit), []).append(row)
    folded = [
        MeasuredRate(
            serial, rows[-1].node, rows[-1].device, test, unit, tuple((row.at, float(row.value or 0)) for row in rows)
        )
        for (serial, _node, _device, test, unit), rows in results.items()
    ]
    return sorted(folded, key=lambda rate: (rate.node, rate.device, rate.serial, rate.test))
