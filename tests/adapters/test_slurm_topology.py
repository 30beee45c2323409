"""Slurm's topology says which nodes lose the network together: the loop and sync count by leaf switches and blocks."""

from pathlib import Path

import pytest

from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, WORK_SETTING
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.marker import parse_topology
from tests.support.require import need
from tests.support.slurm import Cluster, missing

TREE = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[1-2]
"""
"""By slurmctld 22.05.8 and 24.11.5."""

BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4
"""
"""By slurmctld 24.11.5."""
BLOCKS_SINCE = (23, 11)
"""The first release that has topology/block."""


def places(**nodes):
    """Where each node is, as `leaf="s1 s1 s2"` says it of n1, n2 and n3."""
    [(kind, names)] = nodes.items()
    return {f"n{number}": ((kind, name),) for number, name in enumerate(names.split(), 1)}


@pytest.mark.parametrize(("text", "found"), [(TREE, places(leaf="s1 s1 s2")), (BLOCKS, places(block="b1 b1 b2 b2"))])
def test_each_node_is_in_its_leaf_or_block_and_in_no_higher_one(text, found):
    assert parse_topology(text) == found


def test_without_a_topology_there_are_no_groups():
    assert parse_topology("No topology information available\n") == {}


@pytest.fixture
def with_topology(slurm_directory):
    """Makes a Slurm with this topology.conf."""
    need("slurm", not missing(), ", ".join(missing()))
    made = []

    def make(plugin, nodes, conf):
        place = slurm_directory / plugin
        place.mkdir()
        (place / "topology.conf").write_text(conf)
        cluster = Cluster(place, nodes, f"TopologyPlugin=topology/{plugin}\n")
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@pytest.mark.slow
@pytest.mark.slurm
def test_the_loop_sees_the_leaf_switches_of_a_real_slurm(with_topology):
    conf = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
    tree = with_topology("tree", ["n1", "n2", "n3"], conf)
    tree.start()
    loop, sync = Slurm({OWNER_SETTING: REMEDY_OWNER}, tree.env), Slurm({}, tree.env)
    hook = Slurm({WORK_SETTING: "flags"}, tree.env)
    assert {state.name: state.placed for state in loop.nodes()} == places(leaf="s1 s1 s2")
    assert {state.name: state.placed for state in sync.nodes()} == places(leaf="s1 s1 s2")
    calls = loop.calls
    loop.nodes()
    assert loop.calls - calls == 2, "the nodes and the work; the topology is remembered"
    assert {state.placed for state in hook.nodes()} == {()}


@pytest.mark.slow
@pytest.mark.slurm
def test_the_loop_sees_the_blocks_of_a_real_slurm(with_topology):
    conf = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n"
    blocks = with_topology("block", ["n1", "n2", "n3", "n4"], conf)
    if blocks.version < BLOCKS_SINCE:
        assert not list(Path("/usr/lib").glob("**/topology_block.so"))
        return  # nobody has blocks there; the recording stands for a later one
    blocks.start()
    assert blocks.scontrol("show", "topology").stdout == BLOCKS
    loop = Slurm({OWNER_SETTING: REMEDY_OWNER}, blocks.env)
    assert {state.name: state.placed for state in loop.nodes()} == places(block="b1 b1 b2 b2")


def test_a_slurm_without_a_topology_names_none(cluster):
    assert {state.placed for state in Slurm({OWNER_SETTING: REMEDY_OWNER}, cluster.env).nodes()} == {()}
