"""From the text of a configuration to the plan of one node."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.data import reader
from nhc.core.language import lines
from nhc.core.language.loader import SETTINGS, ConfigError, load, load_check, load_text, parse_text, validate
from nhc.core.plan import BUILT_IN, COMMAND, SHELL, UNDECIDED, Item, Plan

HOST = "n01.cluster"


def plan(text: str, host: str = HOST, **more: Any) -> Plan:
    return load_text(text, "nhc.conf", host, **more)


def items(text: str, host: str = HOST, **more: Any) -> List[Tuple[str, str]]:
    return [(item.kind, item.line) for item in plan(text, host, **more).items]


def only(text: str, **more: Any) -> Item:
    (item,) = plan(text, **more).items
    return item


def scripts(directory: Path, **texts: str) -> List[str]:
    for name, text in texts.items():
        (directory / f"{name}.nhc").write_text(text)
    return [str(directory)]


class TestLines:
    def test_a_line_is_a_target_and_a_check(self) -> None:
        (line,) = parse_text(" * \t|| check_x -a  'b' \t\n", "f")
        assert (line.target, line.check, line.line, line.column) == ("*", "check_x -a  'b'", 1, 8)

    def test_the_first_bars_split(self) -> None:
        (line,) = parse_text("* || false || echo x\n", "f")
        assert line.check == "false || echo x"

    def test_comments_and_blank_lines_are_no_lines(self) -> None:
        assert parse_text("# x\n\n  \t\n#* || check\n", "f") == []

    def test_a_last_line_without_a_newline_counts(self) -> None:
        assert [line.check for line in parse_text("* || one\n* || two", "f")] == ["one", "two"]

    def test_carriage_returns_and_a_byte_order_mark_are_tolerated(self) -> None:
        assert [line.check for line in parse_text("\ufeff* || one\r\n* || two\r\n", "f")] == ["one", "two"]

    def test_single_backslashes_stay_and_pairs_stand_for_one(self) -> None:
        (line,) = parse_text(r"* || check_file_contents /f '/^\$pbs/' '/a\\.b/' '\\\d'", "f")
        assert line.check == r"check_file_contents /f '/^\$pbs/' '/a\.b/' '\\d'"

    def test_a_backslash_at_the_end_joins_lines(self) -> None:
        first, second = parse_text("* || check_x \\\n  -a b\n* || check_y 'a\\\\'\\\\\n", "f")
        assert (first.line, first.check) == (1, "check_x   -a b")
        assert (second.line, second.check) == (3, "check_y 'a\\'\\")

    def test_positions_survive_continuations_and_pairs(self) -> None:
        (line,) = parse_text("* || check_x a\\\\b c \\\n  bad\n", "f")
        assert line.text == "* || check_x a\\b c   bad"
        assert line.position(line.text.index(" c ") + 1) == (1, 19)
        assert line.position(line.text.index("bad")) == (2, 3)

    def test_options_stand_between_single_bars(self) -> None:
        (line,) = parse_text("gpu*|every 60s, strikes 2|check_x || true", "f")
        assert (line.target, line.options, line.check) == ("gpu*", "every 60s, strikes 2", "check_x || true")

    @pytest.mark.parametrize(
        ("text", "target", "check"),
        [
            ("/^(a|b)$/ || check_x", "/^(a|b)$/", "check_x"),
            ("@(a|b|c) || check_x", "@(a|b|c)", "check_x"),
            ("* || echo |timeout 5| x", "*", "echo |timeout 5| x"),
            ("/^(a|b)$/ |tags x| check_x", "/^(a|b)$/", "check_x"),
        ],
    )
    def test_other_bars_keep_their_meaning(self, text: str, target: str, check: str) -> None:
        (line,) = parse_text(text, "f")
        assert (line.target, line.check) == (target, check)

    def test_a_context_line_holds_until_the_next(self) -> None:
        text = "* || a\n# context prolog epilog\n* || b\n# context of this is a comment\n* || c\n# context\n* || d\n"
        assert [line.contexts for line in parse_text(text, "f")] == [
            (), ("prolog", "epilog"), ("prolog", "epilog"), (),
        ]  # fmt: skip

    @pytest.mark.thorough
    @given(st.text(alphabet=st.one_of(st.sampled_from("\\|# \n*'\"a"), st.characters()), max_size=60))
    def test_no_text_raises(self, text: str) -> None:
        for line in parse_text(text, "f"):
            for offset in range(len(line.text) + 1):
                row, column = line.position(offset)
                assert row >= 1
                assert column >= 1

    @given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\n\r"), max_size=30))
    def test_escaped_text_comes_back(self, text: str) -> None:
        (line,) = parse_text(f"* || x{lines.escape(text)}x", "f")
        assert line.check == f"x{text}x"


class TestWhatALineIs:
    def test_a_check_of_ours_with_plain_words(self) -> None:
        item = only("* || check_cmd_status -t 5 'a b' # why")
        assert (item.kind, item.name) == (BUILT_IN, "check_cmd_status")
        assert item.argv == ("check_cmd_status", "-t", "5", "a b")
        assert item.source == "nhc.conf:1"

    def test_a_program(self) -> None:
        item = only("* || /opt/site/probe.sh --fast")
        assert (item.kind, item.name, item.argv) == (COMMAND, "probe.sh", ("/opt/site/probe.sh", "--fast"))

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("[[ -d /x ]] && check_fs_mount_rw -f /x", "check_fs_mount_rw"),
            ("echo x | grep -q x", "shell"),
            ("check_cmd_status $UNKNOWN", "check_cmd_status"),
            ("test -d /x", "shell"),
            ("die 1 no", "shell"),
            ("mcheck a b", "shell"),
            ("ulimit -c 0", "shell"),
            ("A=1 probe", "shell"),
        ],
    )
    def test_a_shell_line(self, line: str, name: str) -> None:
        item = only(f"* || {line}")
        assert (item.kind, item.name, item.line) == (SHELL, name, line)

    def test_an_unknown_check_stands_in_the_plan_to_be_judged_unknown(self) -> None:
        made = plan("* || check_no_such_thing 1\n* || check_cmd_status true")
        assert [(item.kind, item.name) for item in made.items] == [
            (COMMAND, "check_no_such_thing"), (BUILT_IN, "check_cmd_status"),
        ]  # fmt: skip

    def test_wrong_arguments_spoil_one_line_only(self) -> None:
        made = plan("* || check_cmd_status -r x true\n* || check_cmd_status true")
        assert [item.kind for item in made.items] == [BUILT_IN, BUILT_IN]
        assert made.notes == ("nhc.conf:1:26: check_cmd_status: -r: 'x' is not a whole number",)

    def test_strict_raises_for_them(self) -> None:
        with pytest.raises(ConfigError) as raised:
            plan("* || check_cmd_status -r x true", strict=True)
        assert raised.value.problems[0].show().startswith("nhc.conf:1:26: ")


class TestVariables:
    def test_literal_assignments_are_settings_of_what_follows(self) -> None:
        made = plan("* || check_cmd_status a\n* || MCELOG_ARGS=x\n* || export B='c d' E=\n* || check_cmd_status b")
        assert [item.settings for item in made.items] == [{}, {"MCELOG_ARGS": "x", "B": "c d", "E": ""}]
        assert made.settings == made.items[1].settings

    def test_they_apply_only_where_the_target_does(self) -> None:
        assert plan("n02* || TIMEOUT=5\nn01* || X=1").settings == {"X": "1"}

    def test_timeout_in_the_file_counts(self) -> None:
        assert plan("* || TIMEOUT=90").settings["TIMEOUT"] == "90"

    def test_known_variables_need_no_shell(self) -> None:
        made = plan('* || R=4\n* || HOSTNAME="$HOSTNAME_S"\n* || check_cmd_status -r $R "$HOSTNAME"')
        assert made.items[0].argv == ("check_cmd_status", "-r", "4", "n01")

    def test_given_settings_are_known(self) -> None:
        assert only("* || check_cmd_status $P", settings={"P": "x"}).argv == ("check_cmd_status", "x")

    def test_what_a_shell_line_may_have_changed_is_not_known(self) -> None:
        text = "* || R=4\n* || [[ -f /x ]] && R=5\n* || check_cmd_status -r $R true"
        assert [kind for kind, _line in items(text)] == [SHELL, SHELL]

    def test_a_second_assignment_follows_the_first_into_the_shell(self) -> None:
        text = "* || [[ -f /x ]] && R=5\n* || R=6\n* || echo $R | cat"
        assert [line for _kind, line in items(text)] == ["[[ -f /x ]] && R=5", "R=6", "echo $R | cat"]

    def test_a_computed_setting_takes_the_checks_after_it_into_the_shell(self) -> None:
        text = "* || check_cmd_status a\n* || MAX_SYS_UID=$((500 - 1))\n* || check_cmd_status b\n* || true"
        assert [kind for kind, _line in items(text)] == [BUILT_IN, SHELL, SHELL, COMMAND]

    def test_reading_a_setting_does_not(self) -> None:
        assert [kind for kind, _ in items("* || echo $TIMEOUT ${HOSTNAME} | cat\n* || check_cmd_status b")] == [
            SHELL, BUILT_IN,
        ]  # fmt: skip

    @pytest.mark.parametrize("line", ["cd /tmp && true", "X=`d`; export X", "ulimit -n 64", "export PATH=/opt/x:`d`"])
    def test_programs_run_where_the_shell_prepared_for_them(self, line: str) -> None:
        assert items(f"* || {line}\n* || probe")[-1] == (SHELL, "probe")

    @pytest.mark.parametrize("line", ["PATH=/opt/bin:/bin", 'export PATH="$PATH:/opt/bin"', "PATH=/opt/bin:$PATH"])
    def test_a_path_of_ones_own_needs_no_shell(self, line: str) -> None:
        assert items(f"* || {line}\n* || probe\n* || check_cmd_status x") == [
            (COMMAND, "probe"), (BUILT_IN, "check_cmd_status x"),
        ]  # fmt: skip

    @pytest.mark.parametrize("line", ["[[ -d /opt ]] && export PATH=$PATH:/opt/bin", "PATH=`d`:$PATH"])
    def test_a_path_that_only_the_shell_knows_takes_the_checks_after_it_there(self, line: str) -> None:
        assert items(f"* || {line}\n* || check_cmd_status x")[-1] == (SHELL, "check_cmd_status x")

    def test_a_wrapper_of_a_command_check_is_filed_under_its_name(self) -> None:
        plan = load_text(
            "* || check_cmd_output -C check_mine -m x echo x\n* || check_net_socket -n mine -p tcp", "f", "n"
        )
        assert [item.name for item in plan.items] == ["check_mine", "check_net_socket"]

    def test_a_function_defined_in_a_line_is_the_shells(self) -> None:
        assert items("* || probe() { true; }\n* || probe")[-1] == (SHELL, "probe")

    def test_every_setting_that_checks_ask_for_is_among_those_the_shell_sends(self) -> None:
        asked = set()
        for directory, _dirs, files in os.walk(Path(__file__).parents[3] / "nhc"):
            if os.path.basename(directory) in ("checks", "facts"):
                for name in files:
                    if name.endswith(".py"):
                        asked.update(_SETTING.findall(Path(directory, name).read_text()))
        assert asked <= set(SETTINGS)


_SETTING = __import__("re").compile(r"""\.setting\(\s*["'](\w+)""")


class TestTargets:
    @pytest.mark.parametrize(
        ("target", "applies"),
        [
            ("*", True),
            ("n01*", True),
            ("n01", False),
            ("{n[01-10].cluster,login}", True),
            ("!/gpu/", True),
            ("/", False),
        ],
    )
    def test_targets_match_the_whole_name(self, target: str, applies: bool) -> None:
        assert bool(plan(f"{target} || true").items) is applies

    def test_a_target_that_cannot_be_read_runs_nothing_and_is_not_left_out(self) -> None:
        made = plan("{n[1-} || false\n!{n[1-} || true")
        assert [(item.kind, item.line) for item in made.items] == [(UNDECIDED, "false"), (UNDECIDED, "true")]
        assert all("'n[1-': [ is not closed" in item.argv[1] for item in made.items)
        assert made.notes == ()

    def test_a_line_without_bars_runs_nothing_and_is_not_left_out(self) -> None:
        made = plan("check_cmd_status true\n* || true")
        assert [(item.kind, item.name) for item in made.items] == [(UNDECIDED, "check_cmd_status"), (COMMAND, "true")]
        assert made.items[0].argv[1].startswith("nhc.conf:1:1: no `||`: expected TARGET || CHECK")

    def test_external_matchers(self, tmp_path: Path) -> None:
        given = {
            "NHC_MCHECK_DELIM": "( '<>' '@' )",
            "NHC_MCHECK_COMMAND": f"( '[ %h = n01.cluster ] && [ %m = \"rack 4\" ]' 'touch {tmp_path}/made; false' )",
        }
        text = "<rack 4> || one\n!<rack 4> || two\n@x@ || three\n!@x@ || four"
        assert [line for _kind, line in items(text, settings=given)] == ["one", "four"]

    def test_a_hostile_name_is_not_part_of_the_command(self, tmp_path: Path) -> None:
        given = {"NHC_MCHECK_DELIM": "<>", "NHC_MCHECK_COMMAND": "test %h = %m"}
        host = f'x"; touch {tmp_path}/owned; "'
        assert items("<x> || one", host=host, settings=given) == []
        assert not (tmp_path / "owned").exists()


class TestOptions:
    def test_all_of_them(self) -> None:
        item = only(
            "* |every 5m, timeout 1.5s, strikes 3, on-timeout crit, tags gpu slow, context prolog| check_cmd_status x"
        )
        assert (item.every, item.timeout, item.strikes) == (300.0, 1.5, 3)
        assert (item.on_timeout, item.tags, item.contexts) == ("crit", ("gpu", "slow"), ("prolog",))

    def test_none_of_them(self) -> None:
        item = only("* || check_cmd_status x")
        assert (item.every, item.timeout, item.strikes, item.on_timeout) == (None, None, 0, None)

    def test_a_line_that_only_warns_and_one_that_counts_among_its_last_runs(self) -> None:
        item = only("* |warn-only, strikes 3 of 10| check_cmd_status x")
        assert (item.warn_only, item.strikes, item.of) == (True, 3, 10)
        assert item.counting() == ["strikes 3 of 10", "warn-only"]
        item = only("* |warn-only| check_cmd_status x")
        assert (item.warn_only, item.strikes, item.of) == (True, 0, 0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("every 5x", "every: '5x' is not a duration"),
            ("timeout 0s", "timeout: expected a duration above 0"),
            ("strikes 0", "strikes: expected a whole number of failures in a row"),
            ("strikes 3 of 2", "strikes: expected N of M runs, M from N to 1000, not '3 of 2'"),
            ("strikes 3 of many", "strikes: 'many' is not a whole number"),
            ("strikes 2 of 5000", "strikes: expected N of M runs"),
            ("warn-only yes", "warn-only: takes no value, not 'yes'"),
            ("strikes", "strikes: '' is not a whole number"),
            ("timeout 5s, on-timeout warn", "on-timeout: expected crit or unknown, not 'warn'"),
            ("timeout 5s, evry 6s", "no such line option: 'evry'"),
            ("context login", "not 'login'"),
            ("tags", "tags: expected one or more names"),
        ],
    )
    def test_mistakes_are_named_and_the_line_still_runs(self, options: str, message: str) -> None:
        made = plan(f"* |{options}| check_cmd_status x")
        assert len(made.items) == 1
        assert message in made.notes[0]

    def test_the_lines_context_outranks_the_files(self) -> None:
        made = plan("# context prolog\n* |context agent| a\n* || b")
        assert [item.contexts for item in made.items] == [("agent",), ("prolog",)]


