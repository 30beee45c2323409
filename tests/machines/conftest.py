"""One machine with systemd, journald and nhc as a package installs it."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tests.support.install import archive, install
from tests.support.machines import Machine, fleet
from tests.support.waiting import until

JOURNALD = ("systemd-journald.service", "systemd-journald.socket")
EVENTS = "/var/lib/nhc/events.jsonl"
SETTINGS = f'''\
[agent]
boot-window = "0"
retry = "200ms"
listen = []
kernel-log = %s
[events]
path = "{EVENTS}"
'''


class Node:
    """The machine, and what is done on it."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.run = machine, machine.run

    def put(self, path: str, text: str) -> None:
        self.run(f"mkdir -p $(dirname {path}) && cat >{path}", stdin=text.encode())

    def until(self, what: Callable[[], Any], within: float = 60.0) -> Any:
        log = "systemctl status nhc-agent; journalctl -u nhc-agent -o cat -n 30"
        return until(what, within, 0.05, said=lambda: self.run(log, check=False))

    def start(self, checks: str, settings: str = "", kernel_log: bool = False) -> None:
        """Start the agent's unit on these checks, with nothing left of an earlier one.

        The kernel's ring is that of the system that runs the tests: without `kernel_log` what it says is no matter.
        """
        self.reset()
        self.put("/etc/nhc/nhc.conf", checks)
        self.put("/etc/nhc/agent.toml", SETTINGS % str(kernel_log).lower() + settings)
        self.run("systemctl start nhc-agent")
        self.judged()

    def reset(self) -> None:
        self.run(
            "systemctl stop nhc-agent nhc-check.timer nhc-check.service; systemctl reset-failed; "
            "rm -rf /run/nhc /var/lib/nhc /etc/systemd/system/nhc-agent.service.d; systemctl daemon-reload"
        )

    def judged(self) -> Dict[str, Any]:
        """The agent's status, once every check has been judged by this life of it."""
        return self.until(lambda: (s := self.status()) and all(c["age"] is not None for c in s["checks"]) and s)

    def status(self) -> Any:
        said = self.run("nhc status agent -f json", check=False)
        return json.loads(said) if said else None

    def events(self, what: str) -> List[Any]:
        lines = self.run(f"cat {EVENTS}", check=False).splitlines()
        with contextlib.suppress(ValueError):  # the last line may be half written
            return [event for line in lines for event in [json.loads(line)] if event["event"] == what]
        return []

    def say(self, text: str) -> None:
        """A line for the kernel log, as a program writes one."""
        self.run("cat >/dev/kmsg; journalctl --sync", stdin=f"<11>{text}\n".encode())


@pytest.fixture(scope="package")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = archive(tmp_path_factory.mktemp("archive") / "nhc.pyz")

    def furnish(machine: Machine) -> None:
        install(machine, made)
        machine.write("/etc/systemd/journald.conf", "[Journal]\nStorage=volatile\nAudit=no\n")

    with fleet(tmp_path_factory.mktemp("machines"), ["node1"], "127.94.0.", JOURNALD, furnish) as running:
        yield running["node1"]


@pytest.fixture
def node(machine: Machine) -> Iterator[Node]:
    made = Node(machine)
    yield made
    made.reset()
