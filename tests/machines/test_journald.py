"""The real journald as the kernel's log: what a run reads of it, and how the agent follows it."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Iterator

import pytest

from tests.machines.conftest import Node

RULES = "/etc/nhc/rules.json"
BOOT_ID = "/run/boot_id"  # the machine's own, bound to where the kernel shows its own


@pytest.fixture
def fault(node: Node) -> Iterator[str]:
    """A word of this test alone: the kernel's ring is shared with the system that runs the tests."""
    word = f"frob{uuid.uuid4().hex[:8]}"
    node.put(RULES, json.dumps({
        "plugin": "kmsg", "source": "site", "conditions": [{"type": "Frob", "reason": "FrobIsWell", "message": "well"}],
        "rules": [{"type": "permanent", "condition": "Frob", "reason": "FrobBroke", "pattern": f"{word} \\w+ broke"}],
    }))  # fmt: skip
    node.reset()
    node.put("/etc/nhc/nhc.conf", f"* || check_kmsg --source journal --npd-rules {RULES}\n")
    yield word
    node.run("rm -f /etc/nhc/agent.toml")


def judge(node: Node) -> dict[str, Any]:
    """The results of one run, by reason."""
    report = json.loads(node.run("nhc check local --all -f json", check=False))
    return {one.get("reason", ""): one for one in report["results"]}


def lines(result: Any) -> int:
    """How many lines a finding was made of."""
    said = re.search(r"\[(\d+) lines", result["message"])
    return int(said[1]) if said else 1


@pytest.mark.service
def test_each_line_is_read_once_across_runs_and_a_rotation(node: Node, fault: str) -> None:
    assert "FrobBroke" not in judge(node)
    node.say(f"{fault} one broke")
    assert lines(judge(node)["FrobBroke"]) == 1
    assert lines(judge(node)["FrobBroke"]) == 1
    node.say(f"{fault} two broke")
    node.run("journalctl --rotate")
    node.say(f"{fault} three broke")
    found = judge(node)
    assert lines(found["FrobBroke"]) == 3
    assert "KernelLogLost" not in found


def test_the_word_before_the_colon_is_part_of_the_line(node: Node, fault: str) -> None:
    node.say(f"{fault}: one broke")
    node.put(RULES, node.run(f"cat {RULES}").replace(f"{fault} ", f"{fault}: "))
    assert lines(judge(node)["FrobBroke"]) == 1


def test_what_was_thrown_away_unread_is_said(node: Node, fault: str) -> None:
    judge(node)
    node.say(f"{fault} one broke")
    node.run("journalctl --rotate; journalctl --rotate --vacuum-time=1us")
    node.say(f"{fault} two broke")
    node.say(f"{fault} three broke")
    found = judge(node)
    assert found["KernelLogLost"]["verdict"] == "WARN"
    assert lines(found["FrobBroke"]) == 2
    assert "KernelLogLost" not in judge(node)


def test_the_past_boot_is_not_read(node: Node, fault: str) -> None:
    node.say(f"{fault} one broke")
    assert "FrobBroke" in judge(node)
    boot = node.run(f"cat {BOOT_ID}")
    node.put(BOOT_ID, f"{uuid.uuid4()}\n")
    try:
        assert "FrobBroke" not in judge(node)
    finally:
        node.put(BOOT_ID, boot)


def child(node: Node) -> str:
    return node.run("pgrep -x journalctl", check=False).strip()


def began(node: Node, what: str = "began") -> int:
    """How often our own fault began: what the kernel said to others is no matter."""
    return sum(event["reason"] == "FrobBroke" for event in node.events(f"problem.{what}"))


