"""When a repaired node counts as healthy. Pure.

A report counts only where its run began after the repair: after the effect was seen, or in a boot that is not the one
before. UNKNOWN proves nothing either way: the loop waits, never repairs because of it, and escalates at the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, NamedTuple, Optional

from nhc.model import Verdict
from nhc.remedy.machine import EpisodeEvent
from nhc.timestamps import utc

if TYPE_CHECKING:
    from nhc.ports.adapter import NodeState
    from nhc.remedy.settings import VerifySettings
    from nhc.remedy.view import Health
    from nhc.system.steady_time import SteadyTime


class Verification(NamedTuple):
    """An event, or None to wait for what `why` says; `healthy` is since when reports say healthy, 0.0 for not."""

    event: Optional[EpisodeEvent]
    why: str
    healthy: float
    bound: str = "verify"


class RepairedNode(NamedTuple):
    """What bears on the proof of one node. Times are Unix seconds, 0.0 for not: when the effect was seen, the state
    entered, the first of the healthy reports in a row, and a silent node heard again. `silence` is why its scheduler
    does not hear it, "" where it does; `proved` what the deep suite says, None for nothing yet.
    """

    repaired: float
    entered: float
    healthy: float = 0.0
    heard: float = 0.0
    health: Optional[Health] = None
    silence: str = ""
    proved: Optional[bool] = None


def silence_of(node: Optional[NodeState]) -> str:
    """Why a node is not heard by its scheduler, "" where it is."""
    return node.silence.why if node is not None and node.silence is not None else ""


def judge(
    node: RepairedNode, settings: VerifySettings, time: SteadyTime, fresh: bool, old_boots: FrozenSet[str] = frozenset()
) -> Verification:  # fmt: skip
    """Whether the node is proved healthy. `old_boots` are those before a repair that makes another one."""
    health = node.health
    since = time.moment(node.repaired or node.entered)
    if node.silence:
        return _silent(node, settings, time)
    newer = health is not None and (
        health.at > time.moment(max(node.repaired, node.heard))
        or bool(old_boots and health.boot and health.boot not in old_boots)
    )
    if health is not None and fresh and newer and health.healthy:
        healthy = node.healthy or health.at
        whole = time.elapsed(healthy)
        if whole < settings.healthy_for:
            since_when = f"healthy since {utc(healthy)}, which must last {settings.healthy_for:g} s"
            return Verification(None, since_when, healthy, "proof")
        if settings.suite and node.proved is None:
            if time.elapsed(since) > settings.deadline + settings.healthy_for:
                return Verification(EpisodeEvent.GIVEN_UP, f"the deep suite {settings.suite} gave no result", healthy)
            return Verification(None, f"the deep suite {settings.suite} has not ended", healthy, "suite")
        if settings.suite and not node.proved:
            return Verification(EpisodeEvent.STILL_FAULTY, f"the deep suite {settings.suite} failed", 0.0)
        return Verification(EpisodeEvent.PROVED_HEALTHY, f"healthy for {whole:.0f} s", healthy)
    if health is not None and fresh and newer and health.verdict is Verdict.CRIT:
        if health.at > since + settings.grace:
            fault_text = health.faults[0].message if health.faults else "it still fails"
            return Verification(EpisodeEvent.STILL_FAULTY, fault_text, 0.0)
        return Verification(
            None,
            f"it still fails; that counts from {settings.grace:g} s (verify.grace) on: services may still start",
            0.0,
        )
    waited = min(time.elapsed(begun) for begun in (since, node.healthy, node.entered))
    if waited > settings.deadline:
        what = "could not tell how the node is" if newer and fresh else "none came"
        return Verification(EpisodeEvent.GIVEN_UP, f"no healthy report within {settings.deadline:g} s: {what}", 0.0)
    if newer and fresh:
        return Verification(None, "the newest report could not tell how the node is", 0.0)
    return Verification(None, "waiting for a report newer than the work on it", node.healthy if newer else 0.0)


def _silent(node: RepairedNode, settings: VerifySettings, time: SteadyTime) -> Verification:
    """A node that its scheduler does not hear is not healthy, whatever reports say: it boots, or never comes."""
    waited = min(time.elapsed(node.repaired or node.entered), time.elapsed(node.entered))
    if waited <= settings.deadline:
        return Verification(None, f"waiting for the node to be heard again: {node.silence}", 0.0)
    return Verification(EpisodeEvent.STILL_FAULTY, f"not heard within {settings.deadline:g} s: {node.silence}", 0.0)
