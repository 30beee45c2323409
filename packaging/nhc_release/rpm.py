"""RPM packages, by rpmbuild: packaging/*.spec over the staged trees. They suit Enterprise Linux 9, Fedora and SUSE."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import List

from nhc_release import completions, deb
from nhc_release.commands import BuildError, need, run
from nhc_release.source import Source, normalise
from nhc_release.stage import PACKAGES, SETTINGS, Stage

_SHARED = ("usr", "etc", "usr/bin", "usr/lib", "usr/libexec", "usr/share", "usr/lib/systemd", "usr/lib/systemd/system",
           "usr/lib/sysusers.d", "usr/share/man", "usr/share/man/man1", "usr/share/doc",
           "usr/share/bash-completion", "usr/share/bash-completion/completions")  # fmt: skip
"""Directories that a package of every distribution has; of the others several packages may be owners."""


def build(source: Source, tree: Path, stage: Stage, work: Path, out: Path) -> List[Path]:
    """Build all of them into `out`; the libraries' package is for this machine's architecture. Raises BuildError."""
    need("rpmbuild", "rpm")
    staged = work / "stage"
    shutil.copytree(stage.top, staged, symlinks=True)
    _of_rpm(tree, staged)
    for package in PACKAGES:
        normalise(staged / package, source.epoch)
        (staged / f"{package}.files").write_text("\n".join(_files(staged / package, package)) + "\n", encoding="utf-8")
    defines = {
        "_topdir": work / "rpm", "nhc_stage": staged, "nhc_version": deb.debian_version(source.version),
        "nhc_python": stage.python, "nhc_glibc": ".".join(map(str, deb.newest_glibc(stage))),
        "nhc_date": time.strftime("%a %b %d %Y", time.gmtime(source.epoch)),
    }  # fmt: skip
    words = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
    for spec in ("nodehealth.spec", "nodehealth-libs.spec"):
        run(["rpmbuild", "-bb", "--quiet", *words, tree / "packaging" / spec], source.epoch, cwd=work)
    made = sorted((work / "rpm/RPMS").rglob("*.rpm"))
    if len(made) != len(PACKAGES):
        raise BuildError(f"rpmbuild made {', '.join(path.name for path in made) or 'nothing'}")
    for path in made:
        shutil.move(str(path), out / path.name)
    return [out / path.name for path in made]


def _of_rpm(tree: Path, staged: Path) -> None:
    """What these distributions have otherwise than Debian: zsh's completion, compressed manuals, licences."""
    base = staged / "nodehealth"
    target = base / completions.RPM_ZSH
    target.parent.mkdir(parents=True)
    (base / completions.PLACES["zsh"]).rename(target)
    (base / completions.PLACES["zsh"]).parent.rmdir()
    for package in PACKAGES:
        for page in sorted((staged / package).glob("usr/share/man/man1/*.1")):
            run(["gzip", "-9n", page])
        licence = staged / package / f"usr/share/licenses/{package}/LICENSE"
        licence.parent.mkdir(parents=True)
        shutil.copyfile(tree / "LICENSE", licence)


def _files(top: Path, package: str) -> List[str]:
    """The %files of a package: each file and each directory that is its own."""
    settings = {f"/etc/nhc/{name}" for name in SETTINGS.get(package, ())}
    lines = []
    for directory, names, files in os.walk(top):
        names.sort()
        inside = os.path.relpath(directory, top)
        if inside != "." and inside not in _SHARED and inside != "usr/share/licenses":
            lines.append(f'%dir %attr(0755,root,root) "/{inside}"')
        for name in sorted(files):
            path = f"/{inside}/{name}"
            kind = (
                "%config(noreplace) " if path in settings
                else "%license " if path.startswith("/usr/share/licenses/")
                else "%doc " if path.startswith(("/usr/share/doc/", "/usr/share/man/"))
                else ""
            )  # fmt: skip
            mode = "0755" if os.access(os.path.join(directory, name), os.X_OK) else "0644"
            lines.append(f'{kind}%attr({mode},root,root) "{path}"')
    return lines
