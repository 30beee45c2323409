"""How the scheduler adapters run a scheduler's own commands. Standard library only: hooks run this.

By argv, never through a shell, within a deadline, with a fixed PATH that a site extends (`NHC_RM_PATH`) where
its scheduler lives elsewhere.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc import process
from nhc.model import printable
from nhc.ports import AdapterError, Applied, Effect, Mark, NodeState, may_clear, may_mark
from nhc.process import Completed

Runner = Callable[[Sequence[str], float, Mapping[str, str]], Completed]

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
        self.calls: List[Tuple[str, ...]] = []
        self._run = run
        given = os.environ if environ is None else environ
        self.env: Dict[str, str] = {
            name: value for name, value in given.items() if name in KEPT or name.startswith(KEPT_PREFIXES)
        }
        site = self.setting("NHC_RM_PATH")
        self.env["PATH"] = ":".join((*([site] if site else []), process.PATH, *ELSEWHERE))
        self.env["LC_ALL"] = "C.UTF-8"

    def setting(self, name: str, default: str = "") -> str:
        return self.settings.get(name, "") or default

    def __call__(self, *argv: str) -> Completed:
        """Run one command. Raises AdapterError where it cannot be run, or does not end in time."""
        self.calls.append(argv)
        try:
            done = self._run(argv, self.timeout, self.env)
        except FileNotFoundError:
            raise AdapterError(f"{argv[0]} is not installed (or not on PATH: set NHC_RM_PATH)") from None
        except OSError as error:
            raise AdapterError(f"{argv[0]} cannot be run: {error.strerror}") from None
        if done.timed_out:
            raise AdapterError(f"{argv[0]} {' '.join(argv[1:3])} did not end within {self.timeout:g} s")
        return done

    def ask(self, *argv: str) -> str:
        """Run one command that must succeed; what it printed. Raises AdapterError with what it said."""
        done = self(*argv)
        if done.status:
            raise AdapterError(f"{argv[0]} {argv[1] if len(argv) > 1 else ''}: {complaint(done)}")
        return done.stdout


def complaint(done: Completed) -> str:
    """What a failed command said, on one line."""
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return printable("; ".join(said[-3:]), 300) or f"exit status {done.status}"


ARGUMENT_LIMIT = 100_000
"""Characters of one folded list of nodes: Linux takes 131072 in a single argument (MAX_ARG_STRLEN)."""


def chunks(names: Iterable[str], limit: int = ARGUMENT_LIMIT) -> List[Tuple[List[str], str]]:
    """The names in as few lists as fit an argument each, with their folded form."""
    from nhc.nodeset import fold

    todo = [sorted(set(names))]
    done: List[Tuple[List[str], str]] = []
    while todo:
        some = todo.pop(0)
        folded = fold(some)
        if len(folded) > limit and len(some) > 1:
            half = len(some) // 2
            todo[:0] = [some[:half], some[half:]]
        elif some:
            done.append((some, folded))
    return done


def sort_marks(
    marks: Mapping[str, Mark], states: Mapping[str, NodeState]
) -> Tuple[Dict[str, Tuple[Mark, str]], List[Applied]]:
    """Which marks to set (with a note), and the answer for every node whose mark is not to be set."""
    todo: Dict[str, Tuple[Mark, str]] = {}
    done: List[Applied] = []
    for node, mark in marks.items():
        effect, why = may_mark(states.get(node), mark)
        if effect is Effect.CHANGED:
            todo[node] = (mark, why)
        else:
            done.append(Applied(node, effect, why))
    return todo, done


def sort_clears(names: Sequence[str], states: Mapping[str, NodeState]) -> Tuple[List[str], List[Applied]]:
    """Which nodes to put back, and the answer for every other."""
    todo: List[str] = []
    done: List[Applied] = []
    for node in dict.fromkeys(names):
        effect, why = may_clear(states.get(node))
        if effect is Effect.CHANGED:
            todo.append(node)
        else:
            done.append(Applied(node, effect, why))
    return todo, done
