"""The C libraries inside wheels, which no distribution updates: their names, versions, and how old they are.

Read from what a wheel says of itself (`*.dist-info/sboms`, PEP 770, as auditwheel and cryptography write it), else from
the shared libraries that auditwheel put beside it (`NAME.libs/libx-HASH.so.N`), and from OpenSSL's own words in
whatever binary has it built in ("OpenSSL 3.4.0 22 Oct 2024").
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

YEAR = datetime.timedelta(days=365)
ENDED = {"el7": datetime.date(2024, 6, 30)}
"""Distributions whose packages auditwheel takes along, and when their updates ended (manylinux2014 is CentOS 7)."""
_OPENSSL = re.compile(rb"OpenSSL (\d+\.\d+\.\d+[a-z]*) +(\d{1,2} [A-Z][a-z]{2} 20\d\d)\0")
_COPIED = re.compile(r"(?P<name>[^/]+?)(-[0-9a-f]{8})?\.so(\.(?P<version>[0-9.]+))?")
_LARGEST = 64 << 20


class Carried(NamedTuple):
    """One library in a wheel. `day` is when its maintainers made it, or ceased to mend it, where that is known."""

    wheel: str
    name: str
    version: str
    purl: str
    day: Optional[datetime.date] = None

    def is_old(self, today: datetime.date) -> bool:
        """Whether it is known to be older than a year."""
        return self.day is not None and today - self.day > YEAR


def carried(directory: Path) -> List[Carried]:
    """All of the packages that lie in a directory. What two files say alike is there once."""
    found: Dict[Tuple[str, str, str], Carried] = {}
    for wheel in importlib.metadata.distributions(path=[str(directory)]):
        for one in _of_wheel(wheel, directory):
            kept = found.setdefault((one.wheel, one.name, one.version), one)
            if kept.day is None and one.day is not None:
                found[one.wheel, one.name, one.version] = kept._replace(day=one.day)
    return sorted(found.values(), key=lambda one: (one.wheel, one.name, one.version))


def _of_wheel(wheel: importlib.metadata.Distribution, directory: Path) -> Iterator[Carried]:
    name = wheel.metadata["Name"].lower()
    documents = sorted(directory.glob(f"{_folder(name)}-*.dist-info/sboms/*.json"))
    for path in documents:
        yield from _said(name, path)
    copied = sorted(directory.glob(f"{_folder(name)}.libs/*"))
    for path in copied:
        match = _COPIED.fullmatch(path.name)
        if match and not documents:
            version = match["version"] or ""
            yield Carried(name, match["name"], version, f"pkg:generic/{match['name']}@{version}")
    for path in [*copied, *(directory / file for file in _binaries(wheel, directory))]:
        if path.stat().st_size <= _LARGEST:
            for version, day in set(_OPENSSL.findall(path.read_bytes())):
                made = datetime.datetime.strptime(day.decode(), "%d %b %Y").date()
                text = version.decode()
                yield Carried(name, "openssl", text, f"pkg:generic/openssl@{text}", made)


def _folder(name: str) -> str:
    """How a wheel's directories are called (the binary distribution format's escape)."""
    return re.sub(r"[-_.]+", "_", name)


def _binaries(wheel: importlib.metadata.Distribution, directory: Path) -> List[str]:
    """The extension modules of a wheel: by its record, else, where a package leaves that out, by its directories."""
    listed = [str(file) for file in wheel.files or () if str(file).endswith(".so")]
    if listed:
        return [file for file in listed if (directory / file).is_file()]
    tops = (wheel.read_text("top_level.txt") or _folder(wheel.metadata["Name"].lower())).split()
    return [str(path.relative_to(directory)) for top in tops for path in sorted((directory / top).rglob("*.so"))]


def _said(wheel: str, path: Path) -> Iterator[Carried]:
    for one in json.loads(path.read_text(encoding="utf-8")).get("components", ()):
        purl, version = str(one.get("purl", "")), str(one.get("version", ""))
        if purl and not purl.startswith(
            ("pkg:pypi/", "pkg:cargo/")
        ):  # a wheel's own name; crates are the next document's
            ended = next(
                (day for release, day in ENDED.items() if re.search(rf"\.{release}\b|\.{release}_", version)), None
            )
            yield Carried(wheel, str(one["name"]), version, purl.partition("?")[0], ended)
