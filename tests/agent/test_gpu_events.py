"""The driver's GPU events, followed by a real agent over NVIDIA's own binding."""

import os
import shlex

import pytest

from tests.support.nvml.fake import Nvml, pci_tree
from tests.support.require import need
from tests.support.waiting import until


@pytest.fixture
def gpus(tmp_path):
    """Eight GPUs on the PCI bus and in NVML: environment and command of a node that has them, by events."""
    need("root", os.geteuid() == 0, "mounts a PCI bus of its own")
    for path, text in pci_tree().items():
        file = tmp_path / "node" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    mounts = "".join(
        f"mount --bind {shlex.quote(str(tmp_path / 'node'))}{path} {path}; "
        for path in ("/proc/bus/pci/devices", "/sys/bus/pci/devices")
    )
    (tmp_path / "library").mkdir()
    library = Nvml(tmp_path / "library")

    def with_events(*lines):
        environ = library.environment(library.scenario("h100", *lines))
        wanted = {name: environ[name] for name in ("LD_LIBRARY_PATH", "NHC_FAKE_NVML")}
        return wanted, ["unshare", "-m", "--propagation", "private", "sh", "-ec", f'{mounts} exec "$@"', "sh"]

    yield with_events
    library.close()


@pytest.mark.slow
def test_an_event_whose_line_was_lost_is_published_as_its_xid(agent, gpus):
    environ, inside = gpus("events 1", "event.0 2 GPU-BUS 3 3 40 0 79")
    agent.configure("* || check_kmsg\n", agent="gpu-events = true")
    agent.env.update(environ)
    agent.start(inside=inside)

    def began():
        return [one for one in agent.events("problem.began") if one["reason"] == "Xid79"]

    until(began, within=60)
    assert [(one["verdict"], one["target"]) for one in began()] == [("CRIT", "0000:44:00.0")]


@pytest.mark.slow
def test_a_driver_without_events_is_said_once_and_not_asked_again(agent, gpus):
    environ, inside = gpus()
    agent.configure("* || check_kmsg\n", agent="gpu-events = true")
    agent.env.update(environ)
    agent.start(inside=inside)
    until(lambda: "GPU events of the driver are not followed: not supported" in agent.said(), within=60)
