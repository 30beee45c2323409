"""Mistakes that a configuration can hold: each named with its place, by `nhc config check` and by a run alike."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.core.language import mistakes, setting_rules
from nhc.core.language.loader import ConfigError, load, load_text, validate
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Verdict
from nhc.core.plan import UNDECIDED
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.planning.profiles import problem_of
from nhc.node.run import engine
from tests.support.run import ROOT


def found(tmp_path: Path, text: str) -> list[str]:
    """What `nhc config check` says, from the line number on."""
    path = tmp_path / "nhc.conf"
    path.write_text(text, encoding="utf-8")
    return [
        problem.show()[len(str(path)) + 1 :] for problem in validate([str(path)], profile_problem=problem_of).problems
    ]


BOTH = [
    (" || check_fs_free / 5%", "1:2: no target before the bars"),
    ("# context prolg\n* || true", "1:1: context: expected some of prolog,"),
    ("* |context prolg| true", "1:4: context: expected some of prolog,"),
    ("* || TIMEOUT=abc", "1:6: TIMEOUT: expected seconds, as in 30, not 'abc'"),
    ("* || export NHC_MAX_DRAINED=lots", "1:6: NHC_MAX_DRAINED: "),
    ("* || NHC_EPILOG_CLEAN=tmp,proceses", "1:6: NHC_EPILOG_CLEAN: expected some of"),
    ("* || NHC_WATCHONLY=1", "1:6: no such setting: NHC_WATCHONLY (did you mean NHC_WATCH_ONLY?)"),
    ("* || export NHC_MAX_DRAIND=5", "1:6: no such setting: NHC_MAX_DRAIND (did you mean NHC_MAX_DRAINED?)"),
    ("* || NHC_RM=slrum", "1:6: NHC_RM: no resource manager is called 'slrum' (did you mean slurm?)"),
    ("* |evry 5m| check_ps_zombies", "1:4: no such line option: 'evry' (did you mean every?)"),
    ("* |evry 5m| check_ps_zombies || true", "1:4: no such line option: 'evry' (did you mean every?)"),
    ("* || check_fs_free\u00a0/ 5%", "1:19: U+00A0 is a blank that separates no words"),
    ("*\u00a0|| true", "1:2: U+00A0"),
    ("* || check_fs_free \u201c/\u201d 5%", "1:20: \u201c quotes nothing"),
    ("* || check_fs_mount_rw \u2013f /", "1:24: \u2013 begins no option: write -"),
    ("* || check_gpu_count -1", "1:22: check_gpu_count: count: '-1' is below 0"),
    ("* || check_net_ping -c -1 h", "1:24: check_net_ping: -c: '-1' is below 0"),
    ("* || check_fs_size / 10g 5g", "1:26: check_fs_size: min is above max"),
    ("* || check_hw_physmem 10g 5g", "1:27: check_hw_physmem: min is above max"),
    ("no bars", "1:1: no `||`: expected TARGET || CHECK"),
    ("/a|b/ check_fs_mount_rw /", "1:1: no `||`: expected TARGET || CHECK"),
    ("* | check_fs_mount_rw /", "1:3: a single bar: expected TARGET || CHECK"),
    ("* || ", "1:3: nothing after the bars: expected TARGET || CHECK"),
    ("* |every 5m|", "1:3: nothing after the bars: expected TARGET || CHECK"),
    (
        "* |every 5m, strikes 2 check_fs_mount_rw /",
        "1:3: the bar before 'every' has no partner: expected TARGET |every ...|",
    ),
    ("include", "1:1: include: expected a file or a pattern, as in include conf.d/*.conf"),
]


@pytest.mark.parametrize(("text", "said"), BOTH)
def test_a_run_and_config_check_agree(tmp_path, text, said):
    assert [one[: len(said)] for one in found(tmp_path, text)] == [said]
    plan = load_text(text, "nhc.conf", "n1")
    told = [*plan.notes, *(item.argv[1] for item in plan.items if item.kind == UNDECIDED)]
    assert [one[: len(said) + 9] for one in told] == [f"nhc.conf:{said}"]


NEVER_RUN = [
    (" || check_fs_free / 5%", "check_fs_free", "no target before the bars"),
    ("* check_fs_free / 5%", "check_fs_free", "no `||`: expected TARGET || CHECK"),
    ("* | check_fs_mount_rw /", "check_fs_mount_rw", "a single bar"),
    ("/opt/site/probe --quick", "nhc", "no `||`: expected TARGET || CHECK"),
    ("* || ", "nhc", "nothing after the bars"),
    ("* |evry 5m| check_fs_free / 5%", "check_fs_free", "no such line option: 'evry'"),
    ("*\u00a0|| check_fs_free / 5%", "check_fs_free", "U+00A0 is a blank"),
    ("include", "nhc", "include: expected a file"),
    ("{n[1- || check_fs_free / 5%", "check_fs_free", "is not closed"),
    ("!{n[1-x]} || check_fs_free / 5%", "check_fs_free", "is not a range of numbers"),
    ("/(/ || check_fs_free / 5%", "check_fs_free", "not an extended regular expression"),
    ("@gpu || check_fs_free / 5%", "check_fs_free", "a node group goes in braces"),
]


@pytest.mark.parametrize(("line", "name", "said"), NEVER_RUN)
def test_a_line_that_cannot_be_run_is_an_unknown_of_its_own_and_costs_no_other_line(tmp_path, line, name, said):
    """Left out with a note, it made every node healthy that it was to judge."""
    plan = load_text(f"{line}\n* || true\n", "nhc.conf", "n1")
    assert plan.notes == ()
    bad, good = engine.run(plan, Host(), state=State(str(tmp_path / "state"))).results
    assert (bad.check, bad.verdict, bad.source) == (name, Verdict.UNKNOWN, "nhc.conf:1")
    assert bad.outcome.reason in ("BadLine", "TargetUndecided")
    assert said in bad.outcome.message
    assert bad.outcome.message.startswith("nhc.conf:1:")
    assert bad.outcome.message.endswith("; the line was not run")
    assert (good.check, good.verdict) == ("true", Verdict.OK)


ONLY_CHECKED = [
    ("* || check_fs_fre / 5%", "1:6: no such check: check_fs_fre (did you mean check_fs_free?)"),
    ("* || chek_fs_free / 5%", "1:6: no such check or program: chek_fs_free (did you mean check_fs_free?)"),
    ('* || check_fs_free "/ 5%', '1:20: the quote " is never closed'),
    ("* || echo it's", "1:13: the quote ' is never closed"),
    ("* || NHC_PROFILE=dgx-h10", "1:6: NHC_PROFILE: there is no profile 'dgx-h10' (did you mean dgx-h100?)"),
    (
        "* || [[ -d / ]] && check_fs_mont_rw -f /",
        "1:20: no such check: check_fs_mont_rw (did you mean check_fs_mount_rw?)",
    ),
    ("* || [[ -d / ]] && check_fs_mount_rw -Q /", "1:38: check_fs_mount_rw: Invalid option:  -Q"),
    ("* || if true; then check_fs_free / x; fi", "1:36: check_fs_free: min: 'x' is not a size"),
    (
        "* || check_gpu_count $(check_gpu_cont -q)",
        "1:24: no such check: check_gpu_cont (did you mean check_gpu_count?)",
    ),
    ("* || CHECK_FS_FREE / 5%", "1:6: no such check or program: CHECK_FS_FREE (did you mean check_fs_free?)"),
    ("* || true && chek_fs_free / 5%", "1:14: no such check or program: chek_fs_free (did you mean check_fs_free?)"),
    ('* || check_fs_mount_rw -Q "$HOME" | cat', "1:24: check_fs_mount_rw: Invalid option:  -Q"),
]


@pytest.mark.parametrize(("text", "said"), ONLY_CHECKED)
def test_what_a_run_tells_by_an_unknown_config_check_tells_beforehand(tmp_path, text, said):
    assert [one[: len(said)] for one in found(tmp_path, text)] == [said]
    assert load_text(text, "nhc.conf", "n1").notes == ()


FINE = [
    "* || check_file_contents /etc/os-release '/100\u00a0%/'",
    "# context of these lines\n* || true",
    "# context prolog epilog\n* || true",
    "@(a|b)* || true",
    "/^(a|b)$/ |timeout 5s| true",
    "* || echo |timeout 5| cat",
    "* || TIMEOUT=$((2 * 15))",
    "* || TIMEOUT=45\n* || export NHC_RM=our-own",
    "* || check_uptime -m 100 -x 0",
    "* || NHC_SITE_RACK=7\n* || NHC_CHECKS_OF_OURS=1",
    "* || check_site() { echo it; }\n* || check_site -x",
    "* || chek_fs_free() { echo it; }\n* || true && chek_fs_free -x",
    "* || x=(check_a check_b); true",
    "* || for x in check_a check_b; do echo $x; done",
    "* || [[ $x == check_a ]] || true",
    "* || case $x in check_a) true ;; esac",
    "* || echo 'check_a; check_b' \"; check_c\"",
    "* || true # don't",
    '* || echo "$(echo "a\'b")" ${#x} ${x#y}',
    "* || check_fs_free / 5% > /dev/null 2>&1 || true",
    "* || check_fs_mount_rw $FLAGS / && true",
]


def test_every_setting_that_is_documented_is_known():
    files = [*(ROOT / "docs").glob("*.md"), *(ROOT / "conf").glob("*"), *(ROOT / "nhc/core/data").glob("*.bash")]
    named = {name for file in files if file.is_file() for name in re.findall(r"\bNHC_[A-Z_]+[A-Z]\b", file.read_text())}
    assert len(named) > 30
    known = {*setting_rules.RULES, *setting_rules.OTHERS}
    named.discard("NHC_WATCHONLY")  # docs/migration.md shows what a misspelt one looks like
    assert not {name for name in named - known if setting_rules.problem(name, "x")}


@pytest.mark.parametrize("text", FINE)
def test_what_is_no_mistake(tmp_path, text):
    assert found(tmp_path, text) == []


def test_a_binary_file_is_one_line_and_no_configuration(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_bytes(b"\x7fELF\2\1\1" + bytes(range(256)) * 40)
    (problem,) = validate([str(path)]).problems
    assert problem.show() == f"{path}: a binary file, not a configuration"
    with pytest.raises(ConfigError, match="a binary file"):
        load([str(path)], "n1")


@pytest.mark.parametrize(
    "text",
    ["a 'b", 'a "b', "a 'b' c", 'a "b" c', "a \\' b", "a '\\' b", 'a "\\" b', "a $'b\\' c", "a $'b\\'' c", "a # it's",
     "a#it's", 'a "$(b "c")"', 'a "$(b "c)"', 'a "it\'s"', "a 'say \"'", "a `b 'c'`", "a `b", "$(a 'b)", "${a:-'b'} c"],
)  # fmt: skip
def test_an_open_quote_is_what_bash_finds_one(text):
    wrong = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True).stderr
    assert (mistakes.unclosed_quote(text) >= 0) is ("matching" in wrong), wrong


@given(st.text(alphabet=st.one_of(st.sampled_from("\\|#$(){}`;& \n'\"a"), st.characters()), max_size=60))
def test_no_text_raises(text):
    mistakes.unclosed_quote(text)
    mistakes.odd_character(text)
    mistakes.bars_in_target(text)
    mistakes.without_check(text)
    list(mistakes.in_shell(text, frozenset(), lambda name: None))


def test_every_setting_that_is_documented_with_a_number_has_a_rule():
    page = (Path(__file__).parents[3] / "docs/slurm.md").read_text()
    for name in ("NHC_MAX_DRAINED", "NHC_REREAD", "NHC_PROLOG_MAX_AGE", "NHC_EPILOG_GPU_MB", "MAX_SYS_UID", "NHC_RM"):
        assert f"`{name}`" in page
        assert setting_rules.problem(name, "?slurn") or name == "NHC_RM"


UNBRACED = [
    ("gpu[001-064]", "gpu017", "login1", "{gpu[001-064]}"), ("!gpu[001-064]", "gpu017", "login1", "!{gpu[001-064]}"),
    ("gpu[1-16]", "gpu12", "cpu1", "{gpu[1-16]}"), ("r[1-4]n[01-32,40]", "r1n40", "r1n41", "{r[1-4]n[01-32,40]}"),
    ("gpu1,gpu2", "gpu2", "gpu3", "{gpu1,gpu2}"), ("gpu1 gpu2", "gpu2", "gpu3", "{gpu1,gpu2}"),
    ("gpu[1-4],login", "login", "cpu1", "{gpu[1-4],login}"), ("gpu*,login*", "login7", "cpu1", "@(gpu*|login*)"),
    ("gpu[08,16]", "gpu16", "cpu1", "{gpu[08,16]}"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "held", "other", "meant"), UNBRACED)
def test_a_list_of_nodes_without_braces_is_named_with_the_line_that_was_meant(target, held, other, meant, tmp_path):
    text = f"* || check_fs_mount /\n{target} || check_ps_zombies\n"
    (said,) = found(tmp_path, text)
    assert said.startswith(f"2:1: target {target!r}")
    assert said.endswith(f": write {meant}")
    report = engine.run(load_text(text, "nhc.conf", held), FakeHost({}), state=State(str(tmp_path / "state")))
    one = next(result for result in report.results if result.source == "nhc.conf:2")
    assert (one.check, one.verdict, one.outcome.reason) == ("check_ps_zombies", Verdict.UNKNOWN, "TargetUndecided")
    assert meant in one.outcome.message
    elsewhere = load_text(text, "nhc.conf", other)
    applies = target.startswith("!")
    assert [item.name for item in elsewhere.items] == ["check_fs_mount", *["check_ps_zombies"] * applies]
    assert [meant in note for note in elsewhere.notes] == [True]
    right = load_text(text.replace(target, meant), "nhc.conf", held)
    assert (len(right.items), right.notes) == (2 - applies, ())


@pytest.mark.parametrize(("target", "meant"), [
    ("@gpu", "{@gpu}"), ("!@gpu", "!{@gpu}"), ("@slurm:gpu-a", "{@slurm:gpu-a}"),
])  # fmt: skip
def test_a_node_group_without_braces_is_named(target, meant, tmp_path):
    """clush's habit: as a glob it matches no node, and its check never runs."""
    text = f"{target} || check_ps_zombies\n"
    wanted = f"target {target!r}: a node group goes in braces: write {meant}"
    assert found(tmp_path, text) == [f"1:1: {wanted}"]
    plan = load_text(text, "x", "gpu1")
    assert [(item.kind, wanted.partition(": ")[2] in item.argv[1]) for item in plan.items] == [(UNDECIDED, True)]


