"""The service that NVIDIA's resiliency extension (NVRx) asks before each rendezvous: nvhcd.HealthCheckService.

    [serve.nvhcd]
    path = "/run/nvhcd/nvhcd.sock"
    group = "users"

The agent's current verdict is the answer to every caller. If it is too old, the agent runs its checks once for all
callers. The service runs in a process of its own, as a sink: the agent's own process has one thread, and gRPC has many.
Needs the extra `nvhcd` (grpcio), imported only there.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
from concurrent import futures
from contextlib import closing
from socket import timeout as socket_timeout
from typing import Any, Callable, Dict, Generic, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from nhc.agent.settings import NvhcdSettings
from nhc.agent.sockets import ask
from nhc.core.json_values import list_in, parse_object
from nhc.core.model import CheckResult, Report, Verdict, describe, printable
from nhc.core.render.json import from_result, parse
from nhc.core.system import process
from nhc.core.system.process import own_command
from nhc.core.system.protobuf import fields, integer, text
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Standing

# An answer that is costly and the same for all callers at one time: one query serves them all.


T = TypeVar("T")


class SharedLook(Generic[T]):
    """The first caller starts the query, in a thread of its own; its result is cached for `keep` seconds.

    If it raises, the result is None.
    """

    def __init__(self, look: Callable[[], T], keep: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._keep, self._clock = look, keep, clock
        self._condition = threading.Condition()
        self._value: Optional[T] = None
        self._ended = float("-inf")
        self._turns = 0
        self._running = False

    def get(self, wait: float) -> Optional[T]:
        """The query's result; None if it took longer than `wait` seconds. It then goes on for the next caller.

        Raises RuntimeError if no thread can be started.
        """
        with self._condition:
            if self._clock() - self._ended < self._keep:
                return self._value
            turn = self._turns
            if not self._running:
                threading.Thread(target=self._carry_out, daemon=True).start()
                self._running = True
            self._condition.wait_for(lambda: self._turns != turn, max(wait, 0.0))
            return self._value if self._turns != turn else None

    def _carry_out(self) -> None:
        value: Optional[T] = None
        try:
            value = self._look()
        finally:
            with self._condition:
                self._value, self._ended, self._running = value, self._clock(), False
                self._turns += 1
                self._condition.notify_all()


# What the agent answers a training job's launcher that asks whether this node is healthy (NVRx, service nvhcd). Pure.
#
# Only a known fault fails a node: a check that is CRIT, or a node that is out of service. An unknown result is in the
# output and counts as healthy, so that no job fails because nhc could not tell.


CONTEXTS = ("prolog", "epilog")
"""The groups of `--group` that are contexts of configuration lines."""
CHECKS: Dict[str, Tuple[str, ...]] = {
    "logs": ("check_kmsg", "check_cmd_dmesg", "check_gpu_xid", "check_mce_events", "check_oom_kills", "check_npd_log"),
    "gpu": ("check_gpu_", "check_nvlink_", "check_fabric_manager", "check_nv_", "check_nvsmi_", "check_app_gpu_",
            "check_vbios_version", "check_pcie_"),
}  # fmt: skip
"""The groups that are kinds of checks: how the checks' names begin."""
GROUPS = (*CONTEXTS, *CHECKS)
MOST = 50
"""Failed checks that are listed."""
LONGEST = 300
"""Characters of one of them."""
ARGUMENTS = 256
"""Words of a request that are read."""


class HealthAnswer(NamedTuple):
    """The answer to one request: the fields of HealthCheckResponse."""

    success: bool
    exit_code: int
    output: str
    error: str = ""


class AskedFor(NamedTuple):
    """What a request's words ask for. `unknown` are words that nhc does not know; they change nothing."""

    groups: Tuple[str, ...]
    unknown: Tuple[str, ...]
    proof: bool = False


def asked_for(arguments: Sequence[str]) -> AskedFor:
    """The groups that a request names, all of them if it names none. `--no-slurm` is NVRx's own default."""
    groups: List[str] = []
    unknown: List[str] = []
    within = proof = False
    for argument in arguments[:ARGUMENTS]:
        if argument.startswith("--"):
            option, _, value = argument.partition("=")
            within = option == "--group"
            if within and value:
                groups.append(value)
            proof = proof or option == "--proof"
            if not within and argument not in ("--no-slurm", "--proof"):
                unknown.append(printable(argument, 60))
        elif within and argument in GROUPS:
            groups.append(argument)
        else:
            unknown.append(printable(argument, 60))
    known = tuple(dict.fromkeys(group for group in groups if group in GROUPS))
    return AskedFor(known or GROUPS, tuple(unknown[:MOST]), proof)


