"""Every condition of every vocabulary: raised by a line that a kernel or a device really gives, and cleared again."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Iterator

import pytest

from nhc.core.host import BOOT_ID
from nhc.core.model import CheckResult, Outcome, Report, ok
from nhc.lab.testing.fake_host import FakeHost
from nhc.marks.ports.sinks import Delivery
from nhc.node.checks.kmsg import reason_of
from nhc.node.kernlog.catalogue import rows
from nhc.node.kernlog.match import DEGRADED, FATAL
from nhc.node.kernlog.volumes import MOUNTINFO
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, Condition
from nhc_adapters.kubernetes.nodes.vocabulary import ConditionRule
from nhc_adapters.kubernetes.nodes.vocabulary_file import known, load
from nhc_adapters.kubernetes.sink import NodeSink
from tests.support.judge import judge_all
from tests.support.nvml.fake import Nvml
from tests.support.rdma import device, eight

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OFF_BUS = "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."
SXID = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error"
VBIOS = "NVRM: GPU 0000:3b:00.0: Failed to copy vbios to system memory."
NEURON = (
    "NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-0592464924bd45322 nd-id=0 nc-id=0 action=TERMINATE_INSTANCE"
)
READ_ONLY = "EXT4-fs (sda1): Remounting filesystem read-only"
XFS = "XFS (sda1): Corruption of in-memory data (0x8) detected at x. Shutting down filesystem."
CPER = "{1}[Hardware Error]: event severity: fatal"
DOCKER = "INFO: task docker:4711 blocked for more than 120 seconds."
LOCKUP = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 5"
PANIC = "kernel BUG at fs/ext4/inode.c:2721!"
NET_DEV = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n  eth0:" + " 0" * 16 + "\n"
MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 8:33 / /data rw - xfs /dev/sdc rw
24 22 9:127 / /scratch rw - xfs /dev/md127 rw
"""
"""A fault of a volume is the node's where the node itself mounts it."""
MLX5 = "mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised - reached miss count."


@dataclass(frozen=True)
class Nv:
    """A check on a machine with eight GPUs, one of which has this fault; none where there is none."""

    line: str
    fault: str = ""
    machine: str = "h100"


@dataclass(frozen=True)
class Node:
    """A check on a node of these files, with the argument (or the files) that it fails on and the one it passes on."""

    bad: str
    good: str
    files: dict[str, Any] | None = None
    broken: dict[str, Any] | None = None


@dataclass(frozen=True)
class Asked:
    """A check of something on the node that is asked `question`, and what that answers in its fault and without."""

    line: str
    question: str
    bad: dict[str, Any]
    good: dict[str, Any]

    def judged(self, answer: dict[str, Any]) -> list[CheckResult]:
        host = FakeHost({"/var/lib/kubelet/config.yaml": "", "/run/containerd/": ""})
        with socket.socket(socket.AF_UNIX) as there:
            there.bind(host.path(CONTAINERD_SOCKET))
        host.system.answers[self.question] = answer
        return results(self.line, judge_all(host, self.line))


CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET, RUNTIME = "http http://127.0.0.1:10248/healthz", f"runtime {CONTAINERD_SOCKET}"
CONTAINERD = {"runtime": "containerd", "version": "2.0.0", "conditions": [("RuntimeReady", True, "", "")]}

UNPLUGGED = {**eight(), **device("mlx5_3", state="1: DOWN", phys="3: Disabled")}
IB = Node("check_ib_state mlx5_3", "check_ib_state mlx5_3", eight(), UNPLUGGED)
ETH = Node("check_hw_eth eth9", "check_hw_eth eth0", {"/proc/net/dev": NET_DEV})

REMAP = Nv("check_gpu_row_remap", "7.row_remap 0 8 0 1")
LINES: dict[tuple[str, str], list[Any]] = {
    ("nhc", "NhcHealthy"): [XID79, READ_ONLY, REMAP],
    ("nhc", "NhcGpuProblem"): [XID79, SXID, OFF_BUS, Nv("check_gpu_count 8", "devices 7")],
    ("nhc", "NhcNeuronProblem"): [NEURON],
    ("nhc", "NhcFabricProblem"): [MLX5, IB],
    ("nhc", "NhcNetworkProblem"): [ETH],
    ("nhc", "NhcStorageProblem"): [READ_ONLY, XFS, "nvme nvme0: Disabling device after reset failure: -19",
                                   "sd 0:0:0:0: [sdc] rejecting I/O to offline device",
                                   "md/raid0:md127: Disk failure on nvme1n1 detected, failing array."],
    ("nhc", "NhcHardwareProblem"): [CPER, "mce: [Hardware Error]: CPU 24: Machine Check Exception: 5 Bank 1: be00"],
    ("nhc", "NhcSystemProblem"): [LOCKUP, PANIC],
    ("aks", "GpuCount"): [Nv("check_gpu_count 8", "devices 7")],
    ("aks", "GpuNvlink"): [Nv("check_nvlink_status", "3.link.11.state 0")],
    ("aks", "GpuXid"): [XID79],
    ("aks", "GpuEcc"): [REMAP],
    ("aks", "GpuVbios"): [Nv("check_vbios_version", "5.vbios 92.00.45.00.05", "a100")],
    ("aks", "GpuThrottle"): [Nv("check_gpu_clock_throttling", "4.reasons 0x8", "a100")],
    ("aks", "IbDev"): [IB],
    ("npd", "KernelDeadlock"): [LOCKUP, DOCKER],
    ("npd", "ReadonlyFilesystem"): [READ_ONLY],
    ("npd", "XfsShutdown"): [XFS],
    ("npd", "CperHardwareErrorFatal"): [CPER],
    ("npd", "KubeletUnhealthy"): [Asked("check_kubelet_healthz", KUBELET, {"status": 500, "said": "syncloop failed"},
                                        {"status": 200, "said": "ok"}),
                                  Asked("check_kubelet_healthz", KUBELET, {"status": 0, "said": "refused"},
                                        {"status": 200, "said": "ok"})],
    ("npd", "ContainerRuntimeUnhealthy"): [
        Asked("check_runtime_ready", RUNTIME, {"problem": "no answer within 5 s"}, CONTAINERD),
        Asked("check_runtime_ready", RUNTIME,
              {**CONTAINERD, "conditions": [("RuntimeReady", False, "", "shim is gone")]}, CONTAINERD)],
    ("neuron", "NeuronHealth"): [NEURON, "test NEURON_HW_ERR=DMA_ERROR test"],
    ("hyperpod", "NvidiaErrorReboot"): [XID79],
    ("hyperpod", "NvidiaErrorTerminate"): [VBIOS],
    ("hyperpod-short", "NvidiaErrorReboot"): [XID79],
    ("hyperpod-short", "NvidiaErrorTerminate"): [VBIOS],
    ("nvsentinel", "GpuMemWatch"): [REMAP],
    ("nvsentinel", "GpuNvlinkWatch"): [Nv("check_nvlink_status", "3.link.11.state 0")],
    ("nvsentinel", "SysLogsXIDError"): [XID79],
    ("nvsentinel", "SysLogsSXIDError"): [SXID],
    ("nvsentinel", "SysLogsGPUFallenOff"): [OFF_BUS],
}  # fmt: skip


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nvml]:
    library = Nvml(tmp_path_factory.mktemp("nvml"))
    yield library
    library.close()


