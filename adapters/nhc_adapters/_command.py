"""How the scheduler adapters run a scheduler's own commands. Standard library only: hooks run this.

Commands run by argv, never through a shell, within a deadline, with a fixed PATH. A site extends it (`NHC_RM_PATH`) if
its scheduler is elsewhere.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

from nhc.core.model import printable
from nhc.core.system import process
from nhc.core.system.process import Completed
from nhc.marks.ports.adapter import (
    OWNER,
    OWNER_SETTING,
    WORK_SETTING,
    AdapterError,
    Applied,
    Effect,
    Mark,
    NodeState,
)
from nhc.marks.ports.marks import in_place_of, mark_text, may_clear, may_mark, same_cause

Runner = Callable[[Sequence[str], float, Mapping[str, str]], Completed]
T = TypeVar("T")

# Where schedulers are installed beside /usr/bin: SchedMD's and AWS ParallelCluster's prefix, Bright's, OpenPBS's.
ELSEWHERE = (
    "/opt/slurm/bin",
    "/usr/local/slurm/bin",
    "/cm/shared/apps/slurm/current/bin",
    "/opt/pbs/bin",
    "/usr/local/pbs/bin",
)

KEPT = ("HOME", "USER", "LOGNAME", "KRB5CCNAME")
KEPT_PREFIXES = ("SLURM", "PBS", "SGE", "LSF", "EGO", "FLUX", "MUNGE")


def run_command(argv: Sequence[str], timeout: float, env: Mapping[str, str]) -> Completed:
    """Run it for real."""
    return process.run(argv, timeout=timeout, env=env)


class NotEnded(AdapterError):
    """A command did not end in time: its change may have been made."""


class Commands:
    """Runs a scheduler's commands and counts them (`calls`)."""

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
        run: Runner = run_command,
    ) -> None:
        self.settings = settings or {}
        self.timeout = timeout
        self.calls = 0
        self._run = run
        # slurmd tells its prolog where slurm.conf is and its HealthCheckProgram not: the configuration can say it.
        given = {**(os.environ if environ is None else environ), **self.settings}
        self.env: Dict[str, str] = {
            name: value for name, value in given.items() if name in KEPT or name.startswith(KEPT_PREFIXES)
        }
        site = self.setting("NHC_RM_PATH")
        self.env["PATH"] = ":".join((*([site] if site else []), process.PATH, *ELSEWHERE))
        self.env["LC_ALL"] = "C.UTF-8"

    def setting(self, name: str, default: str = "") -> str:
        return self.settings.get(name, "") or default

    def count(self) -> None:
        """One more question was put to the scheduler."""
        self.calls += 1

    def __call__(self, *argv: str) -> Completed:
        """Run one command. Raises AdapterError where it cannot be run, NotEnded where it does not end in time."""
        self.count()
        try:
            done = self._run(argv, self.timeout, self.env)
        except FileNotFoundError:
            raise AdapterError(f"{argv[0]} is not installed (or not on PATH: set NHC_RM_PATH)") from None
        except OSError as error:
            raise AdapterError(f"{argv[0]} cannot be run: {error.strerror}") from None
        if done.timed_out:
            raise NotEnded(f"{argv[0]} {' '.join(argv[1:3])} did not end within {self.timeout:g} s")
        return done

    def ask(self, *argv: str) -> str:
        """Run one command that must succeed; what it printed. Raises AdapterError with what it said."""
        done = self(*argv)
        if done.status:
            raise AdapterError(f"{argv[0]} {argv[1] if len(argv) > 1 else ''}: {complaint(done)}")
        return done.stdout


