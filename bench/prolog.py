"""The whole cost of a healthy prolog and health check against LBNL NHC on the same checks.

    python bench/prolog.py --lbnl /path/to/mej-nhc-1.4.3 [--nhc-prolog /path/to/nhc-prolog] [--rounds 25]

Ours is what Slurm runs: the wrapper of adapters/slurm, and in it nhc-prolog with its configuration, deadline,
verdict and state. "kept" is the same where a healthy verdict is kept (NHC_PROLOG_MAX_AGE): no Python starts. Theirs
is `nhc` as a Prolog, without marking (MARK_OFFLINE=0: with it every healthy run asks the controller as well). "watched"
is the health check's wrapper beside an agent that judges the same lines (NHC_HEALTHCHECK_MAX_AGE). Twelve checks, in
turn. The limits on wall time are 0.35, and 0.06 where no Python starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import adopt_orphans, crowd, in_turn, median, verdict
from local import TWELVE, machine

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.35
KEPT_LIMIT = 0.06


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
        kept_conf = Path(scratch) / "kept"
        kept_conf.mkdir()
        (kept_conf / "nhc.conf").write_text("* || NHC_PROLOG_MAX_AGE=3600\n" + conf.read_text())
        kept = Path(scratch) / "kept.sh"
        told = text.replace('"$limit" "$program"\n', f'"$limit" "$program" -D {kept_conf}\n')
        kept.write_text(told.replace("${NHC_STATE_DIR:-/run/nhc}", f"{scratch}/kept-state"))
        kept.chmod(0o755)
        time.sleep(1)  # a configuration that has just been written is not trusted to be what was read
        subprocess.run([str(kept)], env={**env, "NHC_STATE_DIR": f"{scratch}/kept-state"}, check=True)
        if not (Path(scratch) / "kept-state" / "prolog-healthy").exists():
            sys.exit("no verdict was kept: this node is not healthy")
        with watched(Path(scratch), conf.read_text(), Path(options.nhc_prolog).parent, env) as healthcheck:
            argvs = {"ours": [str(wrapper)], "kept": [str(kept)], "watched": [str(healthcheck)], "theirs": theirs}
            samples = in_turn(argvs, env, options.rounds)
    wall = median(samples["ours"], "wall") / median(samples["theirs"], "wall")
    cpu = median(samples["ours"], "cpu") / median(samples["theirs"], "cpu")
    for name, found in samples.items():
        print(f"{name:8} wall {median(found, 'wall') * 1000:7.1f} ms   cpu {median(found, 'cpu') * 1000:7.1f} ms")
    print(verdict("healthy prolog, wall time against LBNL NHC's", wall, LIMIT))
    print(f"{'healthy prolog, CPU time against LBNL NHC':58} {cpu:8.3f}")
    short = median(samples["kept"], "wall") / median(samples["theirs"], "wall")
    print(verdict("the same with a kept verdict", short, KEPT_LIMIT))
    beside = median(samples["watched"], "wall") / median(samples["theirs"], "wall")
    print(verdict("health check beside an agent", beside, KEPT_LIMIT))
    return 0 if wall <= LIMIT and max(short, beside) <= KEPT_LIMIT else 1


@contextmanager
def watched(scratch: Path, checks: str, programs: Path, env: dict[str, str]) -> Iterator[Path]:
    """The health check's wrapper on a node whose agent judges the same lines, once it answers without Python."""
    place = scratch / "watched"
    state = place / "state"
    state.mkdir(parents=True, mode=0o700)
    (place / "nhc.conf").write_text("* || NHC_HEALTHCHECK_MAX_AGE=3600\n" + checks)
    (place / "agent.toml").write_text(
        f'[agent]\nnode = "node1"\nconfig = ["{place}/nhc.conf"]\nstate = "{state}"\nsocket = "{place}/agent.sock"\n'
        'listen = []\nkernel-log = false\nboot-window = "0s"\n'
    )
    text = (ROOT / "adapters/slurm/healthcheck.sh").read_text()
    text = text.replace("program=/usr/bin/nhc-healthcheck\n", f"program={programs}/nhc-healthcheck\n")
    text = text.replace('"$limit" "$program" >', f'"$limit" "$program" -D {place} -l {place}/log NHC_RM=none >')
    wrapper = place / "healthcheck.sh"
    wrapper.write_text(text.replace("${NHC_STATE_DIR:-/run/nhc}", str(state)))
    wrapper.chmod(0o755)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = {"node1": {"ours": False, "read": time.time(), "boot": boot}}  # as after a look at the scheduler
    (state / "mark.json").write_text(json.dumps(known))
    argv = [str(programs / "nhc"), "serve", "agent", "-s", str(place / "agent.toml")]
    agent = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 180
        while not (state / "agent-healthy").exists():
            if time.monotonic() > ends:
                sys.exit("the agent vouches for nothing: this node is not healthy")
            subprocess.run([str(wrapper)], env={**env, "NHC_STATE_DIR": str(state)}, check=True)
            time.sleep(0.5)
        yield wrapper
    finally:
        agent.terminate()
        agent.wait()


if __name__ == "__main__":
    sys.exit(main())
