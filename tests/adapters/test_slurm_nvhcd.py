"""The service for training jobs asks a real slurmctld whether its node is in service, from gRPC's threads."""

import json
import os
import shutil
import tempfile

import pytest

from nhc.agent.settings import NvhcdSettings
from nhc.core.model import Report
from nhc.core.settings import declared
from nhc.core.settings.settings_file import parse
from nhc.marks.ports.sinks import Delivery


@pytest.mark.slow
def test_a_node_that_slurm_has_drained_is_not_taken_again(cluster, monkeypatch):
    grpc = pytest.importorskip("grpc")
    from nhc.agent import nvhcd

    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    now = [0.0]
    path = f"{tempfile.mkdtemp(prefix='nhc-nvhcd-')}/s"
    log = []
    server = nvhcd.NvhcdServer(
        declared.whole(NvhcdSettings, parse(f'path = "{path}"\nscheduler = "slurm"', "agent.toml")),
        "n1",
        log.append,
        clock=lambda: now[0],
    )

    def failed():
        now[0] += nvhcd.LOOK_EVERY + 1.0
        with grpc.insecure_channel(f"unix:{path}") as channel:
            data = channel.unary_unary("/nvhcd.HealthCheckService/RunHealthCheck")(b"", timeout=60)
        return json.loads(data[data.index(b"{") : data.rindex(b"}") + 1])["failed_checks"]

    try:
        server.deliver(Delivery(Report("n1", "b", 0.0, 1.0, ()), True))
        assert failed() == [], log
        cluster.scontrol("update", "NodeName=n1", "State=DRAIN", "Reason=power supply")
        [reason] = failed()
        assert reason.startswith("out of service: idle+drain: power supply"), reason
        cluster.scontrol("update", "NodeName=n1", "State=RESUME")
        assert failed() == []
        assert log == []
    finally:
        server.close()
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
