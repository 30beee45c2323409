"""NVML that hangs or crashes takes its check with it, never the run; and nothing is imported before it is needed."""

import json
import subprocess
import sys

import pytest

from nhc.core.host import BOOT_ID
from nhc.core.model import Verdict
from tests.support.nvml.fake import ROOT, pci_tree

RUN = """
import json, os, sys, tempfile
from nhc.node.run import engine
from nhc.core.plan import BUILT_IN
from nhc.core.plan import Item
from nhc.core.plan import Plan
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
host = FakeHost(json.loads(sys.argv[1]))
host.system.ask = lambda name, answer: answer()
host.system.uptime = float(os.environ.get("UPTIME", "100000"))
host.system.kernel = json.loads(os.environ.get("KERNEL_RECORDS", "[]"))
seconds, lines = float(sys.argv[2]), [line.split() for line in sys.argv[3:]]
items = tuple(Item(BUILT_IN, line[0], " ".join(line), argv=tuple(line), timeout=seconds) for line in lines)
with tempfile.TemporaryDirectory() as place:
    report = engine.run(Plan(items), host, state=State(place))
print(json.dumps([[r.check, int(r.verdict), r.outcome.reason, r.outcome.target] for r in report.results]))
"""


def run(nvml, scenario, *lines, seconds=20, kernel=(), uptime=100000):
    records = [f"3,{number},99999000000,-;{text}" for number, text in enumerate(kernel)]
    ended = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps({**pci_tree(), BOOT_ID: "boot-1\n"}), str(seconds), *lines],
        env={**nvml.environment(scenario), "KERNEL_RECORDS": json.dumps(records), "UPTIME": str(uptime)},
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    )  # fmt: skip
    return json.loads(ended.stdout)


@pytest.mark.thorough
def test_a_whole_run_on_a_healthy_machine(nvml):
    found = run(nvml, nvml.scenario("h100"), "check_gpu_count 8", "check_gpu_ecc", "check_nvlink_status")

    assert {check for check, *_ in found} == {"check_gpu_count", "check_gpu_ecc", "check_nvlink_status"}
    assert {verdict for _, verdict, _, _ in found} == {Verdict.OK}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "check", "verdict"),
    [
        ("hang", "check_gpu_count 8", Verdict.WARN),  # CRIT at the next look: one time-out takes no node out
        ("hang", "check_gpu_lost", Verdict.WARN),
        ("hang", "check_gpu_ecc", Verdict.UNKNOWN),
        ("crash", "check_gpu_count 8", Verdict.UNKNOWN),
    ],
)
def test_a_library_that_hangs_or_crashes_ends_its_check_only(nvml, what, check, verdict):
    found = run(nvml, nvml.scenario("h100", f"init {what}"), check, "check_nvme_count 0", seconds=1)

    assert [found[0][0], found[0][1]] == [check.split()[0], verdict]
    assert found[-1][0] == "check_nvme_count"


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["hang", "crash"])
def test_what_the_log_says_is_told_while_nvml_hangs(nvml, what):
    """Xid 119 is the driver that gets no answer from its GPU, so NVML may hang then: other faults still count."""
    kernel = [
        "NVRM: Xid (PCI:0000:0f:00): 119, pid=1, name=python, Timeout after 6s of waiting for RPC response",
        "EXT4-fs (sda2): Remounting filesystem read-only", "Kernel panic - not syncing: Fatal exception",
    ]  # fmt: skip
    found = run(nvml, nvml.scenario("h100", f"init {what}"), "check_kmsg", "check_gpu_xid", kernel=kernel)

    reasons = {(check, reason, verdict) for check, verdict, reason, _target in found}
    assert {("check_kmsg", "Xid119", Verdict.CRIT), ("check_kmsg", "KernelPanic", Verdict.CRIT),
            ("check_gpu_xid", "Xid119", Verdict.CRIT)} <= reasons  # fmt: skip
    assert Verdict.UNKNOWN not in {verdict for _check, _reason, verdict in reasons}


EIGHT = ["check_gpu_count 8", "check_gpu_lost", "check_gpu_ecc", "check_gpu_row_remap", "check_nvlink_status",
         "check_gpu_pcie", "check_gpu_persistence on", "check_gpu_processes"]  # fmt: skip


@pytest.mark.thorough
def test_eight_checks_start_nvml_once_however_long_it_takes(nvml, tmp_path):
    """A driver that was asleep takes seconds: each worker that starts it anew takes them again."""
    starts = tmp_path / "starts"
    scenario = nvml.scenario("h100", f"starts {starts}", "start_ms 400")

    found = run(nvml, scenario, *EIGHT, "check_nvme_count 0", "check_kmsg")

    assert starts.read_text() == "x"
    assert Verdict.UNKNOWN not in {verdict for check, verdict, *_ in found if check.startswith("check_gpu")}


@pytest.mark.thorough
def test_nvml_that_never_answers_costs_one_deadline(nvml, tmp_path):
    starts = tmp_path / "starts"
    found = run(nvml, nvml.scenario("h100", f"starts {starts}", "init hang"), *EIGHT, seconds=1)

    assert starts.read_text() == "x"
    assert {(check, reason) for check, _, reason, _ in found} == {(line.split()[0], "CheckTimeout") for line in EIGHT}


def test_a_node_without_accelerators_imports_no_library():
    """pynvml costs 30 ms: a node without GPUs must not pay them, nor a node whose checks are other ones."""
    code = (
        "import sys; from nhc.core.check import find; from nhc.lab.testing.fake_host import FakeHost;"
        "host = FakeHost({'/proc/bus/pci/devices': '0100\\t15b31021\\t20\\n'});"
        "names = ('check_gpu_lost', 'check_gpu_ecc', 'check_nvlink_status', 'check_gpu_p2p', 'check_gpu_inforom');"
        "[list(find(name).run(host)) for name in names];"
        "facts = {f'nhc.node.facts.{name}' for name in ('nvidia', 'nvml', 'amd')};"
        "heavy = {'pynvml', 'ctypes', 'xml.etree', *facts};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ended.stdout.strip() == "[]"


@pytest.mark.thorough
@pytest.mark.parametrize(("uptime", "verdict"), [(41, Verdict.UNKNOWN), (400, Verdict.CRIT)])
def test_links_that_train_and_a_registration_in_progress_right_after_the_boot(nvml, uptime, verdict):
    sick = nvml.scenario("h100", "3.fabric 2 0 0 0 0", "2.link.4.state 0")
    found = run(nvml, sick, "check_gpu_fabric", "check_nvlink_status", uptime=uptime)
    bad = {(check, level) for check, level, _reason, _target in found if level > Verdict.WARN}
    assert bad == {("check_gpu_fabric", verdict), ("check_nvlink_status", verdict)}
