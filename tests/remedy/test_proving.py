"""The verify step's deep suite: the loop with its real store, a real sshd, and the real `nhc deep run` on the node."""

import json
import os
import sys
from pathlib import Path

import pytest

from nhc.core.model import Action, CheckResult, DeviceId, Report, crit, ok, unknown, warn
from nhc.core.render.json import render
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.ports.adapter import AdapterError, DeviceState
from nhc.marks.ports.repair import Machine, Rung
from nhc.marks.ports.runner import NotStarted, RunPhase, RunState
from nhc.remedy import proving
from nhc.remedy.operators import abort
from nhc.remedy.proving import ProofOrder, SuiteProver, proof_run, read, read_proof, report_in, suite_run
from nhc.remedy.remedy_file import parse
from nhc.store import deep, episodes
from nhc_adapters.node.runner import SshRunner
from tests.adapters.test_slurm_gate import TOOL
from tests.support.new_store import new_store
from tests.support.remedy_world import Sickness, World
from tests.support.ssh import sshd
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1"])
        text = running.config.read_text()
        running.config.write_text(f"Host n*\n  HostName 127.0.0.1\n{text}")
        yield running


class SuiteNode:
    """What is installed on the node: nhc, a suite, and the one fake, its tool."""

    def __init__(self, place, server):
        self.place, self.server = place, server
        (place / "triad").write_text(TOOL.format(place=place))
        (place / "suite.conf").write_text(
            f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {place}/triad --floor 10\n"
        )
        (place / "nhc").write_text(
            f"#!/bin/sh\nexport NHC_DEEP_DIR={place}/deep NHC_STATE_DIR={place}/state\n"
            f"export PYTHONPATH={ROOT}:{ROOT}/adapters\n"
            f'exec {sys.executable} -m nhc "$@" --adapter none\n'
        )
        for name in ("triad", "nhc"):
            (place / name).chmod(0o755)
        self.suite = str(place / "suite.conf")

    def runner(self, **more):
        user = "root" if os.geteuid() == 0 else os.environ.get("USER", "")
        given = {"config": str(self.server.config), "nhc": str(self.place / "nhc"), "user": user, "sudo": "no",
                 "root": f"{self.place}/root", **more}  # fmt: skip
        return SshRunner(given, {})

    def runs(self):
        path = self.place / "runs"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def node(tmp_path, server):
    (tmp_path / "node").mkdir()
    return SuiteNode(tmp_path / "node", server)


@pytest.fixture
def world(tmp_path):
    (tmp_path / "store").mkdir()
    store = new_store(str(tmp_path / "store"))
    yield World(store)
    store.close()


def proved_by(world, runner):
    return SuiteProver(world, runner, 600.0)


def rounds_until(world, controller, what, rounds=600):
    """Rounds of the loop, with real time for what runs in the background, until something is so."""

    def step():
        controller.round()
        world.tick(1.0)
        return what()

    return until(step, 60, every=0.02, what="the loop")


def settings(node):
    return f'[verify]\nhealthy-for = "2s"\ngrace = "0s"\nsuite = "{node.suite}"\nsuite-limit = "10m"\n'


class FakeRunner:
    """A runner whose runs are over at once; `says` makes the output of each new one."""

    def __init__(self, says):
        self.says, self.outputs = says, {}

    def start(self, run):
        if run.key not in self.outputs:
            self.outputs[run.key] = self.says(run)
        return run.key

    def poll(self, runs):
        return {run.key: RunState(RunPhase.ENDED, 0, self.outputs[run.key]) for run in runs}

    def stop(self, run):
        raise AssertionError("nothing runs")


def young(world):
    """What a node says that has just booted: in its first runs a part of the suite cannot tell yet."""
    early = iter([True] * 4)

    def says(run):
        found = unknown("BootWindow", "too early to tell") if next(early, False) else ok()
        results = (CheckResult("check_deep_gemm", ok()), CheckResult("check_gpu_fabric", found))
        return render(Report(run.nodes[0], "boot2", world.now, 1.0, results, labels={"suite": run.argv[3]}))

    return says


def test_a_suite_in_the_first_minutes_of_a_boot_is_no_try(world, monkeypatch):
    monkeypatch.setattr(proving, "PAUSE", 0.0)
    world.fall_sick("n0")
    more = '[verify]\nhealthy-for = "2s"\ngrace = "0s"\nsuite = "quick"\nsuite-limit = "10m"\n'
    controller = world.controller(more, suite=proved_by(world, FakeRunner(young(world))))
    rounds_until(world, controller, lambda: world.cleared == ["n0"])


