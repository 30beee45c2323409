"""NVIDIA's own diagnostics: dcgmi diag."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, printable, unknown, warn
from nhc.core.units import text
from nhc.node.checks import deep
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts import dcgm
from nhc.node.facts.dcgm import CONFIG, FAIL, ISOLATE, MONITOR, PASS, RESET, WARN

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple, Union

    from nhc.core.host import Completed
    from nhc.node.facts.dcgm import DiagError, Diagnostic, DiagResult

LEVELS = {"1": 300.0, "2": 900.0, "3": 3600.0, "4": 3 * 3600.0}
"""Deadline of each level in seconds: NVIDIA names seconds, 2 minutes, 15 to 30 minutes and 1 to 2 hours."""

EXPECTED: Dict[str, Tuple[str, ...]] = {
    "1": (),
    "2": ("memory", "pcie"),
    "3": ("memory", "pcie", "diagnostic", "targeted_stress", "targeted_power"),
    "4": ("memory", "pcie", "diagnostic", "targeted_stress", "targeted_power", "memtest"),
}
"""Tests of which each GPU must have a result, beside the first of level 1, whose name changed: proof that it ran."""

SOFTWARE = ("software", "denylist", "blacklist", "nvml library")
"""What level 1 begins with in DCGM 4, 3.x and 2."""

CANNOT_TELL = {25, 47, 48, 56, 117}
"""Errors that mean that a test could not run: the GPU was in use, the test was aborted, disabled or skipped, or memory
was taken (dcgm_errors.h 4.6)."""

_STATUS = {
    217: "another diagnostic is running", 235: "no host engine answers (nvidia-dcgm.service)", 222: "it is in use",
    245: "the host engine timed out", 242: "no data", 227: "it needs root", 239: "no permission",
    204: "nvvs is not installed", 203: "it was killed", 198: "there is no such test", 190: "it was stopped",
    143: "it was told to end", 255: "a bad parameter",
}  # fmt: skip
"""Exit statuses with no verdict in them: the low byte of dcgmReturn_t."""

XID = 101
"""An Xid during the diagnostic (dcgm_errors.h, DCGM_FR_XID_ERROR): the GPU has failed, whatever passes afterwards."""

RAN = (0, 226, 205)
"""Exit statuses with results: all passed, errors were found, one of them means that the GPU must not be used."""

HEARTBEAT = (4, 4, 2)
"""Since this version dcgmi's diagnostic always ends when dcgmi itself ends."""


def level(value: str) -> str:
    """1 to 4, or names of tests."""
    if value not in LEVELS and not all(name.replace("_", "").isalpha() for name in value.split(",")):
        raise ValueError(f"{value!r} is not a level (1 to 4) or names of tests")
    return value


@check(
    "check_deep_dcgm",
    DEVICES,
    opt("-r --run", "run", level, "level 1 (seconds) to 4 (hours), or names of tests", "2"),
    opt("-p --parameters", "parameters", text, "parameters of tests, as pcie.test_pinned=true;...", ""),
    timeout=deep.OVERHEAD + 3 * LEVELS["4"],
    tags=("gpu", "nvidia"),
)
def check_deep_dcgm(host: Host, run: str = "2", parameters: str = "", devices: str = "") -> Judged:
    """NVIDIA's diagnostics find nothing.

    Runs dcgmi diag. Errors that DCGM wants the GPU isolated for, or reset, are CRIT; those that it wants looked at are
    tried again once, and CRIT if they come back, an Xid in any case; configuration errors are WARN. UNKNOWN unless each
    GPU has a result of each test of the level: a test that was skipped was not passed. Status 0 alone is no proof, and
    226 is none of the contrary.

    Example: * |context deep| check_deep_dcgm -r 3
    """
    picked = pick(host, devices, "nvidia")
    if not picked.devices:
        return list(picked.outcomes)
    numbers = [device.number for device in picked.devices]
    argv = ["dcgmi", "diag", "-r", run, "-j"]
    if devices or host.setting("NHC_DEVICES"):
        argv += ["-i", ",".join(map(str, numbers))]
    if parameters:
        argv += ["-p", parameters]
    if _version(host) >= HEARTBEAT:
        argv.append("--enable-heartbeat")
    done = deep.attempt(host, argv, LEVELS.get(run, LEVELS["3"]))
    if isinstance(done, Outcome):
        return [*picked.outcomes, done]
    diagnostic = _read(done)
    if isinstance(diagnostic, Outcome):
        return [*picked.outcomes, diagnostic]
    outcomes = judge(run, numbers, done, diagnostic)
    again = sorted({outcome.target for outcome in outcomes if outcome.reason == TRIAGE})
    if again and host.setting(deep.RUN):
        outcomes = _again(host, argv, run, diagnostic, outcomes)
    return [*picked.outcomes, *outcomes]


