"""`nhc serve remedy`, run as its user runs it: against a slurmrestd of the tests' own and a store in a file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.store import attempts, audit, episodes, holds, reports, schema
from nhc.store.attempts import AttemptStatus
from nhc.store.connect import open_store
from nhc.store.errors import RequestRefused
from nhc.store.intake import Incoming
from tests.support.new_store import new_store
from tests.support.slurmrest import FakeSlurmRest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[3]


class Site:
    """remedy.toml, a store, and three nodes behind a slurmrestd."""

    def __init__(self, place, rest):
        self.place, self.rest = place, rest
        new_store(str(place)).close()
        self.url = f"sqlite:///{place}/store.db"
        self.reports = place / "reports"
        self.reports.mkdir()
        self.settings = place / "remedy.toml"
        self.write("")

    def write(self, actions, more=""):
        self.settings.write_text(
            f"""store = "{self.url}"
every = "1s"
[actions]
{actions}
[sources]
adapter = "slurm-rest"
reports = ["{self.reports}"]
settle = "0s"
[sources.settings]
NHC_SLURMREST = "{self.rest.address}"
[bounds.fleet]
out = "2"
[limits]
first-run = "2"
[evidence]
directory = "{self.place}/evidence"
{more}"""
        )

    def report(self, name, *failures, at=None):
        results = tuple(
            CheckResult("check_gpu", Outcome(Verdict.CRIT, reason, f"{reason} was seen", action=action))
            for reason, action in failures
        ) or (CheckResult("check_gpu", Outcome(Verdict.OK)),)
        report = Report(name, "boot1", time.time() if at is None else at, 0.1, results)
        (self.reports / f"{name}.json").write_text(json.dumps(to_dict(report)))

    def start(self, *words):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "SLURM_JWT": "a.b.c",
               "HOME": str(self.place), "LANG": "C.UTF-8"}  # fmt: skip
        code = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-c", code, *words, "-s", str(self.settings)], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def nhc(self, *words):
        """The status, standard output and standard error of one command."""
        child = self.start(*words)
        out, err = child.communicate(timeout=120)
        assert "Traceback" not in err
        return child.returncode, out, err

    def store(self):
        return open_store(self.url)


@pytest.fixture
def site(tmp_path):
    import threading

    with FakeSlurmRest(["n1", "n2", "n3"], 40) as rest:
        threading.Thread(target=rest.serve_forever, daemon=True).start()
        yield Site(tmp_path, rest)
        rest.shutdown()


def test_a_dry_run_shows_the_plan_and_changes_nothing(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    status, out, _ = site.nhc("serve", "remedy", "--dry-run")
    assert status == 0
    assert "would mark  n1  GpuLost was seen" in out
    assert "dry run: nothing changed" in out
    assert site.rest.nodes["n1"]["flags"] == ["IDLE"]
    status, out, _ = site.nhc("serve", "remedy", "--once")  # nothing is enabled, so nothing is done either
    assert (status, site.rest.nodes["n1"]["flags"]) == (0, ["IDLE"])
    store = site.store()
    with store.read() as connection:
        assert episodes.list_episodes(connection) == []
    store.close()
    status, out, _ = site.nhc("status", "remedy")  # it knows no plan, and says which command shows it
    assert (status, "nhc serve remedy --dry-run" in out) == (0, True)


def test_one_round_marks_and_says_why_it_goes_no_further(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write('mark = "on"')
    status, out, _ = site.nhc("serve", "remedy", "--once")
    assert status == 0
    assert "DRAIN" in site.rest.nodes["n1"]["flags"]
    assert site.rest.nodes["n1"]["reason"].startswith("NHC-REMEDY: [node] check_gpu: GpuLost was seen")
    assert "n1  episode 1  escalated  no repair is left on the ladder" in out
    status, out, _ = site.nhc("list", "episodes", "-w", "n1", "-f", "json")
    (row,) = json.loads(out)
    assert (row["node"], row["state"]) == ("n1", "escalated")
    assert [one["rung"] for one in row["skipped"]] == ["reboot", "power-cycle", "replace"]
    status, out, _ = site.nhc("show", "episode", "1")
    assert status == 0
    assert "skipped  reboot: no repairer is set up for reboot on this node" in out
    assert "  fault  check_gpu, GpuLost: " in out  # in words, not as the store keeps it
    assert "episode.escalated  because: no repair is left on the ladder; " in out  # and so are its steps
    assert "{" not in out
    status, out, _ = site.nhc("status", "remedy")
    assert (status, "no repair is left on the ladder: nhc release remedy n1\n" in out) == (0, True)


def test_a_source_of_reports_that_holds_none_is_said_and_one_that_is_not_there_is_a_mistake(site):
    site.report("n1")
    empty = site.place / "empty"
    empty.mkdir()
    (site.place / "strange").mkdir()
    (site.place / "strange/n2.txt").write_text("{}")
    text = site.settings.read_text()
    more = text.replace(f'["{site.reports}"]', f'["{site.reports}", "{empty}", "{site.place}/strange"]')
    site.settings.write_text(more)
    status, _out, err = site.nhc("serve", "remedy", "--once")
    assert status == 0, err
    assert f"{empty}: no *.json" in err
    assert f"{site.place}/strange: 1 file is passed over" in err
    status, out, _err = site.nhc("doctor", "remedy", "-f", "json")
    assert f"{empty}: no *.json" in out
    site.settings.write_text(text.replace(f'["{site.reports}"]', f'["{site.reports}", "{site.place}/gone"]'))
    status, _out, err = site.nhc("serve", "remedy", "--once")
    assert (status, f"{site.place}/gone: No such file" in err) == (1, True)


def test_one_round_for_cron_waits_for_the_evidence_that_it_has_begun_to_collect(site):
    """What is collected in the background ends with the process: each run began anew, and none came to a repair."""
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write(
        'mark = "on"\nreboot = "on"',
        '[repairers.ipmi]\nbmc = "127.0.0.1"\nidentity = "trust"\nnodes = "n1"\npassword-file = "/nonexistent"\n',
    )
    status, out, _ = site.nhc("serve", "remedy", "--once", "-f", "json")
    done = json.loads(out)
    assert [one["to"] for one in done["steps"]][-2:] == ["evidence", "recheck"]
    assert (status, done["opened"]) == (0, 1)
    assert done["waiting"][0]["why"].startswith("unseen: ")
    status, out, _ = site.nhc("show", "episode", "1", "-f", "json")
    assert "ipmi" in [one["name"] for one in json.loads(out)["evidence"]]


def test_release_proves_a_node_and_brings_it_back(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write('mark = "on"', '[verify]\nhealthy-for = "0s"\n')
    assert site.nhc("serve", "remedy", "--once")[0] == 0
    site.report("n1")
    site.nhc("serve", "remedy", "--once")
    assert "DRAIN" in site.rest.nodes["n1"]["flags"]  # it was left to a person
    status, out, _ = site.nhc("release", "remedy", "n1", "--why", "cable seated", "--by", "ann")
    assert (status, out) == (0, "episode 2 proves n1 and brings it back\n")
    site.report("n1")
    assert site.nhc("serve", "remedy", "--once")[0] == 0
    assert site.rest.nodes["n1"]["flags"] == ["IDLE"]
    store = site.store()
    with store.read() as connection:
        assert [row.state for row in episodes.list_episodes(connection)] == ["escalated", "returned"]
        assert audit.entries(connection, episode=2)[0].actor == "ann"
    store.close()
    assert site.nhc("release", "remedy", "n1")[0] == 2


def test_hold_abort_and_the_breaker(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write('mark = "on"')
    assert site.nhc("hold", "remedy", "n1", "--why", "mine", "--until", "2h")[0] == 0
    site.nhc("serve", "remedy", "--once")
    assert site.rest.nodes["n1"]["flags"] == ["IDLE"]
    assert site.nhc("hold", "remedy", "n1.example.org", "--why", "mine")[2] == ""  # the same node
    status, _, err = site.nhc("hold", "remedy", "nl", "--why", "a slip of the pen")
    assert (status, err.partition(" to ")[0]) == (0, "nhc hold remedy: nl: no node of that name has reported")
    status, out, _ = site.nhc("status", "remedy")
    assert "n1 by" in out
    status, out, _ = site.nhc("abort", "episode", "1", "--why", "no")
    assert (status, out) == (0, "episode 1 of n1 is aborted\n")
    assert site.nhc("abort", "episode", "1", "--why", "no")[0] == 2
    assert site.nhc("abort", "episode", "99", "--why", "no")[0] == 2
    store = site.store()
    with store.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="test", why="many at once", now=time.time())
    store.close()
    status, out, _ = site.nhc("status", "remedy")
    assert status == 1
    assert "OPEN since" in out
    assert site.nhc("release", "remedy", "breaker")[0] == 2  # not without a reason
    assert site.nhc("release", "remedy", "breaker", "--why", "a switch was replaced")[0] == 0
    assert site.nhc("status", "remedy")[0] == 0
    assert site.nhc("hold", "remedy", "n2", "--why", "x", "--until", "yesterday")[0] == 2


def test_the_loop_runs_serves_metrics_and_ends_with_a_signal(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write('mark = "on"')
    file = site.place / "metrics.prom"
    child = site.start("serve", "remedy", "--metrics-file", str(file))
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.05)
    text = file.read_text()
    assert "nhc_remedy_leader 1" in text
    assert 'nhc_remedy_episodes{state="detected"} 0' in text
    second = site.nhc("serve", "remedy", "--once")
    assert second[0] == 3
    assert "another leads this store" in second[2]
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "episode 1  marked" in out
    assert "leads as" in err


def test_simulate_shows_what_another_policy_would_do(site):
    for name in ("n1", "n2"):
        site.report(name, ("GpuLost", Action.REBOOT), at=1_700_000_000.0)
    site.write('mark = "on"\nreboot = "on"')
    other = site.place / "new.toml"
    other.write_text(site.settings.read_text().replace('reboot = "on"', 'reboot = "off"\npower-cycle = "on"'))
    status, out, _ = site.nhc("simulate", "remedy", "--policy", str(other), "-r", str(site.reports))
    assert status == 1
    assert "  - mark, reboot, return\n  + mark, power-cycle, return" in out
    assert "2 nodes are treated otherwise" in out
    status, out, _ = site.nhc(
        "simulate", "remedy", "--policy", str(site.settings), "-r", str(site.reports), "-f", "json"
    )
    assert (status, json.loads(out)["differences"]) == (0, [])
    assert site.rest.nodes["n1"]["flags"] == ["IDLE"]
    assert site.nhc("simulate", "remedy", "--policy", str(other))[0] == 3  # the store has no history


def test_doctor_names_what_is_missing(site):
    site.write('mark = "on"\nreboot = "on"')
    status, out, _ = site.nhc("doctor", "remedy")
    assert status == 1
    assert "knows 3 nodes" in out
    assert "rung reboot" in out
    site.write("")
    status, out, _ = site.nhc("doctor", "remedy", "-f", "json")
    assert status == 0
    assert {one["what"]: one["ok"] for one in json.loads(out)} == {
        "store": True, "reports": None, "adapter slurm-rest": True, "actions": None, "evidence": True
    }  # fmt: skip


def test_doctor_names_nodes_that_report_under_a_name_that_the_scheduler_does_not_know(site):
    """An agent that is not told its NodeName reports as its host: its faults would be nobody's."""

    def said():
        status, out, _ = site.nhc("doctor", "remedy", "-f", "json")
        return status, {one["what"]: (one["ok"], one["message"]) for one in json.loads(out)}.get("reports")

    now = time.time()
    with contextlib.closing(open_store(site.url)) as store, store.write() as connection:
        sick = Report("host7", "boot1", now, 0.1, (CheckResult("check_gpu", Outcome(Verdict.CRIT, "GpuLost", "lost")),))
        reports.receive(connection, [Incoming(sick, "agent", now)])
    assert said() == (1, (False, "nothing is done for host7: slurm-rest has no such node"))
    with contextlib.closing(open_store(site.url)) as store, store.write() as connection:
        well = Report("n1.example.org", "boot1", now, 0.1, (CheckResult("check_gpu", Outcome(Verdict.OK)),))
        reports.receive(connection, [Incoming(well, "agent", now)])
    assert said() == (0, (None, "nothing is done for host7: slurm-rest has no such node"))


