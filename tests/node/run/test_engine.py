"""The engine judges a whole plan, whatever its checks do, and remembers between runs."""

import os
import time

import pytest

from nhc.core import check as registry
from nhc.core.check import arg, check, opt
from nhc.core.model import Metric, Outcome, Verdict, crit, ok, skip, unknown, warn
from nhc.core.plan import BUILT_IN, COMMAND, Item, Plan
from nhc.core.state.store import State
from nhc.core.units import integer, seconds
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run


@pytest.fixture
def checks():
    """A way to define checks that are gone after the test."""
    before = dict(registry.REGISTRY)
    yield lambda name, *params, **options: check(f"check_test_{name}", *params, **options)
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path / "state"))


def item(name, *arguments, **options):
    argv = (f"check_test_{name}", *arguments)
    return Item(BUILT_IN, argv[0], " ".join(argv), "test.conf:1", argv, **options)


def judge(state, *items, host=None, **options):
    return run(Plan(items), host or FakeHost(), state=state, **options)


def told(report):
    return [(result.check.replace("check_test_", ""), result.verdict.name) for result in report.results]


def test_every_kind_of_outcome_arrives_whole(checks, state):
    everything = crit("Broken", "it broke", target="gpu3", metrics=(Metric("t", 91.5, "Cel"),), evidence=("line",))

    @checks("all")
    def _(host):
        return [everything, ok("fine"), warn("Hot", "warm"), skip("None", "no such thing"), unknown("Lost", "?")]

    report = judge(state, item("all"))
    assert report.results[0].outcome == everything
    assert [r.verdict.name for r in report.results] == ["CRIT", "OK", "WARN", "SKIP", "UNKNOWN"]
    assert report.verdict is Verdict.CRIT
    assert report.results[0].source == "test.conf:1"


def test_a_bug_is_that_checks_unknown_with_its_traceback(checks, state):
    @checks("bug")
    def _(host):
        return {}["missing"]

    @checks("wrong")
    def _(host):
        return ["not an outcome"]

    @checks("quits")
    def _(host):
        raise SystemExit(0)

    @checks("fine")
    def _(host):
        return ok()

    report = judge(state, item("bug"), item("wrong"), item("quits"), item("fine"))
    assert told(report) == [("bug", "UNKNOWN"), ("wrong", "UNKNOWN"), ("quits", "UNKNOWN"), ("fine", "OK")]
    assert "KeyError" in report.results[0].outcome.message
    assert any("missing" in line for line in report.results[0].outcome.evidence)


def test_what_cannot_be_read_is_unknown_in_plain_words(checks, state):
    @checks("file")
    def _(host):
        return ok(host.read("/sys/nothing"))

    @checks("tool")
    def _(host):
        return ok(host.run(["no-such-tool"]).stdout)

    report = judge(state, item("file"), item("tool"))
    assert [r.outcome.reason for r in report.results] == ["Unreadable", "CommandMissing"]
    assert report.results[1].outcome.message == "no-such-tool is not installed"
    assert not any(r.outcome.evidence for r in report.results)


def test_arguments_are_converted_and_bad_ones_are_unknown(checks, state):
    @checks("args", opt("-n", "number", integer, "a number", 1), arg("word", str, "a word", required=True))
    def _(host, number, word):
        return ok(f"{number + 1} {word}")

    report = judge(state, item("args", "-n", "08", "x"), item("args", "-n", "y", "x"), item("args"))
    assert report.results[0].outcome.message == "9 x"
    assert [r.outcome.reason for r in report.results[1:]] == ["BadArguments", "BadArguments"]
    assert "'y' is not a whole number" in report.results[1].outcome.message


def test_an_unknown_check_is_unknown_not_a_sick_node(state):
    report = judge(state, Item(COMMAND, "check_nothing", "check_nothing", argv=("check_nothing",)), item("nothing"))
    assert told(report) == [("check_nothing".replace("check_test_", ""), "UNKNOWN"), ("nothing", "UNKNOWN")]


def test_a_site_command_fails_by_its_status(state):
    host = FakeHost(commands={"good": "", "bad": lambda argv, stdin: type(host.run(["good"]))(3, "out", "err")})
    items = [Item(COMMAND, name, name, argv=(name,)) for name in ("good", "bad", "gone")]
    report = judge(state, *items, host=host)
    assert [r.outcome.reason for r in report.results] == ["", "CommandFailed", "CommandMissing"]
    assert report.results[1].outcome.message == "Check bad returned 3"
    assert report.results[1].outcome.evidence == ("out", "err")


def test_without_check_all_the_run_ends_at_its_first_failure(checks, state, tmp_path):
    @checks("ok")
    def _(host):
        return ok()

    @checks("bad")
    def _(host):
        return crit("Bad", "bad")

    report = judge(state, item("ok"), item("bad"), item("ok"), item("bad"), check_all=False)
    assert told(report) == [("ok", "OK"), ("bad", "CRIT")]
    assert report.not_run == 2
    assert len(judge(state, item("ok"), item("bad"), item("ok"), item("bad")).results) == 4


