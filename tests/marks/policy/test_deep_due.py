"""Which nodes need a deep check before they join a large job."""

from hypothesis import given
from hypothesis import strategies as st

from nhc.marks.policy.deep_due import DeepRule, LastVerdict, due, oldest_first

DAY = 86400.0
NOW = 100 * DAY


def told(*rows):
    return {(node, suite): LastVerdict(node, suite, verdict, NOW - days * DAY) for node, suite, verdict, days in rows}


def test_a_small_job_is_asked_nothing():
    assert due(["a", "b"], {}, DeepRule(nodes=2), NOW) == ()
    assert [one.node for one in due(["a", "b", "c"], {}, DeepRule(nodes=2), NOW)] == ["a", "b", "c"]


def test_what_is_due_and_why():
    seen = told(
        ("young", "quick", "OK", 1), ("warned", "quick", "WARN", 1), ("old", "quick", "OK", 8),
        ("bad", "quick", "CRIT", 1), ("mixed", "burn", "CRIT", 3), ("mixed", "quick", "OK", 1),
        ("once", "burn", "CRIT", 30), ("once", "quick", "OK", 1), ("long", "burn", "CRIT", 30),
    )  # fmt: skip
    names = ["young", "warned", "old", "bad", "mixed", "once", "long", "never"]
    found = {one.node: one.why for one in due(names, seen, DeepRule(), NOW)}
    assert found == {
        "old": "passed quick 8d ago",
        "bad": "failed quick 1d ago and has not passed it since",
        "mixed": "failed burn 3d ago and has not passed it since",
        "long": "failed burn when it was last tested, 30d ago",
        "never": "has no deep verdict",
    }


def test_a_good_verdict_that_is_dated_days_from_now_is_none_and_a_bad_one_stands():
    seen = told(
        ("ahead", "quick", "OK", -400), ("other", "quick", "OK", -400), ("other", "sweep", "OK", 1),
        ("bad", "quick", "CRIT", -400), ("bad", "sweep", "OK", 1), ("zone", "quick", "OK", -0.5),
    )  # fmt: skip
    assert {one.node: one.why for one in due(["ahead", "other", "bad", "zone"], seen, DeepRule(), NOW)} == {
        "ahead": "has no deep verdict but one of quick that is dated 400d from now",
        "bad": "failed quick 0ms ago and has not passed it since",
    }


def test_only_the_suites_of_the_rule_count():
    seen = told(("a", "quick", "OK", 1), ("a", "burn", "OK", 20))
    assert due(["a"], seen, DeepRule(suites=("quick",)), NOW) == ()
    assert [one.why for one in due(["a"], seen, DeepRule(suites=("burn",)), NOW)] == ["passed burn 20d ago"]


def test_the_oldest_verdict_comes_first_and_who_has_none_before_it():
    seen = told(("a", "quick", "OK", 1), ("b", "quick", "OK", 9), ("b", "sweep", "OK", 2), ("c", "sweep", "CRIT", 5))
    assert oldest_first(["a", "b", "c", "d"], seen, {}) == ["d", "c", "b", "a"]
    assert oldest_first(["a", "b", "c", "d"], seen, {"d": NOW}) == ["c", "b", "a", "d"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["quick", "burn"]),
                          st.sampled_from(["OK", "WARN", "CRIT"]), st.floats(0, 60)), max_size=6),
       st.floats(0.1, 50))  # fmt: skip
def test_who_is_let_in_has_a_good_verdict_young_enough_and_no_young_bad_one(rows, days):
    seen, rule = told(*rows), DeepRule(younger=days * DAY)
    refused = {one.node for one in due("abc", seen, rule, NOW)}
    for node in "abc":
        mine = [one for (name, _suite), one in seen.items() if name == node]
        young = [one for one in mine if one.age(NOW) < rule.younger]
        fit = any(one.verdict != "CRIT" for one in young) and not any(one.verdict == "CRIT" for one in young)
        assert (node not in refused) is fit
