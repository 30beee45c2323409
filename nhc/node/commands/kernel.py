"""The click side of the kernel log's commands: `nhc log classify`, `nhc ack`."""

from __future__ import annotations

import click

from nhc.core.light import TYPE_CHECKING
from nhc.node.commands import ack as acknowledge
from nhc.node.commands import log

if TYPE_CHECKING:
    from typing import Any


@click.command("classify")
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("-f", "--format", "format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--all", "show_all", is_flag=True, help="Show the lines that mean nothing to the catalogue, too.")
@click.option("--explain", is_flag=True, help="Say which row judged each line, and what beside it decided.")
@click.option(
    "--npd-rules", "npd_rules", multiple=True, metavar="FILE", help="Apply node-problem-detector's rule file."
)
@click.option("--findings", is_flag=True, help="Print what still stands at the end of the log, not each line.")
@click.option(
    "--root", default="", metavar="DIR", help="With --findings: judge beside this node's mounts, tasks and devices."
)
def classify(**options: Any) -> int:
    """Say what each line of a kernel log means: dmesg's output, a syslog, journalctl's, /dev/kmsg's records."""
    return log.classify_command(**options)


@click.command("catalogue")
@click.argument("word", required=False, default="", metavar="[CODE|WORD]")
@click.option("-f", "--format", "format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def catalogue(**options: Any) -> int:
    """Show what nhc knows of a CODE (79, SXid12020, GpuFallenOffBus), of a WORD, or of a whole line of a kernel log.

    Severity, action, what ends it, who prints it, and in which versions that was read. Without an argument: every row.
    """
    from nhc.node.commands.log_catalogue import catalogue_command

    return catalogue_command(**options)


@click.command("ack")
@click.argument("keys", nargs=-1, metavar="[FINDING]...")
@click.option("--device", metavar="DEVICE", help="All findings of a device.")
@click.option("--drills", is_flag=True, help="All that nhc inject made.")
@click.option("--all", "every", is_flag=True, help="All.")
@click.option("--note", default="", metavar="TEXT", help="What was done; kept with the acknowledgement.")
@click.option("-f", "--format", "format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def ack(**options: Any) -> int:
    """Acknowledge findings of the kernel log; without anything named, list those that stand."""
    return acknowledge.ack_command(**options)
