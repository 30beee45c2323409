"""Real lines of drivers, and what the catalogue makes of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.core.model import Action
from nhc.node.commands.log import LineFolder
from nhc.node.kernlog.catalogue import Matcher, rows
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.match import RANK, address
from nhc.node.kernlog.read import read_log
from nhc.node.kernlog.repeats import repeats
from nhc.node.kernlog.source import DMESG, LogSource

ROOT = Path(__file__).parents[3]


def judge(line):
    found = Matcher().judge(line)
    return None if found is None else (found.kind, found.code, found.severity, found.action.value, found.device)


def _lines():
    for row in (Path(__file__).parent / "lines.tsv").read_text().splitlines()[2:]:
        *expected, line = row.split("\t")
        yield line, None if expected[0] == "-" else tuple("" if cell == "-" else cell for cell in expected)


LINES = list(_lines())


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:60] for line, _ in LINES])
def test_a_line_means_what_its_driver_meant(line, expected):
    assert judge(line) == expected


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        f"a.out[42]: segfault at 0 ip 00005602 sp 00007ffe error 6 in {XID}[1132,5602aaba6000+1000] likely on CPU 0",
        f"a\n{XID[:12]}[42]: segfault at 0 ip 00005602 sp 00007ffe error 6 in a\n{XID}[1132,5602aaba6000+1000]",
        f"traps: a.out[42] general protection fault ip:5602 sp:7ffe error:0 in {XID}[5602+1000]",
        "EDAC MC0: UE x[42]: segfault at 0 ip 00005602 sp 00007ffe error 6 in a[1132,5602aaba6000+1000]",
        "traps: EDAC MC0: UE x[42] trap invalid opcode ip:5602 sp:7ffe error:0 in a[5602+1000]",
        "mmap: EDAC MC0: UE x (42): VmData 4096 exceed data ulimit 1. Update limits.",
        "EDAC MC0: UE x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Oops: 0[42]: segfault at 0 ip 00005602 sp 00007ffe error 6 in a[1132,5602aaba6000+1000]",
        f"               {XID}[1132,5602aaba6000+1000] likely on CPU 1 (core 1, socket 0)",
        f"tmpfs: Unknown parameter '{XID}'",
        f"tmpfs: Unknown parameter 'nvidia: {XID}'",
        f"Memory cgroup stats for /user.slice/gpu: {XID}:",
        f"CPU: 3 UID: 1000 PID: 42 Comm: {XID[:15]} Not tainted",
        "x[42]: segfault at 0 ip 0 sp 0 error 6 in NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03[1+2]",
    ],
    ids=lambda line: line[:40],
)
def test_what_a_user_called_a_program_is_no_fault(line):
    """Each can be had from the kernel by anyone: by a crash, a mount in a user namespace, a cgroup of one's own."""
    assert judge(line) is None
    assert judge(line.replace("\n", " ")) is None


@pytest.mark.parametrize("group", [f"/user.slice/{XID}", f"/a: {XID}", "/a: nf_conntrack: table full, dropping packet"])
def test_what_a_user_called_a_control_group_is_only_its_name(group):
    assert judge(f"cgroup: fork rejected by pids controller in {group}")[:3] == ("exhausted", "TaskLimit", "app")


def test_the_engine_finds_in_a_log_what_it_finds_line_by_line():
    text = "".join(f"{line}\nsomething else entirely\n" for line, _expected in LINES)
    matcher = Matcher()
    found = [matcher.judge(text[start:end], numbers) for start, end, numbers in matcher.candidates(text)]
    assert [(m.kind, m.code) for m in found if m] == [e[:2] for _line, e in LINES if e]


def test_the_gpu_that_fell_off_is_named_by_the_line_before():
    matcher = Matcher()
    assert matcher.judge("NVRM: The NVIDIA GPU 0000:18:00.0") is None
    assert matcher.judge("NVRM: (PCI ID: 10de:2901) installed in this system has") is None
    found = matcher.judge("NVRM: fallen off the bus and is not responding to commands.")
    assert (found.code, found.device) == ("GpuFallenOffBus", "0000:18:00.0")


