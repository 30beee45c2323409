"""Start-up of one nhc against another's: `nhc check local` and a prolog, from a wheel and from nhc.pyz, in one run.

    python bench/startup.py --before DIR --now DIR [--rounds 60]

A DIR is a virtual environment with a wheel of that nhc (`DIR/bin/nhc`), and `DIR/nhc.pyz` of the same sources
(`python -m nhc.core.archive.build`); both with the same Python. The checks are the twelve of bench/local.py, the parsed
configuration is kept. What counts is CPU time, which other load changes least, of each side's best run and of its
median. Limit: what is now takes at most 1.03 of before.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Sample, adopt_orphans, crowd, median, once, verdict
from local import TWELVE, machine

LIMIT = 1.03


def commands(directory: Path, scratch: Path) -> Dict[str, List[str]]:
    """What is run of one nhc, by name; a link to nhc.pyz that is called nhc-prolog is a prolog."""
    scratch.mkdir()
    prolog = scratch / "nhc-prolog"
    prolog.symlink_to(directory / "nhc.pyz")
    python = [str(directory / "bin" / "python"), "-I", "-S"]
    local = ["check", "local", "--all", "-c", str(scratch.parent / "nhc.conf")]
    where = ["-D", str(scratch.parent)]
    found = {"check local, wheel": [str(directory / "bin" / "nhc"), *local],
             "prolog, wheel": [str(directory / "bin" / "nhc-prolog"), *where]}  # fmt: skip
    if (directory / "nhc.pyz").exists():
        found["check local, nhc.pyz"] = [*python, str(directory / "nhc.pyz"), *local]
        found["prolog, nhc.pyz"] = [*python, str(prolog), *where]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=Path, metavar="DIR")
    parser.add_argument("--now", required=True, type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    adopt_orphans()
    samples: Dict[str, Dict[str, List[Sample]]] = {}
    with tempfile.TemporaryDirectory() as name, crowd(1):
        scratch = Path(name)
        (scratch / "nhc.conf").write_text(TWELVE.format(**machine()))
        sides = {"before": given.before.resolve(), "now": given.now.resolve()}
        runs = {side: commands(directory, scratch / side) for side, directory in sides.items()}
        for number in range(given.rounds + 2):
            for what in runs["before"]:
                for side in ("before", "now") if number % 2 else ("now", "before"):
                    env = {
                        "PATH": os.environ["PATH"], "HOME": "/", "NHC_STATE_DIR": f"{scratch}/{side}/{what[-5:]}",
                        "SLURMD_NODENAME": "node1", "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "1000",
                        "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
                    }  # fmt: skip
                    sample = once(runs[side][what], env)
                    if number > 1:  # the first rounds write bytecode and keep the configuration
                        samples.setdefault(what, {}).setdefault(side, []).append(sample)
    kept = True
    for what, found in samples.items():
        best = {side: min(sample.cpu for sample in found[side]) * 1e3 for side in found}
        ratio = median(found["now"], "cpu") / median(found["before"], "cpu")
        print(
            f"{what}: CPU {best['before']:.1f} ms before, {best['now']:.1f} ms now: {best['now'] / best['before']:.3f}"
        )
        print(verdict(f"{what}, median CPU of before", ratio, LIMIT))
        kept = kept and ratio <= LIMIT
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
