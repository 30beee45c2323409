"""The deep suite of the verify step, in the background: the loop asks whether it passed, and handles other episodes.

Each episode has one run at a time. A run that ends UNKNOWN proves nothing: the suite runs again, `TRIES` times in all,
and then the deadline escalates to a person. Results are stored like all results of deep checks.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import DeviceId, Report, Verdict, describe, printable
from nhc.core.render.json import parse
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.marks import healthy
from nhc.marks.ports.repair import HasRights, Machine, Right
from nhc.marks.ports.suites import PROOF, DeviceProof, ProvesDevices, SuiteOrder, SuiteRunner
from nhc.node.run.boot_window import judged_early
from nhc.remedy.cases import EpisodeCase
from nhc.store import deep
from nhc.store.database import Store
from nhc.store.errors import StoreError

PROOFS = 3
"""Proofs of one device, each with other numbers, before it is given work again."""
TRIES = 3
"""Runs of one suite that may end UNKNOWN; a gate has as many by default."""
FORGOTTEN = 86400.0
"""Seconds after which a proof that nobody asked for again is deleted: its episode has ended."""
PAUSE = 60.0
"""Seconds between two of them."""


class _Proof:
    """The runs of one episode's suite in one verify step."""

    def __init__(self) -> None:
        self.passed: Optional[bool] = None
        self.tries = 0
        self.why = ""
        self.running = False
        self.again = self.asked = 0.0
        self.thread: Optional[threading.Thread] = None


class ReportRead(NamedTuple):
    """What a report proves: whether the suite passed (None for UNKNOWN), and why."""

    passed: Optional[bool]
    why: str
    report: Optional[Report] = None


class SuiteProver:
    """Runs suites, and proofs of single devices, through a runner."""

    def __init__(self, store: Store, runner: SuiteRunner, seconds: float) -> None:
        self._store, self._runner, self._seconds = store, runner, seconds
        self._proofs: Dict[Tuple[int, float], _Proof] = {}
        self._lock = threading.Lock()

    def proved(self, case: EpisodeCase, machine: Machine, suite: str) -> Optional[bool]:
        """Whether the suite, or the proof of the episode's one device, passed since the last repair, None while that
        runs; begins it if need be.
        """
        key, now = (case.episode.id, case.detail.entered), time.monotonic()
        with self._lock:
            proof = self._proofs.setdefault(key, _Proof())
            proof.asked = now
            # Those of an earlier step of this episode, or of one that has ended, are forgotten.
            for old_key, old in list(self._proofs.items()):
                if not old.running and old_key != key and (old_key[0] == key[0] or now - old.asked > FORGOTTEN):
                    del self._proofs[old_key]
            due = proof.passed is None and not proof.running and now >= proof.again
            if due and proof.tries < TRIES:
                proof.running = True
                since = case.detail.repaired or case.detail.entered
                name = f"nhc-suite-{case.episode.id}"
                order = SuiteOrder(machine, suite, since, self._seconds)
                args = (proof, order, case.detail.about)
                proof.thread = threading.Thread(target=self._prove, args=args, name=name, daemon=True)
                proof.thread.start()
            return proof.passed

    @property
    def proves_devices(self) -> bool:
        """Whether its runner can prove one device alone."""
        runner: object = self._runner
        return isinstance(runner, ProvesDevices)

    def wait(self) -> bool:
        """Wait until the suites that run have ended, at most for their limit: for a process that ends after it.

        Whether any ran.
        """
        with self._lock:
            running = [proof.thread for proof in self._proofs.values() if proof.running and proof.thread is not None]
        until = time.monotonic() + self._seconds
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()))
        return bool(running)

    def complaint(self, case: EpisodeCase) -> str:
        """Why the suite of an episode ended UNKNOWN, for a person; "" where it did not."""
        with self._lock:
            proof = self._proofs.get((case.episode.id, case.detail.entered))
            return proof.why if proof is not None and proof.passed is None else ""

    def rights(self) -> Sequence[Right]:
        """What its runner needs, tried without effect; none where the runner cannot say. Raises AdapterError."""
        return self._runner.rights() if isinstance(self._runner, HasRights) else ()

    def _prove(self, proof: _Proof, order: SuiteOrder, about: DeviceId) -> None:
        result = ReportRead(None, f"{order.machine.node}: {order.suite} was not run")
        counts = True
        try:
            result = self._prove_device(order, about) if about.known else read(self._runner.run(order), order)
            counts = result.report is None or not judged_early(result.report)
        except AdapterError as error:
            counts = False  # the node is not there, or another run is under way: the deadline ends that
            result = ReportRead(None, printable(str(error), 400))
        except Exception as error:  # a runner of a site's own: its bug must not end the loop's thread unseen
            result = ReportRead(None, printable(f"{type(error).__name__}: {error}", 400))
        finally:
            if result.report is not None and not about.known:
                self._keep(result.report, order.suite)
            with self._lock:
                proof.passed, proof.why = result.passed, result.why
                # The report of an UNKNOWN run must not be taken for that of the next one.
                proof.tries += 1 if counts else 0
                proof.again = time.monotonic() + PAUSE
                proof.running = False

    def _prove_device(self, order: SuiteOrder, about: DeviceId) -> ReportRead:
        """So many proofs of the one device, each with a seed of its own. Raises AdapterError."""
        runner: object = self._runner
        if not isinstance(runner, ProvesDevices):
            raise AdapterError("what runs suites here (verify.runner) cannot prove one device alone")
        result = ReportRead(None, "")
        for seed in random.SystemRandom().sample(range(1, 1 << 31), PROOFS):
            proof = DeviceProof(order.machine, about, seed, self._seconds)
            result = read_proof(runner.prove(proof), proof)
            if result.passed is not True:
                break
        return result

    def _keep(self, report: Report, suite: str) -> None:
        try:
            with self._store.write() as connection:
                deep.add_report(connection, report, suite)
        except StoreError:
            return  # the verdict counts all the same; the round's own writes say that the store is away


