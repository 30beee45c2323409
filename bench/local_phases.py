"""Runs nhc with its phases timed, for bench/local.py: `python -S bench/local_phases.py SITE FILE ARGUMENTS...`.

SITE is the directory that nhc lies in. CPU seconds of each phase are appended to FILE, the worker's as well.
"""

import builtins
import os
import sys
import time

site, file, *arguments = sys.argv[1:]
sys.argv = ["nhc", *arguments]
sys.path[:] = [*sys.path[1:], site]
spent, stack, importing = {}, [], []
note = [os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)]
begun = time.process_time()


def clocked(name, function):
    """The function, its time counted without that of the clocked ones within it."""

    def call(*args, **kwargs):
        entered = time.process_time()
        stack.append(0.0)
        try:
            return function(*args, **kwargs)
        finally:
            took = time.process_time() - entered
            spent[name] = spent.get(name, 0.0) + took - stack.pop()
            if stack:
                stack[-1] += took

    return call


def outermost(*args, **kwargs):
    """`import`: one that begins within another is part of that."""
    if importing:
        return imports(*args, **kwargs)
    importing.append(args)
    try:
        return clocked_imports(*args, **kwargs)
    finally:
        importing.clear()


imports = builtins.__import__
clocked_imports = clocked("imports", imports)
builtins.__import__ = outermost

from nhc.cli import main  # noqa: E402
from nhc.node.commands import check_local  # noqa: E402
from nhc.node.planning import local as planning  # noqa: E402
from nhc.node.run import supervisor  # noqa: E402

fork, live, quiet, leave, own = clocked("fork", os.fork), supervisor.live, supervisor.quiet, os._exit, os.getpid()


def forked():
    pid = fork()
    if not pid:
        spent.clear()
        stack.clear()
    return pid


def keeping_the_note(*keep):
    *kept, descriptor = quiet(*keep, *note)
    note[:] = [descriptor]
    return tuple(kept)


def worker(*args):
    live(*args)
    imported = spent.get("imports", 0.0)
    write({"checks' imports": imported, "checks": time.process_time() - imported})


def out(status):
    if os.getpid() == own:
        write({**spent, "supervision": time.process_time() - begun - sum(spent.values())})
    leave(status)


def write(phases):
    os.write(*note, "".join(f"{name} {took}\n" for name, took in phases.items()).encode())


planning.load_plan = clocked("plan", planning.load_plan)
check_local._print_report = clocked("render", check_local._print_report)
os.fork, os._exit = forked, out
supervisor.live, supervisor.quiet = worker, keeping_the_note
main.entry("nhc.cli.main")
