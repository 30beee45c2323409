"""Problems of many nodes folded by their cause."""

from nhc.store.problems import NODES_LIMIT, ProblemGroup, StoredProblem, by_cause, group


def problem(node, verdict="CRIT", message="gone", began=100.0, check="check_gpu", reason="GpuLost"):
    return StoredProblem(0, node, check, reason, "", verdict, "reboot", message, "agent", began, began, None)


def test_a_group_says_the_worst_and_the_oldest_of_it():
    found = group([problem("n2", "WARN", "slow", 50.0), problem("n1", message="new", began=200.0), problem("n3")])

    assert found == ProblemGroup(
        "check_gpu", "GpuLost", "CRIT", "reboot", "gone", "n[1-3]", ("n1", "n2", "n3"), 50.0
    )  # fmt: skip


def test_a_node_with_two_devices_counts_once():
    assert group([problem("n1"), problem("n1")]).affected == ("n1",)


def test_causes_are_told_apart_by_check_and_reason():
    found = by_cause([problem("n1"), problem("n2"), problem("n1", reason="GpuEcc"), problem("n1", check="check_nv")])
    assert {key: len(rows) for key, rows in found.items()} == {
        ("check_gpu", "GpuLost"): 2, ("check_gpu", "GpuEcc"): 1, ("check_nv", "GpuLost"): 1
    }  # fmt: skip


def test_many_names_without_a_pattern_are_cut_and_still_counted():
    found = group([problem(chr(97 + number % 26) * (3 + number // 26) + "x") for number in range(200)])
    assert (len(found.nodes), found.nodes[-1], len(found.affected)) == (NODES_LIMIT, "…", 200)