class TestFiles:
    def test_files_and_directories_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "nhc.conf").write_text("* || one\n")
        parts = tmp_path / "conf.d"
        parts.mkdir()
        for name in ("20-b.conf", "10-a.conf", "note.txt", ".hidden.conf"):
            (parts / name).write_text(f"* || {name}\n")
        made = load([str(tmp_path / "nhc.conf"), str(parts)], HOST)
        assert [item.line for item in made.items] == ["one", "10-a.conf", "20-b.conf"]
        assert made.items[1].source == f"{parts}/10-a.conf:1"

    def test_includes_are_relative_to_their_file_and_may_be_patterns(self, tmp_path: Path) -> None:
        (tmp_path / "nhc.conf").write_text("include sub/a.conf\n* || last\nlogin* || include sub/none.conf\n")
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "a.conf").write_text("* || a\nn* || include more-*.conf\n")
        (tmp_path / "sub" / "more-2.conf").write_text("* || m2\n")
        (tmp_path / "sub" / "more-1.conf").write_text("* || m1\n")
        made = load([str(tmp_path / "nhc.conf")], HOST)
        assert [item.line for item in made.items] == ["a", "m1", "m2", "last"]

    @pytest.mark.parametrize("text", ["include b.conf\n", "include nhc.conf\n", "include missing.conf\n"])
    def test_circles_and_missing_files_are_errors(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "nhc.conf").write_text(f"* || x\n{text}")
        (tmp_path / "b.conf").write_text("include nhc.conf\n")
        with pytest.raises(ConfigError) as raised:
            load([str(tmp_path / "nhc.conf")], HOST)
        (problem,) = raised.value.problems
        assert "includes itself" in problem.message or "No such file" in problem.message

    def test_a_missing_configuration_is_an_error_never_a_healthy_node(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            load([str(tmp_path / "none.conf")], HOST)
        with pytest.raises(ConfigError, match=r"no \*\.conf file"):
            load([str(tmp_path)], HOST)

    def test_a_file_is_read_once(self, tmp_path: Path) -> None:
        (tmp_path / "nhc.conf").write_text("include a.conf\ninclude a.conf\n")
        (tmp_path / "a.conf").write_text("* || a\n")
        made = load([str(tmp_path / "nhc.conf")], HOST)
        assert len(made.items) == 1
        assert "has been read already" in made.notes[0]

    def test_one_check_without_a_target_is_taken_as_it_is(self) -> None:
        (item,) = load_check(r"check_cmd_status 'a\\b' || true", "-e", HOST).items
        assert (item.kind, item.line, item.source) == (SHELL, r"check_cmd_status 'a\\b' || true", "-e")

    @pytest.mark.thorough
    @given(st.text(max_size=60))
    def test_no_text_raises(self, text: str) -> None:
        plan(f"* || {text}")
        plan(text)


class TestSiteScripts:
    def test_functions_are_shell_lines(self, tmp_path: Path) -> None:
        where = scripts(tmp_path, site="function check_disk_x\n{ true; }\nhelper() {\n :\n}\ncheck_y () { :; }\n")
        text = "* || check_disk_x 1\n* || check_y\n* || helper\n* || other"
        made = plan(text, scripts_dirs=where)
        assert [(item.kind, item.name) for item in made.items] == [
            (SHELL, "check_disk_x"), (SHELL, "check_y"), (SHELL, "helper"), (COMMAND, "other"),
        ]  # fmt: skip
        assert made.scripts == (f"{tmp_path}/site.nhc",)

    def test_one_with_a_built_ins_name_overrides_it(self, tmp_path: Path) -> None:
        where = scripts(tmp_path, site="check_cmd_status() { true; }\n")
        assert items("* || check_cmd_status x", scripts_dirs=where) == [(SHELL, "check_cmd_status x")]

    def test_lbnls_own_files_are_replaced_by_ours(self, tmp_path: Path) -> None:
        where = scripts(tmp_path, lbnl_cmd="function check_cmd_status() { false; }\n", common="die() { exit; }\n",
                        csc_nvidia_smi="source /x\ncheck_nvsmi_healthmon() { false; }\n")  # fmt: skip
        made = plan("* || check_cmd_status x\n* || check_nvsmi_healthmon", scripts_dirs=where)
        assert made.scripts == (f"{tmp_path}/csc_nvidia_smi.nhc",)
        assert [item.kind for item in made.items] == [BUILT_IN, SHELL]
        assert [note.partition(": ")[2].split(" is ")[0] for note in made.notes] == ["die", "check_cmd_status"]

    def test_a_sites_own_file_is_loaded_whatever_it_is_called(self, tmp_path: Path) -> None:
        where = scripts(tmp_path, lbnl_site="check_site() { :; }\n", ww_rack="check_rack() { :; }\n",
                        lbnl_values="export SITE=1\n", common="check_common() { :; }\ndie() { :; }\n")  # fmt: skip
        made = plan("* || check_site\n* || check_rack\n* || check_common", scripts_dirs=where)
        assert [item.kind for item in made.items] == [SHELL] * 3
        assert [path.rpartition("/")[2] for path in made.scripts] == [
            "common.nhc", "lbnl_site.nhc", "lbnl_values.nhc", "ww_rack.nhc",
        ]  # fmt: skip
        assert [note.partition(": ")[2][:18] for note in made.notes] == ["die is nhc's own, "]

    def test_lbnls_files_as_released_are_replaced_without_a_word(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By their digests: an edited one says what of it does not count."""
        text = "check_hw_eth() { :; }\nnhc_hw_eth_gather_data() { :; }\n"
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        table = reader.read("lbnl_files.tsv")
        rows = re.findall(r"^\w+\.nhc\t[0-9a-f]{16}\t(?:[\w.]+ ?)+$", table, re.MULTILINE)
        assert len(rows) == table.count(".nhc\t") > 60
        monkeypatch.setattr(reader, "read", lambda name: f"{table}lbnl_hw.nhc\t{digest}\t1.9\n")
        where = scripts(tmp_path, lbnl_hw=text)
        made = plan("* || check_hw_eth lo", scripts_dirs=where)
        assert (made.scripts, made.notes) == ((), ())
        scripts(tmp_path, lbnl_hw=text + "# ours\n")
        made = plan("* || check_hw_eth lo", scripts_dirs=where)
        assert (made.scripts, len(made.notes), made.items[0].kind) == ((), 1, BUILT_IN)

    def test_their_defaults_are_settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MCELOG_ARGS", raising=False)
        where = scripts(tmp_path, site='MCELOG_ARGS="${MCELOG_ARGS:---ascii}"\nexport DF_CMD=mydf\nOTHER=1\n')
        assert plan("", scripts_dirs=where).settings == {"MCELOG_ARGS": "--ascii", "DF_CMD": "mydf"}
        assert plan("", scripts_dirs=where, settings={"MCELOG_ARGS": "x"}).settings["MCELOG_ARGS"] == "x"

    def test_one_that_computes_a_setting_takes_checks_into_the_shell(self, tmp_path: Path) -> None:
        where = scripts(tmp_path, site="MAX_SYS_UID=$(awk x)\n")
        assert items("* || check_cmd_status x", scripts_dirs=where) == [(SHELL, "check_cmd_status x")]

    def test_a_missing_directory_is_none(self, tmp_path: Path) -> None:
        assert plan("* || true", scripts_dirs=[str(tmp_path / "none")]).scripts == ()


class TestValidation:
    def test_everything_wrong_is_reported_with_its_place(self, tmp_path: Path) -> None:
        path = tmp_path / "nhc.conf"
        path.write_text(
            "login* || check_cmd_statu true\n"
            "{n[1-x]} || true\n"
            "* || check_cmd_status -r 1 \\\n"
            "     -z\n"
            "* |strikes 0| check_cmd_status true\n"
            "no bars\n"
        )
        found = validate([str(path)])
        assert [problem.show()[len(str(tmp_path)) + 1 :] for problem in found.problems] == [
            "nhc.conf:1:11: no such check: check_cmd_statu (did you mean check_cmd_status?)",
            "nhc.conf:2:3: target 'n[1-x]': '1-x' is not a range of numbers such as 01-99",
            "nhc.conf:4:6: check_cmd_status: Invalid option:  -z",
            "nhc.conf:5:4: strikes: expected a whole number of failures in a row, 1 or more, not '0'",
            "nhc.conf:6:1: no `||`: expected TARGET || CHECK",
        ]

    def test_with_a_host_name_only_its_lines_are_judged(self, tmp_path: Path) -> None:
        path = tmp_path / "nhc.conf"
        path.write_text("login* || check_cmd_statu true\n* || check_cmd_status true\n")
        found = validate([str(path)], HOST)
        assert (found.problems, found.lines, found.checks) == ((), 2, 1)

    def test_a_missing_file_is_a_problem(self) -> None:
        assert validate(["/no/such.conf"]).problems[0].show() == "/no/such.conf: No such file or directory"


def test_planning_imports_nothing_dear() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from nhc.core.language.loader import load_text;"
        "load_text('* || true', 'f', 'h'); print(*sorted(m for m in sys.modules if m.startswith('nhc.')))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parents[3])  # fmt: skip
    loaded: Dict[str, None] = dict.fromkeys(done.stdout.split())
    assert "nhc.core.matching.patterns" not in loaded
    assert "nhc.core.language.site_scripts" not in loaded
    assert "nhc.core.language.external_matcher" not in loaded


def test_what_never_ends_or_never_begins_is_no_configuration(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert validate([str(fifo)]).lines == 0  # nobody writes: empty, and at once
    assert validate(["/dev/zero"]).problems[0].show() == "/dev/zero: not a file"


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"* || true")
    os.close(writing)
    try:
        assert validate([f"/dev/fd/{reading}"]).checks == 1
    finally:
        os.close(reading)


def test_a_configuration_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "nhc.conf"
    path.touch()
    os.truncate(path, (64 << 20) + 1)
    assert validate([str(path)]).problems[0].show() == f"{path}: larger than 64 MiB"


class TestAnIncludeThatMatchesNothing:
    """Its checks would not run, and nobody would know."""

    @pytest.mark.parametrize("pattern", ["none/*.conf", "none/*/x.conf", "/nonexistent/conf.d/*.conf"])
    def test_a_directory_that_is_not_there_is_a_mistake(self, tmp_path: Path, pattern: str) -> None:
        path = tmp_path / "nhc.conf"
        path.write_text(f"* || check_fs_mount_rw /\n* || include {pattern}\nlogin* || include other/*.conf\n")
        plan = load([str(path)], "n1")
        assert [(item.kind, item.source) for item in plan.items][1:] == [(UNDECIDED, f"{path}:2")]
        assert plan.items[1].argv[0] == "BadLine"
        (problem,) = validate([str(path)], "n1").problems
        assert (problem.line, "there is no directory" in problem.message) == (2, True)

    @pytest.mark.parametrize("pattern", ["conf.d/*.conf", "conf.d/gpu-?.conf", "*/extra.conf"])
    def test_an_empty_one_is_a_note(self, tmp_path: Path, pattern: str) -> None:
        path = tmp_path / "nhc.conf"
        (tmp_path / "conf.d").mkdir()
        path.write_text(f"* || check_fs_mount_rw /\ninclude {pattern}\n")
        plan = load([str(path)], "n1")
        assert [item.name for item in plan.items] == ["check_fs_mount_rw"]
        (note,) = plan.notes
        assert note.startswith(f"{path}:2: no file matches ")
        validation = validate([str(path)], "n1")
        assert (validation.problems, len(validation.notes)) == ((), 1)
        (tmp_path / "conf.d" / "gpu-1.conf").write_text("* || check_mem_free 1G\n")
        (tmp_path / "conf.d" / "extra.conf").write_text("* || check_mem_free 1G\n")
        assert len(load([str(path)], "n1").items) > 1


class TestADirectoryOfScriptsThatHoldsNone:
    """`--scripts` with another directory than the one that was meant: its checks would be missing without a word."""

    @pytest.mark.parametrize("other", [None, "check_ours.sh", ".hidden.nhc"])
    def test_it_is_a_note(self, tmp_path: Path, other: Optional[str]) -> None:
        if other:
            (tmp_path / other).write_text("check_ours() { :; }\n")
        made = plan("* || check_mem_free 1G", scripts_dirs=[str(tmp_path)])
        assert [item.name for item in made.items] == ["check_mem_free"]
        (note,) = made.notes
        assert note.startswith(f"{tmp_path}: no *.nhc script")

    def test_a_sites_own_may_be_empty(self, tmp_path: Path) -> None:
        (tmp_path / "scripts").mkdir()
        assert plan("* || check_mem_free 1G", scripts_dirs=[f"{tmp_path}/scripts/"]).notes == ()

    def test_one_with_a_script_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "ours.nhc").write_text("check_ours() { :; }\n")
        assert plan("* || check_ours", scripts_dirs=[str(tmp_path)]).notes == ()
