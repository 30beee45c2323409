"""The settings of the launcher on Kubernetes, from `--set NAME=VALUE`.

image = "nvcr.io/nvidia/pytorch:26.01-py3"      # holds the tool
resources = "nvidia.com/gpu=8,rdma/ib=8"        # all of a node's: that makes a test exclusive
tolerations = "nvidia.com/gpu,dedicated=training:NoSchedule"
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Tuple

from nhc.core.model import printable
from nhc_adapters.repair.settings import AdapterSettings

KINDS = ("auto", "job", "mpijob", "jobset")
KNOWN = ("namespace", "image", "kind", "resources", "tolerations", "priority-class", "grace", "ttl", "kubeconfig",
         "context", "service-account", "pull-secret", "host-network", "runtime-class", "port", "mpi-args")  # fmt: skip
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


class DeepSettings(NamedTuple):
    """How tests are put on nodes.

    `resources` are asked for on each node. `grace` is how many seconds a test gets to end when real work takes its
    node; `ttl` for how many its Job, and so its output, is kept. `port` is where rank 0 listens (kind job and jobset).
    """

    namespace: str
    image: str
    kind: str
    resources: Dict[str, str]
    tolerations: Tuple[Dict[str, str], ...]
    priority_class: str
    grace: int
    ttl: int
    kubeconfig: str
    context: str
    service_account: str
    pull_secret: str
    host_network: bool
    runtime_class: str
    port: int
    mpi_args: Tuple[str, ...]

    @property
    def devices(self) -> List[str]:
        """The resources that are devices: a node of which other work has one is not idle."""
        return [name for name in self.resources if "/" in name]


def read(given: Mapping[str, str]) -> DeepSettings:
    """The settings. Raises SettingError."""
    table = AdapterSettings(given, KNOWN)
    if not table.text("image"):
        raise table.error("image", "is needed: the container image that holds the tool")
    return DeepSettings(
        _name(table, "namespace", "nhc-deep"),
        table.text("image"),
        table.choice("kind", KINDS),
        _resources(table),
        _tolerations(table),
        _name(table, "priority-class", "nhc-deep"),
        round(table.seconds("grace", "5s")),
        round(table.seconds("ttl", "1h")),
        table.text("kubeconfig"),
        table.text("context"),
        _name(table, "service-account", ""),
        _name(table, "pull-secret", ""),
        table.flag("host-network", False),
        _name(table, "runtime-class", ""),
        _port(table),
        tuple(table.text("mpi-args").split()),
    )


def _name(table: AdapterSettings, key: str, default: str) -> str:
    value = table.text(key, default)
    if value and not _NAME.fullmatch(value):
        raise table.wrong(key, "a name of an object (small letters, digits, '-')")
    return value


def _port(table: AdapterSettings) -> int:
    value = int(table.digits("port", "29500", "a port, 1 to 65535"))
    if not 0 < value < 65536:
        raise table.wrong("port", "a port, 1 to 65535")
    return value


def _resources(table: AdapterSettings) -> Dict[str, str]:
    resources: Dict[str, str] = {}
    for part in table.parts("resources"):
        name, _, quantity = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not _QUANTITY.fullmatch(quantity):
            raise table.error("resources", f"{printable(part, 60)!r} is not NAME=QUANTITY, as nvidia.com/gpu=8")
        resources[name] = quantity
    return resources


def _tolerations(table: AdapterSettings) -> Tuple[Dict[str, str], ...]:
    """`KEY`, `KEY:EFFECT`, `KEY=VALUE:EFFECT`."""
    tolerations: List[Dict[str, str]] = []
    for part in table.parts("tolerations"):
        left, _, effect = part.partition(":")
        key, equals, value = left.partition("=")
        if not _RESOURCE.fullmatch(key) or (effect and effect not in EFFECTS):
            forms = f"KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({', '.join(EFFECTS)})"
            raise table.error("tolerations", f"{printable(part, 60)!r} is not {forms}")
        toleration = {"key": key, "operator": "Equal" if equals else "Exists"}
        if equals:
            toleration["value"] = value
        if effect:
            toleration["effect"] = effect
        tolerations.append(toleration)
    return tuple(tolerations)