def test_doctor_walks_one_node_for_each_repairer_up_to_its_call(site):
    from nhc.store import nodes
    from tests.support.redfish import Controller

    bmc = Controller()
    (site.place / "password").write_text("correct horse\n")
    more = f"""[repairers.redfish]
bmc = "{bmc.url}"
user = "nhc"
password-file = "{site.place}/password"
[repairers.elsewhere]
type = "redfish"
bmc = "{bmc.url}"
nodes = "gpu*"
"""
    site.write("", more)

    def walked():
        status, out, _ = site.nhc("doctor", "remedy", "-f", "json")
        found = {one["what"]: (one["ok"], one["message"]) for one in json.loads(out)}
        return status, found["repairer redfish on a node"], found["repairer elsewhere on a node"]

    status, mine, others = walked()
    assert (status, mine[0], others) == (
        1,
        False,
        (False, "none of the cluster's nodes is one that it is set up for (nodes)"),
    )
    assert mine[1].startswith("n1: ")
    assert "UUID" in mine[1]
    store = open_store(site.url)
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n2", uuid=bmc.uuid)])
    store.close()
    assert walked()[1] == (True, f"n2 ({bmc.uuid.lower()} On): would reboot, power-cycle")
    assert bmc.calls == []
    bmc.close()


@pytest.mark.parametrize(
    ("words", "text", "status", "said"),
    [
        (["serve", "remedy", "--once"], "x = 1", 2, "there is no such key"),
        (
            ["serve", "remedy", "--once"],
            'store = "mysql://x/y"\n[sources]\nadapter = "slurm"',
            3,
            "sqlite or postgresql",
        ),
        (["serve", "remedy", "--once"], "", 2, "sources.adapter: missing"),
        (["serve", "remedy", "--once"], '[sources]\nadapter = "slrm"', 2, "did you mean slurm"),
        (
            ["serve", "remedy", "--once"],
            '[sources]\nadapter = "slurm"\n[repairers.x]\n',
            2,
            "remedy.toml:3: repairers.x.type: there is no repairer called 'x'",
        ),
        (
            ["doctor", "remedy"],
            '[sources]\nadapter = "slurm"\n[repairers.slurm]\nboot_time = 60\n',
            2,
            "remedy.toml:4: repairers.slurm.boot_time: there is no such key: did you mean 'boot-time'?",
        ),
        (
            ["doctor", "remedy"],
            '[sources]\nadapter = "slurm"\n[repairers.pool]\ntype = "slurm"\nreplace = "x"\n',
            2,
            "remedy.toml:5: repairers.pool.replace: 'x' is not one of no, power, hyperpod",
        ),
        (["status", "remedy"], 'store = "/no/such/place/store.db"', 3, "No such file"),
    ],
)
def test_mistakes_are_one_line(site, words, text, status, said):
    site.settings.write_text(text)
    found = site.nhc(*words)
    assert found[0] == status
    assert said in found[2]
    assert len(found[2].strip().splitlines()) == 1