def complaint(done: Completed) -> str:
    """What a failed command said, on one line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return printable("; ".join(lines[-3:]), 300) or f"exit status {done.status}"


def understood(whose: str, parse: Callable[..., T], *answer: object) -> T:
    """A scheduler's answer as `parse` reads it. Raises AdapterError where that makes no sense of it: ValueError, or
    what comes of a value of another shape.
    """
    try:
        return parse(*answer)
    except ValueError as error:
        raise AdapterError(f"{whose} answer cannot be understood: {error}") from None
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError) as error:
        why = printable(f"{type(error).__name__}: {error}", 200)
        raise AdapterError(f"{whose} answer cannot be understood: {why}") from None


ARGUMENT_LIMIT = 100_000
"""Characters of one folded list of nodes: Linux takes 131072 in a single argument (MAX_ARG_STRLEN)."""


def chunks(names: Iterable[str], limit: int = ARGUMENT_LIMIT) -> List[Tuple[List[str], str]]:
    """The names in as few lists as fit an argument each, with their folded form."""
    from nhc.core.matching.node_ranges import fold_for_scheduler

    todo = [sorted(set(names))]
    done: List[Tuple[List[str], str]] = []
    while todo:
        some = todo.pop(0)
        folded = fold_for_scheduler(some)
        if len(folded) > limit and len(some) > 1:
            half = len(some) // 2
            todo[:0] = [some[:half], some[half:]]
        elif some:
            done.append((some, folded))
    return done


Failures = Dict[str, str]
"""The nodes that a command did not do, with its complaint."""


# Which nodes share a machine.

Hosts = Mapping[str, Tuple[str, str]]
"""The name and the address of each node's host, "" for what is not known."""

HOSTS_EVERY = 600.0
"""Seconds for which the nodes' hosts are remembered."""


def machines_of(hosts: Hosts) -> Mapping[str, Tuple[str, ...]]:
    """The nodes of each machine that has several, by each of them."""
    same: Dict[str, str] = {}

    def first(place: str) -> str:
        while same.setdefault(place, place) != place:
            place = same[place]
        return place

    for host, address in hosts.values():
        if host and address:
            same[first(f"host {host}")] = first(f"address {address}")
    nodes: Dict[str, List[str]] = {}
    for node, (host, address) in sorted(hosts.items()):
        if host or address:
            nodes.setdefault(first(f"host {host}" if host else f"address {address}"), []).append(node)
    return {node: tuple(names) for names in nodes.values() if len(names) > 1 for node in names}


def with_machines(states: Iterable[NodeState], machines: Mapping[str, Tuple[str, ...]]) -> List[NodeState]:
    """The nodes with all that are on their machines."""
    by_name = {state.name: state for state in states}
    shared = {nodes: tuple(by_name[node] for node in nodes if node in by_name) for nodes in set(machines.values())}
    return [state._replace(machine=shared[machines[name]]) if name in machines else state
            for name, state in by_name.items()]  # fmt: skip


