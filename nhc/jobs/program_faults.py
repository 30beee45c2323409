"""What a job's own program, its limits or its scheduler did to it, by its log: none of it speaks against a node.

A row is a class of wordings with the source that prints it. Advice in a log ("consider CUDA_LAUNCH_BLOCKING", "may be
caused by") is in no row. Python's tracebacks are read by their structure: the exception ends them, whatever its name.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Pattern, Tuple

PROGRAM, LIMIT, SCHEDULER, UNKNOWN = "the program", "a limit", "the scheduler or a person", ""


class ProgramFault(NamedTuple):
    """Who ended the job, "" where the log does not say, and by what."""

    owner: str
    what: str

    @property
    def text(self) -> str:
        """For a person."""
        return (
            f"{self.owner} ended it, no node: {self.what}" if self.owner else f"who ended it is not known: {self.what}"
        )


class _Row(NamedTuple):
    owner: str
    what: str
    pattern: Pattern[str]


def _row(owner: str, what: str, pattern: str) -> _Row:
    return _Row(owner, what, re.compile(pattern))


ROWS: Tuple[_Row, ...] = (
    # PyTorch c10/cuda/CUDACachingAllocator.cpp; TensorFlow, JAX: tsl/framework/bfc_allocator.cc, xla
    _row(PROGRAM, "out of the GPU's memory", r"CUDA out of memory|HIP out of memory|\bOutOfMemoryError\b|"
         r"RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor|CUDA_ERROR_OUT_OF_MEMORY|"
         r"cudaErrorMemoryAllocation"),
    # CUDA Runtime API, error names and texts: what a kernel did, on whatever GPU it runs
    _row(PROGRAM, "an assertion in a GPU kernel failed", r"device-side assert|cudaErrorAssert\b|CUDA_ERROR_ASSERT"),
    _row(PROGRAM, "a GPU kernel used an address that it may not", r"(?:an )?illegal memory access|misaligned address|"
         r"CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress|CUDA_ERROR_MISALIGNED_ADDRESS"),
    _row(PROGRAM, "a GPU kernel was started wrongly", r"CUDA error: (?:invalid (?:configuration )?argument|"
         r"invalid device function|too many resources requested|no kernel image is available)"),
    # NCCL init.cc: ranks that share a GPU; argument checks
    _row(PROGRAM, "two ranks use one GPU", r"NCCL WARN Duplicate GPU detected"),
    # slurmstepd, proctrack and task plugins; kernel's memory cgroup
    _row(LIMIT, "the job's memory limit", r"oom[-_]kill event|[Ee]xceeded (?:job )?memory limit|OOMKilled|"
         r"Memory cgroup out of memory"),
    _row(LIMIT, "the job's time limit", r"DUE TO TIME LIMIT|DeadlineExceeded"),
    _row(LIMIT, "the disk quota or a full file system", r"Disk quota exceeded|No space left on device"),
    # slurmstepd: `*** JOB 17 ON n1 CANCELLED AT ... ***`
    _row(SCHEDULER, "preempted", r"DUE TO PREEMPTION|Preempted by scheduler"),
    _row(SCHEDULER, "cancelled", r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (?!.*(?:NODE FAIL|TIME LIMIT|PREEMPT))"),
    # torch/distributed/elastic/multiprocessing/api.py: the status of the process that ended first
    _row(PROGRAM, "the program crashed (SIGSEGV)", r"failed \(exitcode: -11\)|Signal 11 \(SIGSEGV\)"),
    _row(PROGRAM, "the program aborted (SIGABRT)", r"failed \(exitcode: -6\)|Signal 6 \(SIGABRT\)"),
    _row(PROGRAM, "the program crashed (SIGFPE)", r"failed \(exitcode: -8\)|Signal 8 \(SIGFPE\)"),
    _row(UNKNOWN, "it was killed by SIGKILL: a memory limit, the scheduler or a person",
         r"failed \(exitcode: -9\)|Signal 9 \(SIGKILL\)"),
)  # fmt: skip

_ANY = re.compile("|".join(f"(?:{row.pattern.pattern})" for row in ROWS))
"""Whether any row fits: nearly no line of a log does, and it is asked of each."""
_BEGINS = re.compile(r"^(.*?)Traceback \(most recent call last\):\s*$")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?::\s?(.*))?$")
_NOT_ITS_OWN = re.compile(
    r"NCCL|ncclUnhandled|ncclSystem|ncclRemote|gloo|unspecified launch failure|uncorrectable|hardware error|ECC|"
    r"Connection (?:reset|refused|closed)|Broken pipe|[Tt]imed? ?out|Stale file handle|Input/output error|"
    r"Transport endpoint|CUBLAS_STATUS_|CUDNN_STATUS_|CUDA error|HIP error|Remote end"
)
"""Exceptions that pass on what a library, the network, storage or a device said."""
_CASCADES = ("ChildFailedError", "DistBackendError", "DistNetworkError", "DistStoreError", "ConnectionError",
             "ConnectionResetError", "BrokenPipeError", "TimeoutError", "RendezvousTimeoutError",
             "RendezvousConnectionError", "SignalException", "KeyboardInterrupt", "OSError", "IOError")  # fmt: skip


class ProgramFaults:
    """Reads a log line by line; each rank's traceback is a traceback of its own."""

    def __init__(self) -> None:
        self._within: Dict[str, List[str]] = {}

    def line(self, line: str) -> Optional[ProgramFault]:
        """Who ended the job by this line, None for nearly every line."""
        if _ANY.search(line):
            row = next(row for row in ROWS if row.pattern.search(line))
            return ProgramFault(row.owner, row.what)
        return self._traceback(line)

    def _traceback(self, line: str) -> Optional[ProgramFault]:
        begins = _BEGINS.match(line)
        if begins:
            self._within[begins[1]] = []
            return None
        for prefix in sorted(self._within, key=len, reverse=True):
            if line.startswith(prefix) and not line[len(prefix) :].startswith((" ", "\t")):
                rest = line[len(prefix) :].rstrip()
                del self._within[prefix]
                return _exception(rest)
        return None


def _exception(text: str) -> Optional[ProgramFault]:
    found = _EXCEPTION.match(text)
    if not found:
        return None
    name, said = found[1].rpartition(".")[2], found[2] or ""
    if name in _CASCADES or _NOT_ITS_OWN.search(text):
        return None
    return ProgramFault(PROGRAM, f"{name}: {said}"[:160] if said else name)
