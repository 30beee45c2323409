"""The console's files of others, in nhc/console/vendor: `make vendor` fetches them anew as lock.json pins them.

They are committed as they were published, so that a checkout, a wheel, nhc.pyz and every package have them without a
network. `npm` fetches an archive from the registry that this machine is set up for; its SHA-512 is compared first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple

from nhc_release.commands import BuildError, run

PLACE = Path(__file__).resolve().parents[2] / "nhc" / "console" / "vendor"


class VendoredPackage(NamedTuple):
    """One package of the npm registry. `integrity` is of its archive; `files` are ours, each with its path there and
    its SHA-256.
    """

    name: str
    version: str
    licence: str
    integrity: str
    files: Dict[str, Dict[str, str]]


def locked(place: Path = PLACE) -> List[VendoredPackage]:
    """What lock.json pins."""
    value = json.loads((place / "lock.json").read_text(encoding="utf-8"))
    return [VendoredPackage(name, **row) for name, row in sorted(value.items())]


def differing(place: Path = PLACE) -> List[str]:
    """The files of the directory that are not as lock.json has them, or not named there."""
    wanted = {name: row["sha256"] for package in locked(place) for name, row in package.files.items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.iterdir()}
    del found["lock.json"]
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def fetch(package: VendoredPackage, place: Path = PLACE) -> None:
    """Write a package's files anew. Raises BuildError where the archive or a file has another digest."""
    with tempfile.TemporaryDirectory(prefix="nhc-vendor-") as scratch:
        run(["npm", "pack", "--silent", f"{package.name}@{package.version}", "--pack-destination", scratch])
        (archive,) = Path(scratch).iterdir()
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != package.integrity:
            raise BuildError(f"{package.name} {package.version} has another digest than lock.json: sha512-{digest}")
        with tarfile.open(archive) as packed:
            for name, row in package.files.items():
                member = packed.extractfile(f"package/{row['from']}")
                data = member.read() if member is not None else b""
                if hashlib.sha256(data).hexdigest() != row["sha256"]:
                    raise BuildError(f"{name} of {package.name} {package.version} has another digest than lock.json")
                (place / name).write_bytes(data)


def main() -> int:
    """Fetch them all; 1 where one is not what is pinned."""
    try:
        for package in locked():
            fetch(package)
            print(f"{package.name} {package.version}: {', '.join(package.files)}")
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
