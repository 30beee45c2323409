"""What the remedy loop asks of those that run a suite of deep checks on another node."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional, Protocol
from typing import runtime_checkable as port

from nhc.core.model import DeviceId
from nhc.marks.ports.repair import Machine


class SuiteOrder(NamedTuple):
    """One run. `since` (Unix time): a report that the node has kept of a run that began later stands for a new run.

    `seconds` is the limit of the run.
    """

    machine: Machine
    suite: str
    since: float
    seconds: float


class SuiteRunner(Protocol):
    """Runs suites on nodes."""

    def run(self, order: SuiteOrder) -> str:
        """The run's report as JSON. Blocks until it is there, for at most the order's seconds and some.

        Raises nhc.marks.ports.adapter.AdapterError where there is none: the node was not reached, or could not begin.
        """


class DeviceProof(NamedTuple):
    """One run of `check_gpu_proof` for one accelerator, with this seed. `seconds` is the limit of the run."""

    machine: Machine
    device: DeviceId
    seed: int
    seconds: float


@port
class ProvesDevices(Protocol):
    """A runner that can prove one accelerator while the node's others are at work."""

    def prove(self, order: DeviceProof) -> str:
        """The report of that one check as JSON. Blocks until it is there, for at most the order's seconds and some.

        Raises nhc.marks.ports.adapter.AdapterError where there is none.
        """


class MakeSuiteRunner(Protocol):
    """How nhc constructs what stands in `nhc.marks.plugins.SUITE_RUNNERS`."""

    def __call__(self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None) -> SuiteRunner:
        """Raises nhc.marks.ports.adapter.AdapterError where the settings make no sense."""


PROOF = "check_gpu_proof"
"""What proves an accelerator that was repaired, in the place of a suite."""
RUN_ITSELF = "nhc_deep_run"
"""What results about a suite's run itself are filed under."""
UNPROVED = "unproved"
"""The label of a suite's report with the accelerators on which no test came to a result, where there are any."""
