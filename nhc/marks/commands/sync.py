"""`nhc sync`: mark and clear nodes as their reports say, within a policy: any adapter that can mark, Slurm, and the
round of every form (`carry_out`; that of Kubernetes has its options in `nhc.marks.commands.kubernetes`).

Without --apply (or `apply = true` in the policy) nothing is changed: the plan is shown.
"""

from __future__ import annotations

import os
import sys

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.system.bounded_read import read_input, read_text
from nhc.marks.plugins import ADAPTERS, open_adapter
from nhc.marks.policy.ledger import Ledger, LedgerError
from nhc.marks.policy.policy_file import policy_of
from nhc.marks.policy.reconcile import NAMES, ReportFiles, SyncResult, load_reports, show_json, show_text, sync
from nhc.marks.ports.adapter import AdapterError, Marker, Operation

if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional, Sequence, Tuple

    Show = Callable[[SyncResult], None]


SLURM_NAMES = {
    Operation.MARK: "drain",
    Operation.CLEAR: "resume",
    Operation.REBOOT: "reboot",
    Operation.REPLACE: "replace",
}
REPORTS = 1 << 30
"""Bytes of the reports of a whole cluster."""
SAID = 10
"""Lines about files that could not be read."""


def _adapters(incomplete: str) -> List[str]:
    return [name for name in ADAPTERS.names() if name.startswith(incomplete)]


class ReportsSyncOptions(options.Formatted):
    """What the commands have in common that bring a scheduler in line by reports from files."""

    reports: Tuple[str, ...] = options.texts(
        "-r --report", "FILE", "Reports as JSON: one, a list, or one a line; a directory's *.json and *.jsonl; - for "
        "standard input. Repeatable.", needed=True, heading="What is judged",
    )  # fmt: skip
    apply: Optional[bool] = options.flag(
        "--apply/--dry-run", "Carry the plan out, or only show it (the default).", None, heading="What may be done"
    )
    max_drained: str = options.text(
        "--max-drained", "LIMIT", "Most nodes drained by nhc at once: 20, 10%, '20 10%' or none."
    )
    policy: str = options.settings_file("policy.toml", flags="--policy", checked=True)
    ledger: str = options.text("--ledger", "DIR", "Where operations are remembered. Default: /var/lib/nhc.")
    patience: float = options.duration(
        "--patience", "How long a controller that does not answer is tried again.", "1m", heading="Who marks"
    )


class AdapterSyncOptions(ReportsSyncOptions):
    adapter: str = options.text(
        "--adapter", "NAME",
        "Who marks: slurm, pbs, lsf, sge, flux, kubernetes..., or an installed package's adapter.",
        needed=True, complete=_adapters, heading="Who marks",
    )  # fmt: skip
    settings: Tuple[str, ...] = options.texts(
        "--set", "NAME=VALUE", "A variable for the adapter, as nhc.conf would set it; NHC_* of the environment count "
        "too. Repeatable.",
    )  # fmt: skip


@click_command
def sync_command(args: AdapterSyncOptions) -> None:
    """Mark and clear nodes as their reports say, through any adapter that can mark.

    A node whose report is CRIT is marked with the reason, one that nhc marked and that is healthy again is put
    back; an unknown verdict leaves a node as it is, and so does a mark that is somebody else's. Exit status:
    0 done, 1 something failed or a report could not be read, 2 wrong usage, 3 the controller or the ledger cannot be
    used.
    """
    raise SystemExit(by_reports("nhc sync", lambda: marker(args.adapter, args.settings), NAMES, args))


class SlurmSyncOptions(ReportsSyncOptions):
    hyperpod: bool = options.flag(
        "--hyperpod", "Write SageMaker HyperPod's reasons (Action:Reboot, Action:Replace).", heading="What may be done"
    )
    rest: str = options.text(
        "--rest", "URL", "Use slurmrestd: http://host:6820 or unix:/path. Default: scontrol.", heading="Who marks"
    )
    token_file: str = options.text("--token-file", "FILE", "The JWT for --rest. Default: $SLURM_JWT.")


