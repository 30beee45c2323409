"""What follows from a report, with a resource manager that a test plays: exit statuses, memory, bounds, breakage."""

from __future__ import annotations

import os
import sys
import threading
import time
import types

import pytest

from nhc.core.matching.node_ranges import fold
from nhc.core.model import CheckResult, Report, crit, ok, unknown, warn
from nhc.core.plan import Item, Plan
from nhc.core.resource_manager import NO_HOOK_ADAPTERS
from nhc.core.state.store import State
from nhc.hooks import marking
from nhc.hooks.after_report import after_report
from nhc.hooks.internal_error import QUIET, broken
from nhc.hooks.job_environment import NOTES, watch_only
from nhc.hooks.outcome import UNHEALTHY
from nhc.hooks.recent import fresh_report, remember
from nhc.marks import plugins
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Mark, NodeState


class Scheduler:
    """Three nodes; `calls` is what it was asked and told."""

    def __init__(self):
        self.states = {name: NodeState(name, "idle", True) for name in ("n1", "n2", "n3")}
        self.calls, self.told, self.remarks, self.fails = [], [], {}, False

    def nodes(self, names=None):
        self.calls.append(f"read {fold(names) if names else 'all'}")
        if self.fails:
            raise AdapterError("the controller does not answer")
        return [state for name, state in self.states.items() if names is None or name in names]

    def mark(self, marks, seen=None):
        for name, mark in marks.items():
            self.calls.append(f"mark {name}")
            self.states[name] = NodeState(name, "drain", False, mark=mark)
        return [Applied(name, Effect.CHANGED) for name in marks]

    def clear(self, names, seen=None):
        for name in names:
            self.calls.append(f"clear {name}")
            self.states[name] = NodeState(name, "idle", True)
        return [Applied(name, Effect.CHANGED) for name in names]

    def tell_job(self, job, text):
        self.told.append((job, text))

    def comment(self, name, text):
        if self.fails:
            raise AdapterError("the controller does not answer")
        self.remarks[name] = text
        return True

    def comments(self):
        return {name: text for name, text in self.remarks.items() if text}


@pytest.fixture
def scheduler(monkeypatch, tmp_path):
    fake = Scheduler()
    monkeypatch.setattr("nhc.hooks.marking.scheduler", lambda environ, settings: fake)
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path / "ledger"))
    return fake


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path / "state"))


def report(*outcomes, host="n1", boot="boot1"):
    return Report(host, boot, time.time(), 0.1, tuple(CheckResult("check_x", outcome) for outcome in outcomes))


BAD = crit("X", "bad")
JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}


def run(context, found, state, **settings):
    return after_report(context, found, JOB, settings, state)


def test_an_unhealthy_prolog_drains_tells_the_owner_and_requeues(scheduler, state):
    assert run("prolog", report(ok(), BAD), state) == UNHEALTHY
    assert scheduler.states["n1"].mark.why == "check_x: bad"
    assert scheduler.told == [("7", "NHC: node n1 is unhealthy, the job is requeued: check_x: bad")]


@pytest.mark.parametrize("outcome", [ok(), warn("W", "slow"), unknown("U", "?")])
def test_any_other_prolog_starts_the_job_without_a_word_to_the_controller(scheduler, state, outcome):
    assert run("prolog", report(outcome), state) == 0
    assert scheduler.calls == []


def test_a_controller_that_does_not_answer_requeues_the_job_all_the_same(scheduler, state):
    scheduler.fails = True
    assert run("prolog", report(BAD), state) == UNHEALTHY


def test_a_healthy_node_asks_the_controller_once_and_again_after_a_reboot(scheduler, state):
    for _ in range(3):
        assert run("healthcheck", report(ok()), state) == 0
    assert scheduler.calls == ["read n1"]
    run("healthcheck", report(ok(), boot="boot2"), state)
    assert scheduler.calls == ["read n1", "read n1"]
    run("healthcheck", report(ok(), boot="boot2"), state, NHC_REREAD="0")
    assert scheduler.calls == ["read n1"] * 3


def test_a_node_that_a_hook_marked_is_put_back_when_healthy_and_not_while_unknown(scheduler, state):
    run("healthcheck", report(ok()), state)
    run("prolog", report(BAD), state)
    scheduler.calls.clear()
    run("healthcheck", report(unknown("U", "?")), state)
    assert scheduler.calls == []
    run("healthcheck", report(ok()), state)
    assert scheduler.calls == ["read n1", "clear n1"]


