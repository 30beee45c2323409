"""A suite on another node over SSH: `nhc deep run` as it is installed there.

    [verify.ssh]
    user = "nhc"            # sudo is used for every user but root
    nhc = "/usr/bin/nhc"    # where it is on the node
    port, identity, config, ssh, sudo

The node keeps each report. Where the connection is lost, the run goes on there, and asking again with the same `since`
gives that report and begins nothing.
"""

from __future__ import annotations

import re
import shlex
from typing import List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.process import Completed
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.suites import PROOF, DeviceProof, SuiteOrder
from nhc_adapters._command import Runner, complaint, run_command
from nhc_adapters.node.reach import LoginSettings, login_of

CONNECT = 30.0
"""Seconds for logging in and for what a run does before and after its limit."""
ENDING = 60.0
_DEVICE = re.compile(r"[A-Za-z0-9:.-]+")
_SUITE = re.compile(r"[A-Za-z0-9_./-]+")


def suite_words(order: SuiteOrder, *more: str) -> List[str]:
    """The arguments of nhc for a suite on the node that it runs on, with `more` options. Raises AdapterError."""
    if not _SUITE.fullmatch(order.suite) or order.suite.startswith("-"):
        raise AdapterError(f"{printable(order.suite, 60)!r} is not a suite's name")
    return ["deep", "run", order.suite, *more, "-n", order.machine.node, "-f", "json", "-q",
            "--since", f"{order.since:.0f}", "--timeout", f"{order.seconds:.0f}s"]  # fmt: skip


class InstalledNhc(NamedTuple):
    """nhc as it is installed on a node: the lines that a shell there runs. `before` stands in front of the program."""

    program: str
    before: Tuple[str, ...] = ()

    def suite(self, order: SuiteOrder) -> str:
        """Raises AdapterError."""
        return shlex.join([*self.before, self.program, *suite_words(order)])

    def proof(self, order: DeviceProof) -> str:
        """Raises AdapterError."""
        device = order.device.uuid or order.device.pci
        if not _DEVICE.fullmatch(device):
            raise AdapterError(f"{device!r} is not the name of a device")
        limit = f"{order.seconds:.0f}s"
        check = f"* |timeout {limit}| {PROOF} -d {device} -s {order.seed}"
        # A profile of the node type would add lines about the rest of the node; a run without a limit has 30 seconds.
        arguments = ["check", "local", "-c", "/dev/stdin", "--profile", "none", "-t", limit, "-n", order.machine.node,
                 "-f", "json"]  # fmt: skip
        return f"{shlex.join(['echo', check])} | {shlex.join([*self.before, self.program, *arguments])}"


def report_of(node: str, what: str, done: Completed) -> str:
    """The report that a line of these has printed. Raises AdapterError where it is none."""
    if done.status in (0, 1, 3) and done.stdout.lstrip().startswith("{"):
        return done.stdout
    raise AdapterError(f"{node}: {what} ended with {done.status}: {complaint(done)}")


@declared.settings
class NodeSuiteSettings(NamedTuple):
    """The table [verify.ssh]."""

    login: LoginSettings = declared.part("", LoginSettings)
    nhc: str = declared.text("nhc", "nhc", "the node's nhc")


class NodeSuite:
    """Logs in and runs it."""

    SETTINGS = NodeSuiteSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None, run: Runner = run_command
    ) -> None:
        own = read(NodeSuiteSettings, settings)
        self._login = login_of(own.login, environ)
        self._nhc, self._run = InstalledNhc(own.nhc, self._login.before), run

    def run(self, order: SuiteOrder) -> str:
        """The report. Raises AdapterError."""
        return self._report(order.machine, order.suite, self._nhc.suite(order), order.seconds)

    def prove(self, order: DeviceProof) -> str:
        """The report of a proof of one device. Raises AdapterError."""
        return self._report(order.machine, PROOF, self._nhc.proof(order), order.seconds)

    def _report(self, machine: Machine, what: str, line: str, seconds: float) -> str:
        argv = self._login.argv(machine, line, "-o", f"ConnectTimeout={CONNECT:.0f}", "-o", "ServerAliveInterval=15")
        try:
            done = self._run(argv, seconds + CONNECT + ENDING, self._login.env)
        except OSError as error:
            raise AdapterError(f"{argv[0]} cannot be run: {error.strerror}") from None
        if done.timed_out:
            raise AdapterError(f"{machine.node}: no report of {what} within {seconds:g} s")
        return report_of(machine.node, what, done)
