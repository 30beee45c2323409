"""Each unit of adapters/systemd, started for real by systemd, with the checks under its hardening."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Dict, List, Tuple

import pytest

from tests.machines.conftest import Node
from tests.support.install import UNITS
from tests.support.waiting import until

BROAD = """\
* || check_kmsg
* || check_kmsg --source journal
* || check_hw_physmem 1k 9999g
* || check_hw_cpuinfo
* || check_fs_mount_rw -f /
* || check_fs_mount_ro -f /
* || check_fs_mount -t tmpfs -f /tmp
* || check_mount_readonly
* || check_fs_free / 1%
* || check_fs_ifree / 1%
* || check_ps_service -u root sshd
* || check_ps_loadavg 9999 9999 9999
* || check_ps_unauth_users
* || check_ps_dstate
* || check_ps_zombies
* || check_oom_kills
* || check_smart_health
* || check_nvme_count 0
* || check_nvme_health
* || check_pcie_aer
* || check_cpu_clocksource
* || check_cmd_status -t 5 -r 0 /bin/true
* || check_cmd_output -m /uid=0/ id
* || test -w /tmp && touch /tmp/nhc-shell-line && rm /tmp/nhc-shell-line
* || echo probe > /var/tmp/nhc-probe && rm /var/tmp/nhc-probe
* || install -d -o nobody /tmp/nhc-home && touch /tmp/nhc-home/probe && rm -r /tmp/nhc-home
* || python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)'
* || su -s /bin/sh nobody -c 'touch /tmp/nhc-nobody && rm /tmp/nhc-nobody'
* || check_file_test -r /etc/shadow
* || check_file_test -w /var/tmp
* || check_file_stat -m 0755 /etc
* || check_net_socket -t tcp -s LISTEN
* || check_net_ping 127.0.0.1
* || check_eth_errors
* || check_kernel_taint
* || check_kernel_modules loop
* || check_clock_sync
* || check_clock_offset 10s
* || check_dns_resolve localhost
* || check_systemd_failed
* || check_systemd_units nhc-agent.service
* || check_limits_fds
* || check_uptime
* || check_reboot_pending
* || check_gpu_count 0
* || check_ib_ports 0
"""
SICK = "* || check_file_test -f /etc/nonesuch\n"


def verdicts(results: List[Any]) -> Dict[Tuple[str, str], Tuple[str, str]]:
    return {(one["line"], one.get("target") or ""): (one["verdict"], one.get("reason", "")) for one in results}


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_systemd_finds_no_fault_with_a_unit(node: Node, unit: str) -> None:
    assert node.run(f"systemd-analyze verify --man=yes {unit} 2>&1") == ""


def test_the_agents_unit_is_closed_as_far_as_checks_allow(node: Node) -> None:
    said = node.run("systemd-analyze security --no-pager nhc-agent.service")
    exposure = re.search(r"Overall exposure level for nhc-agent.service: ([\d.]+)", said)
    assert exposure, said
    assert float(exposure[1]) <= 7.0, said


@pytest.mark.service
def test_a_started_unit_is_ready_and_its_directories_are_its_own(node: Node) -> None:
    node.reset()
    node.put("/etc/nhc/nhc.conf", "* || check_uptime\n")
    node.put("/etc/nhc/agent.toml", "[agent]\nlisten = []\n")
    node.run("systemctl start nhc-agent && nhc status agent >/dev/null; [ $? != 2 ]")  # it answers once it is started
    assert node.run("systemctl show -P ActiveState -P SubState nhc-agent").split() == ["active", "running"]
    modes = node.run("stat -c %a:%U /run/nhc /run/nhc/agent.sock /var/lib/nhc").split()
    assert modes == ["700:root", "600:root", "750:root"]


HOST = "nhc-serve.service"


def test_whatever_starts_first_every_directory_keeps_its_user(node: Node) -> None:
    """Each unit with its user and its directories; a sleep stands for the program, of which parts are not here."""
    node.reset()
    node.run("id -u nhc >/dev/null 2>&1 || useradd --system --home /var/lib/nhc-server nhc")
    node.run("rm -rf /var/lib/nhc-server; mkdir -p /etc/nhc; touch /etc/nhc/gate.toml /etc/nhc/deep-sweep.env")
    every = sorted(path.name for path in UNITS.glob("*.service"))
    alone = re.findall(r"[\w-]+\.service", re.findall("(?m)^Conflicts=(.*)", (UNITS / HOST).read_text())[0])
    units = [unit for unit in every if unit != HOST]
    hosted = [HOST, *(unit for unit in units if unit not in alone)]  # one process in place of four
    for unit in every:
        node.put(
            f"/run/systemd/system/{unit}.d/sleep.conf",
            "[Service]\nType=exec\nExecStartPre=\nExecStart=\nExecStart=/usr/bin/sleep infinity\n",
        )
    node.run("systemctl daemon-reload")
    owners = "stat -c '%U %a %n' /var/lib/nhc /var/lib/nhc-server /var/lib/nhc/gate.json /var/lib/nhc-server/store.db"
    try:
        for order in (units, units[::-1], hosted):
            node.run(f"systemctl start {order[0]}")
            node.run(f"systemctl start {' '.join(order)}")
            node.run("touch /var/lib/nhc/gate.json")
            node.run("su -s /bin/sh nhc -c 'umask 77; touch /var/lib/nhc-server/store.db'")
            for unit in order:
                node.run(f"systemctl restart {unit}")
            assert node.run(owners).split("\n")[:4] == [
                "root 750 /var/lib/nhc", "nhc 700 /var/lib/nhc-server", "root 644 /var/lib/nhc/gate.json",
                "nhc 600 /var/lib/nhc-server/store.db",
            ]  # fmt: skip
            node.run(f"systemctl stop {' '.join(order)}; rm -rf /var/lib/nhc /var/lib/nhc-server")
    finally:
        node.run(
            f"systemctl stop {' '.join(every)}; rm -rf /run/systemd/system/nhc-*.service.d /var/lib/nhc-server; "
            "rm -f /etc/nhc/gate.toml /etc/nhc/deep-sweep.env; systemctl daemon-reload; systemctl reset-failed"
        )


def test_no_check_says_otherwise_within_the_unit(node: Node) -> None:
    node.start(BROAD, kernel_log=True)
    within: Dict[Tuple[str, str], Tuple[str, str]] = {}

    def differing() -> Dict[Any, Any]:
        node.run("nhc agent check", check=False)
        within.clear()
        within.update(verdicts(json.loads(node.run("cat /run/nhc/report-agent.json"))["results"]))
        outside = verdicts(json.loads(node.run("nhc check local --all -f json", check=False))["results"])
        return {key: (within.get(key), outside.get(key)) for key in {*within, *outside}
                if within.get(key, ("-",))[0] != outside.get(key, ("-",))[0]}  # fmt: skip

    # Other tests change what both judge, this kernel's log and counters: a difference that stays is the unit's.
    until(lambda: not differing(), what="the same verdicts", said=differing)
    assert sum(verdict == "OK" for verdict, _reason in within.values()) >= 20


def test_a_reload_takes_a_good_configuration_and_refuses_a_bad_one(node: Node) -> None:
    node.start("* || check_uptime\n")
    node.put("/etc/nhc/nhc.conf", "* || check_uptime\n* || check_kernel_taint\n")
    node.run("systemctl reload nhc-agent")
    assert len(node.status()["checks"]) == 2
    node.put("/etc/nhc/nhc.conf", "* || check_uptimes\n")
    node.run("! systemctl reload nhc-agent 2>/dev/null")
    assert node.run("systemctl is-active nhc-agent").strip() == "active"
    status = node.status()
    assert len(status["checks"]) == 2
    assert "check_uptimes" in status["config_problems"][0]


def test_commands_find_an_agent_that_listens_where_its_settings_say(node: Node) -> None:
    node.reset()
    node.put("/etc/nhc/nhc.conf", "* || check_uptime\n")
    node.put("/etc/nhc/agent.toml", '[agent]\nlisten = []\nkernel-log = false\nsocket = "/run/nhc/other.sock"\n')
    node.run("systemctl start nhc-agent")
    assert node.run("ls /run/nhc/*.sock").split() == ["/run/nhc/other.sock"]
    assert len(node.judged()["checks"]) == 1
    node.run("systemctl reload nhc-agent")


def test_a_stop_does_not_wait_for_a_hung_check(node: Node) -> None:
    node.start("* || check_uptime\n")
    node.put("/etc/nhc/nhc.conf", "* |timeout 10m| trap '' TERM; touch /run/hangs; while :; do sleep 1000; done\n")
    node.run("systemctl reload nhc-agent")
    node.until(lambda: node.run("ls /run/hangs", check=False))
    begin = time.monotonic()
    node.run("systemctl stop nhc-agent")
    assert time.monotonic() - begin < 60, "the check takes ten minutes"
    assert node.run("systemctl show -P Result nhc-agent").strip() == "success", "within TimeoutStopSec, not killed"
    assert node.run("pgrep -f 'sleep 1000'", check=False) == ""


def test_a_restart_neither_ends_a_fault_nor_tells_it_again(node: Node) -> None:
    node.start(SICK)
    node.until(lambda: node.events("problem.began"))
    node.run("systemctl restart nhc-agent")
    assert [one["verdict"] for one in node.judged()["problems"]] == ["CRIT"]
    before = node.run("systemctl show -P MainPID nhc-agent").strip()
    node.run(f"kill -KILL {before}")
    node.until(lambda: node.run("systemctl show -P MainPID nhc-agent").strip() not in ("0", before) and node.status())
    assert [one["verdict"] for one in node.judged()["problems"]] == ["CRIT"]
    assert len(node.events("problem.began")) == 1
    assert node.events("problem.ended") == []
    assert len(node.events("agent.started")) == 3


def test_an_agent_that_does_not_go_round_is_started_anew(node: Node) -> None:
    node.put("/etc/systemd/system/nhc-agent.service.d/soon.conf", "[Service]\nWatchdogSec=4s\nRestartSec=0\n")
    node.put("/etc/nhc/nhc.conf", "* || check_uptime\n")
    node.put("/etc/nhc/agent.toml", "[agent]\nlisten = []\nkernel-log = false\n")
    node.run("systemctl daemon-reload; systemctl start nhc-agent")
    node.judged()
    before = node.run("systemctl show -P MainPID nhc-agent").strip()
    told = node.run("systemctl show -P WatchdogTimestampMonotonic nhc-agent")
    node.until(lambda: node.run("systemctl show -P WatchdogTimestampMonotonic nhc-agent") != told)
    assert node.run("systemctl show -P MainPID nhc-agent").strip() == before, "it goes round, and says so"
    node.run(f"kill -STOP {before}")
    node.until(lambda: node.run("systemctl show -P MainPID nhc-agent").strip() not in ("0", before))
    assert node.run("systemctl show -P NRestarts nhc-agent").strip() == "1"
    node.judged()


def test_the_timer_checks_a_node_without_an_agent(node: Node) -> None:
    node.reset()
    node.put("/etc/nhc/nhc.conf", SICK)
    node.run("mkdir -p /etc/systemd/system/nhc-check.timer.d")
    node.put("/etc/systemd/system/nhc-check.timer.d/soon.conf", "[Timer]\nOnActiveSec=0\nRandomizedDelaySec=0\n")
    node.run("systemctl daemon-reload; systemctl start nhc-check.timer")
    report = node.until(lambda: node.run("cat /run/nhc/report.json", check=False))
    assert json.loads(report)["verdict"] == "CRIT"
    node.until(lambda: node.run("systemctl show -P ActiveState nhc-check").strip() == "inactive")
    assert node.run("systemctl show -P Result nhc-check").strip() == "success", "a sick node is no failed unit"
    assert node.run("stat -c %a /run/nhc").strip() == "700"
