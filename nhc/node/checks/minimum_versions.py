"""No software of the node is older than a published security fix."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Outcome, ok, skip, unknown, warn
from nhc.core.units import text
from nhc.node.facts.components import components
from nhc.node.facts.packages import compare_versions

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Set

SITE = "/etc/nhc/minimum-versions.tsv"
BUILT_IN = "minimum_versions.tsv"
OLD = 90
"""Days after which a look at the bulletins is old: NVIDIA publishes for its drivers every three to four months."""


class Minimum(NamedTuple):
    """The least good version of a component's branch. `read` is the day since 1970 when bulletins were last read."""

    component: str
    branch: str
    version: str
    read: int
    bulletin: str

    def is_of(self, version: str) -> bool:
        return (
            self.branch == "*" or version == self.branch or version.startswith((f"{self.branch}.", f"{self.branch}-"))
        )


def parse(content: str, source: str) -> List[Minimum]:
    """The rows of a table; `#` begins a comment, the head is optional. Raises ValueError naming the line."""
    from datetime import date

    rows = []
    for number, line in enumerate(content.splitlines(), 1):
        cells = line.split()
        if not cells or cells[0].startswith("#") or cells[0] == "component":
            continue
        try:
            component, branch, version, published, read, bulletin = cells
            date.fromisoformat(published)
            day = date.fromisoformat(read).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError as error:
            raise ValueError(f"{source}:{number}: {line.strip()[:80]!r}: {error}") from None
        rows.append(Minimum(component, branch, version, day, bulletin))
    return rows


@check(
    "check_minimum_versions", opt("-f --file", "file", text, "the table to compare with", ""), timeout=40, every=86400
)
def check_minimum_versions(host: Host, file: str = "") -> Judged:
    """No software of the node is older than a published security fix.

    Compares the NVIDIA driver, container toolkit, CUDA toolkit, DCGM, Docker, runc, the firmware of ConnectX and
    BlueField adapters and Ubuntu's kernel with a table of least versions, each with its bulletin
    (nhc/core/data/minimum_versions.tsv; /etc/nhc/minimum-versions.tsv or -f take its place). Nothing is asked over the
    network. Older is WARN, and never more: whether it matters is the site's to say. An older branch without a row gets
    no fixes any more and is WARN; one newer than all rows is newer than the bulletin. The newest of several CUDA
    toolkits counts. What the distribution builds itself (its runc, its Docker) is left to its own updates, since its
    numbers do not tell what was mended. The message says whose bulletins were last read over 90 days ago.

    Example: * |every 1d| check_minimum_versions
    """
    path = file or (SITE if host.ours.exists(SITE) else "")
    try:
        rows = parse(host.ours.read(path), path) if path else _built_in()
    except OSError as error:
        return unknown("MinimumVersionsUnusable", f"{path}: {error.strerror}")
    except ValueError as error:
        return unknown("MinimumVersionsUnusable", str(error))
    there = components(host)
    outcomes: List[Outcome] = [
        unknown("ComponentUnread", f"{name} does not tell its version: {why}", target=name)
        for name, why in sorted(there.unread.items())
    ]
    compared: Set[Minimum] = set()
    for name, version, where in there.found:
        of_it = [row for row in rows if row.component == name]
        compared.update(of_it)
        fix = _missing(version, of_it)
        if fix is not None:
            outcomes.append(warn("VersionVulnerable", f"{name} {version} ({where}) is older than {fix.version}: "
                                 f"{fix.bulletin}", target=name, action=Action.INSPECT))  # fmt: skip
        elif of_it:
            outcomes.append(ok(f"{name} {version} has the published fixes", target=name))
    if not outcomes:
        left = f"; left to the distribution: {', '.join(there.distribution)}" if there.distribution else ""
        return skip("NothingToCompare", f"nothing here that the table of least versions knows{left}")
    said = _age(compared, host.time())
    return [outcome._replace(message=outcome.message + said) for outcome in outcomes] if said else outcomes


def _built_in() -> List[Minimum]:
    from nhc.core.data.reader import read

    return parse(read(BUILT_IN), BUILT_IN)


def _missing(version: str, rows: Sequence[Minimum]) -> Optional[Minimum]:
    """The fix that `version` lacks: its branch's, else, where its branch has none, the next newer branch's."""
    from functools import cmp_to_key

    own = [row for row in rows if row.is_of(version)]
    lacking = [row for row in own or rows if compare_versions(version, row.version) < 0]
    if not lacking:
        return None
    by_version = cmp_to_key(compare_versions)
    return min(lacking, key=lambda row: by_version(row.version))


def _age(rows: Set[Minimum], now: float) -> str:
    old = sorted({row.component for row in rows if now / 86400 - row.read > OLD})
    if not old:
        return ""
    oldest = min(row.read for row in rows)
    return f" (bulletins of {', '.join(old)} last read {int(now // 86400) - oldest} days ago)"
