"""nhc beside a real node-problem-detector: the same lines, the same files, the same numbers; and as its plugin."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from nhc.core.system import kernel_ring
from tests.agent.conftest import ROOT, Running
from tests.npd.conftest import Detector, series
from tests.support.require import need
from tests.support.waiting import until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Running]:
    directory = tmp_path / "nhc"
    directory.mkdir()
    running = Running(directory)
    yield running
    running.stop()


def monitor(word: str) -> Dict[str, Any]:
    return {
        "plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "5m", "bufferSize": 10, "source": "frob-monitor",
        "metricsReporting": True,
        "conditions": [{"type": "FrobDeadlock", "reason": "FrobHasNoDeadlock", "message": "frob has no deadlock"},
                       {"type": "FrobQuiet", "reason": "FrobIsQuiet", "message": "frob is quiet"}],
        "rules": [{"type": "temporary", "reason": "FrobBlip", "pattern": f"{word} blip \\d+ of .*"},
                  {"type": "temporary", "reason": "FrobNever", "pattern": f"{word} never"},
                  {"type": "temporary", "reason": "FrobTwo", "pattern": f"{word} first half\\n{word} second half"},
                  {"type": "permanent", "condition": "FrobDeadlock", "reason": "FrobHung",
                   "pattern": f"{word} job \\w+:\\w+ held for more than \\w+ seconds\\."}],
    }  # fmt: skip


def test_the_same_lines_and_files_give_the_same_numbers(npd: Detector, agent: Running) -> None:
    need("/dev/kmsg", os.access(kernel_ring.KMSG, os.W_OK), "it cannot be written")
    word = f"frob{uuid.uuid4().hex[:8]}"
    path = npd.write("monitor.json", monitor(word))
    npd.start("--enable-k8s-exporter=false", f"--config.system-log-monitor={path}")
    agent.configure("* || check_uptime\n", f'[npd]\nsystem-log-monitor = ["{path}"]\n', agent="")
    agent.start()
    until(lambda: series(npd.page(), "problem_gauge"))
    zero = {("", reason): 0.0 for reason in ("FrobBlip", "FrobNever", "FrobTwo", "FrobHung")}
    for text in (
        "blip 1 of a",
        "blip 2 of b",
        "unrelated",
        "first half",
        "second half",
        "blip x of c",
        "job frobd:42 held for more than 9 seconds.",
        "job frobd:43 held for more than 9 seconds.",
    ):
        kernel_ring.write(f"{word} {text}", 4)

    def numbers(text: str) -> Any:
        """Of these rules: the agent's own checks count as well, and the kernel log may hold what others wrote."""
        counter = {key: value for key, value in series(text, "problem_counter").items() if key in zero}
        gauge = {key: value for key, value in series(text, "problem_gauge").items() if key[0].startswith("Frob")}
        return counter, gauge

    until(lambda: numbers(npd.page())[0].get(("", "FrobHung")))
    until(lambda: numbers(agent.get("/metrics")[1])[1].get(("FrobDeadlock", "FrobHung")))
    until(lambda: numbers(agent.get("/metrics")[1]) == numbers(npd.page()) or None, within=60)
    counter, gauge = numbers(npd.page())
    assert counter == {**zero, ("", "FrobBlip"): 2, ("", "FrobTwo"): 1, ("", "FrobHung"): 1}
    assert gauge["FrobDeadlock", "FrobHung"] == 1


def plugin(npd: Detector, checks: str) -> str:
    """The custom-plugin monitor of docs/agent.md, with this checkout's nhc, asked every second."""
    (npd.directory / "nhc.conf").write_text(checks)
    script = npd.directory / "nhc"
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_STATE_DIR": f"{npd.directory}/state"}
    shown = " ".join(f"{key}={shlex.quote(value)}" for key, value in environ.items())
    script.write_text(f'#!/bin/sh\nexec env {shown} {sys.executable} -m nhc "$@" --config {npd.directory}/nhc.conf\n')
    script.chmod(0o755)
    found = re.search(r"```json\n(\{.*?)```", (ROOT / "docs/agent.md").read_text(), re.DOTALL)
    assert found
    monitor = json.loads(found[1].replace('"/usr/bin/nhc"', json.dumps(str(script))).replace('"2m"', '"0s"'))
    monitor["pluginConfig"]["invoke_interval"] = "1s"
    return npd.write("plugin.json", monitor)


@pytest.mark.service
def test_nhc_is_a_plugin_of_a_stock_detector(npd: Detector, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    path = plugin(npd, f"* || check_file_test -f {flag}\n* || check_uptime\n")
    npd.start("--enable-k8s-exporter=false", f"--config.custom-plugin-monitor={path}")

    def gauge() -> Any:
        return series(npd.page(), "problem_gauge").get(("NodeUnhealthy", "NhcFoundFault"))

    until(lambda: gauge() == 1)
    flag.touch()
    until(lambda: gauge() == 0)
    flag.unlink()
    until(lambda: gauge() == 1)
    assert "Error in running plugin" not in npd.said(), npd.said()


def test_the_detectors_condition_bears_nhcs_words(npd: Detector, tmp_path: Path, kube: Any) -> None:
    node = kube.node()
    missing = tmp_path / f"{'a-long-name-' * 8}flag"
    path = plugin(npd, f"* || check_file_test -f {missing}\n* || check_hw_mem_free 1000TB\n")
    npd.start(f"--apiserver-override={kube.plane.url}?inClusterConfig=false&auth={kube.plane.kubeconfig}",
              f"--hostname-override={node}", f"--config.custom-plugin-monitor={path}")  # fmt: skip
    found = until(lambda: (c := kube.condition(node, "NodeUnhealthy")) and c["status"] == "True" and c)
    assert (found["type"], found["reason"]) == ("NodeUnhealthy", "NhcFoundFault")
    assert found["message"].startswith("FileTestFailed /"), "the most important fact first"
    assert found["message"].endswith("(+1)"), "and that there is more"
    assert len(found["message"].encode()) < 80
