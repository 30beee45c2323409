"""What a round of the loop reads of a cluster in which nothing is wrong, beside listing all nodes each time.

    python bench/kubernetes_rounds.py [NODES]      (default 1000)

The API server is the one of the tests, which counts; a node's object has 50 images. Reports requests, bytes and CPU (of
client and server, in one process) a round, and their ratio to a round that lists the nodes once and judges them.
Limit: 100 kB a round beside the watch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

from bench.common import verdict  # noqa: E402
from nhc_adapters.kubernetes.plugin import Adapter  # noqa: E402
from tests.adapters.kubernetes import test_following  # noqa: E402
from tests.support.http_server import serving  # noqa: E402

ROUNDS = 10


def main() -> int:
    test_following.NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    cluster = test_following.Cluster()
    with serving(test_following.handler(cluster)) as server, tempfile.TemporaryDirectory() as place:
        config = {
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }  # fmt: skip
        Path(place, "config").write_text(json.dumps(config), encoding="utf-8")
        cluster.adapter = Adapter({"NHC_KUBECONFIG": f"{place}/config"})
        began = time.process_time()
        cluster.adapter.condition_reports()
        listed, read = time.process_time() - began, sum(cluster.sent.values())
        test_following.rounds(cluster, 2)
        before, asked, began = sum(cluster.sent.values()), sum(cluster.asked.values()), time.process_time()
        test_following.rounds(cluster, ROUNDS)
        spent = (time.process_time() - began) / ROUNDS
        sent, requests = (sum(cluster.sent.values()) - before) / ROUNDS, sum(cluster.asked.values()) - asked
        print(f"{test_following.NODES:,} nodes, listed once: {read / 1e6:.1f} MB, {listed * 1000:.0f} ms of CPU")
        print(f"a round: {requests / ROUNDS:.1f} requests, {sent / 1000:.1f} kB, {spent * 1000:.0f} ms of CPU "
              f"({spent / listed:.2f} of listing them once)")  # fmt: skip
        print(verdict("kB a round beside the watch", sent / 1000, 100.0))
        cluster.adapter.readings._followed.close()
        cluster.events.put(None)
        cluster.adapter.close()
    return int(sent > 100_000)


if __name__ == "__main__":
    sys.exit(main())
