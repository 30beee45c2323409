"""nhc log classify, nhc inject and nhc ack, as a user meets them."""

import io
import json
import os
import re
import resource
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nhc.core.host import BOOT_ID
from nhc.core.state.store import State
from nhc.lab.commands.inject import FAULTS, filled, inject_command, line_of
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.commands.log import LineFolder, ack_command, classify_command
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.read import read_log
from nhc.node.kernlog.source import ACKS, STORE, LogSource
from tests.support.require import need

OFF_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOG = f"""\
Nov 21 02:28:15 gpu1 kernel: [ 1713.68] {OFF_BUS}
Nov 21 02:28:15 gpu1 kernel: [ 1713.70] usb 1-1: new device
Nov 21 02:28:16 gpu1 kernel: [ 1714.68] {OFF_BUS}
Nov 21 02:28:16 gpu1 kernel: [ 1714.70] NVRM: Xid (PCI:0000:3b:00): 45, pid=123, name=python, Ch 00000008
Nov 21 02:28:16 gpu1 kernel: [ 1714.70] NVRM: Xid (PCI:0000:5b:00): 45, pid=123, name=python, Ch 00000009
Nov 21 02:28:17 gpu1 attacker[1]: NVRM: Xid (PCI:0000:5b:00): 79, GPU has fallen off the bus.
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "messages"
    path.write_text(LOG)
    return str(path)


def objects(capsys, *arguments, **options):
    assert classify_command(*arguments, format="json", **options) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_is_one_object_a_meaning(log, capsys):
    found = objects(capsys, log)
    assert [set(entry) for entry in found] == [{"line", "kind", "code", "device", "severity", "action", "count"}] * 3
    assert found[0] == {
        "line": LOG.splitlines()[0], "kind": "xid", "code": "79", "device": "0000:3b:00.0", "severity": "fatal",
        "action": "reboot", "count": 2,
    }  # fmt: skip


def test_equal_messages_are_one_whatever_stands_between(log, capsys):
    assert [(entry["code"], entry["count"]) for entry in objects(capsys, log)] == [("79", 2), ("45", 1), ("45", 1)]


def test_xid_45_alone_is_the_applications_and_beside_another_a_clean_up(log, capsys):
    found = {entry["device"]: entry for entry in objects(capsys, log) if entry["code"] == "45"}
    assert found["0000:3b:00.0"]["severity"] == "info"
    assert found["0000:5b:00.0"]["severity"] == "app"


def test_all_shows_the_rest_as_information(log, capsys):
    found = objects(capsys, log, show_all=True)
    assert len(found) == 5
    rest = [entry for entry in found if entry["kind"] == "other"]
    assert [entry["severity"] for entry in rest] == ["info", "info"]
    assert "usb 1-1" in rest[0]["line"]
    assert found.index(rest[0]) == 1, "in its place"


def test_text_names_severity_kind_device_action_and_count(log, capsys):
    assert classify_command(log) == 0
    first, *_rest, last = capsys.readouterr().out.splitlines()
    assert re.match(r"fatal +xid 79 +0000:3b:00\.0 +reboot +x2 +Xid 79, GPU has fallen off the bus\.", first)
    assert last == "6 lines: 2 fatal, 0 degraded, 1 app, 1 info"


def test_standard_input_is_read(tmp_path):
    script = (
        "from nhc.node.commands.log import classify_command; raise SystemExit(classify_command('-', format='json'))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", script], input=LOG, capture_output=True, text=True, env=env, timeout=60, check=True
    )
    assert json.loads(done.stdout.splitlines()[0])["count"] == 2


def test_a_missing_file_is_one_clear_line(capsys):
    assert classify_command("/nowhere/at/all") == 2
    assert capsys.readouterr().err == "nhc log classify: /nowhere/at/all: No such file or directory\n"


def test_bytes_that_are_no_text_and_a_missing_last_line_break_do_no_harm(tmp_path, capsys):
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe[ 1.0] \xc3\x28\r\n[ 2.0] nfs: server a OK\r\n[ 3.0] Oops: 0000 [#1] SMP")
    assert [entry["kind"] for entry in objects(capsys, str(path))] == ["nfs", "oops"]


def test_journald_json_is_read(tmp_path, capsys):
    path = tmp_path / "x"
    path.write_text(json.dumps({"MESSAGE": "Oops: 0000 [#1] SMP", "_TRANSPORT": "kernel"}) + "\n"
                    + json.dumps({"MESSAGE": "Oops: 0000 [#1] SMP", "_TRANSPORT": "syslog"}) + "\n")  # fmt: skip
    assert [entry["count"] for entry in objects(capsys, str(path))] == [1]


def test_rules_of_node_problem_detector_apply(log, tmp_path, capsys):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"type": "temporary", "reason": "UsbSeen", "pattern": "usb .*"}]}))
    assert [e["code"] for e in objects(capsys, log, npd_rules=[str(rules)]) if e["kind"] == "npd"] == ["UsbSeen"]
    rules.write_text("{}")
    assert classify_command(log, npd_rules=[str(rules)]) == 2
    assert str(rules) in capsys.readouterr().err


@pytest.mark.thorough
def test_a_flood_of_different_lines_stays_bounded():
    folder = LineFolder(Matcher(), limit=100)
    folder.feed("".join(f"[ 1.0] nfs: server host{index} not responding, still trying\n" for index in range(1000)))
    entries = folder.entries()
    assert len(entries) <= 1100
    assert sum(entry.times for entry in entries) == 1000
    folder = LineFolder(Matcher(), limit=100)
    folder.feed("".join(f"[ 1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid={index}, name=x, y\n" for index in range(5000)))
    assert len(folder.entries()) == 101


# inject


@pytest.mark.parametrize(
    "fault", [name for name in FAULTS if name not in ("xid", "sxid", "end")] + ["xid-79", "sxid-20034", "XID:119"]
)
def test_every_fault_that_can_be_injected_is_one_that_is_found(fault):
    line = line_of(fault)
    assert line.endswith("nhc-drill")
    found = Matcher().judge(line)
    assert found is not None
    assert found.severity in ("fatal", "degraded", "app")


def test_a_drill_names_the_device_asked_for():
    assert Matcher().judge(line_of("xid-79", "3b:00.0")).device == "0000:3b:00.0"
    assert Matcher().judge(line_of("nvme-down", "nvme3")).device == "nvme3"


@pytest.mark.parametrize(
    ("fault", "device"),
    [("nonsense", None), ("xid", None), ("xid-79", "not-an-address"), ("oom", "x"), ("nfs-hang", "a b")],
)
def test_wrong_usage_is_one_clear_line(fault, device, capsys):
    assert inject_command(fault, device=device, yes=True) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_drill_asks_first(monkeypatch, tmp_path, capsys):
    path = tmp_path / "kmsg"
    path.write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert inject_command("oom", path=str(path)) == 2, "nobody to ask"
    assert "--apply" in capsys.readouterr().err
    assert path.read_text() == ""
    assert inject_command("oom", dry_run=True, path=str(path)) == 0
    assert path.read_text() == ""
    assert inject_command("oom", yes=True, path=str(path)) == 0
    assert path.read_text().endswith(" nhc-drill\n")


def test_only_root_injects(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert inject_command("oom", yes=True, path=str(tmp_path / "kmsg")) == 2
    assert "root" in capsys.readouterr().err


def test_the_list_shows_every_fault(capsys):
    assert inject_command("", list_faults=True) == 0
    assert len(capsys.readouterr().out.splitlines()) == len([*FAULTS, "full-disk", "gpu-gone"])


# ack


@pytest.fixture
def memory(tmp_path):
    memory = State(str(tmp_path / "state"))
    host = FakeHost({BOOT_ID: "b"})
    host.memory = memory
    host.system.kernel = [
        "3,0,1000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "3,1,1000000,-;nfs: server a not responding, still trying",
        "3,2,1000000,-;Oops: 0000 [#1] SMP nhc-drill",
    ]
    read_log(host, LogSource())
    return memory


def test_the_list_shows_what_stands(memory, capsys):
    assert ack_command(memory=memory) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "xid/79/0000:3b:00.0", "oops/Oops/", "nfs/ServerNotResponding/a",
    ]  # fmt: skip
    assert ack_command(memory=memory, format="json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["key"] == "xid/79/0000:3b:00.0"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("keys", "options", "left"),
    [
        (["xid/79/0000:3b:00.0"], {}, 2),
        ([], {"device": "3B:00.0"}, 2),
        ([], {"drills": True}, 2),
        ([], {"every": True}, 0),
    ],
)
def test_what_is_acknowledged_no_longer_stands(memory, capsys, keys, options, left):
    assert ack_command(keys, **options, note="replaced the riser", memory=memory, now=5.0) == 0
    assert "acknowledged" in capsys.readouterr().out
    assert len(memory.load(STORE)["findings"]) == left
    ack = memory.load(ACKS)["acks"][0]
    assert (ack["at"], ack["note"]) == (5.0, "replaced the riser")
    assert ack["by"]


def test_an_unknown_key_is_told(memory, capsys):
    assert ack_command(["xid/1/x"], memory=memory) == 1
    assert "no finding xid/1/x" in capsys.readouterr().err
    assert ack_command(device="0000:99:00.0", memory=memory) == 1


def test_an_acknowledgement_that_cannot_be_kept_is_an_error(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    memory = State(str(blocked))
    finding = {"kind": "oops", "code": "Oops", "device": "", "severity": "fatal", "action": "reboot", "message": "m",
               "line": "l", "first": 1, "last": 1, "count": 1}  # fmt: skip
    memory.update(STORE, lambda held: held.update(findings={"oops/Oops/": finding}))
    assert ack_command(every=True, memory=memory) == 2
    assert "not" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.usefixtures("kernel_log_alone")
def test_a_drill_on_the_real_kernel_log_from_end_to_end(tmp_path, monkeypatch, capsys):
    need("/dev/kmsg", os.geteuid() == 0 and os.access("/dev/kmsg", os.R_OK | os.W_OK), "it needs root")
    monkeypatch.setenv("NHC_STATE_DIR", str(tmp_path))
    name = f"test-{uuid.uuid4().hex[:12]}"
    key = f"nfs/ServerNotResponding/{name}"
    assert inject_command("nfs-hang", device=name, yes=True) == 0
    try:
        assert ack_command() == 0
        listed = [line for line in capsys.readouterr().out.splitlines() if key in line]
        assert len(listed) == 1
        assert "drill: " in listed[0]
        assert ack_command([key]) == 0
        assert ack_command() == 0
        assert key not in capsys.readouterr().out.split("acknowledged")[1].split("\n", 1)[1]
    finally:
        assert inject_command("end") == 0


def test_a_full_disk_is_a_file_that_end_removes_and_nothing_large_or_shared_is_filled(tmp_path, monkeypatch, capsys):
    need("tmpfs", os.geteuid() == 0, "it needs root")
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path / "ledger"))
    disk = tmp_path / "disk"
    disk.mkdir()
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=True)
    try:
        (disk / "theirs").write_text("x")
        assert inject_command("full-disk", device=str(disk), dry_run=True) == 0
        assert inject_command("full-disk", device=str(disk)) == 2, "nobody to ask"
        assert [path.name for path in disk.iterdir()] == ["theirs"]
        assert inject_command("full-disk", device=str(disk), yes=True, to=90) == 0
        space = os.statvfs(disk)
        assert 0.90 <= 1 - space.f_bavail / space.f_blocks < 0.92
        assert inject_command("full-disk", device=str(disk), yes=True, to=95) == 2
        assert "is there already: nhc inject end" in capsys.readouterr().err
        assert inject_command("end", path=str(kmsg)) == 0
        assert [path.name for path in disk.iterdir()] == ["theirs"]
        assert not (tmp_path / "ledger" / "drill.json").exists()
        for where, to, said in (
            ("/", 97.0, "the root file system"), (str(tmp_path), 97.0, "no file system is mounted there"),
            ("/proc", 97.0, "is a proc: expected a local one"), (str(disk), 100.0, "expected 1% to 99%"),
            ("", 97.0, "needs --device"), (str(disk), 0.5, "expected 1% to 99%"),
        ):  # fmt: skip
            assert inject_command("full-disk", device=where, yes=True, to=to) == 2
            assert said in capsys.readouterr().err
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_cannot_be_filled_keeps_what_another_drill_filled(tmp_path, monkeypatch, capsys):
    need("tmpfs", os.geteuid() == 0, "it needs root")
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path / "ledger"))
    disks = [tmp_path / "first", tmp_path / "second"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for disk in disks:
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=True)
    try:
        assert inject_command("full-disk", device=str(disks[0]), yes=True) == 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        assert inject_command("full-disk", device=str(disks[1]), yes=True) == 2
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "second/.nhc-drill-fill: File too large" in capsys.readouterr().err
        assert [len(list(disk.iterdir())) for disk in disks] == [1, 0]
        assert filled() == [f"{disks[0]}/.nhc-drill-fill"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for disk in disks:
            subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("text", ["[]", "{", '{"files": ["/etc/passwd"]}', '{"files": ["/a/../b/.nhc-drill-fill"]}'])
def test_a_record_that_nhc_did_not_write_removes_nothing(tmp_path, monkeypatch, capsys, text):
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "drill.json").write_text(text)
    (tmp_path / "kmsg").write_text("")
    assert inject_command("end", path=str(tmp_path / "kmsg")) == 1
    assert "drill.json: " in capsys.readouterr().err


BANNER = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"


def test_a_fatal_line_does_not_vanish_among_the_findings_without_a_reason(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(
        "[   10.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus.\n"
        f"[  600.0] {BANNER}\n[  610.0] Oops: 0000 [#1] SMP NOPTI\n[    0.0] Linux version 6.8.0\n"
    )
    assert classify_command(str(log), findings=True) == 0
    said = capsys.readouterr().out
    assert "ended     reboot        x1      xid/79/0000:3b:00.0" in said
    assert f"ended by: {BANNER}" in said
    assert "ended by: the node was restarted" in said
    assert "0 findings stand at the end of the log, 0 of them fatal" in said
    assert classify_command(str(log), findings=True, format="json") == 0
    assert capsys.readouterr().out == ""
    assert classify_command(str(log), findings=True, format="json", explain=True) == 0
    assert {json.loads(line)["ended_by"][:8] for line in capsys.readouterr().out.splitlines()} == {
        BANNER[:8],
        "the node",
    }


def test_a_gpu_that_falls_off_the_bus_while_it_is_probed_outlasts_the_banner_of_that_load(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(
        "[    9.0] NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "[    9.0] NVRM: (PCI ID: 10de:2901) installed in this system has\n"
        f"[    9.0] NVRM: fallen off the bus and is not responding to commands.\n[    9.1] {BANNER}\n"
    )
    assert classify_command(str(log), findings=True) == 0
    assert "fatal     reboot        x1      nvrm/GpuFallenOffBus/0000:18:00.0" in capsys.readouterr().out