def answer_request(
    asked: AskedFor,
    report: Optional[Report],
    *,
    complete: bool = False,
    age: float = 0.0,
    contexts: Mapping[str, Sequence[str]] = {},
    out: Sequence[str] = (),
    failed: Sequence[str] = (),
    unsure: Sequence[str] = (),
    unknown_fails: bool = False,
) -> HealthAnswer:
    """Judge by a report that is `age` seconds old, None if there is no valid one.

    `out` is why the node is out of service; `failed` and `unsure` are what else is wrong or unknown. `unknown_fails`:
    an unknown result fails the node, too.
    """
    wrong = [*(f"out of service: {reason}" for reason in out), *failed]
    open_questions = list(unsure)
    if report is not None:
        if not complete:
            open_questions.append("not every check has run yet")
        for result in chosen(report, asked.groups, contexts):
            if result.verdict is Verdict.CRIT:
                wrong.append(describe(result))
            elif result.verdict is Verdict.UNKNOWN:
                open_questions.append(describe(result))
    failures = [printable(line, LONGEST) for line in wrong + (open_questions if unknown_fails else [])]
    output = {
        "fail_count": len(failures), "failed_checks": failures[:MOST],
        "unknown": [printable(line, LONGEST) for line in open_questions[:MOST]], "groups": list(asked.groups),
        "ignored": list(asked.unknown), "node": report.host if report else "", "age": round(age, 1),
    }  # fmt: skip
    return HealthAnswer(True, 1 if failures else 0, json.dumps(output, ensure_ascii=False))


def chosen(report: Report, groups: Sequence[str], contexts: Mapping[str, Sequence[str]] = {}) -> List[CheckResult]:
    """The results of the groups; of all groups, which NVRx asks for by itself, every result.

    `prolog` and `epilog` are the lines that are meant for that context, `logs` and `gpu` kinds of checks.
    """
    if set(groups) >= set(GROUPS):
        return list(report.results)
    begins = tuple(name for group in groups for name in CHECKS.get(group, ()))
    around = {group for group in groups if group in CONTEXTS}
    results = []
    for result in report.results:
        limited = contexts.get(f"{result.source} {result.line}", ())
        meant = bool(around) and (not limited or not around.isdisjoint(limited))
        if meant or result.check.startswith(begins):
            results.append(result)
    return results


# The messages of the service: `args` is field 1, repeated, of a request.


def read_request(data: bytes) -> List[str]:
    """The words of a HealthCheckRequest; unknown fields are skipped. Raises ValueError."""
    return [value.decode() for number, value in fields(data) if number == 1 and isinstance(value, bytes)]


def write_answer(answer: HealthAnswer) -> bytes:
    """A HealthCheckResponse: success 1, exit_code 2, output 3, error 4; zero and empty fields are left out."""
    numbers = b"".join(integer(number, value) for number, value in enumerate(answer[:2], 1) if value)
    return numbers + b"".join(text(number, value) for number, value in enumerate(answer[2:], 3) if value)


# What the service for training jobs queries for a request: a run of the checks, the node's state, its proof.


LOOK_TIMEOUT = 10.0
"""Seconds that the scheduler has for its answer."""
PROOF_LIMIT = 240.0
"""Seconds for one proof of all GPUs: check_gpu_proof ends by itself within 130 s, other lines in seconds."""


class ChecksNow(NamedTuple):
    """What a run of all checks found, or why there was none: `problem`, "" if there was one."""

    results: Tuple[CheckResult, ...] = ()
    problem: str = ""


class ProofNow(NamedTuple):
    """What a proof found wrong, and what it could not tell."""

    failed: Tuple[str, ...] = ()
    unsure: Tuple[str, ...] = ()


def run_checks(socket: str, timeout: float) -> ChecksNow:
    """Ask the agent, over its control socket, to run all its checks now."""
    try:
        return read_answer(ask(socket, b'{"do": "check"}', timeout))
    except socket_timeout:
        return ChecksNow(problem=f"the checks did not end within {timeout:.0f} s")
    except (OSError, ValueError) as error:
        return ChecksNow(problem=f"the agent does not answer: {printable(str(error), 200)}")


def read_answer(data: bytes) -> ChecksNow:
    """What the agent answered. Raises ValueError."""
    answer = parse_object(data)
    if "error" in answer:
        return ChecksNow(problem=f"the agent runs no checks now: {printable(str(answer['error']), 200)}")
    if "results" not in answer:
        raise ValueError("results is missing")
    return ChecksNow(tuple(map(from_result, list_in(answer, "results"))))


