"""The JSON of `dcgmi diag` and of `dcgmi health -c -j`, from DCGM 3 and 4.

Sources: NVIDIA DCGM 4.6.0 (testing/python3/dcgm_diag_schema.json, dcgmlib/dcgm_errors.h) and 3.3.9. DCGM 3 has the root
"DCGM GPU Diagnostic" and names GPUs by `gpu_id`, or by `gpu_ids` where several share a result; DCGM 4 has the root
"DCGM Diagnostic" and names entities. With --iterations the whole is wrapped once more.

`dcgmi health` reports what DCGM's background watches have found. Sources: NVIDIA DCGM 4.6.0 and 3.3.9
(dcgmi/Health.cpp, DcgmiOutput.cpp): body has "Overall Health" and a group for each kind of entity (GPU, Switch ...), in
which each entity has "Errors" by system, with the texts as `overflow`.
"""

from __future__ import annotations

from nhc.core.json_values import list_in, object_in, objects_in, text_in
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tool_output import json_object

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

PASS, FAIL, WARN, SKIPPED, NOT_RUN = "pass", "fail", "warn", "skip", "not run"
STATUSES = (PASS, FAIL, WARN, SKIPPED, NOT_RUN)

ISOLATE, UNKNOWN, TRIAGE, CONFIG, RESET, MONITOR = 2, 3, 4, 5, 6, 1

_SEVERITY = {
    ISOLATE: "3 4 7 8 13 15 24 33 35 36 38 39 52 57 58 70 71 79 81 86 87 88 95 98 102 103 104 105 106 107 109 111 113 "
             "114 115 116 118 119 120 121 122 126",
    RESET: "6 25 80 83 84 85 125 127 128 129",
    TRIAGE: "9 14 22 30 31 37 44 45 49 50 54 56 59 62 63 64 65 66 67 73 77 89 90 91 92 93 94 97 99 100 101 110 124 130 "
            "132",
    CONFIG: "18 20 23 28 29 46 47 48 55 60 68 72 78 82 96 112 117",
    MONITOR: "5 10 11 12 16 17 19 26 27 32 34 40 41 42 43 51 53 61 69 74 75 76 108 123 131",
}  # fmt: skip
SEVERITY_OF = {int(number): severity for severity, numbers in _SEVERITY.items() for number in numbers.split()}
"""The severity of each error id (dcgm_errors.h of 4.6.0), for the versions that do not write it."""


class DiagError(NamedTuple):
    """One error of a test. `id` is None before DCGM 3.1; `severity` is DCGM's, 3 (unknown) where nothing tells."""

    id: Optional[int]
    severity: int
    text: str


class DiagResult(NamedTuple):
    """What one test said of one entity: `GPU 3`, `CPU 0`, or "" for the whole node."""

    test: str
    entity: str
    status: str
    errors: Tuple[DiagError, ...] = ()
    info: Tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The test as `dcgmi diag -r` takes it."""
        return self.test.replace(" ", "_")


class Diagnostic(NamedTuple):
    """A whole run. `generation` is 3 or 4; `trouble` is DCGM's message if it could not run, "" if it did.

    `gpus` are the numbers of the GPUs it was about, as far as it says so.
    """

    generation: int
    version: str
    driver: str
    results: Tuple[DiagResult, ...]
    gpus: Tuple[int, ...] = ()
    trouble: str = ""
    device_ids: Tuple[str, ...] = ()

    def tests(self) -> Tuple[str, ...]:
        """The tests named, lower case, in order."""
        return tuple(dict.fromkeys(result.test for result in self.results))


def parse(text: str) -> Diagnostic:
    """What `dcgmi diag -j` printed. Raises ValueError."""
    whole = json_object(text)
    if isinstance(whole.get("iterations"), list):
        runs = [_diagnostic(_root(iteration)) for iteration in whole["iterations"]]
        if not runs:
            raise ValueError("no iteration in it")
        results = tuple(result for run in runs for result in run.results)
        return runs[0]._replace(results=results, trouble="; ".join(run.trouble for run in runs if run.trouble))
    return _diagnostic(_root(whole))


def _root(value: object) -> Tuple[int, Dict[str, Any]]:
    for generation, name in ((4, "DCGM Diagnostic"), (3, "DCGM GPU Diagnostic")):
        root = value.get(name) if isinstance(value, dict) else None
        if isinstance(root, dict):
            return generation, root
    raise ValueError("neither a DCGM Diagnostic nor a DCGM GPU Diagnostic")


def _diagnostic(run: Tuple[int, Dict[str, Any]]) -> Diagnostic:
    generation, root = run
    meta: Dict[str, Any] = root["metadata"] if isinstance(root.get("metadata"), dict) else root
    version, driver = str(meta.get("version", "")), str(meta.get("Driver Version Detected", ""))
    trouble = str(root.get("runtime_error", "") or "")
    categories = root.get("test_categories")
    if not isinstance(categories, list):
        if trouble:
            return Diagnostic(generation, version, driver, (), (), trouble)
        raise ValueError("no test_categories")
    results = tuple(result for category in categories for result in _category(category))
    gpus = tuple(gpu["entity_id"] for gpu in _gpus(root) if isinstance(gpu.get("entity_id"), int))
    return Diagnostic(generation, version, driver, results, gpus, trouble, _device_ids(root))


def _gpus(root: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The GPUs among the entities that DCGM 4 lists."""
    groups = [group for group in list_in(root, "entity_groups") if isinstance(group, dict)]
    return [gpu for group in groups if group.get("entity_group") == "GPU" for gpu in objects_in(group, "entities")]


