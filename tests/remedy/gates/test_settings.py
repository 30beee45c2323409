"""gate.toml, the record, and what a suite's process comes to."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Report, crit, ok, unknown
from nhc.core.render.json import render
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import BadRecord, GateRecord, GateState
from nhc.lab.testing.fake_host import FakeHost
from nhc.marks.ports.gates import GateLimit
from nhc.remedy.gates import limits, suite_process
from nhc.remedy.gates.identity import marks
from nhc.remedy.gates.settings import GateRules, HookSettings, Trigger, load, parse
from tests.support.run import nhc

WHOLE = """
scheduler = "slurm"
[adapter]
path = "/opt/slurm/bin"
[groups.gpu]
nodes = ["gpu[001-064]", "h100-*"]
suite = "standard"
on = ["new", "demand"]
max-age = "7d"
cannot-tell = "open"
tries = 5
pause = "1m"
limit = "3h"
[groups.gpu.hook]
type = "aws"
every = "10m"
name = "nhc-gate"
[groups.rest]
nodes = "*"
"""


def test_all_of_it_is_read() -> None:
    found = parse(WHOLE)
    gpu = found.rules("gpu007")
    assert gpu == GateRules(
        "gpu", ("gpu[001-064]", "h100-*"), "standard", frozenset({Trigger.NEW, Trigger.DEMAND}), 604800.0, False, 5,
        60.0, 10800.0, hook=HookSettings("aws", 600.0, {"name": "nhc-gate"}),
    )  # fmt: skip
    assert found.rules("h100-3") == gpu
    rest = found.rules("gpu065")
    assert rest is not None
    assert (rest.name, rest.closed, rest.on) == ("rest", True, frozenset(Trigger))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[groups.a]\nnodes='*'\n", "gate.toml: scheduler: missing"),
        ('scheduler = "slurm"\n', "no [groups.NAME]"),
        ('scheduler = "nomad"\n[groups.a]\nnodes="*"\n', "gate.toml:1: scheduler: 'nomad' is not"),
        ('scheduler = "none"\n[groups.a]\n', "groups.a.nodes: missing"),
        ('scheduler = "none"\n[groups.a]\nnodes = "n[1-"\n', "gate.toml:3: groups.a.nodes"),
        ('scheduler = "none"\n[groups.a]\nnodes="*"\ntries = 0\n', "gate.toml:4: groups.a.tries"),
        ('scheduler = "none"\n[groups.a]\nnodes="*"\nwen = 1\n', "gate.toml:4: groups.a.wen"),
        ('scheduler = "none"\n[groups.a]\nnodes="*"\non = ["boot"]\n', "gate.toml:4: groups.a.on"),
        ('scheduler = "none"\n[groups.a]\nnodes="*"\n[groups.a.hook]\nevery = "3h"\ntype="aws"\n', "gate.toml:5"),
    ],
)
def test_mistakes_are_one_line_with_their_place(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as found:
        parse(text)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_a_record_survives(tmp_path) -> None:
    where = str(tmp_path / "deep/er/gate.json")
    kept = GateRecord(GateState.PASSED, "quick", "gpu", 1.5, "b", {"kernel": "6.1"}, "why", report="/x")
    assert record.read(where) is None
    record.write(where, kept)
    assert record.read(where) == kept
    assert os.listdir(os.path.dirname(where)) == ["gate.json"]


ANY = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.thorough
@given(st.one_of(st.text(), ANY.map(json.dumps)))
def test_what_is_no_record_is_one_line(text: str) -> None:
    with pytest.raises(BadRecord, match=r"gate\.json"):
        record.parse(text, "gate.json")


@given(st.sampled_from(GateRecord._fields), st.none() | st.integers() | st.text() | st.lists(st.text()))
def test_a_record_with_one_wrong_field_is_no_record(name: str, value: object) -> None:
    good = {**GateRecord(GateState.HELD, "q", "g", 1.0, "b", {}, "w")._asdict(), "state": "held"}
    same = isinstance(value, type(good[name])) or (name in ("at", "asked", "tries") and isinstance(value, int))
    if same and name != "state":
        return
    with pytest.raises(BadRecord):
        record.parse(json.dumps({**good, name: value}), "gate.json")


def a_report(*results: CheckResult, **more: object) -> str:
    report = Report("n1", "b", 1000.0, 3.0, results, labels={"suite": "quick"})
    return render(report._replace(**more))  # type: ignore[arg-type]


GOOD = CheckResult("check_deep_cpu", ok("fine"))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (a_report(GOOD), "OK"),
        (a_report(GOOD, CheckResult("check_x", crit("Bad", "wrong sums"))), "CRIT"),
        (a_report(GOOD, CheckResult("check_x", unknown("NotThere", "no tool"))), "OK"),
        (a_report(CheckResult("nhc_deep_run", unknown("DeepNodeBusy", "gpu0: process 7"))), suite_process.BUSY),
        (a_report(), "UNKNOWN"),
        (a_report(GOOD, host="n2"), "UNKNOWN"),
        (a_report(GOOD, labels={"suite": "burn"}), "UNKNOWN"),
        (a_report(GOOD, started=900.0), "UNKNOWN"),
        ("", "UNKNOWN"),
        (a_report(GOOD)[:-20], "UNKNOWN"),
    ],
)
def test_only_this_runs_own_whole_report_passes(text: str, verdict: str) -> None:
    assert suite_process.judged(text, "quick", "n1", 1000.0).verdict == verdict


def test_what_a_verdict_holds_for() -> None:
    files = {
        "/proc/sys/kernel/osrelease": "6.1.0\n", "/sys/module/nvidia/version": "550.90\n",
        "/etc/os-release": 'NAME="X"\nVERSION_ID="12"\nBUILD_ID=7\n', "/sys/class/dmi/id/product_uuid": "UU\n",
        "/sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n", "/sys/bus/pci/devices/0000:3b:00.0/device": "0x2330\n",
        "/sys/bus/pci/devices/0000:01:00.0/class": "0x020000\n",
    }  # fmt: skip
    found = marks(FakeHost(files=files), "* || check_x\n")
    assert (found["kernel"], found["driver nvidia"], found["image"], found["machine"]) == (
        "6.1.0",
        "550.90",
        "7 12",
        "UU",
    )
    other = marks(FakeHost(files={**files, "/sys/bus/pci/devices/0000:3b:00.0/device": "0x2335\n"}), "* || check_x\n")
    assert [name for name in found if found[name] != other[name]] == ["gpus"]
    assert marks(FakeHost(files=files), "* || check_y\n")["own suite"] != found["own suite"]


def said(rules: GateRules, expected: float, *found: GateLimit) -> "list[tuple[str, str]]":
    return [(one.word, one.topic) for one in limits.judge(rules, expected, found)]


def test_limits_are_held_against_the_suite_and_all_its_tries() -> None:
    rules = GateRules("gpu", ("*",), limit=600.0, tries=3, pause=60.0)
    assert limits.needs(rules, 300.0) == 1920.0
    assert said(rules, 300.0, GateLimit("ca", 2100.0, "removed", "raise it")) == [("ok", "ca")]
    assert said(rules, 300.0, GateLimit("ca", 900.0, "removed", "raise it")) == [("warn", "ca")]
    assert said(rules, 300.0, GateLimit("ca", 200.0, "removed", "raise it")) == [("problem", "ca")]
    assert said(rules, 300.0, GateLimit("pool", None, "no taint", "list it")) == [("problem", "pool")]
    assert said(rules, 900.0) == [("problem", "group gpu")], "the run's own limit is too short"
    hooked = rules._replace(hook=HookSettings("aws", 300.0, {}))
    beat = GateLimit("g: hook h: heartbeats", 500.0, "terminated", "shorter")
    assert said(hooked, 300.0, beat) == [("problem", beat.who)], "one lost heartbeat must not cost the instance"
    assert said(hooked, 300.0, beat._replace(seconds=3600.0)) == [("ok", beat.who)]


def test_the_settings_of_the_published_manifests_are_read() -> None:
    shipped = Path(__file__).resolve().parents[3] / "adapters/kubernetes/overlays/gate/gate.toml"
    assert load(str(shipped)).scheduler == "kubernetes"


@pytest.mark.thorough
@pytest.mark.parametrize("words", [
    ("gate", "run"), ("gate", "boot"), ("status", "gate"), ("doctor", "gate"), ("sync", "gate"),
    ("gate", "open", "n1", "--why", "w"), ("gate", "close", "n1", "--why", "w"),
])  # fmt: skip
def test_without_settings_one_line_says_so_and_what_to_do(words) -> None:
    done = nhc(*words)
    said = f"nhc {words[0]} {words[1]}: there is no /etc/nhc/gate.toml: name the settings with -s\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
