"""`nhc inject gpu-gone` on NVIDIA's own binding, over a library that remembers what was taken out."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from tests.support.nvml.fake import ADDRESSES, Nvml, pci_tree
from tests.support.require import need
from tests.support.run import ROOT

PCI = ADDRESSES[2]
pytestmark = pytest.mark.slow


class DrilledGpus:
    """A node with two views of eight GPUs, the bus and NVML, and the commands that are run on it."""

    def __init__(self, directory, *faults):
        need("root", os.geteuid() == 0, "mounts a PCI bus of its own")
        self.bus = directory / "bus"
        for path, text in {**pci_tree(), "/sys/bus/pci/rescan": "", f"/sys/bus/pci/devices/{PCI}/remove": ""}.items():
            if path.startswith("/sys/bus/pci"):
                file = self.bus / path[len("/sys/bus/pci/") :]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        (directory / "library").mkdir()
        self.library = Nvml(directory / "library")
        self.scenario = self.library.scenario("h100", *faults)
        self.record = directory / "lib" / "drill.json"
        self.kmsg = directory / "kmsg"
        self.kmsg.touch()
        self.env = {**self.library.environment(self.scenario), "NHC_LEDGER_DIR": str(self.record.parent),
                    "NHC_STATE_DIR": str(directory / "state")}  # fmt: skip

    def nhc(self, *words):
        mounts = "".join(f"mount --bind {shlex.quote(str(ours))} {place}; "
                         for ours, place in ((self.bus, "/sys/bus/pci"), (self.kmsg, "/dev/kmsg")))  # fmt: skip
        inside = ["unshare", "-m", "--propagation", "private", "sh", "-ec", f'{mounts} exec "$@"', "sh"]
        argv = [*inside, sys.executable, "-m", "nhc", *words]
        return subprocess.run(argv, check=False, env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=60)

    def said(self, key):
        """What the library was told last of the GPU."""
        lines = [line.split(None, 1) for line in self.scenario.read_text().splitlines()]
        return next((words[1] for words in reversed(lines) if words[0] == f"2.{key}"), None)

    def taken_out(self):
        return json.loads(self.record.read_text())["gpus"] if self.record.exists() else []


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = []

    def make(*faults):
        made.append(DrilledGpus(tmp_path, *faults))
        return made[-1]

    yield make
    for each in made:
        each.library.close()


def test_a_gpu_is_taken_out_and_found_again(node):
    gpus = node()

    out = gpus.nhc("inject", "gpu-gone", "--device", PCI, "--apply")
    assert (out.returncode, out.stderr) == (0, "")
    assert (gpus.said("persistence"), gpus.said("drained"), gpus.said("removed")) == ("0", "1", "1")
    assert (gpus.bus / "devices" / PCI / "remove").read_text() == "1\n"
    assert gpus.taken_out() == [[PCI, True]]
    counted = gpus.library.one("h100", "check_gpu_count 8", "2.removed 1")
    assert "GpuMissing" in {outcome.reason for outcome in counted} or any("7" in o.message for o in counted)
    assert gpus.nhc("inject", "gpu-gone", "--device", PCI, "--apply").returncode == 2  # it is out already

    back = gpus.nhc("inject", "end")
    assert f"back: GPU {PCI}" in back.stdout, back.stderr
    assert (gpus.said("removed"), gpus.said("drained"), gpus.said("persistence")) == ("0", "0", "1")
    assert (gpus.bus / "rescan").read_text() == "1\n"
    assert gpus.taken_out() == []


@pytest.mark.parametrize(
    ("faults", "why"),
    [(["2.processes 4242:1000"], "in use (remove)"), (["init error 9"], "the NVIDIA driver is not loaded")],
)
def test_what_cannot_be_taken_out_stays_as_it_was(node, faults, why):
    gpus = node(*faults)
    out = gpus.nhc("inject", "gpu-gone", "--device", PCI, "--apply")
    assert (out.returncode, why in out.stderr) == (2, True), out.stderr
    assert gpus.said("removed") is None
    assert gpus.said("drained") in (None, "0")
    assert gpus.said("persistence") in (None, "1")
    assert gpus.taken_out() == []
    assert (gpus.bus / "devices" / PCI / "remove").read_text() == ""


def test_one_that_does_not_come_back_stays_in_the_record(node):
    gpus = node()
    assert gpus.nhc("inject", "gpu-gone", "--device", PCI, "--apply").returncode == 0
    with gpus.scenario.open("a") as file:
        file.write("2.discover error 17\n")
    back = gpus.nhc("inject", "end")
    assert (back.returncode, "does not come back: the operating system refused (discover)" in back.stderr) == (1, True)
    assert gpus.taken_out() == [[PCI, True]]


def test_nothing_is_done_without_a_device_or_an_answer(node):
    gpus = node()
    assert gpus.nhc("inject", "gpu-gone", "--apply").returncode == 2
    assert gpus.nhc("inject", "gpu-gone", "--device", PCI).returncode == 2  # nobody to ask
    plan = gpus.nhc("inject", "gpu-gone", "--device", PCI, "--dry-run")
    assert (plan.returncode, PCI in plan.stdout) == (0, True)
    assert gpus.taken_out() == []
    assert gpus.said("drained") is None
