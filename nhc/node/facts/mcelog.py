"""What the mcelog daemon counted, from `mcelog --client` (mcelog's memdb.c and its client protocol)."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import List, Tuple

_COUNT = regex(r"\s*(\d{1,18}) (?:in (.+)|total)")
_ANY = regex(r"\bany\b")
_PLACE = regex(r'DMI_NAME "([^"]*)"')


class Errors(NamedTuple):
    """One kind of error at one place. `recent` is the count within `period`, which mcelog's default makes 24h.

    `place` is mcelog's: `SOCKET 0 CHANNEL 1 DIMM 0`, with the board's label where it knows one. `any`
    in it says that mcelog could not tell more closely, or sums up what lies below.
    """

    place: str
    corrected: bool
    total: int
    recent: int
    period: str

    @property
    def exact(self) -> bool:
        """Whether one module is named, rather than a socket or channel as a whole."""
        return not _ANY.search(self.place)


def parse_mcelog(text: str) -> Tuple[Errors, ...]:
    """Every count in the client's answer, in its order; none in a text of another kind."""
    counts: List[Errors] = []
    place = ""
    kind = ""
    total = 0
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("SOCKET"):
            place, kind = stripped, ""
        elif stripped.startswith("DMI_NAME"):
            label = _PLACE.match(stripped)
            place = f"{place} ({label[1]})" if label and place else place
        elif stripped in ("corrected memory errors:", "uncorrected memory errors:"):
            kind, total = stripped, 0
        elif kind:
            count = _COUNT.fullmatch(line)
            if count is None:
                kind = ""
            elif count[2] is None:
                total = int(count[1])
            else:
                counts.append(Errors(place, kind.startswith("corrected"), total, int(count[1]), count[2]))
                kind = ""
    return tuple(counts)