def test_a_repaired_node_comes_back_only_when_its_suite_has_passed(world, node):
    (node.place / "hold").touch()
    world.fall_sick("n0")
    controller = world.controller(settings(node), suite=proved_by(world, node.runner()))
    rounds_until(world, controller, node.runs)
    for _ in range(5):
        controller.round()
        world.tick(1.0)
    assert world.cleared == [], "healthy reports alone do not bring it back"
    (node.place / "hold").unlink()
    rounds_until(world, controller, lambda: world.cleared == ["n0"])
    assert node.runs() == 1
    with world.read() as connection:
        (one,) = [row for row in deep.history(connection, "n0") if row.test == "check_deep_triad:host_triad"]
    assert (one.suite, one.verdict, one.value) == (node.suite, "OK", 20.0)


def test_a_node_whose_suite_fails_is_repaired_further_and_never_put_back(world, node):
    (node.place / "slow").touch()
    world.fall_sick("n0")
    controller = world.controller(settings(node), suite=proved_by(world, node.runner()))
    rounds_until(world, controller, lambda: len(world.sendings("n0")) > 1)
    assert world.sendings("n0")[:2] == [Rung.REBOOT, Rung.POWER_CYCLE]
    assert world.cleared == []


def test_a_controller_that_is_new_takes_the_report_that_the_node_has_kept(world, node):
    world.fall_sick("n0")
    first = world.controller(settings(node), suite=proved_by(world, node.runner()))
    rounds_until(world, first, node.runs)
    second = world.controller(settings(node), suite=proved_by(world, node.runner()))
    rounds_until(world, second, lambda: world.cleared == ["n0"])
    assert node.runs() == 1


def test_a_node_that_is_not_reached_proves_nothing_and_is_said(world, node):
    world.fall_sick("n0")
    controller = world.controller(settings(node), suite=proved_by(world, node.runner(port="1")))
    found = []

    def complained():
        found.extend(controller.flow.observer.problems)
        return found

    rounds_until(world, controller, complained)
    assert "Connection refused" in found[0]
    assert world.cleared == []


class Unreached:
    """Runs nothing: every node is away."""

    def start(self, run):
        raise NotStarted(f"{run.nodes[0]} is away")


@pytest.mark.thorough
def test_what_kept_the_suite_of_an_ended_episode_from_telling_is_said_no_more(world):
    text = "[verify]\nhealthy-for = '0s'\nsuite = 'quick'\nsuite-limit = '10s'"
    controller = world.controller(text, suite=proved_by(world, Unreached()))
    world.fall_sick("n0")
    rounds_until(world, controller, lambda: "n0 is away" in controller.flow.observer.problems)
    with world.read() as connection:
        (row,) = episodes.list_episodes(connection)
    abort(world.plain, row.id, by="alice", why="mine", now=world.now)
    world.fall_sick("n2")
    rounds_until(world, controller, lambda: "n2 is away" in controller.flow.observer.problems)
    assert controller.flow.observer.problems == ["n2 is away"]


def test_a_process_that_ends_after_its_round_can_wait_for_the_suite(world, node):
    """`nhc serve remedy --once`: what runs in the background would end with it, perhaps before the node is reached."""
    prover = proved_by(world, node.runner())
    controller = world.controller(settings(node), suite=prover)
    world.fall_sick("n0")
    rounds_until(world, controller, lambda: "suite: " in str(controller.round().waiting))
    prover.wait()
    assert node.runs() == 1
    rounds_until(world, controller, lambda: world.cleared == ["n0"])


@pytest.mark.thorough
@pytest.mark.parametrize("phase", [RunPhase.STOPPED, RunPhase.LOST])
def test_what_somebody_stopped_is_left_to_a_person_and_what_was_lost_is_run_again(world, monkeypatch, phase):
    monkeypatch.setattr(proving, "PAUSE", 0.0)
    runner = FakeRunner(lambda run: "")
    runner.poll = lambda runs: {run.key: RunState(phase, why="it is over") for run in runs}
    world.fall_sick("n0")
    text = "[verify]\nhealthy-for = '0s'\nsuite = 'quick'\nsuite-limit = '10s'"
    controller = world.controller(text, suite=proved_by(world, runner))
    rounds_until(world, controller, lambda: any("it is over" in one for one in controller.flow.observer.problems))
    for _ in range(20):
        controller.round()
        world.tick(1.0)
    if phase is RunPhase.LOST:
        rounds_until(world, controller, lambda: len(runner.outputs) > 2)
    assert (len(runner.outputs) == 1) is (phase is RunPhase.STOPPED)
    assert world.cleared == []