TRIAGE = "DeepGpuDiagTriage"


def _version(host: Host) -> Tuple[int, ...]:
    """DCGM's version, () if it does not tell."""
    if not host.setting(deep.RUN) or host.which("dcgmi") is None:
        return ()
    try:
        output = host.run(["dcgmi", "--version"], 10.0).stdout
    except OSError:
        return ()
    version = output.partition("version:")[2].split()
    parts = version[0].split(".") if version else []
    return tuple(int(part) for part in parts) if parts and all(part.isdigit() for part in parts) else ()


def _read(done: Completed) -> Union[Diagnostic, Outcome]:
    try:
        diagnostic = dcgm.parse(done.stdout)
    except ValueError as error:
        if done.status not in RAN:
            why = _STATUS.get(done.status, f"status {done.status}")
            return unknown("DeepToolFailed", f"dcgmi diag did not run: {why}", evidence=deep.tail(done))
        return deep.unreadable("dcgmi diag", error, done)
    if done.status not in RAN:
        why = diagnostic.trouble or _STATUS.get(done.status, f"status {done.status}")
        return unknown("DeepToolFailed", f"dcgmi diag did not run: {why}", evidence=deep.tail(done))
    if diagnostic.trouble and not diagnostic.results:
        return unknown("DeepToolFailed", f"dcgmi diag: {printable(diagnostic.trouble, 300)}", evidence=deep.tail(done))
    return diagnostic


def judge(run: str, gpus: Sequence[int], done: Completed, diagnostic: Diagnostic) -> List[Outcome]:
    """Judge a diagnostic's results: faults first, then what was not tested, else one OK."""
    outcomes = [outcome for result in diagnostic.results for outcome in _errors(result)]
    if diagnostic.trouble:
        outcomes.append(unknown("DeepToolFailed", f"dcgmi diag: {printable(diagnostic.trouble, 300)}"))
    messages = {outcome.message for outcome in outcomes}
    outcomes += [outcome for outcome in _untested(run, gpus, diagnostic) if outcome.message not in messages]
    if not outcomes and done.status != 0:
        outcomes.append(deep.no_proof("dcgmi diag", f"status {done.status}, and no error in its results", done))
    if not outcomes:
        tests = ", ".join(dict.fromkeys(result.test for result in diagnostic.results if result.status == PASS))
        facts = (f"dcgmVersion: {diagnostic.version}", f"gpuDriverVersion: {diagnostic.driver}",
                 f"gpuDeviceIds: [{' '.join(diagnostic.device_ids)}]")  # fmt: skip
        outcomes.append(ok(f"DCGM {diagnostic.version}: {tests} passed on {len(gpus)} GPUs")._replace(evidence=facts))
    return outcomes


def _target(result: DiagResult) -> str:
    kind, _, number = result.entity.partition(" ")
    return f"{kind.lower()}{number}" if number else ""


