"""The files of each package, laid out as a root: deb, rpm and image are made of the same trees.

| package | holds |
|---|---|
| nodehealth | nhc for a node: checks, command line, manual, completion, the timer |
| nodehealth-hooks | what a scheduler calls: prolog, epilog, health check; the units of a gate |
| nodehealth-agent | the resident agent's unit and settings |
| nodehealth-libs | libraries of the services, fleets, clusters and clouds, for one Python |
| nodehealth-server | units and settings: server, remedy loop, notices |
| nodehealth-console | the web page's unit and settings |
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Dict, NamedTuple, Tuple

from nhc_release import completions, manpages, python
from nhc_release.commands import run
from nhc_release.source import Source, normalise

UNITS: Dict[str, Tuple[str, ...]] = {
    "nodehealth": ("nhc-check.service", "nhc-check.timer"),
    "nodehealth-agent": ("nhc-agent.service",),
    "nodehealth-hooks": ("nhc-gate.service", "nhc-gate-boot.service"),
    "nodehealth-server": (
        "nhc-server.service",
        "nhc-remedy.service",
        "nhc-notices.service",
        "nhc-job.service",
        "nhc-serve.service",
        "nhc-deep-sweep.service",
    ),
    "nodehealth-console": ("nhc-console.service",),
}
SETTINGS: Dict[str, Tuple[str, ...]] = {
    "nodehealth-agent": ("agent.toml",),
    "nodehealth-server": ("server.toml", "store.toml", "remedy.toml"),
}
"""Settings that are right as they are: they do what the program does without them, and change nothing on any node."""
EXAMPLES: Dict[str, Tuple[str, ...]] = {
    "nodehealth": ("nhc.conf", "policy.toml", "kubernetes.toml", "fleet.toml"),
    "nodehealth-hooks": ("gate.toml",),
    "nodehealth-server": ("jobs.toml", "notices.toml", "serve.toml", "spares.toml", "train.toml"),
    "nodehealth-console": ("console.toml",),
}
USER = ("nodehealth-console", "nodehealth-server")
"""Packages whose units run as the user nhc."""
PACKAGES = (
    "nodehealth",
    "nodehealth-agent",
    "nodehealth-console",
    "nodehealth-hooks",
    "nodehealth-libs",
    "nodehealth-server",
)
UNIT_DIRECTORY = "usr/lib/systemd/system"
WRAPPERS = "usr/libexec/nhc"
"""Where slurm.conf names them: slurm-prolog, slurm-epilog, slurm-healthcheck, slurm-deep-due."""
SYSUSERS = 'u nhc - "node health services" /var/lib/nhc-server\n'


class Stage(NamedTuple):
    """Trees by package below `top`, and the interpreter that the libraries are for: /usr/bin/python3.11."""

    top: Path
    python: str

    def tree(self, package: str) -> Path:
        return self.top / package


def build(source: Source, tree: Path, wheel: Path, interpreter: str, top: Path) -> Stage:
    """Lay out every package. Raises BuildError."""
    made = Stage(top, f"/usr/bin/python{python.version_of(interpreter)}")
    for package in PACKAGES:
        made.tree(package).mkdir(parents=True)
    node = python.node_tree(source, tree, wheel, made.tree("nodehealth"))
    python.library_tree(source, tree, interpreter, node, made.tree("nodehealth-libs"))
    python.library_launcher(made.tree("nodehealth-libs"), made.python)
    _generated(source, node, made)
    copied(tree, made)
    for package in PACKAGES:
        normalise(made.tree(package), source.epoch)
    return made


def _generated(source: Source, node: Path, stage: Stage) -> None:
    """Manual and completion, by the very code that is packaged."""
    libraries = stage.tree("nodehealth-libs") / python.LIBRARIES
    path = f"{node}:{libraries}:{Path(__file__).resolve().parents[1]}"
    pages = stage.top / "man"
    run(
        [sys.executable, "-m", "nhc_release.generated", pages, source.version, str(source.epoch)],
        source.epoch, more={"PYTHONPATH": path},
    )  # fmt: skip
    for page in sorted((pages / "man1").iterdir()):
        hook = page.name.rpartition(".")[0] in manpages.HOOKS
        target = stage.tree("nodehealth-hooks" if hook else "nodehealth") / "usr/share/man/man1"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target / page.name)
    scripts = {shell: (pages / shell).read_text(encoding="utf-8") for shell in completions.PLACES}
    completions.write(scripts, stage.tree("nodehealth"))
    shutil.rmtree(pages)


def copied(tree: Path, stage: Stage) -> None:
    """Programs, units, settings, examples, the wrappers that Slurm calls: what is made of files of the tree alone."""
    python.launchers(tree, stage.tree("nodehealth"), python.LIBRARIES, ("nhc",))
    python.launchers(tree, stage.tree("nodehealth-hooks"), python.LIBRARIES, python.LAUNCHERS[1:])
    for package, names in UNITS.items():
        for name in names:
            _copy(tree / "adapters/systemd" / name, stage.tree(package) / UNIT_DIRECTORY / name)
    for package, names in SETTINGS.items():
        for name in names:
            _copy(tree / f"conf/{name}.example", stage.tree(package) / "etc/nhc" / name)
    for package in USER:
        users = stage.tree(package) / f"usr/lib/sysusers.d/{package}.conf"
        users.parent.mkdir(parents=True)
        users.write_text(SYSUSERS, encoding="utf-8")
    hooks = stage.tree("nodehealth-hooks")
    for path in sorted((tree / "adapters/slurm").glob("*.sh")):
        _copy(path, hooks / WRAPPERS / f"slurm-{path.stem}")
    _copy(tree / "adapters/slurm/slurm.conf.example", hooks / "usr/share/doc/nodehealth-hooks/examples/slurm.conf")
    for package, wanted in EXAMPLES.items():
        for name in wanted:
            file = f"{name}.example"
            _copy(tree / "conf" / file, stage.tree(package) / f"usr/share/doc/{package}/examples/{name}")


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
