"""One leads; who has lost the lead writes nothing; and Kubernetes' Lease fits where the store's own locks do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from nhc.store import holds
from nhc.store.connect import open_store
from nhc.store.database import Fence
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.rounds.leader import AdvisoryLock, FileLock, Lead, Leader, lead_of
from nhc_adapters.kubernetes.api.lease import Lease
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def two(store, url, tmp_path):
    other = open_store(url, anchor=str(tmp_path / "anchor"))
    leaders = Leader(store, holder="a"), Leader(other, holder="b")
    yield (*leaders, store, other)
    [one.release() for one in leaders]
    other.close()


def write(store, fence):
    with store.write(fence) as connection:
        holds.hold(connection, "node", "n1", by="x", why="y", now=1.0)


def test_one_of_two_leads_until_it_lets_go(two):
    one, other, first, second = two
    assert one.attempt()
    assert one.attempt()
    assert not other.attempt()
    assert other.fence is None
    write(first, one.fence)
    before = one.fence
    one.release()
    assert one.fence is None
    until(other.attempt, what="the lead")  # PostgreSQL frees a lock when it has seen the end of its session
    assert other.fence.number == before.number + 1
    assert lead_of(first).holder == "b"
    with pytest.raises(LeadershipLost):
        write(first, before)
    write(second, other.fence)


def test_a_killed_session_of_postgresql_loses_the_lead(postgresql, tmp_path):
    url = postgresql.database()
    store = open_store(url, anchor=str(tmp_path / "anchor"))
    other = open_store(url, anchor=str(tmp_path / "anchor"))
    one, two = (Leader(each, AdvisoryLock(each), holder=name) for each, name in ((store, "a"), (other, "b")))
    assert one.attempt()
    fence = one.fence
    backend = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    postgresql.sql(url.rpartition("/")[2], backend)
    until(two.attempt, what="the lead")
    with pytest.raises(LeadershipLost):
        write(store, fence)
    with pytest.raises(StoreError):
        one.attempt()
    assert one.fence is None
    assert not one.attempt()
    two.release()
    until(one.attempt, what="the server to let go of the lock, a moment after its connection ended")
    assert one.fence.number == fence.number + 2
    one.release()
    store.close()
    other.close()


def test_a_look_at_the_lock_is_believed_for_a_while_only(postgresql, tmp_path):
    store = open_store(postgresql.database(), anchor=str(tmp_path / "anchor"))
    now = [0.0]
    one = Leader(store, AdvisoryLock(store, "remedy", lambda: now[0]))
    assert one.attempt()
    now[0] = 11.0
    assert one.fence is None
    assert one.attempt()
    assert one.fence.number == 1
    one.release()
    store.close()


def test_a_lease_is_a_candidate(store):
    """The real class, over a Kubernetes that keeps one Lease."""

    class Server:
        lease = None

        def find(self, path):
            return self.lease

        def put(self, path, body):
            self.lease = body
            return body

    server = Server()
    server.lease = {"metadata": {"name": "x"}, "spec": {}}
    now = [100.0]
    lead = Leader(store, Lease(server, "nhc", "remedy", holder="a", monotonic=lambda: now[0]), holder="a")
    assert lead.attempt()
    write(store, lead.fence)
    now[0] += 60.0  # nothing was renewed: it may be another's by now
    assert lead.fence is None


SERVICE = """
import sys, time
from nhc.store.connect import open_store
from nhc.store.rounds.leader import Leader
store = open_store(sys.argv[1], anchor=sys.argv[2])
leader = Leader(store, name="drill")
while True:
    if leader.attempt() and leader.fence is not None:
        print(leader.fence.number, flush=True)
    time.sleep(0.2)
