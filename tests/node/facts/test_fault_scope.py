"""What a fault speaks of: by its reason, and which device by the driver's files."""

from __future__ import annotations

import pytest

from nhc.core.check import Check
from nhc.core.model import DeviceId, Outcome, Scope, crit, ok, unknown, warn
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts import fault_scope
from nhc.node.facts.accelerator import asked
from nhc.node.facts.accelerator_values import Device, Inventory, Source
from nhc.node.facts.pci import accelerator_functions
from nhc.node.run.engine import call

ADDRESS = "0000:3b:00.0"
H100 = "NVIDIA H100 80GB HBM3"
INFORMATION = """Model: \t\t {model}
IRQ:   \t\t 341
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.61.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {address}
Device Minor: \t 3
GPU Firmware: \t 535.129.03
GPU Excluded:\t No
"""
"""/proc/driver/nvidia/gpus/*/information of driver 535."""


@pytest.fixture
def host() -> FakeHost:
    made = FakeHost()
    gpu(made, ADDRESS)
    switch = "0000:05:00.0"
    for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
        made.write(f"/sys/bus/pci/devices/{switch}/{name}", text)
    return made


def gpu(host: FakeHost, address: str, model: str = H100, uuid: str = "GPU-1f3e") -> None:
    for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        host.write(f"/sys/bus/pci/devices/{address}/{name}", text)
    host.write(
        f"/proc/driver/nvidia/gpus/{address}/information",
        INFORMATION.format(model=model, uuid=uuid, address=address),
    )


def judged(host: FakeHost, *outcomes: Outcome) -> list[Outcome]:
    return call(Check("check_it", lambda host: list(outcomes), (), 1.0, "unknown", 0.0, (), ()), {}, host)


def test_a_line_of_the_kernel_log_names_its_device_in_full(host):
    (found,) = judged(host, crit("Xid48", "double bit", target=ADDRESS))
    assert (found.scope, found.device) == (Scope.DEVICE, DeviceId(ADDRESS, "GPU-1f3e", "3"))


def test_a_label_is_the_device_that_the_library_has_shown(host):
    device = Device("nvidia", 7, "GPU-1f3e", ADDRESS, serial="165")
    host.know(asked, Inventory((), (Source("nvidia", (device,)),)))
    for target in ("gpu7", "gpu7.0"):
        (found,) = judged(host, crit("GpuProofWrong", "wrong", target=target))
        assert (found.scope, found.device) == (Scope.DEVICE, DeviceId(ADDRESS, "GPU-1f3e", "3", "165"))
    (found,) = judged(host, crit("GpuProofWrong", "wrong", target="gpu1"))
    assert (found.scope, found.device) == (Scope.NODE, DeviceId())


def test_no_library_is_asked_for_it(host):
    (found,) = judged(host, crit("GpuProofWrong", "wrong", target="gpu7"))
    assert found.scope is Scope.NODE
    assert not host.knows(asked)


@pytest.mark.parametrize("outcome", [
    unknown("GpuUnreadable", "could not tell", target=ADDRESS), ok(target=ADDRESS),
    crit("FsFull", "full", target="/"), crit("Xid48", "of a GPU that is not there", target="0000:aa:00.0"),
])  # fmt: skip
def test_doubt_is_the_nodes(host, outcome):
    (found,) = judged(host, outcome)
    assert (found.scope, found.device) == (Scope.NODE, DeviceId())


def test_a_healthy_check_reads_nothing(host):
    judged(host, ok())
    assert not host.knows(accelerator_functions)


def test_a_switch_is_the_boards_and_a_link_stays_a_link(host):
    (switch, link) = judged(host, crit("SXid12028", "x", target="0000:05:00.0"), crit("Xid74", "x", target=ADDRESS))
    assert (switch.scope, switch.device.pci) == (Scope.BOARD, "0000:05:00.0")
    assert (link.scope, link.device.pci) == (Scope.LINK, ADDRESS)


@pytest.mark.parametrize("model", ["Tesla V100-SXM2-32GB", "Tesla P100-SXM2-16GB", "Tesla V100-SXM3-32GB-H"])
def test_a_gpu_that_is_not_reset_alone_is_its_boards(host, model):
    gpu(host, ADDRESS, model)
    (found,) = judged(host, crit("Xid48", "double bit", target=ADDRESS))
    assert (found.scope, found.device.pci) == (Scope.BOARD, ADDRESS)


def test_a_gpu_in_an_xgmi_hive_is_its_boards(host):
    host.write(f"/sys/bus/pci/devices/{ADDRESS}/xgmi_hive_info/xgmi_hive_id", "5263461246234\n")
    (found,) = judged(host, crit("AmdRasUncorrectable", "x", target=ADDRESS))
    assert found.scope is Scope.BOARD


def test_a_uuid_that_the_driver_does_not_know_is_none(host):
    gpu(host, ADDRESS, uuid="GPU-????????-????-????-????-????????????")
    (found,) = judged(host, warn("Xid63", "x", target=ADDRESS))
    assert found.device == DeviceId(ADDRESS, "", "3")


def test_what_a_check_says_itself_stands(host):
    mine = crit("SiteGpu", "x")._replace(scope=Scope.DEVICE, device=DeviceId(uuid="GPU-9"))
    assert judged(host, mine) == [mine]


def test_the_codes_without_a_row_have_their_kinds():
    assert fault_scope.scope_of("Xid48") is Scope.DEVICE
    assert fault_scope.scope_of("Xid74") is Scope.LINK
    assert fault_scope.scope_of("SXid20009") is Scope.BOARD
    assert fault_scope.scope_of("NodeOom") is Scope.NODE