@pytest.mark.thorough
@pytest.mark.parametrize(("on_timeout", "verdict"), [("crit", "CRIT"), ("unknown", "UNKNOWN")])
def test_a_hang_means_what_its_check_says(checks, state, tmp_path, on_timeout, verdict):
    os.mkfifo(tmp_path / "fifo")

    @checks("hang", timeout=0.3, on_timeout=on_timeout)
    def _(host):
        with open(tmp_path / "fifo") as file:
            return ok(file.read())

    report = judge(state, item("hang"))
    assert told(report) == [("hang", verdict)]
    assert report.results[0].outcome.reason == "CheckTimeout"
    assert report.elapsed < 30, "nobody ever writes to it"


@pytest.mark.thorough
def test_what_tells_of_one_moment_counts_at_the_second_look(checks, state, tmp_path):
    @checks("sample", samples=("Hot",))
    def _(host):
        return [
            crit(reason, "it is so now", target="gpu0") for reason in (tmp_path / "now").read_text().split()
        ] or ok()

    def look(*reasons, **options):
        (tmp_path / "now").write_text(" ".join(reasons))
        return judge(state, item("sample", **options)).results[0].verdict.name

    assert [look("Hot"), look("Hot"), look("Hot")] == ["WARN", "CRIT", "CRIT"]
    assert [look(), look("Hot"), look(), look("Hot")] == ["OK", "WARN", "OK", "WARN"]
    assert look("Broken") == "CRIT", "what is no sample counts at once"
    assert look() == "OK"
    assert look("Hot", strikes=1) == "CRIT", "the line's own number counts"
    assert [look("Hot", strikes=3), look("Hot", strikes=3), look("Hot", strikes=3)] == ["WARN", "WARN", "CRIT"]


@pytest.mark.thorough
def test_the_third_failure_among_the_last_five_counts(checks, state, tmp_path):
    @checks("flaky")
    def _(host):
        return [crit("Bad", "bad", target=name) for name in (tmp_path / "now").read_text().split()] or ok()

    def look(*targets, of=5):
        (tmp_path / "now").write_text(" ".join(targets))
        results = judge(state, item("flaky", strikes=3, of=of)).results
        return [(r.outcome.target, r.verdict.name, r.strike) for r in results]

    assert look("a") == [("a", "WARN", 1)]
    assert look() == [("", "OK", 0)]
    assert look("a", "b") == [("a", "WARN", 2), ("b", "WARN", 1)]
    assert look("b") == [("b", "WARN", 2)]
    assert look("a") == [("a", "CRIT", 3)]
    assert look("a") == [("a", "CRIT", 3)], "the first failure is out of sight, three are not"
    assert look() == look() == look() == look() == look() == [("", "OK", 0)]
    assert state.load("strikes") == {}
    assert look("a") == [("a", "WARN", 1)]
    assert "(strike 2 of 3 in 5 runs)" in judge(state, item("flaky", strikes=3, of=5)).results[0].outcome.message


def test_a_line_that_only_warns_takes_no_node_out(checks, state):
    @checks("new")
    def _(host):
        return [crit("Bad", "bad", target="a"), unknown("Odd", "odd", target="b")]

    report = judge(state, item("new", warn_only=True), item("new"), check_all=False)
    assert [(r.outcome.target, r.verdict.name, r.outcome.reason) for r in report.results] == [
        ("a", "WARN", "Bad"), ("b", "UNKNOWN", "Odd"), ("a", "CRIT", "Bad"), ("b", "UNKNOWN", "Odd")]  # fmt: skip
    assert report.results[0].outcome.message == "bad (warn-only)"


@pytest.mark.thorough
def test_a_time_out_that_is_a_sample_counts_when_the_next_look_hangs_too(checks, state, tmp_path):
    @checks("hang", timeout=0.2, on_timeout="crit", samples=("CheckTimeout",))
    def _(host):
        if (tmp_path / "hangs").exists():
            time.sleep(30)
        return ok("fine", target="gpu0")

    def look(hangs):
        (tmp_path / "hangs").touch() if hangs else (tmp_path / "hangs").unlink()
        return judge(state, item("hang")).results[0].verdict.name

    assert [look(True), look(True)] == ["WARN", "CRIT"]
    assert [look(False), look(True)] == ["OK", "WARN"], "it answered in between"


@pytest.mark.thorough
def test_a_line_sets_its_own_deadline_and_a_check_can_ask_for_more(checks, state):
    @checks("slow", opt("-t", "timeout", seconds, "how long", 0.1), timeout=0.2)
    def _(host, timeout):
        time.sleep(0.6)
        return ok()

    report = judge(state, item("slow"), item("slow", "-t", "5"), item("slow", timeout=3.0))
    assert told(report) == [("slow", "UNKNOWN"), ("slow", "OK"), ("slow", "OK")]


@pytest.mark.thorough
def test_the_runs_deadline_names_what_did_not_run(checks, state, tmp_path):
    os.mkfifo(tmp_path / "fifo")

    @checks("hang", timeout=60)
    def _(host):
        with open(tmp_path / "fifo") as file:
            return ok(file.read())

    report = judge(state, *[item("hang")] * 10, deadline=0.5)
    reasons = {result.outcome.reason for result in report.results}
    assert reasons == {"CheckTimeout", "NotRun"}
    assert len(report.results) == 10
    assert report.elapsed < 30, "each may take a minute"


