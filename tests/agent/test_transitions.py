from hypothesis import given
from hypothesis import strategies as st

from nhc.agent.problems import BEGAN, CHANGED, ENDED, Board, too_early
from nhc.core.model import CheckResult, Verdict, crit, ok, skip, unknown, warn

FULL = crit("DiskFull", "/ is full", target="/")


def results(*outcomes, strike=0, strikes=0):
    return [CheckResult("check_x", outcome, strike=strike, strikes=strikes) for outcome in outcomes]


def told(changes):
    return [(c.what, c.result.outcome.reason, c.result.verdict.name) for c in changes]


def verdict(board, key="k"):
    return max(result.verdict for result in board.results([key]))


def test_a_fault_is_news_once():
    board = Board()
    assert told(board.judge("k", results(FULL), 1.0)) == [(BEGAN, "DiskFull", "CRIT")]
    for when in range(2, 10):
        assert board.judge("k", results(FULL), float(when)) == []


def test_a_fault_ends_only_after_enough_good_runs_in_a_row():
    board = Board(recover=3)
    board.judge("k", results(FULL), 1.0)
    board.judge("k", results(ok()), 2.0)
    board.judge("k", results(ok()), 3.0)
    board.judge("k", results(FULL), 4.0)  # the row begins anew
    for when in (5.0, 6.0):
        assert board.judge("k", results(ok()), when) == []
        assert verdict(board) is Verdict.CRIT
    news = board.judge("k", results(ok()), 7.0)
    assert told(news) == [(ENDED, "DiskFull", "CRIT")]
    assert news[0].since == 1.0
    assert verdict(board) is Verdict.OK


def test_a_run_that_could_not_tell_neither_ends_a_fault_nor_counts_towards_its_end():
    board = Board(recover=2)
    board.judge("k", results(FULL), 1.0)
    board.judge("k", results(ok()), 2.0)
    board.judge("k", results(unknown("CheckTimeout", "timed out")), 3.0)
    assert verdict(board) is Verdict.CRIT
    board.judge("k", results(skip("None", "no such thing")), 4.0)
    assert verdict(board) is Verdict.CRIT
    assert told(board.judge("k", results(ok()), 5.0)) == [(ENDED, "DiskFull", "CRIT")]


def test_each_target_and_reason_is_a_problem_of_its_own():
    board = Board(recover=1)
    board.judge("k", results(crit("Lost", "m", target="gpu0"), crit("Ecc", "m", target="gpu1")), 1.0)
    news = board.judge("k", results(crit("Ecc", "m", target="gpu1"), ok(target="gpu0")), 2.0)
    assert told(news) == [(ENDED, "Lost", "CRIT")]
    news = board.judge("k", results(crit("Ecc", "m", target="gpu1"), crit("Xid", "m", target="gpu1")), 3.0)
    assert told(news) == [(BEGAN, "Xid", "CRIT")]


def test_a_device_that_only_some_runs_could_look_at_stays_bad():
    board = Board(recover=1)
    board.judge("k", results(crit("Lost", "m", target="gpu0")), 1.0)
    board.judge("k", results(unknown("Busy", "m", target="gpu0"), ok(target="gpu1")), 2.0)
    assert verdict(board) is Verdict.CRIT


def test_a_warning_that_becomes_a_fault_is_a_change():
    board = Board()
    board.judge("k", results(warn("DiskFull", "(strike 1 of 2)", target="/"), strike=1, strikes=2), 1.0)
    assert told(board.judge("k", results(FULL), 2.0)) == [(CHANGED, "DiskFull", "CRIT")]


def test_a_fault_that_fails_again_after_one_good_run_has_not_ended():
    board = Board(recover=2)
    board.judge("k", results(FULL), 1.0)
    board.judge("k", results(ok()), 2.0)
    # the engine's strikes began anew with the good run
    news = board.judge("k", results(warn("DiskFull", "(strike 1 of 3)", target="/"), strike=1, strikes=3), 3.0)
    assert news == []
    assert board.judge("k", results(ok()), 4.0) == []  # and the good runs before it count no more
    assert verdict(board) is Verdict.CRIT


def test_a_fault_that_is_only_a_warning_now_ends_as_slowly_as_one_that_is_well():
    board = Board(recover=2)
    board.judge("k", results(FULL), 1.0)
    less = warn("DiskFull", "/ is nearly full", target="/")
    assert board.judge("k", results(less), 2.0) == []
    assert told(board.judge("k", results(less), 3.0)) == [(CHANGED, "DiskFull", "WARN")]


def test_one_way_of_not_knowing_gives_way_to_another():
    board = Board()
    board.judge("k", results(unknown("CheckTimeout", "m")), 1.0)
    board.judge("k", results(unknown("CommandMissing", "m")), 2.0)
    assert [r.outcome.reason for r in board.results(["k"])] == ["CommandMissing"]


def test_a_check_that_is_configured_no_more_leaves_no_fault_behind():
    board = Board()
    board.judge("k", results(FULL), 1.0)
    assert told(board.remove(["k"], 2.0)) == [(ENDED, "DiskFull", "CRIT")]
    assert board.results(["k"]) == []


def test_the_next_life_knows_what_stood_and_raises_nothing_again():
    board = Board(recover=2)
    board.judge("k", results(FULL), 1.0)
    board.judge("k", results(ok()), 2.0)
    again = Board(recover=2)
    again.load(board.dump())
    assert verdict(again) is Verdict.CRIT
    assert told(again.judge("k", results(ok()), 3.0)) == [(ENDED, "DiskFull", "CRIT")]  # the good run counts still
    assert again.judge("k", results(ok()), 4.0) == []


def test_what_was_damaged_is_left_out():
    board = Board()
    board.load({"k": {"at": "x"}, "l": 5, "m": {"at": 1, "results": [{}], "problems": []}})
    assert board.rows == {}


def test_a_failure_soon_after_boot_is_too_early_to_tell_and_clears_nothing():
    early = too_early(results(FULL)[0], 42.0)
    assert early.verdict is Verdict.UNKNOWN
    assert "42s after the boot" in early.outcome.message
    board = Board(recover=1)
    board.judge("k", results(FULL), 1.0)
    board.judge("k", [early], 2.0)
    assert verdict(board) is Verdict.CRIT
    assert too_early(results(ok())[0], 42.0).verdict is Verdict.OK


OUTCOMES = st.sampled_from([ok(), FULL, unknown("CheckTimeout", "m"), skip("None", "m"), warn("Slow", "m")])


@given(st.lists(OUTCOMES, min_size=1, max_size=40), st.integers(1, 4))
def test_beginnings_and_ends_of_a_fault_alternate(outcomes, recover):
    board = Board(recover=recover)
    what = [c.what for n, o in enumerate(outcomes) for c in board.judge("k", results(o), float(n))
            if c.result.outcome.reason == "DiskFull"]  # fmt: skip
    assert what == [BEGAN, ENDED] * (len(what) // 2) + [BEGAN] * (len(what) % 2)
    # and no fault ends before it was seen well as often as it takes
    good = 0
    standing = False
    for outcome in outcomes:
        good = good + 1 if outcome.verdict in (Verdict.OK, Verdict.WARN) else 0 if outcome is FULL else good
        standing = outcome is FULL or (standing and good < recover)
    assert standing == any(r.verdict is Verdict.CRIT for r in board.results(["k"]))