def test_the_agent_hears_a_line_at_once_and_goes_on_when_journalctl_dies(node: Node, fault: str) -> None:
    node.start(f"* |every 10m| check_kmsg --source journal --npd-rules {RULES}\n", kernel_log=True)
    assert node.status()["kernel_log"]["journald"]
    assert began(node) == 0
    node.say(f"{fault} one broke")
    node.until(lambda: began(node) == 1, within=60)
    node.run("nhc ack agent --all >/dev/null")
    node.until(lambda: began(node, "ended") == 1)
    before = child(node)
    node.run(f"kill -KILL {before}")
    node.say(f"{fault} two broke")
    node.until(lambda: began(node) == 2, within=60)
    node.until(
        lambda: child(node) not in ("", before)
    )  # what it said may be read by the round, before it is started anew
    assert "journalctl ended" in node.run("journalctl -u nhc-agent -o cat")
    node.run("systemctl kill -s KILL --kill-whom=main nhc-agent; sleep 0.5; systemctl stop nhc-agent")
    assert child(node) == "", "it does not outlive the agent"


@pytest.mark.usefixtures("kernel_log_alone")
def test_without_dev_kmsg_the_agent_follows_journald(node: Node, fault: str) -> None:
    node.put("/etc/systemd/system/nhc-agent.service.d/no-kmsg.conf", "[Service]\nInaccessiblePaths=/dev/kmsg\n")
    node.put("/etc/nhc/nhc.conf", "* |every 10m| check_kmsg\n")
    node.put("/etc/nhc/agent.toml", '[agent]\nlisten = []\n[events]\npath = "/var/lib/nhc/events.jsonl"\n')
    node.run("systemctl daemon-reload; systemctl start nhc-agent")
    log = node.judged()["kernel_log"]
    assert (log["live"], log["journald"]) == (False, True), log
    device = f"0000:{uuid.uuid4().hex[:2]}:1f.0"
    node.say(f"NVRM: Xid (PCI:{device[:-2]}): 79, pid=1, GPU has fallen off the bus. (nhc-drill)")
    node.until(lambda: any(event["target"] == device for event in node.events("problem.began")), within=60)
    node.say("nhc-drill ended")


def test_a_monitor_of_journald_goes_on_where_the_last_life_of_the_agent_ended(node: Node, fault: str) -> None:
    monitor = {
        "plugin": "journald", "pluginConfig": {"source": fault}, "logPath": "/var/log/journal", "lookback": "5m",
        "bufferSize": 10, "source": "frob-monitor", "metricsReporting": True,
        "conditions": [{"type": "Frob", "reason": "FrobIsWell", "message": "well"}],
        "rules": [{"type": "permanent", "condition": "Frob", "reason": "FrobBroke", "pattern": "\\w+ broke"},
                  {"type": "temporary", "reason": "FrobBlip", "pattern": "blip \\w+"}],
    }  # fmt: skip
    node.put("/etc/nhc/monitor.json", json.dumps(monitor))
    address = f"{node.machine.address}:20258"
    node.start("* || check_uptime\n", '[npd]\nsystem-log-monitor = ["/etc/nhc/monitor.json"]\n')
    node.put("/etc/nhc/agent.toml", node.run("cat /etc/nhc/agent.toml").replace("[]", f'["{address}"]', 1))
    node.run("systemctl restart nhc-agent")

    def page(path: str) -> str:
        fetch = f"import urllib.request as u; print(u.urlopen('http://{address}{path}').read().decode())"
        return node.run(f'python3 -c "{fetch}"', check=False)

    def blips() -> float:
        said = re.search(r'^problem_counter\{reason="FrobBlip"\} (\S+)', page("/metrics"), re.MULTILINE)
        return float(said[1]) if said else -1.0

    def say(text: str) -> None:
        node.run(f"systemd-cat -t {fault} echo {text}")

    node.until(lambda: blips() == 0)
    say("blip one")
    node.until(lambda: blips() == 1, within=60)
    say("it broke")
    node.until(lambda: any(one["type"] == "Frob" and one["status"] == "True" for one in conditions(page)), within=60)
    node.run("systemctl stop nhc-agent")
    say("blip two")
    node.run("systemctl start nhc-agent")
    node.until(lambda: blips() == 1, within=60)  # the counter is this life's: the first blip is not read again
    assert any(one["type"] == "Frob" and one["status"] == "True" for one in conditions(page))


def conditions(page: Any) -> list[Any]:
    said = page("/conditions")
    found = json.loads(said) if said.strip() else []
    return found if isinstance(found, list) else found["conditions"]
