"""What the agent answers a training job's launcher that asks whether this node is healthy (NVRx, service nvhcd). Pure.

Only what is known to be wrong fails a node: a check that is CRIT, or a node that is out of service. What could not be
found out is said in the output and counts as healthy, so that no job fails because nhc could not tell.
"""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from nhc.model import CheckResult, Report, Verdict, describe, printable

GROUPS: Dict[str, Tuple[str, ...]] = {
    "prolog": (),
    "epilog": (),
    "logs": ("check_kmsg", "check_cmd_dmesg", "check_gpu_xid", "check_mce_events", "check_oom_kills", "check_npd_log"),
    "gpu": ("check_gpu_", "check_nvlink_", "check_fabric_manager", "check_nv_", "check_nvsmi_", "check_app_gpu_",
            "check_vbios_version", "check_pcie_"),
}  # fmt: skip
"""The groups of `--group`, and the beginnings of the names of their checks; () is all of them."""
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


def asked_for(words: Sequence[str]) -> AskedFor:
    """The groups that a request names, all of them where it names none. `--no-slurm` is NVRx's own default."""
    groups: List[str] = []
    unknown: List[str] = []
    within = False
    for word in words[:ARGUMENTS]:
        if word.startswith("--"):
            option, _, value = word.partition("=")
            within = option == "--group"
            if within and value:
                groups.append(value)
            elif not within and word != "--no-slurm":
                unknown.append(printable(word, 60))
        elif within and word in GROUPS:
            groups.append(word)
        else:
            unknown.append(printable(word, 60))
    known = tuple(dict.fromkeys(group for group in groups if group in GROUPS))
    return AskedFor(known or tuple(GROUPS), tuple(unknown[:MOST]))


def answer(
    words: Sequence[str],
    report: Optional[Report],
    *,
    complete: bool,
    age: float,
    most: float,
    out: str = "",
    unknown_fails: bool = False,
) -> HealthAnswer:
    """Judge by a report that is `age` seconds old, None for none; older than `most` it says nothing.

    `out` is why the node is out of service, "" while it is in. `unknown_fails`: what is not known fails the node too.
    """
    asked = asked_for(words)
    failed, unsure = ([f"out of service: {printable(out, LONGEST)}"] if out else []), []
    if report is None:
        unsure.append("the agent has no verdict yet")
    elif age > most:
        unsure.append(f"the agent's verdict is {age:.0f} s old, more than {most:.0f} s")
    else:
        if not complete:
            unsure.append("not every check has run yet")
        for result in chosen(report, asked.groups):
            if result.verdict is Verdict.CRIT:
                failed.append(printable(describe(result), LONGEST))
            elif result.verdict is Verdict.UNKNOWN:
                unsure.append(printable(describe(result), LONGEST))
    count = len(failed) + (len(unsure) if unknown_fails else 0)
    shown = failed + (unsure if unknown_fails else [])
    output = {
        "fail_count": count, "failed_checks": shown[:MOST], "unknown": unsure[:MOST], "groups": list(asked.groups),
        "ignored": list(asked.unknown), "node": report.host if report else "", "age": round(age, 1),
    }  # fmt: skip
    return HealthAnswer(True, 1 if count else 0, json.dumps(output, ensure_ascii=False))


def chosen(report: Report, groups: Sequence[str]) -> List[CheckResult]:
    """The results of the groups."""
    begins = [GROUPS[group] for group in groups]
    if any(not names for names in begins):
        return list(report.results)
    return [result for result in report.results if any(result.check.startswith(names) for names in begins)]


# The messages of the service, in the wire form of Protocol Buffers: `args` is field 1, repeated, of a request.


def read_request(data: bytes) -> List[str]:
    """The words of a HealthCheckRequest; fields that are not known are passed over. Raises ValueError."""
    words: List[str] = []
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            _ignored, at = _number(data, at)
        elif kind == 2:
            size, at = _number(data, at)
            if at + size > len(data):
                raise ValueError("a field is cut off")
            if field == 1:
                words.append(data[at : at + size].decode())
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
    if at > len(data):
        raise ValueError("a field is cut off")
    return words


def write_answer(said: HealthAnswer) -> bytes:
    """A HealthCheckResponse: success 1, exit_code 2, output 3, error 4; what is zero or empty is left out."""
    found = b"\x08\x01" if said.success else b""
    found += (b"\x10" + _varint(said.exit_code)) if said.exit_code else b""
    for key, text in ((b"\x1a", said.output), (b"\x22", said.error)):
        data = text.encode()
        found += key + _varint(len(data)) + data if data else b""
    return found


def _number(data: bytes, at: int) -> Tuple[int, int]:
    found = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return found, at
    raise ValueError("a number is cut off")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
