"""How a package tests its parts with nhc's test kit. Run it with pytest where nhc and the package are installed."""

import pytest
from nhc_example.adapter import OutFiles
from nhc_example.check import check_pressure
from nhc_example.sink import StatusFile

from nhc.api import OWNER_SETTING
from nhc.lab.testing.adapters import AdapterContract, AdapterWorld
from nhc.lab.testing.fake_host import FakeHost
from nhc.lab.testing.sinks import SinkContract, SinkWorld

IDLE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60={} avg300=0.00 total=0\n"


@pytest.mark.parametrize(("waited", "verdict"), [("39.9", "OK"), ("40.1", "CRIT")])
def test_pressure_is_judged_at_its_limit(waited, verdict):
    host = FakeHost({"/proc/pressure/memory": IDLE.format(waited)})
    assert check_pressure(host, "memory", 40.0).verdict.name == verdict


def test_no_pressure_is_nothing_to_judge_and_nonsense_is_unknown():
    assert check_pressure(FakeHost({}), "memory", 40.0).verdict.name == "SKIP"
    assert check_pressure(FakeHost({"/proc/pressure/memory": "what?\n"}), "memory", 40.0).verdict.name == "UNKNOWN"


class World(AdapterWorld):
    nodes = ("n1", "n2", "n3")

    def __init__(self, directory):
        self.directory = directory
        (directory / "nodes").write_text("n1\nn2\nn3\n")
        self.adapter = OutFiles({"NHC_OUTFILES": str(directory)})

    def operator_takes_out(self, node, reason):
        (self.directory / f"{node}.out").write_text(reason)

    def operator_puts_back(self, node):
        (self.directory / f"{node}.out").unlink(missing_ok=True)

    def broken(self):
        return OutFiles({"NHC_OUTFILES": "/no/such/directory"})

    def acting_for(self, owner):
        return OutFiles({"NHC_OUTFILES": str(self.directory), OWNER_SETTING: owner})


class TestOutFiles(AdapterContract):
    @pytest.fixture
    def world(self, tmp_path):
        return World(tmp_path)


class StatusWorld(SinkWorld):
    make = StatusFile

    def __init__(self, directory):
        super().__init__()
        self.path = directory / "status"
        self.settings = {"path": str(self.path)}
        self.unreachable = {"path": "/no/such/directory/status"}

    def shown(self):
        return self.path.read_text() if self.path.exists() else ""


class TestStatusFile(SinkContract):
    @pytest.fixture
    def world(self, tmp_path):
        return StatusWorld(tmp_path)
