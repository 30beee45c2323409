"""Slurm's topology says which nodes lose the network together: the loop counts and asks by leaf switches and blocks."""

import pytest

from nhc.ports.adapter import KEEPER, OWNER_SETTING
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.topology import parse_topology
from tests.support.require import need
from tests.support.slurm import Cluster, missing

TREE = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[1-2]
"""
"""By slurmctld 22.05.8 and 24.11.5."""

BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\n"
"""By slurmctld 24.11 with topology/block (print_topo_record, src/plugins/topology/block)."""


@pytest.mark.parametrize(("text", "kind", "names"), [(TREE, "leaf", ("s1", "s2")), (BLOCKS, "block", ("b1", "b2"))])
def test_each_node_is_in_its_leaf_or_block_and_in_no_higher_switch(text, kind, names):
    first, second = ((kind, names[0]),), ((kind, names[1]),)
    assert parse_topology(text) == {"n1": first, "n2": first, "n3": second}


def test_without_a_topology_there_are_no_groups():
    assert parse_topology("No topology information available\n") == {}


@pytest.fixture
def tree(slurm_directory):
    need("slurm", not missing(), ", ".join(missing()))
    place = slurm_directory / "tree"
    place.mkdir()
    (place / "topology.conf").write_text(
        "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n"
    )
    cluster = Cluster(place, ["n1", "n2", "n3"], "TopologyPlugin=topology/tree\n")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.slow
@pytest.mark.slurm
def test_the_loop_sees_the_leaf_switches_of_a_real_slurm(tree):
    loop, hook = Slurm({OWNER_SETTING: KEEPER}, tree.env), Slurm({}, tree.env)
    assert {state.name: state.placed for state in loop.nodes()} == {
        "n1": (("leaf", "s1"),), "n2": (("leaf", "s1"),), "n3": (("leaf", "s2"),)
    }  # fmt: skip
    calls = loop.calls
    loop.nodes()
    assert loop.calls - calls == 2, "the nodes and the work; the topology is remembered"
    assert {state.placed for state in hook.nodes()} == {()}


def test_a_slurm_without_a_topology_names_none(cluster):
    assert {state.placed for state in Slurm({OWNER_SETTING: KEEPER}, cluster.env).nodes()} == {()}
