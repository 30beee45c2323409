"""Which EC2 instance, and which HyperPod cluster, stands behind a node's name."""

from __future__ import annotations

import re
from typing import NamedTuple

from nhc.marks.ports.repair import Machine

_INSTANCE = re.compile(r"(?:^|[/-])(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)$")
"""At the end of every form: `i-…` (Slurm's InstanceId), `aws:///us-east-1a/i-…`, and HyperPod's
`aws:///use1-az1/sagemaker/cluster/hyperpod-<cluster id>-i-…`, whose fields cannot be counted from the front."""

_ZONE = re.compile(r"^aws:///([a-z]{2,3}(?:-[a-z]+)+-\d)[a-z]/")
"""The region of a provider id's availability zone. HyperPod's has a zone id (use1-az1), which names none."""

_HYPERPOD = re.compile(r"/sagemaker/cluster/(?:hyperpod-)?([a-z0-9]{12})-i-[0-9a-f]+$")
_HYPERPOD_NAME = re.compile(r"^hyperpod-i-[0-9a-f]+$")


class AwsIdentity(NamedTuple):
    """`instance` is "" where the machine is no EC2 instance that is known. `hyperpod` is the cluster's id or name."""

    instance: str
    region: str = ""
    hyperpod: str = ""
    in_hyperpod: bool = False


def identity(machine: Machine) -> AwsIdentity:
    """Who a machine is, from its provider id, its name and its settings (`instance`, `cluster`)."""
    given = machine.provider_id or machine.settings.get("instance", "")
    named = _HYPERPOD_NAME.match(machine.node)
    instance = _INSTANCE.search(given) or (_INSTANCE.search(machine.node) if named and not given else None)
    zone, cluster = _ZONE.match(given), _HYPERPOD.search(given)
    name = machine.settings.get("cluster", "")
    return AwsIdentity(
        instance=instance[1] if instance else "",
        region=zone[1] if zone else "",
        hyperpod=name or (cluster[1] if cluster else ""),
        in_hyperpod=bool(cluster or named or machine.settings.get("hyperpod") in ("yes", "true")),
    )
