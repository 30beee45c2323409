"""The settings of the launcher on Kubernetes, from `--set NAME=VALUE`.

image = "nvcr.io/nvidia/pytorch:26.01-py3"      # holds the tool
resources = "nvidia.com/gpu=8,rdma/ib=8"        # all of a node's: that makes a test exclusive
tolerations = "nvidia.com/gpu,dedicated=training:NoSchedule"
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.part_settings import read as read_part
from nhc_adapters.kubernetes.api.access import ClusterSettings

KINDS = ("auto", "job", "mpijob", "jobset")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{printable(text, 60)!r} is not a name of an object (small letters, digits, '-')")
    return text


def _resources(parts: Sequence[str]) -> Dict[str, str]:
    resources: Dict[str, str] = {}
    for part in parts:
        name, _, quantity = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not _QUANTITY.fullmatch(quantity):
            raise ValueError(f"{printable(part, 60)!r} is not NAME=QUANTITY, as nvidia.com/gpu=8")
        resources[name] = quantity
    return resources


def _tolerations(parts: Sequence[str]) -> Tuple[Dict[str, str], ...]:
    """`KEY`, `KEY:EFFECT`, `KEY=VALUE:EFFECT`."""
    tolerations: List[Dict[str, str]] = []
    for part in parts:
        left, _, effect = part.partition(":")
        key, equals, value = left.partition("=")
        if not _RESOURCE.fullmatch(key) or (effect and effect not in EFFECTS):
            forms = f"KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({', '.join(EFFECTS)})"
            raise ValueError(f"{printable(part, 60)!r} is not {forms}")
        toleration = {"key": key, "operator": "Equal" if equals else "Exists"}
        if equals:
            toleration["value"] = value
        if effect:
            toleration["effect"] = effect
        tolerations.append(toleration)
    return tuple(tolerations)


def _none(_value: object) -> str:
    return "[]"


@declared.settings
class DeepSettings(NamedTuple):
    """How tests are put on nodes. `port` is where rank 0 listens (kind job and jobset)."""

    image: str = declared.text("image", declared.NEEDED, "holds the tool", shown='"nvcr.io/nvidia/pytorch:26.01-py3"')
    namespace: str = declared.converted("namespace", _name, "nhc-deep")
    kind: str = declared.word("kind", KINDS)
    resources: Mapping[str, str] = declared.texts(
        "resources", {}, "all of a node's, which makes a test exclusive: nvidia.com/gpu=8,rdma/ib=8", made=_resources,
        show=_none,
    )  # fmt: skip
    tolerations: Tuple[Dict[str, str], ...] = declared.texts(
        "tolerations", (), "KEY, KEY:EFFECT, KEY=VALUE:EFFECT, with commas between them", made=_tolerations, show=_none
    )
    priority_class: str = declared.converted("priority-class", _name, "nhc-deep")
    grace: float = declared.seconds("grace", 5.0, "how long a test has to end when real work takes its node")
    ttl: float = declared.seconds("ttl", 3600.0, "how long its Job, and so its output, is kept")
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    service_account: str = declared.converted("service-account", _name, "")
    pull_secret: str = declared.converted("pull-secret", _name, "")
    host_network: bool = declared.flag("host-network")
    runtime_class: str = declared.converted("runtime-class", _name, "")
    port: int = declared.count("port", 29500, "where rank 0 listens (job, jobset)", least=1, most=65535)
    mpi_args: Tuple[str, ...] = declared.shell_words("mpi-args")

    @property
    def devices(self) -> List[str]:
        """The resources that are devices: a node of which other work has one is not idle."""
        return [name for name in self.resources if "/" in name]


def read(given: Mapping[str, str]) -> DeepSettings:
    """The settings. Raises SettingError."""
    return read_part(DeepSettings, given)
