"""Starts a process for each GPU, all at once: if a call of the driver hangs, only the result of one GPU is lost.

`nhc.node.gpu_proof.request` starts this as a program, with the request as JSON on its standard input, and reads the
answer from its output. The processes of the GPUs hold nothing of the caller's but their own pipe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.system import children
from nhc.node.gpu_proof import operands
from nhc.node.gpu_proof.device import NO_SM, ProofLimits, prove, prove_copies
from nhc.node.gpu_proof.driver import Driver, DriverError, NoDriver
from nhc.node.gpu_proof.running import NAME

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence

    from typing_extensions import TypeAlias

    Answer: TypeAlias = Dict[str, Any]
    Step: TypeAlias = Callable[[str], None]
    Open: TypeAlias = Callable[[Step], Driver]

ENDING = 1.0
"""Seconds for a killed process to end; one that does not is stuck in the kernel, and is left there."""


class _Process:
    """One GPU's process: its last message, and its answer."""

    def __init__(self, opened: Open, work: Callable[[Driver, Step], Any]) -> None:
        self.begun = time.monotonic()
        self.step = "starting"
        self.answer: Any = None
        self._status = -1
        self._text = b""
        self.pid, [(self.fd, write)] = children.fork(lambda pipe: _child(pipe[1], opened, work))
        os.close(write)

    def read(self) -> bool:
        """Take what it wrote; False once it has ended."""
        data = os.read(self.fd, 65536)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.step = message.get("step", self.step)
            self.answer = message.get("answer", self.answer)
        return bool(data)

    def end(self) -> Answer:
        """Its result. A process that did not end by itself is killed."""
        hung = {"hung": round(time.monotonic() - self.begun, 1)}
        os.close(self.fd)
        if self.answer is not None and self._gone(ENDING):
            return self.answer  # type: ignore[no-any-return]
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        gone = self._gone(ENDING)
        if self.answer is not None:
            return self.answer  # type: ignore[no-any-return]
        if self._status >= 0 and os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) != signal.SIGKILL:
            return {"error": {"step": self.step, "died": signal.Signals(os.WTERMSIG(self._status)).name}}
        return {"error": {"step": self.step, **hung, **({} if gone else {"stuck": self.pid})}}

    def _gone(self, within: float) -> bool:
        deadline = time.monotonic() + within
        while self._status < 0:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(0.005)
        return True


def _child(fd: int, opened: Open, work: Callable[[Driver, Step], Any]) -> None:
    """In the new process: close all descriptors of the caller, so that no program waits for a process that hangs."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    children.close_all_but((fd,))
    try:
        with open("/proc/self/comm", "w") as name:
            name.write(NAME)
    except OSError:
        pass  # no /proc, or a kernel that refuses it: the proof does not need it

    def send(message: Answer) -> None:
        os.write(fd, json.dumps(message).encode() + b"\n")

    last = ""

    def step(name: str) -> None:
        nonlocal last
        last = name
        send({"step": name})

    try:
        answer = work(opened(step), step)
    except DriverError as error:
        answer = {"error": {"step": last, "call": error.call, "code": error.code, "name": error.name}}
    except NoDriver as error:
        answer = {"error": {"step": last, "driver": str(error)}}
    except Exception as error:
        answer = {"error": {"step": last, "broken": f"{type(error).__name__}: {error}"}}
    send({"answer": answer})


def _all(work: Sequence[_Process], timeout: float) -> List[Any]:
    """The result of each process, in their order, at most `timeout` seconds from now."""
    deadline = time.monotonic() + timeout
    running = {process.fd: process for process in work}
    poll = select.poll()
    for fd in running:
        poll.register(fd, select.POLLIN)
    while running and time.monotonic() < deadline:
        for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not running[fd].read():
                poll.unregister(fd)
                del running[fd]
    return [process.end() for process in work]


def _opener(visible: str, architecture: str) -> Open:
    """The loader of the library for these GPUs: HIP's if they have an architecture."""
    if not architecture:
        return lambda step: Driver(step, visible)
    from nhc.node.gpu_proof.hip import HipDriver

    return lambda step: HipDriver(step, visible, architecture)


def carry_out(request: Answer) -> Answer:
    """Prove the GPUs of a request; the answer has `gpus` in the request's order, and `pairs`.

    A request has `gpus` (each with `visible`, its name in CUDA_VISIBLE_DEVICES, and `seconds` and `memory` as in
    ProofLimits), `kinds`, `thorough`, `seed`, `pairs` (whether to copy between them) and `timeout` in seconds. One for
    AMD's GPUs has their `architecture` besides, and their PCI addresses as names.
    """
    seed, kinds = int(request["seed"]), tuple(request["kinds"])
    architecture = request.get("architecture", "")
    # Each problem is made once: the processes of the GPUs inherit it.
    for kind in operands.MFMA.get(architecture, (*operands.WARP_KINDS, operands.FP8)):
        if not kinds or kind.name in kinds:
            operands.problem(kind, seed)

    def process_of(gpu: Answer) -> _Process:
        spoil = int(request.get("spoil", NO_SM))
        limits = ProofLimits(float(gpu["seconds"]), int(gpu["memory"]), kinds, bool(request["thorough"]), spoil)
        return _Process(_opener(gpu["visible"], architecture), lambda driver, step: prove(driver, seed, limits, step))

    timeout = float(request["timeout"])
    answers = _all([process_of(gpu) for gpu in request["gpus"]], timeout)
    names = [gpu["visible"] for gpu in request["gpus"]]
    able = [name for name, answer in zip(names, answers) if "error" not in answer and "unsupported" not in answer]
    copies: Any = []
    if request["pairs"] and len(able) > 1:
        together = _opener(",".join(able), architecture)
        [copies] = _all([_Process(together, lambda driver, step: prove_copies(driver, seed, step))], timeout)
    return {"gpus": answers, "pairs": copies}


def main() -> None:
    """Read a request, write the answer."""
    print(json.dumps(carry_out(json.loads(sys.stdin.read(1 << 20)))), flush=True)