def test_an_operators_drain_stays(scheduler, state):
    scheduler.states["n1"] = NodeState("n1", "drain", False, mark=Mark("DIMM", owner="root"))
    assert run("healthcheck", report(ok()), state) == 0
    assert run("healthcheck", report(BAD), state) == 0
    assert [call for call in scheduler.calls if not call.startswith("read")] == []


def test_the_bound_keeps_the_node_in_service_and_starts_the_job(scheduler, state):
    scheduler.states["n2"] = NodeState("n2", "drain", False, mark=Mark("bad"))
    assert run("prolog", report(BAD), state) == 0  # 50% of three nodes is one
    assert scheduler.states["n1"].available
    assert run("prolog", report(BAD), state, NHC_MAX_DRAINED="none") == UNHEALTHY


class Together(Scheduler):
    """All three nodes set their marks before the first of them has its answer."""

    def __init__(self):
        super().__init__()
        self.all_there = threading.Barrier(3, timeout=60)

    def mark(self, marks, seen=None):
        self.all_there.wait()
        done = super().mark(marks, seen)
        self.all_there.wait()
        return done


@pytest.mark.parametrize("bound", [1, 2])
def test_nodes_that_fail_in_the_same_second_keep_the_bound(monkeypatch, tmp_path, capsys, bound):
    """Each has found room before any mark stood. Who sees then that they are too many goes back into service. One of
    those that stay out, the last, says for all that they share a fault.
    """
    fake = Together()
    monkeypatch.setattr("nhc.hooks.marking.scheduler", lambda environ, settings: fake)
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path / "ledger"))
    ended = {}

    def one(name):
        memory = State(str(tmp_path / name))
        found = report(BAD, host=name)._replace(started=1000.0)  # a scheduler that counts in seconds
        ended[name] = after_report("prolog", found, JOB, {"NHC_MAX_DRAINED": str(bound)}, memory)

    threads = [threading.Thread(target=one, args=(name,)) for name in fake.states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out = {name for name, found in fake.states.items() if not found.available}
    assert out == {"n1", "n2"} - ({"n2"} if bound == 1 else set()), "the first by time and name: nothing flaps"
    shared = [line for line in capsys.readouterr().err.splitlines() if "common cause" in line]
    assert len(shared) == 1 or (bound, shared) == (1, [])  # who is alone by then knows of no other
    assert all("check_x: the same fault on " in line for line in shared)
    assert {name for name, status in ended.items() if status == UNHEALTHY} == out, "who is in service starts the job"


def test_a_node_that_the_bound_keeps_in_service_says_so_once_an_hour_and_how_many_share_its_fault(
    scheduler, state, capsys
):
    scheduler.states["n2"] = NodeState("n2", "drain", False, mark=Mark("check_x: bad"))
    for _round in range(3):
        assert run("healthcheck", report(BAD), state) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "not marked" in line]
    assert "1 of 3 nodes are marked already, 1 of them for the same fault; NHC_MAX_DRAINED is 50%" in said
    assert run("healthcheck", report(crit("Y", "worse")), state) == 0
    assert "worse; not marked" in capsys.readouterr().err


def test_of_nodes_with_the_same_fault_and_no_room_one_logs_it(scheduler, tmp_path, capsys):
    """Other faults have filled the bound; each has its own memory, and they meet in the scheduler's comments alone."""
    scheduler.states["n9"] = NodeState("n9", "drain", False, mark=Mark("check_y: another fault"))
    states = {name: State(str(tmp_path / name)) for name in ("n1", "n2", "n3")}

    def check(outcome, *names):
        for name in names:
            after_report("healthcheck", report(outcome, host=name), {"SLURMD_NODENAME": name}, {"NHC_MAX_DRAINED": "1"},
                         states[name])  # fmt: skip
        said = [line for line in capsys.readouterr().err.splitlines() if " is unhealthy" in line]
        return [line.split()[1] for line in said if marking.LOGGED not in line]

    assert check(BAD, "n2", "n1", "n3") == ["n2"]
    assert set(scheduler.remarks) == {"n1", "n2", "n3"}
    assert check(BAD, "n2", "n1", "n3") == [], "once an hour"
    for memory in states.values():
        memory.update("said", lambda memory: memory.clear())
    assert check(BAD, "n2", "n1", "n3") == ["n1"], "an hour later it is the first by name"
    check(ok(), "n1")
    assert scheduler.remarks["n1"] == ""
    scheduler.states["n9"] = NodeState("n9", "idle", True)
    assert check(BAD, "n2") == ["n2"]
    assert (scheduler.states["n2"].available, scheduler.remarks["n2"]) == (False, "")


