"""Sending notices as the rounds of a service, and their metrics. Waiting messages are counted in the store."""

from __future__ import annotations

import time
from collections import Counter
from typing import Counter as CounterOf
from typing import Optional, Set

from nhc.console.notices import service
from nhc.console.notices.service import NoticeService
from nhc.console.notices.settings import NoticesSettings
from nhc.core.prometheus_family import Family, gauge
from nhc.store.database import Fence, Store
from nhc.store.rounds.service import RoundEnd


class NoticeRounds:
    """`once`: a round waits until every channel has answered.

    /healthz speaks of this process and its store: a channel that is away is `nhc_notices_channel_up`, since no restart
    of ours brings it back.
    """

    prefix = "nhc_notices"

    def __init__(self, settings: NoticesSettings, store: Store, once: bool) -> None:
        self.patience = None if once else service.PATIENCE
        self.settings, self.store = settings, store
        self.service = NoticeService(store, settings)
        self.fence: Optional[Fence] = None
        self.sent: CounterOf[str] = Counter()
        self.lost: CounterOf[str] = Counter()
        self.down: Set[str] = set()
        self.withheld = 0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.fence = fence

    def round(self) -> RoundEnd:
        """See RoundWork."""
        done = self.service.round(self.fence, self.patience)
        self.withheld = done.withheld
        for name, channel in done.channels.items():
            self.sent[name] += channel.sent
            self.lost[name] += channel.lost
            if channel.problem:
                self.down.add(name)
            elif channel.sent:
                self.down.discard(name)  # a round that had nothing due says nothing about the channel
        return RoundEnd(tuple(done.problems))

    def page(self) -> str:
        """See RoundWork."""
        waiting = Family("nhc_notices_waiting", "gauge", "Messages that wait for a channel.")
        oldest = Family(
            "nhc_notices_oldest_waiting_seconds", "gauge", "Age of the oldest message that waits; 0 for none."
        )
        up = Family(
            "nhc_notices_channel_up",
            "gauge",
            "0 from a message that a channel refused or did not answer to the next it takes.",
        )
        sent = Family("nhc_notices_sent_total", "counter", "Messages that a channel has taken, since the start.")
        lost = Family("nhc_notices_lost_total", "counter", "Messages that were refused or given up, since the start.")
        for name, count in service.status(self.store, self.settings).items():
            waiting.add(float(count.waiting), channel=name)
            oldest.add(max(0.0, time.time() - count.oldest) if count.oldest is not None else 0.0, channel=name)
            up.add(0.0 if name in self.down else 1.0, channel=name)
            sent.add(float(self.sent[name]), channel=name)
            lost.add(float(self.lost[name]), channel=name)
        withheld = gauge("nhc_notices_withheld", "Incidents that the last round held back.", float(self.withheld))
        return "".join(family.render() for family in (waiting, oldest, up, sent, lost, withheld))
