"""What the agent answers a training job's launcher that asks whether this node is healthy (NVRx, service nvhcd). Pure.

Only what is known to be wrong fails a node: a check that is CRIT, or a node that is out of service. What is not known
stands in the output and counts as healthy, so that no job fails because nhc could not tell.
"""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import CheckResult, Report, Verdict, describe, printable
from nhc.core.system.protobuf import fields, integer, text

CONTEXTS = ("prolog", "epilog")
"""The groups of `--group` that are contexts of configuration lines."""
CHECKS: Dict[str, Tuple[str, ...]] = {
    "logs": ("check_kmsg", "check_cmd_dmesg", "check_gpu_xid", "check_mce_events", "check_oom_kills", "check_npd_log"),
    "gpu": ("check_gpu_", "check_nvlink_", "check_fabric_manager", "check_nv_", "check_nvsmi_", "check_app_gpu_",
            "check_vbios_version", "check_pcie_"),
}  # fmt: skip
"""The groups that are kinds of checks: how the checks' names begin."""
GROUPS = (*CONTEXTS, *CHECKS)
MOST = 50
"""Failed checks that are listed."""
LONGEST = 300
"""Characters of one of them."""
ARGUMENTS = 256
"""Words of a request that are looked at."""


class HealthAnswer(NamedTuple):
    """The answer to one request: the fields of HealthCheckResponse."""

    success: bool
    exit_code: int
    output: str
    error: str = ""


class AskedFor(NamedTuple):
    """What a request's words ask for. `unknown` are words that mean nothing here; they change nothing."""

    groups: Tuple[str, ...]
    unknown: Tuple[str, ...]
    proof: bool = False


def asked_for(arguments: Sequence[str]) -> AskedFor:
    """The groups that a request names, all of them where it names none. `--no-slurm` is NVRx's own default."""
    groups: List[str] = []
    unknown: List[str] = []
    within = proof = False
    for argument in arguments[:ARGUMENTS]:
        if argument.startswith("--"):
            option, _, value = argument.partition("=")
            within = option == "--group"
            if within and value:
                groups.append(value)
            proof = proof or option == "--proof"
            if not within and argument not in ("--no-slurm", "--proof"):
                unknown.append(printable(argument, 60))
        elif within and argument in GROUPS:
            groups.append(argument)
        else:
            unknown.append(printable(argument, 60))
    known = tuple(dict.fromkeys(group for group in groups if group in GROUPS))
    return AskedFor(known or GROUPS, tuple(unknown[:MOST]), proof)


def answer(
    asked: AskedFor,
    report: Optional[Report],
    *,
    complete: bool = False,
    age: float = 0.0,
    contexts: Mapping[str, Sequence[str]] = {},
    out: Sequence[str] = (),
    failed: Sequence[str] = (),
    unsure: Sequence[str] = (),
    unknown_fails: bool = False,
) -> HealthAnswer:
    """Judge by a report that is `age` seconds old, None for none that counts.

    `out` is why the node is out of service; `failed` and `unsure` are what else is wrong or not known.
    `unknown_fails`: what is not known fails the node too.
    """
    wrong = [*(f"out of service: {reason}" for reason in out), *failed]
    open_questions = list(unsure)
    if report is not None:
        if not complete:
            open_questions.append("not every check has run yet")
        for result in chosen(report, asked.groups, contexts):
            if result.verdict is Verdict.CRIT:
                wrong.append(describe(result))
            elif result.verdict is Verdict.UNKNOWN:
                open_questions.append(describe(result))
    failures = [printable(line, LONGEST) for line in wrong + (open_questions if unknown_fails else [])]
    output = {
        "fail_count": len(failures), "failed_checks": failures[:MOST],
        "unknown": [printable(line, LONGEST) for line in open_questions[:MOST]], "groups": list(asked.groups),
        "ignored": list(asked.unknown), "node": report.host if report else "", "age": round(age, 1),
    }  # fmt: skip
    return HealthAnswer(True, 1 if failures else 0, json.dumps(output, ensure_ascii=False))


def chosen(report: Report, groups: Sequence[str], contexts: Mapping[str, Sequence[str]] = {}) -> List[CheckResult]:
    """The results of the groups; of all groups, which NVRx asks for by itself, every result.

    `prolog` and `epilog` are the lines that are meant for that context, `logs` and `gpu` kinds of checks.
    """
    if set(groups) >= set(GROUPS):
        return list(report.results)
    begins = tuple(name for group in groups for name in CHECKS.get(group, ()))
    around = {group for group in groups if group in CONTEXTS}
    results = []
    for result in report.results:
        limited = contexts.get(f"{result.source} {result.line}", ())
        meant = bool(around) and (not limited or not around.isdisjoint(limited))
        if meant or result.check.startswith(begins):
            results.append(result)
    return results


# The messages of the service: `args` is field 1, repeated, of a request.


def read_request(data: bytes) -> List[str]:
    """The words of a HealthCheckRequest; fields that are not known are passed over. Raises ValueError."""
    return [value.decode() for number, value in fields(data) if number == 1 and isinstance(value, bytes)]


def write_answer(answer: HealthAnswer) -> bytes:
    """A HealthCheckResponse: success 1, exit_code 2, output 3, error 4; what is zero or empty is left out."""
    numbers = b"".join(integer(number, value) for number, value in enumerate(answer[:2], 1) if value)
    return numbers + b"".join(text(number, value) for number, value in enumerate(answer[2:], 3) if value)
