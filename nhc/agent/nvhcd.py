"""The service that NVIDIA's resiliency extension (NVRx) asks before each rendezvous: nvhcd.HealthCheckService.

    [serve.nvhcd]
    path = "/run/nvhcd/nvhcd.sock"
    group = "users"

The agent's current verdict is the answer, whoever asks and however many ask at once. It runs in a process of its own,
as a sink: the agent's own process has one thread, and gRPC many. Needs the extra `nvhcd` (grpcio), imported only there.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from concurrent import futures
from typing import Any, Callable, List, Optional

from nhc.agent.nvhcd_answer import HealthAnswer, answer, read_request, write_answer
from nhc.agent.nvhcd_settings import NvhcdSettings
from nhc.ports.adapter import AdapterError
from nhc.ports.sinks import Delivery, Standing

THREADS = 16
"""Requests that are answered at once; others wait for their turn, which takes milliseconds."""
MOST_CALLS = 512
"""Requests that may wait, of all users of the socket together."""
LARGEST = 64 << 10
"""Bytes of a request."""
LOOK_EVERY = 15.0
"""Seconds for which what the scheduler says of the node is kept: a job's launchers all ask within a second."""
LOOK_TIMEOUT = 10.0


class NvhcdServer:
    """`nhc.ports.sinks.Sink`: keeps the newest verdict and answers by it. Raises AdapterError if it cannot serve."""

    def __init__(
        self,
        settings: NvhcdSettings,
        node: str,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._node, self._log, self._clock = settings, node, log, clock
        self._delivery: Optional[Delivery] = None
        self._taken = 0.0
        self._lock = threading.Lock()
        self._out, self._looked = "", float("-inf")
        self._server = self._serve()

    def _serve(self) -> Any:
        try:
            import grpc
        except ModuleNotFoundError:
            from nhc.extras import how_to_install

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

    def _call(self, words: List[str], context: object) -> HealthAnswer:
        """Answer one caller. It never raises: an error of ours must not end somebody's job."""
        try:
            out = self._out_of_service()
            delivery, age = self._delivery, self._clock() - self._taken
            return answer(
                words, delivery.report if delivery else None, complete=bool(delivery and delivery.complete), age=age,
                most=self._settings.max_age, out=out, unknown_fails=self._settings.unknown_fails,
            )  # fmt: skip
        except Exception as error:
            self._log(f"serve.nvhcd: {type(error).__name__}: {error}")
            return answer(words, None, complete=False, age=0.0, most=1.0, unknown_fails=self._settings.unknown_fails)

    def _out_of_service(self) -> str:
        """Why the node is out of service, by its scheduler; "" where it is in, nobody is asked, or nobody answers.

        One caller looks, the others wait for what it finds.
        """
        if not self._settings.scheduler:
            return ""
        with self._lock:
            if self._clock() - self._looked >= LOOK_EVERY:
                self._out = self._look()
                self._looked = self._clock()
            return self._out

    def _look(self) -> str:
        from nhc.plugins import NoAdapter, open_adapter

        try:
            found = open_adapter(self._settings.scheduler, {}, dict(os.environ), LOOK_TIMEOUT).nodes([self._node])
        except (AdapterError, NoAdapter, OSError) as error:
            self._log(f"serve.nvhcd: whether the node is in service is not known: {error}")
            return ""
        state = next(iter(found), None)
        if state is None or state.available:
            return ""
        return f"{state.shown}: {state.mark.why}" if state.mark is not None else state.shown

    # What the agent calls.

    def standing(self) -> List[Standing]:
        """Nothing that this service says outlives it."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        self._delivery, self._taken = delivery, self._clock()

    def close(self) -> None:
        self._server.stop(1.0).wait(2.0)
