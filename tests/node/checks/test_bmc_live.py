"""The controller's log, by the real ipmitool, of a controller that OpenIPMI's ipmi_sim plays."""

import shutil
import subprocess

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from tests.support.ipmi_sim import IpmiSimulator
from tests.support.judge import judge, judge_all

pytestmark = pytest.mark.thorough

AC_LOST = (0x08, 0x51, 0x6F, 0x03)
AC_BACK = (0x08, 0x51, 0xEF, 0x03)
ECC = (0x0C, 0x87, 0x6F, 0x01)
"""Sensor type, number, direction and event type, first byte of data (IPMI 2.0, section 32.1)."""


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    """A command `ipmitool` that asks a controller of our own, with an empty log."""
    at = tmp_path_factory.mktemp("bmc")
    simulator = IpmiSimulator(at)
    (at / "bin").mkdir()
    tool = at / "bin/ipmitool"
    tool.write_text(f'#!/bin/sh\nexec {shutil.which("ipmitool")} {" ".join(simulator.tool[1:])} "$@"\n')
    tool.chmod(0o755)
    subprocess.run([tool, "sel", "time", "set", "now"], check=True, capture_output=True)
    yield tool
    simulator.stop()


@pytest.fixture
def node(controller, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ipmi0").touch()
    subprocess.run([controller, "sel", "clear"], check=True, capture_output=True)
    return Host(str(tmp_path), settings={"PATH": str(controller.parent)})


def log(controller, kind, number, direction, data):
    """Add SEL Entry: the record's id and time are the controller's to fill in."""
    record = [0, 0, 0x02, 0, 0, 0, 0, 0x20, 0x00, 0x04, kind, number, direction, data, 0xFF, 0xFF]
    subprocess.run([controller, "raw", "0x0a", "0x44", *map(hex, record)], check=True, capture_output=True)


def test_what_a_real_ipmitool_prints_is_understood(controller, node):
    assert judge(node, "check_bmc_sel").verdict is Verdict.OK

    log(controller, *AC_LOST)
    log(controller, *ECC)
    found = judge_all(node, "check_bmc_sel")
    assert [(o.verdict, o.reason) for o in found] == [(Verdict.WARN, "SelEvent"), (Verdict.CRIT, "SelFatal")], found
    assert found[0].message.startswith("Power Supply #0x51: Power Supply AC lost")
    assert "Uncorrectable ECC" in found[1].message

    log(controller, *AC_BACK)
    assert [o.reason for o in judge_all(node, "check_bmc_sel")] == ["SelFatal"]


def test_a_real_log_that_runs_full(controller, node):
    for _ in range(10):
        log(controller, *AC_BACK)
    assert judge(node, "check_bmc_sel").reason == "SelFull"


def test_a_first_run_takes_the_events_of_today_for_news(controller, node):
    log(controller, *ECC)
    assert judge(node, "check_bmc_sel").reason == "SelFatal"


def test_a_controller_without_sensors_is_unknown(node):
    assert judge(node, "check_bmc_sensors").verdict is Verdict.UNKNOWN
