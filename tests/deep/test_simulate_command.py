"""`nhc simulate deep`: what a person sees of a sweep on a made-up cluster."""

import json

import pytest
from click.testing import CliRunner

from nhc.deep.commands.deep_simulate import command


def simulate(*words):
    return CliRunner().invoke(command, words)


def test_the_bad_nodes_are_named_beside_what_other_ways_cost():
    done = simulate("--size", "1024", "--bad", "10")

    assert done.exit_code == 0
    assert "found 10 of 10 bad nodes; missed none; convicted by mistake none" in done.stdout
    rows = {line[:15].strip(): line[15:].split() for line in done.stdout.splitlines()[-4:]}
    assert rows["every pair"][:2] == ["1,023", "523,776"]
    assert int(rows["this sweep"][0]) < 10
    assert int(rows["this sweep"][1].replace(",", "")) < 1300


def test_a_link_and_an_uplink_take_no_node_out():
    done = simulate("--size", "256", "--bad", "0", "--links", "1", "--uplinks", "1", "--seed", "2", "-f", "json")
    found = json.loads(done.stdout)

    assert done.exit_code == 0
    assert found["convicted"] == []
    assert [pair for pair in found["bad_links"] if pair not in found["untested_links"]] == found["links"]
    assert found["leaves"] == found["bad_uplinks"]


def test_bad_links_lie_anywhere_and_those_that_no_pair_met_are_said():
    """A leaf of 32 has 496 links, and a sweep without faults meets 16 of them."""
    done = simulate("--size", "64", "--bad", "0", "--links", "40", "--seed", "3")
    found = json.loads(simulate("--size", "64", "--bad", "0", "--links", "40", "--seed", "3", "-f", "json").stdout)

    untested = len(found["untested_links"])
    assert 20 < untested < 40
    assert f"found {40 - untested} of 40 bad links; of {untested} no pair was tested" in done.stdout


def test_a_bad_path_between_leaves_is_named():
    found = json.loads(
        simulate("--size", "128", "--bad", "0", "--paths", "1", "-f", "json").stdout
    )  # fmt: skip
    assert found["paths"] == found["bad_paths"] != []


def test_who_is_convicted_by_chance_is_said_and_is_a_failure():
    """One failed pair with a proven partner is enough for `--failures 1`: one test in five lies here."""
    done = simulate("--size", "200", "--bad", "0", "--noise", "20%", "--failures", "1")

    assert done.exit_code == 1
    assert "convicted by mistake none" not in done.stdout


@pytest.mark.thorough
def test_the_same_seed_plays_the_same():
    words = ("--size", "300", "--noise", "0.03", "-f", "json", "--seed")
    assert simulate(*words, "5").stdout == simulate(*words, "5").stdout != simulate(*words, "6").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "10", "--bad", "11"], "11 bad nodes of 10"),
        (["--size", "10", "--bad", "1", "--uplinks", "2"], "2 bad uplinks of 1 leaves"),
        (["--noise", "lots"], "'lots' is not a share below 1, as 1% or 0.01"),
        (["--noise", "100%"], "'100%' is not a share below 1"),
        (["--size", "1"], "1 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused(words, said):
    done = simulate(*words)
    assert done.exit_code == 2
    assert said in done.output
