"""The controller's log, by the real ipmitool, of a controller that OpenIPMI's ipmi_sim plays."""

import shutil
import socket
import subprocess
import time

import pytest

from nhc.host import Host
from nhc.model import Verdict
from tests.support.judge import judge, judge_all
from tests.support.require import need

LAN = """\
name "node"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  user 2 true "admin" "test" admin 10 none md2 md5 straight
"""
CONTROLLER = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 10 0x0a
mc_enable 0x20
"""
AC_LOST = (0x08, 0x51, 0x6F, 0x03)
AC_BACK = (0x08, 0x51, 0xEF, 0x03)
ECC = (0x0C, 0x87, 0x6F, 0x01)
"""Sensor type, number, direction and event type, first byte of data (IPMI 2.0, section 32.1)."""


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    """The directory of a command `ipmitool` that asks a controller of our own, with an empty log."""
    need("ipmitool", shutil.which("ipmitool"), "package ipmitool")
    need("ipmi_sim", shutil.which("ipmi_sim"), "package openipmi")
    at = tmp_path_factory.mktemp("bmc")
    port = free_port()
    (at / "state").mkdir()
    (at / "lan.conf").write_text(LAN.format(port=port))
    (at / "sim.emu").write_text(CONTROLLER)
    bin_dir = at / "bin"
    bin_dir.mkdir()
    tool = bin_dir / "ipmitool"
    tool.write_text(
        f'#!/bin/sh\nexec {shutil.which("ipmitool")} -I lan -A MD5 -H 127.0.0.1 -p {port} -U admin -P test "$@"\n'
    )
    tool.chmod(0o755)
    log = (at / "log").open("wb")
    # With its input closed it does not get as far as to listen.
    sim = subprocess.Popen(["ipmi_sim", "-c", at / "lan.conf", "-f", at / "sim.emu", "-s", at / "state"],
                           stdin=subprocess.PIPE, stdout=log, stderr=log)  # fmt: skip
    log.close()
    until = time.monotonic() + 60
    while subprocess.run([tool, "mc", "info"], capture_output=True).returncode:
        if sim.poll() is not None or time.monotonic() > until:
            sim.kill()
            pytest.fail(f"ipmi_sim does not answer:\n{(at / 'log').read_text()[-2000:]}")
    subprocess.run([tool, "sel", "time", "set", "now"], check=True, capture_output=True)
    yield tool
    sim.stdin.close()
    sim.terminate()
    sim.wait(30)


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
