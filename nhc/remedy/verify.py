"""When a repaired node counts as healthy. Pure.

A report counts only where its run began after the repair: after the effect was seen, or in a boot that is not the one
before. UNKNOWN proves nothing either way: the loop waits, never repairs because of it, and escalates at the deadline.
Healthy for a time means healthy reports at its beginning and at its end, of one boot: a node that has said so once, and
then nothing, may be dead.
"""

from __future__ import annotations

from typing import FrozenSet, NamedTuple, Optional

from nhc.core.model import Verdict
from nhc.core.system.steady_time import SteadyTime
from nhc.core.timestamps import utc
from nhc.marks.policy.door import WAVERS
from nhc.marks.ports.suites import PROOF
from nhc.remedy.machine import EpisodeEvent
from nhc.remedy.moves import fresh
from nhc.remedy.settings import VerifySettings
from nhc.remedy.view import EpisodeView, Scene


class Verification(NamedTuple):
    """An event, or None to wait for what `why` says; `healthy` is since when reports of the boot `boot` say healthy,
    0.0 for not.
    """

    event: Optional[EpisodeEvent]
    why: str
    healthy: float
    bound: str = "verify"
    boot: str = ""


def judge(view: EpisodeView, scene: Scene, old_boots: FrozenSet[str]) -> Verification:
    """Whether the node of an episode is proved healthy. `old_boots` are those before a repair that makes a new one."""
    detail, health, time, settings = view.detail, view.health, scene.time, scene.settings.verify
    if detail.about.known:
        settings = settings._replace(suite=PROOF)
    if view.silent and not detail.successor:
        return _silent(view, settings, time)
    if view.node is not None and view.node.rebooting and not detail.successor:
        return _rebooting(view, settings, time)
    since = time.moment(detail.repaired or detail.entered)
    believed = fresh(health, scene)
    newer = health is not None and (
        health.at > time.moment(max(detail.repaired, detail.heard))
        or bool(old_boots and health.boot and health.boot not in old_boots)
    )
    if health is not None and believed and newer and health.healthy:
        # Where this report is the first that says healthy, the boot that was proved before is of an earlier repair.
        healthy, boot = detail.healthy or health.at, health.boot or (detail.proved_boot if detail.healthy else "")
        # To the newest report, not to now; and no longer than has passed for certain, where a clock was set.
        whole = max(0.0, min(health.at, time.now) - time.moment(healthy))
        if whole < settings.healthy_for:
            since_when = f"healthy since {utc(healthy)}, which reports must say for {settings.healthy_for:g} s"
            return Verification(None, since_when, healthy, "proof", boot)
        if settings.suite and view.proved is None:
            if time.elapsed(since) > settings.deadline + settings.healthy_for:
                why = f"the deep suite {settings.suite} gave no result"
                return Verification(EpisodeEvent.GIVEN_UP, why, healthy, boot=boot)
            return Verification(None, f"the deep suite {settings.suite} has not ended", healthy, "suite", boot)
        if settings.suite and not view.proved:
            return Verification(EpisodeEvent.STILL_FAULTY, f"the deep suite {settings.suite} failed", 0.0)
        return Verification(EpisodeEvent.PROVED_HEALTHY, f"healthy for {whole:.0f} s", healthy, boot=boot)
    if health is not None and believed and newer and health.verdict is Verdict.CRIT:
        if health.at > since + settings.grace:
            fault_text = health.faults[0].message if health.faults else "it still fails"
            return Verification(EpisodeEvent.STILL_FAULTY, fault_text, 0.0)
        return Verification(
            None,
            f"it still fails; that counts from {settings.grace:g} s (verify.grace) on: services may still start",
            0.0,
        )
    waited = min(time.elapsed(begun) for begun in (since, detail.healthy, detail.entered))
    if waited > settings.deadline:
        what = "could not tell how the node is" if newer and believed else "none came"
        return Verification(EpisodeEvent.GIVEN_UP, f"no healthy report within {settings.deadline:g} s: {what}", 0.0)
    if newer and believed:
        return Verification(None, "the newest report could not tell how the node is", 0.0)
    kept = detail.healthy if newer else 0.0
    return Verification(None, "waiting for a report newer than the work on it", kept, boot=detail.proved_boot)


def another_boot(view: EpisodeView, before: FrozenSet[str] = frozenset()) -> bool:
    """Whether the node is in another boot than that of the reports by which it is, or is being, proved healthy: its
    newest report is of another, or its scheduler has seen it begin after that report. A node boots while no loop looks,
    and the report of before is still young.

    `before` are the boots of before the repair: a cluster may show such a one until it hears the node again.
    """
    detail, health, node = view.detail, view.health, view.node
    if not detail.healthy or health is None:
        return False
    proved = detail.proved_boot
    if proved and health.boot and health.boot != proved:
        return True
    if node is None or detail.successor:
        return False
    shown = bool(proved and node.boot_id) and node.boot_id not in {proved, *before}
    return shown or node.booted > health.at + WAVERS


def _rebooting(view: EpisodeView, settings: VerifySettings, time: SteadyTime) -> Verification:
    """Its scheduler reboots it: what is reported now is of a boot that ends."""
    why = "its scheduler reboots it: reports of the next boot must prove it"
    if time.elapsed(view.detail.entered) > settings.deadline:
        return Verification(EpisodeEvent.GIVEN_UP, f"{why}, and none came within {settings.deadline:g} s", 0.0)
    return Verification(None, why, 0.0)


def _silent(view: EpisodeView, settings: VerifySettings, time: SteadyTime) -> Verification:
    """A node that its scheduler does not hear is not healthy, whatever reports say: it boots, or never comes."""
    assert view.node is not None
    assert view.node.silence is not None
    repaired, entered, why = view.detail.repaired, view.detail.entered, view.node.silence.why
    waited = min(time.elapsed(repaired or entered), time.elapsed(entered))
    if waited <= settings.deadline:
        return Verification(None, f"waiting for the node to be heard again: {why}", 0.0)
    return Verification(EpisodeEvent.STILL_FAULTY, f"not heard within {settings.deadline:g} s: {why}", 0.0)
