"""`nhc kubernetes preflight`: runs in a pod's init container, which the preflight webhook added.

It writes its findings about the node as the container's termination message, where the controller reads them. The pod
needs no rights for that, and no connection to the API server.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.model import Report, Verdict, describe
from nhc.core.plugins import NoAdapter
from nhc.core.state.store import State
from nhc.hooks import gang, prejob

TERMINATION_LOG = "/dev/termination-log"
START, BAD, UNTOLD = 0, 1, 3


class PreflightOptions(options.CommandOptions):
    node: str = options.text("-n --node", "NAME", "The node's name. Default: NHC_NODE_NAME, or the host's.")
    message: str = options.text("--message", "FILE", "Where what is wrong is written.", TERMINATION_LOG)


@click_command
def command(args: PreflightOptions) -> None:
    """Run a suite in a pod's init container, before the pod's own containers start, and its gang's collective.

    The webhook of `nhc serve preflight` adds it. NHC_PROLOG_SUITE, NHC_PROLOG_SUITE_TIME and NHC_PROLOG_SUITE_UNKNOWN
    say which suite, how long, and whether a pod starts whose suite could not tell, as for Slurm's prolog.
    NHC_GANG_SERVER says where the pods of its gang meet.

    Exit status: 0 the pod starts, 1 the node is at fault, 3 the suite could not tell and the settings refuse.
    """
    name = args.node or os.environ.get("NHC_NODE_NAME") or os.uname().nodename
    suite = os.environ.get(prejob.SUITE, "") or "prejob"
    results = prejob.suite_results(suite, name, os.environ, os.environ, State())
    if gang.takes_part(os.environ):
        failed = any(one.verdict is Verdict.CRIT for one in results)
        results = (*results, gang.result(os.environ, f"the suite {suite} failed on {name}" if failed else ""))
    for result in results:
        if result.verdict not in (Verdict.OK, Verdict.SKIP):
            print(f"{result.verdict.name}: {describe(result)}", flush=True)
    bad = [one for one in results if one.verdict is Verdict.CRIT and one.check != prejob.ITSELF]
    refused = any(one.verdict is Verdict.CRIT for one in results) or (
        os.environ.get(prejob.UNTOLD) == "refuse" and any(one.verdict is Verdict.UNKNOWN for one in results)
    )
    if bad:
        _leave(args.message, Report(name, "", time.time(), 0.0, tuple(bad)))
    print(f"{name}: suite {suite}: {'the node is at fault' if bad else 'refused' if refused else 'the pod starts'}")
    raise SystemExit(BAD if bad else UNTOLD if refused else START)


def _leave(path: str, report: Report) -> None:
    """Write the fault where the kubelet reads it. Without it there is only the exit status."""
    from nhc.marks.plugins import adapter

    try:
        made: Any = adapter("kubernetes")
        text: str = made.commands().preflight_fault(report)
        with open(path, "w", encoding="utf-8") as file:  # the kubelet has mounted the file itself: it is not replaced
            file.write(text)
    except (NoAdapter, OSError) as error:
        print(f"nhc kubernetes preflight: the fault cannot be written to {path}: {error}", file=sys.stderr)
