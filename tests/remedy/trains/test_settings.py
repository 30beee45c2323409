"""A train's file: what it says, and its mistakes in one line."""

from pathlib import Path

import pytest

from nhc.core.limits import Limit
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.policy.bounds import Bounds
from nhc.remedy.trains.settings import parse
from nhc.remedy.trains.waves import BadTrain, natural, take

ROOT = Path(__file__).resolve().parents[3]
LEAST = 'name = "a"\nwhy = "b"\nnodes = "n[1-4]"\n[[work]]\nrung = "reboot"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('why = "b"\n' + LEAST[LEAST.index("nodes") :], "t: name: missing"),
        (LEAST.replace('"a"', '"a b"'), "t:1: name: 'a b' is not a name"),
        (LEAST.replace('nodes = "n[1-4]"\n', ""), "nodes: missing"),
        (LEAST + 'command = ["/bin/x"]\n', "has either a rung or a command"),
        (LEAST.replace('rung = "reboot"', 'command = ["x"]'), "named by its whole path"),
        (LEAST + '[verify]\ncommand = ["/bin/x", "a\\u0000b"]\n', "with a zero byte"),
        (LEAST.replace('"reboot"', '"replace"'), "does not replace nodes"),
        (LEAST.replace('"reboot"', '"dance"'), "'dance' is not one of"),
        (LEAST + "[waves]\nsize = {}\n", "waves.size: {} is not a text"),
        (LEAST + "[wave]\n", "there is no such key: did you mean 'waves'"),
        (LEAST.replace('nodes = "n[1-4]"', 'groups = "r12"'), "is no group such as rack=r12"),
        ('name = "a"\nwhy = "b"\nnodes = "n1"\nwork = []\n', "name at least one"),
    ],
)
def test_a_mistake_is_one_line(text, said):
    with pytest.raises(SettingsError) as caught:
        parse(text, "t")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


GROUPS = {f"n{number}": (("rack", f"r{number // 2}"),) for number in range(1, 13)}


def taken(nodes, **more):
    text = LEAST.replace('nodes = "n[1-4]"', nodes)
    return take(parse(text, "t"), GROUPS, Bounds(**more))


def test_nodes_are_named_by_ranges_patterns_and_groups():
    assert [node for wave in taken('nodes = "n[9-10]"').waves for node in wave] == ["n9", "n10"]
    assert len([node for wave in taken('nodes = "n1?"').waves for node in wave]) == 3
    found = taken('nodes = ["n[1-3]", "n99"]\nwithout = "n2"', protected=("n3",))
    assert [node for wave in found.waves for node in wave] == ["n1"]
    assert found.left_out == {"n99": "the cluster does not know it", "n3": "protected by the policy (n3)"}
    assert [node for wave in taken('groups = "rack=r2"').waves for node in wave] == ["n4", "n5"]


@pytest.mark.parametrize("nodes", ['nodes = "x*"', 'nodes = "n[1-"', 'groups = "rack=none"', 'nodes = "x1"'])
def test_a_plan_that_finds_no_node_says_so(nodes):
    with pytest.raises(BadTrain):
        taken(nodes)


def test_names_are_ordered_as_people_count():
    assert sorted(["n10", "n2", "n1"], key=natural) == ["n1", "n2", "n10"]
    assert Limit(1).of(10) == 1
