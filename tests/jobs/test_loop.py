"""The loop over jobs: what it restarts, what it leaves alone, what it waits for, and that it says so once."""

import json

import pytest

from nhc.core.model import Verdict
from nhc.core.settings.settings_file import SettingsError
from nhc.jobs.settings import RESEND, parse
from nhc.marks.ports.job_control import LossCause, Phase
from nhc.store import audit, holds, job_restarts
from tests.support.job_world import SETTINGS, World


def restarts(world, name="j"):
    with world.plain.read() as connection:
        rows = [row for row in job_restarts.list_jobs(connection, is_open=None) if row.name == name]
        return [one for row in rows for one in job_restarts.restarts(connection, row.id)]


def whats(world):
    with world.plain.read() as connection:
        return [row.what for row in audit.entries(connection, limit=1000)]


def test_a_node_that_fails_a_job_is_avoided_and_the_job_starts_on_others(world):
    body = world.submit()
    world.rounds(1)
    world.out["n0"] = "DOWN: not responding"
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    said = world.rounds(4)

    assert body.phase is Phase.RUNNING
    assert body.nodes == ("n1", "n2")
    assert [act.what for act in world.acts] == ["hold", "release"]
    assert said[0].startswith("restart: 1 of 3: n0: DOWN")
    (row,) = restarts(world)
    assert (row.outcome, row.nodes, row.exclude) == ("restarted", "n0", "n0")
    assert whats(world) == ["job.hold", "job.held", "job.releasing", "job.restarted"]


