#!/usr/bin/env python3
"""Builds node-problem-detector, the peer that tests/npd and the benchmarks' `--npd` compare with.

It comes from the Go module proxy as tests/kube/go.mod names it: built there, it needs few packages that were not yet
compiled. It lies under ``~/.cache/nhc-npd/VERSION``.
`make test` builds it in the background, after the control plane; a test that comes first waits for it.
``NHC_NPD_BIN`` names another binary. Run by hand::

    python tests/npd/build.py       # build if needed, print the path
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.kube.build import Unavailable, find_go, locked, run_go

KUBE = Path(__file__).resolve().parents[1] / "kube"
MODULE = "k8s.io/node-problem-detector"
VERSION = re.findall(rf"^\s*{re.escape(MODULE)} (\S+)", (KUBE / "go.mod").read_text(), re.MULTILINE)[0]


def place() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nhc-npd" / VERSION / "node-problem-detector"


def ready() -> Optional[Path]:
    """The binary if there is one. Raises Unavailable where NHC_NPD_BIN names what cannot be executed."""
    named = os.environ.get("NHC_NPD_BIN")
    path = Path(named) if named else place()
    if named and not os.access(path, os.X_OK):
        raise Unavailable(f"NHC_NPD_BIN={named} cannot be executed")
    return path if path.exists() else None


def build() -> Path:
    """The binary, built where there is none. Without journald: that needs cgo and systemd's headers.

    Raises Unavailable where there is no Go, or it cannot build.
    """
    found = ready()
    if found:
        return found
    go = find_go()
    with locked(place().parent.parent / "lock"), tempfile.TemporaryDirectory(prefix="nhc-npd-") as name:
        if place().exists():
            return place()
        made = Path(name) / "node-problem-detector"
        run_go(
            go, "build", "-trimpath", "-o", str(made), "-tags", "disable_stackdriver_exporter", "-ldflags",
            f"-s -w -X {MODULE}/pkg/version.version={VERSION}", f"{MODULE}/cmd/nodeproblemdetector", cwd=KUBE,
        )  # fmt: skip
        place().parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made, place().with_suffix(".new"))
        place().with_suffix(".new").rename(place())
    return place()


def main() -> int:
    try:
        sys.stdout.write(f"{build()}\n")
    except Unavailable as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
