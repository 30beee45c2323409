"""Sending notices as the rounds of a service."""

from __future__ import annotations

import time
from typing import Optional

from nhc.notices import metrics, service
from nhc.notices.service import NoticeRound, NoticeService
from nhc.notices.settings import NoticesSettings
from nhc.rounds.service import RoundEnd
from nhc.store.database import Fence, Store


class NoticeRounds:
    """`once`: a round waits until every channel has answered.

    /healthz speaks of this process and its store: a channel that is away is `nhc_notices_channel_up`, since no restart
    of ours brings it back.
    """

    def __init__(self, settings: NoticesSettings, store: Store, once: bool) -> None:
        self.patience = None if once else service.PATIENCE
        self.settings, self.store = settings, store
        self.service = NoticeService(store, settings)
        self.totals = metrics.NoticeTotals()
        self.fence: Optional[Fence] = None
        self.last: Optional[NoticeRound] = None
        self.began = 0.0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.fence = fence

    def round(self) -> RoundEnd:
        """See RoundWork."""
        self.began = time.time()
        self.last = self.service.round(self.fence, self.patience)
        self.totals.add(self.last)
        return RoundEnd(tuple(self.last.problems))

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        status = service.status(self.store, self.settings)
        return metrics.render(status, self.last, self.totals, self.began, time.time())

    def standby(self) -> str:
        """See RoundWork."""
        return metrics.STANDS_BY
