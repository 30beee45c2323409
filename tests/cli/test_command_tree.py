"""The tree of commands: few, under headings, each verb once, each letter with one meaning."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from typing import Iterator

import click
import pytest

from nhc.cli.click_app import VerbCommand, application
from nhc.cli.command_table import COMMANDS, SECTIONS, Verb
from nhc.cli.main import main
from nhc.core.command_line.common_options import HeadedOption
from tests.support.run import nhc

LETTERS = {"-f": "--format", "-o": "--output", "-s": "--settings", "-w": "--nodes", "-n": "--node", "-r": "--report"}
LBNLS = ("nhc genconf",)
"""Commands whose letters are those of LBNL NHC's programs."""


def leaves(command: click.Command, words: str = "nhc") -> Iterator[tuple[str, click.Command]]:
    """All commands; what a verb may be about is a command of its own."""
    if not isinstance(command, (click.Group, VerbCommand)):
        yield words, command
        return
    with click.Context(command) as context:
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from leaves(inner, f"{words} {name}")


def names(table: dict, inside: str = "") -> Iterator[str]:
    """What a person has to know: a verb counts once, whatever it is about."""
    for name, (_first, second, *_example) in table.items():
        yield from names(second, name) if isinstance(second, dict) and not isinstance(second, Verb) else [name]


def test_there_are_few_commands_and_each_stands_under_one_heading():
    assert len(list(names(COMMANDS))) <= 80
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)
    shown = nhc("--help").stdout
    assert re.findall(r"^([A-Z][\w ]+):$", shown, re.MULTILINE) == ["Options", *SECTIONS]


@pytest.mark.parametrize(("words", "command"), list(leaves(application)), ids=lambda each: str(each)[:40])
def test_a_help_page_has_an_example_that_the_command_takes(words, command):
    """Every word of it is read as one of the command's options, its arguments, or their values."""
    (example,) = re.findall(r"^Example: (.+)$", command.epilog, re.MULTILINE)
    typed = shlex.split(example)
    assert typed[: len(words.split())] == words.split()
    assert f"  Example: {example}\n" in nhc_help(words)
    command.make_context(words, typed[len(words.split()) :])


def nhc_help(words: str) -> str:
    with redirect_stdout(StringIO()) as shown:
        assert main([*words.split()[1:], "--help"]) == 0
    return shown.getvalue()


def test_a_letter_means_one_thing():
    meanings: dict[str, set[str]] = {}
    for words, command in leaves(application):
        for option in command.params if words not in LBNLS else ():
            long = [flag for flag in option.opts if flag.startswith("--")]
            for flag in option.opts:
                if isinstance(option, click.Option) and len(flag) == 2:
                    meanings.setdefault(flag, set()).update(long)
    assert {letter: found for letter, found in meanings.items() if len(found) > 1} == {}
    assert {letter: meanings[letter] for letter in LETTERS} == {letter: {long} for letter, long in LETTERS.items()}


def test_no_option_takes_a_number_that_is_none():
    for words, command in leaves(application):
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType):
                for text in ("nan", "inf"):
                    with pytest.raises(click.BadParameter):
                        option.type.convert(text, option, None)
            assert option.type is not click.FLOAT, f"{words}: {option.name}"


def test_what_has_a_letter_has_it_everywhere_and_acting_has_one_name():
    for words, command in leaves(application):
        flags = {flag for option in command.params for flag in option.opts}
        for letter, long in LETTERS.items():
            assert (letter in flags) == (long in flags) or words in LBNLS, f"{words}: {long}"
        assert not flags & {"--yes", "--act", "--force-apply", "--do-it"}, words


@pytest.mark.parametrize("words", [["check", "local"], ["status"], ["status", "remedy"], ["train"], ["list"], []])
def test_h_is_help(words):
    done = nhc(*words, "-h")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['nhc', *words])} ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hold"], "name one of remedy, train, agent."),
        (["status", "remdy"], "'remdy' is none of overview, agent, gate, deep, "),
        (["serve", "agnet"], "'agnet' is none of all, agent, "),
        (["hold", "fleet"], "'fleet' is none of remedy, train, agent."),
    ],
)
def test_a_verb_without_what_it_is_about_is_wrong_usage(words, said, capsys):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)
    assert re.match(rf"Usage: nhc {words[0]} \[?WHAT\]? ", shown.err)


def test_a_verb_may_be_about_something_by_itself(capsys):
    assert main(["list", "--tag", "fs"]) == 0
    short = capsys.readouterr().out
    assert main(["list", "checks", "--tag", "fs"]) == 0
    assert capsys.readouterr().out == short
    assert main(["list", "--tag", "nothing"]) == 2


def test_a_message_names_the_whole_command(tmp_path, capsys):
    assert main(["serve", "notices", "-s", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.startswith("nhc serve notices: ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "offered"),
    [("nhc status re", ["remedy"]), ("nhc ack lo", ["log"]), ("nhc list --ta", ["--tag"]),
     ("nhc st", ["store", "status"]), ("nhc hold remedy --wh", ["--why"])],
)  # fmt: skip
def test_completion_knows_what_a_verb_may_be_about(words, offered):
    env = {"_NHC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert [line.partition(",")[2] for line in nhc(env=env).stdout.splitlines()] == offered


def test_every_option_is_declared_and_says_what_it_does():
    for words, command in leaves(application):
        for option in command.params:
            if isinstance(option, click.Option):
                assert isinstance(option, HeadedOption), f"{words}: {option.opts}"
                assert option.help, f"{words}: {option.opts}"
                assert option.help[0].isupper() or not option.help[0].isalpha() or ":" in option.help, option.help
