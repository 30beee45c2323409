"""`nhc serve notices` is killed again and again while incidents begin and end: no notice is lost or made anew."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.store.intake import IntakeSettings
from nhc.store.reports import import_reports
from tests.support.new_store import new_store
from tests.support.run import nhc
from tests.support.waiting import until

KILLS = int(os.environ.get("NHC_KILLS", "8"))
"""50 take some minutes."""
NODES = 12


def report(number, verdict):
    outcome = Outcome(verdict, "GpuLost" if verdict is Verdict.CRIT else "", "", action=Action.NONE)
    return Report(
        f"n{number}", "b", time.time(), 1.0, (CheckResult("check_gpu", outcome),), labels={"rack": f"r{number}"}
    )


@pytest.mark.slow
def test_kills_lose_no_notice_and_repeat_one_under_its_own_id(tmp_path, receiver):
    store = new_store(str(tmp_path), anchor="")
    file = tmp_path / "notices.toml"
    key = tmp_path / "key"
    key.write_text("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
    key.chmod(0o600)
    file.write_text(
        f'store = "sqlite:///{tmp_path}/store.db"\nwait = "0s"\nsettle = "0s"\nevery = "0.1s"\nspread = 1000\n'
        f'most-per-minute = 1000\n[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\nsecret-file = "{key}"\n'
    )
    chance = random.Random(1)

    def slowly(_method, _path):
        time.sleep(0.03)
        return 200, {}, b""

    def started():
        process = subprocess.Popen(
            [sys.executable, "-m", "nhc", "serve", "notices", "-s", file], stderr=subprocess.PIPE
        )
        assert b"leads as" in process.stderr.readline()
        return process

    def told(kind):
        return len({headers["webhook-id"] for _, _, headers, body in list(receiver.came) if kind in body})

    receiver.default = slowly
    for verdict, kind in ((Verdict.CRIT, b"nhc.incident.open"), (Verdict.OK, b"nhc.incident.resolved")):
        made = [report(number, verdict) for number in range(NODES)]
        import_reports(store, made, "agent", IntakeSettings(), time.time())
        for _ in range(KILLS // 2):
            with started() as process:
                time.sleep(chance.uniform(0.0, 0.4))  # where in its work it dies is left to chance
                process.kill()
        with started() as process:
            until(lambda kind=kind: told(kind) == NODES, every=0.2)
            until(lambda: '"waiting": 0' in nhc("status", "notices", "-f", "json", "-s", file).stdout, every=0.5)
            process.terminate()
            assert process.wait(60) == 0
    store.close()
    by_id = {}
    order = {}
    for _, _, headers, body in receiver.came:
        value = json.loads(body)
        by_id.setdefault(headers["webhook-id"], set()).add(body)
        kinds = order.setdefault(value["data"]["nodes"], [])
        kinds.append(value["type"].rpartition(".")[2])
    assert len(by_id) == 2 * NODES, "each incident began once and ended once"
    assert all(len(bodies) == 1 for bodies in by_id.values()), "what is sent again is the same message"
    assert all(kinds == sorted(kinds) for kinds in order.values()), "open comes before resolved"
    assert len(receiver.came) <= len(by_id) + KILLS, "a kill repeats one message at most"
