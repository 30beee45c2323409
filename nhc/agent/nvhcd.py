"""The service that NVIDIA's resiliency extension (NVRx) asks before each rendezvous: nvhcd.HealthCheckService.

    [serve.nvhcd]
    path = "/run/nvhcd/nvhcd.sock"
    group = "users"

The agent's current verdict is the answer, whoever asks and however many ask at once; where it is too old, the agent
runs its checks once for all who ask. The service runs in a process of its own, as a sink: the agent's own process has
one thread, and gRPC many. Needs the extra `nvhcd` (grpcio), imported only there.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from concurrent import futures
from typing import Any, Callable, List, Optional

from nhc.agent import nvhcd_looks
from nhc.agent.nvhcd_answer import AskedFor, HealthAnswer, answer, asked_for, read_request, write_answer
from nhc.agent.nvhcd_settings import NvhcdSettings
from nhc.agent.shared_look import SharedLook
from nhc.core.model import Report
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Standing

THREADS = 64
"""Requests that are answered at once; others wait for their turn, which takes milliseconds unless checks run."""
MOST_CALLS = 512
"""Requests that may wait, of all users of the socket together."""
LARGEST = 64 << 10
"""Bytes of a request."""
LOOK_EVERY = 15.0
"""Seconds for which is kept what the scheduler and the store say: a job's launchers all ask within a second."""
RUN_KEPT = 1.0
"""Seconds for which it is kept that checks could not be run."""
PROOF_KEPT = 60.0
"""Seconds for which a proof is kept: a rendezvous lasts as long, and whoever asks again must not prove again."""
ANSWERING = 0.5
"""Seconds before the end of a caller's deadline at which it gets its answer."""


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
        self._out = SharedLook(lambda: nvhcd_looks.out_of_service(settings, node, log), LOOK_EVERY, clock)
        self._checks = SharedLook(self._run_checks, RUN_KEPT, clock)
        self._proof = SharedLook(lambda: nvhcd_looks.prove(settings.proof, node), PROOF_KEPT, clock)
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
        """Bind the socket so that nobody but root may use it before it has its group and mode. Raises AdapterError."""
        path = self._settings.path
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise AdapterError(f"serve.nvhcd: {path} is there, and is no socket")
            before = os.umask(0o177)
            try:
                bound = server.add_insecure_port(f"unix:{path}")
            except RuntimeError:  # what grpcio raises where it cannot bind
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
        """Answer one caller. It never raises: an error of ours must not end somebody's job."""
        asked = asked_for(arguments)
        try:
            return self._judge(asked, context.time_remaining())
        except Exception as error:
            self._log(f"serve.nvhcd: {type(error).__name__}: {error}")
            return answer(asked, None, unsure=("the service failed",), unknown_fails=self._settings.unknown_fails)

    def _judge(self, asked: AskedFor, remaining: Optional[float]) -> HealthAnswer:
        """Judge for a caller that waits for `remaining` seconds, None for as long as it takes."""
        began = self._clock()

        def left(most: float) -> float:
            return most if remaining is None else min(most, remaining - ANSWERING - (self._clock() - began))

        out = self._out.get(left(nvhcd_looks.LOOK_TIMEOUT)) or ()
        proof, unsure = nvhcd_looks.ProofNow(), []
        if asked.proof:
            proof = self._prove(left(nvhcd_looks.PROOF_LIMIT))
        if not out and self._problem():
            ran = self._checks.get(left(self._settings.timeout))
            if ran is None or ran.problem:
                unsure = [ran.problem if ran else "the checks that run now have not ended yet"]
        problem, delivery = self._problem(), self._delivery
        current = delivery if delivery and not self._too_old() else None
        return answer(
            asked, current.report if current else None, complete=bool(current and current.complete),
            age=self._clock() - self._taken if delivery else 0.0, contexts=delivery.contexts if delivery else {},
            out=out, failed=proof.failed, unknown_fails=self._settings.unknown_fails,
            unsure=(*([problem] if problem and not current else ()), *(unsure if problem else ()), *proof.unsure),
        )  # fmt: skip

    def _too_old(self) -> bool:
        return self._clock() - self._taken > self._settings.max_age

    def _problem(self) -> str:
        """Why the agent's verdict is none, "" where it is one."""
        if self._delivery is None:
            return "the agent has no verdict yet"
        if self._too_old():
            age = self._clock() - self._taken
            return f"the agent's verdict is {age:.0f} s old, more than {self._settings.max_age:.0f} s"
        return "" if self._delivery.complete else "not every check has run yet"

    def _run_checks(self) -> nvhcd_looks.ChecksNow:
        """Have the checks run, and take what they find for the verdict."""
        now = nvhcd_looks.run_checks(self._control, self._settings.timeout)
        if not now.problem:
            before = self._delivery
            report = before.report if before else Report(self._node, "", time.time(), 0.0, ())
            anew = {(result.source, result.line) for result in now.results}
            others = tuple(result for result in report.results if (result.source, result.line) not in anew)
            contexts = before.contexts if before else {}
            self.deliver(Delivery(report._replace(results=now.results + others), True, contexts=contexts))
        return now

    def _prove(self, wait: float) -> nvhcd_looks.ProofNow:
        if not self._settings.proof:
            return nvhcd_looks.ProofNow(unsure=("--proof: serve.nvhcd names no suite for it (proof)",))
        now = self._proof.get(wait)
        return now or nvhcd_looks.ProofNow(unsure=("the proof has not ended yet",))

    # What the agent calls.

    def standing(self) -> List[Standing]:
        """Nothing that this service says outlives it."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        self._delivery, self._taken = delivery, self._clock()

    def close(self) -> None:
        self._server.stop(1.0).wait(2.0)