def test_without_settings_one_line_says_so_and_what_to_do():
    argv = [sys.executable, "-m", "nhc", "serve", "remedy", "--once"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "there is no /etc/nhc/remedy.toml: name the settings with -s" in done.stderr


def test_status_counts_the_clusters_nodes_where_the_store_has_none(site):
    site.store().close()
    status, out, _ = site.nhc("status", "remedy")
    assert (status, "3 without a report (by the cluster: the store has none)" in out) == (0, True)
    site.rest.shutdown()
    site.rest.server_close()
    status, out, _ = site.nhc("status", "remedy")
    assert (status, "nodes     the store knows none, and the cluster cannot be asked: " in out) == (0, True)


def test_release_takes_a_set_of_nodes_and_all_that_were_escalated(site):
    site.write('mark = "on"', '[breaker]\nfaults = "100%"\n')
    for name in ("n1", "n2"):
        site.report(name, ("GpuLost", Action.REBOOT))
    site.nhc("serve", "remedy", "--once")
    store = site.store()
    with store.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="test", why="many at once", now=time.time())
        assert [row.state for row in episodes.list_episodes(connection)] == ["escalated", "escalated"]
    store.close()
    status, out, _ = site.nhc("release", "remedy", "breaker", "--why", "a switch was replaced")
    assert (status, out.splitlines()[1].partition(": nhc ")[0]) == (0, "2 nodes left to a person: n[1-2]")
    status, out, err = site.nhc("release", "remedy", "n[1,3]", "--why", "looked")
    assert (status, out, "n3: neither held" in err) == (2, "episode 3 proves n1 and brings it back\n", True)
    status, out, _ = site.nhc("release", "remedy", "--all-escalated", "--why", "looked")
    assert (status, out) == (0, "episode 4 proves n2 and brings it back\n")
    for words in (("--all-escalated",), (), ("n1", "--all-escalated"), ("n[1-",)):
        assert site.nhc("release", "remedy", *words)[0] == 2
    assert site.nhc("hold", "remedy", "n[1-2]", "--why", "mine")[0] == 0
    status, out, _ = site.nhc("status", "remedy", "-f", "json")
    assert [hold["name"] for hold in json.loads(out)["holds"]] == ["n1", "n2"]
    status, out, _ = site.nhc("release", "remedy", "n[1-2]")
    assert (status, out) == (0, "n1 is no longer held\nn2 is no longer held\n")


