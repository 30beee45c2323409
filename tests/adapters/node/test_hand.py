"""The program on the node, as it is sent there: what it takes away, what it puts back, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Stage
from nhc_adapters.node.hand.journal import ENDED, RepairJournal
from nhc_adapters.node.hand.runs import NodeRuns
from nhc_adapters.node.repairer import NodeHand
from tests.support.gpu_node import BOOT, UUID, GpuNode, remove
from tests.support.waiting import until

pytestmark = pytest.mark.thorough  # each starts the command that repairs, and services that it stops

KEY = "6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"
PERSISTENCED = "nvidia-persistenced.service"
DCGM = "nvidia-dcgm.service"
MANAGER = "nvidia-fabricmanager.service"
MACHINE = Machine("n1", uuid=UUID)


@pytest.fixture
def node(tmp_path):
    return GpuNode(tmp_path / "node")


def hand(node, **settings):
    given = {"reach": "local", "root": str(node.root), "path": str(node.path), "wait": "1", **settings}
    return NodeHand(given, {}, 20.0)


def order(rung=Rung.RESET_DEVICE, device="gpu1", key=KEY, machine=MACHINE):
    return Order(key, "17", 1, machine, rung, "Xid 95", device if rung is Rung.RESET_DEVICE else "")


def ended(node, key=KEY):
    """The journal's entry once the repair has ended."""
    journal, until = RepairJournal(str(node.root)), time.monotonic() + 60
    while True:
        state = journal.load(key)
        if state is not None and state.phase == ENDED:
            return state
        assert time.monotonic() < until, (state, node.calls())
        time.sleep(0.02)


def repaired(node, repair=None, **settings):
    """Send an order and wait for its end."""
    repairer = hand(node, **settings)
    sent = repairer.send(repair or order())
    assert sent.answer is Answer.ACCEPTED, sent
    return ended(node)


# A GPU reset.


def test_a_reset_is_sent_once_for_one_gpu_and_services_come_back(node):
    node.gpus(8)
    node.switch()
    for unit in (PERSISTENCED, DCGM, MANAGER):
        node.unit(unit)
    node.unit("nvidia-dcgm-exporter.service", active="inactive")
    node.process(50, "nvidia-persiste", ["/dev/nvidia1", "/dev/nvidia2"], PERSISTENCED)
    node.process(51, "nv-hostengine", ["/dev/nvidiactl", "/dev/nvidia1"], DCGM)
    before = node.units()
    state = repaired(node)
    assert (state.outcome, dict(state.results), state.left) == ("done", {"gpu1": "reset"}, ())
    assert node.units() == before
    assert [row["persistence"] for row in node.gpu_rows()] == ["Enabled"] * 8
    assert node.changes() == [
        "nvidia-smi -i 00000000:19:00.0 -pm 0",
        f"systemctl stop {PERSISTENCED}",
        f"systemctl stop {DCGM}",
        "nvidia-smi --gpu-reset -i 00000000:19:00.0",
        f"systemctl start {DCGM}",
        f"systemctl start {PERSISTENCED}",
        "nvidia-smi -i 00000000:19:00.0 -pm 1",
    ]


def test_persistence_that_was_off_stays_off(node):
    node.gpus(2, persistence="Disabled")
    assert repaired(node).outcome == "done"
    assert node.changes() == ["nvidia-smi --gpu-reset -i 00000000:19:00.0"]


def test_what_would_start_a_service_again_is_stopped_before_it(node):
    node.gpus(2, persistence="Disabled")
    node.unit(PERSISTENCED, triggered_by="nvidia-persistenced.path")
    node.unit("nvidia-persistenced.path")
    assert repaired(node).outcome == "done"
    stopped = [line.split()[-1] for line in node.changes() if " stop " in line]
    started = [line.split()[-1] for line in node.changes() if " start " in line]
    assert stopped == ["nvidia-persistenced.path", PERSISTENCED] == started[::-1]


