"""Complaints that no row knows: degraded in a log, and on the node as its device answers."""

import errno
import json

import pytest

from nhc.core.host import BOOT_ID, System
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.commands.log import LogFindings
from nhc.node.facts.accelerator import asked
from nhc.node.facts.accelerator_values import Device, Inventory, Modes, Source
from nhc.node.facts.write_probe import read_block
from nhc.node.hosts.recording import RecordingHost
from nhc.node.kernlog.catalogue import Matcher
from tests.support.judge import judge_all

ADDRESS = "0000:3b:00.0"
NIC = f"ice {ADDRESS} ens1f0np0: PTP side channel failed, err 5"
GPU = f"nvidia {ADDRESS}: memory arbiter stuck in state 3"
HBA = f"smartpqi {ADDRESS}: event ring hung"
ONES, HEADER = b"\xff" * 64, b"\x86\x80\x92\x15" + b"\x00" * 60
VF_HEADER = b"\xff\xff\xff\xff" + b"\x06\x04\x10\x00" + b"\x00" * 56
COMPLAINTS = (
    NIC, GPU, HBA, f"hinic3 {ADDRESS} eth4: doorbell timed out in slot 9", f"newaccel {ADDRESS}: engine 3 stuck",
    f"amdgpu {ADDRESS}: vcn bridge crash dump pending", "mpt3sas_cm0: event 17 assert in sequencer",
    f"xe {ADDRESS}: [drm] Tile0: GT0: scratch arbiter fault, unit 3", "[qed_probe:506()]scan of ports failed",
)  # fmt: skip
HARMLESS = (
    f"ice {ADDRESS}: DDP package not supported, feature failed over", f"snd_hda_intel {ADDRESS}: codec probe error",
    f"mlx5_core {ADDRESS}: 0 errors since load", f"xhci_hcd {ADDRESS}: command timed out",
    f"megaraid_sas {ADDRESS}: firmware crash dump\t: no", f"nvme {ADDRESS}: error reporting enabled",
    f"tg3 {ADDRESS}: Direct firmware load for tigon/x.bin failed with error -2",
    f"pci {ADDRESS}: BAR 0: failed to assign",
    f"i40e {ADDRESS}: request failed, retrying", f"iwlwifi {ADDRESS}: firmware error 0x71",
)  # fmt: skip


@pytest.mark.parametrize("line", COMPLAINTS)
def test_a_complaint_is_degraded_where_nobody_can_be_asked(line):
    assert Matcher().judge(line) is None, "no row knows it"
    log = LogFindings()
    log.feed(f"[   12.300000] {line}\n")
    [(_key, finding)] = log.standing()
    assert (finding["severity"], finding["code"], finding["action"]) == ("degraded", "Complaint", "inspect")


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_reads_like_trouble_is_nothing(line):
    log = LogFindings()
    log.feed(f"[   12.300000] {line}\n")
    assert [key for key, finding in log.standing() if finding["code"] == "Complaint"] == []


def node(line, kind, config=HEADER, files=None, read=None):
    """A node that has logged a line of a device of this class. `read` is how a block of its disk is read."""
    device = f"/sys/devices/pci0000:00/{ADDRESS}"
    host = FakeHost(
        {
            BOOT_ID: "boot-1\n", "/proc/bus/pci/devices": "", f"{device}/class": f"{kind}\n",
            f"/sys/bus/pci/devices/{ADDRESS}": Symlink(f"../../..{device[4:]}"), **(files or {}),
        }
    )  # fmt: skip
    if config is not None:
        with open(host.path(f"{device}/config"), "wb") as file:
            file.write(config)
    if read is not None:
        host.system.answers["read /dev/sdq"] = read
    host.system.kernel.append(f"3,1,{int((host.system.uptime - 1) * 1e6)},-;{line}")
    return host


def judged(host):
    outcomes = judge_all(host, "check_kmsg")[:-1]
    return [(outcome.verdict, outcome.reason, outcome.action) for outcome in outcomes]


NET = f"/sys/devices/pci0000:00/{ADDRESS}/net/eth4"
UP, DOWN = {f"{NET}/operstate": "up\n"}, {f"{NET}/operstate": "down\n"}
ROUTED = {"/proc/net/route": "Iface\tDestination\neth4\t00000000\t0102A8C0\n"}
DISK = {"/sys/class/block/sdq": Symlink(f"../../devices/pci0000:00/{ADDRESS}/host0/target0/block/sdq"),
        f"/sys/devices/pci0000:00/{ADDRESS}/host0/target0/block/sdq/removable": "0\n"}  # fmt: skip
