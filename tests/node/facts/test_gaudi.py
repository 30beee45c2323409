"""Intel Gaudi: eight Gaudi 2 and their faults, judged by the same checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Completed
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu import check_gpu_count, check_gpu_lost
from nhc.node.checks.gpu_clocks import check_gpu_temp
from nhc.node.checks.gpu_links import check_gpu_links
from nhc.node.checks.gpu_memory import check_gpu_ecc
from nhc.node.checks.gpu_modes import check_gpu_ecc_mode
from nhc.node.checks.gpu_pcie import check_gpu_pcie
from nhc.node.facts.gaudi import BASIC, FULL, parse_links, parse_query
from tests.support.nvml.fake import functions_tree

BUSES = ("33", "34", "4d", "4e", "9a", "9b", "b3", "b4")
DEVICES = [f"0000:{bus}:00.0" for bus in BUSES]
CELLS = {
    "name": "HL-225", "driver_version": "1.19.0-6a2cd89", "temperature.aip": "27", "memory.total": "98304",
    "memory.used": "768", "power.draw": "94", "ecc.mode.current": "Enabled", "ecc.mode.pending": "Enabled",
    "pcie.link.gen.max": "4", "pcie.link.gen.current": "4", "pcie.link.width.max": "x16",
    "pcie.link.width.current": "x16",
}  # fmt: skip


def rows(queries=FULL, changed=None, count=8):
    lines = []
    for number in range(count):
        cells = {**CELLS, "index": str(number), "uuid": f"01P0-HL2080A0-15-{number:04d}", "bus_id": DEVICES[number],
                 "serial": f"AM5101{number:04d}", **((changed or {}).get(number, {}))}  # fmt: skip
        lines.append(", ".join(cells.get(query, "0") for query in queries))
    return "\n".join(lines) + "\n"


def tree():
    files = functions_tree([(address, 0x1DA3, 0x1020, 0x120000) for address in DEVICES])
    files["/sys/module/habanalabs/version"] = "1.19.0\n"
    for number, address in enumerate(DEVICES):
        files[f"/sys/class/accel/accel{number}/device/status"] = "Operational\n"
        files[f"/sys/class/accel/accel{number}/device/pci_addr"] = f"{address}\n"
    return files


def links(down=()):
    return "".join(f"port {port}:\t{'DOWN' if port in down else 'UP'}\n" for port in range(21))


def host(changed=None, files=None, count=8, down=None):
    commands = {("hl-smi", "-Q", ",".join(FULL)): rows(changed=changed, count=count), ("hl-smi", "-n", "link"): links()}
    if down is not None:
        commands["hl-smi", "-n", "link", "-i", DEVICES[down]] = links(down=(7,))
    return FakeHost(tree() if files is None else files, {**commands, "hl-smi": ""})


def bad(outcomes):
    outcomes = [outcomes] if not isinstance(outcomes, list) else outcomes
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


@pytest.mark.parametrize("check", [check_gpu_lost, check_gpu_ecc, check_gpu_links, check_gpu_ecc_mode, check_gpu_pcie])
def test_a_healthy_node_passes(check):
    found = check(host())

    assert {outcome.verdict for outcome in found} == {Verdict.OK}


def test_the_count():
    assert check_gpu_count(host(), 8).verdict is Verdict.OK
    assert DEVICES[7] in only(check_gpu_count(host(count=7), 8)).message


def test_an_older_tool_that_refuses_newer_queries():
    old = FakeHost(
        tree(),
        {
            ("hl-smi", "-Q", ",".join(FULL)): Completed(1, "", "unknown query\n"),
            ("hl-smi", "-Q", ",".join(BASIC)): rows(BASIC),
            ("hl-smi", "-n", "link"): links(),
            "hl-smi": "",
        },
    )

    assert check_gpu_count(old, 8).verdict is Verdict.OK
    assert check_gpu_pcie(old)[0].verdict is Verdict.SKIP


def test_memory_errors():
    dram = {4: {"ecc.errors.dram.volatile.total": "1", "ecc.errors.uncorrected.volatile.total": "1"}}
    sram = {4: {"ecc.errors.dram.volatile.total": "0", "ecc.errors.uncorrected.volatile.total": "2"}}

    assert (only(check_gpu_ecc(host(dram))).reason, only(check_gpu_ecc(host(dram))).target) == (
        "GpuDramUncorrected",
        "hpu4",
    )
    assert only(check_gpu_ecc(host(sram))).reason == "GpuSramUncorrected"


def test_a_port_that_is_down():
    outcome = only(check_gpu_links(host(down=2)))

    assert (outcome.reason, outcome.target) == ("LinkDown", "hpu2")
    assert "port 7 down (20 of 21 up)" in outcome.message


def test_a_temperature_limit_must_be_given():
    assert check_gpu_temp(host())[0].verdict is Verdict.SKIP
    assert not bad(check_gpu_temp(host(), most=85))
    assert only(check_gpu_temp(host({1: {"temperature.aip": "90"}}), most=85)).target == "hpu1"


@pytest.mark.parametrize(
    ("status", "verdict", "reason", "action"),
    [
        ("Malfunction", Verdict.CRIT, "GpuFailed", Action.REBOOT),
        ("Needs Reset", Verdict.CRIT, "GpuResetRequired", Action.RESET_DEVICE),
    ],
)
def test_the_drivers_word_on_a_device(status, verdict, reason, action):
    files = {**tree(), "/sys/class/accel/accel6/device/status": f"{status}\n"}

    outcome = next(o for o in check_gpu_ecc(host(files=files)) if o.target == "hpu6")

    assert (outcome.verdict, outcome.reason, outcome.action) == (verdict, reason, action)


def test_a_tool_or_driver_that_is_not_there():
    assert only(check_gpu_count(FakeHost(tree()), 8)).verdict is Verdict.UNKNOWN
    files = {path: text for path, text in tree().items() if not path.startswith("/sys/module")}
    assert only(check_gpu_count(host(files=files), 8)).reason == "GpuDriverNotLoaded"
    hangs = FakeHost(tree(), {"hl-smi": Completed(124, "", "", timed_out=True)})
    assert only(check_gpu_count(hangs, 8)).reason == "ToolFailed"


@given(st.text())
def test_any_text_is_read_without_raising(text):
    parse_query(text, FULL)
    parse_links(text)
