"""Episodes, attempts, approvals, holds: what the remedy loop relies on to never act twice."""

import json

import pytest
import sqlalchemy as sa

from nhc.store import attempts, audit, episodes, evidence, holds, schema
from nhc.store.attempts import AttemptStatus
from nhc.store.database import Fence
from nhc.store.episodes import EpisodeStep
from nhc.store.errors import Conflict, LeadershipLost, StoreError


def opened(store, node="n1", cause="check_gpu|Xid79|gpu3", now=100.0):
    with store.write() as connection:
        return episodes.open_episode(
            connection, node, cause, action="reboot", state="detected", now=now, by="loop", detail='{"a": 1}'
        )


def written(store, episode, key="k1"):
    with store.write() as connection:
        new = attempts.next_attempt(
            episode, attempts.attempts_of(connection, episode.id), rung="reboot", repairer="fake", key=key, now=101.0,
            device="", before="{}",
        )  # fmt: skip
        (attempt,) = attempts.insert_all(connection, [new])
        attempts.record_written(connection, attempt, 101.0, "loop")
    return attempt


def told(store, **which):
    with store.read() as connection:
        return [(row.what, json.loads(row.detail)) for row in audit.entries(connection, **which)]


def test_one_episode_is_open_a_node_and_cause(store):
    first, new = opened(store)
    again, second = opened(store, now=500.0)
    assert (new, second) == (True, False)
    assert again == first
    assert first.opened == 100.0
    other, new = opened(store, cause="other")
    assert new
    assert other.id != first.id
    assert [what for what, _ in told(store)] == ["episode.opened"] * 2


def test_after_its_end_a_new_one_may_be_opened(store):
    first, _ = opened(store)
    with store.write() as connection:
        episodes.save_step(
            connection, first, EpisodeStep("loop", "episode.returned"), now=200.0, state="returned", ended=200.0
        )
    second, new = opened(store, now=300.0)
    assert new
    assert second.id > first.id
    with store.read() as connection:
        assert [one.id for one in episodes.list_episodes(connection, is_open=True)] == [second.id]
        assert [one.id for one in episodes.list_episodes(connection, is_open=False)] == [first.id]
        assert [one.id for one in episodes.list_episodes(connection, node="n1", limit=1)] == [second.id]
        assert episodes.list_episodes(connection, node="n2") == []


def test_a_step_is_written_down_with_its_change(store):
    first, _ = opened(store)
    with store.write() as connection:
        after = episodes.save_step(
            connection,
            first,
            EpisodeStep("loop", "episode.marked", {"mark": "NHC: x"}),
            now=110.0,
            state="marked",
        )
    assert (after.state, after.version, after.updated) == ("marked", 2, 110.0)
    assert told(store, episode=first.id)[-1] == (
        "episode.marked", {"from": "detected", "to": "marked", "mark": "NHC: x"}
    )  # fmt: skip


def test_who_changes_an_old_version_changes_nothing(store):
    first, _ = opened(store)
    with store.write() as connection:
        episodes.save_step(connection, first, EpisodeStep("a", "x"), now=110.0, state="marked")
    with pytest.raises(Conflict, match="was changed by another"), store.write() as connection:
        episodes.save_step(connection, first, EpisodeStep("b", "y"), now=111.0, state="aborted")
    with store.read() as connection:
        assert episodes.get(connection, first.id).state == "marked"
    assert [what for what, _ in told(store)] == ["episode.opened", "x"]


def test_an_attempts_way(store):
    episode, _ = opened(store)
    attempt = written(store, episode)
    assert (attempt.number, attempt.state, attempt.sent) == (1, "written", None)
    with store.write() as connection:
        sent = attempts.mark_sent(connection, attempt, now=102.0, by="loop", request_id="r-1")
    with store.write() as connection:
        ended = attempts.end_attempt(
            connection, sent, AttemptStatus.SUCCEEDED, now=150.0, by="loop", message="boot is new"
        )
    assert (ended.outcome, ended.request_id, ended.sent, ended.ended) == ("succeeded", "r-1", 102.0, 150.0)
    with store.read() as connection:
        assert attempts.attempts_of(connection, episode.id) == [ended]
        assert attempts.attempts_since(connection, 101.0) == [ended]
        assert attempts.attempts_since(connection, 101.5) == []
    assert [what for what, _ in told(store)] == ["episode.opened", "attempt.written", "attempt.sent", "attempt.ended"]


def test_the_next_attempt_has_the_next_number(store):
    episode, _ = opened(store)
    first = written(store, episode)
    with store.write() as connection:
        attempts.end_attempt(connection, first, AttemptStatus.REFUSED, now=102.0, by="loop")
    assert written(store, episode, "k2").number == 2


def test_a_key_is_used_once_in_all_time(store):
    episode, _ = opened(store)
    other, _ = opened(store, node="n2")
    written(store, episode, "same")
    with pytest.raises(StoreError):
        written(store, other, "same")


