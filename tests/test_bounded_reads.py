"""What has no end, or whose lines have none, is read within bounds. What is not read is said."""

import ast
import gzip
import json
import os
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from nhc.agent.npd_monitors import CHUNK, FileFollower, load_log_monitor
from nhc.agent.settings import load as load_settings
from nhc.core.host import BOOT_ID
from nhc.core.language.loader import validate
from nhc.core.language.site_scripts import scan
from nhc.core.language.site_settings import read_sysconfig
from nhc.core.model import Verdict
from nhc.core.system import bounded_read
from nhc.core.system.bounded_read import GZIP, LIMIT, TooLarge, parse_json, read_bytes, unpacked
from nhc.fleet.node_sources import from_file
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import KnownHosts
from nhc.lab.testing.fake_host import FakeHost
from nhc.marks.policy.policy_file import load as load_policy
from nhc.node.commands.log import classify_command
from nhc.node.facts import carrier, kmsg
from nhc.node.hosts.recording import Replay
from nhc.node.kernlog.npd_rules import load_file as load_rules
from nhc_adapters import pbs
from nhc_adapters.kubernetes.nodes.vocabulary_file import load as load_vocabulary
from nhc_adapters.node.hand.nvidia import parse_devices
from nhc_adapters.sge import parse_qhost
from tests.agent.test_npd import KERNEL, Heard, write
from tests.support.judge import judge_all

ROOT = Path(__file__).resolve().parents[1]
LOG = "/var/log/syslog"
CHECK = f"check_kmsg --source syslog={LOG}"
XID = "Nov 14 22:13:20 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
HARMLESS = "Nov 14 22:13:20 n1 kernel: usb 1-1: new device"


def append(host, data, path=LOG):
    with open(host.path(path), "ab") as file:
        file.write(data)


@pytest.fixture
def host():
    made = FakeHost({LOG: f"{HARMLESS}\n", BOOT_ID: "b", "/proc/bus/pci/devices": ""})
    made.system.now, made.system.uptime = 1.7e9 + 60, 3600.0
    return made


def reasons(host):
    host.forget()
    return [(outcome.verdict, outcome.reason) for outcome in judge_all(host, CHECK)]


def test_a_log_is_read_on_behind_the_hole_that_copytruncate_leaves(host):
    """The writer goes on where it stood: NULs up to there, more than one run reads, and then its next line."""
    assert reasons(host) == [(Verdict.OK, "")]
    os.truncate(host.path(LOG), 3 * kmsg.TAIL)
    append(host, f"{XID}\n".encode())
    assert reasons(host) == [(Verdict.CRIT, "Xid79"), (Verdict.WARN, "KernelLogLost"), (Verdict.OK, "")]
    assert reasons(host) == [(Verdict.CRIT, "Xid79"), (Verdict.OK, "")], "said once"


def test_the_hole_is_named_with_its_size(host):
    host.write(LOG, b"")
    os.truncate(host.path(LOG), 2 * kmsg.TAIL)
    append(host, f"{XID}\n".encode())
    message = next(outcome.message for outcome in judge_all(host, CHECK) if outcome.reason == "KernelLogLost")
    assert message.startswith(f"{2 * kmsg.TAIL} bytes of {LOG} are no lines")


@pytest.mark.parametrize("filling", [b"\0", b"x"], ids=["zeros", "one-line"])
def test_what_is_written_out_without_a_line_s_end_is_passed_as_well(host, filling, monkeypatch):
    """Where the file system knows no holes, or a program writes no line break: piece by piece, run by run."""
    monkeypatch.setattr(kmsg, "TAIL", 100_000)
    assert reasons(host) == [(Verdict.OK, "")]
    append(host, filling * 250_000 + b"\n" * (filling == b"x") + f"{XID}\n".encode())
    seen = [reasons(host) for _run in range(4)]
    assert [(Verdict.WARN, "KernelLogLost") in run for run in seen] == [True, True, True, False]
    assert [(Verdict.CRIT, "Xid79") in run for run in seen] == [False, False, True, True]


def test_the_middle_of_an_endless_line_is_nobody_s_message(host, monkeypatch):
    """Only what stands at the beginning of a line can be a message of the kernel's."""
    monkeypatch.setattr(kmsg, "TAIL", 100_000)
    assert reasons(host) == [(Verdict.OK, "")]
    append(host, b"x" * 100_000 + f"{XID[27:]}\n{HARMLESS}\n".encode())
    seen = [reasons(host) for _run in range(2)]
    assert not any((Verdict.CRIT, "Xid79") in run for run in seen)


@pytest.mark.thorough
def test_what_one_run_does_not_read_is_said(host, monkeypatch):
    monkeypatch.setattr(kmsg, "TAIL", 100_000)
    reasons(host)
    append(host, f"{HARMLESS}\n".encode() * 8000 + f"{XID}\n".encode())
    first = judge_all(host, CHECK)
    assert "still to be read: the next run goes on there" in next(o.message for o in first if o.reason)
    for _run in range(8):
        last = reasons(host)
    assert last == [(Verdict.CRIT, "Xid79"), (Verdict.OK, "")]


