"""Every command that stays: garbage is collected in it, and a thousand units of its work leave nothing behind."""

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from nhc.cli.main import HOOKS, one_shot
from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.marks.push import PATH
from nhc.store import nodes
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from tests.faults.doors import CONFIG, _kube, commands, no_slurm, put
from tests.faults.doors import Place as DoorPlace
from tests.faults.peers import Peer
from tests.support import intake
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.slurmrest import FakeSlurmRest
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[1]
NODES = 100
UNITS = 1000
GROWTH = 3 << 20
"""Bytes that a thousand units may add: what libraries keep once, measured as 0.1 to 0.9 MiB. Without collections a
thousand small pushes add 5.6 MiB to the server, a thousand pages 3.8 MiB to the console."""
BESIDE = {"nhc/cli/main.py", "nhc/agent/check_round.py"}
"""Who switches collections off: the entry point, and the process of one round."""


def test_collections_are_off_only_in_what_judges_this_node_once():
    assert [name for name in commands() if one_shot("nhc.cli.main", name.split())] == ["check local"]
    assert all(one_shot(module, []) for module in HOOKS)
    assert not one_shot("nhc.agent.main", [])


@pytest.mark.thorough
def test_nobody_else_switches_collections_off():
    found = set()
    for path in (*ROOT.glob("nhc/**/*.py"), *ROOT.glob("adapters/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "disable" and ast.unparse(node.value) == "gc":
                found.add(str(path.relative_to(ROOT)))
    assert found == BESIDE


def test_each_unit_that_stays_has_a_bound_on_its_memory():
    units = [*ROOT.glob("adapters/systemd/*.service"), *ROOT.glob("playbooks/**/*.service.j2")]
    assert len(units) > 10
    for unit in units:
        assert "\nMemoryMax=" in unit.read_text(), unit.name


def resident(pid):
    """Bytes of memory that is the process's own."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()[0]) * 1024


def report(number, at, verdict=Verdict.OK):
    results = [CheckResult(f"check_{row}", Outcome(Verdict.OK)) for row in range(20)]
    results.append(CheckResult("check_gpu_xid", Outcome(verdict, "" if verdict is Verdict.OK else "Xid79", "lost")))
    return Report(f"n{number}", "b1", at, 0.5, tuple(results))


class BusySlurm(FakeSlurmRest):
    """All nodes have jobs that do not end: who drains one waits."""

    def change(self, names, states, reason, user="root"):
        done = super().change(names, states, reason, user)
        for node in self.nodes.values():
            node["flags"] = ["ALLOCATED", *node["flags"][1:]]
        return done


class Place:
    """A store with a fleet, whose every tenth node is sick, its reports as files, and a scheduler with the nodes."""

    def __init__(self, base):
        self.base, self.now = base, time.time()
        self.reports = base / "reports"
        self.reports.mkdir()
        self.fleet = [report(number, self.now, Verdict(1 if number % 10 else 4)) for number in range(NODES)]
        for one in self.fleet:
            (self.reports / f"{one.host}.json").write_text(json.dumps(to_dict(one)))
        store = new_store(str(base))
        with store.write() as connection:
            nodes.describe(connection, [nodes.NodeDescription(one.host) for one in self.fleet])
            receive(connection, [Incoming(one, "test", self.now) for one in self.fleet])
        store.close()
        self.url = f"sqlite:///{base}/store.db"
        self.rest = BusySlurm([one.host for one in self.fleet], 41)
        threading.Thread(target=self.rest.serve_forever, daemon=True).start()
        self.listen = f"127.0.0.1:{free_port()}"
        self.started = []

    def start(self, *words, output=subprocess.DEVNULL):
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "SLURM_JWT": "a.b.c", "NHC_STORE": "",
               "HOME": str(self.base), "NHC_STATE_DIR": str(self.base / "state")}  # fmt: skip
        with open(self.base / "log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "nhc", *map(str, words)], env=env, stdout=output, stderr=log, cwd=self.base,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self):
        return (self.base / "log").read_text()[-2000:]

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.listen}{path}", timeout=60) as answer:
            return answer.read().decode()

    def listening(self, path="/metrics"):
        def answers():
            assert self.started[-1].poll() is None, self.said()
            try:
                return self.get(path)
            except OSError:
                return ""

        return until(answers, 120, said=self.said)

    def rounds(self, name, count):
        """Wait for so many more rounds of a service that counts them on its page."""

        def number():
            lines = [line for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
            return float(lines[0].split()[1]) if lines else 0.0

        begin = number()
        until(lambda: number() >= begin + count, 300, 0.02, what=f"{count} rounds", said=self.said)

    def remedy_settings(self):
        return put(
            self.base / "remedy.toml",
            f'store = "{self.url}"\nevery = "1s"\n[actions]\nmark = "dry-run"\n[sources]\nadapter = "slurm-rest"\n'
            f'reports = ["{self.reports}"]\nmax-age = "52w"\nsettle = "0s"\n[sources.settings]\n'
            f'NHC_SLURMREST = "{self.rest.address}"\n[bounds.fleet]\nout = "2"\n'
            f'[evidence]\ndirectory = "{self.base}/evidence"\n',
        )


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        if process.stdout is not None:
            process.stdout.close()
    made.rest.shutdown()
    made.rest.server_close()


def server(place):
    directory = place.base / "intake"
    directory.mkdir()
    made = intake.Server(
        directory, f"sqlite:///{directory}/store.db", "[limits]\npushes-a-node-and-minute = 100000\n"
    )  # fmt: skip
    place.started.append(made.process)
    headers, sent = {"Content-Encoding": "gzip", "Authorization": f"Bearer {made.token()}"}, [0]

    def push(number):
        one = report(1, place.now - 1e6 + number, Verdict.CRIT if number % 2 else Verdict.OK)
        with urllib3.PoolManager(1, retries=False, timeout=60) as pool:  # an agent that was started anew, each time
            assert pool.request("POST", made.url + PATH, body=intake.packed(one), headers=headers).status == 200

    def work(count):
        with ThreadPoolExecutor(8) as several:
            list(several.map(push, range(sent[0], sent[0] + count)))
        sent[0] += count

    return made.process, work


def console(place):
    settings = put(place.base / "console.toml", f'store = "{place.url}"\nlisten = "{place.listen}"\n')
    process = place.start("serve", "console", "--settings", settings)
    place.listening("/healthz")

    def work(count):
        for number in range(count):
            place.get(("/api/fleet", "/api/node/n10", "/api/causes", "/metrics")[number % 4])

    return process, work


def remedy(place):
    process = place.start("serve", "remedy", "-s", place.remedy_settings(), "--listen", place.listen)
    place.listening()
    return process, lambda count: place.rounds("nhc_remedy_rounds_total", max(3, count // NODES))


def train(place):
    put(
        place.base / "train.toml",
        'name = "kernel"\nwhy = "a drill"\nnodes = ["n*"]\nevery = "0.2s"\n[[work]]\nrung = "reboot"\n',
    )
    settings = place.remedy_settings()
    text = settings.read_text().replace('"dry-run"', '"on"\nreboot = "on"')
    quiet = '[quiet-hours]\nhours = ["Mon-Sun 00:00-24:00"]\n'  # it looks at its nodes, and begins nothing
    put(settings, f'{text}{quiet}[repairers.node]\nconfig = "{put(place.base / "ssh_config", "")}"\n')
    process = place.start("train", "run", place.base / "train.toml", "--apply", "-s", settings)

    def looks():
        return sum(asked.endswith("/nodes") for asked in place.rest.requests)

    def work(count):
        before = looks()
        until(lambda: looks() >= before + max(3, count // NODES), 120, said=place.said)

    return process, work


def notices(place):
    settings = put(
        place.base / "notices.toml",
        f'store = "{place.url}"\nevery = "0.1s"\n[channels.hook]\nkind = "alertmanager"\nurl = "http://127.0.0.1:9"\n',
    )
    process = place.start("serve", "notices", "-s", settings, "--listen", place.listen)
    place.listening()
    return process, lambda count: place.rounds("nhc_notices_rounds_total", count // 10)


def job(place):
    settings = put(
        place.base / "jobs.toml",
        f'store = "{place.url}"\nevery = "1s"\n[controllers.slurm]\n'
        f'conf = "{no_slurm(DoorPlace(place.base, place.base))}"\ntimeout = "1s"\n',
    )
    process = place.start("serve", "job", "-s", settings, "--listen", place.listen)
    place.listening()

    def work(count):
        place.rounds("nhc_job_rounds_total", 2)
        for _ in range(count):
            place.get("/metrics")

    return process, work


def serve(place):
    """All of a small site at once: the page counts the rounds of each."""
    put(
        place.base / "notices.toml",
        f'store = "{place.url}"\nevery = "0.1s"\n[channels.hook]\nkind = "alertmanager"\nurl = "http://127.0.0.1:9"\n',
    )
    put(place.base / "spares.toml", f'[pools.gpu]\ntype = "slurm"\nreservation = "spare"\nfor = "n*"\ntimeout = "1s"\n'
        f'conf = "{no_slurm(DoorPlace(place.base, place.base))}"\n')  # fmt: skip
    put(place.base / "server.toml", f'listen = "127.0.0.1:{free_port()}"\n')
    put(place.base / "store.toml", f'url = "{place.url}"\n')
    settings = put(
        place.base / "serve.toml",
        f'[remedy]\nsettings = "{place.remedy_settings()}"\n[notices]\nsettings = "{place.base}/notices.toml"\n'
        f'[spares]\nsettings = "{place.base}/spares.toml"\nevery = "1s"\n'
        f'[server]\nsettings = "{place.base}/server.toml"\nstore = "{place.base}/store.toml"\n',
    )
    process = place.start("serve", "-s", settings, "--listen", place.listen)
    place.listening()

    def work(count):
        place.rounds("nhc_notices_rounds_total", count // 10)
        place.rounds("nhc_remedy_rounds_total", 3)
        place.rounds("nhc_spares_rounds_total", 1)

    return process, work


def gate(place):
    suite = put(place.base / "suite.conf", CONFIG)
    settings = put(
        place.base / "gate.toml", f'scheduler = "none"\n[groups.all]\nnodes = "*"\nsuite = "{suite}"\n'
    )  # fmt: skip
    process = place.start(
        "gate", "run", "--apply", "--every", "1ms", "--format", "json", "-s", settings, output=subprocess.PIPE
    )  # fmt: skip
    return process, lambda count: [process.stdout.readline() for _ in range(count)]


def top(place):
    shown = []
    master, slave = os.openpty()

    def read():
        with contextlib.suppress(OSError):
            while data := os.read(master, 65536):
                shown.append(len(data))

    process = subprocess.Popen(
        [sys.executable, "-m", "nhc", "top", "--store", place.url, "--every", "0.2"], stdin=slave, stdout=slave,
        stderr=slave, cwd=place.base, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"},
    )  # fmt: skip
    os.close(slave)
    place.started.append(process)
    threading.Thread(target=read, daemon=True).start()
    until(lambda: sum(shown) > 2000, 120)

    def work(count):
        for _ in range(count // 10):  # each draws a table of all problems anew, forwards and back
            before = sum(shown)
            os.write(master, b"jk")
            until(lambda before=before: sum(shown) > before, 60, 0.005)

    return process, work


def controller(place):
    peer = Peer("list")
    door = DoorPlace(place.base, place.base, peer.address)
    process = place.start(*_kube("serve", "kubernetes")(door), "--listen", place.listen)
    place.listening()

    def work(count):
        for _ in range(count):
            place.get("/metrics")

    return process, work


def demo(place):
    process = place.start("demo", "--faults", "0", "--listen", place.listen, "--size", "64")
    place.listening("/healthz")

    def work(count):
        for number in range(count):
            place.get(("/api/fleet", "/api/causes")[number % 2])

    return process, work


SERVICES = (server, console, remedy, train, notices, job, serve, gate, top, controller, demo)


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES, ids=lambda one: one.__name__)
def test_a_thousand_units_of_work_leave_nothing_behind(place, service):
    process, work = service(place)

    work(UNITS // 4)
    before = resident(process.pid)
    work(UNITS)
    grown = resident(process.pid) - before
    assert process.poll() is None, place.said()
    assert grown < GROWTH, f"{grown / (1 << 20):.1f} MiB more, {before / (1 << 20):.1f} MiB before; {place.said()}"
