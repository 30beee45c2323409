"""Three servers on one PostgreSQL behind a balancer, one killed: nothing is lost, tokens and digests hold in all."""

import signal
import time

import pytest

from nhc.agent.server_push import read_push_settings
from nhc.agent.server_sink import ServerSink
from nhc.marks.ports.sinks import Delivery
from nhc.store import nodes
from nhc.store.server import access
from tests.support.balancer import Balancer
from tests.support.intake import OK, XID, Server, packed, report
from tests.support.waiting import until

NODES = [f"n{number}" for number in range(12)]
ROUNDS = 12
KILLED = 5
"""The round in which a server ends."""


class Site:
    """The servers, the balancer before them, and an agent's sink for each node. A sink has a spool of its own."""

    def __init__(self, tmp_path, url, monkeypatch):
        self.servers = []
        for name in ("a", "b", "c"):
            (tmp_path / name).mkdir()
            limits, nodes = "[limits]\npushes-a-node-and-minute = 60000\n", NODES if name == "a" else []
            self.servers.append(Server(tmp_path / name, url, limits, nodes=nodes))
        self.balancer = Balancer([server.listen for server in self.servers])
        self.lines, self.sinks, self.tokens = [], {}, self.servers[0].tokens
        monkeypatch.setattr("nhc.agent.server_sink.BACKOFF", (0.05, 0.3))
        for node in NODES:
            (tmp_path / f"{node}.token").write_text(self.tokens[node])
            table = {
                "url": self.balancer.url, "token-file": str(tmp_path / f"{node}.token"), "every": "1s",
                "spool": str(tmp_path / f"{node}.spool"), "timeout": "10s",
            }  # fmt: skip
            self.sinks[node] = ServerSink(read_push_settings(table), node, self.lines.append)

    def deliver(self, number, boot, results=(OK, XID)):
        """One report of each node, by clocks that go on by two seconds a round."""
        for node, sink in self.sinks.items():
            at = time.time() + 0.001 * number
            sink._last = None  # each is pushed: the second between two that say the same is not waited for
            sink.deliver(Delivery(report(node, at, results, boot), True))

    def pushed(self):
        until(lambda: not any(sink._pending or sink._spool for sink in self.sinks.values()))

    def counted(self, receipt):
        """By the servers that live."""
        wanted = f'nhc_server_reports_total{{receipt="{receipt}"}} '
        texts = [server.get("/metrics")[1] for server in self.servers if server.process.poll() is None]
        return sum(int(text.partition(wanted)[2].split()[0]) for text in texts if wanted in text)

    def close(self):
        for sink in self.sinks.values():
            sink.close()
        self.balancer.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def site(tmp_path, postgresql, monkeypatch):
    made = Site(tmp_path, postgresql.database(), monkeypatch)
    yield made
    made.close()


@pytest.mark.slow
def test_one_of_three_servers_is_killed_and_nothing_is_lost(site):
    for number in range(ROUNDS):
        site.deliver(number, f"b{number}")  # each says something new: the history has it, or it is lost
        if number == KILLED:
            site.servers[0].stop(signal.SIGKILL)
        if number % 3 == 2:
            site.pushed()
    site.pushed()
    assert min(site.balancer.taken.values()) >= 1  # all three had agents
    with site.servers[1].store() as store, store.read() as connection:
        for node in NODES:
            assert [row.boot_id for row in nodes.history(connection, node)] == [f"b{n}" for n in range(ROUNDS)], node
        assert nodes.counts(connection) == {"CRIT": len(NODES)}
    assert sum(sink._lost for sink in site.sinks.values()) == 0

    # Digests: what an agent was told by one server, another takes. The killed one comes back and takes it too.
    site.servers[0].start()
    until(lambda: site.servers[0].get("/healthz")[0] == 200)
    site.deliver(ROUNDS, "last")
    site.pushed()
    assert all(sink._answered is not None for sink in site.sinks.values())
    before = site.counted("same")
    for number in range(3):
        for sink in site.sinks.values():
            sink._pusher.close()  # the next push is over another connection, to the balancer's next server
        site.deliver(ROUNDS + 1 + number, "last")
        site.pushed()
    assert site.counted("same") == before + 3 * len(NODES)
    assert site.counted("whole") == 0

    # Tokens: revoked at one place, refused by all.
    with site.servers[1].store() as store, store.write() as connection:
        access.revoke(connection, "n3", by="test", now=time.time())
    for server in site.servers:
        until(lambda server=server: server.push(packed(report("n3"), node="n3"), site.tokens["n3"])[0] == 401)
        assert server.push(packed(report("n4"), node="n4"), site.tokens["n4"])[0] == 200
    assert not [server for server in site.servers if "Traceback" in server.said()]
