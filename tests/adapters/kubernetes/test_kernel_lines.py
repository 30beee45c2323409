"""From a line of the kernel's log to what `kubectl describe node` shows, by a running agent on a real API server."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.core.model import CheckResult, Outcome, Report
from nhc.core.system import kernel_ring
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.kmsg import check_kmsg, source
from nhc_adapters.kubernetes.nodes.vocabulary import conditions_of
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.agent.conftest import Running
from tests.support.kube import Kube
from tests.support.require import need
from tests.support.waiting import until

NEURON = (
    "SRAM_UNCORRECTABLE_ERROR",
    "NC_UNCORRECTABLE_ERROR",
    "HBM_UNCORRECTABLE_ERROR",
    "DMA_ERROR",
    "HANG_ON_COLLECTIVES",
)
DRILL = "(nhc-drill)"


@pytest.fixture
def kernel() -> Iterator[Any]:
    """Writes lines into the kernel's log, and ends what they caused for whoever reads it later."""
    need("kmsg", os.access(kernel_ring.KMSG, os.W_OK), "this user may not write to the kernel log")
    yield lambda line: kernel_ring.write(line, 3)
    kernel_ring.write("nhc: drill over: nhc-drill ended", 6)


@pytest.fixture
def live(kube: Kube, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """An agent that follows the kernel's log and speaks nhc's, node-problem-detector's and Neuron's words."""
    node, agent = kube.node(fake=False), Running(tmp_path)
    kubeconfig = agent.directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(kube.plane.config(kube.plane.token)))
    words = f'kubeconfig = "{kubeconfig}"\nnode = "{node}"\nvocabularies = ["nhc", "npd", "neuron"]\n'
    agent.configure("* |every 1s| check_kmsg\n", f"[sinks.kubernetes]\n{words}", agent="kernel-log = true")
    try:
        agent.start()
        until(lambda: agent.status()["sinks"]["kubernetes"]["problem"] == "")
        agent.nhc("ack", "agent", "--all")
        agent.nhc("agent", "check")
        yield agent, node
    finally:
        agent.stop()


@pytest.mark.usefixtures("kernel_log_alone")
def test_every_error_of_a_neuron_device_is_its_condition_as_it_comes(
    kube: Kube, live: tuple[Any, str], kernel: Any
) -> None:
    agent, node = live
    for error in NEURON:
        device = random.randrange(100, 1000)
        kernel(f"NEURON_HW_ERR={error} instance-id=i-0 hostname=ip-1 nd-id={device} nc-id=0 serial-num=1 {DRILL}")

        def said(error: str = error) -> bool:
            found = kube.condition(node, "NeuronHealth") or {}
            return (found.get("status"), found.get("reason")) == ("True", f"NeuronHasError_{error}")

        until(said)
        agent.nhc("ack", "agent", f"neuron/{error}/neuron{device}")
        until(lambda: (kube.condition(node, "NeuronHealth") or {}).get("reason") == "NeuronHasNoError")


@pytest.mark.parametrize("error", NEURON)
@pytest.mark.parametrize("words", ["instance-id=i-0 nd-id=3 nc-id=0 serial-num=1", "test"])
def test_every_error_of_a_neuron_device_is_its_condition_from_an_old_log(error: str, words: str) -> None:
    log = f"[    1.0] Linux version 6.1\n[   12.5] neuron: NEURON_HW_ERR={error} {words}\n"
    host = FakeHost({"/var/log/dmesg.0": log})
    judged = check_kmsg(host, source("dmesg=/var/log/dmesg.0"))
    results = tuple(CheckResult("check_kmsg", one) for one in ([judged] if isinstance(judged, Outcome) else judged))
    found = {one.type: one for one in conditions_of(Report("n", "b", 1.0, 0.0, results), load("neuron").conditions)}
    assert (found["NeuronHealth"].status, found["NeuronHealth"].reason) == ("True", f"NeuronHasError_{error}")


@pytest.mark.usefixtures("kernel_log_alone")
def test_what_no_condition_tells_is_an_event_and_a_file_systems_fault_the_storage_condition(
    kube: Kube, live: tuple[Any, str], kernel: Any
) -> None:
    agent, node = live
    name = f"sd{''.join(random.choices('abcdefghij', k=4))}"
    cpu = str(random.randrange(1000, 99999))
    for line in (
        f"Memory cgroup out of memory: Killed process 4242 (train) total-vm:1kB {DRILL}",
        f"Out of memory: Killed process 4243 (train) total-vm:1kB {DRILL}",
        f"INFO: task train:4244 blocked for more than 122 seconds. {DRILL}",
        f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for 22s! [train:4245] {DRILL}",
        f"critical medium error, dev {name}, sector 4711 op 0x0:(READ) {DRILL}",
    ):
        kernel(line)

    def events() -> dict[str, str]:
        found = kube.admin.items("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}")
        return {event["reason"]: event["type"] for event in found if event["source"]["component"] == "nhc-agent"}

    reasons = ("ContainerOom", "NodeOom", "TaskHung", "SoftLockup", "BlockMediumError")
    until(lambda: all(events().get(reason) == "Warning" for reason in reasons))
    # By itself none takes a node out. The kernel's log is the machine's, so only devices of this test's own are judged.
    verdicts = {result["target"]: result["verdict"] for result in agent.report()["results"] if result["target"]}
    assert (verdicts[cpu], verdicts[name]) == ("WARN", "WARN")

    kernel(f"EXT4-fs ({name}1): Remounting filesystem read-only {DRILL}")
    until(lambda: (kube.condition(node, "NhcStorageProblem") or {}).get("reason") == "Ext4ReadOnly")
    assert (kube.condition(node, "NhcHealthy") or {})["status"] == "False"
    system = kube.condition(node, "NhcSystemProblem") or {}
    assert system.get("status") != "True" or " times within " in system["message"], system
    agent.nhc("ack", "agent", f"ext4/ReadOnly/{name}1")
    until(lambda: (kube.condition(node, "NhcStorageProblem") or {}).get("status") == "False")
