"""What a device is decides whether its fault takes the node out: by /sys on the node, by drivers' names in a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.amd import parse_ras
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current
from nhc.node.kernlog.node_context import apart, beside_node

NOW = 1_700_000_000.0
PORT, DEVICE = "0000:00:1c.0", "0000:3b:00.0"
CONTAINED = f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000"
FATAL_AER = f"pcieport {PORT}: AER: Uncorrected (Fatal) error message received from {DEVICE}"
FAILED = f"pcieport {PORT}: AER: device recovery failed"
LOST = f"igc {DEVICE} enp59s0: PCIe link lost, device now detached"
EMPTY = f"pcieport {PORT}: pciehp: Slot(8): Card not present"
CLASSES = {
    "xhci_hcd": "0x0c0330", "snd_hda_intel": "0x040300", "iwlwifi": "0x028000", "sdhci": "0x080501",
    "nvidia": "0x030200", "mlx5_core": "0x020700", "megaraid_sas": "0x010400", "qla2xxx": "0x0c0400",
    "nvme": "0x010802", "habanalabs": "0x120000", "new": "0xff0000",
}  # fmt: skip


def log(*lines):
    state = {}
    take_in(state, [(line, NOW + at) for at, line in enumerate(lines)], NOW)
    return state


def node(kind="0x020000", files=None, port=True):
    """A node whose device has this class and is below the port."""
    device = f"/sys/devices/pci0000:00/{PORT}/{DEVICE}"
    tree = {
        f"{device}/class": f"{kind}\n", f"/sys/bus/pci/devices/{DEVICE}": Symlink(f"../../..{device[4:]}"),
        **(files or {}),
    }  # fmt: skip
    if port:
        tree[f"/sys/devices/pci0000:00/{PORT}/class"] = "0x060400\n"
        tree[f"/sys/bus/pci/devices/{PORT}"] = Symlink(f"../../../devices/pci0000:00/{PORT}")
    return FakeHost({"/proc/bus/pci/devices": "", "/proc/swaps": "Filename\n", **tree})


def on(host, *lines):
    state = log(*lines)
    standing, gone = beside_node(host, state, current(state))
    assert gone == []
    return {finding["severity"] for _key, finding in standing}


def bare(*lines):
    state = log(*lines)
    return {apart(state, finding)["severity"] for _key, finding in current(state)}


@pytest.mark.parametrize("line", [CONTAINED, FATAL_AER, FAILED], ids=["contained", "aer", "recovery"])
@pytest.mark.parametrize(("driver", "worst"), [(name, "degraded") for name in list(CLASSES)[:4]] + [
    (name, "fatal") for name in list(CLASSES)[4:]])  # fmt: skip
def test_a_port_is_judged_by_what_is_below_it(line, driver, worst):
    assert on(node(CLASSES[driver]), line) == {worst}


def test_a_port_with_something_needed_below_it_beside_a_peripheral_is_needed():
    other = f"/sys/devices/pci0000:00/{PORT}/0000:3c:00.0"
    files = {f"{other}/class": "0x010802\n", "/sys/bus/pci/devices/0000:3c:00.0": Symlink(f"../../..{other[4:]}")}
    assert on(node("0x0c0330", files), CONTAINED) == {"fatal"}
    assert on(node("0x0c0330"), CONTAINED) == {"degraded"}


ROUTE = "Iface\tDestination\tGateway\n{}\t00000000\t0100000A\n"
ROUTE6 = "00000000000000000000000000000000 00 0 00 0 00 00000400 00000001 0 00000003 {}\n"
LOCAL6 = "fe800000000000000000000000000000 40 0 00 0 00 00000100 00000001 0 00000001 {}\n"


@pytest.mark.parametrize(
    ("files", "worst"),
    [
        ({"/proc/net/route": ROUTE.format("enp59s0")}, "fatal"),
        ({"/proc/net/ipv6_route": ROUTE6.format("enp59s0")}, "fatal"),
        ({"/sys/class/net/enp59s0/master": Symlink("../bond0")}, "fatal"),
        ({f"/sys/devices/pci0000:00/{PORT}/{DEVICE}/infiniband/mlx5_0/node_type": "1: CA\n"}, "fatal"),
        ({"/sys/class/net/enp59s0/operstate": "down\n", "/sys/class/net/enp59s0/carrier_up_count": "2\n"}, "fatal"),
        ({"/proc/net/route": ROUTE.format("eth0")}, "degraded"),
        ({"/proc/net/ipv6_route": LOCAL6.format("enp59s0")}, "degraded"),
        ({"/sys/class/net/enp59s0/operstate": "down\n", "/sys/class/net/enp59s0/carrier_up_count": "0\n"}, "degraded"),
    ],
)
def test_a_network_adapter_counts_where_traffic_goes_through_it(files, worst):
    interface = {f"/sys/devices/pci0000:00/{PORT}/{DEVICE}/net/enp59s0/mtu": "1500\n"}
    assert on(node(files={**interface, **files}), LOST) == {worst}


def test_a_network_adapter_whose_driver_let_go_of_it_counts():
    assert on(node(), LOST) == {"fatal"}, "nothing tells what it was used for"


@pytest.mark.parametrize("line", [
    "xhci_hcd 0000:3b:00.0: xHCI host controller not responding, assume dead",
    "xhci_hcd 0000:3b:00.0: AER: can't recover (no error_detected callback)",
    "snd_hda_intel 0000:3b:00.0: AER: can't recover (no error_detected callback)",
    "iwlwifi 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
])  # fmt: skip
def test_in_a_bare_log_the_name_of_the_driver_below_the_port_decides(line):
    assert bare(CONTAINED) == {"fatal"}
    assert bare(CONTAINED, line) == {"degraded"}
    assert bare(line, FATAL_AER, FAILED) == {"degraded"}
    other = "mpt3sas 0000:3c:00.0: AER: can't recover (no error_detected callback)"
    assert "fatal" in bare(CONTAINED, line, other), "an adapter that the node needs complains too"


@pytest.mark.parametrize("line", [
    LOST, CONTAINED, FATAL_AER, "ice 0000:3b:00.0: Hardware reset failed",
    "mlx5_core 0000:3b:00.0: poll_health:1: device's health compromised - reached miss count",
    "pci 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
])  # fmt: skip
@pytest.mark.parametrize("pulled", [EMPTY, "thunderbolt 0-1: device disconnected"])
def test_what_a_person_pulled_is_no_fault(line, pulled):
    assert "fatal" in bare(line)
    assert "fatal" not in bare(pulled, line)
    assert "fatal" not in on(FakeHost({"/proc/bus/pci/devices": ""}), pulled, line)
    assert "fatal" in on(node("0x010700"), pulled, line), "it is in its place: another card was pulled"


def test_an_accelerator_that_goes_has_died():
    """Nobody pulls one out of a running node, and its slot says the same as if somebody had."""
    assert "fatal" in bare(EMPTY, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")


# Values that cannot be true

RAS = "amdgpu 0000:c3:00.0: amdgpu: {} uncorrectable hardware errors detected in umc block"
IMPOSSIBLE = [1048560, 65535, 4294967295, 0xFFFFF0, 0xFFFFFF, 0xFFFF0000, 2**64 - 1]


@pytest.mark.parametrize("count", IMPOSSIBLE)
@pytest.mark.parametrize("line", [
    RAS, "hfi1 0000:3b:00.0: {} uncorrectable ECC errors in SRAM",
    RAS.replace("amdgpu: {}", "amdgpu: socket: 0, die: 0 {} new").replace("uncorrectable", "deferred"),
])  # fmt: skip
def test_a_counter_that_reads_as_ones_was_not_read(line, count):
    assert current(log(line.format(count))) == []
    assert len(current(log(line.format(3)))) == 1


@given(st.integers(1, 0xFFFE))
def test_a_count_that_a_counter_can_have_counts(count):
    assert [finding["severity"] for _key, finding in current(log(RAS.format(count)))] == ["fatal"]


def test_the_same_of_the_counters_in_sysfs():
    assert parse_ras("ue: 1048560\nce: 4\n") == (4, None)
    assert parse_ras("ue: 2\nce: 4\n") == (4, 2)


@pytest.mark.parametrize("line", [
    "lpfc 0000:3b:00.0: 1:0457 Adapter error, port status reg 0xffffffff, error attention 0x0",
    "qla2xxx [0000:3b:00.0]-00af:3: RISC paused -- HCCR=ffffffff",
    "mpt3sas 0000:3b:00.0: doorbell register: 0xffffffff",
    "pcieport 0000:3b:00.0:   device [8086:352a] error status/mask=ffffffff/00000000",
    "mlx5_core 0000:3b:00.0: print_health_info:386:(pid 0): assert_var[0] 0xffffffff",
    "ahci 0000:3b:00.0: port status 0xFFFFFFFF", "qat_4xxx 0000:3b:00.0: ERRSOU status is 0xffffffff",
])  # fmt: skip
def test_a_register_of_state_that_reads_as_ones_is_a_device_that_is_gone(line):
    assert [(finding["severity"], finding["action"]) for _key, finding in current(log(line))] == [("fatal", "reboot")]
    other = line.replace("ffffffff", "00000011").replace("FFFFFFFF", "00000011")
    assert all(finding["severity"] != "fatal" for _key, finding in current(log(other)))


@pytest.mark.parametrize("line", [
    "mpt3sas 0000:3b:00.0: dma mask 0xffffffffffffffff", "ixgbe 0000:3b:00.0: interrupt status mask ffffffff set",
    "i40e 0000:3b:00.0: timeout 0xffffffff", "xhci_hcd 0000:3b:00.0: status 0xffffffff",
])  # fmt: skip
def test_ones_elsewhere_mean_nothing(line):
    assert all(finding["severity"] != "fatal" for _key, finding in current(log(line)))
