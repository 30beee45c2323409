"""Xid lines by their words and registers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.data.reader import read
from nhc.core.model import Action
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.collect import add
from nhc.node.kernlog.findings import current
from nhc.node.kernlog.xid import find_xid, generation, in_context, is_coherent, read_xid


def judge(code, words, driver=""):
    found = read_xid(code, "0000:3b:00.0", words, f"NVRM: Xid (PCI:0000:3b:00): {code}, {words}", driver)
    return found.severity, found.action.value


def test_every_code_that_a_source_names_is_decided():
    rows = [line.split("\t") for line in read("xid.tsv").split("\n") if line and not line.startswith("#")][1:]
    assert {int(row[0]) for row in rows} == set(range(1, 177))
    assert all(row[4] not in ("", "-") for row in rows), "a decision without its reason"


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_applications_fault_never_takes_a_node_out(code):
    assert find_xid(code).severity == "app"


@pytest.mark.parametrize("code", [46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158])
def test_what_nvidia_resets_is_reset(code):
    assert find_xid(code)[1:] == ("fatal", Action.RESET_DEVICE)


@pytest.mark.parametrize("code", [14, 37, 38, 44, 66, 67, 106, 107, 121, 137, 152, 153, 160])
def test_what_nvidia_ignores_is_information(code):
    assert find_xid(code)[1:] == ("info", Action.NONE)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", ("fatal", "inspect")),
        ("NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", ("fatal", "reset-device")),
        ("NVLink: fatal error detected on link 2(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", ("fatal", "reset-device")),
        ("NVLink: fatal error detected on link 2(0x1, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0)", ("info", "none")),
        ("NVLink: fatal error detected on link 2(0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", ("degraded", "reset-device")),
        ("NVLink: fatal error detected on link 2(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", ("fatal", "reset-device")),
        ("something that names no registers", ("fatal", "reset-device")),
    ],
)
def test_xid_74_is_judged_by_its_registers(words, expected):
    assert judge(74, f"pid='<unknown>', name=<unknown>, {words}") == expected


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        # The line's own word wins over the table.
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x0 0x0)", ("fatal", "reset-device")),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)", ("info", "none")),
        (145, "pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0)",
         ("info", "none")),
        # Xid 154 is to name the repair.
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x0)", ("degraded", "inspect")),
        (145, "RLW_SRC_TRACK Fatal XC0 i0 Link 00 (0x00000007 0x00000001 0x0)", ("fatal", "reset-device")),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001 0x0)", ("info", "none")),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x0)", ("fatal", "reset-device")),
        # A unit that no rule names: the word alone.
        (144, "SAW_EGR Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x0)", ("degraded", "inspect")),
        (144, "SAW_EGR Fatal XC0 i0 Link 00 (0x00000004 0x00000001 0x0)", ("fatal", "reset-device")),
        # Nothing to decode.
        (149, "Placeholder message", ("degraded", "inspect")),
    ],
)  # fmt: skip
def test_nvlink_5_errors_are_decoded(code, words, expected):
    assert judge(code, words) == expected


def test_the_drivers_release_says_how_the_first_register_reads():
    # As v1 (before R575) these bits are RLW_SRC_TRACK; no v2 rule of that unit has them.
    words = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x0 0x0 0x0 0x0)"
    assert judge(145, words, "570.86.15") == ("degraded", "inspect")
    assert "154" in read_xid(145, "", words, words, "570.86.15").message
    assert "154" not in read_xid(145, "", words, words, "580.65.06").message


def test_the_log_itself_tells_the_drivers_release():
    matcher = Matcher()
    matcher.judge("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build")
    assert matcher.driver == "580.65.06"
    matcher.judge("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024")
    assert matcher.driver == "550.144.03"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)",
            ("fatal", "reset-device"),
        ),
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", ("fatal", "reset-device")),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", ("fatal", "reboot")),
        ("GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", ("degraded", "reset-device")),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", ("info", "none")),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (words of a driver to come)", ("fatal", "reset-device")),
        ("GPU recovery action changed from 0x2 (Node Reboot Required) to 0x5 (IMEX)", ("degraded", "restart-app")),
        (
            "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x1F (Node Reboot Required)",
            ("degraded", "inspect"),
        ),
        ("GPU recovery action changed from 0 to 2", ("fatal", "reboot")),
        ("Node Reboot Required", ("fatal", "reboot")),
        ("GPU recovery action changed from None to Drain and Reset", ("fatal", "reset-device")),
        ("words of a driver to come", ("info", "none")),
    ],
)
def test_xid_154_names_the_repair(words, expected):
    assert judge(154, words) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("NVIDIA A100-SXM4-80GB", "ampere"), ("NVIDIA H100 80GB HBM3", "hopper"), ("NVIDIA GB200", "blackwell"),
     ("NVIDIA A10G", ""), ("Tesla V100-SXM2-32GB", "volta"), ("NVIDIA L4", "ada")],
)  # fmt: skip
def test_products_have_generations(name, expected):
    assert generation(name) == expected


@pytest.mark.parametrize(
    ("code", "architecture", "mig", "rows", "expected"),
    [
        ("63", "hopper", "off", "pending", ("degraded", Action.RESET_DEVICE)),
        ("63", "hopper", "off", "failed", ("fatal", Action.REPLACE)),
        ("63", "hopper", "off", "clean", ("gone", Action.NONE)),
        ("64", "ampere", "off", "", ("fatal", Action.REBOOT)),
        ("95", "ampere", "off", "", ("fatal", Action.REBOOT)),
        ("95", "ampere", "on", "", None),
        ("95", "hopper", "off", "", None),
        ("79", "hopper", "off", "clean", None),
    ],
)
def test_the_devices_state_changes_what_an_xid_means(code, architecture, mig, rows, expected):
    told = in_context(code, architecture, mig, rows)
    assert (told[:2] if told else None) == expected


@pytest.mark.parametrize("registers", ["0x10x2", "0x1, 0xZZ", "0x", "0x1,,0x2", "0x1, 0x2,", "²", "0x" + "f" * 9000])
def test_xid_74_with_registers_that_are_none_is_judged_by_its_number(registers):
    words = f"NVLink: fatal error detected on link 6({registers})"
    assert judge(74, words) in (("fatal", "reset-device"), ("degraded", "reset-device"), ("info", "none"))


@given(
    st.sampled_from(["NVRM: Xid (PCI:0000:3b:00): ", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): "]),
    st.one_of(st.sampled_from(["74", "144", "149", "154", "13", "20034", "9" * 5000, "\u00b2", "\u0663"])),
    st.lists(
        st.one_of(
            st.sampled_from(["link ", "Link -1 (", "Link 99999999999 (", "0x", "10", "zz", ", ", ")", "(", "LINK_EVT",
                             " Fatal ", "to 0x", "GPU Reset Required", "(GPC 1, TPC 2)", "\u00b2", "Severity"]),
            st.text("0123456789abcdefx, ()", max_size=8),
        ),
        max_size=12,
    ),
)  # fmt: skip
def test_no_nvidia_line_ends_in_a_traceback(head, code, words):
    matcher = Matcher("\u00b2")
    matcher.judge(f"{head}{code}, {''.join(words)}")


# kernel_rc.c of NVIDIA's open modules prints the MIG attribution behind the address, on every branch since 450.
@pytest.mark.parametrize(
    ("mig", "words"),
    [("", ""), (" GPU-I:05", " (GPU instance 5)"), (" GPU-I:05 GPU-CI:00", " (GPU instance 5, compute instance 0)"),
     (" GPU-CI:01", " (compute instance 1)")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("code", "said", "severity", "action"),
    [("79", "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "fatal", "reboot"),
     ("95", "pid=7062, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No", "fatal", None),
     ("13", "pid=9, name=a, Graphics Exception", "app", None)],
)  # fmt: skip
def test_a_line_with_mig_attribution_is_the_same_xid(mig, words, code, said, severity, action):
    line = f"NVRM: Xid (PCI:0000:3b:00{mig}): {code}, {said}"
    ((start, end, numbers),) = Matcher().candidates(line)
    found = Matcher().judge(line[start:end], numbers)
    plain = Matcher().judge(f"NVRM: Xid (PCI:0000:3b:00): {code}, {said}")
    assert (found.code, found.device, found.severity, found.unit) == (code, "0000:3b:00.0", severity, plain.unit)
    assert found.message == plain.message + words
    assert action in (None, found.action.value)


def test_what_asks_for_less_takes_back_no_repair():
    """P2P to be drained after a GPU fell off the bus: the reboot stands."""
    state = {}
    for code, words in (("79", "GPU has fallen off the bus."), ("154", "changed from 0x2 (x) to 0x3 (Drain P2P)")):
        add(state, Matcher().judge(f"NVRM: Xid (PCI:0000:3b:00): {code}, {words}"), 1.0, 1.0)
    assert {finding["code"]: finding["action"] for _key, finding in current(state)} == {
        "79": "reboot", "154": "reset-device",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "coherent"),
    [
        ("NVIDIA GH200 480GB", True), ("NVIDIA GB200", True), ("NVIDIA GB300", True), ("NVIDIA GB10", True),
        ("NVIDIA VR200", True), ("NVIDIA H100 80GB HBM3", False), ("NVIDIA B200", False), ("Quadro GV100", False),
        ("NVIDIA GeForce GT 1030", False), ("", False),
    ],
)  # fmt: skip
def test_which_products_share_one_memory_with_their_processor(name, coherent):
    assert is_coherent(name) is coherent
