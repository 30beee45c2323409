"""The Helm chart, packaged by helm, of the version that is released."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from nhc_release import archives
from nhc_release.commands import BuildError, run
from nhc_release.source import Source

CHART = "adapters/kubernetes/chart"
MIXIN = Path("adapters/prometheus")
"""The rules and dashboards, which the chart has by a link."""

IMAGE = "registry.example/nodehealth"
"""Any image: the chart asks for one, and its templates are tried with it."""

KUBERNETES = "1.30.0"
"""The oldest that the chart takes."""


def helm(tree: Path) -> str:
    """Helm of this machine, or the one that the tests build, alone. Raises BuildError."""
    found = shutil.which("helm")
    if found:
        return found
    return run([sys.executable, tree / "tests/kube/build.py", "--helm"]).strip()


def build(source: Source, tree: Path, work: Path, out: Path) -> Path:
    """Lint the chart, try its templates, and package it: nodehealth-chart-VERSION.tgz. Raises BuildError."""
    program, chart = helm(tree), work / "chart"
    shutil.copytree(tree / CHART, chart)
    if not (chart / MIXIN.name).exists():  # a link, which a copy of the source does not have
        shutil.copytree(tree / MIXIN, chart / MIXIN.name)
    image = ["--set", f"image.repository={IMAGE}"]
    run([program, "lint", "--strict", *image, chart])
    run([program, "package", "--version", source.version, "--app-version", source.version, "-d", work, chart])
    made = sorted(work.glob("*.tgz"))
    if len(made) != 1:
        raise BuildError(f"helm package made {len(made)} files")
    archives.repack(made[0], source.epoch)
    target = out / f"nodehealth-chart-{source.version}.tgz"
    shutil.move(str(made[0]), target)
    verify(source, tree, target)
    return target


def verify(source: Source, tree: Path, chart: Path) -> None:
    """What is packaged is what helm reads: its version, and templates that render. Raises BuildError."""
    program = helm(tree)
    shown = run([program, "show", "chart", chart]).splitlines()
    if f"version: {source.version}" not in shown:
        raise BuildError(f"{chart.name}: helm shows another version than {source.version}")
    rendered = run(
        [program, "template", "nhc", chart, "--kube-version", KUBERNETES, "--set", f"image.repository={IMAGE}",
         "--set", "prometheusRule.enabled=true,dashboards.enabled=true"]
    )  # fmt: skip
    if f"image: {IMAGE}:{source.version}" not in rendered.replace('"', ""):
        raise BuildError(f"{chart.name}: its templates do not name the image of {source.version}")
    if "alert: NhcNodeCritical" not in rendered or "nhc-dashboard-fleet" not in rendered:
        raise BuildError(f"{chart.name}: the rules and dashboards are not in it")
