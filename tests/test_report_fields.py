"""A field of a report stands in the model, the schema and the form as JSON; readers elsewhere have the same."""

import importlib.util
import json
from pathlib import Path

from nhc.core.model import CheckResult, DeviceId, Report, Scope, crit, ok
from nhc.core.render.json import from_result, to_dict, to_result
from nhc.fleet import clean_report

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "docs/report.schema.json").read_text())["properties"]
RESULT = SCHEMA["results"]["items"]["properties"]


def ansibles():
    """The report that the collection makes of a node on which nhc could not run; it imports nothing of nhc."""
    path = ROOT / "playbooks/collections/ansible_collections/nhc/nhc/plugins/module_utils/report.py"
    spec = importlib.util.spec_from_file_location("collection_report", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.not_run("n1", "Unreachable", "no route to host")


def test_the_schema_the_form_and_both_readers_have_the_same_fields():
    made = to_dict(Report("n1", "b1", 1.0, 0.5, (CheckResult("check_a", ok()),)))
    for report in (made, ansibles()):
        assert list(report) == list(SCHEMA)
        assert list(report["results"][0]) == list(RESULT)[:-2]
    assert (tuple(SCHEMA), tuple(RESULT)[:-2]) == (clean_report._REPORT, clean_report._RESULT)


def test_what_speaks_of_a_device_says_so_last():
    """A sweep looks more closely at such a result, which is rare: clean_report takes those of the usual form alone."""
    about = crit("Xid48", "double bit")._replace(scope=Scope.DEVICE, device=DeviceId("0000:3b:00.0", minor="3"))
    result = CheckResult("check_a", about)
    made = to_result(result)
    assert list(made) == list(RESULT)
    assert made["device"] == {"pci": "0000:3b:00.0", "minor": "3"}
    assert from_result(made) == result
    assert from_result({**made, "scope": "rack"}).outcome.scope is Scope.NODE
    assert from_result({**made, "device": {"serial": "1"}}).outcome.scope is Scope.NODE
