"""What is in the packages, as CycloneDX 1.6: one document for the node's part, the libraries and the image.

Components are read from what was built (the metadata of each Python package, dpkg's database of the image), not from
what was asked for.
"""

from __future__ import annotations

import importlib.metadata
import re
import tarfile
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Iterable, List, NamedTuple

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from nhc_release import python, vendored
from nhc_release.commands import BuildError
from nhc_release.source import Source
from nhc_release.stage import Stage
from nhc_release.wheel_libraries import carried


class Part(NamedTuple):
    """One thing that is in an artifact. `kind` is the type of its package URL: pypi, deb or npm.

    `within` is the wheel that carries it along, whose `place` it then has instead.
    """

    kind: str
    name: str
    version: str
    licence: str
    within: str = ""
    place: str = ""


def python_parts(directory: Path) -> List[Part]:
    """Every Python package below a directory, by its *.dist-info, and the C libraries that their wheels carry along."""
    found = []
    for one in importlib.metadata.distributions(path=[str(directory)]):
        said = one.metadata
        licence = said["License-Expression"] or said["License"] or ""
        found.append(Part("pypi", said["Name"].lower(), one.version, licence if 0 < len(licence) < 100 else ""))
    inside = [Part("generic", one.name, one.version, "", one.wheel, one.purl) for one in carried(directory)]
    return [*sorted(found), *inside]


def debian_parts(layer: Path) -> List[Part]:
    """Every Debian package of a layer, by what the layer itself notes of them."""
    names = []
    with tarfile.open(layer) as archive:
        for info in archive:
            if info.isreg() and info.name.startswith("var/lib/dpkg/status.d/"):
                text = archive.extractfile(info).read().decode()  # type: ignore[union-attr]
                fields = dict(re.findall(r"^(Package|Version): (\S+)$", text, re.MULTILINE))
                names.append((fields["Package"], fields["Version"]))
    if not names:
        raise BuildError("the image's base layer says nothing of its packages")
    return sorted(Part("deb", name, version, "") for name, version in names)


def document(source: Source, subject: str, kind: ComponentType, parts: Iterable[Part]) -> str:
    """The document about `subject`. The same parts give the same text. Raises BuildError where it is not valid."""
    own = PackageURL("pypi", None, "nodehealth", source.version)
    about = Component(name=subject, version=source.version, type=kind, bom_ref=subject)
    components = [_component(part) for part in parts]
    bom = Bom(
        # A serial number that names the content's release, since a random one would be another at each build.
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{own}#{subject}@{source.epoch}"),
        metadata=BomMetaData(
            component=about,
            timestamp=datetime.fromtimestamp(source.epoch, timezone.utc),
        ),
        components=components,
    )  # fmt: skip
    bom.register_dependency(about, components)
    text = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise BuildError(f"the SBOM of {subject} is not valid: {str(wrong)[:300]}")
    return text


def _component(part: Part) -> Component:
    if part.place:
        place = PackageURL.from_string(part.place)
    else:
        place = PackageURL(part.kind, "debian" if part.kind == "deb" else None, part.name, part.version)
    reference = f"{part.within}#{place}" if part.within else str(place)  # two wheels may carry the same
    inside = [Property(name="nodehealth:wheel", value=part.within)] if part.within else None
    licences = [DisjunctiveLicense(name=part.licence)] if part.licence else None
    return Component(
        name=part.name, version=part.version, type=ComponentType.LIBRARY, purl=place, bom_ref=reference,
        licenses=licences, properties=inside,
    )  # fmt: skip


def write(source: Source, stage: Stage, base_layer: Path, out: Path) -> List[Path]:
    """One document each for the node's packages (wheel, nhc.pyz, nodehealth), the libraries and the image."""
    ours = [Part("npm", package.name, package.version, package.licence) for package in vendored.locked()]
    node = [*python_parts(stage.tree("nodehealth") / python.NODE), *ours]
    libraries = python_parts(stage.tree("nodehealth-libs") / python.LIBRARIES)
    if "nodehealth" not in {part.name for part in node}:
        raise BuildError("the node's tree does not say that it is nodehealth")
    made = []
    for subject, kind, parts in (
        ("nodehealth", ComponentType.APPLICATION, node),
        ("nodehealth-libs", ComponentType.LIBRARY, libraries),
        ("nodehealth-image", ComponentType.CONTAINER, [*debian_parts(base_layer), *node, *libraries]),
    ):
        target = out / f"{subject}-{source.version}.cdx.json"
        target.write_text(document(source, subject, kind, parts), encoding="utf-8")
        made.append(target)
    return made
