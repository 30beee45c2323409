"""Finds problems that begin and problems that end; an unchanged state is neither.

Pure. For each check the board holds what its last run found and which problems are active. A problem is a target with a
reason. It begins with the run that finds it (the engine has counted its strikes before) and ends after `recover` runs
in a row that judged its target and did not find it. A run that could not tell neither begins nor ends a fault.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.light import NamedTuple
from nhc.core.model import CheckResult, Verdict
from nhc.core.render.json import to_result
from nhc.node.run import boot_window

BEGAN, ENDED, CHANGED = "began", "ended", "changed"
BOOT_WINDOW = boot_window.REASON
"""Reason of a failure that is not judged yet because the node has just booted."""

Place = Tuple[str, str]
"""Target and reason."""


class ProblemChange(NamedTuple):
    """A change of a problem. `what` is began, ended or changed (its verdict did); `since` is when the problem began."""

    what: str
    when: float
    key: str
    result: CheckResult
    before: Verdict
    since: float


class StandingProblem:
    """An active problem. `passes` counts the runs in a row that did not find it."""

    def __init__(self, result: CheckResult, since: float, passes: int = 0) -> None:
        self.result = result
        self.since = since
        self.passes = passes


class CheckRow:
    """One check: what its last run found, and its active problems."""

    def __init__(self) -> None:
        self.results: Tuple[CheckResult, ...] = ()
        self.problems: Dict[Place, StandingProblem] = {}
        self.at = 0.0

    def report_results(self, recover: int) -> List[CheckResult]:
        """What a report shows of the row: active problems, then what else the last run found."""
        current = {_place(result) for result in self.results if result.verdict > Verdict.OK}
        standing = [
            problem.result if place in current and not problem.passes else _held(problem, recover)
            for place, problem in self.problems.items()
        ]
        rest = [result for result in self.results if _place(result) not in self.problems]
        if standing:  # "all is fine" beside it would be wrong; what was measured stays
            rest = [result for result in rest if result.verdict > Verdict.OK or result.outcome.metrics]
        return [*standing, *rest]


class Board:
    """All checks. `recover` is how many good runs end a fault."""

    def __init__(self, recover: int = 2) -> None:
        self.recover = recover
        self.rows: Dict[str, CheckRow] = {}

    def recover_after(self, runs: int) -> None:
        """From now on so many good runs end a fault."""
        self.recover = runs

    def judge(
        self, key: str, results: Sequence[CheckResult], now: float, recover: Optional[int] = None
    ) -> List[ProblemChange]:
        """Enter one run of one check. Returns what changed."""
        row = self.rows.setdefault(key, CheckRow())
        row.results, row.at = tuple(results), now
        needed = self.recover if recover is None else recover
        changes: List[ProblemChange] = []
        failures: Dict[Place, CheckResult] = {}
        for result in results:
            if result.verdict > Verdict.OK:
                place = _place(result)
                if place not in failures or failures[place].verdict < result.verdict:
                    failures[place] = result
        for place, result in failures.items():
            standing = row.problems.get(place)
            if standing is None:
                row.problems[place] = StandingProblem(result, now)
                changes.append(ProblemChange(BEGAN, now, key, result, Verdict.OK, now))
                continue
            before = standing.result.verdict
            if before is Verdict.CRIT and result.verdict < before:
                if result.strike or result.verdict is Verdict.UNKNOWN:
                    # It failed again, with fewer strikes than a new fault needs; or it is UNKNOWN.
                    standing.passes = 0
                    continue
                standing.passes += 1  # only a warning now: that counts, too, each time
                if standing.passes < needed:
                    continue
            standing.result, standing.passes = result, 0
            if result.verdict is not before:
                changes.append(ProblemChange(CHANGED, now, key, result, before, standing.since))
        for place, problem in list(row.problems.items()):
            if place in failures or (problem.result.verdict is not Verdict.UNKNOWN and not _judged(place, results)):
                continue
            problem.passes += 1
            if problem.passes >= (needed if problem.result.verdict is Verdict.CRIT else 1):
                del row.problems[place]
                changes.append(ProblemChange(ENDED, now, key, problem.result, problem.result.verdict, problem.since))
        return changes

    def remove(self, keys: Iterable[str], now: float) -> List[ProblemChange]:
        """Checks that are no longer configured: their problems end, because nothing judges them any more."""
        changes: List[ProblemChange] = []
        for key in keys:
            row = self.rows.pop(key, CheckRow())
            changes += [
                ProblemChange(ENDED, now, key, p.result, p.result.verdict, p.since) for p in row.problems.values()
            ]
        return changes

    def recovering(self, key: str) -> bool:
        """Whether a fault of this check has begun to recover, or a failure has begun to count."""
        row = self.rows.get(key, CheckRow())
        return any(p.passes for p in row.problems.values()) or any(
            0 < r.strike < r.strikes for r in row.results if r.verdict is not Verdict.CRIT
        )

    def results(self, keys: Iterable[str]) -> List[CheckResult]:
        """The results in a report of these checks, in their order."""
        return [r for key in keys if key in self.rows for r in self.rows[key].report_results(self.recover)]

    def problems(self) -> List[Tuple[str, StandingProblem]]:
        return [(key, problem) for key, row in self.rows.items() for problem in row.problems.values()]

    # Across restarts of the agent.

    def dump(self) -> Dict[str, Any]:
        return {
            key: {
                "at": row.at,
                "results": [to_result(result) for result in row.results],
                "problems": [
                    {"result": to_result(p.result), "since": p.since, "passes": p.passes} for p in row.problems.values()
                ],
            }
            for key, row in self.rows.items()
        }

    def load(self, rows: Mapping[str, Any]) -> None:
        """Restore what `dump` gave before a restart; what does not fit is left out."""
        from nhc.core.render.json import from_result

        for key, value in rows.items():
            row = CheckRow()
            try:
                row.at = _time(value["at"])
                row.results = tuple(from_result(result) for result in value["results"])
                for entry in value["problems"]:
                    result = from_result(entry["result"])
                    row.problems[_place(result)] = StandingProblem(result, _time(entry["since"]), int(entry["passes"]))
            except (TypeError, KeyError, ValueError, OverflowError):
                continue
            self.rows[str(key)] = row


def too_early(result: CheckResult, uptime: float) -> CheckResult:
    """A failure within the boot window, as UNKNOWN: it is too early to judge."""
    return result._replace(outcome=boot_window.too_early(result.outcome, uptime))


def _time(value: Any) -> float:
    """A stored Unix time. Raises ValueError, TypeError."""
    if not 0 <= float(value) < 1e11:
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _place(result: CheckResult) -> Place:
    return result.outcome.target, result.outcome.reason


def _judged(place: Place, results: Sequence[CheckResult]) -> bool:
    """Whether this run judged the target of a problem and could tell."""
    target = place[0]
    about = [r for r in results if r.outcome.target == target] if target else []
    # A run that names other targets only, or none, has judged this one too: what it does not report is healthy.
    about = about or [r for r in results if not r.outcome.target] or list(results)
    if any(r.verdict is Verdict.UNKNOWN for r in results if r.outcome.target in ("", target)):
        return False
    return any(r.verdict is not Verdict.SKIP for r in about)


def _held(problem: StandingProblem, recover: int) -> CheckResult:
    """A problem that the last run did not find, and that is still active."""
    outcome = problem.result.outcome
    note = f"well {problem.passes} of {recover} times" if problem.passes else "the last run could not tell"
    return problem.result._replace(outcome=outcome._replace(message=f"{outcome.message} ({note})"))
