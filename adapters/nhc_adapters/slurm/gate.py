"""A node's gate in Slurm: a drain with its own tag, which no health check, sync or repair of nhc resumes.

    scheduler = "slurm"
    [adapter]
    path = "/opt/slurm/bin"      # where Slurm's commands are
    conf = "/etc/slurm/slurm.conf"
    timeout = "30s"              # for one command

The gate is a drain, not a reservation or a node feature: an administrator has to prepare nothing, it survives restarts
of slurmctld and the registration of slurmd, and it can be set while the node is still down.
"""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Optional

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import Applied, Effect, NodeState
from nhc.marks.ports.gates import GateLimit, GateNews, GateOrder, GateStanding
from nhc.marks.ports.marks import GATE_TAG
from nhc.marks.ports.part_settings import Given, read
from nhc_adapters._command import Runner, complaint, plain, run_command
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.commands import SlurmPlace
from nhc_adapters.slurm.states import OUT

WHY_LIMIT = 200
"""Characters of a reason; people read less."""
GONE = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "FUTURE"})
"""States in which there is no node to let in."""
ASKED = re.compile(re.escape(GATE_TAG) + r" (close|open|adopt) at (\d{9,11}(?:\.\d{1,6})?) by ")
"""A person's order, in the node's comment or reason: of two within a second, the later one counts."""


@declared.settings
class SlurmGateSettings(NamedTuple):
    """The table [adapter] of gate.toml."""

    place: SlurmPlace = declared.part("", SlurmPlace)
    timeout: Optional[float] = declared.seconds("timeout", None, "of one command; default: 30s")