@pytest.mark.thorough
def test_a_lost_answer_is_looked_for_and_the_run_is_not_started_again(world):
    """A start that may have come to be, and looks that fail, say nothing of the run."""
    looks = iter([AdapterError("reset by peer"), RunState(RunPhase.UNKNOWN, why="no answer"),
                  RunState(RunPhase.ABSENT), RunState(RunPhase.RUNNING)])  # fmt: skip
    runner = FakeRunner(lambda run: text_of(GOOD))
    starts, poll = [], runner.poll

    def start(run):
        starts.append(run.key)
        runner.outputs[run.key] = text_of(GOOD)
        raise AdapterError("the answer was lost")

    def look(runs):
        seen = next(looks, None)
        if isinstance(seen, AdapterError):
            raise seen
        return poll(runs) if seen is None else {runs[0].key: seen}

    runner.start, runner.poll = start, look
    world.fall_sick("n0")
    text = '[verify]\nhealthy-for = "2s"\ngrace = "0s"\nsuite = "quick"\nsuite-limit = "10m"\n'
    rounds_until(world, world.controller(text, suite=proved_by(world, runner)), lambda: world.cleared == ["n0"])
    assert len(starts) == 1


ORDER = ProofOrder(Machine("n0"), "quick", 1000.25, 60.0)


def test_a_run_is_known_by_its_node_suite_repair_and_number():
    others = [ORDER._replace(machine=Machine("n1")), ORDER._replace(suite="burn"), ORDER._replace(since=1000.5),
              ORDER._replace(number=1)]  # fmt: skip
    keys = {suite_run(one).key for one in [ORDER, *others]}
    assert len(keys) == 5
    assert suite_run(ORDER._replace(seconds=5.0)).key == suite_run(ORDER).key
    proof = ORDER._replace(device=DeviceId("0000:3b:00.0"))
    proofs = [proof, proof._replace(number=1), proof._replace(device=DeviceId("0000:4b:00.0"))]
    assert len({proof_run(one, turn).key for one in proofs for turn in (0, 1)} | keys) == 11


@pytest.mark.parametrize("suite", ["-x", "$(HOME)", "a b", ""])
def test_what_is_no_name_of_a_suite_is_never_sent(suite):
    with pytest.raises(AdapterError, match="is not a suite's name"):
        suite_run(ORDER._replace(suite=suite))


REPORT = '{\n "host": "n1",\n "verdict": "OK"\n}'


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (REPORT, REPORT),
        (f"nhc deep run: a note\n{REPORT}\nanother\n", REPORT),
        (f'{{"not": "a report"}}\n{REPORT}', REPORT),
        (f"{{broken\n{REPORT}\n", REPORT),
        (REPORT[:-3], ""),
        ("", ""),
        ('x {"host": "n1"}', ""),
        ("{" * 100_000, ""),
    ],
)
def test_only_a_whole_report_is_read_from_an_output(log, found):
    assert report_in(log) == found


def text_of(*results, **more):
    report = Report("n0", "b", 5.0, 1.0, results, labels={"suite": "quick"})
    return render(report._replace(**more))


GOOD = CheckResult("check_a", ok("fine"))


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        (text_of(GOOD), True),
        (text_of(GOOD, CheckResult("check_b", crit("Bad", "wrong sums"))), False),
        (text_of(GOOD, CheckResult("check_b", unknown("NotThere", "no tool"))), None),
        (text_of(), None),
        (text_of(GOOD, host="n1"), None),
        (text_of(GOOD, labels={"suite": "burn"}), None),
        (text_of(GOOD)[:-9], None),
        ("", None),
    ],
)
def test_only_a_whole_report_of_this_suite_and_node_proves(text, passed):
    found = read(text, "n0", "quick")
    assert found.passed is passed
    assert bool(found.why) is (passed is not True)


def test_a_suite_that_outlasts_the_deadline_is_refused():
    with pytest.raises(SettingsError, match=r"remedy.toml:4: verify.suite-limit: is longer"):
        parse('[verify]\nsuite = "burn"\ndeadline = "1h"\nsuite-limit = "2h"\n')


# One device.

