"""What travels to a node: nhc.pyz, and the site's configuration and scripts, each a bundle named by its digest.

A bundle is one line that lists its files (`name:mode:size`, names percent-encoded) and then their bytes; its
digest is the BLAKE2b (256 bits; thrice as fast as SHA-256) of all that, so that a node can check what it keeps by
reading it again before each use.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import stat
import sys
import sysconfig
import urllib.parse
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from nhc import __version__

LARGEST = 32 << 20
"""Bytes of configuration and scripts at most: more is a directory named by mistake."""


class BadSiteFiles(ValueError):
    """The configuration or the scripts cannot be sent. One line."""


class Bundle(NamedTuple):
    """Files for a node: the digest is the bundle's name there."""

    digest: str
    blob: bytes


class SiteFiles(NamedTuple):
    """The site's bundle, None where nothing is sent, and the options of `nhc check local` that use it."""

    bundle: Optional[Bundle]
    options: Tuple[str, ...]


def bundle(files: Dict[str, Tuple[int, bytes]]) -> Bundle:
    """The bundle of these files: name to mode and content."""
    names = sorted(files)
    index = " ".join(
        f"{urllib.parse.quote(os.fsencode(name), safe='/')}:{files[name][0]:o}:{len(files[name][1])}" for name in names
    )
    blob = b"".join([index.encode("ascii"), b"\n", *(files[name][1] for name in names)])
    return Bundle(hashlib.blake2b(blob, digest_size=32).hexdigest(), blob)


# The engine.


def engine(path: Optional[str] = None, cache: Optional[str] = None) -> Bundle:
    """nhc.pyz: the file at `path`, else one built from this very nhc, kept in `cache`. Raises BadSiteFiles."""
    if path is None:
        path = _built(cache or default_cache())
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise BadSiteFiles(f"{path}: {error.strerror}") from None
    return bundle({"nhc.pyz": (0o600, content)})


def default_cache() -> str:
    """`$XDG_CACHE_HOME/nhc`, else ~/.cache/nhc."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return f"{base}/nhc"


def _built(cache: str) -> str:
    """The path of an archive of this nhc's sources, built once for as long as they do not change."""
    from nhc.core.archive import build

    path = f"{cache}/nhc-{__version__}-{_fingerprint()}.pyz"
    if os.path.exists(path) and os.stat(path).st_uid == os.geteuid():
        return path
    try:
        os.makedirs(cache, mode=0o700, exist_ok=True)
        build.build(path)
        for old in glob.glob(f"{glob.escape(cache)}/nhc-*.pyz"):
            if old != path:
                os.unlink(old)
    except (OSError, RuntimeError) as error:
        raise BadSiteFiles(f"nhc.pyz cannot be built: {error}") from None
    return path


def _fingerprint() -> str:
    """A digest of the names, sizes and times of the sources that an archive is built from."""
    made = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()}".encode())
    roots: List[str] = []
    for name in ("nhc", "click", "pynvml", "nhc_adapters"):
        spec = importlib.util.find_spec(name)  # importing them would take as long as connecting to ten hosts
        if spec is not None and spec.origin:
            roots.append(spec.origin if not spec.submodule_search_locations else os.path.dirname(spec.origin))
    for root in roots:
        for path in sorted(_files(root)):
            info = os.stat(path)
            made.update(f"{path} {info.st_size} {info.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return made.hexdigest()[:16]


def _files(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name != "__pycache__"]
        yield from (f"{directory}/{name}" for name in files)


# The site.


def site_files(config: Sequence[str], scripts: Sequence[str], profile: str = "") -> SiteFiles:
    """What travels of the site's files, and the options that name them to the node. Raises BadSiteFiles.

    Files that a configuration includes by a relative name travel with it; an absolute name is the node's own.
    """
    contents: Dict[str, bytes] = {}
    options: List[str] = []
    for path in config:
        contents.update(config_files(os.path.abspath(path)))
        options += ["--config", _there(path)]
    for directory in scripts:
        if not os.path.isdir(directory):
            raise BadSiteFiles(f"{directory}: not a directory of *.nhc scripts")
        names = sorted(name for name in os.listdir(directory) if name.endswith(".nhc") and name[0] != ".")
        if not names:
            raise BadSiteFiles(f"{directory}: no *.nhc script in this directory")
        for name in names:
            contents[os.path.abspath(f"{directory}/{name}")] = _read(f"{directory}/{name}")
        options += ["--scripts", _there(directory)]
    if profile and os.path.isfile(profile):
        contents[os.path.abspath(profile)] = _read(profile)
        options += ["--profile", _there(profile)]
    elif profile:
        options += ["--profile", profile]
    if not contents:
        return SiteFiles(None, tuple(options))
    if sum(map(len, contents.values())) > LARGEST:
        raise BadSiteFiles(
            f"configuration and scripts are more than {LARGEST >> 20} MiB together: is this the right path?"
        )
    return SiteFiles(bundle({path.lstrip("/"): (0o600, content) for path, content in contents.items()}), tuple(options))


def _there(path: str) -> str:
    return f"{{site}}{os.path.abspath(path)}"


def _read(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise BadSiteFiles(f"{path}: not a file")
        with open(path, "rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise BadSiteFiles(f"{path}: {error.strerror}") from None


def config_files(path: str) -> Dict[str, bytes]:
    """A configuration file or directory and what it includes by relative names, by path. Raises BadSiteFiles."""
    from nhc.core.language.lines import parse_text

    contents: Dict[str, bytes] = {}
    todo = [path]
    if os.path.isdir(path):
        todo = sorted(glob.glob(f"{glob.escape(path)}/*.conf"))
        if not todo:
            raise BadSiteFiles(f"{path}: no *.conf file in this directory")
    while todo:
        file = os.path.normpath(todo.pop())
        if file in contents:
            continue
        contents[file] = _read(file)
        for line in parse_text(contents[file].decode(errors="replace"), file):
            parts = line.check.split(None, 1)
            if len(parts) == 2 and parts[0] == "include" and not parts[1].startswith("/"):
                pattern = os.path.normpath(f"{os.path.dirname(file)}/{parts[1].strip()}")
                todo += _included(pattern)
                if not _included(pattern) and os.path.isdir(os.path.dirname(pattern)):
                    contents[f"{os.path.dirname(pattern)}/{EMPTY}"] = b""
    return contents


EMPTY = ".empty"
"""A file by which a directory that an include looks through, and that holds nothing, is there on the node, too."""


def _included(pattern: str) -> Sequence[str]:
    """The files of an include: one that is missing is the node's to complain about."""
    return sorted(name for name in glob.glob(pattern) if os.path.isfile(name))
