import random

from hypothesis import given
from hypothesis import strategies as st

from nhc.agent.schedule import CheckTimes, Schedule


def scheduled(cadences, now=1000.0, seed="n1", **options):
    made = Schedule(seed, draw=random.Random(1), **options)
    made.set({key: CheckTimes(key, every, 5.0) for key, every in cadences.items()}, now)
    return made


def run(schedule, now):
    """Start and end at once what is due; the keys."""
    due = schedule.due(now)
    schedule.begin(due, now)
    for entry in due:
        schedule.end(entry.key, now, 0.1)
    return [entry.key for entry in due]


def test_everything_runs_at_once_when_the_agent_begins():
    assert run(scheduled({"a": 60, "b": 3600}), 1000.0) == ["a", "b"]


def test_a_check_comes_again_after_its_cadence_give_or_take_the_jitter():
    schedule = scheduled({"a": 60}, jitter=0.05)
    run(schedule, 1000.0)
    when, seen = 1000.0, []
    for _ in range(20):
        when = schedule.next(when)
        assert run(schedule, when) == ["a"]
        seen.append(when)
    gaps = [b - a for a, b in zip(seen, seen[1:])]
    assert all(57 <= gap <= 63 for gap in gaps)
    assert max(gaps) - min(gaps) > 0.5


def test_sixty_checks_of_one_cadence_share_one_round():
    schedule = scheduled({f"c{n}": 60 for n in range(60)})
    run(schedule, 1000.0)
    assert len(run(schedule, schedule.next(1000.0))) == 60


def test_nodes_that_start_together_do_not_go_on_together():
    second = []
    for number in range(200):
        schedule = scheduled({"a": 60}, seed=f"node{number}")
        run(schedule, 1000.0)
        second.append(schedule.next(1000.0))
    assert min(second) >= 1030
    assert max(second) <= 1060
    assert len({round(when) for when in second}) > 20


def test_a_check_that_still_runs_is_not_started_beside_itself():
    schedule = scheduled({"a": 60, "b": 60})
    due = schedule.due(1000.0)
    schedule.begin(due, 1000.0)
    schedule.end("b", 1000.5, 0.5)
    assert run(schedule, schedule.next(1001.0)) == ["b"]


def test_a_check_is_overdue_only_when_it_was_not_judged_for_long():
    schedule = scheduled({"a": 60})
    run(schedule, 1000.0)
    assert schedule.overdue(1090.0) == []
    assert schedule.overdue(1000.0 + 60 * 1.5 + 5 + 11) == ["a"]


def test_a_round_that_failed_judges_nothing():
    schedule = scheduled({"a": 60})
    schedule.begin(schedule.due(1000.0), 1000.0)
    schedule.end("a", 1001.0, 0.0, judged=False)
    assert schedule.overdue(1200.0) == ["a"]


def test_hurry_runs_a_check_before_its_beat():
    schedule = scheduled({"a": 60, "b": 60})
    run(schedule, 1000.0)
    schedule.hurry("a", 1005.0)
    assert schedule.next(1001.0) == 1005.0
    assert run(schedule, 1005.0) == ["a"]


def test_a_slow_cadence_does_not_make_a_report_old():
    schedule = scheduled({"fast": 60, "slow": 3600})
    run(schedule, 1000.0)
    schedule.begin([schedule.entries["fast"]], 1600.0)
    schedule.end("fast", 1601.0, 1.0)
    assert schedule.oldest(1610.0) == 10.0
    assert schedule.oldest(1000.0 + 3600 * 1.5 + 100) > 3600  # but one that is late does


def test_after_a_reload_checks_that_stay_keep_their_times_and_new_ones_run_at_once():
    schedule = scheduled({"a": 60, "b": 60})
    run(schedule, 1000.0)
    gone = schedule.set({key: CheckTimes(key, 60, 5.0) for key in ("a", "c")}, 1010.0)
    assert gone == ["b"]
    assert run(schedule, 1010.0) == ["c"]


@given(st.lists(st.floats(0.1, 7200), min_size=1, max_size=30), st.integers(0, 1000))
def test_no_check_starves(cadences, seed):
    schedule = scheduled({f"c{n}": every for n, every in enumerate(cadences)}, seed=str(seed))
    run(schedule, 1000.0)
    last = dict.fromkeys(schedule.entries, 1000.0)
    now = 1000.0
    for _ in range(200):
        now = max(schedule.next(now), now)
        for key in run(schedule, now):
            last[key] = now
        for key, entry in schedule.entries.items():
            assert now - last[key] <= entry.every * 1.06