def test_the_restart_is_written_before_the_job_is_touched(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    seen = []
    send = world._send
    world._send = lambda what, order: seen.append((what, whats(world)[-1])) or send(what, order)
    world.rounds(3)

    assert seen == [("hold", "job.hold"), ("release", "job.releasing")]


@pytest.mark.thorough
def test_an_exit_on_healthy_nodes_is_left_alone_and_said_once(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    said = world.rounds(40)

    assert world.acts == []
    assert said == ["left: exit status 1, and its nodes are healthy"]
    assert whats(world) == ["job.left"]


@pytest.mark.thorough
def test_an_exit_beside_a_critical_problem_is_the_infrastructures(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.rounds(2)
    assert world.acts == []  # nothing is known yet: late reports are waited for
    world.report("n1")
    world.rounds(4)

    assert body.phase is Phase.RUNNING
    assert "n1" not in body.nodes
    assert restarts(world)[0].why == "n1: GpuLost: gone"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cause", "final"), [(LossCause.LIMIT, "over its memory"), (LossCause.CANCELLED, "by its user")]
)
def test_what_the_job_or_its_user_did_is_no_fault_of_a_node(world, cause, final):
    body = world.submit()
    world.rounds(1)
    world.report("n1")
    world.fail(body, cause, "n1", final)
    world.rounds(20)

    assert world.acts == []


@pytest.mark.thorough
def test_a_problem_long_after_the_failure_or_of_another_node_counts_for_nothing(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.report("n3")
    world.let_pass(1000.0)
    world.report("n1")
    world.rounds(20)

    assert world.acts == []


@pytest.mark.thorough
def test_a_check_that_the_settings_ignore_is_no_evidence(store):
    world = World(store, settings=SETTINGS.replace('window = "3m"', 'window = "3m"\nignore = ["check_fs_*"]'))
    body = world.submit()
    world.rounds(1)
    world.report("n1", check="check_fs_free")
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.rounds(20)

    assert world.acts == []


@pytest.mark.thorough
def test_a_restart_waits_until_enough_healthy_nodes_exist(world):
    body = world.submit(wants=3)
    world.rounds(1)
    world.out.update(n0="DOWN", n1="DOWN")
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(10)
    assert body.phase is Phase.HELD
    assert world.round().waiting[0].why == "it needs 3 healthy nodes, and there are 2"
    del world.out["n1"], world.out["n0"]
    world.rounds(2)
    assert body.phase is Phase.HELD  # n0 and n1 failed it: two are left
    world.nodes.append("n4")
    world.rounds(3)

    assert body.phase is Phase.RUNNING
    assert set(body.nodes) == {"n2", "n3", "n4"}


def test_a_passing_outage_of_what_all_nodes_share_keeps_no_job_off_them(world):
    """A shared file system is away: every node fails its check, none is drained for long, and then all are well."""
    body = world.submit(wants=3)
    world.rounds(1)
    for node in world.nodes:
        world.report(node, reason="MountHung", check="check_mount_responds")
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.rounds(6)
    assert (body.phase, [act.what for act in world.acts]) == (Phase.HELD, ["hold"])
    assert world.round().waiting[0].why == "it needs 3 healthy nodes, and there are 0"
    for node in world.nodes:
        world.report(node, Verdict.OK, check="check_mount_responds")
    world.rounds(4)
    assert (body.phase, restarts(world)[0].exclude) == (Phase.RUNNING, "")


@pytest.mark.thorough
def test_a_node_in_service_that_is_known_to_be_sick_is_none_of_the_healthy_ones(world):
    body = world.submit(wants=3)
    world.rounds(1)
    world.out["n0"] = "DOWN"
    world.report("n3")
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(6)
    assert body.phase is Phase.HELD
    assert world.round().waiting[0].why == "it needs 3 healthy nodes, and there are 2"
    world.report("n3", Verdict.OK)
    world.rounds(3)
    assert set(body.nodes) == {"n1", "n2", "n3"}


def test_a_kind_that_cannot_be_kept_off_nodes_waits_until_they_are_out_of_service(store):
    world = World(store, excludes=False)
    body = world.submit()
    world.rounds(1)
    world.report("n0")
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.rounds(5)
    assert body.phase is Phase.HELD
    assert world.round().waiting[0].why.startswith("n0 must be out of service first")
    world.out["n0"] = "drained"
    world.rounds(3)

    assert body.nodes == ("n1", "n2")


@pytest.mark.thorough
def test_the_limit_holds_and_is_said_once(world):
    body = world.submit(wants=1, max_restarts=1)
    world.rounds(1)
    for _ in range(3):
        node = body.nodes[0]
        world.out[node] = "DOWN"
        world.fail(body, LossCause.NODE, node, "its node failed")
        said = world.rounds(6)
        if body.phase is Phase.FAILED:
            break

    assert len(restarts(world)) == 1
    assert [line for line in said if line.startswith("left")] == ["left: 1 of 1 restarts are used up (n1: DOWN)"]
    assert world.rounds(10) == []


def test_a_user_cannot_ask_for_more_than_the_settings_allow(store):
    world = World(store, settings=SETTINGS.replace("max-restarts = 3", "max-restarts = 2\nmost = 2"))
    world.submit(max_restarts=1000)
    world.rounds(1)
    with store.read() as connection:
        assert job_restarts.list_jobs(connection)[0].max_restarts == 2


def test_a_job_that_its_scheduler_started_anew_is_held_and_kept_off_the_node(world):
    body = world.submit()
    world.rounds(1)
    world.out["n0"] = "DOWN"
    world.requeue(body)
    body.avoid = frozenset(world.nodes)  # it has not started yet
    world.rounds(3)
    assert [act.what for act in world.acts] == ["hold", "release"]
    assert restarts(world)[0].run == "1"

    world.rounds(5)
    assert len(restarts(world)) == 1


def test_a_run_that_still_leaves_its_nodes_is_not_forgotten_for_the_next_one(world):
    body = world.submit()
    world.rounds(1)
    world.out["n0"] = "DOWN"
    world.requeue(body)
    body.phase, body.nodes = Phase.ENDING, ("n1",)
    assert [one.why for one in world.round().waiting] == ["it still leaves its nodes"]
    del world.out["n0"]  # it came back at once
    body.phase, body.avoid = Phase.PENDING, frozenset(world.nodes)
    world.rounds(3)

    assert [act.what for act in world.acts] == ["hold", "release"]
    assert [(one.run, one.nodes) for one in restarts(world)] == [("1", "n0")]


def test_a_job_that_runs_elsewhere_already_is_counted_and_not_touched(world):
    body = world.submit()
    world.rounds(1)
    world.out["n0"] = "DOWN"
    world.requeue(body)
    world.rounds(5)

    assert world.acts == []
    assert [(one.outcome, one.nodes) for one in restarts(world)] == [("restarted", "n0")]


def test_a_requeue_by_its_user_counts_for_nothing(world):
    body = world.submit()
    world.rounds(1)
    world.requeue(body)
    world.rounds(5)

    assert (world.acts, restarts(world)) == ([], [])


def test_a_job_that_ended_for_good_is_made_anew_and_keeps_its_count(world):
    body = world.submit(wants=1)
    world.rounds(1)
    for number in (1, 2):
        world.report(body.nodes[0])
        world.fail(body, LossCause.EXIT, "", "exit status 1", final=True)
        world.rounds(4)
        assert body.phase is Phase.RUNNING, number

    assert [one.number for one in restarts(world)] == [1, 2]
    assert body.uid == "u3"
    with world.plain.read() as connection:
        (row,) = job_restarts.list_jobs(connection)
        assert row.uid == "u3"
        assert [pair.node for pair in job_restarts.pairs(connection, row.id)] == ["n1", "n0"]


def test_nothing_is_made_anew_unless_that_is_enabled(store):
    world = World(store, settings=SETTINGS.replace('make-anew = "on"', ""))
    body = world.submit()
    world.rounds(1)
    world.report("n0")
    world.fail(body, LossCause.EXIT, "", "exit status 1", final=True)
    said = world.rounds(4)

    assert world.acts == []
    assert "made anew, which is not enabled" in said[0]


def test_without_being_enabled_it_says_what_it_would_do(store):
    world = World(store, settings=SETTINGS.replace('restart = "on"', ""))
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    done = world.round()

    assert [(one.what, one.why) for one in done.would] == [("restart", "n0: its node failed")]
    assert (world.acts, restarts(world)) == ([], [])


def test_a_dry_round_writes_nothing(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    before = whats(world)
    assert world.loop.round(apply=False).would
    assert (whats(world), world.acts, restarts(world)) == (before, [], [])


def test_the_open_breaker_keeps_restarts_from_beginning(world):
    """What is reported about nodes is not to be trusted then: neither marks nor jobs follow from it."""

    def breaker(state):
        with world.plain.write() as connection:
            holds.set_breaker(connection, "remedy", state, by="ann", why="too many", now=world.now)

    body = world.submit()
    world.rounds(1)
    breaker("open")
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(3)
    assert world.acts == []
    assert [wait.why for wait in world.loop.round().waiting] == ["the breaker is open: too many"]
    breaker("closed")
    world.rounds(4)
    assert body.phase is Phase.RUNNING


def test_a_hold_on_the_fleet_keeps_restarts_from_beginning_and_from_ending(world):
    body = world.submit()
    world.rounds(1)
    with world.plain.write() as connection:
        holds.hold(connection, "fleet", "", by="ann", why="a storm", now=world.now)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(3)
    assert world.acts == []
    with world.plain.write() as connection:
        holds.release(connection, "fleet", "", by="ann", now=world.now)
    world.rounds(4)
    assert body.phase is Phase.RUNNING


@pytest.mark.thorough
def test_the_rate_of_the_fleet_holds(store):
    world = World(store, count=40, settings=SETTINGS.replace("1000 per 1h", "2 per 1h"))
    bodies = [world.submit(f"j{number}", wants=1) for number in range(5)]
    world.rounds(1)
    for body in bodies:
        world.fail(body, LossCause.NODE, body.nodes[0], "its node failed")
    world.rounds(5)
    assert len({act.job for act in world.acts}) == 2
    world.let_pass(3600.0)
    world.rounds(5)
    assert len({act.job for act in world.acts}) == 4


def test_an_operator_who_releases_or_cancels_a_held_job_has_the_last_word(world):
    body = world.submit()
    world.rounds(1)
    world.out.update(dict.fromkeys(world.nodes, "DOWN"))
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(3)
    assert body.phase is Phase.HELD
    body.phase, body.held = Phase.CANCELLED, False
    world.rounds(3)

    assert [act.what for act in world.acts] == ["hold"]
    assert restarts(world)[0].outcome == "superseded"


def test_a_job_that_ended_before_anybody_watched_it_is_not_taken_up(world):
    body = world.submit()
    world.report("n0")
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.let_pass(1000.0)
    world.rounds(3)
    assert world.acts == []


@pytest.mark.thorough
def test_a_refused_call_is_tried_until_patience_ends(world):
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.lose = ["refused"] * 100
    world.rounds(80)

    assert restarts(world)[0].outcome == "failed"
    assert restarts(world)[0].message == "it could not be held within 900 s"
    assert len(world.lose) > 80  # one call a minute
    world.lose = []
    world.rounds(10)
    assert world.acts == []  # a run is restarted once, however its restart ended
    assert world.round().problems == ()


def test_a_scheduler_that_is_away_is_said_and_nothing_follows_from_it(world):
    body = world.submit()
    world.rounds(1)
    world.away = True
    done = world.round()
    assert done.problems == ("fake: jobs cannot be read: the scheduler is away",)
    with world.plain.read() as connection:
        assert [row.ended for row in job_restarts.list_jobs(connection)] == [None]
    world.away = False
    assert world.round().problems == ()
    assert body.phase is Phase.RUNNING


@pytest.mark.thorough
def test_a_running_job_on_a_faulty_node_is_left_unless_the_settings_say_otherwise(store):
    world = World(store, settings=SETTINGS.replace('window = "3m"', 'window = "3m"\nrunning = "5m"'))
    body = world.submit()
    world.rounds(1)
    world.report("n0")
    world.rounds(10)
    assert world.acts == []
    world.rounds(15)
    assert world.acts[0].what == "hold"
    assert "n0" not in body.nodes


def test_jobs_that_are_gone_or_have_succeeded_are_watched_no_longer(world):
    done, gone = world.submit("done", 1), world.submit("gone", 1)
    world.rounds(1)
    done.phase, gone.gone = Phase.SUCCEEDED, True
    world.rounds(2)
    with world.plain.read() as connection:
        assert job_restarts.list_jobs(connection) == []
        why = [json.loads(row.detail)["why"] for row in audit.entries(connection) if row.what == "job.ended"]
    assert why == ["it has succeeded", "it is gone"]


@pytest.mark.thorough
def test_healthy_reports_speak_for_the_application(world):
    body = world.submit()
    world.rounds(1)
    world.report("n0", Verdict.WARN)
    world.report("n1", Verdict.OK)
    world.fail(body, LossCause.EXIT, "", "exit status 1")
    world.rounds(20)
    assert world.acts == []


def test_a_call_may_not_take_so_long_that_it_is_sent_again_while_it_is_under_way():
    assert parse(SETTINGS + '\n[controllers.late]\ntype = "slurm"\ntimeout = "30s"\n').controllers[-1].timeout < RESEND
    with pytest.raises(SettingsError, match=r"controllers\.late\.timeout"):
        parse(SETTINGS + '\n[controllers.late]\ntype = "slurm"\ntimeout = "90s"\n')


@pytest.mark.thorough
def test_after_the_clock_was_set_forward_the_rate_of_the_fleet_still_holds(store):
    world = World(store, count=40, settings=SETTINGS.replace("1000 per 1h", "2 per 1h"))
    bodies = [world.submit(f"j{number}", wants=1) for number in range(5)]
    world.rounds(1)
    for body in bodies:
        world.fail(body, LossCause.NODE, body.nodes[0], "its node failed")
    world.rounds(5)
    world.now += 2 * 3600.0
    assert "the clock jumped by 7200 s" in world.round().problems[0]
    world.rounds(5)
    assert len({act.job for act in world.acts}) == 2
    world.let_pass(3600.0)
    world.rounds(5)
    assert len({act.job for act in world.acts}) == 4


@pytest.mark.thorough
def test_a_clock_that_was_set_makes_no_cooldown_shorter(store):
    world = World(store, settings=SETTINGS.replace('cooldown = "0s"', 'cooldown = "10m"'))
    assert world.settings.limits.cooldown == 600.0
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.rounds(5)
    world.fail(body, LossCause.NODE, body.nodes[0], "its node failed")
    world.now += 590.0
    begun = [act for act in world.acts if act.what == "hold"]
    world.rounds(20)
    assert [act for act in world.acts if act.what == "hold"] == begun
    world.rounds(30)
    assert len([act for act in world.acts if act.what == "hold"]) == len(begun) + 1
