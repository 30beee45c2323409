"""The DaemonSet as it is rendered, run as a kubelet would run it: a container on a node, against a real API server.

The node and the container are namespaces (`tests/support/pod.py`); arguments, environment, volumes, probes, ConfigMaps
and the ServiceAccount are the manifest's. So what passes here is what a user applies.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from nhc.core.system import kernel_ring
from tests.adapters.kubernetes.test_manifests import MANIFESTS, SYSTEM, chart
from tests.support import pod
from tests.support.kube import Kube
from tests.support.pod import Container, Node
from tests.support.ports import free_port
from tests.support.require import need
from tests.support.waiting import until

FAST = "* |every 300ms, timeout 10s|"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with pod.node(tmp_path, "worker-7") as made:
        made.sh(f"mkdir {made.scratch}/data; echo node > {made.scratch}/marker; "
                f"touch {made.scratch}/owned; chown 4711 {made.scratch}/owned")  # fmt: skip
        yield made


def site(node: Node) -> tuple[str, str]:
    """The site's own checks, and its script."""
    checks = (
        f"{FAST} check_fs_mount_rw -t tmpfs {node.scratch}/data\n"
        f'{FAST} [[ "$(<{node.scratch}/marker)" == node ]]\n'
        f"{FAST} sh -c 'findmnt -no OPTIONS / | grep -qw rw'\n"
        f"{FAST} check_site_marker\n"
        f"* || check_file_stat -U simuser {node.scratch}/owned\n"
    )
    script = f'check_site_marker() {{ [[ -e {node.scratch}/marker ]] || {{ die 1 "no marker"; return 1; }}; }}\n'
    return checks, script


def kustomize(plane: Any, node: Node, directory: Path) -> str:
    """An overlay of the user's own over the shipped one."""
    checks, script = site(node)
    overlay = directory / "overlay"
    overlay.mkdir()
    (overlay / "nhc.conf").write_text((MANIFESTS / "agent/config/nhc.conf").read_text() + checks)
    (overlay / "site.nhc").write_text(script)
    maps = [
        {"name": "nhc-checks-cpu", "namespace": SYSTEM, "behavior": "merge", "files": ["nhc.conf"]},
        {"name": "nhc-scripts", "namespace": SYSTEM, "files": ["site.nhc"], "options": {"disableNameSuffixHash": True}},
    ]
    shipped = os.path.relpath(MANIFESTS / "overlays/cpu", overlay)
    (overlay / "kustomization.yaml").write_text(json.dumps({"resources": [shipped], "configMapGenerator": maps}))
    return str(plane.kubectl("kustomize", str(overlay)).stdout)


def charted(plane: Any, node: Node, directory: Path) -> str:
    checks, script = site(node)
    defaults = yaml.safe_load((MANIFESTS / "chart/values.yaml").read_text())
    values = {
        "agents": {"nvidia": {"enabled": False}, "cpu": {"enabled": True}},
        "agent": {"labels": {"rack": "r12"}, "settings": {"retry": "1s"}, "metrics": True, "port": free_port()},
        "checks": defaults["checks"] + checks,
        "scripts": {"site.nhc": script},
    }
    (directory / "values.yaml").write_text(json.dumps(values))
    return chart(plane, "-f", str(directory / "values.yaml"))


