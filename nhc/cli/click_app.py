"""The click application: help, completion and dispatch of the commands in `nhc.cli.command_table`.

A command's module is imported when the command is used, so that `nhc list` does not pay for what
`nhc fleet` needs. Help lists come from that table, without importing anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, NoReturn, Optional, Tuple

import click
from click.shell_completion import CompletionItem

from nhc import __version__
from nhc.cli.command_table import COMMANDS, PLAIN, SECTIONS, Verb
from nhc.core.command_line.command_error import refusal
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.options import CheckLocal, LostOutput, UsageError
from nhc.core.command_line.printing import formatted
from nhc.core.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.system.children import has_address_space

if TYPE_CHECKING:
    from nhc.cli.command_table import CommandTable, Entry, Sections

LARGE = frozenset({
    "console", "drill", "episode", "episodes", "job", "notices", "remedy", "server", "spares", "store", "token",
    "tokens", "train",
})  # fmt: skip
"""Commands, groups and subjects of verbs that import a database's libraries."""
ROOM = 64 << 20
"""Bytes of address space that those need: `nhc status remedy` succeeds with 40 MB free, but not with 36."""


class LazyGroup(click.Group):
    """A group whose commands are imported on use; the table holds `module:attribute` and a summary, or a subtable."""

    def __init__(self, path: str, table: CommandTable, help: str, sections: Optional[Sections] = None) -> None:
        super().__init__(path.rpartition(" ")[2], help=help, no_args_is_help=True)
        self.path = path
        self.table = table
        self.sections = sections or {"Commands": tuple(table)}

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        entry = self.table.get(cmd_name)
        return None if entry is None else command_of(f"{self.path} {cmd_name}", entry)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run a command and exit: with the status that it returns, or with one line on why it cannot be done."""
        try:
            raise SystemExit(super().invoke(ctx))
        except KeyboardInterrupt:  # click would exit with status 1, which means that the node is unhealthy
            raise SystemExit(130) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            why, status = refusal(error) or ("", 0)
            if not why:
                raise
            for line in why.splitlines():
                click.echo(f"{ctx.command_path} {ctx.invoked_subcommand}: {printable(line)}", err=True)
            raise SystemExit(status) from None

    def resolve_command(
        self, ctx: click.Context, args: List[str]
    ) -> Tuple[Optional[str], Optional[click.Command], List[str]]:
        """The command that the words begin with; for a verb the one that its first word names: `status remedy`."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            error.message += did_you_mean(args[0], self.table)
            raise
        return command.resolve(ctx, rest) if isinstance(command, VerbCommand) else (name, command, rest)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary_of(self.table[name])) for name in names])


