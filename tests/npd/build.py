#!/usr/bin/env python3
"""Builds node-problem-detector, the peer that tests/npd and the benchmarks' `--npd` compare with.

It comes from the Go module proxy as tests/kube/go.mod names it: built there, it needs few packages that were not yet
compiled. It lies under ``~/.cache/nhc-npd/VERSION``: compiled as the control plane is, for tests, or for benchmarks as
its project compiles what it releases.
`make test` builds it in the background, after the control plane; a test that comes first waits for it.
``NHC_NPD_BIN`` names another binary. Run by hand::

    python tests/npd/build.py                # build if needed, print the path
    python tests/npd/build.py --optimised    # the one for benchmarks
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.kube.build import COMPILER_FLAGS, NEWEST, Unavailable, build_here, find_go, locked, version_of

MODULE = "k8s.io/node-problem-detector"
VERSION = version_of(MODULE)


def place(optimised: bool = False) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nhc-npd" / (f"{VERSION}-optimised" if optimised else VERSION) / "node-problem-detector"


def ready(optimised: bool = False) -> Optional[Path]:
    """The binary if there is one. Raises Unavailable where NHC_NPD_BIN names what cannot be executed."""
    named = os.environ.get("NHC_NPD_BIN")
    path = Path(named) if named else place(optimised)
    if named and not os.access(path, os.X_OK):
        raise Unavailable(f"NHC_NPD_BIN={named} cannot be executed")
    return path if path.exists() else None


def build(optimised: bool = False) -> Path:
    """The binary, built where there is none. Without journald: that needs cgo and systemd's headers.

    Raises Unavailable where there is no Go, or it cannot build.
    """
    found = ready(optimised)
    if found:
        return found
    go, final = find_go(), place(optimised)
    with locked(final.parent.parent / "lock"), tempfile.TemporaryDirectory(prefix="nhc-npd-") as name:
        if final.exists():
            return final
        made = Path(name) / "node-problem-detector"
        build_here(
            go, f"{MODULE}/cmd/nodeproblemdetector", made, "-tags", "disable_stackdriver_exporter", module_file=NEWEST,
            linked=f"-X {MODULE}/pkg/version.version={VERSION}", compiler=() if optimised else COMPILER_FLAGS,
        )  # fmt: skip
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made, final.with_suffix(".new"))
        final.with_suffix(".new").rename(final)
    return final


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds node-problem-detector if needed, and prints its path.")
    parser.add_argument("--optimised", action="store_true", help="the one for benchmarks")
    try:
        sys.stdout.write(f"{build(parser.parse_args().optimised)}\n")
    except Unavailable as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
