"""`nhc list`, `nhc explain` and `nhc completion`: lists what nhc offers and explains how to use it."""

from __future__ import annotations

import inspect

import click

from nhc.core.check import Check, Param, find, find_all
from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show
from nhc.core.language.mistakes import meant_elsewhere
from nhc.core.light import TYPE_CHECKING
from nhc.core.plugins import CHECKS, unreadable
from nhc.core.units import show_seconds
from nhc.node.planning.runbooks import brought, is_code, reasons, sections, unknown_xid
from nhc.node.planning.runbooks import find as runbook

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple


def _names(incomplete: str) -> List[str]:
    if incomplete.startswith("check_"):
        return [check.name for check in find_all() if check.name.startswith(incomplete)]
    return [reason for reason in reasons() if reason.lower().startswith(incomplete.lower())]


class ListChecksOptions(options.Formatted):
    tags: Tuple[str, ...] = options.texts(
        "--tag", "TAG", "Only checks with this tag (repeatable).", complete=options.tags
    )  # fmt: skip


@click_command
def list_command(args: ListChecksOptions) -> None:
    """List the checks with their tags and what holds when they pass; those of installed packages name the package."""
    checks = [check for check in find_all() if not args.tags or set(args.tags) & set(check.tags)]
    if not checks:
        raise click.UsageError(f"no check has the tag {' or '.join(args.tags)}")
    if args.form == "json":
        show([_describe(check) for check in checks])
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        origin = f" [{check.distribution}]" if check.distribution else ""
        click.echo(f"{check.name:{width}}  {check.summary}{origin}")
    for problem in unreadable(CHECKS):
        click.echo(f"nhc list: {problem}", err=True)


def _one_name(words: Tuple[str, ...]) -> str:
    """The name that was asked for. Several words are one name only if they are an Xid as the kernel writes it."""
    name = " ".join(words)
    if len(words) > 1 and not is_code(name):
        extra = words[1:]
        raise click.UsageError(f"Got unexpected extra argument{'s' if extra[1:] else ''} ({' '.join(extra)})")
    return name


class ExplainOptions(options.Formatted):
    words: Tuple[str, ...] = options.arguments("CHECK|REASON", needed=True, complete=_names)


@click_command
def explain_command(args: ExplainOptions) -> None:
    """Explain a check or a reason.

    A check (check_gpu_ecc): what it reads and judges, its options and defaults, where thresholds come from. A reason,
    as reports name it (GpuLost, Xid79, Ext4ReadOnly): what it means, what causes it, what to do, and how to confirm
    the repair. A number alone (79) is an Xid's, also as the kernel writes it (Xid 79).
    """
    name = _one_name(args.words)
    check = find(name) or find(f"check_{name}")
    if check is None:
        if not _explain_reason(name, args.form):
            raise click.UsageError(
                unknown_xid(name) or f"there is no check and no reason called {name}{_suggest(name)}"
            )
        return
    if args.form == "json":
        show(_describe(check))
        return
    click.echo(f"{check.name}{''.join(f' {argument}' for argument in _synopsis(check.params))}\n")
    click.echo(inspect.cleandoc(check.doc))
    if check.params:
        click.echo("\nArguments:")
        rows = [(_flags(param), _help(param)) for param in check.params]
        width = min(max(len(left) for left, _ in rows), 30)
        for left, right in rows:
            click.echo(f"  {left:{width}}  {right}")
    hang = "the node's fault (CRIT)" if check.on_timeout == "crit" else "UNKNOWN"
    click.echo(f"\nDeadline {show_seconds(check.timeout)}; past it: {hang}. In the agent: every "
               f"{show_seconds(check.every)}. Tags: {', '.join(check.tags)}.")  # fmt: skip
    if check.samples:
        click.echo(f"Tells of one moment, and is CRIT when the next look finds it too: {', '.join(check.samples)}.")
    if check.distribution:
        click.echo(f"It comes with the installed package {check.distribution}.")


def _explain_reason(name: str, form: str) -> bool:
    """Print a reason's runbook; returns whether there is one."""
    reason_runbook = runbook(name)
    if reason_runbook is None:
        return False
    if form == "json":
        show(reason_runbook._asdict())
        return True
    (title, _), *parts = sections(reason_runbook)
    click.echo(title)
    for heading, text in parts:
        click.echo(f"\n{heading}")
        click.echo(click.wrap_text(text, 100, "  ", "  "))
    return True


class CompletionOptions(options.CommandOptions):
    shell: str = options.argument("bash|zsh|fish", choices=("bash", "zsh", "fish"), needed=True)


@click_command
def completion_command(args: CompletionOptions) -> None:
    """Print the completion script for SHELL; load it with: eval "$(nhc completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(args.shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, "nhc", "_NHC_COMPLETE").source())


def _suggest(name: str) -> str:
    from difflib import get_close_matches

    if meant_elsewhere(name):
        return meant_elsewhere(name)
    near = get_close_matches(name, [*(check.name for check in find_all()), *reasons()], 3, 0.6)
    unread = "".join(
        f"; {problem}" for problem in (*unreadable(CHECKS), *brought().problems)
    )  # it may be one of theirs
    return (f" (did you mean {', '.join(near)}?)" if near else ": see nhc list") + unread


def _describe(check: Check) -> Dict[str, Any]:
    return {
        "name": check.name,
        "summary": check.summary,
        "doc": inspect.cleandoc(check.doc),
        "timeout": check.timeout,
        "on_timeout": check.on_timeout,
        "samples": list(check.samples),
        "every": check.every,
        "needs": list(check.needs),
        "tags": list(check.tags),
        "distribution": check.distribution or None,
        "params": [
            {
                "name": param.name,
                "flags": list(param.flags),
                "switch": param.convert is None,
                "help": param.help,
                "default": param.default,
                "required": param.required,
                "many": param.many,
            }
            for param in check.params
        ],
    }


def _synopsis(params: Iterable[Param]) -> List[str]:
    arguments = []
    for param in params:
        text = _flags(param._replace(flags=param.flags[:1]))
        text += "..." if param.many else ""
        arguments.append(text if param.required else f"[{text}]")
    return arguments


def _flags(param: Param) -> str:
    if not param.flags:
        return param.name
    return ", ".join(param.flags) + ("" if param.convert is None else f" {param.name.upper()}")


def _help(param: Param) -> str:
    default: Optional[str] = None
    if param.convert is not None and param.default not in (None, [], "") and "(default" not in param.help:
        default = f"{param.default:g}" if isinstance(param.default, float) else str(param.default)
    return f"{param.help}{f' (default {default})' if default else ''}"
