"""Where nodes are, read from Slurm, ibnetdiscover, labels and a file."""

import pytest

from nhc.deep.topology_sources import BadTopology, guess_and_read, not_placed


def test_a_tree_of_slurm():
    text = "SwitchName=s0 Nodes=tux[0-1]\nSwitchName=s1 Nodes=tux[2-3]\nSwitchName=top Switches=s[0-1]\n"

    topology = guess_and_read(text, "topology.conf")

    assert topology.path == {
        "tux0": ("top", "s0"), "tux1": ("top", "s0"), "tux2": ("top", "s1"), "tux3": ("top", "s1"),
    }  # fmt: skip
    assert topology.leaf("tux2") == "s1"


def test_what_scontrol_shows():
    text = (
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=tux[0-3] Switches=s[0-1]\n"
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-1]\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[2-3]\n"
    )

    assert guess_and_read(text, "scontrol").path["tux3"] == ("top", "s1")


def test_blocks_of_slurm():
    assert guess_and_read("BlockName=b1 Nodes=n[1-2]\nBlockSizes=2\n", "topology.conf").path["n2"] == ("b1",)


def test_a_switch_above_itself_is_named():
    with pytest.raises(BadTopology, match=r"t\.conf: switch a is above itself"):
        guess_and_read(
            "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\nSwitchName=a Nodes=n2\n", "t.conf"
        )


def test_ibnetdiscover():
    text = (
        'Switch  41 "S-0ff08c43215bae48"  # "MF0;rmd70-0101-0919-01ib0:MQM8700/U1" enhanced port 0 lid 556 lmc 0\n'
        '[1]  "H-0ff08c4321664e96"[1](ff08c4321664e96)  # "RMD701091901003 ibp11s0f0" lid 1181 4xHDR s=4 w=2 v=4 e=4\n'
        '[2]  "S-0ff08c43215bae50"[3]  # "MF0;spine" lid 2 4xHDR\n'
        '[3]  "H-0ff08c4321664e97"[1](ff08c4321664e97)  # " " lid 1182 4xHDR\n'  # an adapter that has no name yet
        "\n"
        'Ca  1 "H-0ff08c4321664e96"  # "RMD701091901003 ibp11s0f0"\n'
        '[1](ff08c4321664e96)  "S-0ff08c43215bae48"[1]  # lid 1181 lmc 0 "MF0" lid 556 4xHDR\n'
    )

    assert guess_and_read(text, "fabric").path == {"rmd701091901003": ("S-0ff08c43215bae48",)}


def test_a_plain_file():
    topology = guess_and_read("# ours\nn[1-2] spine1/leaf3\n", "places")

    assert topology.path == {"n1": ("spine1", "leaf3"), "n2": ("spine1", "leaf3")}
    assert not_placed(["n1", "n3"], topology) == ["n3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1\n", r"places:1: 'n1' is not a node set and its place"),
        ("n1 a\nn1 b\n", r"places:2: n1 stands in a already"),
        ("n[1 a\n", r"places:1: "),
        ("SwitchName=a Nodes=n[2-\n", r"places:1: "),
        ("SwitchName=a Switches=b\nSwitchName=c Switches=b\n", r"places:2: switch b is below a already"),
        ("SwitchName=a Nodes=n1\nLinkSpeed=3\n", r"places:2: 'LinkSpeed=3' names no SwitchName"),
    ],
)
def test_mistakes_name_their_line(text, said):
    with pytest.raises(BadTopology, match=said):
        guess_and_read(text, "places")


def test_blocks_that_scontrol_shows_together_have_lines_of_their_own():
    """Slurm 24.11 and newer (topology/block): `scontrol show topology`."""
    text = (
        "BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
        "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    )
    assert guess_and_read(text, "scontrol").path == {"n1": ("b0",), "n2": ("b0",), "n3": ("b1",), "n4": ("b1",)}
