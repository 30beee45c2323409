"""What rounds of the loop ask of the API server: counted by an HTTP server that answers as it does."""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from urllib.parse import parse_qs, urlsplit

import pytest

from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.http_server import Handler, serving
from tests.support.waiting import until

NODES = 50


def node(number, version=1, **spec):
    """About as large as a real one, most of it the list of images."""
    return {
        "metadata": {"name": f"n{number:03}", "uid": f"u{number}", "resourceVersion": str(version)},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "images": [{"names": [f"registry/{image}@sha256:{'0' * 64}"], "sizeBytes": 1} for image in range(50)],
            "nodeInfo": {"bootID": "b"},
        },
    }


class Cluster:
    """Nodes, what was asked, and the bytes that were sent."""

    def __init__(self):
        self.nodes = {one["metadata"]["name"]: one for one in map(node, range(NODES))}
        self.asked, self.sent, self.may_watch = Counter(), Counter(), True
        self.pods_of = []
        self.events = queue.Queue()

    def change(self, number, version, **spec):
        changed = node(number, version, **spec)
        self.nodes[changed["metadata"]["name"]] = changed
        self.events.put({"type": "MODIFIED", "object": changed})


def handler(cluster):
    class Api(Handler):
        protocol_version = "HTTP/1.1"

        def get(self):
            where = urlsplit(self.path)
            query = parse_qs(where.query)
            kind = where.path.rsplit("/", 1)[-1]
            if "watch" in query:
                return self.watch()
            if kind == "pods":
                cluster.pods_of.append(query["fieldSelector"][0].partition("spec.nodeName=")[2])
            items = list(cluster.nodes.values()) if kind == "nodes" else []
            found = cluster.nodes.get(kind) or {"metadata": {"resourceVersion": "1"}, "items": items}
            body = json.dumps(found)
            what = "node" if kind in cluster.nodes else kind
            cluster.asked[what] += 1
            cluster.sent[what] += len(body)
            return self.answer(200, body)

        def watch(self):
            cluster.asked["watch"] += 1
            if not cluster.may_watch:
                return self.answer(
                    403, json.dumps({"kind": "Status", "message": "may not watch", "reason": "Forbidden"})
                )
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                event = cluster.events.get()
                if event is None:
                    return None
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

    return Api


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    found = Cluster()
    with serving(handler(found)) as server:
        config = {
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(config))
        found.adapter = Adapter({"NHC_KUBECONFIG": str(tmp_path / "config")})
        yield found
        found.adapter._followed.close()
        found.events.put(None)
        found.adapter.close()


def rounds(cluster, count):
    """What a round of the loop reads of all nodes."""
    for _round in range(count):
        cluster.adapter.nodes()
        cluster.adapter.condition_reports()


def test_rounds_with_nothing_wrong_ask_for_nothing_beside_the_watch(cluster):
    rounds(cluster, 1)
    before = sum(cluster.sent.values())
    rounds(cluster, 20)
    assert cluster.asked == {"nodes": 2, "watch": 1}  # the first round's, and the watch's own
    assert sum(cluster.sent.values()) == before


def test_what_changes_is_seen_and_only_pods_of_nodes_that_matter_are_asked_for(cluster):
    rounds(cluster, 2)
    cluster.change(7, 2, unschedulable=True)
    until(lambda: not {one.name: one for one in cluster.adapter.nodes()}["n007"].available)
    cluster.pods_of.clear()
    found = {one.name: one for one in cluster.adapter.nodes()}
    assert cluster.pods_of == ["n007"]
    assert not found["n007"].busy
    assert found["n008"].busy  # nobody looked
    assert [one.busy for one in cluster.adapter.nodes([f"n{number:03}" for number in range(30)])] == [False] * 30
    assert sorted(cluster.pods_of[1:]) == [f"n{number:03}" for number in range(30)]


def test_our_own_write_is_seen_before_the_watch_brings_it(cluster):
    rounds(cluster, 2)
    cluster.adapter.changed["n003"] = node(3, 9, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n003"].available


def test_without_the_right_to_watch_nodes_are_listed(cluster):
    cluster.may_watch = False
    rounds(cluster, 2)
    until(lambda: cluster.adapter._followed._stop.is_set())
    watched = cluster.asked["watch"]
    cluster.nodes["n001"] = node(1, 5, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n001"].available
    rounds(cluster, 3)
    assert cluster.asked["watch"] == watched == 2


def test_a_silent_watch_is_not_believed(cluster):
    rounds(cluster, 2)
    followed = cluster.adapter._followed
    followed._reflector.last_answer = time.monotonic() - 100.0
    cluster.nodes["n002"] = node(2, 5, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n002"].available
