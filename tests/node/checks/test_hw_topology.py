"""Devices in their places: our own description and NCCL's."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.checks.hw_topology import Description, check_hw_topology, parse_description
from tests.support.run import nhc

ROOT_A, ROOT_B = "pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"
WHERE = {
    "0000:0f:00.0": (f"{ROOT_A}/0000:0d:00.0", 0),  # gpu
    "0000:10:00.0": (f"{ROOT_A}/0000:0d:00.0", 0),  # mlx5_0, below the same switch
    "0000:2d:00.0": (ROOT_A, 0),  # gpu on the port itself
    "0000:89:00.0": (ROOT_B, 1),  # gpu on the other processor
    "0000:8a:00.0": (ROOT_B, 1),  # nvme0
}


def tree(**moved):
    files = {"/etc/nhc/topology": OURS}
    for address, (path, numa) in WHERE.items():
        base = f"/sys/devices/{path}/{address}"
        files[f"{base}/numa_node"] = f"{moved.get(address, numa)}\n"
        files[f"/sys/bus/pci/devices/{address}"] = Symlink(f"../../../devices/{path}/{address}")
    files["/sys/class/infiniband/mlx5_0/device"] = Symlink(f"../../../devices/{WHERE['0000:10:00.0'][0]}/0000:10:00.0")
    files["/sys/class/nvme/nvme0/device"] = Symlink(f"../../../devices/{WHERE['0000:8a:00.0'][0]}/0000:8a:00.0")
    return files


OURS = """
# two processors
numa 0: 0000:0f:00.0 0000:2d:00.0 mlx5_0
numa 1: 0000:89:00.0 nvme0
near: 0000:0f:00.0 mlx5_0
"""

NCCL = """<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0f:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:10:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000"><pci busid="0000:89:00.0" class="0x030200"/></cpu>
</system>
"""


def host(**moved):
    """A FakeHost whose /sys/class links climb to its own /sys/devices."""
    made = FakeHost()
    for path, content in tree(**moved).items():
        if isinstance(content, Symlink):
            depth = path.count("/") - 1
            content = Symlink(
                os.path.join(*[".."] * depth, content.target.replace("../", "").replace("devices", "sys/devices", 1))
            )
        made.write(path, content)
    return made


def judge(made, file="/etc/nhc/topology"):
    found = check_hw_topology(made, file)
    return found if isinstance(found, list) else [found]


def test_devices_of_any_class_but_a_bridge_are_read_out_of_an_nccl_file():
    """A Neuron device (0880), a SATA controller, a card that moves data: whatever has a bus and a processor."""
    for code in ("0x088000", "0x010601", "0x120000", "0x0b4000"):
        text = NCCL.replace('"0000:89:00.0" class="0x030200"', f'"0000:89:00.0" class="{code}"')
        assert ("0000:89:00.0", 1) in parse_description(text).numa
    assert "ffff:ff:01.0" not in dict(parse_description(NCCL).numa)


def test_everything_in_its_place():
    [outcome] = judge(host())

    assert (outcome.verdict, outcome.message) == (Verdict.OK, "5 devices in their places")


def test_a_device_on_the_wrong_processor():
    [outcome] = judge(host(**{"0000:2d:00.0": 1}))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "TopologyNuma", "0000:2d:00.0")
    assert "is on NUMA node 1, 0 expected" in outcome.message


def test_firmware_that_names_no_node_is_unknown():
    [outcome] = judge(host(**{"0000:10:00.0": -1}))

    assert (outcome.verdict, outcome.target) == (Verdict.UNKNOWN, "mlx5_0")
    assert "mlx5_0 (0000:10:00.0)" in outcome.message


def test_devices_that_belong_together_but_are_apart():
    made = host()
    made.write("/etc/nhc/topology", "near: 0000:89:00.0 mlx5_0\n")

    [outcome] = judge(made)

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "TopologyPath")


def test_a_missing_device():
    made = host()
    made.write("/etc/nhc/topology", "numa 0: mlx5_0 mlx5_7\nnuma 1: 0000:c0:00.0 gpu5\n")

    [outcome] = judge(made)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, "not on this node: mlx5_7, 0000:c0:00.0, gpu5")


def test_a_topology_for_nccl_serves_too():
    made = host()
    made.write("/opt/microsoft/ndv5-topo.xml", NCCL)
    assert judge(made, "/opt/microsoft/ndv5-topo.xml")[0].verdict is Verdict.OK

    moved = host(**{"0000:89:00.0": 0})
    moved.write("/topo.xml", NCCL)
    assert judge(moved, "/topo.xml")[0].reason == "TopologyNuma"


def test_nccls_made_up_bridges_are_not_looked_for():
    assert parse_description(NCCL) == Description(
        (("0000:0f:00.0", 0), ("0000:10:00.0", 0), ("0000:89:00.0", 1)), (("0000:0f:00.0", "0000:10:00.0"),)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numa zero: gpu0", "topo:1: 'numa zero: gpu0': expected `numa NODE: DEVICE"),
        ("\nnear: gpu0", "topo:2: 'near: gpu0': expected"),
        ("# nothing\n", "topo: it describes no device"),
        ("<system><cpu numaid='x'/></system>", "expected the number of a NUMA node"),
        ("<system", "topo: not an XML topology"),
        ("<system/>", "describes no device"),
    ],
)
def test_a_bad_description_is_named(text, said):
    with pytest.raises(ValueError, match="topo") as raised:
        parse_description(text, "topo")
    assert said in str(raised.value)


def test_a_description_that_cannot_be_used_is_unknown():
    made = FakeHost({"/bad": "gpu0 is fine\n"})

    assert judge(made, "/bad")[0].reason == "BadTopology"
    assert judge(made, "/none")[0].verdict is Verdict.UNKNOWN


@given(st.text())
def test_any_text_is_a_description_or_a_value_error(text):
    try:
        parse_description(text)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("files", "settings", "verdict", "message"),
    [
        ({}, {"NCCL_TOPO_FILE": "/etc/nhc/topology"}, Verdict.OK, "5 devices in their places"),
        ({"/etc/nccl.conf": "# x\nNCCL_DEBUG=WARN\nNCCL_TOPO_FILE=/etc/nhc/topology\n"}, {}, Verdict.OK, "5 devices"),
        ({"/opt/microsoft/ndv5-topo.xml": NCCL}, {}, Verdict.OK, "3 devices"),
        ({"/opt/microsoft/ndv5-topo.xml": NCCL, "/opt/microsoft/ndv4-topo.xml": NCCL}, {}, Verdict.UNKNOWN, "name one"),
        ({}, {}, Verdict.UNKNOWN, "no file is named, and none is in /opt/microsoft (or set NCCL_TOPO_FILE)"),
        ({}, {"NCCL_TOPO_FILE": "/none"}, Verdict.UNKNOWN, "/none: No such file"),
    ],
)
def test_azures_bare_line_takes_the_file_that_nccl_uses(files, settings, verdict, message):
    node = host()
    for path, content in files.items():
        node.write(path, content)
    outcome = check_hw_topology(node.with_settings(settings))
    assert (outcome.verdict, message in outcome.message) == (verdict, True), outcome.message


@pytest.mark.thorough
def test_the_configuration_names_nccls_file(tmp_path):
    """In a shell line too, whose variables the check sees as the shell has them."""
    lines = "* || export NCCL_TOPO_FILE=/none/a\n* || check_hw_topology\n* || [ -d / ] && NCCL_TOPO_FILE=/none/b\n"
    (tmp_path / "nhc.conf").write_text(f"{lines}* || check_hw_topology\n")
    done = nhc("check", "local", "--all", "-c", tmp_path / "nhc.conf", state=tmp_path / "state")
    assert ("/none/a: No such file" in done.stdout, "/none/b: No such file" in done.stdout) == (True, True), done.stdout
    assert nhc("config", "check", tmp_path / "nhc.conf").returncode == 0
