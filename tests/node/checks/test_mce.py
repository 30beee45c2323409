"""Machine checks by /proc/interrupts."""

from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.hardware_errors import parse_interrupts
from tests.support.judge import judge

TEXT = """\
            CPU0       CPU1
   0:         17          0  IR-IO-APIC    2-edge      timer
 THR:          {thr}          {thr}   Threshold APIC interrupts
 DFR:          {dfr}          0   Deferred Error APIC interrupts
 MCE:          {mce}          0   Machine check exceptions
 MCP:        300        300   Machine check polls
 ERR:          0
"""


def node(thr=0, dfr=0, mce=0, commands=None):
    return FakeHost({"/proc/interrupts": TEXT.format(thr=thr, dfr=dfr, mce=mce)}, commands)


def test_no_events():
    assert judge(node(), "check_mce_events").verdict is Verdict.OK


def test_an_exception_with_rasdaemons_records():
    records = "1 2026-01-02 03:04:05 +0000 error: Corrected error, mcgcap=0xf000c14\nNo Memory errors.\n"
    found = judge(node(mce=1, commands={"ras-mc-ctl --errors": records}), "check_mce_events")

    assert (found.verdict, found.reason) == (Verdict.CRIT, "MachineCheck")
    assert found.evidence == (records.splitlines()[0],)


def test_deferred_and_corrected_errors():
    assert judge(node(dfr=1), "check_mce_events").reason == "DeferredErrors"
    assert judge(node(thr=100), "check_mce_events").reason == "CorrectedErrors"
    assert judge(node(dfr=1), "check_mce_events -d 0").verdict is Verdict.OK


def test_corrected_errors_are_a_rate():
    host = node(thr=500)
    host.system.uptime = 100 * 86400.0

    assert judge(host, "check_mce_events").verdict is Verdict.OK


def test_skip_and_unknown():
    assert judge(FakeHost({"/proc/interrupts": "  CPU0\n 0: 1 timer\n"}), "check_mce_events").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_mce_events").verdict is Verdict.UNKNOWN


@given(st.text())
def test_parser_never_fails(text):
    parse_interrupts(text)
