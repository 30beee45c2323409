"""The settings of the launcher on Kubernetes, from `--set NAME=VALUE`.

image = "nvcr.io/nvidia/pytorch:26.01-py3"      # holds the tool
resources = "nvidia.com/gpu=8,rdma/ib=8"        # all of a node's: that makes a test exclusive
tolerations = "nvidia.com/gpu,dedicated=training:NoSchedule"
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Tuple

from nhc.ports import AdapterError
from nhc.units import seconds

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
    """The settings. Raises AdapterError."""
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise _wrong(f"has no setting {unknown[0]!r}: {', '.join(KNOWN)}")
    if not given.get("image"):
        raise _wrong("needs image: the container image that holds the tool")
    kind = given.get("kind", "auto")
    if kind not in KINDS:
        raise _wrong(f"kind = {kind!r}: expected one of {', '.join(KINDS)}")
    return DeepSettings(
        _name(given, "namespace", "nhc-deep"),
        given["image"],
        kind,
        _resources(given.get("resources", "")),
        _tolerations(given.get("tolerations", "")),
        _name(given, "priority-class", "nhc-deep"),
        _seconds(given, "grace", "5s"),
        _seconds(given, "ttl", "1h"),
        given.get("kubeconfig", ""),
        given.get("context", ""),
        _name(given, "service-account", ""),
        _name(given, "pull-secret", ""),
        _flag(given, "host-network"),
        _name(given, "runtime-class", ""),
        _port(given.get("port", "29500")),
        tuple(given.get("mpi-args", "").split()),
    )


def _wrong(message: str) -> AdapterError:
    return AdapterError(f"the launcher kubernetes {message}")


def _name(given: Mapping[str, str], key: str, default: str) -> str:
    value = given.get(key, default)
    if value and not _NAME.fullmatch(value):
        raise _wrong(f"{key} = {value!r}: is no name of an object (small letters, digits, '-')")
    return value


def _seconds(given: Mapping[str, str], key: str, default: str) -> int:
    try:
        return max(0, round(seconds(given.get(key, default))))
    except ValueError as error:
        raise _wrong(f"{key}: {error}") from None


def _flag(given: Mapping[str, str], key: str) -> bool:
    value = given.get(key, "false")
    if value not in ("true", "false"):
        raise _wrong(f"{key} = {value!r}: expected true or false")
    return value == "true"


def _port(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise _wrong(f"port = {value!r}: expected 1 to 65535")
    return int(value)


def _resources(text: str) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, quantity = word.partition("=")
        if not _RESOURCE.fullmatch(name) or not _QUANTITY.fullmatch(quantity):
            raise _wrong(f"resources: {word!r} is not NAME=QUANTITY, as nvidia.com/gpu=8")
        found[name] = quantity
    return found


def _tolerations(text: str) -> Tuple[Dict[str, str], ...]:
    """`KEY`, `KEY:EFFECT`, `KEY=VALUE:EFFECT`."""
    found: List[Dict[str, str]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        left, _, effect = word.partition(":")
        key, equals, value = left.partition("=")
        if not _RESOURCE.fullmatch(key) or (effect and effect not in EFFECTS):
            raise _wrong(f"tolerations: {word!r} is not KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({', '.join(EFFECTS)})")
        one = {"key": key, "operator": "Equal" if equals else "Exists"}
        if equals:
            one["value"] = value
        if effect:
            one["effect"] = effect
        found.append(one)
    return tuple(found)
