"""A suite on an instance by Systems Manager's Run Command: `nhc deep run` as it is installed there, without SSH.

    [verify.ssm]
    region = "us-east-1"    # default: the zone of the provider id, then the environment
    tag = "nhc=managed"     # nothing is sent to an instance without this tag
    nhc = "/usr/bin/nhc"    # where it is on the node; the SSM Agent runs it as root
    profile, proxy, endpoint

A command has no token of its caller's, so its Comment names the run: one that is under way is followed, whoever sent
it (another controller, or a call whose answer was lost), and no second one is sent. Beside that the node keeps each
report: asking again with the same `since` begins nothing there.

Systems Manager hands over the first 24,000 characters of an output. The report goes packed, with gzip's sum of it: one
that was cut, or is not whole, proves nothing.

Sources: botocore's model of SSM (2014-11-06); Systems Manager User Guide, "Understanding command statuses".
"""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import GZIP, unpacked
from nhc.core.system.process import Completed
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Machine, Right
from nhc.marks.ports.suites import PROOF, DeviceProof, SuiteOrder
from nhc_adapters.cloud.aws import ec2, rights
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, AwsIdentity, identity
from nhc_adapters.node.suite import InstalledNhc, report_of
from nhc_adapters.repair import CallFailed, pair, unknown

