"""Each path below /usr that a document, an example or a hint names as ours is where the packages put it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Set

import pytest

from nhc_release import python, stage

ROOT = Path(__file__).resolve().parents[2]
READ = (
    "README.md", "docs/**/*.md", "conf/*.example", "examples/**/*", "adapters/**/README.md", "adapters/slurm/*",
    "adapters/systemd/*", "packaging/debian/control", "packaging/*.spec", "nhc/cli/*.py",
)  # fmt: skip
OURS = re.compile(r"(?<![\w./])/usr/(?:bin|sbin|lib|libexec|share)/[\w./*-]*(?:nhc|nodehealth)[\w./*-]*")
OF_LBNL_NHC = {"/usr/sbin/nhc"}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' trees, without what pip unpacks into two directories of them."""
    made = stage.Stage(tmp_path_factory.mktemp("stage"), "/usr/bin/python3")
    stage.copied(ROOT, made)
    (made.tree("nodehealth") / python.NODE).mkdir(parents=True)
    (made.tree("nodehealth-libs") / python.LIBRARIES).mkdir(parents=True)
    return made.top


def named() -> Dict[str, Set[str]]:
    """Files by the path that they name. A path may be a pattern."""
    places: Dict[str, Set[str]] = {}
    for pattern in READ:
        for path in ROOT.glob(pattern):
            if path.is_file():
                for match in OURS.findall(path.read_text(encoding="utf-8", errors="replace")):
                    places.setdefault(match.rstrip("./-*") if match[-1] in "./-" else match, set()).add(path.name)
    return places


def test_every_path_that_a_document_names_is_in_a_package(staged: Path) -> None:
    asked = named()
    assert {"/usr/libexec/nhc/slurm-healthcheck", "/usr/bin/nhc-healthcheck", "/usr/bin/nhc"} <= set(asked)
    missing = {path: files for path, files in asked.items() if not list(staged.glob(f"*{path}"))}
    assert {path: files for path, files in missing.items() if path not in OF_LBNL_NHC} == {}


def test_what_slurm_is_to_call_may_be_started(staged: Path) -> None:
    example = (staged / "nodehealth-hooks/usr/share/doc/nodehealth-hooks/examples/slurm.conf").read_text()
    programs = re.findall(r"^#?\w+=(/\S+)$", example, re.M)
    assert len(set(programs)) == 4
    for program in programs:
        assert os.access(staged / f"nodehealth-hooks{program}", os.X_OK), program
