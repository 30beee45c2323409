"""Findings: what stands, what ends one, what repeats make of an application's fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.kernlog.collect import COMPANION, KEPT, take_in
from nhc.node.kernlog.findings import current, end, enter_boot
from nhc.node.kernlog.programs import origin

NOW = 1_700_000_000.0
HOUR = 3600.0
XID = "NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name={name}, {words}"


def xid(code, bus="3b", words="words", name="python", pid=0):
    return XID.format(code=code, bus=bus, words=words, name=name, pid=pid or 1000 + sum(name.encode()))


BANNER = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"
NONE = xid(154, words="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


def log(*said, state=None):
    """The state after messages, each a text or a (text, time)."""
    state = {} if state is None else state
    take_in(state, [(entry, NOW) if isinstance(entry, str) else entry for entry in said], NOW)
    return state


def standing(state):
    return {key: (finding["severity"], finding["action"]) for key, finding in current(state)}


def test_a_fatal_line_stands_however_long_ago_it_was():
    state = log((xid(79), NOW - 30 * 24 * HOUR))
    log("nothing", state=state)
    assert standing(state) == {"xid/79/0000:3b:00.0": ("fatal", "reboot")}


@pytest.mark.thorough
def test_a_burst_is_one_finding_with_a_count():
    state = log(*[(xid(95), NOW + index / 1000) for index in range(20_000)])
    findings = current(state)
    assert len(findings) == 1
    assert findings[0][1]["count"] == 20_000
    assert len(str(state)) < 4000


def test_different_errors_are_bounded_too():
    state = log(*[xid(95, words=f"{index}") + "" for index in range(5)])
    assert len(current(state)) == 1
    state = log(*[f"nfs: server host{index} not responding, still trying" for index in range(KEPT + 50)])
    assert len(current(state)) == KEPT
    assert state["more"] == 50


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_one_crash_of_an_application_is_no_finding(code):
    words = "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 1): Out Of Range Address"
    state = log(*[(xid(code, words=words), NOW + index) for index in range(60)])
    assert standing(state) == {}
    assert state["seen"]["app"] == 60


def test_repeats_on_one_gpu_take_the_node_out():
    state = log((xid(31), NOW), (xid(31), NOW + HOUR))
    assert standing(state) == {}
    log((xid(31), NOW + 2 * HOUR), state=state)
    assert standing(state) == {"xid/31/0000:3b:00.0": ("degraded", "inspect")}, "one program alone: it can be its own"
    assert "3 times within 24h; run diagnostics" in current(state)[0][1]["message"]
    log((xid(31, name="train.x"), NOW + 3 * HOUR), state=state)
    assert standing(state) == {"xid/31/0000:3b:00.0": ("degraded", "inspect")}, "one crash of another can be chance"
    log((xid(31, name="train.x"), NOW + 3.5 * HOUR), state=state)
    assert standing(state) == {"xid/31/0000:3b:00.0": ("fatal", "inspect")}
    assert "2 different programs" in current(state)[0][1]["message"]
    log((xid(31, "5e"), NOW + 4 * HOUR), state=state)
    assert standing(state) == {"xid/31/0000:3b:00.0": ("degraded", "inspect")}, "another device has it too"


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_a_crash_loop_never_takes_the_node_out(code):
    words = "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 1): Out Of Range Address"
    state = log(*[(xid(code, words=words), NOW + index * 600) for index in range(140)])
    assert standing(state) == {f"xid/{code}/0000:3b:00.0": ("degraded", "inspect")}


NAMES = [("python3", "pt_main_thread"), ("VLLM::EngineCor", "VLLM::Worker_TP"), ("ray::train", "python")]


@pytest.mark.parametrize("code", [13, 31, 43, 45])
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_the_threads_of_one_program_are_one_program(code, names):
    """comm is a thread's: a pod that crashes and is started again has other numbers and other names each time."""
    words = "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 1): Out Of Range Address"
    crashes = [(xid(code, words=words, name=names[at % 2], pid=100 + at), NOW + at * 1800) for at in range(24)]
    assert standing(log(*crashes)) == {f"xid/{code}/0000:3b:00.0": ("degraded", "inspect")}