GPU3 = DeviceId("0000:3b:00.0", "GPU-3")


class DeviceRunner(FakeRunner):
    """Proves one device; `outcomes` are those of the next proofs, all well after that."""

    def __init__(self, outcomes=()):
        super().__init__(self.proved)
        self.outcomes, self.lines = list(outcomes), []

    def proved(self, run):
        assert "deep" not in run.argv, "no suite is run while the node's other devices are at work"
        self.lines.append(run.argv[3])
        outcome = self.outcomes.pop(0) if self.outcomes else ok("all right", target="gpu3")
        return render(Report(run.nodes[0], "boot1", 1.0, 0.1, (CheckResult("check_gpu_proof", outcome),)))


def fails(world):
    world.nodes["n0"].devices = {GPU3.pci: DeviceState("n0", GPU3)}
    sick = Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, "GpuFailed", "gpu3", device=GPU3)
    world.fall_sick("n0", sick)


DEVICE = '[devices]\nkeep = "device"\n[verify]\nhealthy-for = "2s"\ngrace = "0s"\n'


@pytest.mark.thorough
def test_a_device_comes_back_after_three_proofs_with_numbers_of_their_own(world):
    fails(world)
    runner = DeviceRunner()
    rounds_until(world, world.controller(DEVICE, suite=proved_by(world, runner)), lambda: len(world.device_marks) == 2)
    assert len(set(runner.lines)) == 3
    assert all("check_gpu_proof -d GPU-3 -s " in line for line in runner.lines)
    assert world.marked == []


@pytest.mark.parametrize("bad", [
    crit("GpuProofWrong", "wrong results", target="gpu3"), warn("GpuProofFlaky", "wrong once", target="gpu3"),
])  # fmt: skip
@pytest.mark.thorough
def test_one_proof_of_three_that_fails_makes_it_the_nodes(world, bad):
    fails(world)
    runner = DeviceRunner([ok("well", target="gpu3"), bad])
    rounds_until(world, world.controller(DEVICE, suite=proved_by(world, runner)), lambda: world.marked)
    assert len(runner.lines) == 2
    assert world.marked == ["n0"]


@pytest.mark.thorough
def test_a_proof_that_cannot_tell_gives_nothing_back(world):
    fails(world)
    runner = DeviceRunner([unknown("GpuProofHeld", "another program has it", target="gpu3")] * 9)
    controller = world.controller(DEVICE, suite=proved_by(world, runner))
    rounds_until(world, controller, lambda: runner.lines)
    assert world.device_marks == [("n0", GPU3.pci, True)]


def test_the_proof_of_another_node_or_check_proves_nothing():
    result = CheckResult("check_gpu_proof", ok("well"))
    assert read_proof(render(Report("n0", "b", 1.0, 0.1, (result,))), "n0").passed is True
    assert read_proof(render(Report("n1", "b", 1.0, 0.1, (result,))), "n0").passed is None
    assert read_proof(render(Report("n0", "b", 1.0, 0.1, (result._replace(check="check_x"),))), "n0").passed is None
    assert read_proof(render(Report("n0", "b", 1.0, 0.1, ())), "n0").passed is None
    assert read_proof("no report", "n0").passed is None


def test_the_proof_of_one_device_over_ssh(tmp_path, node):
    """A machine without a GPU says that it has none, under this check's name: that proves nothing."""
    (node.place / "nhc").write_text(
        f"#!/bin/sh\nexport NHC_STATE_DIR={node.place}/state PYTHONPATH={ROOT}:{ROOT}/adapters\n"
        f'echo "$@" > {node.place}/words\nexec {sys.executable} -m nhc "$@"\n'
    )
    runner, run = node.runner(), proof_run(ORDER._replace(device=GPU3), 0)
    runner.start(run)
    until(lambda: runner.poll([run])[run.key].phase is RunPhase.ENDED, 60, what="the proof")
    text = report_in(runner.poll([run])[run.key].output)
    assert read_proof(text, "n0").passed is None
    (result,) = json.loads(text)["results"]
    assert (result["check"], result["verdict"]) == ("check_gpu_proof", "SKIP")
    assert "check_gpu_proof -d GPU-3 -s " in result["line"]
    assert " --profile none -t 60s " in (node.place / "words").read_text()  # else others' lines, and 30 seconds
    with pytest.raises(AdapterError, match="not the name of a device"):
        proof_run(ORDER._replace(device=DeviceId("x; reboot")), 0)
