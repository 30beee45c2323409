"""Programs on an instance by Systems Manager's Run Command, as `nhc.marks.ports.runner` says: without SSH.

    [verify.ssm]
    region = "us-east-1"    # default: the zone of the provider id, then the environment
    tag = "nhc=managed"     # nothing is sent to an instance without this tag
    nhc = "/usr/bin/nhc"    # where it is on the node; the SSM Agent runs it as root
    profile, proxy, endpoint

A command takes no client token, so its Comment names the run: the first command with this comment is the run, even if
another controller sent it, or the answer was lost. A command that was sent twice, because the list did not show the
first yet, finds the run's directory on the node and starts nothing.

Systems Manager hands over the first 24,000 characters of an output. So the output is sent compressed. If it was cut,
the part that can be unpacked is the output, and is marked as cut.

Sources: botocore's model of SSM (2014-11-06); Systems Manager User Guide, "Understanding command statuses".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shlex
import time
import zlib
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import GZIP
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Machine, Right
from nhc.marks.ports.runner import NodeRun, NotStarted, RunPhase, RunState, with_nhc
from nhc_adapters.cloud.aws import ec2, rights
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, AwsIdentity, identity
from nhc_adapters.node.hand.runs import DIRECTORY, MARK
from nhc_adapters.node.runner import only_machine
from nhc_adapters.repair import CallFailed, RepairRefused, pair, unknown

DOCUMENT = "AWS-RunShellScript"
DELIVERY = 120
"""Seconds within which a command must have begun (30 at least). A node that is verified is up, and its agent polls."""
LONGEST = 172800
"""The longest executionTimeout that the document takes."""
ENDING = 60.0
"""Seconds that the command has over the limit of its program."""
REMEMBERED = 7 * 86400.0
"""Seconds for which a run is looked for: a command is listed for 30 days."""
WAITING, RUNNING = frozenset({"Pending", "Delayed"}), frozenset({"InProgress", "Cancelling"})
CANCELLED = "Cancelled"
MEANING: Mapping[str, str] = {
    "DeliveryTimedOut": f"its SSM Agent has not taken it within {DELIVERY} s: it may be run again",
    "Undeliverable": "its SSM Agent does not answer, or the instance is gone: it may be run again",
    "ExecutionTimedOut": "it ran past its limit and was ended: nhc's own deadline did not hold on this node",
    "Terminated": "Systems Manager has ended it: it may be run again",
    "AccessDenied": "the instance's role or the caller's may not run it",
    "InvalidPlatform": f"the node's system cannot run {DOCUMENT}",
}
"""What a command proves that has ended without a result: nothing of the node's health, each for a reason of its own."""


@declared.settings
class SsmSettings(NamedTuple):
    """The table [verify.ssm]."""

    access: AwsAccess = declared.part("", AwsAccess)
    tag: Optional[Tuple[str, str]] = declared.converted(
        "tag", pair, None, "NAME=VALUE: only instances with it are touched", show="=".join
    )
    nhc: str = declared.text("nhc", "nhc", "the node's nhc")
    directory: str = declared.path("directory", DIRECTORY, "on the node: which runs were begun there")


SCRIPT = """\
mkdir -p -m 700 {directory} && mkdir {directory}/{key} || {{ echo 'this run was begun before' >&2; exit 114; }}
{mark} {argv} < /dev/null 2>&1 | {{ head -c {limit}; cat > /dev/null; }} | gzip | base64
status=${{PIPESTATUS[0]}}
{end}
exit $status
"""
"""The exit status is the program's, and its output is whole or cut at its end; what it leaves running is ended."""
END = "for pid in $(grep -lsza '^{mark}$' /proc/[0-9]*/environ | cut -d/ -f3); do kill -9 $pid; done"
"""A process of the run is known by its environment."""


