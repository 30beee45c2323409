"""Install nhc's hooks for a test cluster, as its administrator would: the wrappers of adapters/slurm, run for real.

A node is made sick by the file that its check forbids: `sick(node)`, `well(node)`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Hooks:
    def __init__(self, directory: Path, nodes: list[str], slurm_conf: Path) -> None:
        self.directory = directory
        self.conf = slurm_conf
        self.nodes = nodes
        for name in ("bin", "nhc", "run", "ledger"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.configure()
        for hook in ("prolog", "epilog", "healthcheck"):
            self.program(hook)
            wrapper = (ROOT / f"adapters/slurm/{hook}.sh").read_text()
            assert f"program=/usr/bin/nhc-{hook}\n" in wrapper
            wrapper = wrapper.replace(f"program=/usr/bin/nhc-{hook}\n", f"program={directory}/bin/nhc-{hook}\n")
            assert "note=${NHC_STATE_DIR:-/run/nhc}/" in wrapper
            self.write(
                f"bin/{hook}.sh", wrapper.replace("${NHC_STATE_DIR:-/run/nhc}", f"{directory}/run/$SLURMD_NODENAME")
            )

    def write(self, name: str, text: str) -> Path:
        """Replace an executable without disturbing whoever runs it now."""
        path = self.directory / name
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)
        return path

    def program(self, hook: str, body: str = "") -> None:
        """The executable nhc-HOOK: this checkout's, or a broken one made of `body`."""
        options = f"-c {self.directory}/nhc/nhc.conf -D {self.directory}/nhc"
        if hook == "healthcheck":
            options += f" -l {self.directory}/run/nhc.log"
        # Each node of this one host keeps its own memory, and there is room for marks on all of three nodes.
        run = body or (
            f"export NHC_STATE_DIR={self.directory}/run/$SLURMD_NODENAME NHC_LEDGER_DIR={self.directory}/ledger\n"
            # slurmd tells its prolog where a slurm.conf in an odd place is, and its HealthCheckProgram not.
            f"export SLURM_CONF={self.conf}\n"
            f"export PYTHONPATH={ROOT}:{ROOT}/adapters\n"
            f'exec {sys.executable} -S -c "import sys; from nhc.hooks.commands.{hook} import main; sys.exit(main())"'
            f" {options}\n"
        )
        self.write(f"bin/nhc-{hook}", f"#!/bin/sh\nexec 2>>{self.directory}/run/{hook}.err\n{run}")

    def configure(self, extra: str = "", **settings: str) -> None:
        """nhc.conf: one check for each node, the settings, further lines."""
        settings = {"NHC_MAX_DRAINED": "none", **settings}
        lines = [f"* || export {name}='{value}'" for name, value in settings.items()]
        lines += [f"{node} || check_file_test -! -e {self.directory}/sick.{node}" for node in self.nodes]
        (self.directory / "nhc" / "nhc.conf").write_text("\n".join([*lines, extra, ""]))

    def sick(self, node: str) -> None:
        (self.directory / f"sick.{node}").touch()

    def well(self, node: str) -> None:
        (self.directory / f"sick.{node}").unlink(missing_ok=True)

    def slurm_conf(self, interval: int) -> str:
        bin_ = self.directory / "bin"
        return (
            f"Prolog={bin_}/prolog.sh\nPrologSlurmctld={bin_}/prolog.sh\nEpilog={bin_}/epilog.sh\nHealthCheckProgram={bin_}/healthcheck.sh\n"
            f"HealthCheckInterval={interval}\nHealthCheckNodeState=ANY\nPrologEpilogTimeout=60\n"
        )

    def said(self, hook: str) -> str:
        path = self.directory / "run" / f"{hook}.err"
        return path.read_text() if path.exists() else ""

    def reset(self) -> None:
        for node in self.nodes:
            self.well(node)
        self.configure()
        for hook in ("prolog", "epilog", "healthcheck"):
            self.program(hook)
        for path in (self.directory / "run").iterdir():
            if path.is_file() and path.suffix != ".log":
                path.unlink()
        for note in (self.directory / "run").glob("*/broken/*/*"):
            note.unlink()