@click_command
def slurm_command(args: SlurmSyncOptions) -> None:
    """Drain and resume nodes as their reports say.

    A node whose report is CRIT is drained with the reason, one that nhc drained and that is healthy again is
    resumed; an unknown verdict leaves a node as it is, and so does a drain that is somebody else's. Exit status:
    0 done, 1 something failed, 2 wrong usage, 3 the controller or the ledger cannot be used.
    """
    raise SystemExit(by_reports("nhc sync slurm", lambda: slurm(args), SLURM_NAMES, args))


def marker(name: str, given: Sequence[str]) -> Marker:
    """The adapter called `name`, which can mark. Raises NoAdapter, AdapterError, ValueError."""
    settings = {variable: value for variable, value in os.environ.items() if variable.startswith("NHC_")}
    for pair in given:
        variable, equals, value = pair.partition("=")
        if not equals or not variable.isidentifier():
            raise ValueError(f"--set: {pair!r} is not NAME=VALUE")
        settings[variable] = value
    adapter = open_adapter(name, settings, os.environ)
    if not isinstance(adapter, Marker):
        raise NoAdapter(f"--adapter {name}: this adapter knows nodes but cannot mark them")
    return adapter


def slurm(args: SlurmSyncOptions) -> Marker:
    """The adapter that the options of `nhc sync slurm` ask for. Raises NoAdapter, ValueError."""
    settings = {"NHC_HYPERPOD": "1"} if args.hyperpod else {}
    if args.rest:
        settings["NHC_SLURMREST"] = args.rest
        if args.token_file:
            settings["NHC_SLURMREST_TOKEN_FILE"] = args.token_file
    adapter = open_adapter("slurm-rest" if args.rest else "slurm", settings)
    assert isinstance(adapter, Marker)
    return adapter


def by_reports(
    command: str, make: Callable[[], Marker], names: Mapping[Operation, str], args: ReportsSyncOptions
) -> int:
    """A sync whose reports come from files, and whose marks are set by the adapter that `make` makes; the exit status.

    `names` are what operations are called where the adapter's marks are known.
    """

    def work(show: Show) -> bool:
        settings = policy_of(args.policy, args.max_drained)
        files = read_report_files(command, args.reports)
        try:
            adapter = make()
        except AdapterError as error:
            raise NoAdapter(str(error)) from None
        ledger = Ledger(args.ledger or None, command)
        apply = settings.apply if args.apply is None else args.apply
        done = sync(adapter, files.reports, settings.policy, ledger, apply=apply, retry_for=args.patience)
        show(done)
        return not done.failed and not files.problems

    return carry_out(command, work, names, args.form)


def carry_out(command: str, work: Callable[[Show], bool], names: Mapping[Operation, str], form: str) -> int:
    """Bring nodes in line once: every form of `nhc sync`; the exit status. `command` is what messages begin with.

    `work` chooses where reports come from and who marks. It shows its round, and returns whether all went well.
    """

    def show(done: SyncResult) -> None:
        for line in done.notes:
            print(f"{command}: {printable(line)}", file=sys.stderr)
        click.echo(show_json(done) if form == "json" else show_text(done, names), nl=False)

    try:
        return 0 if work(show) else 1
    except (AdapterError, LedgerError) as error:
        print(f"{command}: {printable(str(error))}", file=sys.stderr)
        return 3
    except (NoAdapter, ValueError) as error:  # wrong settings and reports are ValueErrors
        print(f"{command}: {printable(str(error))}", file=sys.stderr)
        return 2


def read_report_files(command: str, paths: Sequence[str]) -> ReportFiles:
    """The reports in files, - for standard input; what was not read is said on standard error. Raises BadReports."""
    files = load_reports(paths, read_reports)
    said = [*files.problems, *files.notes]
    for line in said[:SAID]:
        print(f"{command}: {printable(line)}", file=sys.stderr)
    if len(said) > SAID:
        print(f"{command}: and {len(said) - SAID} more such lines", file=sys.stderr)
    return files


def read_reports(path: str) -> str:
    """A file of reports, or standard input for "-"."""
    return read_input(REPORTS) if path == "-" else read_text(path, REPORTS)