def kernel(*lines: str) -> list[CheckResult]:
    """What check_kmsg says on a node whose kernel said these lines."""
    host = FakeHost({BOOT_ID: "boot-1\n", "/proc/bus/pci/devices": "", MOUNTINFO: MOUNTS})
    for number, line in enumerate(lines):
        host.system.kernel.append(f"3,{number},{int((host.system.uptime - 1) * 1e6)},-;{line}")
    return results("check_kmsg", judge_all(host, "check_kmsg"))


def results(line: str, outcomes: list[Outcome]) -> list[CheckResult]:
    return [CheckResult(line.split()[0], outcome) for outcome in outcomes]


def judged(nvml: Nvml, source: Any) -> tuple[list[CheckResult], list[CheckResult]]:
    """What a source says when it has its fault, and when it has none."""
    if isinstance(source, str):
        return kernel(source), kernel()
    if isinstance(source, Nv):
        bad, good = nvml.one(source.machine, source.line, source.fault), nvml.one(source.machine, source.line)
        return results(source.line, bad), results(source.line, good)
    if isinstance(source, Asked):
        return source.judged(source.bad), source.judged(source.good)
    bad = judge_all(FakeHost(source.broken or source.files), source.bad)
    return results(source.bad, bad), results(source.good, judge_all(FakeHost(source.files), source.good))


def sink(name: str) -> NodeSink:
    """The agent's sink with nobody to write to: what it would say is read from it."""
    made = NodeSink(None, "n1", [load(name)])  # type: ignore[arg-type]
    made._started = True
    return made


def said(made: NodeSink, found: list[CheckResult]) -> dict[str, Condition]:
    made.deliver(Delivery(Report("n1", "boot", 0.0, 0.0, tuple(found)), True))
    return dict(made.reporter.conditions.standing)


def all_conditions() -> list[tuple[str, ConditionRule]]:
    return [(name, one) for name in known() for one in load(name).conditions]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "one"), all_conditions(), ids=lambda value: getattr(value, "type", value))
def test_a_condition_is_raised_by_a_real_line_and_cleared_when_it_is_gone(
    name: str, one: ConditionRule, nvml: Nvml
) -> None:
    for source in LINES[name, one.type]:
        bad, good = judged(nvml, source)
        made = sink(name)

        raised = said(made, bad)[one.type]
        assert raised.status == one.bad, source
        assert raised.reason
        assert raised.message

        cleared = said(made, good)[one.type]
        assert (cleared.status, cleared.reason) == (TRUE if one.bad == FALSE else FALSE, one.good_reason), source


def test_what_a_vocabulary_knows_from_the_kernel_log_is_well_before_anything_was_found() -> None:
    """As node-problem-detector has it: `NeuronHasNoError` stands there from the start."""
    for name, types in {
        "neuron": {"NeuronHealth"},
        "npd": {one.type for one in load("npd").conditions if not one.checks},
    }.items():
        assert {kind: one.status for kind, one in said(sink(name), kernel()).items()} == dict.fromkeys(types, FALSE)


def test_another_programs_hang_is_no_deadlock_of_the_kernel() -> None:
    hung = kernel("INFO: task python:4711 blocked for more than 120 seconds.")
    assert said(sink("npd"), hung)["KernelDeadlock"].status == FALSE


def test_every_finding_of_the_kernel_log_has_a_family() -> None:
    families = [one for one in load("nhc").conditions if one.type != "NhcHealthy"]
    homeless = {}
    for row in rows():
        if row.severity in (FATAL, DEGRADED) or row.kind in ("xid", "sxid", "neuron"):
            found = CheckResult("check_kmsg", ok()._replace(reason=reason_of(row.kind, row.code or "1")))
            types = [one.type for one in families if one.covers(found)]
            if len(types) != 1:
                homeless[found.outcome.reason] = types
    assert homeless == {}
