"""What both ways to Slurm share, its commands and slurmrestd: which state and reason a mark is, and the work on nodes.

Standard library only: the hooks run this.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import List, Optional, Sequence

from nhc.core.model import Action
from nhc.marks.ports.adapter import Mark, NodeState
from nhc_adapters._command import CommandMarker, Failures
from nhc_adapters.slurm.states import HYPERPOD_OWNER
from nhc_adapters.slurm.work import Silences, Work, drained, with_work


class SlurmMarker(CommandMarker):
    """Nodes drained and resumed. NHC_HYPERPOD=1: with SageMaker HyperPod's reasons, where one of its repairs fits."""

    keeps_time = True

    def _prepare(self) -> None:
        self.hyperpod = self.command.setting("NHC_HYPERPOD") in ("1", "yes", "true")
        self.silences = Silences()

    @abstractmethod
    def _states_of(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        """As `_read`, by what slurmctld has of the nodes themselves."""

    @abstractmethod
    def _work(self) -> Work:
        """The work on all nodes. Raises AdapterError."""

    @abstractmethod
    def _update(self, nodes: Sequence[str], state: str, reason: str) -> Failures:
        """Set the state and the reason of nodes; "" leaves one as it is."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        states = self._states_of(names)
        if not self.in_hook:
            states = with_work(states, self._work())
        return self.silences.seen(states, time.time())

    def _text(self, mark: Mark) -> str:
        if self.hyperpod and mark.action in (Action.REBOOT, Action.REPLACE):
            return f"Action:{mark.action.value.capitalize()}"
        return super()._text(mark)

    def _is_out(self, state: NodeState) -> bool:
        return drained(state)

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        state = "" if drained(states[0]) else "DRAIN"
        return self._update([node.name for node in states], "FAIL" if text.startswith("Action:") else state, text)

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        return self._update([node.name for node in states], "RESUME", "")

    def _carries(self, state: NodeState, mark: Mark) -> bool:
        if state.mark is not None and state.mark.owner == HYPERPOD_OWNER:
            return state.mark.why.lower() == self._text(mark).lower()
        return super()._carries(state, mark)
