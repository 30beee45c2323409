"""check_kmsg and check_gpu_xid: what a user of the checks sees."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nhc.core.check import BadArguments
from nhc.core.host import BOOT_ID, Host
from nhc.core.model import Action, Verdict
from nhc.core.state.store import State
from nhc.core.system import kernel_ring
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.commands.log import ack_command
from nhc.node.facts.accelerator import asked
from nhc.node.facts.accelerator_values import Device, Inventory, Modes, RowRemap, Source
from nhc.node.kernlog.source import STORE
from tests.support.judge import judge, judge_all
from tests.support.require import need
from tests.support.run import nhc

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
NO_DEVICES = {"/proc/bus/pci/devices": ""}


class Machine:
    """A FakeHost whose kernel logs lines, judged run by run."""

    def __init__(self, files=None, memory=None):
        self.host = FakeHost({BOOT_ID: "boot-1\n", **NO_DEVICES, **(files or {})})
        if memory:
            self.host.memory = memory
        self.number = 0

    def says(self, *lines, skip=0):
        self.number += skip
        for line in lines:
            at = int((self.host.system.uptime - 1) * 1e6)
            self.host.system.kernel.append(f"3,{self.number},{at},-;{line}")
            self.number += 1

    def judge(self, line="check_kmsg"):
        """The outcomes but for the last, which is of the log itself, unless there is no other."""
        self.host.forget()
        outcomes = judge_all(self.host, line)
        self.log = outcomes[-1]
        return outcomes[:-1] or outcomes


@pytest.fixture
def machine():
    return Machine()


def metrics(machine):
    return {metric.name: metric.value for metric in machine.log.metrics}


def test_a_quiet_log_is_ok(machine):
    machine.says("usb 1-1: new device", "EXT4-fs (vda): mounted filesystem")
    outcome = machine.judge()[0]
    assert outcome.verdict is Verdict.OK
    assert metrics(machine)["kernel_log_new_lines"] == 2


def test_a_fatal_fault_is_critical_until_it_is_repaired(machine):
    machine.says(XID79)
    for _run in range(3):
        (outcome,) = machine.judge()
        assert outcome.verdict is Verdict.CRIT
        assert (outcome.reason, outcome.target, outcome.action) == ("Xid79", "0000:3b:00.0", Action.REBOOT)
        assert outcome.evidence == (XID79,)
        assert "fallen off the bus" in outcome.message
    machine.says("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024")
    assert machine.judge()[0].verdict is Verdict.OK


def test_the_message_stays_the_same_while_nothing_happens(machine):
    machine.says(XID79)
    first = machine.judge()[0].message
    machine.host.system.now += 3600
    machine.host.system.uptime += 3600
    assert machine.judge()[0].message == first


def test_one_outcome_for_each_finding_the_worst_first(machine):
    machine.says("nfs: server a not responding, still trying", XID79, "nvme nvme0: I/O 1 QID 2 timeout, aborting")
    outcomes = machine.judge()
    assert [o.verdict for o in outcomes] == [Verdict.CRIT, Verdict.WARN, Verdict.WARN]
    assert metrics(machine)["kernel_log_fatal"] == 1
    assert metrics(machine)["kernel_log_degraded"] == 2


def test_an_applications_fault_is_only_counted(machine):
    machine.says(
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, MMU Fault",
        "Memory cgroup out of memory: Killed process 1 (a)",
    )
    outcomes = machine.judge()
    assert outcomes[0].verdict is Verdict.OK
    assert metrics(machine)["kernel_log_app_lines"] == 2


def test_800000_equal_lines_are_one_finding_in_bounded_memory(machine):
    line = "NVRM: Xid (PCI:0000:3b:00): 95, pid=1, name=python, Uncontained: L2"
    total = 0
    for _run in range(8):
        machine.host.system.kernel = [f"3,{total + i},99999000000,-;{line}" for i in range(10_000)]
        total += 10_000
        outcomes = machine.judge()
    assert len(outcomes) == 1
    assert "80000 lines" in outcomes[0].message
    assert len(json.dumps(machine.host.memory.load(STORE))) < 5000


def test_lost_lines_are_told_once(machine):
    machine.says("a")
    machine.judge()
    machine.says("b", skip=812)
    (outcome,) = machine.judge()
    assert (outcome.verdict, outcome.reason) == (Verdict.WARN, "KernelLogLost")
    assert "812 lines" in outcome.message
    assert machine.judge()[0].verdict is Verdict.OK


def test_what_was_overwritten_before_the_first_run_is_said_and_no_alarm(machine):
    machine.says("a", skip=5)
    (outcome,) = machine.judge()
    assert outcome.verdict is Verdict.OK
    assert "5 lines of this boot were overwritten" in outcome.message


def test_a_restart_with_a_device_that_is_gone_keeps_the_finding():
    machine = Machine()
    machine.says(XID79)
    machine.judge()
    machine.host.write(BOOT_ID, "boot-2\n")
    machine.host.system.kernel, machine.number = [], 0
    (outcome,) = machine.judge()
    assert outcome.verdict is Verdict.CRIT
    assert "before this boot" in outcome.message


def test_a_restart_ends_what_only_the_kernel_had(machine):
    machine.says("Oops: 0000 [#1] SMP NOPTI")
    assert machine.judge()[0].verdict is Verdict.CRIT
    machine.host.write(BOOT_ID, "boot-2\n")
    machine.host.system.kernel, machine.number = [], 0
    machine.says("usb 1-1: new device")
    assert machine.judge()[0].verdict is Verdict.OK


def test_an_unreadable_log_is_unknown():
    host = FakeHost({BOOT_ID: "b"})

    def refuse(_after):
        raise PermissionError(1, "Operation not permitted", "/dev/kmsg")

    host.system.kernel_log = refuse
    outcome = judge(host, "check_kmsg --source kmsg")
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "KernelLogUnreadable")
    assert judge(host, "check_kmsg").verdict is Verdict.UNKNOWN


def test_without_dev_kmsg_a_syslog_file_serves():
    host = FakeHost({BOOT_ID: "b", "/var/log/syslog": f"{XID79}\n"})

    def refuse(_after):
        raise PermissionError(1, "Operation not permitted", "/dev/kmsg")

    host.system.kernel_log = refuse
    outcome = judge(host, "check_kmsg")
    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "Xid79")
    host.forget()
    assert [o.reason for o in judge_all(host, "check_kmsg")] == ["Xid79", ""], "and is not read twice"


@pytest.mark.parametrize(
    "stamp",
    [
        "Nov 14 21:00:00 n kernel: ",
        "2023-11-14T21:00:00.123456+00:00 n kernel: ",
        "<4>1 2023-11-14T21:00:00Z n kernel - - - ",
        "",
    ],
)
def test_a_syslog_file_with_any_stamp(stamp, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    host = FakeHost({BOOT_ID: "b", "/var/log/messages": f"{stamp}{XID79}\n"})
    assert judge(host, "check_kmsg --source syslog=/var/log/messages").reason == "Xid79"
    assert judge(host, "check_kmsg --source syslog /var/log/messages").reason == "Xid79"


def test_a_missing_file_is_unknown(machine):
    assert judge(machine.host, "check_kmsg --source dmesg=/nowhere").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("words", ["--source tape", "--source syslog=relative", "--source"])
def test_bad_arguments_say_what_was_expected(machine, words):
    with pytest.raises(BadArguments, match=r"kmsg|argument"):
        judge(machine.host, f"check_kmsg {words}")


@pytest.mark.parametrize("words", ["--source syslog", "/some/file"])
def test_a_file_and_its_source_go_together(machine, words):
    outcome = judge(machine.host, f"check_kmsg {words}")
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "BadArguments")
    assert "file" in outcome.message


def test_a_site_can_ignore_what_it_does_not_care_for(machine):
    machine.says("nfs: server a not responding, still trying", "nvme nvme0: I/O 1 QID 2 timeout, aborting")
    assert [o.reason for o in machine.judge("check_kmsg --ignore nfs")] == ["NvmeTimeout"]
    assert machine.judge("check_kmsg --ignore nfs/ServerNotResponding -i nvme")[0].verdict is Verdict.OK


def test_since_boot_judges_anew_and_remembers_nothing(machine):
    machine.says(XID79)
    assert machine.judge("check_kmsg --since-boot")[0].verdict is Verdict.CRIT
    assert machine.host.memory.load(STORE) == {}


def test_rules_of_node_problem_detector_apply(machine, tmp_path):
    rules = tmp_path / "monitor.json"
    rules.write_text(json.dumps({
        "plugin": "kmsg", "bufferSize": 10, "source": "site-monitor",
        "conditions": [{"type": "Broken", "reason": "NotBroken", "message": "fine"}],
        "rules": [{"type": "permanent", "condition": "Broken", "reason": "ItBroke", "pattern": "frob \\d+ broke"},
                  {"type": "temporary", "reason": "Blip", "pattern": "blip .*"}],
    }))  # fmt: skip
    machine.says("blip one", "frob 7 broke")
    (outcome,) = machine.judge(f"check_kmsg --npd-rules {rules}")
    assert (outcome.verdict, outcome.reason, outcome.evidence) == (Verdict.CRIT, "ItBroke", ("frob 7 broke",))
    rules.write_text("{}")
    (outcome,) = machine.judge(f"check_kmsg --npd-rules {rules}")
    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "BadArguments")
    assert str(rules) in outcome.message


def test_a_rule_file_for_another_log_is_applied_to_that_log(machine, tmp_path):
    rules = tmp_path / "docker-monitor.json"
    rules.write_text(json.dumps({
        "plugin": "journald", "pluginConfig": {"source": "dockerd"}, "source": "docker-monitor",
        "conditions": [{"type": "CorruptDockerOverlay2", "reason": "NoCorruption", "message": "fine"}],
        "rules": [{"type": "permanent", "condition": "CorruptDockerOverlay2", "reason": "CorruptDockerOverlay2",
                   "pattern": "returned error: readlink /var/lib/docker/overlay2.*: invalid argument.*"}],
    }))  # fmt: skip
    said = "returned error: readlink /var/lib/docker/overlay2/x: invalid argument"
    entries = [{"MESSAGE": text, "__CURSOR": "s=1", "_BOOT_ID": "boot1"} for text in (said, XID79)]
    machine.host.system.commands[("journalctl",)] = "".join(json.dumps(e) + "\n" for e in entries)
    machine.says(said, "nfs: server a not responding, still trying")
    outcomes = machine.judge(f"check_kmsg --npd-rules {rules}")
    assert [o.reason for o in outcomes if o.reason] == ["NfsServerNotResponding", "CorruptDockerOverlay2"]


# check_gpu_xid


def test_a_node_without_nvidia_is_skipped(machine):
    assert machine.judge("check_gpu_xid")[0].verdict is Verdict.SKIP


def test_a_gpu_that_is_gone_from_the_bus_is_still_reported(machine):
    machine.says(XID79)
    assert machine.judge("check_gpu_xid")[0].reason == "Xid79"


def test_only_nvidias_findings_count_for_it(machine):
    machine.says("Oops: 0000 [#1] SMP NOPTI", XID79)
    assert [o.reason for o in machine.judge("check_gpu_xid")] == ["Xid79"]
    assert len(machine.judge("check_kmsg")) == 2, "both checks read one log, once"


def test_hours_leave_out_what_was_old_when_it_was_first_read(machine):
    machine.host.system.kernel = [f"3,0,{int((machine.host.system.uptime - 3 * 3600) * 1e6)},-;{XID79}"]
    assert machine.judge("check_gpu_xid 2")[0].verdict is Verdict.SKIP
    assert machine.judge("check_gpu_xid 4")[0].verdict is Verdict.CRIT
    assert machine.judge("check_gpu_xid")[0].verdict is Verdict.CRIT


def test_a_fault_seen_in_time_does_not_fade_with_hours(machine):
    machine.says(XID79)
    machine.judge("check_gpu_xid 2")
    machine.host.system.now += 48 * 3600
    machine.host.system.uptime += 48 * 3600
    assert machine.judge("check_gpu_xid 2")[0].verdict is Verdict.CRIT


# The real kernel log


@pytest.mark.thorough
@pytest.mark.usefixtures("kernel_log_alone")
def test_a_fault_written_into_the_real_log_is_found_once_and_ends_with_its_drill(tmp_path):
    need("/dev/kmsg", os.geteuid() == 0 and os.access("/dev/kmsg", os.R_OK | os.W_OK), "it needs root")
    memory = State(str(tmp_path))
    name = f"test-{uuid.uuid4().hex[:12]}"

    def run():
        return [o for o in judge_all(Host(memory=memory), "check_kmsg --source kmsg") if o.target == name]

    assert run() == []
    kernel_ring.write(f"nfs: server {name} not responding, still trying nhc-drill", 4)
    try:
        (outcome,) = run()
        assert outcome.reason == "NfsServerNotResponding"
        assert outcome.message.startswith("drill: ")
        assert "1 lines" not in outcome.message
        assert [o.message for o in run()] == [outcome.message]
    finally:
        kernel_ring.write(f"nfs: server {name} OK nhc-drill", 4)
    assert run() == []


@pytest.mark.thorough
@pytest.mark.usefixtures("kernel_log_alone")
def test_two_processes_at_once_count_each_line_once(tmp_path):
    need("/dev/kmsg", os.geteuid() == 0 and os.access("/dev/kmsg", os.R_OK | os.W_OK), "it needs root")
    name = f"test-{uuid.uuid4().hex[:12]}"
    for _line in range(20):
        kernel_ring.write(f"nfs: server {name} not responding, still trying nhc-drill", 4)
    try:
        code = (
            "from nhc.core.host import Host; from nhc.core.state.store import State\n"
            "from nhc.node.kernlog.read import read_log; from nhc.node.kernlog.source import LogSource\n"
            "read_log(Host(memory=State()), LogSource('kmsg'))"
        )
        env = {**os.environ, "NHC_STATE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
        runs = [subprocess.Popen([sys.executable, "-c", code], env=env) for _process in range(4)]
        assert [process.wait(60) for process in runs] == [0] * 4
        held = State(str(tmp_path)).load(STORE)
        assert held["findings"][f"nfs/ServerNotResponding/{name}"]["count"] == 20
    finally:
        kernel_ring.write(f"nfs: server {name} OK nhc-drill", 4)


# Beside what NVML says


def with_gpu(machine, *, name="NVIDIA H100 80GB HBM3", remap=None, mig=None, recovery=None, fault=""):
    """The machine's GPU as its vendor's library describes it, in the next run."""
    device = Device(
        "nvidia",
        0,
        pci="0000:3b:00.0",
        name=name,
        fault=fault,
        recovery=recovery,
        row_remap=remap,
        modes=Modes(mig=mig),
    )
    machine.host.forget()
    machine.host.know(asked, Inventory(sources=(Source("nvidia", (device,)),)))
    outcomes = judge_all(machine.host, "check_kmsg")
    return outcomes[:-1] or outcomes


XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python, words"
CLEAN = RowRemap(pending=False, failed=False)


@pytest.mark.parametrize(
    ("name", "files", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", {"/sys/module/nvidia_uvm/refcnt": "0\n"}, Verdict.WARN),
        ("NVIDIA H100 80GB HBM3", {}, Verdict.WARN),
        ("NVIDIA H100 80GB HBM3", {"/sys/module/nvidia_uvm/refcnt": "4\n"}, Verdict.CRIT),
        ("NVIDIA H100 80GB HBM3", {"/sys/module/nvidia_uvm/holders/gdrdrv/refcnt": "1\n"}, Verdict.CRIT),
        ("NVIDIA GH200 480GB", {}, Verdict.CRIT),
        ("NVIDIA GB200", {"/sys/module/nvidia_uvm/refcnt": "0\n"}, Verdict.CRIT),
        ("", {"/sys/module/nvidia_uvm/refcnt": "4\n"}, Verdict.CRIT),
        ("", {}, Verdict.WARN),
    ],
)
def test_xid_159_resets_where_unified_memory_is_in_use(tmp_path, name, files, verdict):
    machine = Rebooted(tmp_path / "run")
    for path, text in files.items():
        machine.host.write(path, text)
    machine.says(XID.format(159))
    outcomes = with_gpu(machine, name=name) if name else judge_all(machine.host, "check_kmsg")
    assert (outcomes[0].verdict, outcomes[0].action) == (verdict, Action.RESET_DEVICE)


@pytest.mark.parametrize(
    ("code", "gpu", "expected"),
    [
        (63, {"remap": RowRemap(pending=True, failed=False)}, (Verdict.WARN, Action.RESET_DEVICE)),
        (63, {"remap": RowRemap(pending=False, failed=True)}, (Verdict.CRIT, Action.REPLACE)),
        (63, {"remap": CLEAN}, (Verdict.OK, Action.NONE)),
        (63, {"remap": None}, (Verdict.WARN, Action.RESET_DEVICE)),
        (64, {"remap": RowRemap(pending=False, failed=True)}, (Verdict.CRIT, Action.REPLACE)),
        (64, {"remap": None, "name": "NVIDIA A100-SXM4-80GB"}, (Verdict.CRIT, Action.REBOOT)),
        (95, {"name": "NVIDIA A100-SXM4-80GB", "mig": False}, (Verdict.CRIT, Action.REBOOT)),
        (95, {"name": "NVIDIA A100-SXM4-80GB", "mig": True}, (Verdict.CRIT, Action.RESET_DEVICE)),
        (95, {}, (Verdict.CRIT, Action.RESET_DEVICE)),
        (79, {"remap": CLEAN, "recovery": ""}, (Verdict.CRIT, Action.REBOOT)),
    ],
)
def test_an_xid_is_judged_beside_its_gpus_own_state(machine, code, gpu, expected):
    machine.says(XID.format(code))
    (outcome,) = with_gpu(machine, **gpu)
    assert (outcome.verdict, outcome.action) == expected


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        ({"recovery": "", "remap": CLEAN}, Verdict.WARN),
        ({"recovery": "reset the GPU"}, Verdict.CRIT),
        ({"recovery": None}, Verdict.CRIT),
        ({"recovery": "", "fault": "reset-required"}, Verdict.CRIT),
        ({"recovery": "", "remap": RowRemap(pending=True, failed=False)}, Verdict.CRIT),
    ],
)
@pytest.mark.parametrize("code", [48, 62, 95, 109, 119, 120, 140])
def test_nvml_that_names_no_repair_lowers_a_finding_and_never_ends_it(machine, code, gpu, verdict):
    """No reset was seen: what the GPU did once it may do again, and a person has to know of it."""
    machine.says(XID.format(code))
    assert with_gpu(machine, **gpu)[0].verdict is Verdict.CRIT, "not in the first minute"
    machine.host.system.now += 120
    machine.host.system.uptime += 120
    (outcome,) = with_gpu(machine, **gpu)
    assert (outcome.verdict, outcome.reason, outcome.action) == (verdict, f"Xid{code}", Action.RESET_DEVICE)
    assert with_gpu(machine)[0].verdict is verdict, "and it stays so while NVML tells nothing"
    assert with_gpu(machine, recovery="reset the GPU")[0].verdict is Verdict.CRIT, "until NVML asks for a reset"
    machine.says("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024")
    assert with_gpu(machine, **gpu)[0].verdict is Verdict.OK


def test_a_drill_is_not_ended_by_a_healthy_gpu(machine):
    machine.says(f"{XID.format(119)} nhc-drill")
    machine.host.system.now += 120
    machine.host.system.uptime += 120
    assert with_gpu(machine, recovery="", remap=CLEAN)[0].verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [({}, Verdict.OK), ({"fault": "lost"}, Verdict.CRIT), ({"recovery": "reset the GPU"}, Verdict.CRIT)],
)
def test_after_a_restart_the_gpu_itself_tells_whether_it_is_well(machine, gpu, verdict):
    machine.says(XID79)
    machine.judge()
    machine.host.write(BOOT_ID, "boot-2\n")
    machine.host.write("/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
    machine.host.system.kernel, machine.number = [], 0
    assert with_gpu(machine, **gpu)[0].verdict is verdict


class Rebooted(Machine):
    """A machine whose state is in a directory, as on /run, which a restart of the node empties."""

    def __init__(self, directory):
        super().__init__({"/sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n"})
        self.directory, self.boots = directory, 1
        self.enter(f"boot-{self.boots}")

    def enter(self, boot):
        self.host.memory = State(str(self.directory))
        self.host.write(BOOT_ID, f"{boot}\n")

    def lose_state(self):
        for path in self.directory.glob("*.json"):
            path.unlink()
        self.enter(f"boot-{self.boots}")

    def reboot(self):
        self.boots += 1
        self.host.system.kernel, self.number, self.host.system.uptime = [], 0, 300.0
        self.lose_state()

    def later(self, seconds):
        self.host.system.now += seconds
        self.host.system.uptime += seconds


@pytest.mark.thorough
def test_a_gpu_that_is_to_be_replaced_stays_so_across_restarts(tmp_path):
    machine = Rebooted(tmp_path / "run")
    for _time in range(5):
        machine.later(600)
        machine.says(XID.format(48))
        outcomes = with_gpu(machine, recovery="", remap=CLEAN)
    assert [(o.verdict, o.action) for o in outcomes] == [(Verdict.CRIT, Action.REPLACE)]
    for _restart in range(2):
        machine.reboot()
        (outcome,) = with_gpu(machine, recovery="", remap=CLEAN)
        assert (outcome.verdict, outcome.action, outcome.reason) == (Verdict.CRIT, Action.REPLACE, "Xid48")
        assert "before this boot" in outcome.message
    assert ack_command([f"xid/48/{'0000:3b:00.0'}"], memory=machine.host.memory, note="board changed") == 0
    machine.reboot()
    assert with_gpu(machine, recovery="", remap=CLEAN)[0].verdict is Verdict.OK


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gpu", "verdict"), [({}, Verdict.OK), ({"fault": "lost"}, Verdict.CRIT), ({"recovery": "reboot"}, Verdict.CRIT)]
)
def test_a_devices_fault_outlives_a_restart_that_clears_the_state_directory(tmp_path, gpu, verdict):
    machine = Rebooted(tmp_path / "run")
    machine.says(XID79, "Oops: 0000 [#1] SMP NOPTI")
    machine.judge()
    machine.reboot()
    assert with_gpu(machine, **gpu)[0].verdict is verdict
    machine.lose_state()
    assert with_gpu(machine, **gpu)[0].verdict is verdict, "and the loss of its state"


@pytest.mark.thorough
def test_a_gpu_that_could_not_be_asked_after_a_restart_is_asked_again(tmp_path):
    machine = Rebooted(tmp_path / "run")
    machine.says(XID79)
    machine.judge()
    machine.reboot()
    (outcome,) = machine.judge()  # no driver answers yet
    assert outcome.verdict is Verdict.CRIT
    assert with_gpu(machine)[0].verdict is Verdict.OK


@pytest.mark.thorough
def test_what_was_acknowledged_does_not_count_again_when_the_state_is_lost(tmp_path):
    machine = Rebooted(tmp_path / "run")
    machine.says(XID79, XID.format(95))
    machine.judge()
    assert ack_command(["xid/79/0000:3b:00.0"], memory=machine.host.memory) == 0
    machine.lose_state()
    assert [o.reason for o in machine.judge()] == ["Xid95"]
    machine.lose_state()
    machine.says(XID79)
    assert {o.reason for o in machine.judge()} == {"Xid79", "Xid95"}, "it came again"


def test_a_recorded_machine_replays_its_kernel_log(tmp_path):
    from nhc.node.hosts.recording import Replay

    (tmp_path / "root" / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "root" / BOOT_ID.lstrip("/")).write_text("boot-1\n")
    machine = {"format": 1, "name": "n", "hostname": "n", "time": 1_700_000_000.0, "monotonic": 1000.0}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    answers = [[["kernel_log", -1], {"value": ["6,0,1,-;usb 1-1: new device", f"3,1,2000000,-;{XID79}"]}],
               [["kernel_log", 1], {"value": []}]]  # fmt: skip
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    host = Replay(str(tmp_path)).host()
    for _run in range(2):
        host.forget()
        assert judge_all(host, "check_kmsg")[0].reason == "Xid79"
    (tmp_path / "answers.json").write_text("[]")
    assert judge(Replay(str(tmp_path)).host(), "check_kmsg --source kmsg").verdict is Verdict.UNKNOWN


def test_a_recording_with_a_damaged_record_is_judged_by_the_others(tmp_path):
    from nhc.node.hosts.recording import Replay

    (tmp_path / "root" / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "root" / BOOT_ID.lstrip("/")).write_text("boot-1\n")
    machine = {"format": 1, "name": "n", "hostname": "n", "time": 1_700_000_000.0, "monotonic": 1000.0}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    damaged = ["", "no record", "6,x,1,-;a", "3,1", f"3,1,2000000,-;{XID79}"]
    (tmp_path / "answers.json").write_text(json.dumps([[["kernel_log", -1], {"value": damaged}]]))
    assert judge(Replay(str(tmp_path)).host(), "check_kmsg").reason == "Xid79"


RULE = {
    "plugin": "kmsg", "source": "site", "conditions": [{"type": "DiskProblem", "reason": "fine", "message": "fine"}],
    "rules": [{"type": "permanent", "condition": "DiskProblem", "reason": "Disk_Is_Bad", "pattern": "my disk is bad"},
              {"type": "permanent", "condition": "DiskProblem", "reason": "disk:is-worse", "pattern": "far worse"}],
}  # fmt: skip


@pytest.mark.thorough
def test_reasons_of_others_hide_no_other_finding(tmp_path):
    """Neuron's codes have underscores, and a site's rules have reasons of its own: every finding is in the report."""
    (tmp_path / "rules.json").write_text(json.dumps(RULE))
    lines = ["NEURON_HW_ERR=DMA_ERROR nd-id=1", XID79, "my disk is bad", "now it is far worse"]
    (tmp_path / "dmesg").write_text("".join(f"[    {at}.000000] {line}\n" for at, line in enumerate(lines, 1)))
    config = tmp_path / "nhc.conf"
    check = f"check_kmsg --source dmesg={tmp_path / 'dmesg'} --npd-rules {tmp_path / 'rules.json'}"
    config.write_text(f"* || {check}\n")
    done = nhc("check", "local", "-c", config, "--all", "--format", "json", state=tmp_path / "state")
    results = {result["reason"]: result for result in json.loads(done.stdout)["results"] if result["reason"]}
    assert set(results) == {"NeuronHasError_DMA_ERROR", "Xid79", "Disk_Is_Bad", "DiskIsWorse"}
    assert {result["verdict"] for result in results.values()} == {"CRIT"}
    assert "disk:is-worse" in results["DiskIsWorse"]["message"]
    assert done.returncode == 1
