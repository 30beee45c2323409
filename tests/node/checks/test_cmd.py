"""check_cmd_output, check_cmd_status and check_cmd_dmesg."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost
from nhc.node.checks.cmd import _filled, command_of
from tests.support.judge import judge

THREE = "line1\nline2\nline3\n"


def see(line, answer=THREE):
    return judge(FakeHost({}, {"tool": answer}), line)


@pytest.mark.parametrize(
    "options",
    [
        "-m /line1/ -m /line2/ -m /line3/",
        "-m '!/line4/' -m /line2/ -m /line3/",
        "-m '!/line4/' -m '!/line5/'",
        "-m line2",
        "",
    ],
)
def test_output_as_it_should_be_passes(options):
    assert see(f"check_cmd_output -t 1 {options} tool a b").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-m /line4/", '"/line4/" failed to match "tool a b" output.'),
        ("-m '!/line2/'", '"/line2/" matched at line 2 of "tool a b".'),
        ("-m /line5/ -m '!/line4/' -m /line3/", '"/line5/" failed to match "tool a b" output (1/3 patterns failed).'),
        ("-m /line5/ -m /line6/", '"/line5/" failed to match "tool a b" output (2/2 patterns failed).'),
        ("-m '!/line1/' -m /line5/", '"/line1/" matched at line 1 of "tool a b".'),
        ("-m '!/line3/' -m '!/line2/'", '"/line2/" matched at line 2 of "tool a b".'),  # the first line in the output
        ("-r 3", '0 (expected 3) returned by "tool a b".'),
        ("-m /x/ -M 'no %m in %c: 100%'", "no /x/ in tool a b: 100%."),
        ("-m /x/ -m '!/2/' -M '' -M 'bad %L at %l'", "bad line2 at 2."),
        ("-m /x/ -m /y/ -M 'lost %f'", "lost 2/2."),
    ],
)
def test_output_as_it_should_not_be_fails_in_lbnl_words(options, message):
    outcome = see(f"check_cmd_output {options} tool a b")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_status_is_judged_before_a_line_that_is_missing_and_after_one_that_is_forbidden():
    failed = Completed(2, THREE, "broken\n")

    assert see("check_cmd_output -m /x/ tool", failed).message == '2 returned by "tool".'
    assert see("check_cmd_output -m '!/line1/' tool", failed).reason == "OutputForbidden"
    assert see("check_cmd_output tool", failed).evidence[-1] == "broken"


def test_line_numbers_count_blank_lines():
    assert '"/b/" matched at line 3' in see("check_cmd_output -m '!/b/' tool", "a\n\nb\n").message


def test_a_timeout_names_the_command():
    outcome = see("check_cmd_output -t 2 tool x", Completed(143, "", "", True))

    assert outcome.verdict is Verdict.CRIT
    assert outcome.message == 'TIMEOUT after 2s for "tool x"; subprocess terminated.'


def test_a_missing_command_is_unknown_unless_that_is_asked_for():
    assert see("check_cmd_output nothing").reason == "CommandMissing"
    assert see("check_cmd_output nothing").verdict is Verdict.UNKNOWN
    assert see("check_cmd_output -r 127 nothing").verdict is Verdict.OK
    assert see("check_cmd_status nothing").verdict is Verdict.UNKNOWN
    assert see("check_cmd_output").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("-e 'tool  \"a b\" *'", ("tool", '"a', 'b"', "*")),
        ("-e 'tool | wc -l'", ("bash", "-c", "tool | wc -l")),
        ("-e 'A=$HOME tool'", ("bash", "-c", "A=$HOME tool")),
        ("'tool' 'a | b'", ("tool", "a | b")),
    ],
)
def test_only_a_text_with_shell_signs_is_given_to_bash(line, argv):
    host = FakeHost({}, {"tool": "", "bash": ""})

    judge(host, f"check_cmd_output {line}")

    assert host.system.ran == [argv]


@pytest.mark.thorough
@given(st.text(), st.lists(st.text()))
def test_any_text_makes_a_command_or_none(line, words):
    command = command_of(words, line)

    assert command.argv or not (line.split() if line else words)


@given(st.text())
def test_values_are_not_taken_for_signs(value):
    assert _filled("%m-%c", {"%m": value, "%c": "c"}) == f"{value}-c"


@pytest.mark.thorough
def test_real_pipes_statuses_and_deadlines():
    host = Host()

    assert judge(host, "check_cmd_output -e 'printf \"a\\nb\\n\" | wc -l' -m '/^ *2$/'").verdict is Verdict.OK
    assert judge(host, "check_cmd_output -e 'no-such-tool | cat; exit 127'").verdict is Verdict.UNKNOWN
    assert judge(host, "check_cmd_status -r 1 false").verdict is Verdict.OK
    assert judge(host, "check_cmd_status false").message == '1 returned by "false".'
    begun = time.monotonic()
    assert judge(host, "check_cmd_status -t 0.2 sleep 60").message.startswith('TIMEOUT after 0.2s for "sleep 60"')
    assert time.monotonic() - begun < 30


def test_output_is_kept_whole_for_a_wrapper():
    assert see("check_cmd_output -C check_mine -O LINES -m /1/ tool").evidence == ("line1", "line2", "line3")
    assert see("check_cmd_output -m /1/ tool").evidence == ()


def test_status_ignores_output():
    assert see("check_cmd_status tool", Completed(0, "ERROR")).verdict is Verdict.OK
    assert see("check_cmd_status -r 2 tool a", Completed(1)).message == '1 (expected 2) returned by "tool a".'
    with pytest.raises(BadArguments, match="needs words"):
        find("check_cmd_status").parse([])


def test_dmesg():
    host = FakeHost({}, {"dmesg": "[1] Linux version\n[2] mce: [Hardware Error]\n", "other": "fine\n"})

    assert judge(host, "check_cmd_dmesg -m '!/panic/'").verdict is Verdict.OK
    assert judge(host, "check_cmd_dmesg -m '!/Hardware Error/'").message == "mce: [Hardware Error]"
    assert judge(host, "check_cmd_dmesg -m '!/Hardware Error/' -M 'see %L'").message == "see [2] mce: [Hardware Error]."
    assert judge(host, "check_cmd_dmesg -e other -m '!/Hardware Error/'").verdict is Verdict.OK
    assert judge(FakeHost(), "check_cmd_dmesg -m '!/x/'").verdict is Verdict.UNKNOWN
    not_permitted = FakeHost(
        {}, {"dmesg": Completed(1, "", "dmesg: read kernel buffer failed: Operation not permitted")}
    )
    assert judge(not_permitted, "check_cmd_dmesg").message == '1 returned by "dmesg".'
