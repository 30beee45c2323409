"""`nhc-prolog`: Slurm runs it before a job, as Prolog or PrologSlurmctld."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Sequence


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of the nhc-prolog executable. If nhc cannot even be imported, the status is 0 as well."""
    try:
        from nhc.hooks.commands.hook import main as hook

        return hook("prolog", argv)
    except Exception as error:
        from nhc.node.run.crash_report import report_crash

        report_crash("nhc-prolog", error)
        return 0
