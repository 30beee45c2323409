"""What EC2 shows of an instance without asking it: its console's output, a picture of its screen, its own status."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Iterator

from nhc.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.evidence import EvidenceCollector


def collect(aws: Aws, instance: str, region: str, budget: EvidenceBudget) -> Iterator[Exhibit]:
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