def test_a_log_that_is_no_file_is_unknown(host):
    host.remove(LOG)
    os.mkfifo(host.path(LOG))
    assert reasons(host) == [(Verdict.UNKNOWN, "KernelLogUnreadable")]


def test_the_agent_follows_a_log_behind_a_hole_and_says_so(tmp_path):
    monitor = load_log_monitor(write(tmp_path, {**KERNEL, "plugin": "filelog", "lookback": "", "logPath": "/log"}))
    host, heard = FakeHost({"/log": "one\n"}), Heard(monitor)
    follower = FileFollower(type("Loop", (), {"after": lambda *_: None})(), host, heard.reader)
    follower._look()
    oom = "Nov 14 22:13:20 n1 kernel: Killed process 42 (python) total-vm:1000kB, anon-rss:1kB"
    with open(host.path("/log"), "ab") as file:
        file.write(b"x" * (CHUNK + 10) + b"\n" + oom.encode() + b"\n")
    follower._look()
    assert heard.events == []
    assert heard.reader.problem.startswith(f"{CHUNK} bytes of /log are no lines")
    follower._look()
    assert len(heard.events) == 1
    assert heard.reader.problem.startswith(f"{CHUNK + 11} bytes")


# The rest of a rotated file is read, too.


def test_what_a_follower_had_not_read_when_the_log_was_rotated_is_read(tmp_path):
    monitor = load_log_monitor(write(tmp_path, {**KERNEL, "plugin": "filelog", "lookback": "", "logPath": "/log"}))
    host, heard = FakeHost({"/log": "one\n"}), Heard(monitor)
    follower = FileFollower(None, host, heard.reader)
    follower._follow("/log")
    with open(host.path("/log"), "ab") as file:
        file.write(b"Nov 14 22:13:20 n1 kernel: Killed process 42 (python) total-vm:1000kB, anon-rss:1kB\n")
    os.rename(host.path("/log"), host.path("/log.1"))
    host.write("/log", "")
    follower._follow("/log")
    assert len(heard.events) == 1


# Files of configuration and the like: whoever reads them.


def configuration(path):
    problems = validate([path]).problems
    if problems:
        raise ValueError(problems[0].show())


READERS = {
    "configuration": configuration,
    "policy": load_policy,
    "agent.toml": load_settings,
    "npd monitor": load_log_monitor,
    "npd rules": load_rules,
    "nodes": from_file,
    "vocabulary": load_vocabulary,
    "sysconfig": read_sysconfig,
    "ssh_config": SshConfig,
    "recording": lambda path: Replay(os.path.dirname(path)),
}


EMPTY = ("configuration", "sysconfig", "ssh_config", "nodes", "policy", "agent.toml")
"""Readers to whom an empty file is one that says nothing."""


@pytest.fixture(params=["device", "pipe", "huge"])
def endless(request, tmp_path):
    path = tmp_path / "machine.json"
    if request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    return str(path)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_takes_what_has_no_end(reader, endless):
    """Each refuses with its own error of one line, which its command shows, and none waits."""
    if stat.S_ISFIFO(os.stat(endless).st_mode) and reader in EMPTY:
        READERS[reader](endless)  # a pipe that nobody writes to is an empty file
        return
    with pytest.raises((OSError, ValueError, RuntimeError)) as refused:
        READERS[reader](endless)
    assert "\n" not in str(refused.value)


def test_site_scripts_and_known_hosts_go_on_without_such_a_file(tmp_path):
    (tmp_path / "endless.nhc").symlink_to("/dev/zero")
    (tmp_path / "good.nhc").write_text("check_site() { :; }\n")
    found = scan([str(tmp_path)])
    assert "check_site" in found.functions
    assert found.notes == (f"{tmp_path}/endless.nhc: not a file: not loaded",)
    assert KnownHosts(["/dev/zero"]).plain == {}


def test_a_pipe_is_read_to_its_end_and_a_file_to_its_limit(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"* || check_fs_mount /\n")
    os.close(writing)
    assert read_bytes(f"/dev/fd/{reading}") == b"* || check_fs_mount /\n"
    os.close(reading)
    path = tmp_path / "large"
    path.write_bytes(b"12345")
    assert read_bytes(str(path), 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bytes(str(path), 4)
    os.truncate(path, LIMIT + 1)
    with pytest.raises(OSError, match="larger than 64 MiB"):
        read_bytes(str(path))


def test_json_of_any_depth_is_a_value_or_one_error():
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 200_000 + "]" * 200_000)


def test_what_is_packed_is_unpacked_within_its_bound():
    large = b"x" * (1 << 20)
    for packed in (zlib.compress(large), gzip.compress(large)):
        assert unpacked(packed, len(large)) == large
        with pytest.raises(TooLarge):
            unpacked(packed, len(large) - 1)
        for damaged in (packed[:-1], packed + b"x", b"x" + packed, b""):
            with pytest.raises(ValueError, match=r"."):
                unpacked(damaged)
    with pytest.raises(ValueError, match="not gzip"):
        unpacked(zlib.compress(large), form=GZIP)


