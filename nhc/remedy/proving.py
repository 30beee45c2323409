"""The deep suite of the verify step, in the background: the loop asks whether it passed, and handles other episodes.

Each episode has one run at a time, identified by the node, the suite and the repair: a new controller continues it. A
run that ends UNKNOWN proves nothing: the suite runs again, `TRIES` times in all, and then the deadline escalates to a
person. Results are stored like all results of deep checks.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import DeviceId, Report, Verdict, describe, printable
from nhc.core.render.json import parse
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.marks import healthy
from nhc.marks.ports.repair import HasRights, Machine, Right
from nhc.marks.ports.runner import NHC, NodeRun, NotStarted, RunLimits, Runner, RunPhase, RunState
from nhc.node.run.boot_window import judged_early
from nhc.remedy.cases import EpisodeCase
from nhc.store import deep
from nhc.store.database import Store
from nhc.store.errors import StoreError

PROOF = "check_gpu_proof"
"""Proves a repaired accelerator, instead of a suite."""
PROOFS = 3
"""Proofs of one device, each with other numbers, before it is given work again."""
TRIES = 3
"""Runs of one suite that may end UNKNOWN; a gate has as many by default."""
FORGOTTEN = 86400.0
"""Seconds without a further request after which a proof is deleted: its episode has ended."""
PAUSE = 60.0
"""Seconds between two of them."""
OVER = 600.0
"""Seconds beyond its own limit that a run may take to begin (an image is pulled, an agent polls) and to be ended."""
FIRST, LATER = 0.5, 15.0
"""Seconds between two queries of a run: at first, and at most."""
OUTPUT = 8 << 20
"""Bytes of a report, and what is printed beside it."""
_SUITE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_DEVICE = re.compile(r"[A-Za-z0-9:.-]+")


class _Proof:
    """The runs of one episode's suite in one verify step. `number` counts the ended runs that proved nothing."""

    def __init__(self) -> None:
        self.passed: Optional[bool] = None
        self.tries = self.number = 0
        self.why = ""
        self.running = False
        self.again = self.asked = 0.0
        self.thread: Optional[threading.Thread] = None


class ReportRead(NamedTuple):
    """What a report proves: whether the suite passed (None for UNKNOWN), and why."""

    passed: Optional[bool]
    why: str
    report: Optional[Report] = None


class ProofOrder(NamedTuple):
    """What is to be proved: that `suite` passes on the machine, or the one `device`. `since` (Unix time) is when it was
    repaired, `number` how many runs before it proved nothing; `seconds` is the limit of a run.
    """

    machine: Machine
    suite: str
    since: float
    seconds: float
    device: DeviceId = DeviceId()
    number: int = 0


