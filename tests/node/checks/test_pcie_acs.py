"""Access control services on the ports above accelerators, from configuration space."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.pcie import ShortConfig, parse_acs_port
from tests.support.judge import judge, judge_all

PHYSICAL = {"/proc/cpuinfo": "flags\t\t: fpu vme\n"}
VIRTUAL = {"/proc/cpuinfo": "flags\t\t: fpu hypervisor vme\n"}
ROOT, UP, DOWN, GPU = "0000:40:01.0", "0000:41:00.0", "0000:42:04.0", "0000:45:00.0"
BUS = "/sys/bus/pci/devices"
AT = f"/sys/devices/pci0000:40/{ROOT}/{UP}/{DOWN}"


def config(kind, control=None, size=4096):
    """A bridge's configuration space: capabilities at 0x50 (power), 0x60 (PCIe); extended AER, then ACS at 0x220."""
    space = bytearray(4096)
    space[0x34] = 0x50
    space[0x50:0x52] = bytes((0x01, 0x60))
    space[0x60:0x64] = bytes((0x10, 0x00, 0x02 | kind << 4, 0x00))
    space[0x100:0x104] = (0x0001 | 2 << 16 | 0x220 << 20).to_bytes(4, "little")
    if control is not None:
        space[0x220:0x224] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x224:0x226] = (0x5F).to_bytes(2, "little")
        space[0x226:0x228] = control.to_bytes(2, "little")
    return bytes(space[:size])


def node(down, root=0x1D, about=PHYSICAL, size=4096):
    files = {
        f"{AT}/{GPU}/vendor": "0x10de\n", f"{AT}/{GPU}/device": "0x2330\n", f"{AT}/{GPU}/class": "0x030200\n",
        f"{BUS}/{GPU}": Symlink(f"../../../devices/pci0000:40/{ROOT}/{UP}/{DOWN}/{GPU}"), **about,
    }  # fmt: skip
    for address, kind, control in ((ROOT, 4, root), (UP, 5, None), (DOWN, 6, down)):
        files[f"{BUS}/{address}/config"] = config(kind, control, size)
    return FakeHost(files)


@pytest.mark.parametrize(
    ("control", "expected"),
    [(0x00, Verdict.OK), (0x01, Verdict.OK), (0x11, Verdict.OK), (None, Verdict.OK),
     (0x1D, Verdict.WARN), (0x04, Verdict.WARN), (0x20, Verdict.WARN)],
)  # fmt: skip
def test_a_switch_that_redirects(control, expected):
    found = judge(node(control), "check_pcie_acs")
    assert found.verdict is expected
    assert found.target == (DOWN if expected is Verdict.WARN else "")


def test_what_the_message_names_and_what_options_change():
    (found,) = judge_all(node(0x1D), "check_pcie_acs -c")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "AcsRedirects")
    assert "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+" in found.message
    assert [o.target for o in judge_all(node(0x1D), "check_pcie_acs -r")] == [ROOT, DOWN]


def test_where_it_is_no_matter_and_where_it_cannot_be_told():
    assert judge(node(0x1D, about=VIRTUAL), "check_pcie_acs").reason == "VirtualMachine"
    assert judge(FakeHost(PHYSICAL), "check_pcie_acs").reason == "NoAccelerator"
    assert judge(node(0x1D, size=64), "check_pcie_acs").verdict is Verdict.UNKNOWN


def test_configuration_space_that_makes_no_sense_ends():
    loop = bytearray(config(6))
    loop[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    loop[0x61] = 0x50
    assert parse_acs_port(bytes(loop)) == (6, None)
    assert parse_acs_port(b"\xff" * 4096)[1] is None
    assert parse_acs_port(bytes(4096)) == (-1, None)
    assert parse_acs_port(config(6, 0x1D, 256)) == (6, None)
    with pytest.raises(ShortConfig):
        parse_acs_port(bytes(64))


def with_adapter(beside, down=0x1D, other=0x1D):
    """A second downstream port with an RDMA adapter, below the same switch or `beside` it below a root port."""
    host = node(down)
    port, nic = "0000:42:08.0", "0000:46:00.0"
    at = f"/sys/devices/pci0000:40/0000:40:02.0/{port}/{nic}" if beside else f"{AT[: -len(DOWN)]}{port}/{nic}"
    host.write(f"{at}/vendor", "0x15b3\n")
    for address in (port, "0000:40:02.0"):
        host.write(f"{BUS}/{address}/config", config(6 if address == port else 4, other))
    host.write("/sys/class/infiniband/mlx5_0/device", Symlink(f"../../..{at[4:]}"))
    host.write(f"{BUS}/{nic}", Symlink(f"../../..{at[4:]}"))
    return host


def test_only_ports_between_an_accelerator_and_its_adapter():
    targets = [o.target for o in judge_all(with_adapter(beside=False), "check_pcie_acs -n")]
    assert targets == [DOWN, "0000:42:08.0"]
    assert [o.target for o in judge_all(with_adapter(False, down=0), "check_pcie_acs -n")] == ["0000:42:08.0"]
    assert judge(with_adapter(False, down=0, other=0), "check_pcie_acs -n").verdict is Verdict.OK
    assert judge(with_adapter(beside=True), "check_pcie_acs -n").reason == "NoSwitch"
    assert judge(node(0x1D), "check_pcie_acs -n").reason == "NoSwitch"
