"""Kubelet and container runtimes: they answer, call themselves healthy and ready, and can create containers.

The kubelet's request for a runtime's status is built here without a library. CRI is gRPC over a Unix socket
(kubernetes/cri-api, runtime/v1/api.proto). One call needs little of HTTP/2 (RFC 9113), of its header compression (RFC
7541, without Huffman and without the dynamic table) and of protobuf, and saves a node the `crictl` command and its
50 ms of start.
"""

from __future__ import annotations

import re
import stat
import time

from nhc.core.check import Judged, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, Verdict, crit, ok, skip, unknown, warn
from nhc.core.system import plain_http
from nhc.core.system.plain_http import NoHttpResponse, left
from nhc.core.system.protobuf import fields
from nhc.core.units import seconds, show_seconds, text, whole
from nhc.node.facts import kubelet
from nhc.node.facts.journal import logged
from nhc.node.facts.kubelet import is_set_up

if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, List, Optional, Sequence, Tuple

VERSIONS = ("runtime.v1", "runtime.v1alpha2")
"""The services that runtimes offer; the older one was all that containerd 1.5 had."""
UNIMPLEMENTED = 12
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
# The name of the header as HPACK writes it, with Huffman's code (which Go's servers use) and plain.
_STATUS = (b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f", b"\x0bgrpc-status")
_LIMIT = 4 << 20


class RuntimeCondition(NamedTuple):
    """One of the runtime's conditions: RuntimeReady, NetworkReady and what it adds."""

    type: str
    status: bool
    reason: str
    message: str


class Refused(NoHttpResponse):
    """The server answered the call with an error. `code` is gRPC's."""

    def __init__(self, code: Optional[int]) -> None:
        super().__init__(f"it answered with gRPC status {'unknown' if code is None else code}")
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _header(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call_bytes(path: str) -> bytes:
    """Everything that a client sends for a call of `path` with an empty message."""
    block = b"\x83\x86" + b"\x04" + bytes((len(path),)) + path.encode()  # :method POST, :scheme http, :path
    block += b"\x01\x09localhost"  # :authority
    block += _header(b"content-type", b"application/grpc") + _header(b"te", b"trailers")
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(_SETTINGS, 0, 0, b"")
        + frame(_HEADERS, _END_HEADERS, 1, block)
        + frame(_DATA, _END_STREAM, 1, b"\0\0\0\0\0")
    )


def grpc_status(block: bytes) -> Optional[int]:
    """The status in a compressed block of headers; None if it is not there, or written in a way not known here."""
    for name in _STATUS:
        at = block.find(name)
        if at >= 0:
            length = block[at + len(name)] if at + len(name) < len(block) else 0
            value = block[at + len(name) + 1 : at + len(name) + 1 + length]
            return int(value) if length < 4 and value.isdigit() else None
    return None


def parse_status(message: bytes) -> Tuple[RuntimeCondition, ...]:
    """The conditions of a StatusResponse. Raises ValueError."""
    conditions = []
    for number, status in fields(message):
        for inner, condition in fields(status) if number == 1 and isinstance(status, bytes) else ():
            if inner == 1 and isinstance(condition, bytes):
                values: Dict[int, Any] = dict(fields(condition))
                conditions.append(RuntimeCondition(_text(values.get(1)), bool(values.get(2)), _text(values.get(3)),
                                       _text(values.get(4))))  # fmt: skip
    return tuple(conditions)


def parse_version(message: bytes) -> Tuple[str, str]:
    """Name and version of the runtime in a VersionResponse. Raises ValueError."""
    values: Dict[int, Any] = dict(fields(message))
    return _text(values.get(2)), _text(values.get(3))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def call_cri(socket_path: str, path: str, until: float) -> bytes:
    """The message that answers a call without arguments. Raises NoHttpResponse, Refused, PermissionError."""
    import socket

    data = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(left(until))
            connection.connect(socket_path)
            connection.sendall(call_bytes(path))
            body, acknowledged, spoke = b"", False, False
            while len(body) + len(data) < _LIMIT:
                while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                    size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
                    payload, data = data[9 : 9 + size], data[9 + size :]
                    spoke = spoke or kind == _SETTINGS
                    if not spoke:
                        raise NoHttpResponse("it does not speak gRPC")
                    if kind == _SETTINGS and not flags & _ACK and not acknowledged:
                        _acknowledge(connection, frame(_SETTINGS, _ACK, 0, b""))
                        acknowledged = True
                    elif kind == _PING and not flags & _ACK:
                        _acknowledge(connection, frame(_PING, _ACK, 0, payload))
                    elif kind in (_RST, _GOAWAY):
                        raise NoHttpResponse("it broke the call off")
                    elif kind == _DATA:
                        body += payload
                    if kind in (_HEADERS, _DATA) and flags & _END_STREAM:
                        code = grpc_status(payload) if kind == _HEADERS else 0
                        if code != 0 or len(body) < 5:
                            raise Refused(code)
                        return body[5 : 5 + int.from_bytes(body[1:5], "big")]
                connection.settimeout(left(until))
                more = connection.recv(65536)
                if not more:
                    raise NoHttpResponse("it closed the connection" if spoke else "it does not speak gRPC")
                data += more
                if not spoke and len(data) >= 4 and data[3] != _SETTINGS:
                    raise NoHttpResponse("it does not speak gRPC")
        except PermissionError:
            raise
        except OSError as error:
            gone = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
            raise NoHttpResponse(error.strerror or str(error), gone) from None
    raise NoHttpResponse("its answer does not end")


def _acknowledge(connection: socket.socket, reply: bytes) -> None:
    """A server that has answered and closed needs no acknowledgement: its answer must still be read."""
    try:
        connection.sendall(reply)
    except (BrokenPipeError, ConnectionResetError):
        pass


def query_cri(socket_path: str, deadline: float) -> Dict[str, Any]:
    """What the runtime says, as plain values for a recording.

    {"runtime": NAME, "version": V, "conditions": [[...]]}, or {"problem": TEXT, "refused": BOOL, "code": gRPC's}.
    """
    until = time.monotonic() + deadline
    problem: Dict[str, Any] = {}
    for service in VERSIONS:
        try:
            name, version = parse_version(call_cri(socket_path, f"/{service}.RuntimeService/Version", until))
            conditions = parse_status(call_cri(socket_path, f"/{service}.RuntimeService/Status", until))
        except Refused as error:
            problem = {"problem": str(error), "code": error.code}
            if error.code == UNIMPLEMENTED:
                continue
            return problem
        except NoHttpResponse as error:
            return {"problem": str(error), "refused": error.refused}
        except ValueError as error:
            return {"problem": f"its answer is {error}"}
        return {"runtime": name, "version": version, "conditions": [list(each) for each in conditions]}
    return problem


HEALTHZ = "http://127.0.0.1:10248/healthz"
"""The kubelet's healthzBindAddress and healthzPort, as they are by default."""
PROXY = "http://127.0.0.1:10256/livez"
"""kube-proxy's healthz-bind-address. livez fails where the proxy itself is stuck, not where the node is drained."""


@check(
    "check_kubelet_healthz",
    opt("-u --url", "url", text, "the kubelet's health endpoint", HEALTHZ),
    opt("-t --timeout", "deadline", seconds, "how long it may take to answer", 5.0),
    timeout=15,
    settles=("KubeletSilent", "KubeletUnhealthy"),
)
def check_kubelet_healthz(host: Host, url: str = HEALTHZ, deadline: float = 5.0) -> Outcome:
    """The kubelet answers that it is healthy.

    Asks its health endpoint, which answers 200 as long as its own loops turn (syncloop, log and ping checks).
    Another status, no answer in time and nothing that listens are CRIT on a node that a kubelet runs or was set
    up on (/var/lib/kubelet). SKIP where
    there is no trace of one.

    Example: * || check_kubelet_healthz
    """
    status, body, took = query_http(host, url, deadline)
    metrics = (Metric("response_time", took, "s"),)
    if status == 200:
        return ok(f"the kubelet is healthy ({body[:40]})", metrics=metrics)
    if not status and not is_set_up(host):
        return skip("NoKubelet", "no kubelet runs on this node")
    if status == -1:
        return unknown("NotPermitted", f"{url}: {body}")
    if status:
        return crit("KubeletUnhealthy", f"the kubelet answers {status} to {url}: {body[:200]}", metrics=metrics,
                    action=Action.RESTART_APP)  # fmt: skip
    return crit("KubeletSilent", f"the kubelet does not answer: {body}", action=Action.RESTART_APP)


def query_http(host: Host, url: str, deadline: float) -> Tuple[int, str, float]:
    """HTTP status (0: none, -1: not permitted), what was said, and seconds taken."""

    def question() -> Dict[str, Any]:
        try:
            response = plain_http.request("GET", url, until=time.monotonic() + deadline)
        except NoHttpResponse as error:
            return {"status": 0, "said": str(error)}
        except PermissionError as error:
            return {"status": -1, "said": error.strerror or str(error)}
        return {"status": response.status, "said": response.body.strip()[:1000]}

    if not host.system.in_network():
        return -1, "nhc runs in a network of its own, where the node's 127.0.0.1 is not", 0.0
    begin = host.monotonic()
    answer = host.system.ask(f"http {url}", question)
    return int(answer["status"]), str(answer["said"]), host.monotonic() - begin


SOCKETS = ("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
           "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
           "/var/snap/microk8s/common/run/containerd.sock", "/run/docker.sock")  # fmt: skip
"""Where runtimes listen by default (the documentation of the kubelet, of distributions and of docker). The kubelet's
own is asked wherever it is."""


@check(
    "check_runtime_ready",
    opt("-t --timeout", "deadline", seconds, "how long each socket may take to answer", 5.0),
    flag("-n --network", "network", "a pod network that is not ready is CRIT, not WARN"),
    rest("sockets", text, "sockets that must answer; none means those that are there at the usual places"),
    timeout=30,
    settles=("RuntimeDown", "RuntimeNotReady", "NetworkNotReady"),
)
def check_runtime_ready(
    host: Host, deadline: float = 5.0, network: bool = False, sockets: Sequence[str] = ()
) -> Judged:
    """The container runtimes answer and are ready.

    Asks containerd, CRI-O and cri-dockerd what the kubelet asks them (CRI's Version and Status, over their
    socket, without crictl), and docker for /_ping. CRIT where nothing listens, the answer does not come in time,
    or the runtime calls itself not ready. A pod network that is not ready (no CNI configuration) is WARN on a
    node that a kubelet was set up on, CRIT with -n, and of no matter elsewhere. A containerd that serves no CRI,
    as docker brings it along, need only answer. A named socket must be there. Where none is named, the runtime that
    the kubelet uses must answer (its --container-runtime-endpoint or containerRuntimeEndpoint), and where that is
    not known, one of those whose sockets are there; another that does not, as a socket that docker left behind, is
    WARN. SKIP where none is named and none is found; UNKNOWN where the socket may not be used, as without root. GPUd
    watches the same sockets.

    Example: * || check_runtime_ready -n /run/containerd/containerd.sock
    """
    if sockets:
        outcomes = [_judge(host, path, deadline, network) for path in dict.fromkeys(map(_path, sockets))]
    else:
        usual = [path for path in SOCKETS if _is_socket(host, path)]
        # Without its usual files the kubelet is looked for only where it could make a difference: that lists /proc.
        used = kubelet.runtime_endpoint(host) if kubelet.is_set_up(host) or (usual and kubelet.runs(host)) else ""
        there = {host.realpath(path): path for path in (*usual, used) if path and _is_socket(host, path)}
        if used:
            there[host.realpath(used)] = used
        if not there:
            return skip("NoRuntime", "no container runtime listens on this node")
        outcomes = _all_but_one_spare(used, [_judge(host, path, deadline, network) for path in there.values()])
    bad = [outcome for outcome in outcomes if outcome.reason]
    return bad or ok(", ".join(outcome.message for outcome in outcomes), metrics=outcomes[0].metrics)


def _all_but_one_spare(used: str, outcomes: List[Outcome]) -> List[Outcome]:
    """The outcomes by their importance: CRIT for the runtime that is used, and if none answers at all."""
    if not used and not any(outcome.verdict in (Verdict.OK, Verdict.WARN) for outcome in outcomes):
        return outcomes
    why = f"; the kubelet uses {used}" if used else "; another runtime answers"
    return [
        outcome._replace(verdict=Verdict.WARN, message=outcome.message + why)
        if outcome.verdict is Verdict.CRIT and outcome.target != used
        else outcome
        for outcome in outcomes
    ]


def _path(socket: str) -> str:
    """A socket's path, before which `unix://` may stand as in the kubelet's options."""
    return kubelet.socket_path(socket) or socket


def _judge(host: Host, path: str, deadline: float, network: bool) -> Outcome:
    if not _is_socket(host, path):
        return crit("RuntimeDown", f"there is no socket {path}", target=path, action=Action.RESTART_APP)
    return probe(host, path, deadline, network)


def _is_socket(host: Host, path: str) -> bool:
    try:
        return stat.S_ISSOCK(host.stat(path).mode)
    except OSError:
        return False


def probe(host: Host, path: str, deadline: float, network: bool = False) -> Outcome:
    """What one socket says."""
    docker = path.rsplit("/", 1)[-1].startswith("docker")

    def question() -> Dict[str, Any]:
        query = _ping_docker if docker else query_cri
        try:
            return query(host.path(path), deadline)
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
    if answer.get("code") == UNIMPLEMENTED and "containerd" in path:
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
            if not network and not kubelet.is_set_up(host):
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
    """The CRI socket of this node: the one asked for, else the kubelet's, else the first there, else containerd's."""
    named = _path(wanted) if wanted else kubelet.runtime_endpoint(host)
    return named or next((path for path in SOCKETS[:-1] if _is_socket(host, path)), SOCKETS[0])


UNITS = ("*containerd*", "*crio*", "*cri-o*", "*docker*", "k3s*", "rke2-*", "k0s*")
"""Patterns of journalctl, as a snap, a distribution and a role each give the unit another name."""
_FAILS = re.compile(
    r"(?:fail|error|unable|cannot)[^\n]{0,300}?(?:creat|start|reserv|setup|set up|mount|shim|sandbox)", re.IGNORECASE
)
_OF_THE_NODE = re.compile(
    r"no space left on device|too many open files|cannot allocate memory|resource temporarily unavailable"
    r"|read-only file system|input/output error|structure needs cleaning|context deadline exceeded"
    r"|nvidia-container-cli|nvml error|shim (?:exited|disconnected)|ttrpc: closed"
    r"|failed to (?:create|write|join) cgroup|unable to (?:apply cgroup|freeze)|cni plugin not initialized"
    r"|no ip addresses available",
    re.IGNORECASE,
)
"""Causes in the node. A wrong command, image or mount of a pod is its owner's mistake, and is not counted."""


@check(
    "check_runtime_log",
    opt("-n --count", "count", whole, "so many failures are a fault", 3),
    opt("-w --within", "within", seconds, "how far back they count", 600.0),
    flag("-c --critical", "critical", "CRIT, not WARN"),
    rest("units", text, "units of systemd; where none is given the runtimes that are known"),
    timeout=20,
    every=300,
)
def check_runtime_log(
    host: Host, count: int = 3, within: float = 600.0, critical: bool = False, units: Sequence[str] = ()
) -> Outcome:
    """The container runtime can create containers, by its own log.

    A runtime can answer on its socket and fail at each container: no space, no cgroup, no network addresses, an NVIDIA
    library that does not fit its driver. Reads the journal of containerd, CRI-O, docker and the like for failures
    whose cause lies with the node: 3 within 10 minutes are WARN, with -c CRIT. What a pod's own command, image or mount
    got wrong does not count. UNKNOWN where the journal cannot be read; SKIP without journalctl.

    Example: * |every 5m| check_runtime_log
    """
    if not host.which("journalctl"):
        return skip("NoJournal", "no journal on this node")
    try:
        lines = logged(host, host.time() - within, *(f"--unit={unit}" for unit in (units or UNITS)))
    except OSError as error:
        return unknown("JournalUnreadable", f"journalctl: {error.strerror}")
    failures = [line for line in lines if _OF_THE_NODE.search(line) and _FAILS.search(line)]
    metrics = (Metric("runtime_failures", len(failures)),)
    if len(failures) < max(count, 1):
        return ok(f"{len(failures)} containers could not be created in {show_seconds(within)}", metrics=metrics)
    message = f"the runtime could not create {len(failures)} containers in {show_seconds(within)}: {failures[-1][:200]}"
    say = crit if critical else warn
    return say("RuntimeCannotCreate", message, metrics=metrics, action=Action.INSPECT, evidence=tuple(failures[-5:]))