def test_one_process_and_one_crash_are_one_program():
    of_one_process = [(xid(31, name=f"worker{at % 2}", pid=100 + at // 2), NOW + at * 1800) for at in range(12)]
    assert standing(log(*of_one_process)) == {"xid/31/0000:3b:00.0": ("degraded", "inspect")}
    of_one_crash = [(xid(31, name=f"rank{at % 4}", pid=100 + at), NOW + at // 4 * 1800 + at % 4) for at in range(24)]
    assert standing(log(*of_one_crash)) == {"xid/31/0000:3b:00.0": ("degraded", "inspect")}


POD = "0::/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{}.scope\n"
UID = "1f3c2b1a_0d9e_4c55_8a11_3b2f9d0e77c{}"


@pytest.mark.parametrize(
    ("groups", "severity"),
    [
        ([POD.format(UID.format(1), "a"), POD.format(UID.format(1), "b")], "degraded"),
        (["0::/system.slice/slurmstepd.scope/job_77/step_0\n", "0::/system.slice/slurmstepd.scope/job_77/step_1\n"],
         "degraded"),
        ([POD.format(UID.format(1), "a"), POD.format(UID.format(2), "b")], "fatal"),
    ],
)  # fmt: skip
def test_programs_of_one_pod_or_job_are_one(groups, severity):
    host = FakeHost({f"/proc/{100 + at}/cgroup": groups[at % 2] for at in range(8)})
    state = {}
    for at in range(8):
        line = xid(31, name=("mixer", "solver")[at % 2], pid=100 + at)
        take_in(state, [(line, NOW + at * 1800)], NOW + at * 1800 + 1, look=origin(host))
    assert standing(state)["xid/31/0000:3b:00.0"] == (severity, "inspect")


def test_an_xid_45_that_names_its_cause_is_information():
    state = log(*[(xid(45, words="Ch 00000008 caused by previous Xid 31"), NOW + index * HOUR) for index in range(9)])
    assert standing(state) == {}
    assert state["seen"] == {"info": 9}


def test_repeats_outside_the_window_do_not():
    assert standing(log(*[(xid(31), NOW + index * 13 * HOUR) for index in range(6)])) == {}


def test_repeats_on_several_gpus_are_the_applications():
    both = [(xid(31, bus), NOW + index * HOUR) for index in range(4) for bus in ("3b", "5e")]
    state = log(*both[:5])
    assert standing(state) == {}
    state = log(*both)
    assert "xid/31/0000:5e:00.0" not in standing(state)


def test_xid_13_counts_by_the_unit_of_the_gpu():
    words = "Graphics SM Warp Exception on (GPC {}, TPC 2, SM 1): Out Of Range Address"
    state = log((xid(13, words=words.format(1)), NOW), (xid(13, words=words.format(3)), NOW + HOUR))
    assert standing(state) == {}
    log((xid(13, words=words.format(1), name="b"), NOW + 2 * HOUR), state=state)
    assert standing(state) == {"xid/13/0000:3b:00.0": ("fatal", "inspect")}


def test_a_fault_that_comes_back_after_its_repair_asks_for_more():
    state = log((xid(119), NOW))
    assert standing(state) == {"xid/119/0000:3b:00.0": ("fatal", "reset-device")}
    end(state, *current(state)[0])
    log((xid(119), NOW + HOUR), state=state)
    assert standing(state) == {"xid/119/0000:3b:00.0": ("fatal", "reboot")}


@pytest.mark.parametrize(
    ("code", "gap", "lines", "action"),
    [(119, 6, 150, "reset-device"), (120, 179, 100, "reset-device"), (79, 6, 150, "reboot"),
     (95, 170, 200, "reset-device"), (119, 500, 60, "reset-device"), (48, 540, 50, "reset-device"),
     (119, 4 * HOUR, 4, "reset-device")],
)  # fmt: skip
def test_one_fault_that_goes_on_asks_for_no_more_than_it_did_first(code, gap, lines, action):
    """A node that waits for its job must not climb by waiting."""
    state = log(*[(xid(code), NOW + at * gap) for at in range(lines)])
    assert standing(state) == {f"xid/{code}/0000:3b:00.0": ("fatal", action)}


@given(st.lists(st.floats(0, 180), max_size=60), st.sampled_from([(119, "reset-device"), (95, "reset-device")]))
def test_no_silence_shorter_than_a_burst_makes_two_of_one_fault(gaps, of):
    code, action = of
    times = [NOW + sum(gaps[:at]) for at in range(len(gaps) + 1)]
    assert standing(log(*[(xid(code), when) for when in times])) == {f"xid/{code}/0000:3b:00.0": ("fatal", action)}


@pytest.mark.parametrize("code", [119, 120])
def test_a_storm_after_a_repair_is_a_second_fault(code):
    state = log(*[(xid(code), NOW + at * 6) for at in range(50)], (NONE, NOW + 600))
    assert standing(state) == {}
    log(*[(xid(code), NOW + HOUR + at * 6) for at in range(50)], state=state)
    assert standing(state) == {f"xid/{code}/0000:3b:00.0": ("fatal", "reboot")}


def test_storms_with_repairs_between_them_go_to_replacement():
    state = {}
    for storm in range(5):
        log(
            *[(xid(119), NOW + storm * HOUR + at * 6) for at in range(20)],
            (BANNER, NOW + storm * HOUR + 600),
            state=state,
        )
    log((xid(119), NOW + 5 * HOUR), state=state)
    assert standing(state) == {"xid/119/0000:3b:00.0": ("fatal", "replace")}


@pytest.mark.parametrize(
    ("line", "gap", "lines", "verdict"),
    [
        ("watchdog: BUG: soft lockup - CPU#7 stuck for {at}s! [exe:31311]", 22, 12, ("fatal", "reboot")),
        ("watchdog: BUG: soft lockup - CPU#7 stuck for 2{at}s! [exe:31311]", 1, 6, ("degraded", "inspect")),
        ("nvme nvme0: I/O {at} QID 2 timeout, aborting", 30, 12, ("fatal", "inspect")),
        ("nvme nvme0: I/O {at} QID 2 timeout, aborting", 0.01, 50, ("degraded", "inspect")),
        ("critical medium error, dev sda, sector {at}00", 20, 60, ("degraded", "replace")),
        ("critical medium error, dev sda, sector {at}00", 120, 5, ("fatal", "replace")),
    ],
)  # fmt: skip
def test_faults_that_are_told_as_long_as_they_last_count_by_their_length(line, gap, lines, verdict):
    state = log(*[(line.format(at=at), NOW + at * gap) for at in range(lines)])
    assert list(standing(state).values()) == [verdict]


def test_five_fatal_errors_in_a_day_go_to_replacement():
    state = log(*[(xid(95), NOW + index * HOUR) for index in range(5)])
    assert standing(state) == {"xid/95/0000:3b:00.0": ("fatal", "replace")}


def test_xid_45_is_the_clean_up_after_another_one():
    state = log((xid(48), NOW), (xid(45), NOW + 1), (xid(45, bus="5e"), NOW + 1), (xid(45), NOW + COMPANION + 1))
    assert state["seen"] == {"fatal": 1, "info": 1, "app": 2}


def test_xid_154_names_the_repair_of_its_gpus_other_xids():
    words = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    state = log(xid(48), xid(48, bus="5e"), xid(154, words=words))
    assert standing(state)["xid/48/0000:3b:00.0"] == ("fatal", "reboot")
    assert standing(state)["xid/48/0000:5e:00.0"] == ("fatal", "reset-device")


@pytest.mark.parametrize(
    ("fault", "repair"),
    [
        (xid(48), xid(154, words="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")),
        (xid(79), "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
         "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"),
        ("nfs: server nfs01 not responding, still trying", "nfs: server nfs01 OK"),
        ("mlx5_core 0000:5e:00.0 eth2: Link down", "mlx5_core 0000:5e:00.0 eth2: Link up"),
        ("mlx5_core 0000:5e:00.0: poll_health:1: device's health compromised - reached miss count",
         "mlx5_core 0000:5e:00.0: mlx5_health_try_recover:337:(pid 8): health recovery succeeded"),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", "md: md0: recovery done."),
        ("amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
         "amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) succeeded!"),
        ("Lustre: lfs-OST0001-osc-ff: Connection to lfs-OST0001 (at 10.0.0.2@o2ib) was lost; in progress operations",
         "Lustre: lfs-OST0001-osc-ff: Connection restored to lfs-OST0001 (at 10.0.0.2@o2ib)"),
        ("nvme nvme0: I/O 1 QID 2 timeout, reset controller", "nvme nvme0: 8/0/0 default/read/poll queues"),
    ],
)  # fmt: skip
def test_a_finding_ends_when_the_log_shows_its_cause_gone(fault, repair):
    state = log((fault, NOW))
    assert standing(state)
    log((repair, NOW + 10), state=state)
    assert standing(state) == {}
    log((fault, NOW + 20), state=state)
    assert standing(state), "and stands again when it comes again"


def test_a_repair_of_one_device_leaves_the_others():
    state = log("nfs: server nfs01 not responding, still trying", "nfs: server nfs02 OK")
    assert list(standing(state)) == ["nfs/ServerNotResponding/nfs01"]


@pytest.mark.parametrize(("clean", "left"), [(True, 0), (False, 1), (None, 1)])
def test_a_restart_ends_a_devices_finding_only_if_the_device_is_clean(clean, left):
    state = {"boot": "one"}
    log(xid(79), "Oops: 0000 [#1] SMP NOPTI", state=state)
    enter_boot(state, "one", lambda finding: True)
    assert len(current(state)) == 2, "the same boot ends nothing"
    enter_boot(state, "two", lambda finding: clean)
    assert len(current(state)) == left
    assert state["cursor"] is None


def test_an_end_is_refused_when_the_fault_came_again():
    state = log(xid(79))
    key, seen = current(state)[0]
    seen = dict(seen)
    log(xid(79), state=state)
    assert not end(state, key, seen)
    assert standing(state)


def test_drills_are_marked_end_together_and_spare_the_true():
    state = log(f"{xid(79)} nhc-drill", f"{xid(79, bus='5e')} nhc-drill", xid(79, bus="5e"))
    assert [finding.get("drill") for _key, finding in current(state)] == [True, None]
    log(f"{xid(79, bus='5e')} nhc-drill", "nhc: drill over: nhc-drill ended", state=state)
    assert list(standing(state)) == ["xid/79/0000:5e:00.0"], "a drill of a true fault leaves the true one"


def test_drills_do_not_count_as_repeats_of_the_true():
    state = log(*[(f"{xid(31)} nhc-drill", NOW + index * HOUR) for index in range(2)], (xid(31), NOW + 3 * HOUR))
    assert standing(state) == {}


LINES = st.sampled_from(
    [xid(79), xid(31), xid(45),
     xid(154, words="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
     "nfs: server a not responding, still trying", "nfs: server a OK", "usb 1-1: new device", "Oops: 0000 [#1] SMP"]
)  # fmt: skip


@given(
    st.lists(st.tuples(LINES, st.floats(0, 5 * 24 * HOUR).map(lambda at: NOW + at)), max_size=30), st.integers(0, 30)
)
def test_it_does_not_matter_where_one_run_ends_and_the_next_begins(said, cut):
    whole, parts = {}, {}
    take_in(whole, said, NOW)
    take_in(parts, said[:cut], NOW)
    take_in(parts, said[cut:], NOW)
    assert standing(whole) == standing(parts)
    assert {k: f["count"] for k, f in current(whole)} == {k: f["count"] for k, f in current(parts)}


PROBE = "nvidia: probe of 0000:3b:00.0 failed with error -1"


def test_a_banner_does_not_end_the_probe_failures_of_its_own_load():
    """The driver probes its devices, says what failed, and then says that it is loaded: in one second."""
    state = log((PROBE, NOW), (BANNER, NOW + 0.4))
    assert list(standing(state)) == ["nvrm/ProbeFailed/0000:3b:00.0"]
    log((BANNER, NOW + 60), state=state)
    assert standing(state) == {}, "a later load went well"


@pytest.mark.parametrize(
    ("faults", "repair", "key"),
    [
        ([xid(95)] * 5, BANNER, "xid/95/0000:3b:00.0"),
        ([xid(95)] * 5, NONE, "xid/95/0000:3b:00.0"),
        (["amdgpu 0000:c3:00.0: amdgpu: Saved bad pages(128) reaches threshold value(128)."],
         "amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) succeeded!", "amdgpu/BadPageThreshold/0000:c3:00.0"),
    ],
)  # fmt: skip
def test_no_reset_ends_what_asks_for_new_hardware(faults, repair, key):
    state = log(*[(fault, NOW + number * HOUR) for number, fault in enumerate(faults)])
    assert standing(state)[key] == ("fatal", "replace")
    log((repair, NOW + 6 * HOUR), state=state)
    assert standing(state) == {key: ("fatal", "replace")}
    enter_boot(state, "boot-1", lambda finding: None)
    enter_boot(state, "boot-2", lambda finding: True)
    held = {key: ("fatal", "replace")} if key.startswith("xid/") else {}
    assert standing(state) == held, "found clean after a restart, which ends no recurrence"


STALLS = (
    "rcu: INFO: rcu_sched self-detected stall on CPU { 12} (t={} jiffies g=8727 c=8726 q=223)",
    "rcu: (detected by 3, t={} jiffies, g=8765, q=1234 ncpus=64)", "(t={} jiffies g=8765 q=12)",
    "rcu: rcu_preempt kthread starved for {} jiffies! g1234 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=7",
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-...D } {} jiffies s: 3553 root: 0x8/.",
)  # fmt: skip


@pytest.mark.parametrize("line", STALLS)
@given(st.integers(1, 10**10))
def test_a_stall_of_a_hundred_seconds_takes_the_node_out(line, jiffies):
    """A second has 100 to 1000 jiffies: by the least, 100,000 are 100 s."""
    found = standing(log("rcu: INFO: rcu_sched self-detected stall on CPU", line.replace("{}", str(jiffies))))
    assert found == {"lockup/RcuStall/": ("fatal", "reboot") if jiffies >= 100_000 else ("degraded", "inspect")}


@pytest.mark.parametrize(
    ("line", "short", "long"),
    [
        ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for {}s!", 31, 123),
        ("smp: csd: CSD lock (#1) unresponsive for {} ns for CPU#00 0xffff(0x0).", 5_000_000_001, 105_000_000_048),
        ("watchdog: BUG: soft lockup - CPU#7 stuck for {}s! [exe:31311]", 23, 105),
    ],
)
def test_every_stall_counts_by_its_length(line, short, long):
    assert list(standing(log(line.format(short))).values()) == [("degraded", "inspect")]
    assert list(standing(log(line.format(long))).values()) == [("fatal", "reboot")]


def test_a_stall_that_is_told_again_and_again_takes_the_node_out():
    told = "rcu: INFO: rcu_sched self-detected stall on CPU"
    assert standing(log((told, NOW), (told, NOW + 63)))["lockup/RcuStall/"] == ("degraded", "inspect")
    assert standing(log((told, NOW), (told, NOW + 63), (told, NOW + 126)))["lockup/RcuStall/"] == ("fatal", "reboot")


MLX5 = "mlx5_core 0000:5e:00.0: "


@pytest.mark.parametrize(
    ("lines", "actions"),
    [
        ([xid(48), "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)"], {"reboot"}),
        ([xid(48), "NVRM: GPU at PCI:0000:5e:00.0 has fallen off the bus."], {"reset-device", "reboot"}),
        ([f"{MLX5}synd 0x1: firmware internal error",
          "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error message received from 0000:5e:00.0"], {"reboot"}),
        (["amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
          "amdgpu 0000:c3:00.0: amdgpu: Saved bad pages(128) reaches threshold value(128)."], {"replace"}),
        ([xid(31), xid(48)], {"reset-device"}),
        ([f"{MLX5}health recovery failed"], {"reboot"}),
        (["amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
          "amdgpu 0000:c3:00.0: amdgpu: Ring gfx_0.0.0 reset failed"], {"reset-device"}),
        (["neuron 0000:5e:00.0: NEURON_HW_ERR=DMA_ERROR action=RESET nd-id=3 nc-id=1",
          "NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR action=REPLACE nd-id=3"], {"replace"}),
    ],
)  # fmt: skip
def test_a_device_gets_the_hardest_repair_that_any_of_its_faults_asks_for(lines, actions):
    for said in (lines, lines[::-1]):
        assert {action for severity, action in standing(log(*said)).values() if severity == "fatal"} == actions


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("synd 0x8: unrecoverable hardware error", ("fatal", "reboot")),
        ("Health issue observed, unrecoverable hardware error, severity(3) ERROR:", ("fatal", "reboot")),
        ("Health issue observed, HW fatal error, severity(2) CRITICAL:", ("fatal", "reboot")),
        ("synd 0xa: ICM fetch PCI error", ("fatal", "reboot")),
        ("synd 0x9: firmware CRC error", ("fatal", "reboot")),
        ("synd 0x11: ICM fetch PCI data poisoned error", ("fatal", "reboot")),
        ("synd 0x1: firmware internal error", ("fatal", "reload-driver")),
        ("synd 0xd: EQ error", ("fatal", "reload-driver")),
        ("Health issue observed, firmware internal error, severity(3) ERROR:", ("fatal", "reload-driver")),
        ("Health issue observed, unrecoverable hardware error, severity(4) WARNING:", ("degraded", "inspect")),
        ("Health issue observed, High temperature, severity(3) ERROR:", ("degraded", "inspect")),
    ],
)
def test_each_syndrome_of_mlx5_counts_with_its_severity(words, verdict):
    for function in ("", "print_health_info:430:(pid 0): "):
        assert list(standing(log(f"{MLX5}{function}{words}")).values()) == [verdict]


HABANA = [
    ("{0}: Failed to reset! Device is NOT usable", "habanalabs/ResetFailed/{1}", ("fatal", "reboot")),
    ("{0}: 0000:1a:00.0 Failed to reset! Device is NOT usable", "habanalabs/ResetFailed/{1}", ("fatal", "reboot")),
    ("{0}: Consecutive FW fatal errors, stopping hard reset", "habanalabs/ResetFailed/{1}", ("fatal", "reboot")),
    ("{0}: Going to reset device", "habanalabs/HardReset/{1}", ("degraded", "inspect")),
    ("{0}: Going to RESET device!", "habanalabs/HardReset/{1}", ("degraded", "inspect")),
    ("{0}: Device heartbeat failed! PCI link is healthy", "habanalabs/HeartbeatLost/{1}", ("degraded", "inspect")),
    ("{0}: Failed to initialize hl0. Device 0000:1a:00.0 is NOT usable !", "habanalabs/NotUsable/{1}",
     ("fatal", "reboot")),
]  # fmt: skip


@pytest.mark.parametrize("speaker", ["habanalabs hl0", "accel accel0", "habanalabs 0000:1a:00.0"])
@pytest.mark.parametrize(("line", "key", "verdict"), HABANA, ids=[row[0][:40] for row in HABANA])
def test_habanalabs_is_read_under_each_of_its_names(speaker, line, key, verdict):
    state = log(line.format(speaker))
    assert standing(state) == {key.format(speaker, speaker.split()[1]): verdict}
    log(f"{speaker}: Successfully finished resetting the device", state=state)
    assert bool(standing(state)) is (verdict[0] == "fatal"), "a reset that succeeded ends what it was begun for"


DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("mpt3sas 0000:3b:00.0: diag reset: SUCCESS", "driver/Restarted/0000:3b:00.0"),
        ("amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) succeeded!", "amdgpu/GpuResetDone/0000:c3:00.0"),
        ("accel accel0: Successfully finished resetting the 0000:1a:00.0 device", "habanalabs/ResetDone/accel0"),
        ("mlx5_core 0000:5e:00.0: health recovery succeeded", "mlx5/Recovered/0000:5e:00.0"),
    ],
)
def test_recoveries_that_succeed_are_counted_too(line, key):
    state = log((line, NOW), (line, NOW + 60))
    assert standing(state) == {}, "one reset, told twice"
    log((line, NOW + 13 * DAY), state=state)
    assert standing(state) == {key: ("degraded", "inspect")}
    assert standing(log((line, NOW), (line, NOW + 15 * DAY))) == {}


GONE = [
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "ice 0000:5e:00.0: PCIe link lost", "nvme nvme0: Removing after probe failure status: -19",
    "mlx5_core 0000:61:00.0: poll_health:1: device's health compromised - reached miss count",
    "amdgpu 0000:c3:00.0: amdgpu: device lost from bus!",
]  # fmt: skip


@pytest.mark.parametrize("first", GONE)
@pytest.mark.parametrize("second", GONE)
def test_devices_of_two_drivers_that_die_within_a_minute_are_the_nodes(first, second):
    if first == second:
        return
    actions = {action for _severity, action in standing(log((first, NOW), (second, NOW + 50))).values()}
    assert actions == {"inspect"}
    apart = {action for _severity, action in standing(log((first, NOW), (second, NOW + 120))).values()}
    assert "inspect" not in apart


def test_one_device_that_dies_in_many_words_is_one_device():
    state = log(
        GONE[0], "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "NVRM: Xid (PCI:0000:5e:00): 79, GPU lost"
    )
    assert {action for _severity, action in standing(state).values()} == {"reboot"}, "two of one driver are not enough"