def test_a_reset_that_failed_puts_everything_back_and_says_what_the_driver_said(node):
    node.gpus(2)
    node.unit(DCGM)
    node.process(51, "nv-hostengine", ["/dev/nvidia1"], DCGM)
    node.note("refuse-reset", "In use by another client")
    state = repaired(node)
    assert (state.outcome, state.message) == ("failed", "gpu1: In use by another client")
    assert (node.units()[f"unit-{DCGM}"[5:]], state.left) == ("active", ())
    assert [row["persistence"] for row in node.gpu_rows()] == ["Enabled", "Enabled"]
    seen = hand(node).progress(order(), hand(node).send(order()), hand(node).look(MACHINE))
    assert (seen.stage, seen.message) == (Stage.FAILED, "gpu1: In use by another client")
    assert len([line for line in node.calls() if "--gpu-reset" in line]) == 1


def test_a_gpu_that_still_asks_for_a_reset_was_not_cured(node):
    node.gpus(2, recovery="GPU Reset Required")
    node.note("no-cure", "yes")
    state = repaired(node)
    assert (state.outcome, state.message) == ("failed", "gpu1 reset, but gpu1 still asks for: GPU Reset Required")


def test_a_service_that_does_not_start_again_is_a_failure_that_is_kept(node):
    node.gpus(2, persistence="Disabled")
    node.unit(PERSISTENCED)
    node.note("fail-systemctl-start", "Job for nvidia-persistenced.service failed.")
    state = repaired(node)
    assert state.outcome == "failed"
    assert "gpu1 reset; nvidia-persistenced.service was not put back" in state.message
    assert [one.name for one in state.left] == [PERSISTENCED]


def test_a_gpu_that_a_job_holds_is_refused_with_its_name_and_nothing_is_stopped(node):
    node.gpus(2)
    node.unit(PERSISTENCED)
    node.process(4242, "python3", ["/dev/nvidiactl", "/dev/nvidia1"])
    sent = hand(node).send(order())
    assert sent.answer is Answer.REFUSED
    assert sent.message == "gpu1 is held by python3 (pid 4242)"
    assert sent.retry_after > 0
    assert node.changes() == []


def test_a_job_on_another_gpu_does_not_hold_up_the_reset(node):
    node.gpus(2)
    node.process(4242, "python3", ["/dev/nvidiactl", "/dev/nvidia0"])
    assert repaired(node).outcome == "done"


def test_a_holder_that_comes_while_services_stop_ends_it_and_all_is_put_back(node):
    node.gpus(2)
    node.unit(DCGM)
    node.process(51, "nv-hostengine", ["/dev/nvidia1"], DCGM)
    remove(node.state / f"pid-{DCGM}")  # it does not end with its service
    state = repaired(node)
    assert state.outcome == "failed"
    assert state.message.startswith("still held after 1 s by nv-hostengine (pid 51")
    assert node.units()[DCGM] == "active"
    assert not [line for line in node.calls() if "--gpu-reset" in line]


@pytest.mark.parametrize(
    ("gpus", "device", "said"),
    [
        ({}, "gpu7", "gpu7: not among those that the driver lists (gpu0, gpu1); no reset reaches it"),
        ({"recovery": "Node Reboot Required"}, "gpu1", "gpu1: the driver asks for Node Reboot Required, a reset"),
        ({"recovery": "Reboot"}, "gpu1", "gpu1: the driver asks for Reboot, a reset is not enough"),
        ({"slices": 2}, "gpu1", "gpu1: MIG instances are there; a reset would destroy them"),
    ],
)
def test_what_a_reset_cannot_cure_is_refused_for_good(node, gpus, device, said):
    node.gpus(2, **gpus)
    sent = hand(node).send(order(device=device))
    assert (sent.answer, sent.retry_after) == (Answer.REFUSED, 0), sent
    assert said in sent.message
    assert node.changes() == []


def test_a_node_without_nvidia_smi_is_refused_in_one_line(node):
    node.gpus(2)
    remove(node.path / "nvidia-smi")
    sent = hand(node).send(order())
    assert (sent.answer, sent.message) == (Answer.REFUSED, "nvidia-smi is not installed")


