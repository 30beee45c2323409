"""Lines that need bash: state, our checks inside them, site scripts, and everything that can go wrong."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import pytest

from nhc.core.data import reader
from nhc.core.host import Host
from nhc.core.language.loader import load_text, validate
from nhc.core.language.shell_words import HELPERS
from nhc.core.model import Outcome, Verdict, crit, ok, skip, unknown, warn
from nhc.core.plan import BUILT_IN, SHELL, Item
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run
from nhc.node.run.shell_session import ShellSession

Made = Dict[str, List[ShellSession]]


def judge(name: str, argv: Sequence[str], settings: Mapping[str, str]) -> Sequence[Outcome]:
    """Stands for the engine: a check whose outcome is its first argument."""
    outcomes = {
        "ok": ok("fine"),
        "warn": warn("Nearly", "nearly"),
        "skip": skip("Absent", "not here"),
        "unknown": unknown("Unclear", "could not tell"),
        "crit": crit("Broken", "it is broken"),
    }
    if argv and argv[0] == "kill":  # the shell's process that asks, while it waits for the answer
        os.kill(int(argv[1]), 9)
    if argv and argv[0] in outcomes:
        return [outcomes[argv[0]]]
    return [ok(f"{name}: {'|'.join(argv)} {settings.get('MCELOG_ARGS', '-')}")]


class Shell:
    """A session on a configuration, whose lines run one after the other."""

    def __init__(self, text: str, check_all: bool, host: Host, scripts: str, more: Mapping[str, str]) -> None:
        self.plan = load_text(text, "nhc.conf", "n01.cluster", dict(more), [scripts])
        self.host = host
        self.check_all = check_all
        self.session = ShellSession(host, self.plan, judge, check_all)
        self.items = [item for item in self.plan.items if item.kind == SHELL]

    def run(self) -> List[List[Outcome]]:
        return [self.session.run(item) for item in self.items]


MakeShell = Callable[..., Shell]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[MakeShell]:
    made: List[Shell] = []

    def make(
        *lines: str,
        check_all: bool = True,
        host: Host = None,
        script: str = "",
        **settings: str,  # type: ignore[assignment]
    ) -> Shell:
        if script:
            (tmp_path / "site.nhc").write_text(script)
        text = "".join(f"* || {line}\n" for line in lines)
        made.append(Shell(text, check_all, host or Host(), str(tmp_path), settings))
        return made[-1]

    yield make
    for one in made:
        one.session.close()


def verdicts(outcomes: Sequence[Sequence[Outcome]]) -> List[str]:
    return [" ".join(outcome.verdict.name for outcome in line) for line in outcomes]


def one(outcomes: Sequence[Sequence[Outcome]]) -> Outcome:
    ((outcome,),) = outcomes
    return outcome


class TestLines:
    def test_the_status_decides(self, shell: MakeShell) -> None:
        passed, failed = shell("true | cat", "echo why; (exit 3)").run()
        assert passed == [ok()]
        assert (failed[0].verdict, failed[0].reason) == (Verdict.CRIT, "CommandFailed")
        assert failed[0].message == "Check echo why; (exit 3) returned 3"
        assert failed[0].evidence == ("why",)

    def test_state_carries_from_line_to_line(self, shell: MakeShell) -> None:
        lines = ["N=$((2 + 3))", "declare -A MAP=( [a]=1 )", "f() { [[ $1 == 5 ]]; }", "f $N && [[ ${MAP[a]} == 1 ]]"]
        assert verdicts(shell(*lines).run()) == ["OK", "OK", "OK", "OK"]

    def test_literal_settings_are_there_and_exported(self, shell: MakeShell) -> None:
        lines = [
            "A=x",
            "export B='it'\\''s'",
            "bash -c '[[ \"$A $B $C\" == \"x it'\\''s given\" ]]' | cat; exit ${PIPESTATUS[0]}",
        ]
        assert verdicts(shell(*lines, C="given").run()) == ["OK"]

    def test_a_later_setting_replaces_an_earlier_one(self, shell: MakeShell) -> None:
        assert verdicts(shell("A=1", "[[ $A == 1 ]]", "A=2", "[[ $A == 2 ]]").run()) == ["OK", "OK"]

    def test_file_names_are_not_expanded(self, shell: MakeShell) -> None:
        assert verdicts(shell("set -- /*; [[ $1 == '/*' ]]").run()) == ["OK"]

    def test_blanks_in_quotes_stay(self, shell: MakeShell) -> None:
        assert verdicts(shell("[[ 'a   b' == a???b ]]").run()) == ["OK"]

    @pytest.mark.parametrize("line", ["break 3; false", "continue", "return 0", "local x=1; true | true"])
    def test_nothing_in_a_line_ends_more_than_the_line(self, shell: MakeShell, line: str) -> None:
        outcomes = shell(line, "[[ 1 == 2 ]]", "[[ 1 == 1 ]]").run()
        assert [outcome[0].verdict for outcome in outcomes[1:]] == [Verdict.CRIT, Verdict.OK]

    def test_return_gives_the_lines_status(self, shell: MakeShell) -> None:
        assert one(shell("return 4").run()).message == "Check return 4 returned 4"

    def test_exit_ends_the_line_and_variables_survive(self, shell: MakeShell) -> None:
        outcomes = shell("N=$((1 + 1))", "LOST=$(echo x) && exit 3", "exit 0", '[[ $N == 2 && -z "$LOST" ]]').run()
        assert verdicts(outcomes) == ["OK", "CRIT", "OK", "OK"]
        assert outcomes[1][0].message.endswith("returned 3")

    def test_a_missing_command_is_unknown(self, shell: MakeShell) -> None:
        outcome = one(shell("true | no-such-command-here").run())
        assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "CommandMissing")
        assert "no-such-command-here: command not found" in outcome.message

    def test_a_syntax_error_fails_the_line_alone(self, shell: MakeShell) -> None:
        outcomes = shell("if true", "[[ 1 == 1 ]]").run()
        assert (outcomes[0][0].verdict, outcomes[0][0].reason) == (Verdict.UNKNOWN, "ShellSyntax")
        assert any("syntax error" in line for line in outcomes[0][0].evidence)
        assert verdicts(outcomes[1:]) == ["OK"]

    def test_a_line_that_kills_its_shell_is_unknown(self, shell: MakeShell) -> None:
        outcomes = shell("kill -9 $$", "[[ 1 == 1 ]]").run()
        assert outcomes[0][0].reason == "ShellDied"
        assert verdicts(outcomes[1:]) == ["OK"]

    @pytest.mark.parametrize("status", [128, 129, 137, 192, 255, -1])
    def test_a_high_exit_status_is_the_lines_own(self, shell: MakeShell, status: int) -> None:
        script = f"check_site() {{ [[ -d /nonexistent ]] || {{ echo gone; exit {status}; }}; }}\n"
        outcomes = shell(f"[[ -d /nonexistent ]] || exit {status}", "check_site", "[[ 1 == 1 ]]", script=script).run()
        assert [(outcome[0].verdict, outcome[0].reason) for outcome in outcomes[:2]] == [
            (Verdict.CRIT, "CommandFailed")
        ] * 2
        assert outcomes[1][0].evidence == ("gone",)
        assert verdicts(outcomes[2:]) == ["OK"]

    def test_without_bash_shell_lines_are_unknown(self, shell: MakeShell) -> None:
        outcome = one(shell("true | true", host=FakeHost()).run())
        assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "ShellMissing")

    def test_the_callers_shell_start_up_files_have_no_say(self, shell: MakeShell, tmp_path: Path) -> None:
        (tmp_path / "rc").write_text("exit 7\n")
        host = Host(environ={**os.environ, "BASH_ENV": str(tmp_path / "rc"), "SHELLOPTS": "xtrace", "IFS": "/"})
        assert verdicts(shell("[[ $- != *x* ]]; set -- a/b; [[ $# == 1 ]]", host=host).run()) == ["OK"]


class TestNothingBlocks:
    def test_much_output(self, shell: MakeShell) -> None:
        outcome = one(shell("seq 1 300000; seq 1 300000 >&2; false").run())
        assert outcome.evidence[-1] == "300000"
        assert len(outcome.evidence) <= 50

    def test_much_output_around_a_check(self, shell: MakeShell) -> None:
        outcomes = shell("seq 1 100000 & check_cmd_status ok; seq 1 100000; wait; check_cmd_status ok").run()
        assert verdicts(outcomes) == ["OK OK"]

    def test_a_child_that_keeps_the_output_open(self, shell: MakeShell) -> None:
        begun = time.monotonic()
        outcomes = shell("sleep 100 & echo $! >&2; false", "[[ 1 == 1 ]]", "kill $!").run()
        assert verdicts(outcomes) == ["CRIT", "OK", "OK"]
        assert time.monotonic() - begun < 60

    def test_a_shell_that_ends_while_a_child_holds_everything(self, shell: MakeShell) -> None:
        begun = time.monotonic()
        assert verdicts(shell("sleep 60 & exec false", "pkill -P 1 -x nothing-of-this-name; true").run())[0] == "CRIT"
        assert time.monotonic() - begun < 50

    def test_a_job_that_is_killed_while_its_check_runs(self, shell: MakeShell) -> None:
        lines = [
            "{ check_cmd_status kill $BASHPID & wait; } 2>/dev/null; check_cmd_status ok",
            "check_cmd_status q | cat",
        ]
        outcomes = shell(*lines).run()
        assert outcomes[0][-1] == ok("fine")
        assert outcomes[1] == [ok("check_cmd_status: q -")]

    def test_standard_input_is_empty(self, shell: MakeShell) -> None:
        assert verdicts(shell("read -r x; [[ -z $x ]]", "cat | grep -q . ; [[ ${PIPESTATUS[0]} == 0 ]]").run()) == [
            "OK",
            "OK",
        ]

    def test_a_long_argument_and_a_long_line(self, shell: MakeShell) -> None:
        long = "y" * 90000
        outcomes = shell(f"X={long}$(:)", 'check_cmd_status "$X" | cat').run()
        assert outcomes[1][0].message.count("y") >= 90000


class TestChecksInside:
    def test_a_check_in_a_condition_is_judged_by_ours(self, shell: MakeShell) -> None:
        outcome = one(shell("[[ -d / ]] && check_fs_mount_rw -f '/a  b' x").run())
        assert outcome == ok("check_fs_mount_rw: -f|/a  b|x -")

    def test_it_sees_the_shells_variables(self, shell: MakeShell) -> None:
        lines = ["MCELOG_ARGS=$(echo a b)", "check_cmd_status q"]
        assert shell(*lines).run()[1] == [ok("check_cmd_status: q a b")]

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("check_cmd_status ok | cat", "OK"),
            ("check_cmd_status warn | cat", "WARN"),
            ("check_cmd_status skip | cat", "SKIP"),
            ("check_cmd_status unknown; true", "UNKNOWN"),
            ("check_cmd_status unknown && true", "UNKNOWN"),
            ("check_cmd_status crit; true", "CRIT"),
            ("check_cmd_status ok; check_cmd_status crit; check_cmd_status unknown; true", "CRIT UNKNOWN"),
            ("! check_cmd_status crit", "CRIT"),
            ("check_cmd_status ok; false", "CRIT"),
            ("check_cmd_status warn; true", "WARN"),
            ('for i in 1 2 3; do check_cmd_status "$i" & done; wait', "OK OK OK"),
            ("x=check_cmd; ${x}_status crit; true", "CRIT"),
        ],
    )
    def test_what_it_finds_is_the_lines(self, shell: MakeShell, line: str, expected: str) -> None:
        assert verdicts(shell(line).run()) == [expected]

    def test_with_all_checks_a_failure_is_a_status(self, shell: MakeShell) -> None:
        outcomes = shell("check_cmd_status crit || echo or-else; [[ $FAIL_CNT == 1 ]] && false").run()
        assert outcomes[0][0].reason == "Broken"
        assert len(outcomes[0]) == 1

    def test_else_it_ends_the_line(self, shell: MakeShell, tmp_path: Path) -> None:
        path = tmp_path / "made"
        outcomes = shell(f"check_cmd_status crit || touch {path}", "[[ 1 == 1 ]]", check_all=False).run()
        assert verdicts(outcomes) == ["CRIT", "OK"]
        assert not path.exists()

    def test_one_that_nothing_defines_is_unknown(self, shell: MakeShell) -> None:
        assert one(shell("true && check_no_such_thing").run()).verdict is Verdict.UNKNOWN


class TestSiteScripts:
    SCRIPT = """
        SITE_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
        export LIMIT=5
        collect() {
            values=( $(printf '%s\\n' 3 9) )
            [[ -n "$1" ]] || die 1 "$FUNCNAME: nothing to collect"
        }
        function check_site_values() {
            collect "$1"
            for (( i = 0; i < ${#values[*]}; i++ )); do
                dbg "value $i: ${values[$i]}"
                if [[ ${values[$i]} -gt $LIMIT ]]; then
                    log "value $i is ${values[$i]}"
                    die 1 -e "\\t$FUNCNAME: value $i above $LIMIT. Code: S1"
                    return 1
                fi
            done
            return 0
        }
    """

    def test_die_is_critical_with_its_message(self, shell: MakeShell) -> None:
        outcome = one(shell("check_site_values x", script=self.SCRIPT).run())
        assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "CheckFailed")
        assert outcome.message == "value 1 above 5. Code: S1"
        assert outcome.evidence == ("value 1 is 9",)

    def test_with_all_checks_the_function_goes_on_after_it(self, shell: MakeShell) -> None:
        outcomes = shell("check_site_values", script=self.SCRIPT).run()
        assert [outcome.message for outcome in outcomes[0]] == [
            "collect: nothing to collect",
            "value 1 above 5. Code: S1",
        ]

    def test_else_it_stops_there(self, shell: MakeShell) -> None:
        outcomes = shell("check_site_values", "[[ $LIMIT == 5 ]]", script=self.SCRIPT, check_all=False).run()
        assert [outcome.message for outcome in outcomes[0]] == ["collect: nothing to collect"]
        assert verdicts(outcomes[1:]) == ["OK"]

    def test_a_failure_in_the_background_is_not_lost(self, shell: MakeShell) -> None:
        script = """
            one() { die 1 "check_all_of_them: number $1"; }
            check_all_of_them() { for i in 1 2 3; do one $i & done; wait; return 0; }
        """
        for check_all in (True, False):
            outcomes = shell("check_all_of_them", script=script, check_all=check_all).run()
            assert sorted(outcome.message for outcome in outcomes[0]) == ["number 1", "number 2", "number 3"]

    def test_a_status_without_a_word_is_a_failure(self, shell: MakeShell) -> None:
        assert (
            one(shell("check_mute", script="check_mute() { return 2; }").run()).message == "Check check_mute returned 2"
        )

    def test_traps_and_field_separators_of_theirs_do_no_harm(self, shell: MakeShell) -> None:
        script = (
            "check_untidy() { trap 'kill $(jobs -p) 2>/dev/null' RETURN; sleep 60 & IFS=$'\\n'; set -u; return 0; }"
        )
        lines = [
            "check_untidy",
            'check_cmd_status "a b" | cat',
            "mcheck n05 '{n[01-10]}'",
            "log x; syslog_flush; true | true",
        ]
        assert verdicts(shell(*lines, script=script).run()) == ["OK", "OK", "OK", "OK"]

    def test_a_built_in_is_theirs_to_override(self, shell: MakeShell) -> None:
        outcome = one(
            shell("check_cmd_status x", script='check_cmd_status() { die 1 "check_cmd_status:  own"; }').run()
        )
        assert (outcome.reason, outcome.message) == ("CheckFailed", "own")

    def test_ours_are_theirs_to_call(self, shell: MakeShell) -> None:
        script = "check_both() { check_cmd_status ok && check_cmd_status crit; }"
        assert verdicts(shell("check_both", script=script).run()) == ["CRIT"]

    def test_a_broken_script_is_reported_and_the_others_load(self, shell: MakeShell, tmp_path: Path) -> None:
        (tmp_path / "a-broken.nhc").write_text("check_half() {\n  if true\n}\n")
        outcomes = shell("check_half", "check_whole", script="check_whole() { :; }").run()
        assert outcomes[0][0].verdict is Verdict.UNKNOWN
        assert any("syntax error" in line for line in outcomes[0][0].evidence)
        assert verdicts(outcomes[1:]) == ["OK"]

    @pytest.mark.parametrize(
        ("ending", "how"),
        [("exit 5", "status 5"), ("exit", "status 0"), ("exec true", "status 0"), ("kill -9 $$", "signal 9"),
         ("exit -1", "status 255"), ("set -e; false", "status 1"),
         ("set -u; echo $nothing", "status 1")],  # 127 or 1, as bash has it
    )  # fmt: skip
    def test_a_script_that_ends_the_shell_is_named_and_left_out(self, tmp_path: Path, ending: str, how: str) -> None:
        scripts = {"a": "check_a() { true; }\n", "b": f"echo no licence; {ending}\ncheck_b() {{ true; }}\n",
                   "c": "check_c() { die 1 bad; }\n"}  # fmt: skip
        for name, text in scripts.items():
            (tmp_path / f"{name}.nhc").write_text(text)
        plan = load_text("* || check_a\n* || check_c\n* || check_b\n", "nhc.conf", "n1", scripts_dirs=[str(tmp_path)])
        report = run(plan, Host(), state=State(str(tmp_path / "state")), check_all=True)
        found = [(result.check, result.verdict, result.outcome.reason) for result in report.results]
        assert found[:3] == [("check_a", Verdict.OK, ""), ("check_a", Verdict.UNKNOWN, "ScriptExited"),
                             ("check_c", Verdict.CRIT, "CheckFailed")]  # fmt: skip
        assert [verdict for _check, verdict, _reason in found[3:]] == [Verdict.UNKNOWN], "what it would have defined"
        told = report.results[1].outcome
        assert told.message.startswith(f"{tmp_path}/b.nhc ended the shell with {how}")
        assert "while it was loaded: it is left out" in told.message
        assert told.evidence[0] == "no licence"

    def test_a_script_that_sets_e_ends_no_line_of_others(self, shell: MakeShell) -> None:
        assert one(shell("false; true", script="set -eu\n").run()).verdict is Verdict.OK

    def test_ours_stay_beside_a_sites_file_that_is_called_as_lbnl_nhcs(self, tmp_path: Path) -> None:
        (tmp_path / "lbnl_site.nhc").write_text(
            "SITE=5\ncheck_hw_cpuinfo() { die 1 mine; }\nnhc_common_parse_size() { eval $2=broken; }\n"
            "check_mine() { nhc_common_parse_size 1k X; [[ $X$SITE == 15 ]] || die 1 \"$X$SITE\"; helper; }\n"
            "helper() { true; }\n")  # fmt: skip
        text = "* || check_mine\n* || check_hw_cpuinfo\n* || false || check_hw_cpuinfo\n"
        plan = load_text(text, "nhc.conf", "n1", scripts_dirs=[str(tmp_path)])
        assert [item.kind for item in plan.items] == [SHELL, BUILT_IN, SHELL]
        (note,) = plan.notes
        assert note.startswith(f"{tmp_path}/lbnl_site.nhc: check_hw_cpuinfo, nhc_common_parse_size are nhc's own")
        report = run(plan, Host(), state=State(str(tmp_path / "state")), check_all=True)
        assert [result.verdict for result in report.results] == [Verdict.OK] * 3


class TestHelpers:
    def test_the_names_known_before_the_run_are_those_defined(self) -> None:
        defined = set(re.findall(r"^(\w+)\(\)", reader.read("shell.bash"), re.MULTILINE))
        assert {name for name in defined if not name.startswith(("nhc__", "toggle_"))} == set(HELPERS)

    @pytest.mark.parametrize(
        "line",
        [
            "mcheck host.example.com '/example\\\\.(com|net)$/' && mcheck n5 '!/x/' && ! mcheck n5 '!n*'",
            "mcheck n05 '{n[01-10],login}' && ! mcheck n11 '{n[01-10],login}' && mcheck_range login n1,login",
            "mcheck_regexp abc b && mcheck_glob abc 'a*' && ! mcheck abc 'b*' && ! mcheck x /",
            "NHC_MCHECK_DELIM=( '<>' ) NHC_MCHECK_COMMAND=( '[ %h%m = ab ]' ); mcheck a '<b>' && ! mcheck b '<b>'",
            "nhc_common_parse_size 4g X && [[ $X == 4194304 ]] && nhc_common_parse_size 12kB X && [[ $X == 12 ]]",
            "nhc_common_unparse_size 1572864 X && [[ $X == 1536MB ]]",
            "nhc_common_unparse_size 1048576 X && [[ $X == 1GB ]]",
            "nhc_common_parse_count 3M X && [[ $X == 3000000 ]] && nhc_common_parse_count 7 X && [[ $X == 7 ]]",
            "nhc_common_unparse_count 1500000 X && [[ $X == 1500k ]]",
            "nhc_common_unparse_count 12 X && [[ $X == 12 ]]",
            "nhc_common_unparse_size 1023 X 1024 E && [[ $X == 1023kB && $E == 0 ]]",
            "nhc_common_get_uid root X && [[ $X == 0 ]] && nhc_common_get_userid 0 X && [[ $X == root ]]",
            "nhc_common_load_passwd; [[ ${PWUID_USER[0]} == root && ${PWDATA_USERS[0]} == root ]]",
            "nhc_common_get_max_sys_uid; (( MAX_SYS_UID > 0 ))",
            "nhc_common_get_unix_time; (( SECONDS > 1600000000 ))",
            "nhc_cmd_with_timeout 5 true && ! nhc_cmd_with_timeout 5 false",
            "A=( a ); array_push A 'b c' d; array_unshift A z; [[ ${#A[@]} == 4 && ${A[2]} == 'b c' && $A == z ]]",
            "A=( a b c ); array_pop A 1 X; array_shift A; [[ $X == c && ${A[*]} == b ]]",
            "array_split : a:b:c A && array_join ', ' A X && [[ $X == 'a, b, c' && $(array_join - A) == a-b-c ]]",
            "[[ $HOSTNAME == n01.cluster && $HOSTNAME_S == n01 && $NAME == nhc && $TIMEOUT == 30 ]]",
            "[[ -n $CONFDIR && -n $INCDIR && -n $HELPERDIR && -n $LOGFILE && -n $CHECK && $CHECK_DIED == 0 ]]",
            "[[ $NHC_CHECK_ALL == 1 && $FAIL_CNT == 0 && $DEBUG$SILENT$VERBOSE == 000 ]]",
            "(( HW_THREADS > 0 && HW_CORES > 0 && HW_SOCKETS > 0 && HW_RAM_TOTAL > 1000 )); nhc_hw_gather_data",
            "nhc_ps_gather_data; [[ -n ${PS_ARGS[$$]} && ${PS_PPID[$$]} == $PPID && ${#PS_PROCS[@]} -gt 1 ]]",
            "nhc_ps_gather_data; nhc_ps_pid_lineage $$ '*' && ! nhc_ps_pid_lineage $$ no-such-process",
            "nhc_fs_mounts_gather_data; [[ \" ${FS_MNTPT[*]} \" == *' / '* && ${#FS_DEV[@]} == ${#FS_TYPE[@]} ]]",
            "nhc_fs_df_gather_data; [[ \" ${DF_MNTPT[*]} \" == *' / '* && ${#DF_SIZE[@]} == ${#DF_MNTPT[@]} ]]",
            "nhc_fs_dfi_gather_data; [[ \" ${DFI_MNTPT[*]} \" == *' / '* ]]",
            "nhc_loadavg_gather_data; [[ ${#LOADAVG[@]} == 3 && ${LOADAVG[0]} =~ ^[0-9]+$ ]]",
            "kill_watchdog && vlog no && dbg no && oecho yes && eecho yes && vecho no",
        ],
    )  # fmt: skip
    def test_each_does_what_scripts_expect(self, shell: MakeShell, line: str) -> None:
        assert verdicts(shell(line, HOSTNAME="n01.cluster").run()) == ["OK"]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, ("log",)),
            ({"DEBUG": "1", "VERBOSE": "1"}, ("log", "DEBUG:  dbg", "vlog")),
            ({"SILENT": "1"}, ()),
        ],
    )
    def test_what_is_said_is_the_failures_evidence(
        self, shell: MakeShell, settings: Dict[str, str], expected: Tuple[str, ...]
    ) -> None:
        assert one(shell("log log; dbg dbg; vlog vlog; false", **settings).run()).evidence == expected

    def test_nothing_a_script_does_marks_the_node(self, shell: MakeShell) -> None:
        assert verdicts(shell("eval $OFFLINE_NODE \"'$HOSTNAME'\" \"'x'\" && [[ $MARK_OFFLINE == 0 ]]").run()) == ["OK"]


class TestSessions:
    def test_a_new_session_is_brought_to_where_the_old_one_was(self, shell: MakeShell) -> None:
        first = shell("N=$((40 + 2))", "touch_nothing() { :; }", "M=$N && false", "[[ $N == 42 ]] && touch_nothing")
        assert verdicts(first.run())[0] == "OK"
        second = ShellSession(first.host, first.plan, judge, True)
        second.restore(first.items[:3])
        assert second.run(first.items[3]) == [ok()]
        second.close()

    def test_the_shells_pid_is_announced(self, shell: MakeShell) -> None:
        told: List[Tuple[object, ...]] = []
        host = Host()
        host.system.watch = lambda *message: told.append(message)
        made = shell("[[ -n $BASHPID ]]", host=host)
        made.run()
        made.session.close()
        (started, pid), (ended, same) = told
        assert (started, ended, pid) == ("started", "ended", same)
        assert not os.path.exists(f"/proc/{pid}")

    def test_no_descriptor_is_left(self, shell: MakeShell) -> None:
        before = sorted(os.listdir("/proc/self/fd"))
        made = shell("exit 1", "check_cmd_status ok | cat", "exit 0", "[[ 1 == 1 ]]")
        made.run()
        made.session.close()
        assert sorted(os.listdir("/proc/self/fd")) == before

    def test_a_plain_item_needs_no_configuration(self) -> None:
        plan = load_text("", "f", "h")
        session = ShellSession(Host(), plan, judge, True)
        assert session.run(Item(SHELL, "shell", "true | true")) == [ok()]
        session.close()


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["[[ -d / ] && true", "if true; then", "true && || false", "( true"])
def test_a_line_that_bash_cannot_parse_is_unknown_and_config_check_says_so(tmp_path: Path, line: str) -> None:
    plan = load_text(f"* || {line}\n* || check_file_test -d /\n", "nhc.conf", "n1", {})
    report = run(plan, Host(), state=State(str(tmp_path / "state")))
    assert [(one.verdict, one.outcome.reason) for one in report.results] == [
        (Verdict.UNKNOWN, "ShellSyntax"), (Verdict.OK, "")]  # fmt: skip
    assert "bash cannot parse the line: syntax error" in report.results[0].outcome.message
    (tmp_path / "nhc.conf").write_text(f"* || true\n* || {line}\n")
    problems = [problem.show() for problem in validate([str(tmp_path / "nhc.conf")]).problems]
    assert len(problems) == 1
    assert problems[0].startswith(f"{tmp_path}/nhc.conf:2:6: bash cannot parse it: syntax error")


@pytest.mark.parametrize(
    "line", ["[[ a == b ]] && true", "case a in @(b|c)) true;; esac; false", "! true", "eval ']]'"]
)
def test_a_line_that_fails_for_its_own_reasons_is_no_slip_of_the_pen(tmp_path: Path, line: str) -> None:
    plan = load_text(f"* || {line}\n", "nhc.conf", "n1", {})
    report = run(plan, Host(), state=State(str(tmp_path / "state")))
    assert report.results[0].outcome.reason != "ShellSyntax"


def test_the_output_of_a_command_is_a_variable_of_later_lines(tmp_path: Path) -> None:
    text = """
* || check_cmd_output -O OUT -m '/zwei/' printf '%s\\n' "it's" '' 'zwei  $(drei)' /proc
* || [[ ${#OUT[@]} == 3 && "$OUT" == "it's" && "${OUT[1]}" == 'zwei  $(drei)' ]]
* || check_file_test -d ${OUT[2]}
* || check_cmd_output -O NONE -r 1 false
* || [[ ${#NONE[@]} == 0 && -n "${NONE+x}${OUT+x}" ]]
* || check_cmd_output -O "no name" true
* || wrap() { check_cmd_output -C wrap -O LINES_OF -r 7 "$@"; }; wrap echo x || [[ "$LINES_OF" == x ]]
"""
    report = run(load_text(text, "nhc.conf", "n01"), Host(), state=State(str(tmp_path)))
    found = [(result.source, result.verdict.name) for result in report.results]
    assert found == [
        ("nhc.conf:2", "OK"), ("nhc.conf:3", "OK"), ("nhc.conf:4", "OK"), ("nhc.conf:5", "OK"), ("nhc.conf:6", "OK"),
        ("nhc.conf:7", "UNKNOWN"), ("nhc.conf:8", "CRIT"),
    ], [result.outcome.message for result in report.results]  # fmt: skip
    assert "expected the name of a shell variable, not 'no name'" in report.results[5].outcome.message
    assert "returned by" in report.results[6].outcome.message, "the check failed, and the line saw its output"


@pytest.mark.thorough
def test_a_process_substitution_is_the_shells_own_file(tmp_path):
    """`<(command)` is /dev/fd/N, of the shell and not of the process that reads it."""
    lines = [
        ("check_file_contents <(printf 'one\\ntwo\\n') /two/", Verdict.OK),
        ("check_file_contents <(printf 'one\\ntwo\\n') /three/", Verdict.CRIT),
        ("check_file_contents <(seq 100000) 99999", Verdict.OK),
        ("check_file_contents <(true) '!x'", Verdict.OK),
        ("check_file_test -p <(true)", Verdict.OK),
        ("check_cmd_output -m /x/ cat <(echo x)", Verdict.OK),
        ("echo x | check_file_contents /dev/stdin x", Verdict.OK),
        ("check_file_contents <(exit 1) /x/ || check_file_contents <(echo x) /x/", Verdict.CRIT),
    ]
    plan = load_text("".join(f"* || {line}\n" for line, _verdict in lines), "nhc.conf", "n1")
    report = run(plan, Host(), state=State(str(tmp_path)), check_all=True)
    worst = {result.line: Verdict.OK for result in report.results}
    for result in report.results:
        worst[result.line] = max(worst[result.line], result.verdict)
    assert worst == dict(lines)
    shown = next(result.outcome for result in report.results if "three" in result.line)
    assert re.fullmatch(r'File "/dev/fd/\d+" failed to match "/three/"\.', shown.message)
    assert "/proc/" not in shown.target