def test_a_log_that_unpacks_without_end_is_not_unpacked():
    log = "/var/log/messages.2.gz"
    host = FakeHost({"/proc/uptime": "100000 1", log: gzip.compress(b"\0" * (65 << 20))})
    with pytest.raises(OSError, match=r"when unpacked"):
        carrier.changes(host, log)


LAUGHS = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><d>&b;</d>'


@pytest.mark.parametrize("read", [bounded_read.parse_xml, parse_devices, parse_qhost, pbs.parse_xml],
                         ids=["plain", "nvidia-smi", "qhost", "pbsnodes"])  # fmt: skip
def test_xml_with_entities_of_its_own_is_refused(read):
    for text in (LAUGHS, "<d>", "<d>&x;</d>", "no xml"):
        with pytest.raises(ValueError, match=r"."):
            read(text)


@pytest.mark.slow
def test_reading_a_log_takes_no_more_memory_than_it_may(tmp_path):
    """nhc log classify: no device but the kernel's own, a line without an end, standard input without one."""

    def classify(*words, given=None):
        code = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (600 << 20,) * 2)\n"
        code += "from nhc.cli.main import entry; entry()"
        argv = [sys.executable, "-c", code, "log", "classify", *words]
        return subprocess.run(argv, stdin=given, capture_output=True, text=True, timeout=60, check=False)

    for device in ("/dev/full", "/dev/zero"):
        done = classify(device)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"nhc log classify: {device}: neither a file nor a pipe\n"
    path = tmp_path / "messages"
    path.write_bytes(f"{XID}\n".encode())
    os.truncate(path, 700 << 20)
    with open(path, "ab") as file:
        file.write(f"\n{XID}\n".encode())
    done = classify(str(path), "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["count"]) == (0, 2)
    assert "bytes in holes or in lines longer than 1 MiB were not read" in done.stderr


# So that the next reader is bounded as well.

OWN = {
    "adapters/nhc_adapters/kubernetes/preflight/certificate.py": "a certificate, 1 MiB of it",
    "nhc/agent/main.py": "the answer of our own child",
    "nhc/cli/main.py": "a standard stream",
    "nhc/core/system/children.py": "/proc's line of numbers",
    "nhc/core/system/steady_time.py": "/proc's boot id",
    "nhc/node/commands/profile.py": "files of the package",
    "nhc/fleet/node_sources.py": "the first 4 KiB",
    "nhc/core/archive/build.py": "files of the package",
    "nhc/core/archive/importer.py": "what we compiled, in a directory that only we can write to",
    "nhc/fleet/commands/fleet_check.py": "one byte, to see that it can be read",
    "nhc/jobs/commands/job_watch.py": "a log, 1 MiB of a line at a time",
    "nhc/deep/journal.py": "/proc/PID/environ, 1 MiB of it",
    "nhc/fleet/bundles.py": "nhc.pyz, which we built",
    "nhc/fleet/html.py": "a file of the package",
    "nhc/fleet/node_session.py": "files of the package",
    "nhc/node/hosts/recording.py": "the lines that we just recorded",
    "nhc/node/hosts/redaction.py": "what was just recorded, in our own directory",
    "nhc/core/language/site_settings.py": "/proc's host name",
    "nhc/marks/policy/ledger.py": "our own directory, root's",
    "nhc/core/state/store.py": "our own directory, 0700",
    "nhc/core/system/process_identity.py": "/proc/PID/stat",
}


def readers(path):
    """Where a module opens a file for reading by itself, or reads standard input to its end."""
    text = path.read_text()
    if not any(word in text for word in ("open(", "read(", "read_text(")):
        return  # to parse all files takes a second
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            mode = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else "r"
            if str(mode)[0] == "r":
                yield node.lineno
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("read", "read_text") and not node.args:
            whole = ast.unparse(node.func)
            if whole.startswith("sys.stdin") or "Path(" in whole:
                yield node.lineno


@pytest.mark.thorough
def test_every_reader_is_bounded_or_reads_what_is_ours():
    found = {
        str(path.relative_to(ROOT)): list(readers(path))
        for part in ("nhc", "adapters")
        for path in sorted((ROOT / part).rglob("*.py"))
        if "data" not in path.parts
    }
    assert {path for path, lines in found.items() if lines} - set(OWN) == set()


@pytest.mark.parametrize("before", [b"", b"Nov 21 02:28:14 n1 kernel: x\n"])
def test_log_classify_reads_the_line_right_behind_a_hole(tmp_path, capsys, before):
    """copytruncate leaves no line's end behind its hole: the next line begins where the NUL bytes end."""
    log = tmp_path / "messages"
    log.write_bytes(before)
    os.truncate(log, 4 << 20)
    with log.open("ab") as file:
        file.write(b"Nov 21 02:28:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert classify_command(str(log)) == 0
    said = capsys.readouterr()
    assert "xid 79" in said.out
    assert f"{(4 << 20) - len(before)} bytes in holes" in said.err
