"""A maintenance train of four nodes on a real Slurm: drained, rebooted through RebootProgram, proved, resumed."""

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.store import audit, nodes, trains
from nhc.store.connect import open_store
from tests.support.new_store import new_store
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODES = ["t1", "t2", "t3", "t4"]
KILLS = int(os.environ.get("NHC_KILLS", "5"))
"""50 take some minutes."""
EXTRA = "RebootProgram=/bin/true\nResumeTimeout=60\n"
CODE = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def four(slurm_directory):
    need("slurm", not missing(), ", ".join(missing()))
    (slurm_directory / "train").mkdir()
    cluster = Cluster(slurm_directory / "train", NODES, EXTRA)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Train:
    """`nhc train` as a user starts it, over a store and reports of its own."""

    def __init__(self, place, cluster):
        self.place, self.cluster, self.child = place, cluster, None
        store = new_store(str(place))
        with store.write() as connection:
            nodes.describe(
                connection,
                [nodes.NodeDescription(name, groups={"rack": f"r{at // 2}"}) for at, name in enumerate(NODES)],
            )
        store.close()
        self.reports = place / "reports"
        self.reports.mkdir()
        (place / "remedy.toml").write_text(f"""
store = "sqlite:///{place}/store.db"
[sources]
adapter = "slurm"
reports = ["{self.reports}"]
[bounds.fleet]
out = "2"
repairing = "2"
[bounds.rack]
out = "2"
[breaker]
blind = "100"
[repairers.slurm]
boot-time = "60"
""")
        self.plan = place / "train.toml"
        self.plan.write_text("""
name = "kernel-6.12"
why = "kernel 6.12 with the new driver"
nodes = "t[1-4]"
every = "1s"
[[work]]
rung = "reboot"
takes = "2m"
[waves]
first = 1
size = "2"
per.rack = "1"
pause = "1s"
[verify]
healthy-for = "1s"
grace = "0s"
""")
        self.boots = dict.fromkeys(NODES, 1)

    def report(self):
        """Every node reports that it is well."""
        for name in NODES:
            report = Report(name, f"{name}-boot{self.boots[name]}", time.time(), 0.1,
                            (CheckResult("check_fs_used", Outcome(Verdict.OK)),))  # fmt: skip
            path = self.reports / f"{name}.json"
            path.with_suffix(".tmp").write_text(json.dumps(to_dict(report)))
            path.with_suffix(".tmp").replace(path)

    def words(self, *words):
        return [sys.executable, "-c", CODE, *words, "-s", str(self.place / "remedy.toml")]

    @property
    def env(self):
        return {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}

    def ask(self, *words):
        return subprocess.run(
            self.words(*words), env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def start(self):
        with open(self.place / "log", "ab") as log:
            words = self.words("train", "run", str(self.plan), "--apply")
            self.child = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)

    def rows(self):
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        try:
            with store.read() as connection:
                train = trains.get(connection, "kernel-6.12")
                if train is None:
                    return {}, [], []
                whats = [(one.what, one.node) for one in audit.entries(connection, limit=1000)]
                found = {row.node: row for row in trains.nodes_of(connection, train.id)}
                work = [one for some in trains.attempts_of(connection, train.id).values() for one in some]
                return found, work, whats
        finally:
            store.close()


@pytest.fixture
def train(four, tmp_path):
    made = Train(tmp_path, four)
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()
        made.child.wait(60)


