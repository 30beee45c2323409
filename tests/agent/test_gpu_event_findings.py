"""GPU Operational Events beside the log's Xids: one incident, whoever tells of it."""

import subprocess
import sys

import pytest

from nhc.agent.gpu_events import FATAL_EVENT, RECOVERABLE, GpuEvent, parse, take_in
from nhc.core.state.store import State
from nhc.node.facts.nvml_codes import error_code
from nhc.node.kernlog.collect import take_in as take_in_log
from nhc.node.kernlog.source import STORE
from tests.support.nvml.fake import Nvml

GPU = "0000:44:00.0"
NOW = 1_800_000_000.0


def event(xid=79, severity=FATAL_EVENT, group=0, when=NOW, code=3):
    return GpuEvent(GPU, "GPU-BUS", code, 3, severity, group, xid, when)


def log(xid, at=NOW):
    state = {}
    if xid is not None:
        line = f"NVRM: Xid (PCI:0000:44:00): {xid}, pid='<unknown>', name=<unknown>, words"
        take_in_log(state, [(line, at)], at)
    return state


def findings(state):
    return {key: (held["count"], held.get("witness", "")) for key, held in state.get("findings", {}).items()}


NAME = "GPU-BUS 0x3 (interconnect error)"


@pytest.mark.parametrize(
    ("state", "told", "expected"),
    [
        (log(79), event(), {f"xid/79/{GPU}": (1, NAME)}),  # the log has it: one incident, two witnesses
        (log(None), event(), {f"xid/79/{GPU}": (1, NAME)}),  # the line was lost
        (log(79, NOW - 3600), event(), {f"xid/79/{GPU}": (2, NAME)}),  # an earlier one: it came again
        (log(48), event(xid=63), {f"xid/48/{GPU}": (1, "")}),  # the log has another word for that moment
        (log(None), event(xid=13), {}),  # an application's fault is the log's to count
        (log(None), event(xid=None), {f"gpu/EventFatal/{GPU}": (1, NAME)}),
        (log(79), event(xid=None), {f"xid/79/{GPU}": (1, "")}),
        (log(None), event(xid=None, severity=RECOVERABLE), {}),
        (log(None), event(xid=None, group=1), {}),  # recovered
        (log(None), event(group=4), {}),  # simulated
        (log(None), event(severity=20), {}),
    ],
)
def test_an_event_is_a_witness_of_what_the_log_says_or_would_have_said(state, told, expected):
    take_in(state, told, NOW + 5)
    assert findings(state) == expected


def test_an_event_that_makes_no_sense_is_refused():
    numbers = {"moduleEventCode": 3, "categoryId": 3, "severity": 40, "groupAttributes": 0, "xid": 79}
    whole = {"sourceModule": "GPU-BUS", "pci": "00000000:44:00.0", "timestampUsec": 1_800_000_000_000_000, **numbers}
    assert parse(whole, 0.0) == event()
    assert parse({**whole, "timestampUsec": 0}, 5.0).when == 5.0
    for name in ("sourceModule", "pci", "severity"):
        with pytest.raises(ValueError, match="an event of the driver without"):
            parse({**whole, name: None}, 0.0)


FOLLOW = """
import sys
from nhc.agent import gpu_events
from nhc.core.state.store import State
from nhc.node.facts import nvml
gpu_events.AFTER_THE_LOG = 0.0
left = [3]
def goes_on():
    left[0] -= 1
    return left[0] + len(sys.argv) > 2
print(gpu_events.file_events(nvml.operational_events(10, gpu_events.RECOVERABLE), State(sys.argv[1]), goes_on))
"""


@pytest.fixture
def nvml(tmp_path):
    (tmp_path / "library").mkdir()
    library = Nvml(tmp_path / "library")
    yield library
    library.close()


@pytest.mark.thorough
def test_through_nvidias_own_binding(nvml, tmp_path):
    def follow(*lines):
        scenario = nvml.scenario("h100", *lines)
        ran = subprocess.run([sys.executable, "-c", FOLLOW, str(tmp_path / "state"), *map(str, range(len(lines)))],
                             env=nvml.environment(scenario), check=False, capture_output=True, text=True,
                             timeout=30)  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    events = (
        "events 1",
        "event.0 2 GPU-BUS 3 3 40 0 79",
        "event.1 5 NVLINK-MODULE-16 14 3 40 0 -1",
        "event.2 1 GPU-RAS 3d 2 20 0 63",
    )
    assert follow(*events) == "None"
    held = State(tmp_path / "state").load(STORE)["findings"]
    assert {key: one["witness"] for key, one in held.items()} == {
        "xid/79/0000:44:00.0": "GPU-BUS 0x3 (interconnect error)",
        "gpu/EventFatal/0000:a8:00.0": "NVLINK-MODULE-16 0x14 (interconnect error)",
    }
    assert error_code({"error": int(follow())}) == 3  # a driver without such events