def test_a_state_directory_that_is_a_file_is_refused_before_anything(node):
    node.gpus(2)
    node.write("/var/lib/nhc", "a file")
    sent = hand(node).send(order())
    assert sent.answer is Answer.REFUSED
    assert "/var/lib/nhc" in sent.message
    assert node.changes() == []


# Operands of the GPU Operator.


def test_the_operators_labels_are_changed_and_restored_exactly(node):
    node.gpus(2, persistence="Disabled")
    deploy = "nvidia.com/gpu.deploy."
    labels = {deploy + "dcgm": "true", deploy + "device-plugin": "true", deploy + "dcgm-exporter": "false", "x": "y"}
    node.note("labels", json.dumps(labels))
    node.process(60, "nv-hostengine", ["/dev/nvidia1"], deploy + "dcgm", pod=True)
    state = repaired(node, kubeconfig="/etc/kubernetes/kubelet.conf", wait="20")
    assert (state.outcome, state.message) == ("done", "gpu1 reset")
    assert json.loads((node.state / "labels").read_text()) == labels
    changed = [line.split()[-1] for line in node.changes() if line.startswith("kubectl")]
    assert changed == [
        f"{deploy}device-plugin=false",
        f"{deploy}dcgm=false",
        f"{deploy}dcgm=true",
        f"{deploy}device-plugin=true",
    ]


def test_a_pod_is_not_touched_where_no_label_may_be_changed(node):
    node.gpus(2)
    node.process(60, "python3", ["/dev/nvidia1"], pod=True)
    sent = hand(node).send(order())
    assert (sent.answer, sent.message) == (Answer.REFUSED, "gpu1 is held by python3 (pid 60)")


# Killed, lost, repeated.


