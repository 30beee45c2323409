#!/usr/bin/env python3
"""Starts the test control plane by hand, with fake nodes, until Ctrl-C: to watch nhc work, or to try a manifest.

    python tests/kube/up.py [--nodes 20] [--directory DIR]

Prints the kubeconfig to use. Needs no cluster and no root; about 0.8 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build
import plane

GPUS = {"nvidia.com/gpu": "8"}


def node(number: int) -> dict[str, object]:
    """A fake GPU node in one of three zones and two pools."""
    resources = {"cpu": "96", "memory": "2Ti", "pods": "110", **GPUS}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"gpu-{number:03}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": f"gpu-{number:03}",
                "node.kubernetes.io/instance-type": "p5.48xlarge",
                "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}",
                "karpenter.sh/nodepool": "training" if number % 2 else "inference",
            },
        },
        "spec": {"providerID": f"fake://gpu-{number:03}"},
        "status": {"capacity": resources, "allocatable": resources},
    }


def identity(number: int) -> dict[str, object]:
    """What a machine is told from another of its name by. Nothing here reboots: whoever plays with the nodes changes
    the boot id (docs/tutorial-kubernetes.md).
    """
    info = {"bootID": "boot-1", "machineID": f"{number:032x}", "systemUUID": str(uuid.UUID(int=number))}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gpu-{number:03}"}, "status": {"nodeInfo": info}}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20, help="fake nodes (default: 20)")
    parser.add_argument("--directory", type=Path, help="where to keep it (default: a temporary one)")
    chosen = parser.parse_args()
    try:
        binaries = build.build(lambda line: sys.stderr.write(line + "\n"))
    except build.Unavailable as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="nhc-kube-"))
    running = plane.Plane(binaries, directory)
    ended = threading.Event()
    try:
        running.start()
    except plane.PlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    try:
        wanted = {"apiVersion": "v1", "kind": "List", "items": [node(n) for n in range(1, chosen.nodes + 1)]}
        running.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(wanted))
        running.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=120s")
        wanted["items"] = [identity(n) for n in range(1, chosen.nodes + 1)]
        status = ("--subresource=status", "--force-conflicts", "--validate=false")
        running.kubectl("apply", "--server-side", *status, "-f", "-", stdin=json.dumps(wanted))
        running.kubectl("create", "namespace", "nhc-system", "--save-config")  # manifests are applied over it
        sys.stdout.write(
            f"Kubernetes {build.KUBERNETES} with {chosen.nodes} fake nodes. In another terminal:\n\n"
            f"  export KUBECONFIG={running.kubeconfig}\n"
            f"  alias kubectl='{binaries}/nhc-kube kubectl'\n"
            "  kubectl get nodes\n"
            "  nhc serve kubernetes --apply\n\n"
            "Ctrl-C ends it.\n"
        )
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        ended.wait()
    except KeyboardInterrupt:
        pass  # while it was starting
    finally:
        running.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
