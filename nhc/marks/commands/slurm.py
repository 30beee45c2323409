"""`nhc sync slurm`: drain and resume Slurm nodes as their reports say, within a policy.

Without --apply (or `apply = true` in the policy) nothing is changed: the plan is shown.
"""

from __future__ import annotations

import click

from nhc.core.command_line.common_options import FORMAT
from nhc.core.command_line.option_groups import GroupedCommand, under
from nhc.core.light import TYPE_CHECKING
from nhc.marks.commands.sync import APPLYING, LEDGER, MAX_DRAINED, POLICY_FILE, REPORT_FILES, carry_out, patience
from nhc.marks.plugins import open_adapter
from nhc.marks.ports.adapter import Marker, Operation

if TYPE_CHECKING:
    from typing import Optional

    from typing_extensions import Unpack

    from nhc.marks.commands.sync import SyncOptions

    class SlurmSyncOptions(SyncOptions):
        """The options of `nhc sync slurm`, as click names them."""

        hyperpod: bool
        rest: Optional[str]
        token_file: Optional[str]


SLURM_NAMES = {
    Operation.MARK: "drain",
    Operation.CLEAR: "resume",
    Operation.REBOOT: "reboot",
    Operation.REPLACE: "replace",
}


@click.command("sync", cls=GroupedCommand)
@REPORT_FILES
@APPLYING
@MAX_DRAINED
@POLICY_FILE
@LEDGER
@under("What may be done")(
    "--hyperpod", is_flag=True, help="Write SageMaker HyperPod's reasons (Action:Reboot, Action:Replace)."
)
@under("How Slurm is reached")(
    "--rest", metavar="URL", help="Use slurmrestd: http://host:6820 or unix:/path. Default: scontrol."
)
@under("How Slurm is reached")("--token-file", metavar="FILE", help="The JWT for --rest. Default: $SLURM_JWT.")
@patience("How Slurm is reached")
@FORMAT
def sync_command(**options: Unpack[SlurmSyncOptions]) -> None:
    """Drain and resume nodes as their reports say.

    A node whose report is CRIT is drained with the reason, one that nhc drained and that is healthy again is
    resumed; an unknown verdict leaves a node as it is, and so does a drain that is somebody else's. Exit status:
    0 done, 1 something failed, 2 wrong usage, 3 the controller or the ledger cannot be used.
    """
    raise SystemExit(run(options))


def run(options: SlurmSyncOptions) -> int:
    """Carry out `nhc sync slurm`."""
    return carry_out("nhc sync slurm", lambda: controller(options), SLURM_NAMES, options)


def controller(options: SlurmSyncOptions) -> Marker:
    """The adapter that the options ask for. Raises NoAdapter, ValueError."""
    settings = {"NHC_HYPERPOD": "1"} if options["hyperpod"] else {}
    name = "slurm-rest" if options["rest"] else "slurm"
    if options["rest"]:
        settings["NHC_SLURMREST"] = options["rest"]
        if options["token_file"]:
            settings["NHC_SLURMREST_TOKEN_FILE"] = options["token_file"]
    adapter = open_adapter(name, settings)
    assert isinstance(adapter, Marker)
    return adapter