class SuiteProver:
    """Runs suites, and proofs of single devices, through a runner."""

    def __init__(self, store: Store, runner: Runner, seconds: float) -> None:
        self._store, self._runner, self._seconds = store, runner, seconds
        self._proofs: Dict[Tuple[int, float], _Proof] = {}
        self._lock = threading.Lock()

    def proved(self, case: EpisodeCase, machine: Machine, suite: str) -> Optional[bool]:
        """Whether the suite, or the proof of the episode's device, has passed since the last repair; None while it
        runs. Begins it if need be.
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
                order = ProofOrder(machine, suite, since, self._seconds, case.detail.about, proof.number)
                proof.thread = threading.Thread(target=self._prove, args=(proof, order), name=name, daemon=True)
                proof.thread.start()
            return proof.passed

    def wait(self) -> bool:
        """Wait until the running suites have ended, at most for their limit: for a process that ends afterwards.

        Whether any ran.
        """
        with self._lock:
            running = [proof.thread for proof in self._proofs.values() if proof.running and proof.thread is not None]
        until = time.monotonic() + self._seconds
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()))
        return bool(running)

    def complaint(self, case: EpisodeCase) -> str:
        """Why the suite of an episode ended UNKNOWN, for a person; "" if it did not."""
        with self._lock:
            proof = self._proofs.get((case.episode.id, case.detail.entered))
            return proof.why if proof is not None and proof.passed is None else ""

    def rights(self) -> Sequence[Right]:
        """What its runner needs, tried without effect; none if the runner cannot say. Raises AdapterError."""
        return self._runner.rights() if isinstance(self._runner, HasRights) else ()

    def _prove(self, proof: _Proof, order: ProofOrder) -> None:
        result = ReportRead(None, f"{order.machine.node}: {order.suite} was not run")
        counts, number = True, proof.number
        try:
            result = self._prove_device(proof, order) if order.device.known else self._prove_suite(proof, order)
            counts = result.report is None or not judged_early(result.report)
            number += 1
        except _ProvedNothing as error:
            counts, number = False, number + 1  # another run was under way there, or this one was cut short
            result = ReportRead(None, printable(str(error), 400))
        except AdapterError as error:
            counts = False  # the node is not there: the deadline ends that
            result = ReportRead(None, printable(str(error), 400))
        except Exception as error:  # a runner of a site's own: its bug must not end the loop's thread unseen
            result = ReportRead(None, printable(f"{type(error).__name__}: {error}", 400))
        finally:
            if result.report is not None and not order.device.known:
                self._keep(result.report, order.suite)
            with self._lock:
                proof.passed, proof.why, proof.number = result.passed, result.why, number
                # The report of an UNKNOWN run must not be taken for that of the next one.
                proof.tries += 1 if counts else 0
                proof.again = time.monotonic() + PAUSE
                proof.running = False

    def _prove_suite(self, proof: _Proof, order: ProofOrder) -> ReportRead:
        """Raises AdapterError."""
        return read(self._report(proof, suite_run(order), order.suite), order.machine.node, order.suite)

    def _prove_device(self, proof: _Proof, order: ProofOrder) -> ReportRead:
        """Several proofs of the one device, each with its own seed. Raises AdapterError."""
        result = ReportRead(None, "")
        for turn in range(PROOFS):
            result = read_proof(self._report(proof, proof_run(order, turn), PROOF), order.machine.node)
            if result.passed is not True:
                break
        return result

    def _report(self, proof: _Proof, run: NodeRun, what: str) -> str:
        """The report of a run, which is started if need be, and followed to its end. Raises AdapterError."""
        node, state = run.nodes[0], self._followed(proof, run)
        name = f" ({state.name})" if state.name else ""
        if state.phase is RunPhase.STOPPED:
            raise AdapterError(
                f"{node}: {what}: {state.why or 'it was stopped'}{name}: it is not run again, and verify.deadline "
                "leaves the node to a person"
            )
        if state.phase is RunPhase.LOST:
            raise _ProvedNothing(f"{node}: {what}: {state.why or 'it left no result'}{name}")
        report = report_in(state.output)
        if not report:
            last = (state.output.strip().splitlines() or [""])[-1]
            why = "its report is longer than what is handed over" if state.cut else last
            raise _ProvedNothing(f"{node}: {what} ended with {state.status} and gave no report{name}: {why}")
        return report

    def _followed(self, proof: _Proof, run: NodeRun) -> RunState:
        """The state of a run that is over. Raises AdapterError."""
        until, pause = time.monotonic() + run.limits.seconds + OVER, FIRST
        try:
            self._runner.start(run)
        except NotStarted:
            raise
        except AdapterError as error:
            proof.why = str(error)  # it may have been started: the next looks show it
        while True:
            try:
                state = self._runner.poll([run])[run.key]
            except AdapterError as error:
                state = RunState(RunPhase.UNKNOWN, why=str(error))
            if state.phase in (RunPhase.ENDED, RunPhase.STOPPED, RunPhase.LOST):
                return state
            proof.why = printable(state.why or proof.why, 400)
            if time.monotonic() >= until:
                self._runner.stop(run)
                raise AdapterError(f"{run.nodes[0]}: {run.key} has not ended: {proof.why or 'it runs'}")
            time.sleep(pause)
            pause = min(LATER, pause * 1.5)

    def _keep(self, report: Report, suite: str) -> None:
        try:
            with self._store.write() as connection:
                deep.add_report(connection, report, suite)
        except StoreError:
            return  # the verdict counts all the same; the round's own writes say that the store is away


class _ProvedNothing(AdapterError):
    """A run has ended and proves nothing: the next one is a new run."""


def suite_run(order: ProofOrder) -> NodeRun:
    """The run of a suite. A report after `since` that the node has stored counts as a new run. Raises AdapterError."""
    if not _SUITE.fullmatch(order.suite):
        raise AdapterError(f"{printable(order.suite, 60)!r} is not a suite's name")
    node = order.machine.node
    argv = (NHC, "deep", "run", order.suite, "-n", node, "-f", "json", "-q", "--since", f"{order.since:.0f}",
            "--timeout", f"{order.seconds:.0f}s")  # fmt: skip
    return _run(order, f"suite\n{node}\n{order.suite}\n{order.since:.3f}\n{order.number}", argv)


def proof_run(order: ProofOrder, turn: int) -> NodeRun:
    """The run of one proof of a device, with numbers of its own. Raises AdapterError."""
    device = order.device.uuid or order.device.pci
    if not _DEVICE.fullmatch(device):
        raise AdapterError(f"{device!r} is not the name of a device")
    node, limit = order.machine.node, f"{order.seconds:.0f}s"
    which = f"proof\n{node}\n{device}\n{order.since:.3f}\n{order.number}\n{turn}"
    seed = 1 + int(hashlib.sha256(which.encode()).hexdigest(), 16) % ((1 << 31) - 1)
    line = f"* |timeout {limit}| {PROOF} -d {device} -s {seed}"
    # A profile of the node type would add lines about the rest of the node; a run without a limit has 30 seconds.
    argv = ("/bin/sh", "-c", 'echo "$0" | "$@"', line, NHC, "check", "local", "-c", "/dev/stdin", "--profile", "none",
            "-t", limit, "-n", node, "-f", "json")  # fmt: skip
    return _run(order, which, argv)


def _run(order: ProofOrder, which: str, argv: Tuple[str, ...]) -> NodeRun:
    key = f"{which.partition(chr(10))[0]}-{hashlib.sha256(which.encode()).hexdigest()[:32]}"
    return NodeRun(key, (order.machine,), argv, RunLimits(order.seconds, OUTPUT), why=f"{order.suite} after a repair")


def report_in(output: str) -> str:
    """The last whole report in an output, "" if there is none: other messages of the program may surround it."""
    report, at, decoder = "", 0, json.JSONDecoder()
    while at < len(output):
        if output[at] == "{":
            try:
                value, end = decoder.raw_decode(output, at)
            except (ValueError, RecursionError):
                value, end = None, at
            if isinstance(value, dict) and "host" in value:
                report = output[at:end]
            at = max(end, at)
        line = output.find("\n", at)
        at = len(output) if line < 0 else line + 1
    return report


def read_proof(text: str, node: str) -> ReportRead:
    """What a report proves of one device: all its results are of that device's proof, and one is. Pure."""
    result = _read(text, node, PROOF, _checks)
    if result.report is None or result.report.verdict is not Verdict.WARN:
        return result
    # GpuProofFlaky: a result was wrong once, and right when it was repeated.
    flaky = next(each for each in result.report.results if each.verdict is Verdict.WARN)
    return ReportRead(False, printable(f"{node}: {describe(flaky)}", 400), result.report)


def _checks(report: Report) -> str:
    return ", ".join(sorted({result.check for result in report.results})) or "nothing"


def read(text: str, node: str, suite: str) -> ReportRead:
    """What a report says, once it is proved to be of this suite, this node and after the repair. Pure."""
    return _read(text, node, suite, lambda report: report.labels.get("suite", "no suite"))


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