def test_a_hold_ends_by_a_year_that_a_calendar_has(site):
    """Whoever sets it, and what an older release took still reads."""
    for until in ("11574074074d", "9999999d", "31688787-11-27T12:00:00Z"):
        assert site.nhc("hold", "remedy", "n1", "--why", "x", "--until", until)[0] == 2
    store = site.store()
    with store.write() as connection:
        with pytest.raises(RequestRefused):
            holds.hold(connection, "node", "n1", by="a", why="x", now=time.time(), until=1e15)
        made = holds.hold(connection, "node", "n1", by="a", why="x", now=time.time(), until=2e9)
        connection.execute(sa.update(schema.holds).where(schema.holds.c.id == made.id).values(until=1e15))
    store.close()
    status, out, _ = site.nhc("status", "remedy")
    assert (status, "until 9999-12-31T23:59:59Z" in out) == (0, True)
    assert site.nhc("serve", "remedy", "--once")[0] == 0


def test_episodes_lists_what_has_ended_and_what_was_done(site):
    site.report("n1", ("GpuLost", Action.REBOOT))
    site.write('mark = "on"')
    site.nhc("serve", "remedy", "--once")
    store = site.store()
    with store.write() as connection:
        old, _new = episodes.open_episode(
            connection, "n2", "check_gpu|Xid95|", action="reboot", state="detected", now=time.time() - 90000, by="x",
            detail="{}",
        )  # fmt: skip
        attempt = attempts.next_attempt(old, (), rung="reboot", device="", repairer="ipmi", key="k",
                                        now=time.time(), before="{}")  # fmt: skip
        (attempt,) = attempts.insert_all(connection, [attempt])
        attempts.end_attempt(connection, attempt, AttemptStatus.SUCCEEDED, now=time.time(), by="x", message="")
        step = episodes.EpisodeStep("x", "episode.returned")
        ended = time.time() - 86400
        episodes.save_step(connection, old, step, now=ended, state="returned", ended=ended, outcome="cleared")
    store.close()

    def listed(*words):
        status, out, _ = site.nhc("list", "episodes", *words, "-f", "json")
        assert status == 0
        return [(row["node"], row["state"], row["done"]) for row in json.loads(out)]

    n1, n2 = ("n1", "escalated", []), ("n2", "returned", ["reboot succeeded"])
    assert listed() == []
    assert listed("--ended") == [n1, n2]
    assert listed("--ended", "12h") == listed("--since", "12h") == [n1]
    assert listed("--since", "2d") == [n1, n2]
    assert listed("-w", "n[2-3]") == [n2]
    assert listed("-w", "n2", "--since", "12h") == []
    assert site.nhc("list", "episodes", "--since", "last night")[0] == 2
    status, out, _ = site.nhc("list", "episodes", "-w", "n2")
    assert (status, "reboot succeeded" in out) == (0, True)
