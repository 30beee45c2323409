"""`nhc-epilog`: Slurm runs it after a job, as Epilog or EpilogSlurmctld."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Sequence


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of the nhc-epilog executable. If nhc cannot even be imported, the status is 0 as well."""
    try:
        from nhc.hooks.commands.hook import main as hook

        return hook("epilog", argv)
    except Exception as error:
        from nhc.node.run.crash_report import report_crash

        report_crash("nhc-epilog", error)
        return 0
