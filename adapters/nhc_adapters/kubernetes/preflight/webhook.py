"""The answer to the API server when a pod is created: the patch that adds the init container. Pure.

The webhook is asked about pods of namespaces with the label `nhc/preflight=enabled`, and of pods with the annotation
`nhc/preflight`, which names another suite or is `off`. A pod without accelerators gets nothing, and neither does one of
a DaemonSet, which would never go elsewhere. After any error the pod is admitted unchanged; the answer says why.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.json_values import object_from, object_of, objects_of, text_of
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.gangs import GangRules
from nhc_adapters.kubernetes.api.objects import controller_of, get, texts
from nhc_adapters.kubernetes.nodes.accelerators import is_accelerator
from nhc_adapters.kubernetes.nodes.drain import SAFE_VOLUMES
from nhc_adapters.kubernetes.preflight.gang_names import AUDIENCE, GangName, gang_of

# What a preflight is: the suite that an init container runs before a pod's own containers start.


SUITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}")
"""The name of a suite, as a label takes it."""

MOST = 60.0
"""Seconds that `NHC_PROLOG_SUITE_TIME` takes at most: a suite of seconds, and no deep test."""


def _suite(text: str) -> str:
    """A suite by its name. Raises ValueError."""
    if not SUITE.fullmatch(text):
        raise ValueError(f"{text!r} is no suite's name (nhc list suites): letters, digits, - and _")
    return text


@declared.settings
class GangSettings(NamedTuple):
    """Without a command, gangs run no collective."""

    command: Tuple[str, ...] = declared.shell_words(
        "command", (), "that each pod runs, as for `nhc deep sweep`; unset: no collective",
        shown='"torchrun /opt/all_reduce.py"',
    )  # fmt: skip
    server: str = declared.text(
        "server", "nhc-preflight-gangs.nhc-system.svc:9443", "where the pods of a gang meet: the webhook's"
    )
    wait: float = declared.seconds("wait", 120.0, "how long they wait for all to come", least=1.0, most=3600.0)
    time: float = declared.seconds(
        "time", 60.0, "of the collective; where it fails, of each of at most three rounds of pairs",
        least=1.0, most=1800.0,
    )  # fmt: skip
    size: int = declared.size("size", 1 << 30, "the row of its table that counts", least=1)
    floor: int = declared.count("floor", 0, "GB/s that this row has at least; 0: right values are enough")
    fabric: bool = declared.flag("fabric", True, "the data must travel by the fabric, not by TCP")

    def rules(self) -> GangRules:
        """How a gang is tested."""
        return GangRules(self.command, self.wait, self.time, self.size, self.floor, self.fabric)


@declared.settings
class PreflightSettings(NamedTuple):
    """Without an image no pod gets an init container, and none is checked.

    `share` (0 to 1): if more of the nodes than this failed within `window` seconds, the suite is doubted.
    """

    image: str = declared.text(
        "image", "", "of the init container: nhc, and what the suite needs; unset: no preflight",
        shown='"registry.example.com/nhc:0.1.0"',
    )  # fmt: skip
    suite: str = declared.converted("suite", _suite, "prejob", "a pod's annotation nhc/preflight names another")
    timeout: float = declared.seconds("timeout", 30.0, "of the suite", least=1.0, most=MOST)
    on_unknown: str = declared.choice(
        "on-unknown", {"admit": "admit", "refuse": "refuse"}, "admit",
        "whether a pod starts whose suite could not tell",
    )  # fmt: skip
    every: float = declared.seconds("every", 5.0, "how often pods with a preflight are looked at", least=0.1)
    spread: int = declared.count("spread", 2, "where it fails on more nodes than this ...")
    share: float = declared.share("share", 0.5, "... and on more than this share of those that ran it ...")
    window: float = declared.seconds("window", 600.0, "... within this time, no node is blamed: the suite is doubted")
    gang: GangSettings = declared.part("gang", GangSettings)

    @property
    def on(self) -> bool:
        """Whether pods get a preflight."""
        return bool(self.image)


PREFLIGHT = "nhc/preflight"
"""The namespace's label (ENABLED), the pod's annotation (a suite, or OFF), and the label of a pod that has a preflight:
the name of its suite."""

ENABLED, OFF = "enabled", "off"
CONTAINER = "nhc-preflight"
"""The init container, and its volume."""

PLACE = "/run/nhc-preflight"
"""The mount path of its volume: it writes only there."""

USER = 65532
"""The user of our image, who needs no right: the devices that a runtime hands over may be opened by everybody."""


class BadReview(ValueError):
    """The request is no AdmissionReview of a pod."""


class Review(NamedTuple):
    """The API server's question: may this pod be created?"""

    version: str
    uid: str
    namespace: str
    pod: Mapping[str, Any]


