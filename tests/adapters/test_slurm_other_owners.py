"""docs/repairers.md on a real Slurm: what another owner of the nodes does to a node that the loop has drained."""

import re
import shutil
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from nhc.core.model import Action
from nhc.remedy.remedy_file import parse
from nhc_adapters.slurm.power import SlurmPower
from tests.support.require import need
from tests.support.run import ROOT
from tests.support.slurm import ROOT_PATH, Cluster, missing
from tests.support.slurm_remedy import Service, served
from tests.support.waiting import until

PAGE = Path(__file__).resolve().parents[2] / "docs/repairers.md"
NODE = "n3"


def test_the_settings_that_the_page_names_are_settings():
    text = PAGE.read_text().partition("\n## Beside other owners of the nodes\n")[2]
    tables = [textwrap.dedent(block) for block in re.findall(r"^ *```toml\n(.*?)^ *```", text, re.M | re.S)]
    assert [parse(table).evidence_first for table in tables] == [True]
    ways = set(re.findall(r'`replace = "(\w+)"`', text))
    assert ways == {"power", "hyperpod"}
    for way in ways:
        assert SlurmPower({"replace": way}).replace == way
    assert parse('[actions]\nmark = "on"\n[repairers.slurm]\nnodes = ["n1"]\n').mode("mark").value == "on"


def clustermgtd(cluster, node):
    """One round of ParallelCluster's daemon for one static node: an instance that is drained and idle is terminated, a
    new one launched. Whether it did so.
    """
    if cluster.show(node)["State"] != "IDLE+DRAIN":
        return False
    cluster.update(node, State="DOWN", Reason="Static node maintenance: unhealthy node is being replaced")
    cluster.boot_node(node)  # which ends the slurmd there was: the instance
    cluster.update(node, State="RESUME")
    return True


@pytest.mark.slow
def test_with_clustermgtd_a_mark_keeps_its_evidence_and_is_the_replacement(cluster, tmp_path):
    service = Service(tmp_path, cluster, NODE)
    settings = tmp_path / "remedy.toml"
    text = settings.read_text().replace('reboot = "on"\n', "")
    settings.write_text(text.replace("[evidence]\n", "[evidence]\nbefore-mark = true\n"))
    with served(service):
        service.report("boot1", sick=True, action=Action.REPLACE)
        service.start()
        until(lambda: "DRAIN" in cluster.show(NODE)["State"], 90, what="the mark", said=service.log)
        assert list((tmp_path / "evidence").rglob("*")), "collected before the drain that costs the machine"
        until(lambda: clustermgtd(cluster, NODE), 60, what="the owner to replace the machine")
        until(lambda: cluster.state(NODE) == "idle", 60, what="the new machine to be in service")

        def proved_by_nobody():
            service.report("boot2", sick=False)
            # Withdrawn where a round fell between the owner's DOWN and its RESUME: the node was out by the owner then.
            return service.state() in ("escalated", "withdrawn")

        until(proved_by_nobody, 60, what="the episode to end", said=service.log)
        since = time.time()
        until(lambda: time.time() > since + 3, what="some rounds to pass")
        assert cluster.state(NODE) == "idle", "the loop leaves the owner's new machine alone"
        rows, tried, _whats = service.states()
        assert (rows[-1].state, tried) == ("withdrawn", []), "nothing is left to a person"
        assert {"slurm/slurm-node.txt", "nhc/report.json"} <= set(service.evidence)

        service.report("boot2", sick=True, action=Action.REPLACE)
        until(lambda: "DRAIN" in cluster.show(NODE)["State"], 60, what="a fault of the new machine", said=service.log)


SAVING = """\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3
SuspendTimeout=2
ResumeTimeout=60
SuspendExcNodes=n1
{states}
"""


@pytest.fixture
def saving(slurm_directory, request):
    """A Slurm that powers idle nodes down after three seconds, as slurm-gcp's and CycleCloud's do after minutes."""
    need("slurm", not missing(), ", ".join(missing()))
    place = Path(slurm_directory) / "saving"
    place.mkdir()
    cluster = Cluster(place, ["n1", "n2"], SAVING.format(states=request.param))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