OFF_BUS = [
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: (PCI ID: 10de:2901) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
]
FORGED = ["NVRM: a[42]: segfault at 0 ip 1 in a", f"{XID}[1132]"]


def record_in(form, lines):
    """A record of several lines as each keeper of the kernel's log writes it."""
    stamp = "[    1.393436] "
    syslog = "Nov 21 02:28:15 host kernel: "
    return {
        "kmsg": f"4,1,1393436,-;{chr(92)}x0a".join(["", *lines]).replace(f"{chr(92)}x0a", "", 1) + "\n",
        "dmesg": stamp + f"\n{' ' * len(stamp)}".join(lines) + "\n",
        "journalctl": syslog + f"\n{' ' * len(syslog)}".join(lines) + "\n",
        "journald": json.dumps({"MESSAGE": "\n".join(lines), "_TRANSPORT": "kernel"}) + "\n",
        "rsyslog": syslog + "#012".join(lines) + "\n",
        "klogd": "".join(f"{syslog}{line}\n" for line in lines),
    }[form]


@pytest.mark.parametrize("form", ["kmsg", "dmesg", "journalctl", "journald", "rsyslog", "klogd"])
def test_a_record_of_several_lines_is_read_as_its_driver_wrote_it(form):
    """osapi.c rm_is_supported_device: one printk names the GPU in its first line, and what is wrong in its last."""

    def said(lines):
        folder = LineFolder(Matcher())
        folder.feed("[    1.0] usb 1-1: new device\n" + record_in(form, lines))
        return [(entry.match.code, entry.match.device, entry.match.severity) for entry in folder.entries()]

    assert said(OFF_BUS) == [("GpuFallenOffBus", "0000:18:00.0", "fatal")]
    if form != "klogd":  # there every line has a stamp of its own, as another record would
        assert said(FORGED) == []


@pytest.mark.parametrize("form", ["dmesg", "rsyslog"])
def test_a_file_is_read_record_by_record(form, tmp_path):
    log = tmp_path / "log"
    log.write_text(record_in(form, OFF_BUS))
    found = read_log(Host(), LogSource(DMESG, str(log)), since_boot=True).state
    assert list(found["findings"]) == ["nvrm/GpuFallenOffBus/0000:18:00.0"]
    log.write_text(record_in(form, FORGED))
    assert "findings" not in read_log(Host(), LogSource(DMESG, str(log)), since_boot=True).state


def test_the_live_log_gives_the_lines_of_one_record():
    state = {}
    take_in(state, [("\n".join(OFF_BUS), 1.0), ("\n".join(FORGED), 1.0)], 2.0)
    assert list(state["findings"]) == ["nvrm/GpuFallenOffBus/0000:18:00.0"]


def test_a_reset_of_ena_that_failed_outlasts_what_the_driver_says_after_it():
    """ena_netdev.c ena_fw_reset_device (to 6.14) calls every reset successful, also one that could not be done."""
    ena, done = "ena 0000:00:05.0", "Device reset completed successfully"
    failed = [f"{ena}: Reset attempt failed. Can not reset the device", f"{ena}: {done}"]
    state = {}
    take_in(state, [(f"{ena} ens5: Keep alive watchdog timeout.", 1.0), *((line, 2.0) for line in failed)], 3.0)
    assert list(state["findings"]) == ["ena/ResetFailed/0000:00:05.0"]


def test_an_adapter_that_completes_no_command_is_out_until_its_reset_succeeds():
    adapter, state = "megaraid_sas 0000:5a:00.0", {}
    waits = [(f"{adapter}: [{seconds}]waiting for 65 commands to complete for scsi0", seconds) for seconds in (30, 60)]
    take_in(state, waits[:1], 30.0)
    assert "findings" not in state
    take_in(state, waits, 60.0)
    assert list(state["findings"]) == ["driver/Stalled/0000:5a:00.0"]
    take_in(state, [(f"{adapter}: Reset successful for scsi0.", 90.0)], 90.0)
    assert not state["findings"]


