"""Container runtimes: they answer on their sockets and call themselves ready."""

from __future__ import annotations

import stat
import time

from nhc.core.check import Judged, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.system import plain_http
from nhc.core.system.plain_http import NoHttpResponse
from nhc.core.units import seconds, text
from nhc.node.facts import cri

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Sequence

SOCKETS = ("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
           "/run/k3s/containerd/containerd.sock", "/run/docker.sock")  # fmt: skip
"""Where runtimes listen by default (the kubelet's and docker's documentation)."""


KUBELET_TRACES = ("/var/lib/kubelet/config.yaml", "/var/lib/kubelet/pki", "/etc/kubernetes/kubelet.conf")
"""What shows that a kubelet was set up on this node."""


@check(
    "check_runtime_ready",
    opt("-t --timeout", "deadline", seconds, "how long each socket may take to answer", 5.0),
    flag("-n --network", "network", "a pod network that is not ready is CRIT, not WARN"),
    rest("sockets", text, "sockets that must answer; none means those that are there at the usual places"),
    timeout=30,
)
def check_runtime_ready(
    host: Host, deadline: float = 5.0, network: bool = False, sockets: Sequence[str] = ()
) -> Judged:
    """The container runtimes answer and are ready.

    Asks containerd, CRI-O and cri-dockerd what the kubelet asks them (CRI's Version and Status, over their
    socket, without crictl), and docker for /_ping. CRIT where nothing listens, the answer does not come in time,
    or the runtime calls itself not ready. A pod network that is not ready (no CNI configuration) is WARN on a
    node that a kubelet was set up on, CRIT with -n, and of no matter elsewhere. A containerd that serves no CRI,
    as docker brings it along, need only answer. A named socket must be there. SKIP where none is named and none
    is found; UNKNOWN where the socket may not be used, as without root. GPUd watches the same sockets.

    Example: * || check_runtime_ready -n /run/containerd/containerd.sock
    """
    there = list(sockets) or [path for path in SOCKETS if _is_socket(host, path)]
    if not there:
        return skip("NoRuntime", "no container runtime listens on this node")
    outcomes = []
    for path in dict.fromkeys(map(_path, there)):
        if not _is_socket(host, path):
            outcomes.append(crit("RuntimeDown", f"there is no socket {path}", target=path, action=Action.RESTART_APP))
        else:
            outcomes.append(probe(host, path, deadline, network))
    bad = [outcome for outcome in outcomes if outcome.reason]
    return bad or ok(", ".join(outcome.message for outcome in outcomes), metrics=outcomes[0].metrics)


def _path(socket: str) -> str:
    """A socket's path, with which `unix://` may stand as in the kubelet's options."""
    return socket[len("unix://") :] if socket.startswith("unix://") else socket


def _is_socket(host: Host, path: str) -> bool:
    try:
        return stat.S_ISSOCK(host.stat(path).mode)
    except OSError:
        return False


def probe(host: Host, path: str, deadline: float, network: bool = False) -> Outcome:
    """What one socket says."""
    docker = path.rsplit("/", 1)[-1].startswith("docker")

    def question() -> Dict[str, Any]:
        ask = _ping_docker if docker else cri.ask
        try:
            return ask(host.path(path), deadline)
        except PermissionError as error:
            return {"problem": error.strerror or str(error), "permission": True}

    begin = host.monotonic()
    try:
        answer = host.system.ask(f"runtime {path}", question)
    except OSError as error:
        return unknown("RuntimeUnreadable", f"{path}: {error.strerror}", target=path)
    took = (Metric("response_time", host.monotonic() - begin, "s"),)
    problem = answer.get("problem")
    if answer.get("permission"):
        return unknown("NotPermitted", f"{path}: {problem}", target=path)
    if answer.get("code") == cri.UNIMPLEMENTED and "containerd" in path:
        return ok(f"containerd answers on {path} and serves no CRI", target=path, metrics=took)
    if problem:
        reason = "RuntimeDown" if answer.get("refused") else "RuntimeFails"
        return crit(reason, f"the runtime on {path} does not answer: {problem}", target=path,
                    action=Action.RESTART_APP)  # fmt: skip
    name = f"{answer.get('runtime')} {answer.get('version')}".strip()
    for kind, status, why, message in answer.get("conditions", ()):
        if not status and kind in ("RuntimeReady", "NetworkReady"):
            part = "pod network" if kind == "NetworkReady" else "runtime"
            text = f"{name} on {path} says that its {part} is not ready"
            text += f": {message or why}" if message or why else ""
            if kind == "RuntimeReady":
                return crit("RuntimeNotReady", text, target=path, metrics=took, action=Action.RESTART_APP)
            if not network and not any(host.exists(trace) for trace in KUBELET_TRACES):
                return ok(f"{name} on {path} is ready, without a pod network", target=path, metrics=took)
            return (crit if network else warn)("NetworkNotReady", text, target=path, metrics=took)
    return ok(f"{name} on {path} is ready", target=path, metrics=took)


def _ping_docker(path: str, deadline: float) -> Dict[str, Any]:
    try:
        answer = plain_http.request("GET", "http://localhost/_ping", until=time.monotonic() + deadline, unix=path)
    except NoHttpResponse as error:
        return {"problem": str(error), "refused": error.refused}
    if answer.status == 200 and answer.body.strip() == "OK":
        return {"runtime": "docker", "version": "", "conditions": []}
    return {"problem": f"HTTP {answer.status} {answer.body.strip()[:100]}"}


def component_socket(host: Host, wanted: Optional[str]) -> str:
    """The CRI socket of this node: the one asked for, else the first that is there, else containerd's."""
    if wanted:
        return _path(wanted)
    return next((path for path in SOCKETS[:-1] if _is_socket(host, path)), SOCKETS[0])
