"""Help under headings, whichever click is installed."""

import click
import pytest

from nhc.cli.click_app import VerbCommand, application
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.options import CommandOptions, flag


class ActOptions(CommandOptions):
    apply: bool = flag("--apply", "Do it.", heading="What is done")


def act(args: ActOptions) -> None:
    """Act."""


class Row(click.Argument):
    """An argument as click 8.5 has it: with a row in the help, and beside it what it was given as `help`."""

    def __init__(self, beside):
        super().__init__(["node"])
        self.beside = beside

    def get_help_record(self, ctx):
        return "NODE", self.beside


@pytest.mark.parametrize("beside", ["", "Whom."])
def test_an_argument_has_a_row_where_there_is_something_to_say_of_it(beside):
    command = click_command(act)
    command.params.append(Row(beside))
    with click.Context(command, info_name="act") as context:
        lines = [line.split() for line in command.get_help(context).splitlines()]
    assert ["--apply", "Do", "it."] in lines
    assert [line for line in lines if line[:1] == ["NODE"]] == ([["NODE", beside]] if beside else [])


def commands(group, name=""):
    with click.Context(group) as context:
        for word in group.list_commands(context):
            one = group.get_command(context, word)
            found = f"{name} {word}".strip()
            yield from commands(one, found) if isinstance(one, (click.Group, VerbCommand)) else [(found, one)]


def test_settings_and_store_have_one_name_in_every_command():
    """`-s`, `--settings` for the settings, `--store` for the store's address."""
    known = dict(commands(application))
    assert len(known) > 60
    flags = {name: [flag for param in one.params for flag in param.opts] for name, one in known.items()}
    assert [name for name, found in flags.items() if "--settings" in found and "-s" not in found] == []
    assert [name for name, found in flags.items() if "--url" in found or "--database" in found] == []