def test_a_check_that_could_not_tell_is_named_once_an_hour(scheduler, state, capsys):
    for reason in ("U", "U", "V"):
        assert run("healthcheck", report(unknown(reason, "no answer")), state) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "could not tell" in line]
    assert ["check_x" in line for line in said] == [True] * len(said)
    assert 1 <= len(said) <= 2, "the same again is no new line"
    assert scheduler.calls == []


def test_the_bound_counts_in_each_partition_of_the_node(scheduler, state):
    """Two GPU nodes of ten: half of all is five, half of the partition one."""
    for number in range(1, 11):
        groups = ("all", "gpu") if number <= 2 else ("all",)
        scheduler.states[f"n{number}"] = NodeState(f"n{number}", "idle", True, groups=groups)
    scheduler.states["n2"] = NodeState("n2", "drain", False, mark=Mark("bad"), groups=("all", "gpu"))
    assert run("prolog", report(BAD), state) == 0
    assert scheduler.states["n1"].available
    assert after_report("prolog", report(BAD, host="n3"), {**JOB, "SLURMD_NODENAME": "n3"}, {}, state) == UNHEALTHY


def test_the_bound_is_a_share_of_the_nodes_that_are_there(scheduler, state):
    scheduler.states["n2"] = NodeState("n2", "drain", False, mark=Mark("bad"))
    for number in range(20):
        scheduler.states[f"away{number}"] = NodeState(f"away{number}", "powered_down", True, absent=True)
    assert run("prolog", report(BAD), state) == 0
    assert scheduler.states["n1"].available


def test_a_bound_that_cannot_be_read_is_said_and_the_default_counts(scheduler, state, capsys):
    scheduler.states["n2"] = NodeState("n2", "drain", False, mark=Mark("bad"))
    assert run("prolog", report(BAD), state, NHC_MAX_DRAINED="lots") == 0
    assert "NHC_MAX_DRAINED: 'lots' is not a number of nodes" in capsys.readouterr().err


def test_an_epilog_leaves_draining_to_slurm_only_where_it_could_not(scheduler, state):
    assert run("epilog", report(BAD), state) == 0
    assert not scheduler.states["n1"].available
    scheduler.fails = True
    assert run("epilog", report(BAD), state) == UNHEALTHY


def test_the_controllers_hooks_touch_no_node(scheduler, state):
    environ = {**JOB, "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"}
    assert after_report("prolog", report(BAD), environ, {}, state) == UNHEALTHY
    assert scheduler.calls == []
    assert len(scheduler.told) == 1
    environ["SLURM_SCRIPT_CONTEXT"] = "epilog_slurmctld"
    assert after_report("epilog", report(BAD), environ, {}, state) == 0


def test_our_own_bug_starts_the_job_and_is_left_on_the_node_once(scheduler, state, monkeypatch):
    def bug(*arguments):
        raise RuntimeError("oops")

    monkeypatch.setattr("nhc.hooks.prolog.unhealthy", bug)
    assert run("prolog", report(BAD), state) == 0
    assert scheduler.remarks == {"n1": "NHC: internal error in the prolog: RuntimeError: oops"}
    scheduler.remarks.clear()
    assert run("prolog", report(BAD), state) == 0
    assert scheduler.remarks == {}
    scheduler.fails = True
    run("healthcheck", report(ok()), state)
    scheduler.fails = False
    assert scheduler.remarks == {}  # a controller that is away is no internal error
    assert run("healthcheck", report(ok()), state) == 0
    assert scheduler.remarks == {"n1": ""}  # taken away: nhc works again