class SlurmGate:
    """Holds with State=DRAIN, releases with State=RESUME, by scontrol; reads back each update's effect."""

    SETTINGS = SlurmGateSettings

    def __init__(
        self, settings: Given, environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        own = read(SlurmGateSettings, settings, "adapter")
        self._slurm = Slurm(own.place.variables(), environ, own.timeout or timeout, run)
        self.command = self._slurm.command

    def nodes(self) -> List[NodeState]:
        """All nodes as slurmctld has them."""
        return self._slurm.nodes()

    def standing(self, node: str) -> Optional[GateStanding]:
        """How slurmctld has the node."""
        state = self._state(node)
        if state is None:
            return None
        held, asked, what = _held(state), 0.0, ""
        order = ASKED.search(self._slurm.comment_of(node))
        if order:
            asked, what = float(order[2]), order[1]
        return GateStanding(held, state.busy, "" if held else _other(state), asked, what == GateOrder.OPEN.value,
                            state.shown, what == GateOrder.ADOPT.value)  # fmt: skip

    def hold(self, node: str, why: str) -> Applied:
        """Drain it, unless somebody has."""
        state = self._state(node)
        if state is None:
            return Applied(node, Effect.FAILED, "not a node that slurmctld knows")
        if _held(state):
            return Applied(node, Effect.UNCHANGED, "held already")
        if _other(state) and "DRAIN" in state.flags:
            return Applied(node, Effect.REFUSED, f"out of service already: {_other(state)}")
        done = self.command(
            "scontrol", "update", f"NodeName={plain(node)}", "State=DRAIN", f"Reason={_text(why)}",
        )  # fmt: skip
        state = self._state(node)
        if state is not None and _held(state):
            return Applied(node, Effect.CHANGED)
        return Applied(node, Effect.FAILED, complaint(done) if done.status else "slurmctld did not drain it")

    def release(self, node: str) -> Applied:
        """Resume it where our drain is what keeps it out."""
        state = self._state(node)
        if state is None:
            return Applied(node, Effect.FAILED, "not a node that slurmctld knows")
        if not _held(state):
            self._carried_out(node)
            other = _other(state)
            if other:
                return Applied(node, Effect.REFUSED, f"stays out of service: {other}")
            return Applied(node, Effect.UNCHANGED)
        if state.flags & GONE:
            return Applied(node, Effect.FAILED, f"it is {state.shown}")
        done = self.command("scontrol", "update", f"NodeName={plain(node)}", "State=RESUME")
        state = self._state(node)
        if state is None or _held(state):
            return Applied(node, Effect.FAILED, complaint(done) if done.status else "slurmctld did not resume it")
        self._carried_out(node)
        return Applied(node, Effect.CHANGED)

    def _carried_out(self, node: str) -> None:
        """Take an order away: another machine under this name must not be let in by it."""
        if self._slurm.comment_of(node).startswith(GATE_TAG):
            self.command.ask("scontrol", "update", f"NodeName={plain(node)}", "Comment=")

    def publish(self, node: str, news: GateNews) -> None:
        """Renew the reason of a node that we hold; a node that is let in shows nothing of its gate."""
        state = self._state(node)
        if state is None or not _held(state):
            return
        text = _text(f"{news.state}: {news.why}")
        if state.mark is None or state.mark.why != text:
            self.command.ask("scontrol", "update", f"NodeName={plain(node)}", f"Reason={text}")

    def order(self, node: str, what: GateOrder, why: str, by: str) -> Applied:
        """Write a person's order into the node's comment, which its gate reads; closing drains at once."""
        from time import time

        state = self._state(node)
        if state is None:
            return Applied(node, Effect.FAILED, "not a node that slurmctld knows")
        comment = self._slurm.comment_of(node)
        if comment and not comment.startswith((GATE_TAG, "NHC:")):
            return Applied(node, Effect.REFUSED, f"its comment is somebody else's: {printable(comment, 80)}")
        text = f"{GATE_TAG} {what.value} at {time():.3f} by {printable(by, 40)}: {printable(why, WHY_LIMIT)}"
        self.command.ask("scontrol", "update", f"NodeName={plain(node)}", f"Comment={text}")
        if what is GateOrder.CLOSE:
            done = self.hold(node, f"closed by {by}: {why}")
            return done if done.effect is Effect.FAILED else Applied(node, Effect.CHANGED, done.message)
        return Applied(node, Effect.CHANGED, "its gate does so in its next pass")

    def limits(self) -> List[GateLimit]:
        """What of slurm.conf ends a node's time."""
        config = self._slurm.config()
        ends = []
        after = _seconds(config.get("SuspendTime", ""))
        excused = config.get("SuspendExcStates", "").upper()
        if after is not None and "DRAIN" not in excused:
            ends.append(GateLimit(
                "slurm.conf SuspendTime", after, "a node that is held and idle is powered down",
                "SuspendExcStates=DRAIN (Slurm 23.02 and later), or a longer SuspendTime",
            ))  # fmt: skip
        return ends + _prolog(config)

    def _state(self, node: str) -> Optional[NodeState]:
        return next(iter(self._slurm.nodes([node])), None)


def _prolog(config: Mapping[str, str]) -> List[GateLimit]:
    """Powered-up nodes have a job before they have a verdict: the prolog has to keep it out."""
    if config.get("ResumeProgram", "(null)") in ("", "(null)"):
        return []
    if config.get("Prolog", "(null)") not in ("", "(null)", "(null)[0]") or "Prolog[0]" in config:
        return []
    return [GateLimit(
        "slurm.conf Prolog", None, "a node of the cloud is powered up with a job on it, which no drain keeps from it",
        "the prolog hook with the line '* || check_gate' (docs/new-nodes.md)",
    )]  # fmt: skip


def _text(why: str) -> str:
    return f"{GATE_TAG} {printable(why, WHY_LIMIT)}"


def _held(state: NodeState) -> bool:
    """Whether the gate's own drain is on the node."""
    return bool(state.flags & {"DRAIN"}) and state.mark is not None and state.mark.why.startswith(GATE_TAG)


def _other(state: NodeState) -> str:
    """Who else keeps it out, "" for no one. A node that is only down comes back when its slurmd registers."""
    if state.available and not state.hold:
        return ""
    out = state.flags & OUT
    if not out and not state.hold:
        return ""
    if state.mark is not None and not state.mark.why.startswith(GATE_TAG) and "DRAIN" in out:
        return f"{state.mark.owner or 'somebody'}: {printable(state.mark.why, 120)}"
    return state.hold or ("" if out <= {"DOWN"} else state.shown)


def _seconds(text: str) -> Optional[float]:
    """`300 sec` of scontrol show config; None for what never ends."""
    number = whole_of_digits(text.split(maxsplit=1)[0]) if text.split() else None
    return float(number) if number else None
