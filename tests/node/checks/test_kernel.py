"""The running kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.kernel import TAINTS, decode_taint, parse_cmdline
from tests.support.judge import judge

RELEASE = "/proc/sys/kernel/osrelease"
TAINT = "/proc/sys/kernel/tainted"


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        ("'5.14.0-427.*'", Verdict.OK),
        ("'5.14.0-503.*' '5.14.0-427.*'", Verdict.OK),
        ("'5.15.*'", Verdict.CRIT),
        ("'>=5.14.0-70' '<6'", Verdict.OK),
        ("'>=5.14.0-503'", Verdict.CRIT),
        ("'5.14.*' '>=6'", Verdict.CRIT),
    ],
)
def test_version(wanted, verdict):
    host = FakeHost({RELEASE: "5.14.0-427.13.1.el9_4.x86_64\n"})

    assert judge(host, f"check_kernel_version {wanted}").verdict is verdict


def test_version_unknown_and_bad_arguments():
    assert judge(FakeHost(), "check_kernel_version 5.*").verdict is Verdict.UNKNOWN
    assert judge(FakeHost({RELEASE: "\n"}), "check_kernel_version 5.*").verdict is Verdict.UNKNOWN
    with pytest.raises(BadArguments):
        judge(FakeHost(), "check_kernel_version")


def test_cmdline():
    host = FakeHost({"/proc/cmdline": 'BOOT_IMAGE=/vmlinuz iommu=pt isolcpus=2-5 dyndbg="file a +p" quiet\n'})

    assert judge(host, "check_kernel_cmdline iommu=pt 'isolcpus=*' '!nosmt'").verdict is Verdict.OK
    found = judge(host, "check_kernel_cmdline iommu=on '!quiet'")
    assert found.verdict is Verdict.CRIT
    assert found.message == "the kernel command line lacks iommu=on and has quiet"
    assert judge(FakeHost(), "check_kernel_cmdline quiet").verdict is Verdict.UNKNOWN


@given(st.text())
def test_cmdline_words_hold_every_letter(text):
    assert "".join("".join(parse_cmdline(text)).split()) == "".join(text.split())


def test_modules():
    files = {
        "/proc/modules": "nvidia_uvm 1 0 - Live 0x0 (POE)\nnvidia 2 1 nvidia_uvm, Live 0x0 (POE)\n",
        RELEASE: "6.1.0\n",
        "/lib/modules/6.1.0/modules.builtin": "kernel/fs/ext4/ext4.ko\nkernel/drivers/nvme-core.ko\n",
    }
    host = FakeHost(files)

    assert judge(host, "check_kernel_modules nvidia nvidia-uvm ext4 nvme_core '!nouveau'").verdict is Verdict.OK
    assert judge(host, "check_kernel_modules nvidia_peermem").reason == "ModuleMissing"
    assert judge(host, "check_kernel_modules '!nvidia'").reason == "ModuleUnwanted"
    assert judge(FakeHost(), "check_kernel_modules x").verdict is Verdict.CRIT  # a kernel without modules


@pytest.mark.parametrize(
    ("value", "verdict", "text"),
    [
        (0, Verdict.OK, "not tainted"),
        (1 | 1 << 12 | 1 << 13, Verdict.OK, "POE"),
        (1 << 9, Verdict.WARN, "kernel has warned (W)"),
        (1 << 7 | 1 << 9, Verdict.CRIT, "kernel has oopsed (D)"),
        (1 << 14, Verdict.CRIT, "soft lockup"),
        (1 << 4, Verdict.CRIT, "machine check"),
        (1 << 30, Verdict.OK, "?"),
    ],
)
def test_taint(value, verdict, text):
    found = judge(FakeHost({TAINT: f"{value}\n"}), "check_kernel_taint")

    assert found.verdict is verdict
    assert text in found.message


def test_taint_letters_are_options():
    host = FakeHost({TAINT: "512\n"})

    assert judge(host, "check_kernel_taint -c W").verdict is Verdict.CRIT
    assert judge(host, "check_kernel_taint -w none").verdict is Verdict.OK
    with pytest.raises(BadArguments, match="taint letters"):
        judge(host, "check_kernel_taint -c Y")
    assert judge(FakeHost({TAINT: "x\n"}), "check_kernel_taint").verdict is Verdict.UNKNOWN


@given(st.integers(0, 2**64))
def test_every_set_bit_is_named_once(value):
    found = decode_taint(value)

    assert sum(1 << taint.bit for taint in found) == value
    assert {t for t in found if t.letter != "?"} <= set(TAINTS)
