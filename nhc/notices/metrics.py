"""The metrics of `nhc notices run` in Prometheus' text. Waiting messages are counted in the store."""

from __future__ import annotations

from collections import Counter
from typing import Counter as CounterOf
from typing import List, Mapping, Set

from nhc.notices.service import NoticeRound
from nhc.prometheus_family import Family, counter, gauge
from nhc.store.outbox import ChannelCount


def _leader(value: float) -> Family:
    return gauge("nhc_notices_leader", "1 while this process sends.", value)


STANDS_BY = _leader(0.0).render()
"""The page of a process that waits while another sends."""


class NoticeTotals:
    """What was counted since this process began."""

    def __init__(self) -> None:
        self.sent: CounterOf[str] = Counter()
        self.lost: CounterOf[str] = Counter()
        self.down: Set[str] = set()
        self.rounds = self.failed = 0

    def add(self, done: NoticeRound) -> None:
        """One round more."""
        self.rounds += 1
        self.failed += 1 if done.problems else 0
        for name, channel in done.channels.items():
            self.sent[name] += channel.sent
            self.lost[name] += channel.lost
            if channel.problem:
                self.down.add(name)
            elif channel.sent:
                self.down.discard(name)  # a round that had nothing due says nothing about the channel


def render(
    channels: Mapping[str, ChannelCount], last: NoticeRound, totals: NoticeTotals, began: float, now: float
) -> str:
    """The page after a round of the process that sends, which began at `began`. Times are seconds of the clock.

    `channels` is what the store holds for each channel.
    """
    waiting = Family("nhc_notices_waiting", "gauge", "Messages that wait for a channel.")
    oldest = Family("nhc_notices_oldest_waiting_seconds", "gauge", "Age of the oldest message that waits; 0 for none.")
    up = Family(
        "nhc_notices_channel_up",
        "gauge",
        "0 from a message that a channel refused or did not answer to the next it takes.",
    )
    sent = Family("nhc_notices_sent_total", "counter", "Messages that a channel has taken, since the start.")
    lost = Family("nhc_notices_lost_total", "counter", "Messages that were refused or given up, since the start.")
    for name, count in channels.items():
        waiting.add(float(count.waiting), channel=name)
        oldest.add(max(0.0, now - count.oldest) if count.oldest is not None else 0.0, channel=name)
        up.add(0.0 if name in totals.down else 1.0, channel=name)
        sent.add(float(totals.sent[name]), channel=name)
        lost.add(float(totals.lost[name]), channel=name)
    families: List[Family] = [
        waiting, oldest, up, sent, lost,
        _leader(1.0),
        gauge("nhc_notices_withheld", "Incidents that the last round held back.", float(last.withheld)),
        gauge("nhc_notices_last_round_timestamp_seconds", "When the last round began.", began),
        counter("nhc_notices_rounds_total", "Rounds since the start.", totals.rounds),
        counter("nhc_notices_rounds_failed_total", "Rounds in which a channel had a problem.", totals.failed),
    ]  # fmt: skip
    return "".join(family.render() for family in families)
