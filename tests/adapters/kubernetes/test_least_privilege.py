"""An agent without `privileged`: what its manifests ask for, and what that is enough for, under a real runc."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.adapters.kubernetes.test_manifests import EVERYTHING, MANIFESTS, chart
from tests.support.require import need

ROOT = Path(__file__).resolve().parents[3]
COMPONENT = MANIFESTS / "overlays/least-privilege"


def asked() -> dict[str, Any]:
    """What the component puts into a container's securityContext."""
    (patch,) = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())["patches"]
    return {one["path"].rpartition("/")[2]: one["value"] for one in yaml.safe_load(patch["patch"]) if "value" in one}


def contexts(text: str) -> list[dict[str, Any]]:
    sets = [one for one in yaml.safe_load_all(text) if one["kind"] == "DaemonSet"]
    return [one["spec"]["template"]["spec"]["containers"][0]["securityContext"] for one in sets]


def test_the_component_takes_the_privileges_of_every_agent(plane: Any, tmp_path: Path) -> None:
    parts = {name: os.path.relpath(MANIFESTS / "overlays" / name, tmp_path) for name in ("mixed", "least-privilege")}
    overlay = {"resources": [parts["mixed"]], "components": [parts["least-privilege"]]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    found = contexts(str(plane.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", str(tmp_path)).stdout))
    assert len(found) > 1
    assert all(one == {"runAsUser": 0, "readOnlyRootFilesystem": True, **asked()} for one in found)


def test_the_chart_asks_for_the_same(plane: Any) -> None:
    found = contexts(chart(plane, *EVERYTHING, "--set=agent.privileged=false"))
    assert len(found) == 5
    assert all(one == {"runAsUser": 0, "readOnlyRootFilesystem": True, **asked()} for one in found)
    assert all(one["privileged"] for one in contexts(chart(plane, *EVERYTHING)))


NODE = """
set -e
mount --rbind / rootfs
mount --make-rslave rootfs
exec runc --root state run "nhc-test-$$"
"""
CHECKS = """
* || check_fs_mount_rw /
* || check_fs_used / 100%
* || check_ps_dstate
* || check_cmd_status -r 0 true
* || check_kmsg
"""


def judged(place: Path, capabilities: list[str]) -> dict[str, str]:
    """The verdicts of a container that has these, over a node whose process 1 is in a PID namespace of its own."""
    place.mkdir()
    for name in ("rootfs", "state", "run"):
        (place / name).mkdir()
    (place / "nhc.conf").write_text(CHECKS)
    subprocess.run(["runc", "spec"], cwd=place, check=True, capture_output=True)
    spec = json.loads((place / "config.json").read_text())
    script = f"exec {sys.executable} -m nhc check local -c /run/given/nhc.conf -f json --all"
    spec["process"].update(terminal=False, args=["/bin/sh", "-c", script], noNewPrivileges=True)
    spec["process"]["env"] += [
        f"PYTHONPATH={ROOT}:{ROOT / 'adapters'}", "NHC_ROOT=/mnt", "NHC_STATE_DIR=/run/nhc", "NHC_MUTES=/nope",
    ]  # fmt: skip
    names = [f"CAP_{name}" for name in capabilities]
    spec["process"]["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), names)
    spec["root"] = {"path": "rootfs", "readonly": True}
    spec["linux"]["namespaces"] = [{"type": kind} for kind in ("mount", "ipc", "uts")]  # hostPID, hostNetwork
    spec["mounts"] = [one for one in spec["mounts"] if not one["destination"].startswith("/sys")] + [
        {"destination": "/mnt", "type": "none", "source": "/", "options": ["rbind", "ro", "rslave"]},
        {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        {"destination": "/run/given", "type": "none", "source": str(place), "options": ["bind", "ro"]},
    ]
    (place / "config.json").write_text(json.dumps(spec))
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c", f"({NODE}) ; exit $?"],
        cwd=place, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("{"), done
    found = json.loads(done.stdout)["results"]
    return {one["check"]: f"{one['verdict']} {one['message']}" for one in found}


@pytest.mark.slow
def test_its_capabilities_are_enough_for_the_node_and_what_cannot_be_judged_says_so(tmp_path: Path) -> None:
    need("runc", shutil.which("runc"))
    found = judged(tmp_path / "all", asked()["capabilities"]["add"])
    assert [found[name].split()[0] for name in found if name != "check_kmsg"] == ["OK"] * 4, found
    assert found["check_kmsg"].startswith(("OK", "UNKNOWN /dev/kmsg cannot be read")), found


@pytest.mark.slow
def test_without_any_a_command_cannot_be_run_and_says_so(tmp_path: Path) -> None:
    need("runc", shutil.which("runc"))
    found = judged(tmp_path / "none", [])
    assert found["check_cmd_status"].startswith("UNKNOWN ")
    assert "nsenter and chroot both fail" in found["check_cmd_status"]
    assert not [one for one in found.values() if one.startswith("CRIT")], found
