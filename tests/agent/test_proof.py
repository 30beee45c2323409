"""[proof]: the agent proves GPUs beside jobs, one at a time, and says so where one computes wrongly."""

import json
import os
import shlex

import pytest

from nhc.agent.settings import parse
from nhc.core.settings.settings_file import SettingsError
from tests.support.cuda.build import build
from tests.support.nvml.fake import Nvml, pci_tree
from tests.support.require import need
from tests.support.waiting import until

CHECK = "check_gpu_proof_beside"


def test_it_is_off_unless_the_settings_have_the_table():
    assert parse("[agent]\n", "agent.toml").proof is None
    assert parse("[proof]\n", "agent.toml").proof == (900.0, 0.03, 1 << 30)
    assert parse('[proof]\nevery = "1h"\ntime = "10ms"\nmemory = "256MB"\n', "agent.toml").proof[:2] == (3600.0, 0.01)


@pytest.mark.parametrize("line", ['every = "1s"', 'time = "5s"', 'memory = "1k"', "on = true", 'every = "often"'])
def test_a_mistake_is_named_with_its_line(line):
    with pytest.raises(SettingsError) as error:
        parse(f"[proof]\n{line}\n", "agent.toml")
    assert str(error.value).startswith("agent.toml:2: proof.")


@pytest.fixture
def gpus(tmp_path):
    """A command that gives what follows two H100s: on the PCI bus, in NVML, in libcuda."""
    need("root", os.geteuid() == 0, "mounts a PCI bus of its own")
    for path, text in pci_tree(["0000:0f:00.0", "0000:2d:00.0"]).items():
        file = tmp_path / "node" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    mounts = "".join(
        f"mount --bind {shlex.quote(str(tmp_path / 'node'))}{path} {path}; "
        for path in ("/proc/bus/pci/devices", "/sys/bus/pci/devices")
    )
    (tmp_path / "libraries").mkdir()
    library = Nvml(build(tmp_path / "libraries"))
    scenario = library.scenario("h100", "devices 2", f"0.processes {os.getpid()}:1073741824")
    environ = {"LD_LIBRARY_PATH": str(tmp_path / "libraries"), "NHC_FAKE_NVML": str(scenario)}
    inside = ["unshare", "-m", "--propagation", "private", "sh", "-ec", f'{mounts} exec "$@"', "sh"]
    yield environ, inside
    library.close()


@pytest.mark.slow
def test_an_agent_finds_a_gpu_that_computes_wrongly_beside_a_job_and_ends_nothing(agent, gpus):
    environ, inside = gpus
    agent.configure("* || check_gpu_lost\n", '[proof]\nevery = "10s"\ntime = "10ms"\nmemory = "64M"\n')
    agent.env.update(environ, FAKE_CUDA="memory=420 sm=0:2:units")

    agent.start(inside=inside)
    until(lambda: [one for one in agent.events("problem.began") if one["check"] == CHECK], within=90)

    [began] = [one for one in agent.events("problem.began") if one["check"] == CHECK]
    assert (began["verdict"], began["reason"], began["target"]) == ("CRIT", "GpuProofWrong", "gpu0")
    assert f"found beside process {os.getpid()}" in began["message"]
    assert "goes on" in began["message"]
    # the next look proves the other GPU, and does not end the fault of this one
    turns = agent.state / "gpu-proof-turns.json"
    until(lambda: len(json.loads(turns.read_text())) == 2, within=90)
    looks = agent.report()["started"]
    until(lambda: agent.report()["started"] > looks + 1, within=90)
    assert [(one["target"], one["verdict"]) for one in agent.report()["results"] if one["check"] == CHECK] == [
        ("gpu0", "CRIT")
    ]
    assert not agent.events("problem.ended")


@pytest.mark.slow
def test_without_the_table_no_gpu_is_proved(agent, gpus):
    environ, inside = gpus
    agent.configure("* || check_gpu_lost\n")
    agent.env.update(environ)

    agent.start(inside=inside)

    assert {one["check"] for one in agent.report()["results"]} == {"check_gpu_lost"}
