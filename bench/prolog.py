"""The whole cost of a healthy prolog against an LBNL NHC prolog on the same checks.

    python bench/prolog.py --lbnl /path/to/mej-nhc-1.4.3 [--nhc-prolog /path/to/nhc-prolog] [--rounds 25]

Ours is what Slurm runs: the wrapper of adapters/slurm, and in it nhc-prolog with its configuration, deadline,
verdict and state. Theirs is `nhc` as a Prolog, without marking (MARK_OFFLINE=0: with it every healthy run asks the
controller as well). Twelve checks, in turn. The limit on wall time is 0.35.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import adopt_orphans, crowd, in_turn, median, verdict
from local import TWELVE, machine

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.35


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lbnl", required=True, type=Path, help="source tree of LBNL NHC 1.4.3")
    beside = str(Path(sys.executable).parent / "nhc-prolog")
    parser.add_argument("--nhc-prolog", default=shutil.which("nhc-prolog") or beside)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as scratch, crowd(1):
        conf = Path(scratch) / "nhc.conf"
        conf.write_text(TWELVE.format(**machine()))
        # The wrapper as it is, but for where nhc-prolog and its configuration are.
        text = (ROOT / "adapters/slurm/prolog.sh").read_text()
        text = text.replace("program=/usr/bin/nhc-prolog\n", f"program={options.nhc_prolog}\n")
        wrapper = Path(scratch) / "prolog.sh"
        wrapper.write_text(text.replace('"$limit" "$program"\n', f'"$limit" "$program" -D {scratch}\n'))
        wrapper.chmod(0o755)
        env = {
            "PATH": os.environ["PATH"], "HOME": "/", "NHC_STATE_DIR": f"{scratch}/state", "SLURMD_NODENAME": "node1",
            "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "1000", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
        }  # fmt: skip
        theirs = [
            "bash", str(options.lbnl / "nhc"), "-l", "-", "-c", str(conf), f"INCDIR={options.lbnl / 'scripts'}",
            f"HELPERDIR={options.lbnl / 'helpers'}", "MARK_OFFLINE=0",
        ]  # fmt: skip
        samples = in_turn({"ours": [str(wrapper)], "theirs": theirs}, env, options.rounds)
    wall = median(samples["ours"], "wall") / median(samples["theirs"], "wall")
    cpu = median(samples["ours"], "cpu") / median(samples["theirs"], "cpu")
    for name, found in samples.items():
        print(f"{name:8} wall {median(found, 'wall') * 1000:7.1f} ms   cpu {median(found, 'cpu') * 1000:7.1f} ms")
    print(verdict("healthy prolog, wall time against LBNL NHC's", wall, LIMIT))
    print(f"{'healthy prolog, CPU time against LBNL NHC':58} {cpu:8.3f}")
    return 0 if wall <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