@dataclass
class Deployed:
    """The agent's pod, running."""

    kube: Kube
    node: Node
    name: str
    container: Container
    spec: dict[str, Any]

    def condition(self, kind: str) -> tuple[str, str]:
        found = self.kube.condition(self.name, kind) or {}
        return found.get("status", ""), found.get("reason", "")

    def probe(self, which: str) -> int:
        """What the kubelet is answered."""
        asked = self.spec["containers"][0][which]["httpGet"]
        return self.get(f"http://{asked['host']}:{asked['port']}{asked['path']}")[0]

    def get(self, url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""

    def report(self) -> dict[str, Any]:
        port = self.spec["containers"][0]["livenessProbe"]["httpGet"]["port"]
        return dict(json.loads(self.get(f"http://127.0.0.1:{port}/report")[1]))

    def verdicts(self, check: str) -> set[str]:
        return {result["verdict"] for result in self.report()["results"] if result["check"] == check}


@pytest.fixture(params=[kustomize, charted], ids=["kustomize", "chart"])
def deployed(
    request: pytest.FixtureRequest, kube: Kube, installed: Any, node: Node, tmp_path: Path
) -> Iterator[Deployed]:
    need("kmsg", os.access(kernel_ring.KMSG, os.W_OK), "this user may not write to the kernel log")
    rendered = list(yaml.safe_load_all(request.param(installed, node, tmp_path)))
    (daemonset,) = [document for document in rendered if document["kind"] == "DaemonSet"]
    template = daemonset["spec"]["template"]
    name = kube.node("worker", fake=False)
    # The API server has its say on the pod, and the token is bound to it as the kubelet's would be.
    metadata = {"name": f"agent-{kube.prefix}", "namespace": SYSTEM, "labels": template["metadata"]["labels"]}
    body = {"metadata": metadata, "spec": {**template["spec"], "nodeName": name}}
    made = kube.admin.post(f"/api/v1/namespaces/{SYSTEM}/pods", body)
    token = kube.token(template["spec"]["serviceAccountName"], SYSTEM, made)
    words = pod.of_daemonset(rendered, name, token, kube.plane.ca, SYSTEM, ("127.0.0.1", kube.plane.port))
    with pod.container(node, tmp_path / "pod", words.pop("argv"), **words) as running:
        found = Deployed(kube, node, name, running, made["spec"])
        try:
            until(lambda: found.probe("livenessProbe") == 200 or running.process.poll() is not None)
            assert running.process.poll() is None, running.said()
            yield found
        finally:
            print(running.said())  # what a failure is explained by
            kube.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{metadata['name']}")


@pytest.mark.usefixtures("kernel_log_alone")
def test_the_agent_of_the_daemonset_judges_its_node(deployed: Deployed) -> None:
    node, container = deployed.node, deployed.container
    until(lambda: deployed.probe("readinessProbe") == 200)
    container.exec("nhc", "ack", "agent", "--all")  # what other tests wrote into this machine's kernel log
    # Nothing is mounted there yet: this node's storage is not as it should be, and it is said.
    until(lambda: deployed.condition("NhcStorageProblem") == ("True", "FilesystemNotMounted"))
    assert deployed.report()["host"] == deployed.name

    # What only the node has: its mounts, its files, its users; what runs, runs there.
    node.sh(f"mount -t tmpfs data {node.scratch}/data")
    until(lambda: deployed.condition("NhcStorageProblem")[0] == "False", within=60)
    for check in ("shell", "sh", "check_site_marker", "check_file_stat"):
        assert deployed.verdicts(check) == {"OK"}, container.said()
    node.sh(f"mount -o remount,ro {node.scratch}/data")
    until(lambda: deployed.condition("NhcStorageProblem")[0] == "True")
    node.sh(f"rm {node.scratch}/marker")
    until(lambda: all(deployed.verdicts(check) == {"CRIT"} for check in ("shell", "check_site_marker")))

    # Whoever is called by `kubectl exec` judges the node, too.
    done = container.exec("nhc", "check", "local", "--check", "check_fs_mount_rw", "--all", "--profile", "none",
                          "-c", "/etc/nhc/nhc.conf")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert f"{node.scratch}/data" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("worker-7: CRIT")


@pytest.mark.usefixtures("kernel_log_alone")
def test_a_fatal_kernel_line_is_a_condition_until_it_is_acknowledged(deployed: Deployed) -> None:
    container = deployed.container
    until(lambda: deployed.probe("readinessProbe") == 200)
    container.exec("nhc", "ack", "agent", "--all")
    device = f"0000:{random.randrange(16, 255):02x}:00"
    kernel_ring.write(f"NVRM: Xid (PCI:{device}): 79, pid=1, GPU has fallen off the bus. (nhc-drill)", 3)
    until(lambda: deployed.condition("NhcGpuProblem") == ("True", "Xid79"))
    done = container.exec("nhc", "ack", "agent", f"xid/79/{device}.0")
    assert done.returncode == 0, done.stderr


def test_probes_tell_a_paused_agent_from_a_dead_one_and_sigterm_ends_it(deployed: Deployed) -> None:
    container = deployed.container
    until(lambda: deployed.probe("readinessProbe") == 200)
    assert container.exec("nhc", "hold", "agent", "--for", "1m").returncode == 0
    assert (deployed.probe("livenessProbe"), deployed.probe("readinessProbe")) == (200, 503)
    began = time.monotonic()
    assert container.stop() == 0
    assert time.monotonic() - began < deployed.spec["terminationGracePeriodSeconds"]
    assert '"agent.stopped"' in container.said()
    assert deployed.probe("livenessProbe") == 0
    # A new container, with the state that the node kept, would begin where this one ended.
    assert "agent.json" in deployed.node.sh("ls /run/nhc").split()
