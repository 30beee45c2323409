"""Programs on a node over SSH, as `nhc.marks.ports.runner` says, by the program that nhc sends to nodes.

    [verify.ssh]
    user = "nhc"            # sudo is used for every user but root
    nhc = "/usr/bin/nhc"    # where it is on the node
    port, identity, config, ssh, sudo, python

The node keeps each run under its key (`nhc_adapters.node.hand.runs`): a lost connection ends nothing.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Dict, Mapping, NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.core.system.bounded_read import unpacked
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import NodeRun, NotStarted, RunPhase, RunState, with_nhc
from nhc_adapters._command import Runner as CommandRunner
from nhc_adapters.node.hand.runs import DIRECTORY
from nhc_adapters.node.reach import LoginSettings, ProgramReply, Reach, login_of, run_program

ENDING = 20.0
"""Seconds that a node takes to end a run's processes, over those of any other answer."""
LONGEST = 16 << 20
"""Bytes of output that are unpacked at most."""


@declared.settings
class SshRunnerSettings(NamedTuple):
    """The table [verify.ssh]."""

    login: LoginSettings = declared.part("", LoginSettings)
    nhc: str = declared.text("nhc", "nhc", "the node's nhc")
    python: str = declared.text("python", "python3", "the node's Python")
    root: str = declared.text("root", "", "another root of the node's files")


class SshRunner:
    """Logs in and runs the node's program."""

    SETTINGS = SshRunnerSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None, timeout: float = 30.0,
        run: CommandRunner = run_program,
    ) -> None:  # fmt: skip
        own = read(SshRunnerSettings, settings)
        arguments = ["--root", own.root] if own.root else []
        self._reach = Reach(login_of(own.login, environ), False, own.python, arguments, run)
        self._nhc, self._timeout = own.nhc, timeout

    def start(self, run: NodeRun) -> str:
        """The run's directory on its node. Raises NotStarted, AdapterError."""
        machine = only_machine(run)
        run = run._replace(argv=with_nhc(run.argv, self._nhc))
        reply = self._reach.ask(machine, ["run", json.dumps(asked_run(run))], self._timeout)
        if reply.text("answer") != "accepted":
            raise NotStarted(f"{machine.node}: {reply.text('message')}", later=reply.number("retry_after") > 0)
        return f"{machine.node}:{DIRECTORY}/{run.key}"

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """One login each. A node that is not reached leaves its run UNKNOWN."""
        states: Dict[str, RunState] = {}
        for run in runs:
            try:
                reply = self._reach.ask(only_machine(run), ["poll", run.key], self._timeout)
                states[run.key] = state_of(reply)._replace(name=f"{run.nodes[0]}:{DIRECTORY}/{run.key}")
            except AdapterError as error:
                states[run.key] = RunState(RunPhase.UNKNOWN, why=str(error))
        return states

    def stop(self, run: NodeRun) -> None:
        """Raises AdapterError, also where processes do not end."""
        reply = self._reach.ask(only_machine(run), ["stop", run.key], self._timeout + ENDING)
        if reply.text("phase") == RunPhase.RUNNING.value or "do not end" in reply.text("why"):
            raise AdapterError(f"{run.nodes[0]}: it does not end: {reply.text('why')}")


def asked_run(run: NodeRun, alone: bool = False) -> Mapping[str, object]:
    """A run as the program on the node reads it (`nhc_adapters.node.hand.runs.AskedRun`)."""
    machine = only_machine(run)
    return {
        "key": run.key, "argv": list(run.argv), "seconds": run.limits.seconds, "output": run.limits.output,
        "uuid": machine.uuid if alone else "", "boot": machine.boot_id if alone else "", "alone": alone,
    }  # fmt: skip


def only_machine(run: NodeRun) -> Machine:
    """The one machine of a run. Raises NotStarted where there are more."""
    if len(run.machines) != 1:
        raise NotStarted(f"{run.key}: this runner runs on one node at a time, not on {len(run.machines)}", later=False)
    return run.machines[0]


def state_of(reply: ProgramReply) -> RunState:
    """What the program on the node says of a run. Raises AdapterError for what it does not say."""
    try:
        phase = RunPhase(reply.text("phase"))
        if phase is not RunPhase.ENDED:
            return RunState(phase, why=reply.text("why"))
        output = unpacked(base64.b64decode(reply.text_of("output"), validate=True), LONGEST)
        status = reply.values["status"]
    except (ValueError, KeyError, zlib.error) as error:
        raise AdapterError(f"the node's answer cannot be understood: {error}") from None
    if not isinstance(status, int):
        raise AdapterError(f"the node's answer cannot be understood: status {status!r}")
    return RunState(phase, status, output.decode("utf-8", "replace"), reply.values.get("cut") is True)