"""


class Service:
    """A process that leads while it may, and prints its number each time that it sees that it does."""

    def __init__(self, url, anchor, output):
        self.output = output
        with open(output, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVICE, url, str(anchor)], stdout=file,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def numbers(self):
        return [int(line) for line in self.output.read_text().splitlines()]

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def services(url, tmp_path, store):
    made = []

    def start(name):
        made.append(Service(url, tmp_path / "anchor", tmp_path / f"{name}.out"))
        return made[-1]

    yield start
    [one.end() for one in made]


GOAL = 30.0
"""Seconds within which another leads."""


def leads_alone(store, first, second, before):
    """The second leads under a number of its own, and the first never again beside it."""
    until(lambda: second.numbers() and second.numbers()[-1] > before, GOAL, what="another leader")


@pytest.mark.slow
@pytest.mark.thorough
def test_another_leads_soon_where_the_leader_is_stopped_and_it_does_not_come_back(services, store):
    first = services("first")
    until(first.numbers)
    second = services("second")
    first.process.send_signal(signal.SIGSTOP)
    number = first.numbers()[-1]
    began = time.monotonic()
    leads_alone(store, first, second, number)
    assert time.monotonic() - began < GOAL
    first.process.send_signal(signal.SIGCONT)
    seen = len(first.numbers())
    count = len(second.numbers())
    until(lambda: len(second.numbers()) > count + 20)
    assert len(first.numbers()) <= seen + 1
    assert set(second.numbers()) == {number + 1}
    with pytest.raises(LeadershipLost):
        write(store, Fence("drill", number))


@pytest.mark.slow
def test_a_killed_leader_is_followed_at_once_on_its_own_machine(services):
    first = services("first")
    until(first.numbers)
    second = services("second")
    first.process.kill()
    first.process.wait(20)
    began = time.monotonic()
    until(second.numbers, GOAL)
    assert time.monotonic() - began < GOAL


@pytest.mark.slow
def test_a_lock_file_that_is_removed_makes_no_second_leader(services, store, url):
    if not store.sqlite:
        return
    first = services("first")
    until(first.numbers)
    Path(f"{store.engine.url.database}.drill.lock").unlink()
    second = services("second")
    count = len(first.numbers())
    until(lambda: len(first.numbers()) > count + 20)
    assert second.numbers() == []
    assert len(set(first.numbers())) == 1
    Path(f"{store.engine.url.database}.drill.lock").unlink(missing_ok=True)
    first.process.send_signal(signal.SIGSTOP)
    until(second.numbers, GOAL)


def test_two_that_lead_by_a_lock_alone_notice_that_its_file_is_gone(store, tmp_path):
    """Without signs of life, one that goes round sees that it has lost."""
    if not store.sqlite:
        return
    one, two = (Leader(store, FileLock(str(tmp_path / "lock")), holder=name) for name in "ab")
    assert one.attempt()
    (tmp_path / "lock").unlink()
    assert two.attempt()
    assert not one.attempt()
    assert two.attempt()
    assert not one.attempt()
    [each.release() for each in (one, two)]


def test_a_leader_that_let_go_is_followed_at_once(two):
    one, other, *_ = two
    assert one.attempt()
    assert not other.attempt()
    one.release()
    until(other.attempt, 10, what="the lead")


def test_who_only_looks_sees_whether_somebody_leads_now(store):
    """A loop that has ended must not be shown as the one that leads."""
    now = [1_000_000.0]
    one = Leader(store, name="drill", clock=lambda: now[0])
    seen = lambda: lead_of(store, "drill", lambda: now[0])  # noqa: E731
    assert seen() == Lead()
    assert one.attempt()
    assert (seen().holder, seen().stands) == (one.holder, True)
    one.release()
    assert (seen().holder, seen().stands) == (one.holder, False)


def test_a_leader_that_was_killed_or_is_silent_is_seen_to_lead_no_more(store):
    ended = subprocess.Popen(["true"])
    ended.wait(60)
    for holder, later in ((f"{os.uname().nodename}:{ended.pid}", 0.0), ("another-host:1", 60.0)):
        if later and not store.sqlite:
            continue  # there the database's clock counts
        one = Leader(store, name="drill", holder=holder)
        assert until(one.attempt, 60, what="the lead")
        fall_silent(one)
        one._candidate.release()
        began = time.time()
        assert not lead_of(store, "drill", lambda: began + later).stands  # noqa: B023
        one.release()


def test_a_clock_that_is_set_back_does_not_stop_everything(store):
    if not store.sqlite:
        return  # there the database's clock counts
    now = [1_000_000.0]
    one, two = (Leader(store, name="drill", holder=name, clock=lambda: now[0]) for name in "ab")
    assert one.attempt()
    fall_silent(one)
    one._candidate.release()
    now[0] -= 3600.0
    assert two.attempt()
    two.release()


def fall_silent(leader):
    """As a process that ends without a word."""
    leader._ended.set()
    leader._thread.join(20)


@pytest.mark.slow
def test_a_leader_that_postgresql_no_longer_hears_is_followed(postgresql, tmp_path):
    """Its session stays, and its lock with it, as that of a machine that is cut off does until TCP gives up."""
    url = postgresql.database()
    first = open_store(url, anchor=str(tmp_path / "anchor"))
    second = open_store(url, anchor=str(tmp_path / "anchor"))
    one, two = Leader(first, holder="a:1"), Leader(second, holder="b:1")
    assert one.attempt()
    assert not two.attempt()
    fence = one.fence
    fall_silent(one)  # its lock stays
    began = time.monotonic()
    until(two.attempt, GOAL, 0.5, what="the lead")
    assert 10.0 < time.monotonic() - began < GOAL
    with pytest.raises(LeadershipLost):
        write(first, fence)
    assert not one.attempt()
    two.release()
    one.release()
    first.close()
    second.close()


LIMITS = {
    "tcp_keepalives_idle": 10, "tcp_keepalives_interval": 10, "tcp_user_timeout": 20_000,
    "statement_timeout": 600_000, "idle_in_transaction_session_timeout": 60_000,
}  # fmt: skip


def test_each_connection_to_postgresql_sees_that_the_other_side_is_gone(postgresql, tmp_path):
    store = open_store(postgresql.database(), anchor=str(tmp_path / "anchor"))
    with store.read() as connection:
        asked = sa.text("SELECT setting::int FROM pg_settings WHERE name = :name")
        for name, most in LIMITS.items():
            value = connection.scalar(asked, {"name": name})
            assert 0 < value <= most, name
    store.close()
