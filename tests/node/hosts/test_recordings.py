"""A recorded machine replays exactly: every node in tests/nodes against its golden report, and new ones."""

import fnmatch
import json
import os
import pwd
import shutil
import struct
from pathlib import Path

import pytest

from nhc import __version__
from nhc.core.check import find_all
from nhc.core.data.reader import table
from nhc.core.host import Completed, System
from nhc.core.model import Verdict
from nhc.core.plan import Plan
from nhc.core.render import json as wire
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.commands.record import differences, judge
from nhc.node.facts.packages import compare_versions as compare_versions
from nhc.node.hosts.recording import AnswerRecorder, RecordingHost, Replay, finish
from nhc.node.hosts.redaction import secrets
from nhc.node.planning import runbooks
from tests.support.judge import judge_all as judged_line
from tests.support.run import nhc

NODES = sorted(path.parent for path in (Path(__file__).parents[2] / "nodes").glob("*/machine.json"))


@pytest.mark.thorough
@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
def test_a_recorded_machine_gives_its_golden_report(node):
    golden = json.loads((node / "report.json").read_text())
    report = wire.to_dict(judge(str(node)))
    report["version"] = golden["version"]
    assert report == golden


@pytest.mark.thorough
def test_a_healthy_machine_passes_the_quick_suite_on_its_first_day():
    """A real H100, and tools as they printed: it was convicted by the best figures of other machines and tools."""
    done = nhc("replay", str(Path(__file__).parents[2] / "nodes" / "h100-deep-quick"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("vm: OK: ")


class Tools(System):
    """A machine whose free memory shrinks with every look, and whose stressapptest does what it is asked."""

    def which(self, command):
        return f"/usr/bin/{command}"

    def run(self, argv, timeout, stdin, env, during=None):
        return Completed(0, (
            f"Stats: Found 0 hardware incidents\nStats: Completed: {argv[4]}.00M in 2.00s 999.00MB/s, "
            "with 0 hardware incidents, 0 errors\nStatus: PASS - please verify no corrected errors\n"
        ))  # fmt: skip


def test_a_deep_recording_replays_although_free_memory_changed_meanwhile(tmp_path):
    (tmp_path / "live/proc").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    meminfo = tmp_path / "live/proc/meminfo"
    line = "check_deep_memory -t 2s -m 25%"
    meminfo.write_text("MemTotal: 99000000 kB\nMemFree: 88000000 kB\nMemAvailable: 88000000 kB\n")
    host = RecordingHost(str(tmp_path / "kept"), str(tmp_path / "live"), Tools(str(tmp_path / "live")))
    host = host.with_settings({"NHC_DEEP_RUN": "r"})
    [recorded] = judged_line(host, line)
    meminfo.write_text("MemTotal: 99000000 kB\nMemFree: 44000000 kB\nMemAvailable: 44000000 kB\n")
    host.forget()
    host.read("/proc/meminfo")  # another check of the same run
    finish(str(tmp_path / "kept"), Plan(()), host, "n1", (1.0, 1.0))

    again = Replay(str(tmp_path / "kept")).host().with_settings({"NHC_DEEP_RUN": "r"})
    assert recorded.verdict is Verdict.OK
    assert judged_line(again, line) == [recorded]


@pytest.mark.thorough
def test_the_lost_gpu_is_found_by_each_witness():
    report = judge(str(Path(__file__).parents[2] / "nodes" / "h100-xid79"))
    found = {result.check for result in report.failures()}
    assert {"check_gpu_count", "check_gpu_lost", "check_kmsg", "check_gpu_xid"} <= found
    (xid,) = [r for r in report.failures() if r.check == "check_gpu_xid" and "Xid 79" in r.outcome.message]
    assert xid.outcome.target == "0000:5b:00.0"
    assert any("NVRM: Xid" in line for line in xid.outcome.evidence)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text(
        "* || check_hw_mem_free 1k\n* || check_fs_mount_rw -f /\n* || check_fs_used / 100%\n"
        "* || MAX=900\n* || check_ps_loadavg 900 900 900\n* |strikes 3| check_hw_swap 900TB\n"
        "* || check_cmd_output -m '/Linux/' uname -a\n* || no-such-program\n* || check_fs_mount -f /nowhere\n"
        "* || [[ -d / ]] && check_hw_mem_free 1k\n"
        f"* || check_user_paths -u {pwd.getpwuid(os.geteuid()).pw_name} /\n"
    )
    return path


@pytest.mark.thorough
def test_record_then_replay_gives_the_same_verdicts(config, tmp_path):
    kept = tmp_path / "kept"
    done = nhc("record", kept, "-c", config, state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert "10 results recorded, CRIT" in done.stdout
    report = wire.parse((kept / "report.json").read_text())
    assert [r.verdict.name for r in report.results] == [
        "OK",
        "OK",
        "OK",
        "OK",
        "WARN",
        "OK",
        "UNKNOWN",
        "CRIT",
        "OK",
        "OK",
    ]
    moved = shutil.move(kept, tmp_path / "elsewhere")
    done = nhc("replay", "--compare", moved, state=tmp_path / "state")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.thorough
def test_a_recording_names_nobody_and_replays_the_same(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(
        "* || check_cmd_output -m '/^gpu017 from 172.16.5.9$/' echo gpu017 from 172.16.5.9\n"
        "* || check_cmd_output -m '/hush/' echo --password hush\n"
    )
    for raw in ((), ("--raw",)):
        kept = tmp_path / f"kept{len(raw)}"
        done = nhc("record", kept, "-c", config, "-n", "gpu017", *raw, state=tmp_path / "state")
        assert done.returncode == 0, done.stderr
        content = "".join(path.read_text(errors="replace") for path in kept.rglob("*") if path.is_file())
        for word in ("gpu017", "172.16.5.9"):
            assert (word in content) == bool(raw)
        report = wire.parse((kept / "report.json").read_text())
        assert [result.verdict.name for result in report.results] == ["OK", "OK" if raw else "CRIT"]
        # What is cut out cannot be found again, and whoever records is told so.
        assert ("note: replays differently" in done.stdout) == (not raw)
        assert ("password hush" in content or '"hush"' in content) == bool(raw)


@pytest.mark.thorough
def test_a_recording_holds_the_lines_of_the_nodes_type(config, tmp_path):
    profile = tmp_path / "type.conf"
    profile.write_text("# A type\n* || check_hw_physmem 900TB 900TB\n* || check_hw_mem_free 2k\n")
    done = nhc("record", tmp_path / "kept", "-c", config, "--profile", profile, state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "kept/nhc.conf").read_text().splitlines()
    assert "* || check_hw_physmem 900TB 900TB" in lines
    assert "* || check_hw_mem_free 2k" not in lines, "the site's line of that name wins"
    assert nhc("replay", "--compare", tmp_path / "kept", state=tmp_path / "state").returncode == 0


@pytest.mark.thorough
def test_replay_judges_by_another_configuration(config, tmp_path):
    kept = tmp_path / "kept"
    nhc("record", kept, "-c", config, state=tmp_path / "state")
    other = tmp_path / "other.conf"
    other.write_text("* || check_fs_mount_rw -f /\n")
    done = nhc("replay", kept, "-c", other, "--format", "json")
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["results"]) == 1


@pytest.mark.thorough
def test_a_changed_file_shows_as_a_difference(config, tmp_path):
    kept = tmp_path / "kept"
    nhc("record", kept, "-c", config, state=tmp_path / "state")
    mounts = kept / "root/proc/mounts"
    text = mounts.read_text()
    mounts.write_text("".join(line for line in text.splitlines(keepends=True) if line.split()[1] != "/"))
    done = nhc("replay", "--compare", kept)
    assert done.returncode == 1
    assert "check_fs_mount_rw: OK" in done.stdout
    assert "-> CRIT" in done.stdout


@pytest.mark.thorough
def test_a_directory_in_use_is_not_written_into(config, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("data")
    done = nhc("record", tmp_path / "full", "-c", config)
    assert done.returncode == 2
    assert "not an empty directory" in done.stderr
    assert (tmp_path / "full" / "precious").read_text() == "data"


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [("-c", "/no/such.conf"), ("--check", "check_nothing"), ("--profile", "nothing")])
def test_a_command_that_was_wrong_can_be_given_again(config, tmp_path, wrong):
    directory = tmp_path / "recording"
    assert nhc("record", directory, "-c", config, *wrong, state=tmp_path / "state").returncode == 2
    assert list(directory.iterdir()) == []

    again = nhc("record", directory, "-c", config, state=tmp_path / "state")
    assert "results recorded" in again.stdout, again.stderr


@pytest.mark.thorough
def test_a_profile_that_there_is_not_is_one_clear_line(config, tmp_path):
    done = nhc("record", tmp_path / "kept", "-c", config, "--profile", "nosuch")
    assert done.returncode == 2
    assert "--profile: there is no profile 'nosuch'" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("machine.json", "{", "machine.json: not JSON"),
        ("machine.json", '{"format": 99}', "format 99, expected 1"),
        ("answers.json", "{}", "answers.json: expected a JSON array"),
        ("answers.json", "[1, 2]", "not a list of [question, answer] pairs"),
    ],
)
def test_a_damaged_recording_is_one_clear_line(tmp_path, name, text, said):
    kept = shutil.copytree(NODES[0], tmp_path / "kept")
    (kept / name).write_text(text)
    done = nhc("replay", kept)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_secrets_are_not_kept(tmp_path):
    assert "hunter2" not in secrets("--password=hunter2 --token hunter2 API_KEY: hunter2 secret=hunter2")
    assert secrets("python train.py --lr=0.1") == "python train.py --lr=0.1"
    recorder = AnswerRecorder(str(tmp_path))
    recorder.keep_file("/proc/77/cmdline", b"server\0--db-password=hunter2\0--port\0" + b"80\0")
    kept = (tmp_path / "root/proc/77/cmdline").read_bytes()
    assert b"hunter2" not in kept
    assert kept.startswith(b"server\0--db-password=[redacted]\0--port\0")


@pytest.mark.parametrize(("size", "form", "place"), [(384, "=i", 340), (400, "=q", 344)])
def test_of_the_records_of_boots_no_login_is_kept(tmp_path, size, form, place):
    def record(kind, user, host, at):
        data = bytearray(size)
        struct.pack_into("=h", data, 0, kind)
        data[44 : 44 + len(user)], data[76 : 76 + len(host)] = user, host
        struct.pack_into(form, data, place, at)
        return bytes(data)

    boots = [record(2, b"reboot", b"6.1.0-18-amd64", 1_700_000_000), record(1, b"shutdown", b"", 1_700_050_000)]
    logins = [record(7, b"alice", b"home.example.org", 1_700_000_900), record(8, b"", b"", 1_700_000_990)]
    host = FakeHost({"/var/log/wtmp": ""})
    with open(host.path("/var/log/wtmp"), "wb") as file:
        file.write(b"".join([boots[0], *logins, boots[1], logins[0]]))
    for raw in (False, True):
        kept = tmp_path / f"kept-{raw}"
        kept.mkdir()
        recording = RecordingHost(str(kept), host.root, host.system, raw=raw)
        assert b"alice" in recording.read_bytes("/var/log/wtmp"), "the check sees all of it"
        written = (kept / "root/var/log/wtmp").read_bytes()
        assert (b"alice" in written or b"home" in written) is raw
        assert raw or written == b"".join(boots)


def test_differences_name_the_check_and_both_verdicts():
    report = judge(str(NODES[0]))
    changed = report._replace(results=report.results[1:])
    (line,) = differences(report, changed)[:1]
    assert str(line).endswith("-> no result")


@pytest.mark.thorough
def test_a_recording_keeps_what_the_node_remembers_of_a_log_that_was_rotated(tmp_path):
    log, config = tmp_path / "dmesg", tmp_path / "nhc.conf"
    config.write_text(f"* || check_kmsg --source dmesg={log}\n")
    log.write_text("[    9.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus.\n")
    assert nhc("check", "local", "-c", config, state=tmp_path / "state").returncode == 1
    log.write_text("")
    kept = tmp_path / "kept"
    done = nhc("record", kept, "-c", config, state=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert "replays differently" not in done.stdout
    log.unlink()
    done = nhc("replay", kept, "--format", "json", state=tmp_path / "other")
    assert {result["reason"] for result in json.loads(done.stdout)["results"] if result["reason"]} >= {"Xid79"}
    assert done.returncode == 1


def recorded_by(directory, version, before):
    """A recording of a version, whose report has `before` of its check where this version has SKIP NoTimeService."""
    (directory / "root").mkdir()
    (directory / "nhc.conf").write_text("* || check_clock_offset\n* || check_file_test -e /etc/hosts\n")
    (directory / "answers.json").write_text("[]")
    machine = {"format": 1, "name": "n1", "hostname": "n1", "time": 1.7e9, "monotonic": 5.0}
    if version is not None:
        machine["version"] = version
    (directory / "machine.json").write_text(json.dumps(machine))
    report = wire.to_dict(judge(str(directory)))
    assert [result["verdict"] for result in report["results"]] == ["SKIP", "CRIT"]
    for result, (verdict, reason) in zip(report["results"], before):
        result.update(verdict=verdict, reason=reason)
    (directory / "report.json").write_text(json.dumps(report))
    return nhc("replay", "--compare", str(directory))


SAME = ("CRIT", "FileTestFailed")
MEANT = ("UNKNOWN", "NoTimeService")


@pytest.mark.parametrize(
    ("version", "clock", "file", "status"),
    [
        ("0.0.1", MEANT, SAME, 3), (None, MEANT, SAME, 3), ("99.0", MEANT, SAME, 3), ("99.0", MEANT, ("OK", ""), 3),
        (__version__, MEANT, SAME, 1), ("0.0.1", MEANT, ("OK", ""), 1), ("0.0.1", ("OK", ""), SAME, 1),
        ("0.0.1", ("SKIP", "NoTimeService"), SAME, 0), (__version__, ("SKIP", "NoTimeService"), SAME, 0),
    ],
)  # fmt: skip
def test_what_is_judged_otherwise_on_purpose_is_told_apart_from_a_fault(tmp_path, version, clock, file, status):
    """By the version and the table of what was changed on purpose: a fault is one in others' recordings too."""
    done = recorded_by(tmp_path, version, [clock, file])
    assert done.returncode == status, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    meant = [line for line in lines if line.startswith("other version: ")]
    assert (len(meant) == len(lines)) == (status != 1)
    assert not any("check_file_test" in line for line in meant) or version == "99.0"


def test_each_change_of_a_judgement_names_checks_verdicts_and_a_version():
    names, reasons = [each.name for each in find_all()], set(runbooks.reasons())
    verdicts = {*(verdict.name for verdict in Verdict), "none", "*"}
    for since, check, before, after, why in table("judgements.tsv"):
        assert fnmatch.filter(names, check), check
        assert {before.split()[0], after.split()[0]} <= verdicts, (check, before, after)
        assert since
        assert why
        assert compare_versions(since, __version__) <= 0
        reason = after.partition(" ")[2]
        assert not reason or "*" in reason or reason in reasons, reason


def test_a_recording_says_which_version_made_it(tmp_path):
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_file_test -e /etc/passwd\n")
    assert nhc("record", str(tmp_path / "kept"), "-c", str(conf), "--check", "check_file_test").returncode == 0
    assert json.loads((tmp_path / "kept/machine.json").read_text())["version"] == __version__
    assert nhc("replay", "--compare", str(tmp_path / "kept")).returncode == 0


def test_a_version_that_is_no_text_is_named(tmp_path):
    recorded_by(tmp_path, "1.0", [MEANT, SAME])
    machine = json.loads((tmp_path / "machine.json").read_text())
    (tmp_path / "machine.json").write_text(json.dumps({**machine, "version": 7}))
    done = nhc("replay", "--compare", str(tmp_path))
    assert done.returncode == 2
    assert "machine.json: version: 7" in done.stderr