def test_four_nodes_are_rebooted_once_each_though_the_process_is_killed(train, four):
    train.report()
    shown = train.ask("train", "plan", str(train.plan))
    assert "wave 1  1 node  t1" in shown.stdout, shown
    dry = train.ask("train", "run", str(train.plan))
    assert (dry.returncode, train.rows()[0]) == (0, {}), dry
    train.start()
    out, killed, issued, deadline = [], False, {}, time.monotonic() + 240
    while train.child.poll() is None or not killed:
        assert time.monotonic() < deadline, (train.place / "log").read_text()
        train.report()
        shown = four.scontrol("-o", "show", "node", ",".join(NODES)).stdout  # all four at one moment
        states = dict(re.findall(r"^NodeName=(\S+).* State=(\S+)", shown, re.MULTILINE))
        out.append(sum("DRAIN" in state or "DOWN" in state for state in states.values()))
        for name, state in states.items():
            if "REBOOT_ISSUED" not in state:
                continue
            if not killed:
                until(
                    lambda name=name: train.rows()[0][name].state not in ("acting", "recheck"),
                    60,
                    what="the answer to be written down",
                    said=lambda: (train.place / "log").read_text(),
                )
                train.child.kill()
                train.child.wait(60)
                killed = True
                train.start()
            begun = issued.setdefault((name, train.boots[name]), time.monotonic())
            if time.monotonic() > begun + 3:  # slurmctld's boot times waver by a second
                train.boots[name] += 1
                four.boot_node(name)
        time.sleep(0.2)
    log = (train.place / "log").read_text()
    assert train.child.returncode == 0, log
    rows, acts, whats = train.rows()
    assert {name: row.state for name, row in rows.items()} == dict.fromkeys(NODES, "returned"), log
    assert sorted((one.node, one.number, one.outcome) for one in acts) == [(name, 1, "succeeded") for name in NODES]
    assert [whats.count(("attempt.written", name)) for name in NODES] == [1, 1, 1, 1]
    assert train.boots == dict.fromkeys(NODES, 2)
    assert max(out) <= 2
    until(lambda: all(four.state(name) == "idle" for name in NODES), 60, what="the nodes to be in service")
    until(lambda: all(map(four.unmarked, NODES)), what="the reasons to go")
    again = train.ask("train", "run", str(train.plan), "--apply")
    assert (again.returncode, "has ended: it is done" in again.stderr) == (0, True), again
    status = train.ask("status", "train", "kernel-6.12")
    assert status.returncode == 0
    assert "done" in status.stdout
    assert status.stdout.count("returned") >= 4


def test_kills_at_any_moment_reboot_no_node_twice_and_lose_none(train, four):
    """A step that was cut off is looked at, never repeated: a node is rebooted once, or a person is asked for it."""
    chance, issued, deadline = random.Random(1), {}, time.monotonic() + 240
    kills, most = 0, 0
    train.report()
    train.start()
    begun = time.monotonic() + chance.uniform(0.3, 3.0)
    while train.child.poll() is None or train.child.returncode == -9:
        assert time.monotonic() < deadline + 6 * KILLS, (train.place / "log").read_text()
        if kills < KILLS and time.monotonic() > begun:
            train.child.kill()
            train.child.wait(60)
            kills += 1
            train.start()
            begun = time.monotonic() + chance.uniform(0.3, 3.0)  # where in its work it dies is left to chance
        train.report()
        shown = four.scontrol("-o", "show", "node", ",".join(NODES)).stdout
        states = dict(re.findall(r"^NodeName=(\S+).* State=(\S+)", shown, re.MULTILINE))
        most = max(most, sum("DRAIN" in state or "DOWN" in state for state in states.values()))
        for name, state in states.items():
            if "REBOOT_ISSUED" in state:
                since = issued.setdefault((name, train.boots[name]), time.monotonic())
                if time.monotonic() > since + 3:  # slurmctld's boot times waver by a second
                    train.boots[name] += 1
                    four.boot_node(name)
        time.sleep(0.2)
    log = (train.place / "log").read_text()
    rows, acts, whats = train.rows()
    assert kills == KILLS or all(row.state == "returned" for row in rows.values()), log
    assert all(train.boots[name] <= 2 for name in NODES), "no node was rebooted twice"
    assert all(whats.count(("attempt.written", name)) <= 1 for name in NODES)
    assert all(one.outcome for one in acts), "each attempt has an outcome"
    assert most <= 2, "the bound held"
    for name in NODES:
        state = rows[name].state
        assert state == "returned" or (log.count(name) and state != "acting"), (name, state, log)
    assert sum(row.state == "returned" for row in rows.values()) == sum(one.outcome == "succeeded" for one in acts), log