def test_only_an_ambiguous_end_can_become_another(store):
    episode, _ = opened(store)
    attempt = written(store, episode)
    with store.write() as connection:
        unsure = attempts.end_attempt(connection, attempt, AttemptStatus.AMBIGUOUS, now=102.0, by="loop")
    with pytest.raises(Conflict), store.write() as connection:
        attempts.end_attempt(connection, attempt, AttemptStatus.FAILED, now=102.0, by="late")
    with store.write() as connection:
        sure = attempts.end_attempt(connection, unsure, AttemptStatus.SUCCEEDED, now=103.0, by="loop")
    with pytest.raises(Conflict, match="ended succeeded already"), store.write() as connection:
        attempts.end_attempt(connection, sure, AttemptStatus.FAILED, now=104.0, by="loop")


def test_two_persons_are_two_people(store):
    episode, _ = opened(store)

    def decide(by, decision="approved"):
        with store.write() as connection:
            return attempts.decide(
                connection,
                episode,
                1,
                rung="replace",
                asked=1.0,
                evidence_digest="d",
                by=by,
                decision=decision,
                now=2.0,
            )

    decide("ada")
    with pytest.raises(Conflict, match="it takes another person"):
        decide("ada")
    decide("bob", "refused")
    with store.read() as connection:
        assert [(one.decided_by, one.decision) for one in attempts.decisions(connection, episode.id)] == [
            ("ada", "approved"), ("bob", "refused")
        ]  # fmt: skip


def test_holds(store):
    with store.write() as connection:
        holds.hold(connection, "node", "n1", by="ada", why="memory is swapped", now=10.0)
        holds.hold(connection, "fleet", "", by="ada", why="maintenance", now=10.0, until=20.0)
    with pytest.raises(ValueError, match="a hold is for a node or a group by name"), store.write() as connection:
        holds.hold(connection, "fleet", "n1", by="ada", why="", now=1.0)
    with store.read() as connection:
        assert [one.scope for one in holds.in_force(connection, 19.0)] == ["node", "fleet"]
        assert [one.scope for one in holds.in_force(connection, 20.0)] == ["node"]
    with store.write() as connection:
        assert len(holds.release(connection, "node", "n1", by="bob", now=30.0)) == 1
        assert holds.release(connection, "node", "n1", by="bob", now=31.0) == []
    with store.read() as connection:
        assert holds.in_force(connection, 32.0) == []
    assert [what for what, _ in told(store)] == ["hold.set", "hold.set", "hold.released"]


def test_a_breaker_is_set_once(store):
    with store.write() as connection:
        holds.set_breaker(connection, "fleet", "open", by="loop", why="9 of 10 nodes", now=1.0)
        holds.set_breaker(connection, "fleet", "open", by="loop", why="again", now=2.0)
    with store.read() as connection:
        assert holds.breakers(connection) == {"fleet": holds.Breaker("fleet", "open", 1.0, "9 of 10 nodes", "loop")}
    with store.write() as connection:
        assert holds.set_breaker(connection, "fleet", "closed", by="ada", why="looked", now=3.0).state == "closed"
    assert [what for what, _ in told(store)] == ["breaker.open", "breaker.closed"]


def test_settings_are_kept_once_each(store):
    with store.write() as connection:
        assert holds.saw_settings(connection, "remedy", "a = 1", 1.0, "loop")
        assert not holds.saw_settings(connection, "remedy", "a = 1", 2.0, "loop")
        assert holds.saw_settings(connection, "remedy", "a = 2", 3.0, "loop")


def test_evidence_is_forgotten_with_the_last_row_that_names_it(store):
    one, _ = opened(store)
    other, _ = opened(store, node="n2")
    with store.write() as connection:
        evidence.add(connection, one, "console.txt", now=1.0, sha256="aa", size=5, expires=10.0)
        evidence.add(connection, one, "dmesg", now=1.0, message="no answer within 30 s", expires=10.0)
        evidence.add(connection, other, "console.txt", now=1.0, sha256="aa", size=5, expires=20.0)
    with store.read() as connection:
        assert [row.name for row in evidence.of_episode(connection, one.id)] == ["console.txt", "dmesg"]
    with store.write() as connection:
        assert evidence.forget(connection, evidence.expired(connection, 10.0)) == []
        assert evidence.forget(connection, evidence.expired(connection, 20.0)) == ["aa"]
        assert evidence.expired(connection, 1e9) == []


def test_a_leader_of_before_writes_nothing(store):
    with store.write() as connection:
        connection.execute(sa.insert(schema.leader).values(name="remedy", number=7, since=1.0))
    with store.write(Fence("remedy", 7)) as connection:
        holds.hold(connection, "node", "n1", by="loop", why="x", now=1.0)
    with store.write() as connection:
        connection.execute(sa.update(schema.leader).values(number=8))
    ran = []
    with pytest.raises(LeadershipLost, match="another leads now"), store.write(Fence("remedy", 7)) as connection:
        ran.append(connection)
    assert ran == []
