"""The collective of a gang of pods before they start: who is told what, and who is blamed."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import pytest

from nhc.deep.gang import GangTests
from nhc.marks.ports.gangs import PAIR_ROUNDS, SLACK, TIMED_OUT, GangMember, GangRules
from tests.support.deep_samples import output_of_nodes

RULES = GangRules(("all_reduce",), wait=60.0, limit=30.0, size=8 << 30)
Does = Callable[[tuple[str, ...]], tuple[int, float]]
"""What a test of these hosts ends with: the tool's status, and its figure."""


def member(number: int, count: int = 6, node: str = "", gang: str = "ns/g", uid: str = "") -> GangMember:
    name = f"p{number}"
    return GangMember(gang, count, uid or f"uid-{name}", name, node or f"n{number}", f"10.0.0.{number}", name, 1)


class Played:
    """The pods of a gang, each asking in turn as its container does."""

    def __init__(self, does: Does, rules: GangRules = RULES, silent: tuple[str, ...] = ()) -> None:
        self.now = 1000.0
        self.gangs = GangTests(lambda: self.now)
        self.does, self.rules, self.silent = does, rules, silent
        self.tests: dict[str, list[str]] = {}
        self.orders: list[Mapping[str, Any]] = []

    def step(self, one: GangMember, **said: Any) -> dict[str, Any]:
        order = self.gangs.step(one, self.rules, said)
        self.orders.append(order)
        return order

    def play(self, *members: GangMember) -> dict[str, tuple[str, str]]:
        """What each is told in the end; those that are silent say nothing once they have been told to run."""
        said: dict[str, dict[str, Any]] = {one.name: {} for one in members}
        ends: dict[str, tuple[str, str]] = {}
        for _turn in range(400):
            for one in members:
                if one.name in ends or said[one.name].get("lost"):
                    continue
                order = self.step(one, **said[one.name])
                said[one.name] = {}
                if order["do"] == "end":
                    ends[one.name] = order["verdict"], order["message"]
                elif order["do"] == "run":
                    self.tests.setdefault(order["test"], []).append(one.name)
                    said[one.name] = {"lost": True} if one.name in self.silent else self._ran(order, members)
            self.now += 1.0
            if all(one.name in ends or said[one.name].get("lost") for one in members):
                return ends
        raise AssertionError("no end")

    def _ran(self, order: Mapping[str, Any], members: tuple[GangMember, ...]) -> dict[str, Any]:
        in_it = order["test"].split(":")[1].split("+")
        hosts = tuple(one.name for one in members if one.node in in_it or one.name in in_it)
        assert order["env"]["NNODES"] == str(len(hosts))
        status, figure = self.does(hosts)
        first = order["env"]["NODE_RANK"] == "0"
        output = output_of_nodes(hosts, f"{figure:.2f}") if first and figure else "unhandled system error"
        return {"test": order["test"], "status": status, "output": output}


def good(hosts: tuple[str, ...]) -> tuple[int, float]:
    return 0, 400.0


def bad(name: str, status: int = 1, figure: float = 0.0) -> Does:
    return lambda hosts: (status, figure) if name in hosts else (0, 400.0)


def test_a_gang_that_is_whole_runs_once_and_starts() -> None:
    played = Played(good)
    first = played.step(member(1))
    assert first["do"] == "wait"
    ends = played.play(*(member(number) for number in range(1, 7)))
    assert {verdict for verdict, _why in ends.values()} == {"OK"}
    assert [len(pods) for pods in played.tests.values()] == [6]
    run = next(order for order in played.orders if order.get("env", {}).get("NODE_RANK") == "0")
    assert run["argv"] == ["all_reduce"]
    assert run["env"]["MASTER_ADDR"] == run["env"]["PET_MASTER_ADDR"] == "10.0.0.1"
    assert (run["env"]["NPROC_PER_NODE"], run["env"]["NNODES"]) == ("1", "6")


@pytest.mark.parametrize(
    ("does", "rules", "why"),
    [
        (bad("p3"), RULES, "the output cannot be read"),
        (bad("p3", TIMED_OUT), RULES, "did not end within 30 s"),
        (bad("p3", 0, 100.0), RULES._replace(floor=300.0), "100 GB/s, at least 300 expected"),
    ],
    ids=["fails", "hangs", "is slow"],
)
def test_pairs_name_the_node_with_which_a_collective_fails(does: Does, rules: GangRules, why: str) -> None:
    played = Played(does, rules)
    ends = played.play(*(member(number) for number in range(1, 7)))
    assert {name for name, (verdict, _why) in ends.items() if verdict == "CRIT"} == {"p3"}
    assert {verdict for name, (verdict, _why) in ends.items() if name != "p3"} == {"OK"}
    assert "n3" in ends["p3"][1]
    assert why in ends["p3"][1]