class VerbCommand(click.Command):
    """One command with a word for its subject: `nhc status remedy`. Each subject has its own options.

    `table` holds them. If the first word names none, the one with the verb's own name runs, if there is one.
    """

    def __init__(self, path: str, table: CommandTable, help: str) -> None:
        super().__init__(path.rpartition(" ")[2], help=help)
        self.path = path
        self.table = table
        self.default = table.default if isinstance(table, Verb) else ""

    def list_commands(self, _ctx: click.Context) -> List[str]:
        return list(self.table)

    def get_command(self, _ctx: click.Context, what: str) -> Optional[click.Command]:
        entry = self.table.get(what)
        return None if entry is None else command_of(f"{self.path} {what}", entry)

    def resolve(self, ctx: click.Context, words: List[str]) -> Tuple[str, Optional[click.Command], List[str]]:
        """The command for these words, with the name by which it is called. Raises UsageError."""
        name, first = str(self.name), words[0] if words else ""
        asks = first in ("-h", "--help") or (ctx.resilient_parsing and not words)
        if first in self.table:
            return f"{name} {first}", self.get_command(ctx, first), words[1:]
        if self.default and not asks:
            usual = self.get_command(ctx, self.default)
            if first[:1] in ("", "-") or usual is None or any(isinstance(one, click.Argument) for one in usual.params):
                return name, usual, words
        if not asks:
            wrong = f"{first!r} is none of" if first[:1] not in ("", "-") else "name one of"
            raise click.UsageError(
                f"{wrong} {', '.join(self.table)}.{did_you_mean(first, self.table)}",
                click.Context(self, info_name=name, parent=ctx),
            )
        return name, self, words

    def collect_usage_pieces(self, ctx: click.Context) -> List[str]:
        return ["[WHAT]" if self.default else "WHAT", "[OPTIONS]", "[ARGS]..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section(f"What (default: {self.default})" if self.default else "What"):
            formatter.write_dl([(what, summary_of(entry)) for what, entry in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> List[CompletionItem]:
        default = self.get_command(ctx, self.default) if incomplete.startswith("-") else None
        if default is not None:
            return default.shell_complete(ctx, incomplete)
        named = [CompletionItem(what, help=summary_of(entry)) for what, entry in self.table.items()
                 if what.startswith(incomplete)]  # fmt: skip
        return [*named, *super().shell_complete(ctx, incomplete)]


def command_of(path: str, entry: Entry) -> click.Command:
    """The command of an entry of the table, by this path. Its module is imported, unless it is a group or a verb."""
    first, second = entry[:2]
    name = path.rpartition(" ")[2]
    if name in LARGE and not has_address_space(ROOM):
        click.echo(f"nhc {name}: needs {ROOM >> 20} MB more of address space than it has (ulimit -v)", err=True)
        raise SystemExit(EXIT_UNKNOWN)
    if isinstance(second, Verb):
        return VerbCommand(path, second, first)
    if not isinstance(second, str):
        return LazyGroup(path, second, first)
    module, _, attribute = first.partition(":")
    command: click.Command = getattr(__import__(module, fromlist=[attribute]), attribute)
    vars(command).update(name=name, epilog=f"\b\nExample: {path} {entry[-1]}".rstrip())  # click has no method for it
    return command if first in PLAIN else formatted(command)


def summary_of(entry: Entry) -> str:
    """An entry's help line."""
    first, second = entry[:2]
    return second if isinstance(second, str) else first


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


@click_command
def check_local(args: CheckLocal) -> None:
    """Judge the node this runs on, now, by its configuration.

    Exit status: 0 healthy (WARN too), 1 unhealthy, 2 wrong usage or an unusable configuration, 3 unknown. With
    --format nagios or npd it is what those programs expect of a plugin.
    """
    from nhc.node.commands import check_local as module

    try:
        raise SystemExit(module.run(args))
    except LostOutput as error:
        click.echo(f"nhc check local: {error}", err=True)
        raise SystemExit(EXIT_UNKNOWN) from None
    except UsageError as error:
        raise click.UsageError(str(error)) from None


application = LazyGroup("nhc", COMMANDS, "One health check engine for GPU, AI and HPC cluster nodes.", SECTIONS)
application.context_settings["help_option_names"] = ["-h", "--help"]  # of all commands: contexts inherit it


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"nhc {__version__}")
        ctx.exit()


application.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        help="Print the version.",
        callback=_print_version,
    )
)


def _missing(argv: List[str], error: ModuleNotFoundError) -> str:
    """The message if a command's library, or its part of nhc, is missing."""
    module = (error.name or "").partition(".")[0]
    from nhc.core.extras import BROUGHT, EXTRAS, how_to_install

    if module == "nhc":
        command = " ".join(argv[:2])
        return f"nhc {command} is not part of this installation ({error.name}): install nhc's wheel or a checkout"
    if module == "nhc_adapters":
        return "nhc: the adapters are not installed; in a bare checkout put adapters/ on PYTHONPATH"
    words = argv[:2] if argv and isinstance(COMMANDS.get(argv[0], ("", ""))[1], Verb) else argv[:1]
    named = [word for word in words if word in EXTRAS]
    extra = BROUGHT.get(module, named[-1] if named else "")
    if extra == "remedy" and {"console", "demo", "top"} & {*words}:
        extra = "console"  # which holds it
    return f"nhc {' '.join(words)} needs the Python package {module}: {how_to_install(module, extra)}"


def run(argv: List[str]) -> int:
    """Run the application; usage errors are one line and exit status 2."""
    try:
        application(args=argv, prog_name="nhc", standalone_mode=True)
    except ModuleNotFoundError as error:
        click.echo(_missing(argv, error), err=True)
        return EXIT_USAGE
    except SystemExit as leaving:
        code = leaving.code if argv else EXIT_USAGE  # click calls `nhc` alone a success
        if isinstance(code, str):
            click.echo(code, err=True)
            return 2
        return int(code or 0)
    return 0