@pytest.mark.parametrize(
    "target",
    ["gpu[0-9]", "gpu[1-4]", "gpu[135]", "gpu[1,3]", "gpu[0-3,5]", "n00[0-4][0-9]", "[[:alpha:]]*", "n[!0-9]",
     "n[a-f,0]", "gpu[01-3]", "gpu[10-3]", "gpu*[0-9]", "@(gpu01|gpu[1-2])", "/gpu[01][0-9]/", "{gpu[001-064]}",
     "gpu[012]", "@(@gpu|b)"],
)  # fmt: skip
def test_a_glob_that_means_what_it_says_is_none(target, tmp_path):
    assert found(tmp_path, f"{target} || true\n") == []
    for node in ("gpu1", "gpu01", "gpu064", "n004", "na"):
        plan = load_text(f"{target} || true", "x", node)
        assert (bool(plan.items), plan.notes) == (mcheck(node, target), ())


def test_a_class_that_somebody_may_have_meant_is_unknown_only_where_the_readings_differ(tmp_path):
    (said,) = found(tmp_path, "gpu[0-15] || true\n")
    assert said.endswith("write {gpu[0-15]}, or [015] for these characters")
    for node, kinds, notes in (("gpu5", ["true"], 0), ("login", [], 0), ("gpu12", ["true"], 0)):
        plan = load_text("gpu[0-15] || true", "nhc.conf", node)
        assert ([item.name for item in plan.items], len(plan.notes)) == (kinds, notes)
    assert load_text("gpu[0-15] || true", "nhc.conf", "gpu12").items[0].kind == UNDECIDED


@given(
    st.from_regex(r"!?[gn][0-9]?\[[0-9,-]{1,7}\](-ib)?", fullmatch=True), st.sampled_from(["g1", "g12", "n01", "n1-ib"])
)
def test_no_bracket_is_an_error(target, node):
    load_text(f"{target} || true", "x", node)