class Preflight(NamedTuple):
    """The change to a pod: the operations of a JSON patch, or why there are none. `note` is for the pod's owner."""

    suite: str = ""
    ops: Sequence[Mapping[str, Any]] = ()
    why: str = ""
    note: str = ""


def read_review(body: bytes) -> Review:
    """The review in a request. Raises BadReview."""
    review = object_from(body)
    request = object_of(review.get("request"))
    uid, version = text_of(request.get("uid")), text_of(review.get("apiVersion"))
    if review.get("kind") != "AdmissionReview" or not uid:
        raise BadReview("expected an AdmissionReview with a request")
    pod = object_of(request.get("object"))
    if object_of(request.get("kind")).get("kind") != "Pod" or not isinstance(pod.get("spec"), dict):
        raise BadReview("expected the review of a Pod")
    return Review(version, uid, text_of(request.get("namespace")), pod)


def answer(review: Review, done: Preflight, apply: bool) -> Dict[str, Any]:
    """The AdmissionReview that answers: the pod is let in, patched where `apply` says so."""
    response: Dict[str, Any] = {"uid": review.uid, "allowed": True}
    if done.ops and apply:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(done.ops).encode()).decode()
    if done.note:
        response["warnings"] = [printable(f"nhc: {done.note}", 256)]
    return {"apiVersion": review.version, "kind": "AdmissionReview", "response": response}


def preflight_of(
    pod: Mapping[str, Any], settings: PreflightSettings, namespace: str = "", authority: str = ""
) -> Preflight:
    """The change to a pod. A gang's pod joins its collective if it can be told which server to trust."""
    if not settings.on:
        return Preflight(why="no image is set")
    suite = texts(get(pod, "metadata", "annotations")).get(PREFLIGHT, ENABLED) or OFF
    if suite == OFF:
        return Preflight(why="its annotation says off")
    suite = settings.suite if suite == ENABLED else suite
    if not SUITE.fullmatch(suite):
        return Preflight(
            why="no suite's name", note=f"the annotation {PREFLIGHT}={suite!r} names no suite: no preflight"
        )
    containers = objects_of(get(pod, "spec", "containers"))
    if any(one.get("name") == CONTAINER for one in objects_of(get(pod, "spec", "initContainers"))):
        return Preflight(why="it has one already")
    if controller_of(pod).get("kind") == "DaemonSet":
        return Preflight(why="a DaemonSet's pod goes nowhere else")
    resources = resources_for(containers)
    if not resources:
        return Preflight(why="it asks for no accelerator")
    gang = gang_of(pod, namespace) if settings.gang.command and authority else None
    door = GangDoor(gang, authority) if gang is not None and not in_no_gang(pod) else None
    ops = _ops(pod, containers, resources, suite, settings, door)
    return Preflight(suite, ops, f"suite {suite}" if door is None else f"suite {suite} and its gang's collective")


class GangDoor(NamedTuple):
    """The settings of a gang's pod: its gang, and the authority of the certificate of the server where all meet."""

    gang: GangName
    authority: str


def in_no_gang(pod: Mapping[str, Any]) -> str:
    """Why a pod takes no part in its gang's collective, "" if it does."""
    if any(one.get("restartPolicy") for one in objects_of(get(pod, "spec", "initContainers"))):
        return "a sidecar runs beside its preflight, and would speak with the same identity"
    if resolves_itself(pod):
        return "it resolves names by itself, which may lead to another server"
    return "" if accelerators_of(pod) else "how many devices its claims give is not known"


def resolves_itself(pod: Mapping[str, Any]) -> bool:
    """Whether who made a pod says what names lead to."""
    spec = object_of(pod.get("spec"))
    return bool(spec.get("hostAliases") or spec.get("dnsConfig") or spec.get("dnsPolicy") == "None")


def accelerators_of(pod: Mapping[str, Any]) -> int:
    """The accelerators that a pod asks for by number."""
    limits = object_of(resources_for(objects_of(get(pod, "spec", "containers"))).get("limits"))
    return sum(_count(value) for name, value in limits.items() if is_accelerator(name))


