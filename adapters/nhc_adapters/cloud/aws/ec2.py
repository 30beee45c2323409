"""EC2: an instance's state, the calls that change it (none is repeated), and what EC2 shows without the instance's
help: its console output, a screenshot, its status.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import time
from datetime import datetime
from functools import partial
from typing import Any, Dict, FrozenSet, Iterator, Mapping, NamedTuple, Optional, Tuple

from nhc.core.model import printable
from nhc.marks.ports.repair import EvidenceBudget, Exhibit, Machine, Sent, Sighting
from nhc_adapters.cloud.aws.client import Aws, AwsIdentity
from nhc_adapters.repair import CallFailed, EvidenceCollector, RepairRefused, accepted

GONE = frozenset({"shutting-down", "terminated", "gone"})
DESCRIPTION = 255
"""Characters that ReportInstanceStatus takes as its description; more would be refused [EC2 User Guide]."""


class Ec2Instance(NamedTuple):
    """One instance as EC2 describes it. `launched` changes with each start, but with no reboot."""

    id: str
    state: str
    launched: str
    root: str
    spot: bool
    addresses: FrozenSet[str]
    tags: Mapping[str, str]

    @property
    def group(self) -> str:
        """Its Auto Scaling group by tag: AWS sets it on every member."""
        return self.tags.get("aws:autoscaling:groupName", "")


def describe(aws: Aws, instance: str, region: str = "") -> Optional[Ec2Instance]:
    """An instance, None if EC2 knows none with this id (an hour after its end). Raises CallFailed."""
    try:
        answer = aws.call("ec2", "DescribeInstances", region, InstanceIds=[instance])
    except CallFailed as error:
        if error.code in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
            return None
        raise
    for reservation in answer.get("Reservations") or []:
        for details in reservation.get("Instances") or []:
            if details.get("InstanceId") == instance:
                return _instance(details)
    return None


def _instance(details: Mapping[str, Any]) -> Ec2Instance:
    launched = details.get("LaunchTime")
    addresses = {details.get("PrivateIpAddress"), details.get("PublicIpAddress"), details.get("Ipv6Address")}
    for interface in details.get("NetworkInterfaces") or []:
        addresses |= {address.get("PrivateIpAddress") for address in interface.get("PrivateIpAddresses") or []}
        addresses |= {address.get("Ipv6Address") for address in interface.get("Ipv6Addresses") or []}
    return Ec2Instance(
        id=str(details["InstanceId"]),
        state=str((details.get("State") or {}).get("Name") or ""),
        launched=launched.isoformat() if isinstance(launched, datetime) else str(launched or ""),
        root=str(details.get("RootDeviceType") or ""),
        spot=details.get("InstanceLifecycle") == "spot",
        addresses=frozenset(str(address) for address in addresses if address),
        tags={str(tag.get("Key")): str(tag.get("Value")) for tag in details.get("Tags") or []},
    )


def sighting(seen: Optional[Ec2Instance]) -> Sighting:
    """An instance as a repairer shows it."""
    if seen is None:
        return Sighting(time.time(), power="gone")
    return Sighting(time.time(), seen.id, seen.launched, seen.state)


def compare(machine: Machine, seen: Optional[Ec2Instance], instance: str) -> Ec2Instance:
    """The instance, if it is the machine that the cluster means. Raises RepairRefused.

    EC2 shows no DMI UUID. The node's address tells a stale provider id from a current one: each instance has its own
    address.
    """
    if seen is None:
        raise RepairRefused(f"EC2 knows no instance {instance}")
    if seen.state in GONE:
        raise RepairRefused(f"{instance} is {seen.state}: another machine stands behind {machine.node} now, or none")
    try:
        address = str(ipaddress.ip_address(machine.shown_address or machine.address))
    except ValueError:
        return seen  # a host name tells nothing
    if seen.addresses and address not in {str(ipaddress.ip_address(known)) for known in seen.addresses}:
        raise RepairRefused(
            f"{instance} has the addresses {', '.join(sorted(seen.addresses))}, {machine.node} has {address}: "
            f"another machine"
        )
    return seen


def compared(aws: Aws, machine: Machine, who: AwsIdentity, tag: Optional[Tuple[str, str]]) -> Ec2Instance:
    """The instance behind a machine, with the tag that the settings ask for. Raises RepairRefused, CallFailed."""
    instance = compare(machine, describe(aws, who.instance, who.region), who.instance)
    if tag and instance.tags.get(tag[0]) != tag[1]:
        raise RepairRefused(f"{who.instance} does not carry the tag {'='.join(tag)}")
    return instance


def reboot(aws: Aws, instance: str, region: str) -> Sent:
    answer = aws.call("ec2", "RebootInstances", region, InstanceIds=[instance])
    return accepted(f"EC2 queued the reboot of {instance}", _request(answer))


def stop(aws: Aws, instance: str, region: str) -> Sent:
    """Stop it, by force where its system does not answer: an instance that is to be power-cycled often does not."""
    answer = aws.call("ec2", "StopInstances", region, InstanceIds=[instance], Force=True)
    return accepted(f"EC2 stops {instance}", _request(answer))


def start(aws: Aws, instance: str, region: str) -> Sent:
    answer = aws.call("ec2", "StartInstances", region, InstanceIds=[instance])
    return accepted(f"EC2 starts {instance}", _request(answer))


def terminate(aws: Aws, instance: str, region: str) -> Sent:
    answer = aws.call("ec2", "TerminateInstances", region, InstanceIds=[instance])
    return accepted(f"EC2 terminates {instance}", _request(answer))


def report(aws: Aws, instance: str, region: str, because: str) -> Sent:
    """Tell AWS that the instance is impaired. It triggers nothing; support sees it."""
    parameters: Dict[str, object] = {
        "Instances": [instance],
        "Status": "impaired",
        "ReasonCodes": ["other"],
        "Description": printable(because, DESCRIPTION),
    }
    answer = aws.call("ec2", "ReportInstanceStatus", region, **parameters)
    return accepted(f"reported {instance} to AWS as impaired", _request(answer))


def _request(answer: Mapping[str, Any]) -> str:
    return str((answer.get("ResponseMetadata") or {}).get("RequestId") or "")


# Evidence.


def evidence(aws: Aws, instance: str, region: str, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can."""
    pieces = (
        ("console.txt", "text/plain", partial(_console, aws, instance, region)),
        ("screenshot.jpg", "image/jpeg", partial(_screenshot, aws, instance, region)),
        ("instance-status.json", "application/json", partial(_status, aws, instance, region)),
    )
    return EvidenceCollector(budget).gather(pieces, f"AWS shows nothing of {instance}")


def _console(aws: Aws, instance: str, region: str) -> bytes:
    """The latest 64 KB. Only Nitro instances have the latest; others what was kept after the last start or stop."""
    try:
        answer = aws.call("ec2", "GetConsoleOutput", region, InstanceId=instance, Latest=True)
    except CallFailed as error:
        if error.code != "UnsupportedOperation":
            raise
        answer = aws.call("ec2", "GetConsoleOutput", region, InstanceId=instance)
    return str(answer.get("Output") or "").encode()


def _screenshot(aws: Aws, instance: str, region: str) -> bytes:
    answer = aws.call("ec2", "GetConsoleScreenshot", region, InstanceId=instance, WakeUp=True)
    return base64.b64decode(str(answer.get("ImageData") or ""))


def _status(aws: Aws, instance: str, region: str) -> bytes:
    answer = aws.call("ec2", "DescribeInstanceStatus", region, InstanceIds=[instance], IncludeAllInstances=True)
    return json.dumps(answer.get("InstanceStatuses") or [], default=str, indent=1).encode()