def read_proof(text: str, order: DeviceProof) -> ReportRead:
    """What a report proves of one device: all its results are of that device's proof, and one is. Pure."""
    result = _read(text, order.machine.node, PROOF, _checks)
    if result.report is None or result.report.verdict is not Verdict.WARN:
        return result
    # GpuProofFlaky: a result was wrong once, and right when it was repeated.
    flaky = next(each for each in result.report.results if each.verdict is Verdict.WARN)
    return ReportRead(False, printable(f"{order.machine.node}: {describe(flaky)}", 400), result.report)


def _checks(report: Report) -> str:
    return ", ".join(sorted({result.check for result in report.results})) or "nothing"


def read(text: str, order: SuiteOrder) -> ReportRead:
    """What a report says, once it is proved to be of this suite, this node and after the repair. Pure."""
    return _read(text, order.machine.node, order.suite, lambda report: report.labels.get("suite", "no suite"))


def _read(text: str, node: str, wanted: str, subject: Callable[[Report], str]) -> ReportRead:
    """What a report says of a node whose `subject` is the wanted one."""
    try:
        report = parse(text)
    except ValueError as error:
        return ReportRead(None, printable(f"{node}: the report of {wanted} cannot be read: {error}", 400))
    if report.host != node or subject(report) != wanted:
        named = f"{subject(report)} of {report.host}"
        return ReportRead(None, printable(f"{node}: a report of {named}, not of {wanted}", 400))
    if report.verdict is Verdict.CRIT:
        return ReportRead(False, printable(f"{node}: {describe(report.failures()[0])}", 400), report)
    if healthy(report):
        return ReportRead(True, "", report)
    unsure = [result for result in report.results if result.verdict is Verdict.UNKNOWN]
    what = describe(unsure[0]) if unsure else "it judged nothing"
    return ReportRead(None, printable(f"{node}: {wanted} could not tell: {what}", 400), report)