def test_the_record_that_firmware_kept_of_the_last_boot_is_not_news():
    matcher = Matcher()
    line = "[Hardware Error]: event severity: fatal"
    assert matcher.judge(line).severity == "fatal"
    matcher.judge("BERT: Error records from previous boot:")
    assert matcher.judge(line).severity == "info"
    assert matcher.judge("{1}[Hardware Error]: event severity: fatal").severity == "fatal"


@pytest.mark.thorough
def test_every_row_of_the_catalogue_can_be_used():
    import re

    for row in rows():
        groups = re.compile(row.pattern).groupindex
        assert row.kind in ("xid", "sxid", "neuron") or row.code, row
        assert row.severity in ("", *RANK), row
        assert not row.action or Action(row.action), row
        assert row.source, row
        for what in row.recovers.split():
            scope, _, target = what.partition(":")
            assert scope in ("device", "all", "drills"), row
            kind, _, code = target.partition("/")
            assert not kind or any(r.kind == kind and (not code or r.code == code) for r in rows()), row
            assert scope != "device" or "device" in groups, row
    for rule in repeats():
        assert rule.severity in RANK
        assert Action(rule.action)
        assert rule.place in ("device", "unit")
        assert (rule.burst is None) is (rule.every is not None), "what one occurrence is has one of two words"
        assert rule.standing is None or (rule.burst is not None and rule.standing > rule.burst)


@pytest.mark.parametrize(
    "name", ["kernel.tsv", "repeats.tsv", "xid.tsv", "sxid.tsv", "nvlink5.tsv", "xid74.tsv", "xid_context.tsv"]
)
def test_tables_are_rectangular(name):
    from nhc.core.data.reader import read

    lines = [line.split("\t") for line in read(name).split("\n") if line and not line.startswith("#")]
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0000:3b:00", "0000:3b:00.0"), ("3B:00.1", "0000:3b:00.1"), ("00000000:3B:00.0", "0000:3b:00.0"), ("sda", "sda")],
)
def test_addresses_are_sysfs_addresses(text, expected):
    assert address(text) == expected


@given(st.text())
def test_no_line_upsets_the_engine(line):
    Matcher().judge(line)
    list(Matcher().candidates(line))


@given(
    st.lists(st.sampled_from([line for line, _ in LINES]) | st.text(alphabet=st.characters(blacklist_characters="\n")))
)
def test_candidates_are_whole_lines_in_order(lines):
    text = "\n".join(lines)
    spans = [(start, end) for start, end, _numbers in Matcher().candidates(text)]
    assert spans == sorted(set(spans))
    for start, end in spans:
        assert start == 0 or text[start - 1] == "\n"
        assert end == len(text) or text[end] == "\n"


def loaded(code):
    script = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_reading_a_quiet_log_compiles_no_pattern_and_loads_no_nvidia_table():
    said = loaded(
        "import re\n"
        "compiled = []\n"
        "true = re._compile\n"
        "re._compile = lambda p, f: (compiled.append(p), true(p, f))[1]\n"
        "from nhc.node.kernlog.collect import take_in\n"
        "state = {}\n"
        "take_in(state, [('usb 1-1: new device', 1.0)] * 5, 2.0)\n"
        "print(compiled, 'nhc.node.kernlog.xid' in sys.modules, 'nhc.node.kernlog.npd_rules' in sys.modules)\n"
    )
    assert said.strip() == "[] False False"


def test_the_check_imports_only_cheap_modules():
    banned = {"argparse", "asyncio", "dataclasses", "datetime", "decimal", "inspect", "logging", "pathlib",
              "subprocess",
              "tempfile", "calendar", "pynvml"}  # fmt: skip
    said = loaded("import nhc.node.checks.kmsg, nhc.node.checks.gpu_xid\nprint(*sys.modules)")
    assert not banned & set(said.split())
    held = {"catalogue", "collect", "device_state", "judge", "node_context", "npd_rules", "xid"}
    assert not {f"nhc.node.kernlog.{name}" for name in held} & set(said.split()), (
        "a log that tells of nothing new needs none"
    )
