"""One leads; who has lost the lead writes nothing; and Kubernetes' Lease fits where the store's own locks do."""

import pytest

from nhc.store import holds
from nhc.store.connect import open_store
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.leader import AdvisoryLock, Leader, leads
from nhc_adapters.kubernetes.api.lease import Lease
from tests.support.waiting import until


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
    assert leads(first) == "b"
    with pytest.raises(LeadershipLost):
        write(first, before)
    write(second, other.fence)


def test_a_killed_session_of_postgresql_loses_the_lead(postgresql, tmp_path):
    url = postgresql.database()
    store = open_store(url, anchor=str(tmp_path / "anchor"))
    other = open_store(url, anchor=str(tmp_path / "anchor"))
    one, two = Leader(store, holder="a"), Leader(other, holder="b")
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
    assert one.attempt()
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
