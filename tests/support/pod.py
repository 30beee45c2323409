"""A node and a container on it, made of namespaces: what a DaemonSet says is run as a kubelet would run it.

The node has mounts, processes and a host name of its own, over this machine's file system; its network is this
machine's, so that it reaches the test's API server. All of it ends with the node's process 1.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from tests.support.require import need

REPOSITORY = Path(__file__).resolve().parents[2]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt")
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def possible() -> None:
    """Go on only where namespaces can be made."""
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--uts", "--fork", "true"], capture_output=True, text=True, check=False
    )
    need("namespaces", done.returncode == 0, done.stderr.strip())


@dataclass
class Node:
    """A simulated node. `pid` is its process 1; `scratch` a directory that the container does not have."""

    pid: int
    name: str
    scratch: Path

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command on the node itself, as its administrator would give it."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--uts", "--root", "--wd", "--"]
        return subprocess.run([*enter, *argv], capture_output=True, text=True, check=check, timeout=60)

    def sh(self, script: str) -> str:
        return self.run("sh", "-ec", script).stdout


@contextlib.contextmanager
def node(directory: Path, name: str) -> Iterator[Node]:
    """A node whose /run is empty and whose /etc/passwd knows `simuser` (4711)."""
    possible()
    scratch = directory / "node"
    scratch.mkdir()
    users = directory / "passwd"
    users.write_text("root:x:0:0:root:/root:/bin/bash\nsimuser:x:4711:4711::/home/simuser:/bin/sh\n")
    named = directory / "hostname"
    named.write_text(f"{name}.by-file\n")
    script = f"""
        mount --make-rshared /
        mount -t proc proc /proc
        mount -t tmpfs tmpfs /run
        cp -a /etc {scratch}/etc
        [ -e /etc/hosts ] || echo 127.0.0.1 localhost >{scratch}/etc/hosts  # a minimal root has none
        mount --bind {scratch}/etc /etc
        mount --bind {shlex.quote(str(users))} /etc/passwd
        mount --bind {shlex.quote(str(named))} /etc/hostname
        hostname {shlex.quote(name)}
        echo ready
        sleep 3600 & wait $!  # process 1 takes in whoever is left to it
    """
    argv = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec"]
    # Its own group: a kubelet's node does not end with the terminal either.
    process = subprocess.Popen([*argv, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Node(child_of(process.pid), name, scratch)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def child_of(pid: int) -> int:
    deadline = time.monotonic() + 60
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        assert time.monotonic() < deadline, f"process {pid} has no child"
        time.sleep(0.005)


@dataclass
class Container:
    """What runs in a node's container."""

    node: Node
    process: subprocess.Popen[bytes]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return child_of(self.process.pid)

    def exec(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """As `kubectl exec` would."""
        words = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--uts", "--root", "--wd", "--"]
        return subprocess.run(
            [*words, *argv], capture_output=True, text=True, check=False, env=dict(self.env), timeout=60
        )

    def said(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        """SIGTERM, as the kubelet sends it; the exit status."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def container(
    node: Node,
    directory: Path,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    files: Mapping[str, str],
    host_paths: Sequence[Mapping[str, Any]] = (),
    read_only: bool = False,
    wait: bool = False,
) -> Iterator[Container]:
    """Run `argv` in a container of that node.

    `files` are what volumes hold, by their place in the container; `host_paths` are mounts of the node's directories:
    path, mountPath, readOnly, propagation. The root is the image's: the machine's programs and Python, and nothing
    else of it. With `read_only` it cannot be written.
    """
    directory.mkdir()
    root, volumes, log = directory / "root", directory / "volumes", directory / "log"
    root.mkdir()
    lines = [
        "mount --make-rslave /",
        f"mount -t tmpfs tmpfs {root}",
        f"cd {root}",
        "mkdir -p proc sys dev etc tmp run var image",
    ]
    needed = dict.fromkeys([*_SYSTEM, sys.prefix, sys.base_prefix, str(REPOSITORY)])
    for path in needed:
        if os.path.islink(path):
            lines.append(f"ln -s {os.readlink(path)} .{path}")
        elif os.path.isdir(path):
            lines += [f"mkdir -p .{path}", f"mount --bind {path} .{path}", f"mount -o remount,bind,ro .{path}"]
    lines += ["mount -t proc proc proc", "mount --rbind /sys sys", "mount --rbind /dev dev"]
    content = {
        "/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        "/etc/group": "root:x:0:\n",
        "/etc/hostname": "container\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
        "/etc/only-in-the-container": "",
        "/image/nhc": f"#!{sys.executable}\n" + (REPOSITORY / "nhc/core/launch/nhc").read_text().split("\n", 1)[1],
        **files,
    }
    for place, text in content.items():
        source = volumes / place.lstrip("/")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        source.chmod(0o755 if place == "/image/nhc" else 0o644)
    lines.append(f"cp -r {volumes}/. .")
    lines.append("[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache etc/")
    for mount in host_paths:
        place = f".{mount['mountPath']}"
        lines.append(f"mkdir -p {mount['path']} {place}")
        lines.append(f"mount --rbind {mount['path']} {place}")
        lines.append(f"mount --make-{mount.get('propagation', 'rprivate')} {place}")
        if mount.get("readOnly"):
            lines.append(f"mount -o remount,bind,ro {place}")  # as containerd does: of the top one alone
    if read_only:
        lines.append(f"mount -o remount,ro {root}")
    environment = {
        "PATH": f"/image:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'adapters'}",
        "HOME": "/root",
        **env,
    }
    words = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
    lines.append(f"exec env -i {words} chroot {root} {shlex.join(argv)}")
    enter = ["nsenter", "--target", str(node.pid), "--mount", "--pid", "--uts", "--root", "--wd", "--"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*enter, "unshare", "--mount", "--propagation", "unchanged", "sh", "-ec", "\n".join(lines)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running = Container(node, process, log, environment)
    try:
        if wait:
            process.wait(120)
        yield running
    finally:
        if process.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            process.wait()


def of_daemonset(
    rendered: Sequence[Mapping[str, Any]], node_name: str, token: str, ca: Path, namespace: str, server: tuple[str, int]
) -> dict[str, Any]:
    """What `container` needs to run a rendered DaemonSet's only container."""
    (daemonset,) = [document for document in rendered if document["kind"] == "DaemonSet"]
    maps = {document["metadata"]["name"]: document["data"] for document in rendered if document["kind"] == "ConfigMap"}
    spec = daemonset["spec"]["template"]["spec"]
    (said,) = spec["containers"]
    assert spec["hostNetwork"], "the test's node and container share the network"
    assert spec["hostPID"], "the test's container sees the node's processes"
    assert said["securityContext"]["privileged"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    files = {f"{TOKENS}/token": token, f"{TOKENS}/ca.crt": ca.read_text(), f"{TOKENS}/namespace": namespace}
    host_paths = []
    for mount in said["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            source = volume["configMap"]
            data = maps[source["name"]] if not source.get("optional") else maps.get(source["name"], {})
            files.update({f"{mount['mountPath']}/{name}": text for name, text in data.items()})
        else:
            propagation = {"HostToContainer": "rslave"}.get(mount.get("mountPropagation", ""), "rprivate")
            path = volume["hostPath"]["path"]
            host_paths.append({**mount, "path": path, "propagation": propagation})
    env = {"KUBERNETES_SERVICE_HOST": server[0], "KUBERNETES_SERVICE_PORT": str(server[1])}
    for variable in said["env"]:
        if "value" in variable:
            env[variable["name"]] = variable["value"]
        else:
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
            env[variable["name"]] = node_name
    return {
        "argv": ["nhc", *said["args"]],  # the image's ENTRYPOINT
        "env": env,
        "files": files,
        "host_paths": host_paths,
        "read_only": said["securityContext"]["readOnlyRootFilesystem"],
    }
