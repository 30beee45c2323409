"""Everything that is released, into one directory; and what each file must be to be released."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Callable, List, Sequence

from nhc_release import chart, collection, deb, image, python, rpm, signing, source, stage
from nhc_release.commands import BuildError, need, run
from nhc_release.source import Source
from nhc_release.stage import PACKAGES

Say = Callable[[str], None]


def build(found: Source, interpreter: str, work: Path, out: Path, say: Say) -> None:
    """Build all of it below `work` and into `out`, both empty. Raises BuildError."""
    from nhc_release import sbom  # whoever builds one form alone has no library for it

    tree = source.export(found, work / "source")
    say("wheel and sdist")
    python.wheel_and_sdist(found, tree, out)
    wheel = out / f"nodehealth-{found.version}-py3-none-any.whl"
    say("trees of the packages")
    laid = stage.build(found, tree, wheel, interpreter, work / "stage")
    say("nhc.pyz")
    pyz = out / f"nhc-{found.version}.pyz"
    python.archive(found, tree, laid.tree("nodehealth") / python.NODE, pyz)
    for name in ("deb", "rpm", "image", "chart", "collection"):
        (work / name).mkdir()
    say("deb")
    deb.build(found, tree, laid, work / "deb", out)
    say("rpm")
    rpm.build(found, tree, laid, work / "rpm", out)
    say("image")
    image.build(found, tree, laid, work / "image", out / f"nodehealth-{found.version}-oci.tar")
    say("chart")
    chart.build(found, tree, work / "chart", out)
    say("collection")
    collection.build(found, tree, pyz, work / "collection", out)
    say("SBOM")
    sbom.write(found, laid, work / "image/base.tar", out)
    notes = found.notes or "What changed is not in the changelog yet."
    (out / "NOTES.md").write_text(f"# nodehealth {found.version}\n\n{notes}\n", encoding="utf-8")
    signing.write_sums(out)


FORMS = ("deb", "rpm", "image", "chart")
"""What can be built alone."""


def build_one(found: Source, form: str, interpreter: str, work: Path, out: Path, say: Say) -> List[Path]:
    """Build one form and try it, with that form's tools alone; the files that it made. Raises BuildError."""
    tree, place, made = source.export(found, work / "source"), work / form, work / "made"
    place.mkdir()
    made.mkdir()
    if form == "chart":
        chart.build(found, tree, place, made)
    else:
        say("wheel, trees of the packages")
        wheels = work / "wheels"
        wheels.mkdir()
        python.wheel_and_sdist(found, tree, wheels)
        laid = stage.build(
            found, tree, wheels / f"nodehealth-{found.version}-py3-none-any.whl", interpreter, work / "stage"
        )
        say(form)
        if form == "image":
            image.build(found, tree, laid, place, made / f"nodehealth-{found.version}-oci.tar")
        else:
            (deb if form == "deb" else rpm).build(found, tree, laid, place, made)
        say("verify")
        VERIFY[form](found, made, work)
    out.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.move(str(path), out / path.name)) for path in sorted(made.iterdir())]


def _verify_deb(_found: Source, out: Path, _work: Path) -> None:
    need("lintian", "lintian")
    run(["lintian", "--allow-root", "--fail-on", "error,warning", *sorted(out.glob("*.deb"))])


def _verify_rpm(found: Source, out: Path, _work: Path) -> None:
    need("rpmlint", "rpmlint")
    said = run(["rpmlint", "--strict", "-c", found.root / "packaging/rpmlint.toml", *sorted(out.glob("*.rpm"))])
    if " 0 errors, 0 warnings" not in said:
        raise BuildError("\n".join(["rpmlint:", *said.strip().splitlines()[-25:]]))


def _verify_image(found: Source, out: Path, work: Path) -> None:
    """A copy by another tool than the one that built it reads every layer and checks every digest."""
    need("skopeo", "skopeo")
    copied = work / "copied"
    shutil.rmtree(copied, ignore_errors=True)
    run(["skopeo", "copy", f"oci-archive:{out}/nodehealth-{found.version}-oci.tar", f"dir:{copied}"])
    shutil.rmtree(copied)


VERIFY = {"deb": _verify_deb, "rpm": _verify_rpm, "image": _verify_image}


def verify(found: Source, out: Path, work: Path, say: Say) -> None:
    """Try each file by the tools that its users have. Raises BuildError."""
    signing.verify_sums(out)
    say("nhc.pyz, wheel")
    expected = f"nhc {found.version}"
    pyz = out / f"nhc-{found.version}.pyz"
    _says([sys.executable, "-I", "-S", str(pyz), "--version"], expected)
    wheel = out / f"nodehealth-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        broken = archive.testzip()
        if broken:
            raise BuildError(f"{wheel.name}: {broken} is damaged")
    for form, tried in VERIFY.items():
        say(form)
        tried(found, out, work)
    say("chart, collection")
    chart.verify(found, found.root, out / f"nodehealth-chart-{found.version}.tgz")
    collection.verify(found, out / f"nhc-nhc-{found.version}.tar.gz")


def _says(argv: Sequence[str], expected: str) -> None:
    said = run(argv).strip()
    if said != expected:
        raise BuildError(f"{Path(argv[-2]).name} says {said!r}, not {expected!r}")


def differences(first: Path, second: Path) -> List[str]:
    """The names of files that two builds do not have in common, byte for byte."""
    texts = [(one / signing.SUMS).read_text(encoding="ascii").splitlines() for one in (first, second)]
    unlike = set(texts[0]) ^ set(texts[1])
    return sorted({line.partition("  ")[2] for line in unlike})


def complete(found: Source, out: Path) -> List[str]:
    """What is missing of a release in a directory."""
    version, debian = found.version, deb.debian_version(found.version)
    wanted = [
        f"nodehealth-{version}-py3-none-any.whl", f"nodehealth-{version}.tar.gz", f"nhc-{version}.pyz",
        f"nodehealth-{version}-oci.tar", f"nodehealth-chart-{version}.tgz", f"nhc-nhc-{version}.tar.gz",
        *(f"{name}-{version}.cdx.json" for name in ("nodehealth", "nodehealth-libs", "nodehealth-image")),
        "NOTES.md", signing.SUMS,
    ]  # fmt: skip
    missing = [name for name in wanted if not (out / name).is_file()]
    for package in PACKAGES:
        patterns = (f"{package}_{debian}_*.deb", f"{package}-{debian}-1.*.rpm")
        missing += [pattern for pattern in patterns if len(list(out.glob(pattern))) != 1]
    return missing
