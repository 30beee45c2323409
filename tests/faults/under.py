"""Start one of nhc's executables under a fault: `python -m tests.faults.under FAULT LAUNCHER WORDS...`.

The fault is set in this process, by the system's own limits, when the interpreter is up and before anything of nhc's is
imported; then the launcher itself is carried out.
"""

import os
import resource
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAUNCHERS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "nhc", "core", "launch")
SPINNING = 10
"""Seconds of processor after which SIGXCPU ends a process without memory. CPython 3.11 goes round for ever where it has
none for the number that it keeps while it looks for an exception's handler (Python/ceval.c, exception_unwind)."""
NOBODY = 64321  # a number that nobody has: the limit of processes counts all of a user


def memory(spare):
    """So many MB of address space beyond what the interpreter has, and some seconds of processor: see SPINNING."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
    limit = pages * resource.getpagesize() + (int(spare) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SPINNING, SPINNING + 5))  # at the second it is SIGKILL


def descriptors(spare):
    """So many descriptors beyond those that are open."""
    limit = max(int(fd) for fd in os.listdir("/proc/self/fd")) + int(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def processes(spare):
    """A user who may have so many processes, which are too few."""
    from tests.support.other_user import become

    become(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (int(spare), int(spare)))


def clock(jump):
    """The clock of the wall jumps by so many days, there and back, each time that it has been read twice."""
    real, reads = time.time, [0]

    def jumping():
        reads[0] += 1
        return real() + (reads[0] // 2 % 2) * float(jump) * 86400

    time.time = jumping


def begun(fd):
    """None yet: say that nhc's entry is about to begin. What ends Python before that is Python's own."""
    __import__("nhc.cli.main")
    os.write(int(fd), b"x")
    os.close(int(fd))


FAULTS = {"begun": begun, "memory": memory, "descriptors": descriptors, "processes": processes, "clock": clock}


def main():
    fault, launcher, *words = sys.argv[1:]
    with open(os.path.join(LAUNCHERS, launcher), encoding="utf-8") as file:
        code = compile(file.read(), launcher, "exec")
    sys.argv = [launcher, *words]
    kind, _, value = fault.partition("=")
    if kind:
        FAULTS[kind](value)
    exec(code, {"__name__": "__main__", "__file__": os.path.join(LAUNCHERS, launcher)})


if __name__ == "__main__":
    main()