def _errors(result: DiagResult) -> List[Outcome]:
    """One outcome an error of a result; a failure without one is reported as well, and a pass with one is no pass."""
    outcomes = [_error(result, error) for error in result.errors]
    if not outcomes and result.status == FAIL:
        message = f"{result.test} failed{f' on {result.entity}' if result.entity else ''}, with no error told"
        outcomes.append(crit("DeepGpuDiag", f"dcgmi diag: {message}", target=_target(result)))
    elif not outcomes and result.status == WARN:
        outcomes.append(warn("DeepGpuDiagWarning", f"dcgmi diag: {result.test} warns", target=_target(result)))
    return outcomes


def _error(result: DiagResult, error: DiagError) -> Outcome:
    number = "" if error.id is None else f" (error {error.id})"
    message = printable(f"dcgmi diag: {result.test}: {error.text or 'no words'}{number}", 400)
    target = _target(result)
    if error.id in CANNOT_TELL:
        return unknown("DeepNotTested", message, target=target)
    if error.severity == ISOLATE:
        return crit("DeepGpuDiag", message, target=target, action=Action.REPLACE)
    if error.severity == RESET:
        return crit("DeepGpuDiagReset", message, target=target, action=Action.RESET_DEVICE)
    if error.severity in (CONFIG, MONITOR) and result.status != FAIL:
        return warn("DeepGpuDiagWarning", message, target=target)
    if error.severity in (CONFIG, MONITOR):
        return warn("DeepGpuConfig", message, target=target, action=Action.INSPECT)
    return crit(TRIAGE, message, target=target)


def _untested(run: str, gpus: Sequence[int], diagnostic: Diagnostic) -> List[Outcome]:
    """What of the level has no result, by GPU."""
    if run in EXPECTED:
        wanted: Tuple[str, ...] = EXPECTED[run]
        software = [test for test in diagnostic.tests() if test in SOFTWARE]
        if not software:
            return [deep.no_proof("dcgmi diag", "no result of the software tests")]
        wanted = (software[0].replace(" ", "_"), *wanted)
    else:
        wanted = tuple(run.lower().split(","))
    results: Dict[str, Dict[str, str]] = {}
    for result in diagnostic.results:
        results.setdefault(result.name, {})[result.entity] = result.status
    missing: List[Outcome] = []
    for test in wanted:
        by_entity = results.get(test, {})
        for gpu in gpus:
            status = by_entity.get(f"GPU {gpu}", by_entity.get("", "missing"))
            if status not in (PASS, FAIL, WARN):
                message = f"dcgmi diag: {test} of gpu{gpu}: {'no result' if status == 'missing' else status}"
                missing.append(unknown("DeepNotTested", message, target=f"gpu{gpu}"))
    return missing


def _again(host: Host, argv: Sequence[str], run: str, first: Diagnostic, outcomes: List[Outcome]) -> List[Outcome]:
    """Run the failed tests a second time: a test that passes now is a warning, one that fails again stays a fault."""
    failed = [result for result in first.results for outcome in _errors(result) if outcome.reason == TRIAGE]
    tests = ",".join(dict.fromkeys(result.name for result in failed))
    selected = list(argv)
    selected[selected.index("-r") + 1] = tests
    done = deep.attempt(host, selected, LEVELS.get(run, LEVELS["3"]))
    second = done if isinstance(done, Outcome) else _read(done)
    if isinstance(second, Outcome):
        return outcomes
    passed = {(result.name, result.entity) for result in second.results if result.status == PASS and not result.errors}
    by_chance: Dict[Outcome, Outcome] = {}
    for result in failed:
        if (result.name, result.entity) in passed and not any(error.id == XID for error in result.errors):
            for outcome in _errors(result):
                message = f"{outcome.message}; it passed when it was tried again"
                by_chance[outcome] = warn("DeepGpuDiagWarning", message, target=outcome.target)
    return [by_chance.get(outcome, outcome) if outcome.reason == TRIAGE else outcome for outcome in outcomes]
