"""The remedy loop over nodes of the control plane: the settings of its tests, and its rounds until an episode ends."""

from __future__ import annotations

from typing import Callable

from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.remedy_file import parse
from nhc.remedy.settings import RemedySettings
from nhc.store import episodes
from nhc.store.database import Store


def settings(*actions: str, verify: str = 'healthy-for = "1s"', more: str = "", out: int = 1) -> RemedySettings:
    """So many nodes `out` at a time, by Kubernetes' own view of it; these actions are on, and `more` tables follow."""
    switched = "\n".join(f'{action} = "on"' for action in ("mark", *actions))
    return parse(f"""
[actions]
{switched}
[sources]
adapter = "kubernetes"
settle = "0s"
[bounds.fleet]
out = "{out}"
[breaker]
faults = "5"
blind = "100%"
[verify]
grace = "0s"
{verify}
{more}
""")


def ends(loop: EpisodeLoop, store: Store, agent: Callable[[], object] = lambda: None) -> Callable[[], bool]:
    """One more round, and whether an episode has ended. `agent` is what the nodes' agents say before it."""

    def over() -> bool:
        agent()
        loop.round()
        with store.read() as connection:
            return any(row.ended is not None for row in episodes.list_episodes(connection))

    return over
