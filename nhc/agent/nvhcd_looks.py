"""What the service for training jobs finds out when it is asked: the checks run now, the node's state, its proof."""

from __future__ import annotations

import os
import time
from contextlib import closing
from socket import timeout as socket_timeout
from typing import Callable, List, NamedTuple, Sequence, Tuple

from nhc.agent.nvhcd_settings import NvhcdSettings
from nhc.agent.sockets import ask
from nhc.core.json_values import list_in, parse_object
from nhc.core.model import CheckResult, Verdict, describe, printable
from nhc.core.render.json import from_result, parse
from nhc.core.system import process
from nhc.core.system.own_command import own_command
from nhc.marks.ports.adapter import AdapterError

LOOK_TIMEOUT = 10.0
"""Seconds that the scheduler has for its answer."""
PROOF_LIMIT = 240.0
"""Seconds for one proof of all GPUs: check_gpu_proof ends by itself within 130 s, other lines in seconds."""


class ChecksNow(NamedTuple):
    """What a run of all checks found, or why there was none: `problem`, "" where there was."""

    results: Tuple[CheckResult, ...] = ()
    problem: str = ""


class ProofNow(NamedTuple):
    """What a proof found wrong, and what it could not tell."""

    failed: Tuple[str, ...] = ()
    unsure: Tuple[str, ...] = ()


def run_checks(socket: str, timeout: float) -> ChecksNow:
    """Have the agent run all its checks now, by its control socket."""
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
    """Why a job should not take the node again, by its scheduler and the store; () where neither knows a reason."""
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
    """The newest run of a suite that could tell, where it found the node bad."""
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
    """Run a suite of deep checks, which runs nothing while somebody holds the GPUs."""
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
