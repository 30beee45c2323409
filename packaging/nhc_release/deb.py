"""Debian packages, by debhelper: packaging/debian over the staged trees."""

from __future__ import annotations

import email.utils
import re
import shutil
from pathlib import Path
from typing import List

from nhc_release.commands import BuildError, need, run
from nhc_release.source import Source, normalise
from nhc_release.stage import PACKAGES, UNIT_DIRECTORY, Stage

_CHANGELOG = """\
nodehealth ({version}) unstable; urgency=medium

  * Release {version}. /usr/share/doc/nodehealth/NEWS.md.gz says what users notice.

 -- nhc maintainers <maintainers@example.org>  {date}
"""


def build(source: Source, tree: Path, stage: Stage, work: Path, out: Path) -> List[Path]:
    """Build all of them into `out`; the libraries' package is for this machine's architecture. Raises BuildError."""
    need("dpkg-buildpackage", "dpkg-dev")
    need("dh_python3", "dh-python")
    version = debian_version(source.version)
    top = work / "nodehealth"
    shutil.copytree(tree / "packaging/debian", top / "debian")
    (top / "debian/rules").chmod(0o755)
    date = email.utils.formatdate(source.epoch)
    (top / "debian/changelog").write_text(_CHANGELOG.format(version=version, date=date), encoding="utf-8")
    (top / "NOTES.md").write_text(f"# nodehealth {source.version}\n\n{source.notes}\n", encoding="utf-8")
    staged = _of_debian(stage, work / "stage")
    minor = stage.python.rpartition("python")[2]
    control = top / "debian/control"
    text = control.read_text(encoding="utf-8").replace("@PYTHON_DEPENDS@", f"python{minor}")
    control.write_text(text.replace("@LIBRARY_DEPENDS@", _libraries(stage)), encoding="utf-8")
    compiling = top / "debian/nodehealth-libs.postinst"
    compiling.write_text(compiling.read_text(encoding="utf-8").replace("@PYTHON_VERSION@", minor), encoding="utf-8")
    normalise(top, source.epoch)
    run(
        ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-pre-clean", "--no-check-builddeps"],
        source.epoch, cwd=top, more={"STAGE": str(staged), "DEB_BUILD_OPTIONS": "nocheck"},
    )  # fmt: skip
    made = sorted(work.glob("*.deb"))
    if {path.name.partition("_")[0] for path in made} != set(PACKAGES):
        raise BuildError(f"dpkg-buildpackage made {', '.join(path.name for path in made) or 'nothing'}")
    for path in made:
        shutil.move(str(path), out / path.name)
    return [out / path.name for path in made]


def debian_version(version: str) -> str:
    """A version as Debian orders them: 0.2.0rc1 comes before 0.2.0."""
    return re.sub(r"(a|b|rc)(\d+)$", r"~\1\2", version)


def _of_debian(stage: Stage, target: Path) -> Path:
    """The trees with what Debian 12's debhelper looks for elsewhere: units in /lib, which is /usr/lib."""
    shutil.copytree(stage.top, target, symlinks=True)
    if "usr/lib/systemd/system" in Path("/usr/bin/dh_installsystemd").read_text(encoding="utf-8"):
        return target
    for package in PACKAGES:
        units = target / package / UNIT_DIRECTORY
        if units.is_dir():
            (target / package / "lib/systemd").mkdir(parents=True)
            units.rename(target / package / "lib/systemd/system")
            units.parent.rmdir()
            if not any((target / package / "usr/lib").iterdir()):
                (target / package / "usr/lib").rmdir()
    return target


def newest_glibc(stage: Stage) -> tuple[int, int]:
    """The newest version of the C library's symbols that the wheels ask for."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", b"".join(path.read_bytes() for path in _shared_objects(stage)))
    return max([(2, 17), *((int(major), int(minor)) for major, minor in found)])


def _shared_objects(stage: Stage) -> list[Path]:
    return sorted(stage.tree("nodehealth-libs").rglob("*.so*"))


def _libraries(stage: Stage) -> str:
    """The system's libraries that the wheels are linked against, as Debian packages with versions."""
    shared = {"libc.so.6": "libc6", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1"}
    said = run(["objdump", "-p", *_shared_objects(stage)])
    found = {shared[name] for name in re.findall(r"NEEDED +(\S+)", said) if name in shared}
    newest = ".".join(map(str, newest_glibc(stage)))
    return ", ".join(sorted(f"libc6 (>= {newest})" if name == "libc6" else name for name in found))
