"""Runs a suite as a process of its own (`nhc deep run`) and reads its report; while it runs, a function is called.

A separate process can be ended in the tools' own way, and if it crashes, only that run is UNKNOWN.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from typing import Callable, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.model import Report, Verdict, describe, printable
from nhc.core.render.json import parse
from nhc.core.state.reports import RUN_ITSELF, UNPROVED
from nhc.core.system import process
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.system.process import own_command
from nhc.node.run.boot_window import judged_early

ENDING = 45.0
"""Seconds that a suite gets to end in order: 30 for its tools (`nhc.deep.journal`), the rest to put settings back."""
REPORT = 64 << 20
"""Bytes of a report that are read."""
BUSY = "BUSY"
"""The result of a run that did not begin because the node was in use or its boot was too recent: it is not a try."""


class SuiteRun(NamedTuple):
    """The result: the verdict's name (OK, WARN, CRIT, UNKNOWN) or BUSY, one line why, and the report's text."""

    verdict: str
    why: str
    report: str = ""


def run(
    suite: str,
    node: str,
    adapter: str,
    limit: float,
    environ: Mapping[str, str],
    during: Callable[[], None],
    more: Sequence[str] = (),
) -> SuiteRun:
    """Run a suite on this node for at most `limit` seconds. `during` is called each second; it must not raise."""
    folder = tempfile.mkdtemp(prefix="nhc-gate-")
    path = f"{folder}/report.json"
    arguments = ["deep", "run", suite, "-n", node, "--adapter", adapter, "-f", "json", "-o", path, "-q", *more]
    began = time.time()
    children: List[int] = []
    process.give_time_to_end(ENDING)
    try:
        done = process.run(
            own_command([*arguments, "--timeout", f"{limit:.0f}s"]), timeout=limit + ENDING, env=environ, during=during,
            watch=lambda what, pid: children.append(pid) if what == "started" else None,
        )  # fmt: skip
        children.clear()
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        try:
            text = read_text(path, REPORT)
        except (OSError, UnicodeDecodeError) as error:
            if done.timed_out:
                return SuiteRun("UNKNOWN", f"{suite} did not end within {limit:g} s")
            last = lines[-1] if lines else f"no report ({cause(error)})"
            busy = "under way" in last
            return SuiteRun(BUSY if busy else "UNKNOWN", printable(f"{suite} ended with {done.status}: {last}", 300))
        return judged(text, suite, node, began)
    except BaseException:
        for pid in children:
            _end(pid)
        raise
    finally:
        _remove(folder)


def judged(text: str, suite: str, node: str, began: float) -> SuiteRun:
    """What a report says, once it is proved to be this run's."""
    try:
        report = parse(text)
    except ValueError as error:
        return SuiteRun("UNKNOWN", printable(f"the report of {suite} cannot be read: {error}", 300))
    if report.host != node or report.labels.get("suite") != suite or report.started < began - 1.0:
        named = f"{report.labels.get('suite')} of {report.host}"
        return SuiteRun("UNKNOWN", printable(f"the report is of another run: {named}", 300))
    if judged_early(report) or any(result.outcome.reason == "DeepNodeBusy" for result in report.results):
        return SuiteRun(BUSY, _line(report, suite), text)
    return SuiteRun(*_verdict(report, suite), text)


def _verdict(report: Report, suite: str) -> Tuple[str, str]:
    """What a report means to a gate: a fault closes it, and a proof of each device opens it.

    If one tool could not tell and another one could, that is no reason to hold a node. A run that was cut off, or that
    has no result for a device, is a reason.
    """
    unproved = report.labels.get(UNPROVED, "")
    unsure = [result for result in report.results if result.verdict is Verdict.UNKNOWN]
    proofs = [
        result
        for result in report.results
        if result.verdict in (Verdict.OK, Verdict.WARN) and result.check.startswith(("check_deep_", "check_gpu_proof"))
    ]
    if report.verdict is not Verdict.CRIT and unproved:
        why = f"{suite}: no test came to a result of {unproved}: {_line(report, suite)}"
        return Verdict.UNKNOWN.name, printable(why, 400)
    if report.verdict is Verdict.UNKNOWN and proofs and not any(result.check == RUN_ITSELF for result in unsure):
        also = f"{describe(unsure[0])}{f' (and {len(unsure) - 1} more)' if len(unsure) > 1 else ''}"
        why = f"{suite} passed: {len(proofs)} results in {report.elapsed:.0f} s; could not tell: {also}"
        return Verdict.OK.name, printable(why, 400)
    return report.verdict.name, _line(report, suite)


def _line(report: Report, suite: str) -> str:
    """The verdict in one line."""
    ran = [result for result in report.results if result.verdict is not Verdict.SKIP]
    worst = [result for result in ran if result.verdict is report.verdict]
    if report.verdict in (Verdict.OK, Verdict.WARN):
        return f"{suite} passed: {len(ran)} results in {report.elapsed:.0f} s"
    if not worst:
        return f"{suite} judged nothing"
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    verb = "failed" if report.verdict is Verdict.CRIT else "could not tell"
    return printable(f"{suite} {verb}: {describe(worst[0])}{more}", 400)


def _end(pid: int) -> None:
    """End a suite for which nothing waits any more, in its own way."""
    until = time.monotonic() + ENDING
    process.signal_group(pid, signal.SIGTERM)
    while not process.reaped(pid):
        if time.monotonic() > until:
            process.signal_group(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _remove(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
    except OSError:
        pass  # the suite's process may still write there: what is left is one small file in a folder of its own