def out_of_service(settings: NvhcdSettings, node: str, log: Callable[[str], None]) -> Tuple[str, ...]:
    """Why a job should not take the node again, by its scheduler and the store; () if neither knows a reason."""
    reasons: List[str] = []
    if settings.scheduler:
        reasons.append(_scheduler(settings.scheduler, node, log))
    if settings.store:
        reasons.append(_store(settings.store, node, log))
    return tuple(reason for reason in reasons if reason)


def _scheduler(name: str, node: str, log: Callable[[str], None]) -> str:
    from nhc.core.plugins import NoAdapter
    from nhc.marks.plugins import open_adapter

    try:
        states = open_adapter(name, {}, dict(os.environ), LOOK_TIMEOUT).nodes([node])
    except (AdapterError, NoAdapter, OSError) as error:
        log(f"serve.nvhcd: whether the node is in service is not known: {error}")
        return ""
    state = next(iter(states), None)
    if state is None or state.available:
        return ""
    return f"{state.shown}: {state.mark.why}" if state.mark is not None else state.shown


def _store(url: str, node: str, log: Callable[[str], None]) -> str:
    """The newest conclusive run of a suite, if it found the node bad."""
    from nhc.store import deep
    from nhc.store.errors import StoreError
    from nhc.store.settings import fleet_store

    try:
        with closing(fleet_store(url, create=False)) as store, store.read() as connection:
            verdicts = deep.last_conclusive(connection, [node]).values()
    except StoreError as error:
        log(f"serve.nvhcd: whether the node's proof failed is not known: {error}")
        return ""
    bad = [run for run in verdicts if run.verdict == Verdict.CRIT.name]
    newest = max(bad, key=lambda run: run.at, default=None)
    return f"its newest {newest.suite} found it bad, {newest.age(time.time()) / 3600:.1f} h ago" if newest else ""


def prove(suite: str, node: str) -> ProofNow:
    """Run a suite of deep checks, which runs nothing while another process holds the GPUs."""
    argv = own_command(["deep", "run", suite, "--adapter", "none", "-n", node, "-f", "json"])
    try:
        done = process.run(argv, timeout=PROOF_LIMIT, env=os.environ)
        results = parse(done.stdout).results
    except OSError as error:
        return ProofNow(unsure=(f"the proof was not begun: {error.strerror}",))
    except ValueError:
        reason = printable(done.stderr.strip().rpartition("\n")[2], 200) or f"exit status {done.status}"
        return ProofNow(unsure=(f"the proof ended without a report: {reason}",))
    failed, unsure = _lines(results, Verdict.CRIT), _lines(results, Verdict.UNKNOWN)
    if not any(result.verdict in (Verdict.OK, Verdict.WARN, Verdict.CRIT) for result in results):
        unsure = unsure or ("nothing was proved: the node has no GPU that can be",)
    return ProofNow(failed, unsure)


def _lines(results: Sequence[CheckResult], verdict: Verdict) -> Tuple[str, ...]:
    return tuple(describe(result) for result in results if result.verdict is verdict)


THREADS = 64
"""Requests that are answered in parallel; others wait for their turn, which takes milliseconds unless checks run."""
MOST_CALLS = 512
"""Requests that may wait, of all users of the socket together."""
LARGEST = 64 << 10
"""Bytes of a request."""
LOOK_EVERY = 15.0
"""Seconds for which the answers of scheduler and store are cached: a job's launchers all ask within a second."""
RUN_KEPT = 1.0
"""Seconds for which a failure to run checks is cached."""
PROOF_KEPT = 60.0
"""Seconds for which a proof is cached: a rendezvous lasts as long, and a second request must not prove again."""
ANSWERING = 0.5
"""A caller gets its answer so many seconds before its deadline."""