CONVICTED = (Verdict.CRIT, "DriverComplaint")


@pytest.mark.parametrize("line", [NIC, GPU, HBA, f"newaccel {ADDRESS}: engine 3 stuck"])
@pytest.mark.parametrize("kind", ["0x020000", "0x030200", "0x010700", "0x120000", "0x0c0400", "0x0b4000"])
def test_a_configuration_space_of_ones_convicts_whatever_the_device(line, kind):
    files = {**UP, **ROUTED, "/sys/class/net/eth4": Symlink(f"../..{NET[4:]}")} if kind.startswith("0x02") else {}
    assert judged(node(line, kind, ONES, files)) == [(*CONVICTED, Action.REBOOT)]


def test_a_device_that_answers_well_has_no_finding():
    network = {**ROUTED, "/sys/class/net/eth4": Symlink(f"../..{NET[4:]}")}
    assert judged(node(NIC, "0x020000", HEADER, {**UP, **network})) == []
    assert judged(node(NIC, "0x020000", VF_HEADER, {**UP, **network})) == [], "a virtual function's vendor is ones"
    assert judged(node(NIC, "0x020700", HEADER, {
        f"/sys/devices/pci0000:00/{ADDRESS}/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"})) == []  # fmt: skip
    assert judged(node(HBA, "0x010700", HEADER, DISK, read=0)) == []
    for kind in ("0x0c0330", "0x040300", "0x088000", "0x060400"):
        assert judged(node(f"other {ADDRESS}: engine 3 stuck", kind)) == [], "nothing that computing needs"


def test_a_link_that_traffic_needs_and_that_is_gone_convicts():
    network = {**ROUTED, "/sys/class/net/eth4": Symlink(f"../..{NET[4:]}")}
    assert judged(node(NIC, "0x020000", HEADER, {**DOWN, **network})) == [(*CONVICTED, Action.INSPECT)]


def test_a_disk_that_cannot_be_read_convicts(tmp_path):
    assert judged(node(HBA, "0x010700", HEADER, DISK, read=errno.EISDIR)) == [(*CONVICTED, Action.INSPECT)]
    (tmp_path / "disk").write_text("x" * 4096)
    assert read_block(str(tmp_path / "disk")) == 0
    assert read_block(str(tmp_path)) == errno.EISDIR
    assert read_block("/proc/self/mem") == 5, "EIO, as of a disk that has gone"


@pytest.mark.parametrize(
    ("content", "expected"), [("x" * 4096, []), ("", [(*CONVICTED, Action.INSPECT)])], ids=["read", "unreadable"]
)
def test_how_a_disk_was_read_is_part_of_a_recording(tmp_path, content, expected):
    host = node(HBA, "0x010700", HEADER, {**DISK, "/dev/sdq": content})
    live = System(host.root)
    live.kernel_log, live.monotonic = host.system.kernel_log, host.system.monotonic
    recording = RecordingHost(str(tmp_path), host.root, live)
    assert judged(recording) == expected
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [["ask", "read /dev/sdq"], {"value": 0 if content else errno.EIO}] in lines
    assert not (tmp_path / "root/dev").exists(), "what the disk holds is nobody's"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (node(HBA, "0x010700"), "no disk behind it"),
        (node(HBA, "0x010700", HEADER, DISK), "its disk was not asked"),
        (node(HBA, "0x010700", HEADER, DISK, read=errno.ENOENT), "its disk has no file"),
        (node(GPU, "0x030200"), "nobody knows the GPU"),
        (node(NIC, "0x020000", None), "no configuration space"),
        (node("mpt3sas_cm0: event 17 assert in sequencer", "0x010700"), "a name, no address"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_asked_stays_a_warning(host, why):
    assert judged(host) == [(Verdict.WARN, "DriverComplaint", Action.INSPECT)], why


@pytest.mark.parametrize(("fault", "expected"), [("", []), ("the GPU is lost", [(*CONVICTED, Action.RESET_DEVICE)])])
def test_the_vendors_library_tells_of_an_accelerator(fault, expected):
    host = node(GPU, "0x030200")
    device = Device("nvidia", 0, pci=ADDRESS, fault=fault, recovery="", modes=Modes())
    host.know(asked, Inventory(sources=(Source("nvidia", devices=(device,)),)))
    assert judged(host) == expected
