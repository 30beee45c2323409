"""`nhc fleet check` over a real sshd, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from tests.fleet.conftest import HOSTS, aliases, inventory, over
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
FINE = "* || check_fs_mount /\n"


@pytest.fixture
def fine(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text(FINE)
    return path


def test_equal_results_are_one_line_and_the_worst_comes_first(fleet, few, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(FINE + "gpu03 || check_file_test -f /no/such/file\n")

    done = fleet.check(*over(few), "-w", "gpu[01-04]", "-c", config)

    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("CRIT 1 node gpu03: ")
    assert "check_file_test" in first
    assert second == "OK 3 nodes gpu[01-02,04]"
    assert "4 nodes: 1 CRIT, 3 OK" in done.stdout
    assert done.returncode == 1


def test_a_healthy_fleet_exits_0_and_an_unreached_node_makes_it_3(fleet, few, fine):
    assert fleet.check(*over(few), "-w", "gpu01", "-c", fine).returncode == 0
    done = fleet.check(*over(few), "-w", "gpu[01-02]", "--set", "port=1", "-c", fine)
    assert (done.returncode, "Refused" in done.stdout) == (3, True)


@pytest.mark.parametrize(("limit", "status"), [("1", 0), ("0", 1), ("25%", 0), ("24%", 1)])
def test_as_many_unhealthy_nodes_as_allowed_exit_0(fleet, few, tmp_path, limit, status):
    config = tmp_path / "nhc.conf"
    config.write_text(FINE + "gpu03 || check_file_test -f /no/such/file\n")
    done = fleet.check(*over(few), "-w", "gpu[01-04]", "-c", config, "--max-unhealthy", limit)
    assert done.returncode == status


def test_the_second_sweep_sends_nothing(fleet, few, fine):
    fleet.check(*over(few), "-w", "gpu01", "-c", fine)
    done = fleet.check(*over(few), "-w", "gpu01", "-c", fine, "-f", "jsonl")
    value = json.loads(done.stdout)
    assert (value["verdict"], value["fleet"]["sent"], value["fleet"]["nhc"]) == ("OK", 0, "pushed")


def test_site_scripts_includes_and_profiles_travel(fleet, few, tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "site.nhc").write_text('check_site() { die 1 "the site says $1"; return 1; }\n')
    (tmp_path / "more.conf").write_text("* || check_site no\n")
    (tmp_path / "nhc.conf").write_text("include more.conf\n")

    done = fleet.check(*over(few, scripts=tmp_path / "scripts"), "-w", "gpu01", "-c", tmp_path / "nhc.conf",
                       "-f", "jsonl")  # fmt: skip

    (result,) = json.loads(done.stdout)["results"]
    assert (result["verdict"], result["message"]) == ("CRIT", "the site says no")
    assert result["source"] == f"{tmp_path}/more.conf:1"  # the site's own path, not the node's


def test_json_lines_come_one_a_node_and_each_is_a_report(fleet, few, fine):
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    done = fleet.check(*over(few), "-w", "gpu[01-04]", "-c", fine, "-f", "jsonl")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(report["host"] for report in reports) == ["gpu01", "gpu02", "gpu03", "gpu04"]
    for report in reports:
        jsonschema.validate(report, schema)


def test_json_holds_the_fold_and_reports_that_the_scheduler_sync_reads(fleet, few, fine, tmp_path):
    from nhc.marks.policy.reconcile import load_reports

    done = fleet.check(
        *over(few), "-w", "gpu[01-04]", "-c", fine, "-f", "json", "--set", f"json={tmp_path / 'copy.json'}"
    )
    value = json.loads(done.stdout)
    assert value["counts"]["OK"] == 4
    assert value["folded"] == [[{"verdict": "OK", "nodes": "gpu[01-04]", "count": 4, "check": "", "target": "",
                                 "reason": "", "message": "", "action": "", "causes": []}]]  # fmt: skip
    assert json.loads((tmp_path / "copy.json").read_text())["reports"] == value["reports"]
    assert len(load_reports([str(tmp_path / "copy.json")], lambda path: Path(path).read_text()).reports) == 4


def test_folded_by_check(fleet, few, fine):
    done = fleet.check(*over(few), "-w", "gpu[01-04]", "-c", fine, "--set", "by=check")
    assert "OK check_fs_mount: 4 nodes gpu[01-04]" in done.stdout


def test_an_inventory_says_where_hosts_are(fleet, fine, tmp_path):
    hosts = inventory(tmp_path / "hosts.ini", dict(list(HOSTS.items())[:3]))
    done = fleet.check("-i", hosts, "-c", fine, "-f", "jsonl")
    racks = {report["host"]: report["fleet"]["facts"]["rack"] for report in map(json.loads, done.stdout.splitlines())}
    assert racks == {"gpu01": "r0", "gpu02": "r0", "gpu03": "r0"}
    assert fleet.check("-i", hosts, "-w", "gpu02", "-c", fine).stdout.startswith("OK 1 node gpu02")
    assert fleet.check("-i", hosts, "-l", "gpu[1:2]", "-x", "gpu02", "-c", fine).stdout.startswith("OK 1 node gpu03")


@pytest.mark.parametrize("transport", ["paramiko", "openssh", "local"])
@pytest.mark.service
def test_the_other_transports_say_the_same(fleet, few, fine, transport):
    done = fleet.check(*over(few), "-w", "gpu[01-02]", "-c", fine, "--set", f"transport={transport}")
    assert done.stdout.startswith("OK 2 nodes gpu[01-02]")


def test_a_suite_runs_on_nodes_with_nothing_installed(fleet, few):
    wanted = ("--suite", "prejob", "-f", "jsonl", "--set", "store=sqlite:////no/store.db")
    done = fleet.check(*over(few), "-w", "gpu01", *wanted)  # all nodes here are one machine

    report = json.loads(done.stdout)
    assert (report["host"], report["labels"]["suite"]) == ("gpu01", "prejob")
    assert {result["check"] for result in report["results"]} >= {"check_gpu_lost", "check_gpu_proof"}
    assert done.returncode == 3  # this node has no GPU: nothing was proved
    assert "the results are not in the store" in done.stderr


@pytest.mark.parametrize("words", [
    ["-w", "gpu01", "--suite", "prejob", "--check", "check_fs_mount"], ["-w", "gpu01", "--suite", "../x"],
    ["-w", "gpu[01-"], ["-w", "gpu01", "-c", "/no/such.conf"], ["-i", "/no/such/inventory"], [],
    ["-w", "gpu01", "--apply"], ["-w", "gpu01", "--max-unhealthy", "many"], ["-w", "gpu01", "--mark", "slurmm"],
    ["-w", "gpu01", "--set", "node-dir=relative"], ["-w", "gpu01", "--timeout", "soon"], ["--from", "nobody"],
    ["-w", "gpu01", "--set", "ssh-config=/no/ssh_config"], ["-w", "gpu01", "--set", "html=/no/such/report.html"],
    ["-w", "gpu01", "--set", "json=/"], ["-w", "gpu01", "--max-unhealthy", "nan%"], ["-w", "gpu01", "-t", "0s"],
    ["-w", "gpu01", "-x", "gpu01"], ["-w", "@no-such-group"],
])  # fmt: skip
def test_wrong_usage_is_one_clear_line(fleet, words):
    done = fleet.check(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Error" in done.stderr or len(done.stderr.splitlines()) == 1


def test_a_configuration_that_the_node_refuses_is_said(fleet, few, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("include /no/such/file.conf\n")
    done = fleet.check(*over(few), "-w", "gpu01", "-c", config)
    assert "UNKNOWN 1 node gpu01: BadConfiguration" in done.stdout
    assert "/no/such/file.conf" in done.stdout


def test_killing_the_client_ends_what_runs_on_the_node(fleet, few, tmp_path):
    mark = f"sleep 2{os.getpid()}"
    config = tmp_path / "nhc.conf"
    config.write_text(f"* || {mark}\n")
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "XDG_CACHE_HOME": str(fleet.cache)}
    argv = [sys.executable, "-m", "nhc", "fleet", "check", *over(few), "-w", "gpu01", "-c", str(config),
            "-t", "300s", "--set", f"node-dir={fleet.node_dir}", "--set", "keep-history=false"]  # fmt: skip
    client = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: running(mark), what="the check")
    finally:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()
    until(lambda: not running(mark), what="the end of the check")


def running(command: str) -> bool:
    found = subprocess.run(["pgrep", "-fx", command], check=False, capture_output=True)
    return found.returncode == 0


def test_interrupting_shows_what_is_there(fleet, tmp_path, fine, server):
    config = tmp_path / "nhc.conf"
    config.write_text(FINE + "gpu02 || sleep 600\n")
    names = aliases(server, dict(list(HOSTS.items())[:2]), tmp_path / "ssh_config")
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "XDG_CACHE_HOME": str(fleet.cache),
               "NHC_FLEET_HISTORY": str(fleet.history)}  # fmt: skip
    argv = [sys.executable, "-m", "nhc", "fleet", "check", *over(names), "-w", "gpu[01-02]", "-c", str(config),
            "-f", "jsonl", "-t", "300s", "--set", f"node-dir={fleet.node_dir}"]  # fmt: skip
    # Tests may run in the background, where this signal is ignored, and children inherit that.
    client = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    assert client.stdout is not None
    assert json.loads(client.stdout.readline())["host"] == "gpu01"
    begin = time.monotonic()
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=60)
    assert time.monotonic() - begin < 60
    assert client.returncode == 130
    assert "interrupted: 1 node not judged: gpu02" in said