@pytest.mark.parametrize(
    ("does", "count"),
    [
        (lambda hosts: (127, 0.0), 6),  # the command is nowhere
        (lambda hosts: (0, 400.0) if len(hosts) == 2 else (1, 0.0), 6),  # only all together
        (bad("p1"), 2),
        (lambda hosts: (TIMED_OUT, 0.0), 3),
    ],
)
def test_where_no_node_stands_out_nobody_is_blamed(does: Does, count: int) -> None:
    played = Played(does)
    ends = played.play(*(member(number, count) for number in range(1, count + 1)))
    assert {verdict for verdict, _why in ends.values()} == {"UNKNOWN"}


def test_a_gang_whose_pods_do_not_come_within_the_bound_cannot_tell() -> None:
    played = Played(good)
    ends = played.play(*(member(number) for number in range(1, 6)))
    assert {verdict for verdict, _why in ends.values()} == {"UNKNOWN"}
    assert "5 of 6 pods" in ends["p1"][1]
    assert not played.tests
    assert played.now - 1000.0 <= RULES.wait + 2


def test_who_does_not_answer_is_named_and_blamed_for_nothing() -> None:
    played = Played(good, silent=("p4",))
    ends = played.play(*(member(number) for number in range(1, 7)))
    assert set(ends) == {"p1", "p2", "p3", "p5", "p6"}
    assert {verdict for verdict, _why in ends.values()} == {"UNKNOWN"}
    assert "n4 did not answer" in ends["p1"][1]
    assert played.now - 1000.0 <= RULES.longest


def test_a_pod_that_withdraws_ends_it_for_all() -> None:
    played = Played(good)
    played.step(member(1))
    played.step(member(2), withdrawn="the suite prejob failed on n2")
    order = played.step(member(1))
    assert (order["do"], order["verdict"]) == ("end", "UNKNOWN")
    assert "p2" in order["message"]


def test_pods_that_are_made_anew_are_another_gang_and_a_container_that_starts_again_is_told_the_same() -> None:
    played = Played(good)
    members = [member(number, 2) for number in (1, 2)]
    played.play(*members)
    assert played.step(members[0])["verdict"] == "OK"
    again = [member(number, 2, uid=f"second-{number}") for number in (1, 2)]
    assert played.step(again[0])["do"] == "wait"
    assert {verdict for verdict, _why in played.play(*again).values()} == {"OK"}
    third = [member(1, 2, uid="third-1"), member(1, 2, uid="third-1-anew"), member(2, 2, uid="third-2")]
    assert [played.step(one)["do"] for one in third[:2]] == ["wait", "wait"]  # one pod, made anew
    assert played.step(third[2])["do"] == "run"


def test_several_pods_of_a_node_are_told_apart() -> None:
    played = Played(bad("p3"))
    ends = played.play(*(member(number, node="n1" if number < 3 else "") for number in range(1, 7)))
    assert {name for name, (verdict, _why) in ends.items() if verdict == "CRIT"} == {"p3"}


def test_what_makes_no_sense_changes_nothing() -> None:
    played = Played(good)
    members = [member(number, 2) for number in (1, 2)]
    for one in members:
        played.step(one)
    (run,) = {order["test"] for order in played.orders if order["do"] == "run"}
    odd: list[dict[str, Any]] = [{"test": 5}, {"test": run}, {"test": run, "status": "0"}, {"test": "x", "status": 0}]
    for said in odd:
        assert played.step(members[0], **said)["do"] == "run"
    assert played.step(members[0], test=run, status=0, output=7)["do"] == "wait"


def test_all_is_forgotten_in_the_end() -> None:
    played = Played(good)
    played.play(*(member(number, 2) for number in (1, 2)))
    played.now += RULES.longest + 601.0
    played.step(member(9, 2, gang="ns/other"))
    assert set(played.gangs._of) == {"uid-p9"}
    assert set(played.gangs._gathering) == {"ns/other"}


def test_the_longest_way_ends_within_its_bound() -> None:
    """Every test hangs for one pod more than the rounds can find."""
    played = Played(lambda hosts: (TIMED_OUT, 0.0) if len(hosts) > 2 or {"p1", "p2"} & set(hosts) else (0, 400.0))
    played.play(*(member(number) for number in range(1, 7)))
    assert len(played.tests) <= 1 + PAIR_ROUNDS * 3
    assert RULES.longest == RULES.wait + (1 + PAIR_ROUNDS) * (RULES.limit + SLACK)
