"""The click side of `nhc log classify`, and `nhc ack`: end findings of the kernel log that a person has dealt with."""

from __future__ import annotations

import json
import sys
import time

import click

from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.host import Memory
from nhc.core.light import TYPE_CHECKING
from nhc.core.timestamps import utc
from nhc.node.commands import log
from nhc.node.kernlog.read import read_log
from nhc.node.kernlog.source import LogSource
from nhc.node.kernlog.store import acknowledge, named, standing

if TYPE_CHECKING:
    from typing import Any, Optional, Sequence, Tuple

    from nhc.node.kernlog.state_types import Finding


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
    return ack_command(**options)


def _catch_up(memory: Memory) -> None:
    """Read what the kernel has logged since the last run, so that an acknowledgement covers all that came before it."""
    from nhc.core.host import Host

    try:
        read_log(Host(memory=memory), LogSource())
    except OSError:
        pass  # what cannot be read was not judged either


def ack_command(
    keys: Sequence[str] = (),
    *,
    device: Optional[str] = None,
    drills: bool = False,
    every: bool = False,
    note: str = "",
    format: str = "text",
    memory: Optional[Memory] = None,
    now: Optional[float] = None,
) -> int:
    """Acknowledge findings of the kernel log; without anything named, list them.

    `keys` are as the list shows them (`xid/79/0000:3b:00.0`). `device` names all findings of a device, `drills`
    all that `nhc inject` made, `every` all. `note` says what was done; it is kept with the acknowledgement. A fault
    that is logged again after this is a new finding. Returns 0; 1 where nothing that was named stands.
    """
    from nhc.core.command_line.common_options import person

    if memory is None:
        from nhc.core.state.store import State

        memory = State()
        _catch_up(memory)
    if not (keys or device or drills or every):
        _show(standing(memory), format)
        return EXIT_HEALTHY
    there = {key for _store, key, _finding in standing(memory)}
    chosen = named(memory, keys, device or "", everything=every, drills=drills)
    ended = acknowledge(memory, chosen, person(), note, time.time() if now is None else now)
    for warning in getattr(memory, "warnings", []):
        print(f"nhc ack: {warning}", file=sys.stderr)
        return EXIT_USAGE  # an acknowledgement that is not kept is none
    for key in ended:
        print(f"acknowledged {key}")
    for key in sorted({key for pairs in chosen.values() for key, _finding in pairs} - set(ended)):
        print(f"nhc ack: {key} has come again: it stands", file=sys.stderr)
    missing = [key for key in keys if key not in ended]
    for key in missing:
        if key not in there:
            print(f"nhc ack: no finding {key} stands", file=sys.stderr)
    if not chosen and not missing:
        print("nhc ack: no such finding stands", file=sys.stderr)
    return EXIT_HEALTHY if ended and not missing else EXIT_UNHEALTHY


def _show(findings: Sequence[Tuple[str, str, Finding]], format: str) -> None:
    if format == "json":
        for store, key, finding in findings:
            print(json.dumps({"key": key, "store": store, **finding}, ensure_ascii=False))
        return
    if not findings:
        print("no finding of the kernel log stands")
    for _store, key, finding in findings:
        at = utc(finding["last"])
        drill = "drill: " if finding.get("drill") else ""
        print(f"{finding['severity']:8}  {key}  x{finding['count']}  {at}  {drill}{finding['message']}")
