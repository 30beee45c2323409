"""The commands of the program on the node: look; start, show, restore (a repair); run, poll, stop (a program);
evidence. Each prints one line of JSON, `collect` one for each piece of evidence before it.

`start` and `run` decide in the foreground and answer; the work then continues in a process of its own, so that a lost
connection neither ends nor hides it: `show` and `poll` give its result by its key.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shlex
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from nhc_adapters.node.hand import evidence, look
from nhc_adapters.node.hand.carry_out import RepairWork, answer_of
from nhc_adapters.node.hand.journal import BOOTING, ENDED, RepairJournal, RepairState
from nhc_adapters.node.hand.look import LocalNode
from nhc_adapters.node.hand.plan import another, plan
from nhc_adapters.node.hand.runs import NodeRuns, RunWatch
from nhc_adapters.node.hand.values import (
    AskedRepair,
    AskedRun,
    NodeFacts,
    NotPossible,
    Refusal,
    RepairPlan,
    RepairResult,
)

Answer = Mapping[str, object]
BUSY = 60.0
"""Seconds after which a node on which another repair runs may be asked again."""
RESULT = 4096
"""Bytes that Kubernetes keeps of what a container wrote before it ended."""


COMMANDS = ("look", "start", "show", "restore", "run", "poll", "stop", "evidence", "collect", "sentinel")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command; 0 if it could be carried out, with any answer."""
    parser = argparse.ArgumentParser(prog="nhc-hand", description="Repair this node. Started by nhc remedy.")
    parser.add_argument("--root", default="", help="directory below which the node's file system is")
    parser.add_argument("--enter", default="", help="words before each command, a pod's way into the node")
    parser.add_argument("--path", default="", help="directories in which commands are looked for first")
    parser.add_argument("--wait", action="store_true", help="stay until the repair has ended")
    parser.add_argument("--result", default="", help="a file that gets the answer as well, at most 4096 bytes of it")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument(
        "words",
        nargs="*",
        help="start, restore, run: the order as JSON; show, poll, stop: its key; evidence: NAME BYTES SECONDS; "
        "collect: BYTES SECONDS; sentinel: the order and a file",
    )
    given = parser.parse_args(argv)
    node, journal = LocalNode(given.root, shlex.split(given.enter), given.path), RepairJournal(given.root)
    try:
        answer = _answer(given.command, given.words, node, journal, given.wait)
    except NotPossible as error:
        answer = {"problem": str(error)[:900]}
    except OSError as error:
        answer = {"problem": f"{error.filename or journal.directory}: {error.strerror}"[:900]}
    except (ValueError, TypeError, IndexError) as error:
        print(f"nhc-hand: {given.command}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer), flush=True)
    return _keep(given.result, answer) if given.result else 0


def _answer(command: str, arguments: Sequence[str], node: LocalNode, journal: RepairJournal, wait: bool) -> Answer:
    if command == "look":
        return _look(node, journal)
    if command == "show":
        return _show(node, journal, arguments[0])
    if command == "evidence":
        content, cut = evidence.take(node, arguments[0], int(arguments[1]), float(arguments[2]))
        return {"content": base64.b64encode(content).decode(), "cut": cut}
    if command == "collect":
        for line in evidence.collect(node, int(arguments[0]), float(arguments[1])):
            print(json.dumps(line), flush=True)
        return {"looked_for": len(evidence.NAMES)}
    if command == "poll":
        return NodeRuns(node.root).shown(arguments[0])
    if command == "stop":
        return NodeRuns(node.root).stop(arguments[0])
    value: Dict[str, Any] = json.loads(arguments[0])
    value = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    if command == "run":
        return _run(node, journal, AskedRun(**value))
    asked = AskedRepair(**value)
    if command == "sentinel":
        return _sentinel(node, asked, arguments[1])
    if command == "restore":
        return _restore(node, journal, asked)
    return _start(node, journal, asked, wait)


def _sentinel(node: LocalNode, asked: AskedRepair, path: str) -> Answer:
    """Make the file by which another program (kured) is asked to reboot this node. Raises OSError."""
    boot, uuid = look.identity(node)
    other = another(NodeFacts(boot, uuid, ""), asked)
    if other:
        return _refused(other)
    node.write(path, f"nhc: {' '.join(asked.because.split())[:300]} (order {asked.key})\n")
    _log(node, f"a reboot is asked for by {path}: {asked.because} (order {asked.key})")
    return {"stage": "done", "message": f"{path} is there", "boot": boot}


def _keep(path: str, answer: Answer) -> int:
    """The answer in a file, whole: what Kubernetes keeps of a pod that has ended (4096 bytes)."""
    text = json.dumps(answer)
    if len(text) > RESULT:
        text = json.dumps({name: value for name, value in answer.items() if name != "results"})
    try:
        with open(path, "w") as file:
            file.write(text[:RESULT])
    except OSError as error:
        print(f"nhc-hand: --result {path}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _look(node: LocalNode, journal: RepairJournal) -> Answer:
    boot, uuid = look.identity(node)
    if not boot:
        raise NotPossible("/proc/sys/kernel/random/boot_id cannot be read")
    return {"boot": boot, "uuid": uuid, "busy": journal.busy()}


def _show(node: LocalNode, journal: RepairJournal, key: str) -> Answer:
    state = journal.load(key)
    if state is None:
        return _show_command(NodeRuns(node.root), key)
    busy = journal.busy()
    if state.phase != ENDED and not busy:
        state = journal.load(key) or state  # it may have ended between the two looks
    return answer_of(state, look.identity(node).boot, busy)


def _show_command(runs: NodeRuns, key: str) -> Answer:
    """A program of the site's own, shown as a repair: its exit status says whether it worked, its last line why not."""
    found = runs.state(key)
    if found is None:
        return {"stage": "unknown", "message": "the node knows nothing of this repair"}
    end, output = found
    if end is None:
        return {"stage": "working", "message": "it runs"}
    if end.status is None:
        return {"stage": "failed", "message": end.why}
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    message = f"it ended with {end.status}{f': {lines[-1][:300]}' if lines else ''}"
    return {"stage": "failed" if end.status else "done", "message": message}


def _start(node: LocalNode, journal: RepairJournal, asked: AskedRepair, wait: bool) -> Answer:
    lock = journal.lock()
    if lock is None:
        if journal.load(asked.key) is not None:
            return {"answer": "accepted", "message": "this order was taken before, and runs"}
        return _refused("another repair runs on this node", BUSY)
    try:
        if journal.load(asked.key) is not None:
            return {"answer": "accepted", "message": "this order was taken before"}
        _leftovers(node, journal, asked)
        facts = look.facts(node, asked)
        made = plan(facts, asked)
        if isinstance(made, Refusal):
            return _refused(made.message, made.retry_after)
        state = RepairState(asked.key, asked.rung, asked.device, asked.because[:300], facts.boot, time.time())
        journal.save(state)
        _log(node, f"repair {asked.rung} {asked.device} begins: {asked.because} (order {asked.key})")
        work = RepairWork(node, journal, state, asked)
        if wait:
            _carry_out(work, made, facts)
            return answer_of(work.state, look.identity(node).boot, False)
        _leave(lambda: _carry_out(work, made, facts))
    except NotPossible as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"{error.filename or journal.directory}: {error.strerror}")
    finally:
        os.close(lock)
    return {"answer": "accepted", "message": "the node has taken it, and works"}


def _refused(message: str, retry_after: float = 0.0) -> Answer:
    return {"answer": "refused", "message": message[:900], "retry_after": retry_after}


def _restore(node: LocalNode, journal: RepairJournal, asked: AskedRepair) -> Answer:
    """Put back what a killed repair has left. A repair that has ended, or runs, is left alone."""
    lock = journal.lock()
    if lock is None:
        return _refused("a repair runs on this node", BUSY)
    try:
        _leftovers(node, journal, asked)
    finally:
        os.close(lock)
    return {"answer": "accepted", "message": "what the repair stopped was put back"}


def _leftovers(node: LocalNode, journal: RepairJournal, asked: AskedRepair) -> None:
    """With the lock held nothing runs: what has not ended was killed."""
    for state in journal.states():
        if state.phase not in (ENDED, BOOTING):
            judged = RepairResult(False, f"the repair was killed while it was {state.phase}")
            RepairWork(node, journal, state, asked).put_back(judged)
    journal.forget()


def _log(node: LocalNode, text: str) -> None:
    """A line in the node's own log, which outlives a reboot. A node without logger is repaired all the same."""
    try:
        node.run("logger", "-t", "nhc-repair", " ".join(text.split()), timeout=5.0)
    except NotPossible:
        return


def _run(node: LocalNode, journal: RepairJournal, asked: AskedRun) -> Answer:
    """Begin a program, once; its watcher goes on in a process of its own. Raises OSError."""
    boot, uuid = look.identity(node)
    other = another(NodeFacts(boot, uuid, ""), asked) if asked.uuid or asked.boot else ""
    if other:
        return _refused(other)
    runs = NodeRuns(node.root)
    alone = journal.lock() if asked.alone else -1
    if alone is None:
        if runs.state(asked.key) is not None:
            return {"answer": "accepted", "message": "this run was begun before"}
        return _refused("a repair runs on this node", BUSY)
    try:
        lock = runs.begin(asked.key)
        if lock is None:
            return {"answer": "accepted", "message": "this run was begun before"}
        _leave(RunWatch(runs, asked).carry_out)
        os.close(lock)
    finally:
        if alone >= 0:
            os.close(alone)
    return {"answer": "accepted", "message": "the node has begun it"}


def _leave(carry_out: Callable[[], None]) -> None:
    """Carry it out in a process of its own, which has the lock too, and no part in our connection."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    status = 1
    try:
        os.setsid()
        if os.fork():
            status = 0
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        carry_out()
        status = 0
    finally:
        os._exit(status)


def _carry_out(work: RepairWork, made: RepairPlan, facts: NodeFacts) -> None:
    """A signal ends the repair at the next step, and what was taken away is put back; a second one is ignored."""

    def end(number: int, _frame: object) -> None:
        for ending_signal in ending:
            signal.signal(ending_signal, signal.SIG_IGN)
        raise NotPossible(f"ended by {signal.Signals(number).name}")

    ending: List[signal.Signals] = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    for ending_signal in ending:
        signal.signal(ending_signal, end)
    work.carry_out(made, facts)
    _log(work.node, f"repair {work.state.rung} {work.state.device} ended: {work.state.message}")
