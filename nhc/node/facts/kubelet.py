"""The configuration of this node's kubelet: which container runtime it uses.

Its options take precedence over its configuration's drop-ins, and these over its configuration (kubernetes.io, "Set
Kubelet Parameters Via A Configuration File"). kubeadm keeps the options in a file of its own.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, regex

if TYPE_CHECKING:
    from typing import Dict, List

CONFIG = "/var/lib/kubelet/config.yaml"
TRACES = (CONFIG, "/var/lib/kubelet/pki", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/cpu_manager_state")
"""Files that show that a kubelet was set up on this node; every kubelet that has ever run has written the last one."""
_FILES = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet")
"""Where kubeadm and distributions keep options of the kubelet, also of one that does not run now."""
_ENDPOINT = regex(r"""(?m)^\s*"?containerRuntimeEndpoint"?\s*:\s*["']?([^"',\s#]+)""")
"""The line of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), in YAML or JSON."""


def is_set_up(host: Host) -> bool:
    """Whether a kubelet was set up on this node."""
    return any(host.exists(trace) for trace in TRACES)


def _options(words: List[str]) -> Dict[str, str]:
    """`--name=value` and `--name value` of a command line."""
    found: Dict[str, str] = {}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            found[name.lstrip("-")] = value if equals else " ".join(words[at + 1 : at + 2])
    return found


def runs(host: Host) -> bool:
    """Whether a kubelet runs here, independent of the place of its configuration."""
    return bool(_running(host))


def _running(host: Host) -> Dict[str, str]:
    """The options of the kubelet that runs; none if none does or /proc is hidden."""
    from nhc.node.facts.processes import raw_command_lines

    try:
        lines = host.fact(raw_command_lines)
    except OSError:
        return {}
    for line in lines.values():
        words = (line or "").split("\0")
        if words[0].rsplit("/", 1)[-1] == "kubelet":
            return _options(words)
    return {}


def runtime_endpoint(host: Host) -> str:
    """The path of the socket of the runtime that the kubelet uses; "" if nothing says which, or it is no socket."""
    kept = " ".join(map(host.read_or, _FILES)).replace('"', " ").replace("'", " ").replace("=--", " --")
    options = _running(host) or _options(kept.split())
    endpoint = options.get("container-runtime-endpoint", "")
    if not endpoint:
        folder = options.get("config-dir", "")
        drop_ins = [f"{folder}/{name}" for name in host.names(folder) if name.endswith(".conf")] if folder else []
        for path in (options.get("config") or CONFIG, *drop_ins):
            found = _ENDPOINT.search(host.read_or(path))
            endpoint = found[1] if found else endpoint
    return socket_path(endpoint)


def socket_path(endpoint: str) -> str:
    """The path of `unix:///run/x.sock`, `unix:/run/x.sock` or `/run/x.sock`; "" for what is no Unix socket."""
    path = endpoint[5:] if endpoint.startswith("unix:") else endpoint
    return "/" + path.lstrip("/") if path.startswith("/") else ""