def _device_ids(root: Dict[str, Any]) -> Tuple[str, ...]:
    """The PCI device ids of the GPUs: DCGM 4 names them by entity, DCGM 3 at the top."""
    listed = [device for device in list_in(root, "GPU Device IDs") if isinstance(device, str)]
    return tuple(dict.fromkeys([*listed, *(str(gpu["device_id"]) for gpu in _gpus(root) if gpu.get("device_id"))]))


def _category(category: object) -> Iterator[DiagResult]:
    if not isinstance(category, dict) or not isinstance(category.get("tests"), list):
        raise ValueError("a test category without tests")
    for test in category["tests"]:
        if not isinstance(test, dict) or not isinstance(test.get("name"), str):
            raise ValueError("a test without a name")
        results = list_in(test, "results")
        called = _NAMES.get(test["name"].lower(), test["name"].lower())
        graded_results = [parsed for result in results for parsed in _results(result, called)]
        summary = test.get("test_summary")
        if isinstance(summary, dict) and "status" in summary:
            graded = _status(summary["status"])
            # What failed as a whole, although no entity of it did.
            if not graded_results or (graded == FAIL and all(result.status != FAIL for result in graded_results)):
                graded_results.append(DiagResult(called, "", graded, _errors(summary)))
        if not graded_results:
            raise ValueError(f"test {test['name']} without results")
        yield from graded_results


def _results(result: object, test: str) -> Iterator[DiagResult]:
    if not isinstance(result, dict):
        raise ValueError(f"a result of {test} is no object")
    info = result.get("info")
    lines = (info,) if isinstance(info, str) else tuple(str(line) for line in list_in(result, "info"))
    for entity in _entities(result):
        yield DiagResult(test, entity, _status(result.get("status")), _errors(result), lines)


def _entities(result: Dict[str, Any]) -> List[str]:
    if "entity_id" in result:
        return [f"{result.get('entity_group', 'GPU')} {result['entity_id']}"]
    for key in ("gpu_id", "gpu_ids"):
        if key in result:
            return [f"GPU {index.strip()}" for index in str(result[key]).split(",") if index.strip()]
    return [""]


def _status(value: object) -> str:
    status = str(value).strip().lower()
    if status not in STATUSES:
        raise ValueError(f"status {str(value)[:40]!r}")
    return status


def _errors(result: Dict[str, Any]) -> Tuple[DiagError, ...]:
    said = result.get("warnings")  # a text before DCGM 3.1
    warnings = [said] if isinstance(said, str) and said else list_in(result, "warnings") if said else []
    errors = []
    for warning in warnings:
        if isinstance(warning, dict):
            number, severity = warning.get("error_id"), warning.get("error_severity")
            known = number if isinstance(number, int) else None
            graded = severity if isinstance(severity, int) and severity else SEVERITY_OF.get(known or 0, UNKNOWN)
            errors.append(DiagError(known, graded, str(warning.get("warning", ""))))
        else:
            errors.append(DiagError(None, UNKNOWN, str(warning)))
    return tuple(errors)


_NAMES = {
    "gpu memory": "memory", "memory bandwidth": "memory_bandwidth", "targeted stress": "targeted_stress",
    "targeted power": "targeted_power", "pulse test": "pulse_test", "memtest": "memtest", "eud test": "eud",
}  # fmt: skip
"""What the JSON of DCGM 3 calls tests, by the names that DCGM 4 has and `dcgmi diag -r` takes."""


HEALTHY, WARNING, FAILURE = "Healthy", "Warning", "Failure"
OVERALL = "Overall Health"
NVLINK = "NVLINK system"


class DcgmIncident(NamedTuple):
    """What a watch found: of which entity (`GPU`, "3"), in which system (`Memory system`), how grave, and the text."""

    group: str
    entity: str
    system: str
    health: str
    text: str


class DcgmHealth(NamedTuple):
    """The whole answer. `overall` is DCGM's own word."""

    overall: str
    incidents: Tuple[DcgmIncident, ...]


def parse_health(text: str) -> DcgmHealth:
    """Read the output. Raises ValueError if it is not what dcgmi writes."""
    body = object_in(json_object(text), "body")
    overall = text_in(object_in(body, OVERALL), "value")
    found: List[DcgmIncident] = []
    for group in body:
        if group == OVERALL:
            continue
        entities = _children(body, group)
        for entity in entities:
            about = _children(entities, entity)
            errors = _children(about, "Errors") if "Errors" in about else {}
            for system in errors:
                said = object_in(errors, system)
                lines = list_in(said, "overflow")
                found.append(DcgmIncident(group, entity, system, text_in(said, "value"), " ".join(map(str, lines))))
    return DcgmHealth(overall, tuple(found))


def _children(value: Dict[str, Any], name: str) -> Dict[str, Any]:
    """The children of the box of dcgmi's under a name, {} if it has none. Raises ValueError."""
    box = object_in(value, name)
    return object_in(box, "children") if box.get("children") else {}