DOCUMENT = "AWS-RunShellScript"
DELIVERY = 120
"""Seconds within which a command must have begun (30 at least). A node that is verified is up, and its agent polls."""
LONGEST = 172800
"""The longest executionTimeout that the document takes."""
ENDING = 60.0
"""Seconds for what a run does before and after its limit, and for a status to show."""
SHOWN = 24000
"""Characters of an output that GetCommandInvocation hands over."""
REPORT = 16 << 20
"""Bytes of a report that are unpacked at most."""
EVERY = 5.0
"""Seconds between two looks at a command that runs."""
UNDER_WAY = frozenset({"Pending", "InProgress", "Delayed", "Cancelling"})
CANCELLED = "Cancelled"
MEANING: Mapping[str, str] = {
    "DeliveryTimedOut": f"its SSM Agent has not taken it within {DELIVERY} s: asked again later",
    "Undeliverable": "its SSM Agent does not answer, or the instance is gone: asked again later",
    "ExecutionTimedOut": "it ran past its limit and was ended: nhc's own deadline did not hold on this node",
    CANCELLED: "somebody has cancelled it, so it is not sent again: verify.deadline leaves the node to a person",
    "Terminated": "Systems Manager has ended it: asked again later",
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


class SsmSuite:
    """As `nhc.marks.ports.suites.SuiteRunner` and `ProvesDevices`. Safe to use from several threads."""

    SETTINGS = SsmSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Given = None, timeout: float = 30.0, every: float = EVERY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        own = read(SsmSettings, settings)
        self._tag, self._nhc = own.tag, InstalledNhc(own.nhc)
        self._aws = Aws(own.access, environ, timeout)
        self._every, self._clock = every, monotonic

    def run(self, order: SuiteOrder) -> str:
        """The report. Raises AdapterError."""
        return self._report(order.machine, order.suite, self._nhc.suite(order), order.since, order.seconds)

    def prove(self, order: DeviceProof) -> str:
        """The report of a proof of one device. Raises AdapterError."""
        return self._report(order.machine, PROOF, self._nhc.proof(order), 0.0, order.seconds)

    def _report(self, machine: Machine, what: str, line: str, since: float, seconds: float) -> str:
        if "{{" in line:  # Systems Manager puts its own parameters in their place
            raise AdapterError(f"{machine.node}: {{{{ cannot be sent by Systems Manager: {printable(line, 200)}")
        who = self._compared(machine)
        comment = f"nhc verify {hashlib.sha256(f'{who.instance} {line}'.encode()).hexdigest()[:32]}"
        command = self._under_way(machine.node, what, who, comment, since) if since else ""
        command = command or self._send(who, line, comment, seconds)
        until = self._clock() + DELIVERY + seconds + 2 * ENDING
        return self._read(machine.node, what, self._follow(machine.node, what, who, command, until))

    def _compared(self, machine: Machine) -> AwsIdentity:
        """The instance behind the node. Raises AdapterError."""
        who = identity(machine)
        if who.in_hyperpod:
            raise AdapterError(f"{machine.node} is HyperPod's: Run Command does not reach it, verify.ssh or .job may")
        if not who.instance:
            raise unknown("EC2 instance", machine)
        ec2.compared(self._aws, machine, who, self._tag)
        return who

    # The command.

    def _under_way(self, node: str, what: str, who: AwsIdentity, comment: str, since: float) -> str:
        """The command of this run that has not ended, "" for none. Raises AdapterError where one was cancelled."""
        after = [{"key": "InvokedAfter", "value": utc(since - ENDING)}]
        listed = self._aws.pages(
            "ssm", "ListCommandInvocations", "CommandInvocations", who.region,
            InstanceId=who.instance, MaxResults=50, Filters=after,
        )  # fmt: skip
        runs = [run for run in listed if run.get("Comment") == comment]
        if not runs:
            return ""
        newest = max(runs, key=lambda run: run["RequestedDateTime"])
        if newest.get("Status") == CANCELLED:
            raise AdapterError(f"{node}: {what}: the command {newest['CommandId']}: {MEANING[CANCELLED]}")
        return str(newest["CommandId"]) if newest.get("Status") in UNDER_WAY else ""

    def _send(self, who: AwsIdentity, line: str, comment: str, seconds: float) -> str:
        """Raises CallFailed. A lost answer is looked for by its comment when the run is asked for again."""
        # The exit status is nhc's, and nothing is printed where nhc printed nothing.
        script = (
            f'report=$({line}); status=$?; [ -z "$report" ] || printf "%s\\n" "$report" | gzip | base64; exit $status'
        )
        limit = min(LONGEST, round(seconds + ENDING))
        answer = self._aws.call(
            "ssm", "SendCommand", who.region, DocumentName=DOCUMENT, InstanceIds=[who.instance], Comment=comment,
            TimeoutSeconds=DELIVERY, Parameters={"commands": [script], "executionTimeout": [str(limit)]},
        )  # fmt: skip
        return str(answer["Command"]["CommandId"])

    def _follow(self, node: str, what: str, who: AwsIdentity, command: str, until: float) -> Mapping[str, Any]:
        """The invocation, once it has ended. Raises AdapterError."""
        state = ""
        while True:
            try:
                seen = self._aws.call(
                    "ssm", "GetCommandInvocation", who.region, CommandId=command, InstanceId=who.instance
                )
                if seen.get("Status") not in UNDER_WAY:
                    return seen
                state = str(seen.get("StatusDetails") or seen.get("Status"))
            except CallFailed as error:
                new = error.code == "InvocationDoesNotExist"  # what was sent a moment ago may not show yet
                if error.right or not (new or error.retry_after or error.answer is Answer.AMBIGUOUS):
                    raise
                state = str(error)
            if self._clock() >= until:
                raise AdapterError(f"{node}: {what}: the command {command} has not ended: {printable(state, 300)}")
            time.sleep(self._every)

    def _read(self, node: str, what: str, seen: Mapping[str, Any]) -> str:
        """The report of a command that has ended. Raises AdapterError."""
        status, details = str(seen.get("Status")), str(seen.get("StatusDetails") or "").replace(" ", "")
        meaning = MEANING.get(details) or MEANING.get(status)
        if meaning or status not in ("Success", "Failed"):
            ended = f"{details or status}: {meaning}" if meaning else printable(details or status, 60)
            raise AdapterError(f"{node}: {what}: the command {seen.get('CommandId')} ended {ended}")
        code, errors = int(seen.get("ResponseCode", -1)), str(seen.get("StandardErrorContent") or "")
        packed = str(seen.get("StandardOutputContent") or "")
        return report_of(node, what, Completed(code, _unpacked(node, what, packed) if packed else "", errors))

    # Rights.

    def rights(self) -> Sequence[Right]:
        """Its permissions, tried without effect. Raises CallFailed."""
        return rights.of_suite(self._aws, self._tag)


def _unpacked(node: str, what: str, packed: str) -> str:
    """The whole report. Raises AdapterError where a part of it is missing."""
    try:
        return unpacked(base64.b64decode("".join(packed.split()), validate=True), REPORT, GZIP).decode(
            "utf-8", "replace"
        )
    except ValueError:
        pass
    if len(packed) >= SHOWN:
        raise AdapterError(f"{node}: the report of {what} is longer than the {SHOWN} characters that are handed over")
    raise AdapterError(f"{node}: the report of {what} is not whole: {printable(packed, 120)}")
