"""A management controller that OpenIPMI's ipmi_sim plays, for the real ipmitool."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.ports import free_port
from tests.support.require import need
from tests.support.waiting import until

UUID = "a1234567-89ab-cdef-a123-456789abcdef"
LAN = """\
name "node"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid {guid}
  endlan
{chassis}
  user 2 true "admin" "test" admin 10 none md2 md5 straight
"""
CONTROLLER = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 10 0x0a
mc_enable 0x20
"""


class IpmiSimulator:
    """One controller with the user admin, password test, once it answers. `chassis` is a program for its power."""

    def __init__(self, at: Path, chassis: str = "") -> None:
        need("ipmitool", shutil.which("ipmitool"), "package ipmitool")
        need("ipmi_sim", shutil.which("ipmi_sim"), "package openipmi")
        self.at, self.port = at, free_port(socket.SOCK_DGRAM)
        self.tool = ("ipmitool", "-I", "lan", "-A", "MD5", "-H", "127.0.0.1", "-p", str(self.port), "-U", "admin",
                     "-P", "test")  # fmt: skip
        """The command that asks it, without what is asked."""
        (at / "state").mkdir()
        control = f'  chassis_control "{chassis} 0x20"' if chassis else ""
        (at / "lan.conf").write_text(LAN.format(port=self.port, guid=UUID.replace("-", ""), chassis=control))
        (at / "sim.emu").write_text(CONTROLLER)
        with (at / "log").open("wb") as log:
            # With its input closed it does not get as far as to listen.
            self.running = subprocess.Popen(
                ["ipmi_sim", "-c", at / "lan.conf", "-f", at / "sim.emu", "-s", at / "state"],
                stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            until(self._answers, 60, what="ipmi_sim", said=lambda: (at / "log").read_text()[-2000:])
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.running.poll() is None, f"ipmi_sim has ended:\n{(self.at / 'log').read_text()[-2000:]}"
        return subprocess.run([*self.tool, "mc", "info"], capture_output=True).returncode == 0

    def stop(self) -> None:
        if self.running.poll() is None:
            assert self.running.stdin is not None
            self.running.stdin.close()
            self.running.terminate()
            self.running.wait(60)
