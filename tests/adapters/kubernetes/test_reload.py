"""Settings and policy are taken in as they change, the kubelet's way and by hand, and bad ones are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc_adapters.kubernetes.controller.reload import WatchedSettings
from nhc_adapters.kubernetes.controller.settings import read
from tests.support.kube import Kube, environment
from tests.support.ports import free_port
from tests.support.waiting import until

POLICY = '[bounds.fleet]\nout = "100%"\n'


class Mounted:
    """A ConfigMap as the kubelet mounts it: files are links through `..data`, which is swapped as one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.number = directory, 0
        directory.mkdir()

    def put(self, **files: str) -> None:
        self.number += 1
        data = self.directory / f"..2026_{self.number}"
        data.mkdir()
        for name, text in files.items():
            (data / f"{name}.toml").write_text(text)
            link = self.directory / f"{name}.toml"
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}.toml")
        os.symlink(data.name, self.directory / "..data_tmp")
        os.rename(self.directory / "..data_tmp", self.directory / "..data")

    @property
    def path(self) -> str:
        return str(self.directory / "kubernetes.toml")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "etc")


def test_a_swapped_configmap_is_taken_in_and_a_bad_one_refused_until_it_makes_sense(mounted: Mounted) -> None:
    said: list[str] = []
    mounted.put(kubernetes='policy = "policy.toml"\n', policy=POLICY)
    watched = WatchedSettings(lambda: read(mounted.path), said.append)
    assert watched.changed() is None

    mounted.put(kubernetes='policy = "policy.toml"\napply = true\n', policy='[bounds.fleet]\nout = "3"\n')
    taken = watched.changed()
    assert taken is not None
    assert (taken.apply, taken.policy.ceiling.nodes) == (True, 3)
    assert said == ["settings changed: apply, policy"]

    mounted.put(kubernetes='policy = "policy.toml"\naply = true\n', policy=POLICY)
    assert watched.changed() is None
    assert watched.changed() is None
    assert [line for line in said if "refused" in line] == [said[-1]]
    assert "the ones in force stay" in said[-1]
    assert "did you mean 'apply'?" in said[-1]
    assert watched.settings.apply

    mounted.put(kubernetes='policy = "policy.toml"\napply = true\n', policy='[bounds.fleet]\nout = "3"\n')
    assert watched.changed() is None  # what is in force again
    assert said[-1] == "settings make sense again"

    mounted.put(kubernetes='policy = "policy.toml"\napply = true\n', policy="[bounds.fleet]\nout = 'x'\n")
    assert watched.changed() is None
    assert "policy.toml" in watched.refused


def test_a_signal_has_them_read_again(mounted: Mounted) -> None:
    said: list[str] = []
    mounted.put(kubernetes="apply = true\n")
    watched = WatchedSettings(lambda: read(mounted.path), said.append)
    watched.asked.set()
    assert watched.changed() is None
    assert said == ["settings read again: nothing is different"]


@pytest.fixture
def controller(kube: Kube, mounted: Mounted, tmp_path: Path) -> Iterator[Any]:
    config = kube.kubeconfig(tmp_path)
    port = free_port()
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "nhc", "serve", "kubernetes", "--settings", mounted.path]
    argv += [
        "--set",
        f"selector=test={kube.prefix}",
        "--set",
        f"namespace={kube.namespace}",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> tuple[subprocess.Popen[bytes], Path, str]:
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, stdout=output, stderr=output, env=environment(KUBECONFIG=str(config)), cwd=tmp_path
            )
        started.append(process)
        return process, log, f"http://127.0.0.1:{port}"

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_running_controller_acts_under_new_settings_and_keeps_the_old_when_they_are_bad(
    kube: Kube, mounted: Mounted, controller: Any
) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
    mounted.put(kubernetes='policy = "policy.toml"\napply = false\n', policy=POLICY)
    process, log, url = controller()
    until(lambda: "would mark" in log.read_text())

    def metric(name: str) -> str:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            return next(line.split()[1] for line in answer.read().decode().splitlines() if line.startswith(f"{name} "))

    mounted.put(kubernetes='policy = "policy.toml"\napply = "maybe"\n', policy=POLICY)
    until(lambda: "settings refused" in log.read_text())
    until(lambda: metric("nhc_kubernetes_settings_refused") == "1")
    assert not kube.get(node)["spec"].get("unschedulable")

    # What only the cluster shows to be wrong, too: a condition type that nobody has.
    mounted.put(kubernetes='policy = "policy.toml"\napply = true\nfaults = ["NhcHealthyy=False"]\n', policy=POLICY)
    until(lambda: log.read_text().count("settings refused, the ones in force stay: ") == 2)
    assert "NhcHealthyy" in log.read_text()
    assert process.poll() is None
    assert not kube.get(node)["spec"].get("unschedulable")

    mounted.put(kubernetes='policy = "policy.toml"\napply = true\n', policy=POLICY)
    until(lambda: kube.get(node)["spec"].get("unschedulable"))
    until(lambda: metric("nhc_kubernetes_settings_refused") == "0")
    process.send_signal(signal.SIGHUP)
    until(lambda: "settings read again: nothing is different" in log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()
