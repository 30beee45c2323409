"""A report in each format: whole, readable by its reader, safe whatever the text holds."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict, crit, printable
from nhc.core.render import json as wire
from nhc.core.render import nagios, npd, prometheus, text
from tests.support.run import nhc

WORDS = st.text(max_size=40)
METRICS = st.builds(
    Metric, WORDS, st.one_of(st.integers(-(2**50), 2**50), st.floats(allow_nan=False, allow_infinity=False)), WORDS
)
OUTCOMES = st.builds(
    Outcome, st.sampled_from(list(Verdict)), st.sampled_from(["", "GpuLost", "Xid79"]), WORDS, WORDS,
    st.lists(METRICS, max_size=3).map(tuple), st.sampled_from(list(Action)), st.lists(WORDS, max_size=3).map(tuple),
)  # fmt: skip
RESULTS = st.builds(
    CheckResult, st.sampled_from(["check_a", "check_b"]), OUTCOMES, st.floats(0, 1e6), WORDS, WORDS,
    st.lists(WORDS, max_size=2).map(tuple), st.integers(0, 9), st.integers(0, 9),
)  # fmt: skip
REPORTS = st.builds(
    Report, WORDS, WORDS, st.floats(0, 4e9), st.floats(0, 1e6), st.lists(RESULTS, max_size=5).map(tuple),
    st.lists(WORDS, max_size=2).map(tuple), st.integers(0, 99), WORDS, st.dictionaries(WORDS, WORDS, max_size=2),
)  # fmt: skip


def result(verdict, message="", check="check_x", target="", **more):
    return CheckResult(check, Outcome(verdict, more.pop("reason", "Reason"), message, target, **more))


def report(*results, notes=()):
    return Report("node001", "boot", 1_700_000_000.5, 0.25, results, notes, version="1.0")


@pytest.mark.thorough
@given(REPORTS)
def test_json_comes_back_as_it_went(original):
    back = wire.parse(wire.render(original))
    assert back.verdict is original.verdict
    assert len(back.results) == len(original.results)
    for before, after in zip(original.results, back.results):
        assert after.outcome.message == printable(before.outcome.message)
        assert (after.verdict, after.outcome.reason, after.outcome.action) == (
            before.verdict, before.outcome.reason, before.outcome.action,
        )  # fmt: skip
        assert [m.value for m in after.outcome.metrics] == [m.value for m in before.outcome.metrics]
    assert wire.to_dict(wire.from_dict(wire.to_dict(back))) == wire.to_dict(back)


@given(REPORTS)
def test_no_format_lets_a_control_character_through(original):
    for shown in (
        text.render(original, verbose=2, evidence=True), nagios.render(original), npd.render(original),
        prometheus.render(original), wire.render(original),
    ):  # fmt: skip
        assert all(char == "\n" or char.isprintable() for char in shown)


@given(REPORTS)
def test_the_npd_line_is_one_and_short(original):
    line = npd.render(original)
    assert line.count("\n") == 1
    assert len(line.rstrip("\n").encode()) < 80


@given(REPORTS)
def test_prometheus_lines_are_well_formed(original):
    for line in prometheus.render(original).splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        float(value)
        labels = name.partition("{")[2]
        assert labels.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0


def test_prometheus_numbers_are_as_a_person_would_write_them():
    noisy = result(Verdict.OK)._replace(elapsed=0.30000000000000004)
    noisy = noisy._replace(outcome=noisy.outcome._replace(metrics=(Metric("x", 1.1 - 1.0), Metric("n", 2**53 + 1))))
    shown = prometheus.render(report(noisy)._replace(elapsed=1.1 - 1.0, started=1700000000.25)).splitlines()
    values = [line.rpartition(" ")[2] for line in shown if not line.startswith("#")]
    assert {"0.1", "0.3", "1700000000.25", str(2**53 + 1)} <= set(values)
    assert max(map(len, values)) == len(str(2**53 + 1)), "no line has a long tail of digits"


@pytest.mark.thorough
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_what_is_no_report_is_a_value_error(value):
    with pytest.raises(ValueError, match="report"):
        wire.parse(json.dumps(value))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 2"),
        ({"host": 7}, "host is int"),
        ({"results": [{"verdict": "FINE"}]}, "no verdict"),
        ({"results": "none"}, "results is str"),
        ({"started": True}, "started is bool"),
        ({"started": 10**400}, "started is beyond all measure"),
    ],
)
def test_a_wrong_field_is_named(change, said):
    with pytest.raises(ValueError, match=said):
        wire.parse(json.dumps({**wire.to_dict(report()), **change}))


def test_unknown_fields_are_left_alone():
    value = wire.to_dict(report(result(Verdict.OK)))
    value["new"] = 1
    value["results"][0]["new"] = {"a": 1}
    assert wire.from_dict(value).verdict is Verdict.OK


def test_text_says_what_is_wrong_and_sums_up():
    shown = text.render(
        report(result(Verdict.OK), result(Verdict.CRIT, "fell off", "check_gpu", "gpu3"), notes=("a note",))
    )
    assert "CRIT     check_gpu gpu3: fell off  [Reason]\n" in shown
    assert "note: a note\n" in shown
    assert shown.endswith("node001: CRIT: 2 results (1 CRIT, 1 OK) in 250ms\n")


def test_nagios_puts_the_worst_first_and_measures_behind_a_bar():
    shown = nagios.render(
        report(
            result(Verdict.WARN, "warm", metrics=(Metric("t", 81.5, "Cel", "80", "95"), Metric("u", 1, "%", "2"))),
            result(Verdict.CRIT, "a|b", metrics=(Metric("free", 12, "B", crit="20:"), Metric("n", 3))),
        )
    )
    first, _bar, data = shown.splitlines()[0].partition(" | ")
    assert first == "NHC CRITICAL - check_x: a/b (+1 more)"
    assert data == "'check_x_t'=81.5;80;95 'check_x_u'=1%;2 'check_x_free'=12B;;20: 'check_x_n'=3"
    assert shown.splitlines()[1:] == ["CRIT: check_x: a/b", "WARN: check_x: warm"]
    verdicts = (Verdict.OK, Verdict.WARN, Verdict.CRIT, Verdict.UNKNOWN)
    assert [nagios.exit_status(report(result(verdict))) for verdict in verdicts] == [0, 1, 2, 3]


def test_npd_says_the_worst_within_its_bytes():
    crit = result(Verdict.CRIT, "fell off the bus " + "é" * 90, "check_gpu", "gpu3", reason="GpuLost")
    shown = npd.render(report(result(Verdict.WARN), crit))
    assert shown.startswith("GpuLost gpu3: fell off the bus é")
    assert shown.endswith("(+1)\n")
    assert npd.exit_status(report(crit)) == 1
    assert npd.exit_status(report(result(Verdict.UNKNOWN))) == 2
    assert npd.render(report(result(Verdict.OK))) == "healthy\n"


def test_a_report_of_skips_alone_judged_nothing():
    assert report(result(Verdict.SKIP)).verdict is Verdict.UNKNOWN
    assert report().verdict is Verdict.UNKNOWN
    assert report(result(Verdict.SKIP), result(Verdict.OK)).verdict is Verdict.OK


def test_text_has_the_suggested_action_in_view():
    found = CheckResult("check_gpu", crit("GpuLost", "fell off", target="gpu3", action=Action.REBOOT))
    assert "CRIT     check_gpu gpu3: fell off  [GpuLost, action: reboot]\n" in text.render(report(found))


def test_text_counts_skipped_checks_and_lists_them_on_request():
    found = report(result(Verdict.OK), result(Verdict.SKIP, "no disk"))
    assert "no disk" not in text.render(found)
    assert "(1 OK, 1 SKIP)" in text.render(found)
    assert "SKIP     check_x: no disk" in text.render(found, skipped=True)
    assert "no disk" in text.render(report(result(Verdict.SKIP, "no disk")))  # else nothing would say why it is UNKNOWN


def test_one_fault_with_many_lines_is_one_cause_at_the_end():
    def bad(check, reason, action, target="gpu3"):
        message = f"{target} is lost (Xid 79)" if action is Action.REBOOT else f"{target}: {reason}"
        return CheckResult(check, Outcome(Verdict.CRIT, reason, message, target, action=action))

    many = [bad(f"check_gpu_{name}", "GpuUnreadable", Action.INSPECT) for name in ("ecc", "temp", "power", "clock")]
    lost = bad("check_gpu_lost", "GpuLost", Action.REBOOT)
    report = Report("n1", "b", 1.0, 0.1, (*many, lost))
    last = text.render(report).splitlines()[-1]
    assert last == "1 cause: gpu3 is lost (Xid 79): reboot; nhc explain GpuLost"
    two = text.render(report._replace(results=(*many, lost, bad("check_fs_free", "FsFull", Action.INSPECT, "/tmp"))))
    assert two.splitlines()[-1].startswith("2 causes: ")
    one = text.render(report._replace(results=(lost,)))
    assert "cause" not in one.splitlines()[-1]
    assert text.render(report, quiet=2) == ""


def test_on_a_terminal_the_hardest_repair_comes_first_among_what_is_crit():
    found = [
        result(Verdict.CRIT, "a", "check_a", "gpu0", action=Action.INSPECT, reason="A"),
        result(Verdict.OK, "b", "check_b"),
        result(Verdict.CRIT, "c", "check_c", "gpu1", action=Action.RESTART_APP, reason="C"),
        result(Verdict.WARN, "d", "check_d"),
        result(Verdict.CRIT, "e", "check_e", "gpu2", action=Action.REPLACE, reason="E"),
        result(Verdict.CRIT, "f", "check_f", "gpu3", action=Action.REBOOT, reason="F"),
        result(Verdict.CRIT, "g", "check_g", "gpu0", action=Action.INSPECT, reason="G"),
    ]
    *lines, _summary, causes = text.render(report(*found)).splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == [
        "check_e", "check_b", "check_f", "check_d", "check_c", "check_a", "check_g"
    ]  # fmt: skip
    assert causes.startswith("4 causes: gpu2 e: replace; nhc explain E | gpu3 f: reboot")
    kept = wire.to_dict(report(*found))["results"]
    assert [each["check"] for each in kept] == [each.check for each in found]


def test_the_limits_of_a_line_are_those_of_its_performance_data(tmp_path):
    """As the checks give them, from a worker's process."""
    config = tmp_path / "nhc.conf"
    config.write_text(
        "* || check_fs_used / 100%\n* || check_fs_free / 1k\n* || check_limits_pids -w 98 -c 99\n"
        "* || check_ps_loadavg 99999 0 99998\n* || check_hw_physmem 1k 999TB\n"
    )
    env = {"NHC_STATE_DIR": str(tmp_path), "NHC_MUTES": str(tmp_path / "none")}
    shown = nhc("check", "local", "-c", str(config), "--profile", "none", "--all", "-f", "nagios", env=env).stdout
    found = dict(re.findall(r"'([^']+)'=[^; ]*(\S*)", shown))
    assert found["check_fs_used_/_fs_used_percent"] == ";;100"
    assert found["check_fs_free_/_fs_free"] == ";;1024:"
    assert found["check_limits_pids_process_ids_share"] == ";98;99"
    assert (found["check_ps_loadavg_load1"], found["check_ps_loadavg_load15"]) == (";;99999", ";;99998")
    assert found["check_hw_physmem_memory_total"].startswith(";;")
    assert found["check_fs_used_/_fs_free"] == ""