def killed(node):
    """A repair that was killed in the middle of the reset."""
    node.gpus(2)
    node.unit(PERSISTENCED)
    node.note("gate", "")
    argv = [sys.executable, "-m", "nhc_adapters.node.hand", "--root", str(node.root), "--path", str(node.path),
            "--wait", "start", json.dumps(hand(node)._asked(order()))]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not any("--gpu-reset" in line for line in node.calls()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def test_a_killed_repair_is_seen_and_completed_by_putting_back(node):
    process = killed(node)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    remove(node.state / "gate")
    assert node.units()[PERSISTENCED] == "inactive"
    repairer = hand(node)
    seen = repairer.progress(order(), None, None)
    assert seen.stage is Stage.HALFWAY, seen
    assert node.units()[PERSISTENCED] == "inactive", "progress asks only"
    assert repairer.complete(order(), None).answer is Answer.ACCEPTED
    assert repairer.complete(order(), None).answer is Answer.ACCEPTED
    seen = repairer.progress(order(), None, None)
    assert seen.stage is Stage.FAILED
    assert "killed" in seen.message
    assert node.units()[PERSISTENCED] == "active"
    assert [row["persistence"] for row in node.gpu_rows()] == ["Enabled", "Enabled"]
    assert len([line for line in node.calls() if "--gpu-reset" in line]) == 1


def test_the_next_repair_puts_back_what_a_killed_one_left(node):
    process = killed(node)
    process.kill()
    process.communicate()
    remove(node.state / "gate")
    other = "0b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"
    assert hand(node).send(order(key=other)).answer is Answer.ACCEPTED
    assert ended(node, other).outcome == "done"
    assert (ended(node).outcome, ended(node).left) == ("failed", ())
    assert node.units()[PERSISTENCED] == "active"


def test_after_another_boot_services_of_the_old_one_are_left_alone(node):
    process = killed(node)
    process.kill()
    process.communicate()
    remove(node.state / "gate")
    node.write("/proc/sys/kernel/random/boot_id", "another-boot")
    before = len(node.changes())
    assert hand(node).complete(order(), None).answer is Answer.ACCEPTED
    assert node.changes()[before:] == []
    assert ended(node).left == ()


def test_a_signal_ends_a_repair_and_everything_is_put_back(node):
    process = killed(node)
    process.send_signal(signal.SIGTERM)
    remove(node.state / "gate")
    shown = json.loads(process.communicate(timeout=60)[0])
    assert shown["stage"] == "failed", shown
    assert "SIGTERM" in shown["message"]
    assert node.units()[PERSISTENCED] == "active"
    assert [row["persistence"] for row in node.gpu_rows()] == ["Enabled", "Enabled"]


def test_a_second_repair_waits_for_the_first(node):
    node.gpus(2)
    node.note("gate", "")
    assert hand(node).send(order()).answer is Answer.ACCEPTED
    second = hand(node).send(order(device="gpu0", key="0b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"))
    assert (second.answer, second.message) == (Answer.REFUSED, "another repair runs on this node")
    assert second.retry_after > 0
    assert hand(node).send(order()).answer is Answer.ACCEPTED
    remove(node.state / "gate")
    assert ended(node).outcome == "done"
    assert len([line for line in node.calls() if "--gpu-reset" in line]) == 1


# Other repairs.


def test_a_driver_is_loaded_anew_with_what_was_loaded(node):
    node.gpus(2)
    for unit in (PERSISTENCED, MANAGER):
        node.unit(unit)
    state = repaired(node, order(Rung.RELOAD_DRIVER))
    assert (state.outcome, state.message) == ("done", "the driver is loaded anew, gpu0, gpu1 answers")
    assert node.calls("modprobe") == ["modprobe -r nvidia_uvm nvidia", "modprobe nvidia", "modprobe nvidia_uvm"]
    assert set(node.units().values()) == {"active"}


def test_a_driver_in_use_is_left_loaded(node):
    node.gpus(2)
    node.write("/proc/modules", "nvidia_drm 100 2 - Live 0x0\nnvidia 9000 1 nvidia_drm, Live 0x0")
    state = repaired(node, order(Rung.RELOAD_DRIVER))
    assert (state.outcome, state.message) == ("failed", "module nvidia_drm is in use (2 references)")
    assert node.calls("modprobe") == []


def test_a_driver_that_other_modules_use_is_refused(node):
    node.gpus(2)
    node.write("/proc/modules", "nvidia 9000 1 nvidia_fs, Live 0x0")
    sent = hand(node).send(order(Rung.RELOAD_DRIVER))
    assert (sent.answer, sent.message) == (Answer.REFUSED, "nvidia_fs uses the driver")


def test_neuron_is_reset_by_its_driver(node):
    node.write("/proc/modules", "neuron 9000 0 - Live 0x0")
    node.write("/dev/neuron0", "")
    node.write("/dev/neuron1", "")
    state = repaired(node, order(device="neuron1"))
    assert (state.outcome, state.message) == ("done", "the driver is loaded anew, 2 devices")
    assert node.changes() == ["modprobe -r neuron", "modprobe neuron"]


def test_an_xgmi_hive_is_reset_as_one_and_each_gpu_is_read(node):
    node.amd(3, hive="0x123456")
    node.note("refuse-reset", "2")
    state = repaired(node)
    assert node.calls("amd-smi") == ["amd-smi reset --gpureset -g 0 1 2"]
    assert (state.outcome, state.message) == ("failed", "gpu2: Failed to reset GPU")
    assert dict(state.results) == {"gpu0": "reset", "gpu1": "reset", "gpu2": "Failed to reset GPU"}


def test_services_are_started_again_and_seen_to_run_anew(node):
    node.unit("trainer.service")
    state = repaired(node, order(Rung.RESTART_APP), services="trainer.service")
    assert (state.outcome, state.message) == ("done", "trainer.service started again")
    sent = hand(node, services="absent.service").send(order(Rung.RESTART_APP, key="0" * 36))
    assert (sent.answer, sent.message) == (Answer.REFUSED, "this node has no absent.service")


def test_a_reboot_is_done_when_the_boot_id_is_another(node):
    repairer = hand(node)
    before = repairer.look(MACHINE)
    sent = repairer.send(order(Rung.REBOOT))
    until = time.monotonic() + 60
    while not node.calls("systemctl"):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert repairer.progress(order(Rung.REBOOT), sent, before).stage is Stage.WORKING
    node.write("/proc/sys/kernel/random/boot_id", "another-boot")
    assert repairer.progress(order(Rung.REBOOT), sent, before).stage is Stage.DONE
    assert node.calls("systemctl") == ["systemctl reboot"]


# Settings, evidence.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"services": "--now.service"}, "services: "),
        ({"reach": "telnet"}, "reach: "),
        ({"wait": "soon"}, "wait: "),
        ({"port": "ssh"}, "port: "),
    ],
)
def test_a_setting_of_no_sense_is_named(settings, said):
    with pytest.raises(AdapterError, match=said):
        NodeHand(settings, {})


