#!/usr/bin/env python3
"""Builds node-problem-detector, the peer that tests/npd and the benchmarks' `--npd` compare with.

It is fetched from the Go module proxy (checked against its own go.sum) and lies under ``~/.cache/nhc-npd/VERSION``.
No test builds it: it is no part of nhc, and takes more than a minute of two cores. Tests skip without it, under
NHC_REQUIRE=all as well. ``NHC_NPD_BIN`` names another binary. Run by hand::

    python tests/npd/build.py       # build if needed, print the path
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

MODULE = "k8s.io/node-problem-detector"
VERSION = "v1.34.0"


def place() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nhc-npd" / VERSION / "node-problem-detector"


def ready() -> Optional[Path]:
    """The binary if there is one."""
    named = os.environ.get("NHC_NPD_BIN")
    path = Path(named) if named else place()
    if named and not os.access(path, os.X_OK):
        raise FileNotFoundError(f"NHC_NPD_BIN={named} cannot be executed")
    return path if path.exists() else None


def build() -> Path:
    """The binary, built where there is none. Without journald: that needs cgo and systemd's headers."""
    found = ready()
    if found:
        return found
    go = shutil.which("go") or "/usr/local/go/bin/go"
    environ = {**os.environ, "GOFLAGS": "-buildvcs=false -mod=mod", "CGO_ENABLED": "0"}
    with tempfile.TemporaryDirectory(prefix="nhc-npd-") as name:
        argv = [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"]
        said = subprocess.run(argv, cwd=name, env=environ, check=True, stdout=subprocess.PIPE).stdout
        source = Path(name) / "source"
        shutil.copytree(json.loads(said)["Dir"], source)
        for directory, _names, _files in os.walk(source):
            os.chmod(directory, 0o755)
        made = Path(name) / "node-problem-detector"
        subprocess.run(
            [go, "build", "-o", str(made), "-tags", "disable_stackdriver_exporter", "-ldflags",
             f"-s -w -X k8s.io/node-problem-detector/pkg/version.version={VERSION}", "./cmd/nodeproblemdetector"],
            cwd=source, env=environ, check=True, stdout=sys.stderr,
        )  # fmt: skip
        place().parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made, place().with_suffix(".new"))
        place().with_suffix(".new").rename(place())
    return place()


if __name__ == "__main__":
    print(build())