def test_a_prolog_that_works_again_takes_its_own_comment_away_and_nobody_elses(scheduler, state, monkeypatch):
    broken("prolog", RuntimeError("torn"), JOB, {}, state)
    broken("epilog", RuntimeError("torn"), JOB, {}, state)
    run("prolog", report(ok()), state)
    assert "torn" in scheduler.remarks["n1"], "the epilog may still fail: a health check would end it"
    run("healthcheck", report(ok()), state)
    assert scheduler.remarks.pop("n1") == ""
    broken("prolog", RuntimeError("torn"), JOB, {}, state)
    run("prolog", report(BAD), state)
    run("prolog", report(), state)
    assert "torn" in scheduler.remarks["n1"]
    scheduler.fails = True
    assert run("prolog", report(ok()), state) == 0
    scheduler.fails = False
    run("prolog", report(ok()), state)
    assert "torn" in scheduler.remarks["n1"], "a controller that did not answer is not asked at each job"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    run("prolog", report(ok()), state)
    assert scheduler.remarks["n1"] == ""
    assert not os.path.exists(f"{state.directory}/{NOTES}/n1")


def test_the_last_hook_that_works_again_takes_the_comment_away(scheduler, state):
    broken("prolog", RuntimeError("torn"), JOB, {}, state)
    broken("epilog", RuntimeError("torn"), JOB, {}, state)
    run("prolog", report(ok()), state)
    assert "torn" in scheduler.remarks["n1"]
    run("epilog", report(ok()), state)
    assert scheduler.remarks["n1"] == "", "there may be no health check"


def test_the_comment_of_a_hook_that_runs_no_more_ends_with_another_that_works(scheduler, state, monkeypatch):
    broken("epilog", RuntimeError("torn"), JOB, {}, state)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + QUIET - 1)
    run("prolog", report(ok()), state)
    assert "torn" in scheduler.remarks["n1"]
    monkeypatch.setattr(time, "time", lambda: now + QUIET + 1)
    run("prolog", report(ok()), state)
    assert scheduler.remarks["n1"] == ""


def test_the_controllers_hooks_leave_no_comment_on_its_own_machine(scheduler, state):
    environ = {"SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"}
    assert broken("prolog", RuntimeError("torn"), environ, {}, state) == 0
    assert scheduler.remarks == {}


def test_nodes_of_one_host_have_notes_of_their_own(scheduler, state):
    broken("prolog", RuntimeError("torn"), {**JOB, "SLURMD_NODENAME": "n2"}, {}, state)
    broken("prolog", RuntimeError("torn"), JOB, {}, state)
    run("healthcheck", report(ok()), state)
    assert (scheduler.remarks["n1"], "torn" in scheduler.remarks["n2"]) == ("", True)
    run("healthcheck", report(ok(), host="n2"), state)
    assert scheduler.remarks["n2"] == ""


def test_nothing_is_marked_where_marking_is_off(monkeypatch, state, tmp_path):
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path))
    assert run("prolog", report(BAD), state, MARK_OFFLINE="0") == 0
    assert run("epilog", report(BAD), state, MARK_OFFLINE="0") == 0


def test_what_a_hook_does_is_in_the_ledger(scheduler, state, tmp_path):
    run("healthcheck", report(BAD), state)
    text = (tmp_path / "ledger" / "ledger.jsonl").read_text()
    assert '"node":"n1","deed":"mark","effect":"begun","because":"check_x: bad","by":"hook"' in text
    assert '"effect":"changed"' in text


NOTHING = Plan(())


def recent(state, node="n1", age=60, now=None, boot="boot1", plan=NOTHING):
    return fresh_report(state, node, age, now or time.time(), boot, plan, {"CONFDIR": "/"})


def test_a_recent_healthy_report_stands_in_for_a_run(state):
    fresh = report(ok())
    now = time.time()
    remember(state, "healthcheck", fresh)
    assert recent(state, now=now).verdict is fresh.verdict
    assert recent(state, now=now + 61) is None
    assert recent(state, boot="boot2") is None
    assert recent(state, "n2") is None
    assert recent(state, age=0) is None


@pytest.mark.parametrize(
    ("line", "source", "taken"),
    [("check_x", "/nhc.conf:1", True), ("check_x 2", "/nhc.conf:1", False), ("check_x", "/nhc-prolog.conf:1", False)],
)
def test_only_a_report_of_every_line_stands_in_for_a_run(state, line, source, taken):
    judged = CheckResult("check_x", ok(), 0.0, source="/nhc.conf:1", line="check_x")
    remember(state, "healthcheck", report(ok())._replace(results=(judged,)))
    plan = Plan((Item("check", "check_x", line, source),))
    assert (recent(state, plan=plan) is not None) == taken


@pytest.mark.parametrize("outcome", [BAD, unknown("U", "?")])
def test_an_unhealthy_report_never_stands_in_for_a_run(state, outcome):
    remember(state, "healthcheck", report(outcome))
    assert recent(state) is None