class SsmRunner:
    """As `nhc.marks.ports.runner.Runner`. Safe to use from several threads."""

    SETTINGS = SsmSettings

    def __init__(self, settings: Mapping[str, str], environ: Given = None, timeout: float = 30.0) -> None:
        own = read(SsmSettings, settings)
        self._tag, self._nhc, self._directory = own.tag, own.nhc, own.directory
        self._aws = Aws(own.access, environ, timeout)

    def start(self, run: NodeRun) -> str:
        """The command's id. Raises NotStarted, AdapterError."""
        machine = only_machine(run)
        argv = shlex.join(with_nhc(run.argv, self._nhc))
        if "{{" in argv:  # Systems Manager puts its own parameters in their place
            raise NotStarted(f"{machine.node}: {{{{ cannot be sent by Systems Manager: {printable(argv, 200)}", False)
        try:
            who = self._compared(machine)
            known = self._command(who, run)
            if known is not None:
                return str(known["CommandId"])
            mark = f"{MARK}={run.key}"
            script = SCRIPT.format(
                directory=shlex.quote(self._directory), key=run.key, mark=mark, argv=argv, limit=run.limits.output,
                end=END.format(mark=mark),
            )  # fmt: skip
            return self._send(who, script, comment_of(run), run.limits.seconds + ENDING)
        except RepairRefused as error:
            raise NotStarted(str(error), later=error.retry_after > 0) from None
        except CallFailed as error:
            if error.answer is Answer.REFUSED:
                raise NotStarted(str(error), error.retry_after > 0, error.right) from None
            raise

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """A look at each one's command. One that cannot be read leaves its run UNKNOWN."""
        states: Dict[str, RunState] = {}
        for run in runs:
            try:
                states[run.key] = self._state(run)
            except AdapterError as error:
                states[run.key] = RunState(RunPhase.UNKNOWN, why=str(error))
        return states

    def stop(self, run: NodeRun) -> None:
        """Cancel the command; what its program has left on the node is ended by another. Raises AdapterError."""
        who = self._who(only_machine(run))
        known = self._command(who, run)
        if known is not None and known.get("Status") in WAITING | RUNNING:
            self._aws.call(
                "ssm", "CancelCommand", who.region, CommandId=known["CommandId"], InstanceIds=[who.instance]
            )  # fmt: skip
            self._send(who, END.format(mark=f"{MARK}={run.key}"), f"{comment_of(run)} ends", ENDING)

    def _who(self, machine: Machine) -> AwsIdentity:
        """The instance behind the node. Raises AdapterError."""
        who = identity(machine)
        if who.in_hyperpod:
            why = f"{machine.node} is HyperPod's: Run Command does not reach it, verify.ssh or .job may"
            raise NotStarted(why, later=False)
        if not who.instance:
            raise unknown("EC2 instance", machine)
        return who

    def _compared(self, machine: Machine) -> AwsIdentity:
        """The same, if it is the intended machine. Raises AdapterError."""
        who = self._who(machine)
        ec2.compared(self._aws, machine, who, self._tag)
        return who

    def _command(self, who: AwsIdentity, run: NodeRun) -> Optional[Mapping[str, Any]]:
        """The invocation that is this run, as the list has it. Raises CallFailed."""
        after = [{"key": "InvokedAfter", "value": utc(time.time() - REMEMBERED)}]
        listed = self._aws.pages(
            "ssm", "ListCommandInvocations", "CommandInvocations", who.region,
            InstanceId=who.instance, MaxResults=50, Filters=after,
        )  # fmt: skip
        comment = comment_of(run)
        runs = [listing for listing in listed if listing.get("Comment") == comment]
        return min(runs, key=lambda listing: listing["RequestedDateTime"]) if runs else None

    def _send(self, who: AwsIdentity, script: str, comment: str, seconds: float) -> str:
        """The id of a new command. Raises CallFailed."""
        answer = self._aws.call(
            "ssm", "SendCommand", who.region, DocumentName=DOCUMENT, InstanceIds=[who.instance], Comment=comment,
            TimeoutSeconds=DELIVERY,
            Parameters={"commands": [f"bash -c {shlex.quote(script)}"],
                        "executionTimeout": [str(min(LONGEST, round(seconds)))]},
        )  # fmt: skip
        return str(answer["Command"]["CommandId"])

    def _state(self, run: NodeRun) -> RunState:
        """Raises AdapterError."""
        who = self._who(only_machine(run))
        known = self._command(who, run)
        if known is None:
            return RunState(RunPhase.ABSENT)
        command, status = str(known["CommandId"]), str(known.get("Status"))
        if status in WAITING | RUNNING:
            phase = RunPhase.WAITING if status in WAITING else RunPhase.RUNNING
            return RunState(phase, why=str(known.get("StatusDetails") or status), name=command)
        if status == CANCELLED:
            return RunState(RunPhase.STOPPED, why="somebody has cancelled it", name=command)
        seen = self._aws.call("ssm", "GetCommandInvocation", who.region, CommandId=command, InstanceId=who.instance)
        status, details = str(seen.get("Status")), str(seen.get("StatusDetails") or "").replace(" ", "")
        meaning = MEANING.get(details) or MEANING.get(status)
        if meaning or status not in ("Success", "Failed"):
            ended = f"{details or status}: {meaning}" if meaning else printable(details or status, 60)
            return RunState(RunPhase.LOST, why=f"the command ended {ended}", name=command)
        output, whole = unpacked(str(seen.get("StandardOutputContent") or ""), run.limits.output)
        errors = printable(str(seen.get("StandardErrorContent") or ""), 300)
        code = int(seen.get("ResponseCode", -1))
        return RunState(RunPhase.ENDED, code, output, not whole, errors, command)

    def rights(self) -> Sequence[Right]:
        """Its permissions, tried without effect. Raises CallFailed."""
        return rights.of_suite(self._aws, self._tag)


def comment_of(run: NodeRun) -> str:
    """The comment of a run's command, which has 100 characters at most."""
    return f"nhc run {hashlib.sha256(f'{run.group} {run.key}'.encode()).hexdigest()[:32]}"


def unpacked(packed: str, most: int) -> Tuple[str, bool]:
    """What the packed output holds, and whether it is whole. One that was cut is unpacked as far as it goes."""
    text = "".join(packed.split())
    unpacking = zlib.decompressobj(GZIP)
    try:
        output = unpacking.decompress(base64.b64decode(text[: len(text) // 4 * 4]), most)
    except (zlib.error, binascii.Error):
        return "", False
    return output.decode("utf-8", "replace"), unpacking.eof and len(output) < most