@pytest.mark.thorough
def test_strikes_count_failures_in_a_row(checks, state, tmp_path):
    @checks("flaky")
    def _(host):
        return crit("Bad", "bad") if host.exists("/bad") else ok()

    good, bad = FakeHost(), FakeHost({"/bad": ""})
    line = item("flaky", strikes=3)
    seen = []
    for host in (bad, bad, good, bad, bad, bad, bad, good):
        result = judge(State(state.directory), line, host=host).results[0]
        seen.append((result.verdict.name, result.strike))
    assert seen == [("WARN", 1), ("WARN", 2), ("OK", 0), ("WARN", 1), ("WARN", 2), ("CRIT", 3), ("CRIT", 3), ("OK", 0)]


@pytest.mark.thorough
def test_strikes_are_counted_per_target(checks, state):
    @checks("gpus")
    def _(host):
        return [crit("Bad", "bad", target=name) for name in host.listdir("/bad")] or ok()

    line = item("gpus", strikes=2)
    first = judge(state, line, host=FakeHost({"/bad/gpu0": ""}))
    second = judge(State(state.directory), line, host=FakeHost({"/bad/gpu0": "", "/bad/gpu1": ""}))
    third = judge(State(state.directory), line, host=FakeHost({"/bad/": ""}))
    fourth = judge(State(state.directory), line, host=FakeHost({"/bad/gpu0": ""}))
    told_of = [
        [(r.outcome.target, r.verdict.name) for r in report.results] for report in (first, second, third, fourth)
    ]
    assert told_of == [
        [("gpu0", "WARN")],
        [("gpu0", "CRIT"), ("gpu1", "WARN")],
        [("", "OK")],
        [("gpu0", "WARN")],
    ]


def test_damaged_state_is_a_note_never_a_crash(checks, state):
    @checks("ok")
    def _(host):
        return ok()

    judge(state, item("ok"))
    for name in ("strikes", "stuck"):
        with open(f"{state.directory}/{name}.json", "w") as file:
            file.write("{damaged")
    report = judge(State(state.directory), item("ok", strikes=2))
    assert told(report) == [("ok", "OK")]
    assert sum("damaged" in note for note in report.notes) == 2


def test_a_second_run_says_that_another_is_in_progress(checks, state):
    @checks("ok")
    def _(host):
        return ok()

    assert State(state.directory).claim_run() is None
    report = judge(state, item("ok"))
    assert told(report) == [("ok", "OK")]
    assert any(f"another nhc run (pid {os.getpid()}) is in progress" in note for note in report.notes)


def test_an_empty_report_is_unknown(state):
    assert judge(state).verdict is Verdict.UNKNOWN


def test_odd_values_from_a_check_are_made_portable(checks, state):
    @checks("odd")
    def _(host):
        return Outcome(Verdict.OK, message="a" * 5000, metrics=(Metric("n", True),), evidence=tuple("x" * 90))

    outcome = judge(state, item("odd")).results[0].outcome
    assert len(outcome.message) == 1000
    assert len(outcome.evidence) == 50
    assert outcome.metrics[0].value == 1


DMI = "/sys/class/dmi/id"
SERIAL = {f"{DMI}/product_uuid": "4c4c4544-0042\n", f"{DMI}/board_serial": "CN747\n"}


@pytest.mark.parametrize(("there", "forgotten"), [
    ({f"{DMI}/product_uuid": "ffffeeee-0001\n"}, True),
    ({f"{DMI}/board_serial": "CN900\n"}, True),
    ({f"{DMI}/product_uuid": "4C4C4544-0042\n"}, False),
    ({f"{DMI}/board_serial": "Default string\n"}, False),
    ({f"{DMI}/product_uuid": "", f"{DMI}/board_serial": ""}, False),
])  # fmt: skip
def test_another_machine_with_this_disk_begins_without_strikes_and_findings(checks, tmp_path, there, forgotten):
    """A disk that moved, an image that was cloned: the memory of before is of the machine that it was made on."""

    @checks("bad")
    def _(host):
        return crit("Broken", "it broke")

    def boot(name, **files):
        state = State(str(tmp_path / "state"))
        host = FakeHost({"/proc/sys/kernel/random/boot_id": f"{name}\n", **SERIAL, **files})
        return judge(state, item("bad", strikes=2), host=host)

    assert boot("b1").results[0].outcome.verdict is Verdict.WARN, "the first of two strikes"
    State(str(tmp_path / "state")).lasting().save("kernel-log", {"findings": {"xid/79": {}}})
    report = boot("b2", **there)
    assert any("another machine" in note for note in report.notes) == forgotten
    assert report.results[0].outcome.verdict is (Verdict.WARN if forgotten else Verdict.CRIT)
    assert bool(State(str(tmp_path / "state")).lasting().load("kernel-log")) != forgotten
    assert not any("another machine" in note for note in boot("b3", **there).notes), "said once"