def test_the_health_check_leaves_its_report_for_the_prolog_where_that_may_use_it(scheduler, state):
    run("healthcheck", report(ok()), state)
    assert recent(state) is None
    run("healthcheck", report(ok()), state, NHC_PROLOG_MAX_AGE="60")
    assert recent(state) is not None


WATCH = {"NHC_WATCH_ONLY": "1"}


def test_watch_only_says_what_it_would_do_and_does_nothing(scheduler, state, capsys):
    assert run("healthcheck", report(BAD), state, **WATCH) == 0
    assert "n1 is unhealthy: check_x: bad; not marked: watch only" in capsys.readouterr().err
    assert run("prolog", report(BAD), state, **WATCH) == 0
    said = capsys.readouterr().err
    assert "the job 7 starts, otherwise it would be requeued" in said
    assert run("epilog", report(BAD), state, **WATCH) == 0
    assert "otherwise it would be marked" in capsys.readouterr().err
    scheduler.states["n1"] = NodeState("n1", "drain", False, mark=Mark("check_x: bad"))
    assert run("healthcheck", report(ok()), state, **WATCH) == 0
    assert "n1 is healthy; stays out: watch only" in capsys.readouterr().err
    assert {call.split()[0] for call in scheduler.calls} == {"read"}
    assert (scheduler.told, scheduler.remarks) == ([], {})
    run("healthcheck", report(ok()), state)  # the week is over
    assert scheduler.calls[-1] == "clear n1"


def test_watch_only_starts_the_job_though_the_controller_does_not_answer(scheduler, state):
    scheduler.fails = True
    for context in ("prolog", "epilog", "healthcheck"):
        assert run(context, report(BAD), state, **WATCH) == 0


def test_watch_only_leaves_no_comment_of_an_internal_error(scheduler, state):
    broken("prolog", RuntimeError("torn"), JOB, WATCH, state)
    assert scheduler.remarks == {}
    broken("epilog", RuntimeError("torn"), JOB, {}, state)
    assert "torn" in scheduler.remarks["n1"]


@pytest.mark.parametrize(("text", "on"), [("1", True), ("yes", True), ("0", False), ("no", False), ("", False)])
def test_how_watch_only_is_written(text, on):
    assert watch_only({"NHC_WATCH_ONLY": text}) is on


class NoMarker:
    """An adapter of a stranger's that reads nodes and does not mark them."""

    def __init__(self, settings, environ, timeout):
        self.nodes = lambda names=None: []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NHC_RM": "kubernetes"}, "no hook marks a Kubernetes node: the agent does"),
        ({"NHC_RM": "K8s"}, "no hook marks a Kubernetes node: the agent does"),
        ({"NHC_RM": "slurm-rest"}, "NHC_SLURMREST is not set"),
        ({"NHC_RM": "slurm-rest", "NHC_SLURMREST": "gopher://x"}, "'gopher://x' is not an address"),
        ({"NHC_RM": "nowhere"}, "there is no adapter called 'nowhere'"),
        ({"NHC_RM": "reader"}, "the adapter reader cannot mark and clear, so no hook can use it"),
        ({"NHC_RM": "bare"}, "the adapter bare is not made as nhc makes one"),
    ],
)
def test_an_adapter_that_a_hook_cannot_use_is_one_line(settings, said, state, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "a_strangers", types.SimpleNamespace(NoMarker=NoMarker))
    monkeypatch.setitem(plugins.ADAPTERS.ours, "reader", "a_strangers:NoMarker")
    monkeypatch.setitem(plugins.ADAPTERS.ours, "bare", "builtins:object")
    for hook, outcome in (("healthcheck", BAD), ("healthcheck", ok()), ("prolog", BAD), ("epilog", BAD)):
        assert after_report(hook, report(outcome), {}, settings, state) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "nothing is marked" in line]
        assert [said in line for line in lines] == [True], (hook, lines)
        state.save("mark", {})


def test_every_adapter_of_ours_can_be_named_in_a_hook(state):
    """Each marks from a hook, or `nhc.core.resource_manager` says what to use instead."""
    settings = {"NHC_SLURMREST": "unix:/none"}
    for name in plugins.ADAPTERS.ours:
        found = marking.scheduler({}, {**settings, "NHC_RM": name})
        assert (found is None) == (name in NO_HOOK_ADAPTERS), name