class NvhcdServer:
    """`nhc.marks.ports.sinks.Sink`: keeps the newest verdict and answers by it. Raises AdapterError if it cannot
    serve.
    """

    def __init__(
        self,
        settings: NvhcdSettings,
        node: str,
        log: Callable[[str], None],
        control: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._node, self._log, self._clock = settings, node, log, clock
        self._control = control
        self._delivery: Optional[Delivery] = None
        self._taken = 0.0
        self._out = SharedLook(lambda: out_of_service(settings, node, log), LOOK_EVERY, clock)
        self._checks = SharedLook(self._run_checks, RUN_KEPT, clock)
        self._proof = SharedLook(lambda: prove(settings.proof, node), PROOF_KEPT, clock)
        self._server = self._serve()

    def _serve(self) -> Any:
        try:
            import grpc
        except ModuleNotFoundError:
            from nhc.core.extras import how_to_install

            raise AdapterError(
                f"serve.nvhcd needs the Python package grpcio: {how_to_install('grpcio', 'nvhcd')}"
            ) from None
        method = grpc.unary_unary_rpc_method_handler(
            self._call, request_deserializer=read_request, response_serializer=write_answer
        )
        server = grpc.server(
            futures.ThreadPoolExecutor(THREADS), maximum_concurrent_rpcs=MOST_CALLS,
            options=(("grpc.max_receive_message_length", LARGEST), ("grpc.so_reuseport", 0)),
        )  # fmt: skip
        service = grpc.method_handlers_generic_handler("nvhcd.HealthCheckService", {"RunHealthCheck": method})
        server.add_generic_rpc_handlers((service,))
        self._listen(server)
        server.start()
        return server

    def _listen(self, server: Any) -> None:
        """Bind the socket so that only root may use it before it has its group and mode. Raises AdapterError."""
        path = self._settings.path
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise AdapterError(f"serve.nvhcd: {path} is there, and is no socket")
            before = os.umask(0o177)
            try:
                bound = server.add_insecure_port(f"unix:{path}")
            except RuntimeError:  # what grpcio raises if it cannot bind
                bound = 0
            finally:
                os.umask(before)
            if not bound:
                raise AdapterError(f"serve.nvhcd: {path} cannot be listened on")
            if self._settings.group:
                shutil.chown(path, group=self._settings.group)
            os.chmod(path, self._settings.mode)
        except LookupError:
            raise AdapterError(f"serve.nvhcd: there is no group {self._settings.group!r}") from None
        except OSError as error:
            raise AdapterError(f"serve.nvhcd: {error.filename or path}: {error.strerror}") from None

    def _call(self, arguments: List[str], context: Any) -> HealthAnswer:
        """Answer one caller. It never raises: an error of ours must not end a user's job."""
        asked = asked_for(arguments)
        try:
            return self._judge(asked, context.time_remaining())
        except Exception as error:
            self._log(f"serve.nvhcd: {type(error).__name__}: {error}")
            return answer_request(
                asked, None, unsure=("the service failed",), unknown_fails=self._settings.unknown_fails
            )

    def _judge(self, asked: AskedFor, remaining: Optional[float]) -> HealthAnswer:
        """Judge for a caller that waits for `remaining` seconds, None for as long as it takes."""
        began = self._clock()

        def left(most: float) -> float:
            return most if remaining is None else min(most, remaining - ANSWERING - (self._clock() - began))

        out = self._out.get(left(LOOK_TIMEOUT)) or ()
        proof, unsure = ProofNow(), []
        if asked.proof:
            proof = self._prove(left(PROOF_LIMIT))
        if not out and self._problem():
            ran = self._checks.get(left(self._settings.timeout))
            if ran is None or ran.problem:
                unsure = [ran.problem if ran else "the checks that run now have not ended yet"]
        problem, delivery = self._problem(), self._delivery
        current = delivery if delivery and not self._too_old() else None
        return answer_request(
            asked, current.report if current else None, complete=bool(current and current.complete),
            age=self._clock() - self._taken if delivery else 0.0, contexts=delivery.contexts if delivery else {},
            out=out, failed=proof.failed, unknown_fails=self._settings.unknown_fails,
            unsure=(*([problem] if problem and not current else ()), *(unsure if problem else ()), *proof.unsure),
        )  # fmt: skip

    def _too_old(self) -> bool:
        return self._clock() - self._taken > self._settings.max_age

    def _problem(self) -> str:
        """Why there is no valid verdict of the agent, "" if there is one."""
        if self._delivery is None:
            return "the agent has no verdict yet"
        if self._too_old():
            age = self._clock() - self._taken
            return f"the agent's verdict is {age:.0f} s old, more than {self._settings.max_age:.0f} s"
        return "" if self._delivery.complete else "not every check has run yet"

    def _run_checks(self) -> ChecksNow:
        """Have the checks run, and use their results as the verdict."""
        now = run_checks(self._control, self._settings.timeout)
        if not now.problem:
            before = self._delivery
            report = before.report if before else Report(self._node, "", time.time(), 0.0, ())
            anew = {(result.source, result.line) for result in now.results}
            others = tuple(result for result in report.results if (result.source, result.line) not in anew)
            contexts = before.contexts if before else {}
            self.deliver(Delivery(report._replace(results=now.results + others), True, contexts=contexts))
        return now

    def _prove(self, wait: float) -> ProofNow:
        if not self._settings.proof:
            return ProofNow(unsure=("--proof: serve.nvhcd names no suite for it (proof)",))
        now = self._proof.get(wait)
        return now or ProofNow(unsure=("the proof has not ended yet",))

    # What the agent calls.

    def standing(self) -> List[Standing]:
        """Nothing that this service reports remains after its end."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        self._delivery, self._taken = delivery, self._clock()

    def close(self) -> None:
        self._server.stop(1.0).wait(2.0)
