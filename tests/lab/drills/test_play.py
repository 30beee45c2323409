"""Every scenario is played to its end under the default policy, and a loop that breaks a promise is seen."""

import pytest

from nhc.lab.drills import play as drills
from nhc.lab.drills.play import play, prepared
from nhc.lab.drills.scenarios import ALL, BY_NAME
from nhc.lab.drills.world import DrillSent, DrillWorld
from nhc.marks.ports.repair import Rung
from nhc.remedy.remedy_file import parse
from tests.support.run import nhc

DEFAULT = parse("", "remedy.toml")


@pytest.mark.thorough
@pytest.mark.parametrize("name", [one.name for one in ALL])
def test_the_loop_keeps_its_promises(name):
    found = play(BY_NAME[name], DEFAULT, "gpu7")
    assert [one for one in found.promises if one.broken] == []
    assert found.kept


def test_each_issue_of_the_complaints_has_a_scenario():
    issues = " ".join(one.issue for one in ALL)
    for issue in ("#39", "#266", "#2555", "#2811", "#2042", "#8629", "#1280", "#1807", "#1808", "#1818", "#1688", "#17",
                  "#31", "#159", "#63", "#2298", "#2134", "#54", "#1852"):  # fmt: skip
        assert issue in issues


@pytest.mark.thorough
def test_the_time_of_each_state_is_told():
    found = play(BY_NAME["fault"], DEFAULT, "gpu7", takes=900.0)
    after = {one.state: one.after for one in found.timings}
    assert list(after) == ["marking", "marked", "draining", "evidence", "recheck", "acting", "watching", "verifying",
                           "returning", "returned"]  # fmt: skip
    assert after["verifying"] - after["watching"] >= 900
    assert after["returned"] - after["verifying"] >= DEFAULT.verify.healthy_for


@pytest.mark.thorough
def test_a_policy_that_lets_all_nodes_out_breaks_a_promise():
    loose = parse("""
[bounds.fleet]
out = "100%"
repairing = "100%"
rate.mark = "1000 per 1h"
rate.repair = "1000 per 1h"
[bounds.rack]
out = "100%"
[breaker]
faults = "100%"
blind = "100%"
failures = 0
""", "loose.toml")  # fmt: skip
    found = play(BY_NAME["storm"], loose, "gpu7", nodes=8)
    assert [one.broken for one in found.promises if one.broken] == ["all 8 nodes were taken out"]


def test_a_second_order_for_the_same_rung_is_seen():
    world = DrillWorld(["a"], drills.BEGIN, 60.0)
    world.sent = [DrillSent(1.0, "a", Rung.REBOOT, key, "why", "1") for key in ("x", "y")]
    playing = drills._Playing(BY_NAME["fault"], prepared(DEFAULT), world, None, "a")
    assert playing._twice() == "sent more than once: reboot of a"


@pytest.mark.thorough
def test_a_person_plays_one_and_sees_what_is_wrong_with_the_words(tmp_path):
    done = nhc("drill", "lost-answer", "--node", "gpu7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lost-answer: kept its promises\n")
    for words, said in (
        (["nix", "--node", "a"], "'nix' is no scenario"),
        (["fault"], "--node is missing"),
        (["fault", "--node", "a", "--apply"], "--apply is for --real"),
        (["storm", "--node", "a", "--real"], "on a real node there are fault, kernel-line, full-disk"),
        (["full-disk", "--node", "a"], "full-disk is for a real node: --real"),
    ):
        done = nhc("drill", *words)
        assert (done.returncode, said in done.stderr, len(done.stderr.splitlines())) == (2, True, 1), done
