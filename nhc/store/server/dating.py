"""When the reports of a push were made, by this server's clock. A node's clock may be wrong, and be set at any time."""

from __future__ import annotations

from typing import List, NamedTuple

from nhc.marks.push import Push
from nhc.store.intake import SKEW, Incoming

SOURCE = "agent"


class Dated(NamedTuple):
    """The reports of a push.

    `ahead` is by how many seconds the node's clock is ahead of this one, 0 where it is not known or within SKEW.
    """

    reports: List[Incoming]
    ahead: float = 0.0


def dated(pushed: Push, received: float) -> Dated:
    """A push that came in at `received` (Unix time). A report of the boot in which it was sent has its age with it.

    Results of deep checks keep the node's time: it identifies them when they are sent twice.
    """
    reports, off = [], 0.0
    for report, complete, at, suite, seq, unchanged in pushed.reports:
        incoming = Incoming(report, SOURCE, received, complete, at, suite, seq, unchanged=unchanged)
        if 0 < seq <= pushed.seq and pushed.boot and report.boot_id == pushed.boot and not suite:
            made = received - (pushed.seq - seq) / 1000
            incoming = incoming._replace(made=made, stamped=at)
            if abs(at - made) > SKEW:
                off = at - made
                incoming = incoming._replace(at=made, report=report._replace(started=report.started - off))
        reports.append(incoming)
    return Dated(reports, off)
