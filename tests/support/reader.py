"""Somebody who follows a page of this checkout, in a directory that has what a checkout has, with our own programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.fresh.stranger import Stranger
from tests.support.run import ROOT


def reader(place: Path, **env: str) -> Stranger:
    """`make` starts here what the targets start, without setting up an environment first."""
    (place / "bin").mkdir()
    python = sys.executable
    for name, lines in {
        "nhc": f'exec {python} -m nhc "$@"',
        "make": f"""case $1 in
          slurm) exec {python} -m tests.support.slurm_up ;;
          kube) exec {python} {ROOT}/tests/kube/up.py --directory {place}/plane ;;
          *) echo "no target $1 here" >&2; exit 2 ;;
        esac""",
    }.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{lines}\n")
        (place / "bin" / name).chmod(0o755)
    for name in ("examples", "tests", "docs"):
        (place / name).symlink_to(ROOT / name)
    return Stranger(place, {
        "PATH": f"{place}/bin:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT}/adapters", "HOME": str(place),
        "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "USER": "reader", **env,
    })  # fmt: skip