def resources_for(containers: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """What the init container asks for, {} if no container has an accelerator.

    It gets all accelerators and claims of the pod, which costs nothing: an init container's resources are given to the
    others when it has ended. Processor and memory are those of the container with the most accelerators, so that a
    namespace with a quota takes the pod as it would have without.
    """
    devices: Dict[str, int] = {}
    claims: List[Mapping[str, Any]] = []
    largest, most = {}, -1
    for container in containers:
        resources = object_of(container.get("resources"))
        own = {
            name: _count(value) for name, value in object_of(resources.get("limits")).items() if is_accelerator(name)
        }
        for name, count in own.items():
            devices[name] = devices.get(name, 0) + count
        claims += [claim for claim in objects_of(resources.get("claims")) if claim not in claims]
        if (own or resources.get("claims")) and sum(own.values()) > most:
            largest, most = resources, sum(own.values())
    if not any(devices.values()) and not claims:
        return {}
    wanted: Dict[str, Any] = {}
    for part in ("limits", "requests"):
        plain = {name: value for name, value in object_of(largest.get(part)).items() if not is_accelerator(name)}
        if part == "limits" or plain:
            wanted[part] = {
                **plain,
                **({name: str(count) for name, count in devices.items()} if part == "limits" else {}),
            }
    if claims:
        wanted["claims"] = claims
    return wanted


def _count(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() else 0


GANG_VOLUME = "nhc-preflight-gang"
TOKENS = "/run/nhc-preflight-gang"
"""The path of the token that identifies the pod."""
_TOKEN_LASTS = 3600


def init_container(
    containers: Sequence[Mapping[str, Any]], resources: Mapping[str, Any], suite: str, settings: PreflightSettings,
    door: Optional[GangDoor] = None,
) -> Dict[str, Any]:  # fmt: skip
    """The init container itself. It needs no right, and runs under Pod Security's `restricted`."""
    env: List[Dict[str, Any]] = [
        {"name": "NHC_PROLOG_SUITE", "value": suite},
        {"name": "NHC_PROLOG_SUITE_TIME", "value": f"{settings.timeout:g}s"},
        {"name": "NHC_PROLOG_SUITE_UNKNOWN", "value": settings.on_unknown},
        {"name": "NHC_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "NHC_STATE_DIR", "value": f"{PLACE}/state"},
        {"name": "NHC_DEEP_DIR", "value": f"{PLACE}/deep"},
        {"name": "TMPDIR", "value": PLACE},
    ]
    env += _visible(containers)
    mounts: List[Dict[str, Any]] = [{"name": CONTAINER, "mountPath": PLACE}]
    if door is not None:
        env += _gang_env(door.gang.key, door.authority, settings)
        mounts.append({"name": GANG_VOLUME, "mountPath": TOKENS, "readOnly": True})
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["nhc", "kubernetes", "preflight"],
        "env": env,
        "resources": resources,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }


def _gang_env(gang: str, authority: str, settings: PreflightSettings) -> List[Dict[str, Any]]:
    return [
        {"name": "NHC_GANG", "value": gang},
        {"name": "NHC_GANG_SERVER", "value": settings.gang.server},
        {"name": "NHC_GANG_CA", "value": authority},
        {"name": "NHC_GANG_TOKEN", "value": f"{TOKENS}/token"},
        {"name": "NHC_GANG_TIME", "value": f"{settings.gang.rules().longest + 60:g}s"},
    ]


INJECTED_ENV = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "KUBERNETES_", "OTEL_")
"""How variables begin that other webhooks put into every container: workload identities and tracing. None of them
changes what a program does to its node."""

INJECTED_MOUNTS = ("/var/run/secrets/", "/run/secrets/")
"""Where tokens of service accounts and of workload identities are mounted."""


def altered(pod: Mapping[str, Any], settings: PreflightSettings) -> str:
    """Why the preflight of a pod is not the one that the webhook adds, "" if it is. Pure.

    A user who may create pods could write the label and the container by hand, and take nodes out by its message. So
    only our own image counts, with our own command, and nothing else but what providers add to each container.
    """
    found = next((one for one in objects_of(get(pod, "spec", "initContainers")) if one.get("name") == CONTAINER), {})
    suite = texts(get(pod, "metadata", "labels")).get(PREFLIGHT, "")
    door, names = None, {text_of(one.get("name")) for one in objects_of(found.get("env"))}
    if any(name.startswith("NHC_GANG") for name in names):
        gang = gang_of(pod, text_of(get(pod, "metadata", "namespace")))
        if gang is None or resolves_itself(pod):
            return "it resolves names by itself" if gang else "it is of no gang"
        door = GangDoor(gang, "")
    ours = init_container(objects_of(get(pod, "spec", "containers")), {}, suite, settings, door)
    for field in ("image", "command", "securityContext"):
        if found.get(field) != ours[field]:
            return f"{field} is another"
    for field in ("args", "envFrom", "lifecycle", "workingDir", "restartPolicy", "volumeDevices"):
        if found.get(field):
            return f"{field} was added"
    has, wanted = ({text_of(one.get("name")): _env_value(one) for one in objects_of(made.get("env"))}
                   for made in (found, ours))  # fmt: skip
    # The settings or the authority may have differed then: with another authority than ours it trusts no server.
    free = ("NHC_PROLOG_SUITE_TIME", "NHC_PROLOG_SUITE_UNKNOWN", "NHC_GANG_TIME", "NHC_GANG_CA")
    changed = sorted(name for name in wanted if name not in free and has.get(name) != wanted[name])
    added = sorted(name for name in has if name not in wanted and not name.startswith(INJECTED_ENV))
    mounts = {text_of(one.get("mountPath")) for one in objects_of(found.get("volumeMounts"))} - {PLACE, TOKENS}
    added += sorted(path for path in mounts if not path.startswith(INJECTED_MOUNTS))
    if changed or added:
        return f"{(changed + added)[0]} was {'changed' if changed else 'added'}"
    return ""


def _env_value(one: Mapping[str, Any]) -> object:
    """What a variable is set to, without the version of the API that the server adds."""
    path = get(one, "valueFrom", "fieldRef", "fieldPath")
    if path is None and one.get("valueFrom"):
        return one["valueFrom"]
    return text_of(one.get("value")), path


def _visible(containers: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """What tells a vendor's runtime how much of its driver to hand over, as the pod's own containers say it."""
    names = ("NVIDIA_DRIVER_CAPABILITIES",)
    found = [
        {"name": name, "value": text_of(one.get("value"))}
        for container in containers
        for one in objects_of(container.get("env"))
        for name in names
        if one.get("name") == name and one.get("value")
    ]
    return found[:1] or [{"name": names[0], "value": "compute,utility"}]


def _ops(
    pod: Mapping[str, Any],
    containers: Sequence[Mapping[str, Any]],
    resources: Mapping[str, Any],
    suite: str,
    settings: PreflightSettings,
    door: Optional[GangDoor],
) -> List[Dict[str, Any]]:
    """The patch. Behind the init containers that there are: what a provider puts there sets devices up."""
    volumes: List[Dict[str, Any]] = [{"name": CONTAINER, "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    if door is not None:
        token = {"audience": AUDIENCE, "expirationSeconds": _TOKEN_LASTS, "path": "token"}
        volumes.append({"name": GANG_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}})
    made = init_container(containers, resources, suite, settings, door)
    ops: List[Dict[str, Any]] = []
    for path, values in (("/spec/volumes", volumes), ("/spec/initContainers", [made])):
        if get(pod, *path.strip("/").split("/")):
            ops += [{"op": "add", "path": f"{path}/-", "value": value} for value in values]
        else:
            ops.append({"op": "add", "path": path, "value": values})
    # Nothing in it outlives the preflight: no drain has to wait for it.
    annotations = texts(get(pod, "metadata", "annotations"))
    safe = ",".join(filter(None, (annotations.get(SAFE_VOLUMES, ""), CONTAINER)))
    if annotations:
        ops.append({"op": "add", "path": f"/metadata/annotations/{SAFE_VOLUMES.replace('/', '~1')}", "value": safe})
    else:
        ops.append({"op": "add", "path": "/metadata/annotations", "value": {SAFE_VOLUMES: safe}})
    if get(pod, "metadata", "labels"):
        ops.append({"op": "add", "path": f"/metadata/labels/{PREFLIGHT.replace('/', '~1')}", "value": suite})
    else:
        ops.append({"op": "add", "path": "/metadata/labels", "value": {PREFLIGHT: suite}})
    return ops
