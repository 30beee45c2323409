"""Every kind of bad host is that node's UNKNOWN, with the reason, within the deadline, beside healthy ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fleet.conftest import HOSTS, Fleet, aliases, inventory, over
from tests.support import ssh
from tests.support.require import need
from tests.support.waiting import until

HOSTILE = Path(__file__).with_name("hostile.py")
FINE = "* || check_fs_mount /\n"


@pytest.fixture
def fine(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text(FINE)
    return path


def reports(done):
    return {report["host"]: report for report in map(json.loads, done.stdout.splitlines())}


def reason(report):
    return report["results"][0]["reason"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hostile")
    with ssh.sshd(directory, more=f"ForceCommand {sys.executable} -I -S {HOSTILE}") as server:
        server.trust([f"127.0.2.{number}" for number in range(1, 20)])
        yield server


EXPECTED = {
    "hung_login": "HungLogin", "hung_command": "HungCommand", "truncated": "Truncated", "endless": "HostileOutput",
    "endless_report": "OutputTooLarge", "not_json": "NotAReport", "gpu07": "AnotherHost", "evil": "Bad31mB",
    "asks": "HostileOutput", "no_python": "NoPython", "chatty": "", "crossed": "AnotherHost",
    "infinite": "NotAReport",
}  # fmt: skip


@pytest.fixture(scope="module")
def swept(hostile, shared, tmp_path_factory):
    """One sweep over all of them, and how long it took."""
    tmp_path = tmp_path_factory.mktemp("swept")
    hosts = {name: f"127.0.2.{number}" for number, name in enumerate(EXPECTED, 1)}
    config = aliases(hostile, hosts, tmp_path / "ssh_config")
    fleet = Fleet(None, shared / "cache", shared / "node", tmp_path / "history.sqlite")
    begin = time.monotonic()
    done = fleet("check", *over(config), "-w", ",".join(hosts), "--set", "connect-timeout=4s",
                 "-t", "1s", "-f", "jsonl",
                 "--set", f"html={tmp_path / 'report.html'}", "--set", f"node-dir={fleet.node_dir}")  # fmt: skip
    return done, time.monotonic() - begin, tmp_path


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hostile_answer_is_unknown_with_its_reason(swept, name):
    done, _seconds, _path = swept
    report = reports(done)[name]
    assert reason(report) == EXPECTED[name]
    if name not in ("evil", "chatty"):
        assert report["verdict"] == "UNKNOWN"


def test_all_of_them_end_within_their_deadline(swept):
    done, seconds, _path = swept
    assert not done.stderr
    assert seconds < 50  # connecting 4, the run 1, grace 10, start and load of the machine


def test_control_characters_and_wild_numbers_do_not_get_through(swept):
    done, _seconds, path = swept
    report = reports(done)["evil"]
    (result,) = report["results"]
    assert result["message"] == "a ]0;owned b c d"
    assert result["metrics"] == [{"name": "m", "value": 1.5, "unit": ""}]
    assert report["started"] < 1e11
    page = (path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page + done.stdout


def test_refused_and_silent_hosts_do_not_hold_up_the_good_ones(fleet, fine, tmp_path, server):
    with ssh.listener(ssh.silent) as (host, port):
        more = [f"refused{n} ansible_host=127.0.0.1 ansible_port=1" for n in range(4)]
        more += [f"silent{n} ansible_host={host} ansible_port={port}" for n in range(4)]
        hosts = inventory(tmp_path / "hosts.ini", dict(list(HOSTS.items())[:6]), "\n".join(more))
        begin = time.monotonic()
        done = fleet.check("-i", hosts, "-c", fine, "-f", "jsonl", "--set", "fanout=4", "--set", "connect-timeout=3s")
        seconds = time.monotonic() - begin
    found = reports(done)
    assert [reason(found[f"refused{n}"]) for n in range(4)] == ["Refused"] * 4
    assert [reason(found[f"silent{n}"]) for n in range(4)] == ["NoBanner"] * 4
    assert sum(report["verdict"] == "OK" for report in found.values()) == 6
    assert seconds < 40


def test_a_changed_host_key_is_never_accepted(fleet, fine, tmp_path, server):
    other = ssh.keygen(tmp_path / "other_key")
    config = aliases(server, {"gpu01": "127.0.3.1"}, tmp_path / "ssh_config")
    known = tmp_path / "known_hosts"
    key = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    known.write_text(f"[127.0.3.1]:{server.port} {key}\n")
    config.write_text(f"Host *\n  UserKnownHostsFile {known}\n" + config.read_text())
    for transport in ("ssh", "paramiko", "openssh"):
        done = fleet.check(
            *over(config), "-w", "gpu01", "-c", fine, "--set", "accept-new=true", "--set", f"transport={transport}"
        )
        assert "UNKNOWN 1 node gpu01: HostKey" in done.stdout, transport
        assert re.search("host key is not the one in known_hosts|Host key for .* has changed", done.stdout), transport
    assert known.read_text().count("\n") == 1


def test_an_unknown_host_key_is_accepted_only_when_asked(fleet, fine, tmp_path, server):
    config = aliases(server, {"gpu01": "127.0.3.2"}, tmp_path / "ssh_config")
    known = tmp_path / "known_hosts"
    config.write_text(f"Host *\n  UserKnownHostsFile {known}\n" + config.read_text())
    for transport in ("ssh", "paramiko", "openssh"):
        said = fleet.check(*over(config), "-w", "gpu01", "-c", fine, "--set", f"transport={transport}").stdout
        assert re.search("HostKey: .* host key is (not in known_hosts|known for)", said), said
    assert not known.exists()
    assert fleet.check(*over(config), "-w", "gpu01", "-c", fine, "--set", "accept-new=true").returncode == 0
    assert known.read_text() == f"[127.0.3.2]:{server.port} {server.public_host_key}\n"
    assert fleet.check(*over(config), "-w", "gpu01", "-c", fine).returncode == 0


def test_a_key_that_is_not_let_in_is_said(fleet, fine, few, tmp_path):
    other = ssh.keygen(tmp_path / "other_key")
    config = tmp_path / "ssh_config"
    config.write_text(few.read_text().replace(str(fleet.server.identity), str(other)))
    for transport in ("ssh", "paramiko", "openssh"):
        done = fleet.check(*over(config), "-w", "gpu01", "-c", fine, "--set", f"transport={transport}")
        assert "UNKNOWN 1 node gpu01: AuthFailed" in done.stdout, transport


def test_a_command_that_hangs_is_ended_on_the_node(fleet, few, tmp_path):
    mark = f"sleep 3{os.getpid()}"
    config = tmp_path / "nhc.conf"
    config.write_text(f"gpu02 |timeout 300s| {mark}\n{FINE}")
    done = fleet.check(*over(few), "-w", "gpu[01-02]", "-c", config, "-t", "2s", "-f", "jsonl")
    found = reports(done)
    assert found["gpu01"]["verdict"] == "OK"
    assert found["gpu02"]["verdict"] == "UNKNOWN"
    until(lambda: subprocess.run(["pgrep", "-fx", mark], check=False, capture_output=True).returncode == 1)


@pytest.mark.parametrize("size", ["64k", "900k"])
def test_a_full_disk_is_said(size, tmp_path, shared, fine):
    need("root", os.geteuid() == 0, "to mount a small file system")
    full = tmp_path / "full"
    full.mkdir()
    with ssh.sshd(tmp_path / "sshd", prepare=[f"mount -t tmpfs -o size={size} none {full}"]) as server:
        server.trust(["127.0.0.1"])
        fleet = Fleet(server, shared / "cache", full / "node", tmp_path / "history.sqlite")
        done = fleet.check("-w", "127.0.0.1", "-c", fine)
    assert "UNKNOWN 1 node 127.0.0.1: DiskFull" in done.stdout
    assert done.returncode == 3


def test_a_node_without_python_says_so(tmp_path, shared, fine):
    need("root", os.geteuid() == 0, "to hide Python from the server")
    empty = tmp_path / "bin"
    empty.mkdir()
    with ssh.sshd(tmp_path / "sshd", more=f"SetEnv PATH={empty}") as server:
        server.trust(["127.0.0.1"])
        fleet = Fleet(server, shared / "cache", shared / "node", tmp_path / "history.sqlite")
        done = fleet.check("-w", "127.0.0.1", "-c", fine)
    assert "UNKNOWN 1 node 127.0.0.1: NoPython" in done.stdout


@pytest.fixture
def swallowing():
    """An address behind a veth pair that takes every packet and answers none."""
    ip = shutil.which("ip") or "/usr/sbin/ip"
    need("network namespaces", os.geteuid() == 0 and os.path.exists(ip))
    tag = f"n{os.getpid() % 100000}"
    made = [
        ["netns", "add", tag],
        ["link", "add", f"{tag}a", "type", "veth", "peer", "name", f"{tag}b"],
        ["link", "set", f"{tag}b", "netns", tag],
        ["addr", "add", "10.99.7.1/24", "dev", f"{tag}a"],
        ["link", "set", f"{tag}a", "up"],
        ["-n", tag, "link", "set", f"{tag}b", "up"],
    ]
    try:
        for words in made:
            if subprocess.run([ip, *words], check=False, capture_output=True).returncode:
                need("network namespaces", False, " ".join(words))
        for last in range(2, 10):  # a link-layer address for hosts that are not there: no "no route to host"
            subprocess.run([ip, "neigh", "replace", f"10.99.7.{last}", "lladdr", "02:00:00:00:00:02", "dev", f"{tag}a"],
                           check=True)  # fmt: skip
        yield [f"10.99.7.{last}" for last in range(2, 10)]
    finally:
        subprocess.run([ip, "link", "del", f"{tag}a"], check=False, capture_output=True)
        subprocess.run([ip, "netns", "del", tag], check=False, capture_output=True)


def test_hosts_that_swallow_packets_do_not_keep_good_ones_waiting(fleet, fine, tmp_path, swallowing):
    """They fill the whole fan-out first; the good ones are judged before the first of them is given up."""
    lost = {f"gone{number}": address for number, address in enumerate(swallowing)}
    good = dict(list(HOSTS.items())[:4])
    hosts = inventory(tmp_path / "hosts.ini", {**lost, **good})
    fleet.check("-i", hosts, "-l", "gpu01", "-c", fine)  # sends nhc, where no other test has yet
    done = fleet.check(
        "-i", hosts, "-c", fine, "-f", "jsonl", "--set", "fanout=8", "--set", "shards=1", "--set", "connect-timeout=6s"
    )
    found = reports(done)
    assert {reason(found[name]) for name in lost} == {"ConnectTimeout"}
    assert {found[name]["verdict"] for name in good} == {"OK"}
    assert max(found[name]["started"] for name in good) < min(found[name]["started"] for name in lost)


def test_a_connection_that_breaks_is_tried_again_and_no_more(fleet, fine, tmp_path, server):
    seen = []

    def flaky(connection):
        seen.append(connection)
        if len(seen) == 1:  # what sshd does above MaxStartups
            connection.close()
            return
        relay(connection, server.port)

    with ssh.listener(flaky) as (host, port):
        hosts = tmp_path / "hosts.ini"
        hosts.write_text(f"gpu01 ansible_host={host} ansible_port={port}\n")
        known = server.known_hosts.read_text() + f"[{host}]:{port} {server.public_host_key}\n"
        (tmp_path / "known").write_text(known)
        config = tmp_path / "ssh_config"
        config.write_text(f"Host *\n  UserKnownHostsFile {tmp_path / 'known'}\n" + server.config.read_text())
        done = fleet.check(*over(config), "-i", hosts, "-c", fine, "-f", "jsonl")
        report = reports(done)["gpu01"]
        assert (report["verdict"], report["fleet"]["attempts"]) == ("OK", 2)

        seen.clear()
        done = fleet.check(*over(config), "-i", hosts, "-c", fine, "-f", "jsonl", "--set", "retries=0")
        report = reports(done)["gpu01"]
        assert (reason(report), report["fleet"]["attempts"]) == ("ConnectionLost", 1)


def test_all_tries_together_stay_within_the_time_for_connecting(fleet, fine, tmp_path, swallowing):
    """Each connection to `slow` breaks after 1.2 s, which is worth another try."""

    def breaks(connection):
        time.sleep(1.2)
        connection.close()

    with ssh.listener(breaks) as (host, port):
        hosts = inventory(
            tmp_path / "hosts.ini", {"gone": swallowing[0]}, f"slow ansible_host={host} ansible_port={port}"
        )
        done = fleet.check("-i", hosts, "-c", fine, "-f", "jsonl", "--set", "connect-timeout=3s", "--set", "retries=9")
    found = reports(done)
    assert reason(found["slow"]) in ("ConnectionLost", "NoBanner")  # where the time ends: between tries, or in one
    assert reason(found["gone"]) == "ConnectTimeout"
    assert found["slow"]["fleet"]["attempts"] > 1
    assert found["slow"]["fleet"]["seconds"] < 8  # ten tries would take twelve
    assert 2.9 < found["gone"]["fleet"]["seconds"] < 5.5  # two tries would take six


@pytest.mark.slow
def test_a_run_that_breaks_off_is_tried_again_within_what_is_left_of_its_time(tmp_path):
    from nhc.fleet import node_session, sweep, worker
    from nhc.fleet.bundles import SiteFiles
    from nhc.fleet.transport import Node, Trouble

    class Immediate:
        def connect(self, node, deadline):
            return self

        def close(self):
            """Nothing is open."""

    def breaks(session, node, task):  # in a shard, which is another process
        with (tmp_path / "given").open("a") as file:
            file.write(f"{task.seconds}\n")
        time.sleep(1.0)
        raise Trouble("ConnectionLost", "it broke", passing=True)

    task = node_session.SweepTask(None, SiteFiles(None, ()), seconds=3.0, login=0.2)
    settings = worker.SweepSettings(task, {"ssh": Immediate()}, shards=1, connect=1.7, retries=9, judge=breaks)
    begin = time.monotonic()
    (found,) = sweep.sweep([Node("n1")], settings)
    assert time.monotonic() - begin < 1.7 + 0.2 + 3.0 + 2 * node_session.GRACE + 1
    seconds = [float(line) for line in (tmp_path / "given").read_text().split()]
    assert len(seconds) == json.loads(found.text())["fleet"]["attempts"] > 1
    assert seconds[0] == 3.0
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < 3.0


def relay(connection, port):
    """Pass a connection on to a server."""
    import socket
    import threading

    other = socket.create_connection(("127.0.0.1", port))

    def pump(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    back = threading.Thread(target=pump, args=(other, connection), daemon=True)
    back.start()
    pump(connection, other)
    back.join(60)
    other.close()


def test_a_shard_that_is_killed_loses_no_node(fleet, few, tmp_path):
    from nhc.fleet import node_session, sweep, worker
    from nhc.fleet.bundles import SiteFiles
    from nhc.fleet.transport import Node

    class Suicidal:
        def connect(self, node, deadline):
            if node.name == "n5":
                os.kill(os.getpid(), 9)
            time.sleep(60)

        def close(self):
            """Nothing is open."""

    nodes = [Node(f"n{number}") for number in range(6)]
    settings = worker.SweepSettings(
        node_session.SweepTask(None, SiteFiles(None, ())), {"ssh": Suicidal()}, shards=1, fanout=6
    )
    found = [json.loads(arrived.text()) for arrived in sweep.sweep(nodes, settings)]
    assert sorted(report["host"] for report in found) == [f"n{number}" for number in range(6)]
    assert {reason(report) for report in found} == {"SweepBroken"}


@pytest.mark.slow
def test_a_resolver_that_hangs_is_given_up(monkeypatch):
    import socket

    from nhc.fleet import node_session, sweep, worker
    from nhc.fleet.bundles import SiteFiles
    from nhc.fleet.ssh.config import SshConfig
    from nhc.fleet.ssh.known_hosts import HostKeys
    from nhc.fleet.ssh.transport_paramiko import Paramiko
    from nhc.fleet.transport import Node

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_more: time.sleep(60))
    settings = worker.SweepSettings(
        node_session.SweepTask(None, SiteFiles(None, ())),
        {"ssh": Paramiko(SshConfig("/dev/null"), HostKeys())},
        shards=1,
        connect=0.5,
    )
    begin = time.monotonic()
    (found,) = sweep.sweep([Node("somewhere.example")], settings)
    assert reason(json.loads(found.text())) == "Timeout"
    assert time.monotonic() - begin < 40