class CommandMarker(ABC):
    """The base of the scheduler adapters: read, skip nodes that must not change, fold equal changes, read again on
    failure.

    An adapter defines how it reads its scheduler (`_read`), takes nodes out with a reason (`_take_out`) and puts them
    back (`_put_back`). The last two return failures. If a node among them then has the wanted state, it counts as done.
    """

    keeps_time = False
    """Whether the scheduler itself keeps when a reason was set. Else the time is in the reason's text."""

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
        run: Runner = run_command,
    ) -> None:
        self.command = Commands(settings, environ, timeout, run)
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.owner = self.command.setting(OWNER_SETTING, OWNER)
        self._hosts: Hosts = {}
        self._hosts_read = float("-inf")
        self._shared: Mapping[str, Tuple[str, ...]] = {}
        self._prepare()

    @property
    def in_hook(self) -> bool:
        """Whether a hook asks. All nodes run hooks at once, so a hook gets only the nodes' own flags."""
        return self.command.setting(WORK_SETTING) == "flags"

    def _prepare(self) -> None:  # noqa: B027 (some have nothing to set up)
        """What an adapter sets up besides, with its commands there. Raises AdapterError on settings of no sense."""

    @property
    def calls(self) -> int:
        """How often a command of the scheduler was run."""
        return self.command.calls

    @abstractmethod
    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        """These nodes as the scheduler has them, all for None; others may be among them. Raises AdapterError."""

    def _read_hosts(self) -> Hosts:
        """The hosts of all nodes; several nodes may share one. Raises AdapterError."""
        return {}

    def _machines(self, names: Iterable[str]) -> Mapping[str, Tuple[str, ...]]:
        """The nodes that share a machine, read now and then, and where one of these is new; none for a hook."""
        now = time.monotonic()
        stale = now - self._hosts_read > HOSTS_EVERY or any(name not in self._hosts for name in names)
        if stale and not self.in_hook:
            self._hosts, self._hosts_read = self._read_hosts(), now
            self._shared = machines_of(self._hosts)
        return self._shared

    def _is_out(self, state: NodeState) -> bool:
        """Whether a node that is to be marked needs a new reason only."""
        return not state.available

    @abstractmethod
    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        """Take nodes out with this reason, or give those that are out a new one."""

    @abstractmethod
    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        """Take our mark off nodes that carry it."""

    def _text(self, mark: Mark) -> str:
        return mark_text(mark, with_since=not self.keeps_time)

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        wanted = None if names is None else set(names)
        if wanted is not None:
            for name in sorted(wanted):
                plain(name)
        if wanted is not None and not wanted:
            return []
        machines = self._machines(wanted or ())
        asked = None if wanted is None else sorted({mate for name in wanted for mate in machines.get(name, (name,))})
        states = with_machines(self._read(asked), machines)
        return sorted(
            (state for state in states if wanted is None or state.name in wanted), key=lambda state: state.name
        )

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._states(list(marks), seen)
        done: Dict[str, Applied] = {}
        same: Dict[Tuple[str, bool], List[NodeState]] = {}
        marks = {node: mark._replace(owner=self.owner) for node, mark in marks.items()}
        for node, mark in marks.items():
            state = states.get(node)
            effect, why = may_mark(state, mark)
            done[node] = Applied(node, effect, why)
            if effect is Effect.CHANGED and state is not None:
                text = self._text(in_place_of(state, mark))
                same.setdefault((text, self._is_out(state)), []).append(state)
        failures: Failures = {}
        for (text, _out), some in same.items():
            failures.update(self._take_out(some, text))
        self._judge(done, failures, lambda state: not state.available and self._carries(state, marks[state.name]))
        return [done[node] for node in marks]

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._states(names, seen)
        done: Dict[str, Applied] = {}
        todo: List[NodeState] = []
        for node in dict.fromkeys(names):
            state = states.get(node)
            effect, why = may_clear(state, self.owner)
            done[node] = Applied(node, effect, why)
            if effect is Effect.CHANGED and state is not None:
                todo.append(state)
        failures = self._put_back(todo) if todo else {}
        self._judge(done, failures, lambda state: state.available)
        return list(done.values())

    def _states(self, names: Sequence[str], seen: Optional[Iterable[NodeState]]) -> Dict[str, NodeState]:
        return {state.name: state for state in (self.nodes(names) if seen is None else seen)}

    def _carries(self, state: NodeState, mark: Mark) -> bool:
        standing = state.mark
        return standing is not None and standing.ours and same_cause(standing, mark)

    def _judge(self, done: Dict[str, Applied], failures: Failures, holds: Callable[[NodeState], bool]) -> None:
        """Turn failures into answers, but for the nodes that are as wanted all the same."""
        if not failures:
            return
        try:
            kept = {state.name for state in self.nodes(list(failures)) if holds(state)}
        except AdapterError:
            kept = set()
        for node, why in failures.items():
            if node not in kept:
                done[node] = Applied(node, Effect.FAILED, why)

    def each(self, states: Sequence[NodeState], *argv: str) -> Failures:
        """Run a command with the nodes' names appended, in as few calls as exec takes."""
        failures: Failures = {}
        for some in batches([state.name for state in states]):
            failures.update(self.try_(some, *argv, *some))
        return failures

    def try_lists(self, nodes: Iterable[str], argv: Callable[[str], Sequence[str]]) -> Failures:
        """Run a command that takes a folded list of nodes, in as few calls as they fit."""
        failures: Failures = {}
        for some, folded in chunks(nodes):
            failures.update(self.try_(some, *argv(folded)))
        return failures

    def try_(self, nodes: Sequence[str], *argv: str) -> Failures:
        """Run a command that concerns these nodes; they all fail with it."""
        try:
            done = self.command(*argv)
            why = complaint(done) if done.status else ""
        except AdapterError as error:
            why = str(error)
        return dict.fromkeys(nodes, why) if why else {}


def batches(names: Sequence[str]) -> List[List[str]]:
    """The names in groups that fit one command line."""
    groups: List[List[str]] = []
    size = ARGUMENT_LIMIT + 1
    for name in names:
        size += len(name.encode()) + 1
        if size > ARGUMENT_LIMIT:
            groups.append([])
            size = len(name.encode()) + 1
        groups[-1].append(name)
    return groups


def plain(name: str) -> str:
    """A name that no command can take for an option, a pattern or a list. Raises AdapterError."""
    if not name or name[0] == "-" or not all(c.isalnum() or c in "._-" for c in name):
        raise AdapterError(f"{name!r} is not a node's name")
    return name