def test_evidence_is_what_the_node_says(node):
    node.gpus(2)
    (node.path / "amd-smi").unlink()
    found = {one.name: one for one in hand(node).evidence(MACHINE, EvidenceBudget(100_000, 60.0))}
    assert found["kernel.txt"].content == b"what journalctl says\n"
    assert found["nvidia-smi.txt"].content == b"Attached GPUs : 2\n"
    assert found["nvidia-bug-report.log.gz"].content.startswith(b"\x1f\x8b")
    assert "amd-smi.txt" not in found
    assert not list((node.root / "var/lib/nhc/repairs").glob("evidence-*"))


def test_the_log_of_the_node_says_who_and_why(node):
    node.gpus(2)
    repaired(node)
    until = time.monotonic() + 60
    while len(node.calls("logger")) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    began, done = node.calls("logger")
    assert "repair reset-device gpu1 begins: Xid 95" in began
    assert KEY in began
    assert "ended: gpu1 reset" in done


def test_a_machine_without_a_uuid_is_told_by_its_boot(node):
    node.gpus(2)
    assert hand(node).send(order(machine=Machine("n1", boot_id="other"))).answer is Answer.REFUSED
    assert hand(node).send(order(machine=Machine("n1", boot_id=BOOT))).answer is Answer.ACCEPTED
    assert ended(node).outcome == "done"


# A program of the site's own.


def over(node, key=KEY):
    runs = NodeRuns(str(node.root))
    until(lambda: (runs.state(key) or (None,))[0], within=60, what="end of the command")


def test_a_command_runs_once_and_its_exit_status_is_told(node, tmp_path):
    trace = tmp_path / "trace"
    program = tmp_path / "flash"
    program.write_text(f"#!/bin/sh\necho begun $1 >> {trace}\necho flashed 8 of 8\nexit $1\n")
    program.chmod(0o755)
    repairer = hand(node)
    before = repairer.look(MACHINE)
    asked = order(Rung.REBOOT)
    sent = repairer.run_command(asked, [str(program), "0"], 20.0)
    assert sent.answer is Answer.ACCEPTED, sent
    over(node)
    assert repairer.run_command(asked, [str(program), "0"], 20.0).answer is Answer.ACCEPTED  # the same key
    assert trace.read_text() == "begun 0\n"
    done = repairer.progress(asked, sent, before)
    assert (done.stage, done.message) == (Stage.DONE, "it ended with 0: flashed 8 of 8")
    bad = order(Rung.REBOOT, key="7b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a")
    repairer.run_command(bad, [str(program), "3"], 20.0)
    over(node, bad.key)
    assert repairer.progress(bad, sent, before).stage is Stage.FAILED
    assert "systemctl reboot" not in node.calls()


def test_a_command_that_does_not_end_is_killed_and_failed(node, tmp_path):
    program = tmp_path / "sleeps"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    repairer = hand(node)
    sent = repairer.run_command(order(Rung.REBOOT), [str(program)], 0.5)
    over(node)
    done = repairer.progress(order(Rung.REBOOT), sent, repairer.look(MACHINE))
    assert (done.stage, "past its limit of 0.5 s" in done.message) == (Stage.FAILED, True)


def test_a_command_on_another_machine_is_refused(node):
    other = Machine("n1", uuid="11111111-2222-3333-4444-555555555555")
    sent = hand(node).run_command(order(Rung.REBOOT, machine=other), ["/bin/true"], 5.0)
    assert (sent.answer, "UUID" in sent.message) == (Answer.REFUSED, True)