def powered_down(cluster, node):
    return any(word in cluster.show(node)["State"] for word in ("POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"))


@pytest.mark.slow
@pytest.mark.parametrize("saving", [""], indirect=True)
def test_power_saving_takes_a_drained_node_down_as_an_idle_one(saving):
    saving.update("n2", State="DRAIN", Reason="NHC-REMEDY: GpuLost")
    until(lambda: powered_down(saving, "n2"), 60, what="Slurm to power the drained node down")


def keeps_states() -> bool:
    """Whether the Slurm here has SuspendExcStates, which came with 23.02."""
    if missing():
        return False
    said = subprocess.run(["slurmctld", "-V"], env={"PATH": ROOT_PATH}, capture_output=True, text=True, check=True)
    return tuple(int(part) for part in said.stdout.split()[1].split(".")[:2]) >= (23, 2)


if keeps_states():

    @pytest.mark.slow
    @pytest.mark.parametrize("saving", ["SuspendExcStates=DRAIN"], indirect=True)
    def test_suspend_exc_states_keeps_a_drained_node_up(saving):
        saving.update("n2", State="DRAIN", Reason="NHC-REMEDY: GpuLost")
        drained = time.time()
        until(lambda: time.time() > drained + 15, what="five times SuspendTime to pass")
        assert not powered_down(saving, "n2")
        saving.update("n2", State="RESUME")
        until(lambda: powered_down(saving, "n2"), 60, what="the same node, idle, to be powered down")


def test_every_page_that_names_suspend_exc_states_says_which_releases_know_it():
    """Slurm before 23.02 ends with `Parsing error at unrecognized key` where slurm.conf has it."""
    told = [
        (page.name, paragraph)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for paragraph in page.read_text().split("\n\n")
        if "SuspendExcStates" in paragraph
    ]
    assert told
    assert [page for page, paragraph in told if "23.02" not in paragraph] == []


@pytest.mark.slow
@pytest.mark.skipif(missing() or keeps_states(), reason="a Slurm that knows SuspendExcStates")
def test_a_slurm_before_23_02_does_not_start_with_suspend_exc_states(tmp_path):
    conf = tmp_path / "slurm.conf"
    lines = (
        "ClusterName=x",
        "SlurmctldHost=localhost",
        "SuspendExcStates=DRAIN",
        "NodeName=n1",
        "PartitionName=a Nodes=n1",
    )
    conf.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["slurmctld", "-D", "-f", str(conf)], env={"PATH": ROOT_PATH}, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode != 0
    assert "unrecognized key: SuspendExcStates" in done.stderr


SLURM_KEYS = "HealthCheck|Prolog|Epilog|Scheduler|Suspend|Resume|Reboot|Slurm|Task|Job|Node|Partition"
SLURM_CONF = re.compile(rf"^ *((?:{SLURM_KEYS})\w*=.*)$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=", ".join(missing()))
def test_slurm_reads_what_the_pages_tell_to_put_into_slurm_conf(tmp_path):
    lines = [line for page in sorted((ROOT / "docs").glob("*.md")) for line in SLURM_CONF.findall(page.read_text())]
    assert any(line.startswith("HealthCheckProgram=") for line in lines)
    own = ["ClusterName=x", "SlurmctldHost=localhost", "NodeName=gpu[001-128]", "PartitionName=a Nodes=gpu[001-128]"]
    (tmp_path / "slurm.conf").write_text("\n".join([*own, *dict.fromkeys(lines)]) + "\n")
    env = {"PATH": ROOT_PATH, "SLURM_CONF": f"{tmp_path}/slurm.conf"}
    done = subprocess.run(
        ["scontrol", "show", "daemons"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert "error" not in done.stderr.lower(), done.stderr
    assert done.returncode == 0
