# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Where the controller finds nhc: as a package, in the checkout that this collection is part of, or as an archive."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from ansible.errors import AnsibleError

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Unavailable(Exception):
    """Something that the controller needs is not there. The message says what to do."""


def local_path(path, find):
    """Where a path on the controller lies: as Ansible finds files, else as who started the run has it before them.

    `find` searches files/ of the role or play for a relative name, and is empty where that has none. An absolute path
    is not looked at. Raises Unavailable.
    """
    path = os.path.expanduser(path)
    if os.path.isabs(path):
        return path
    here = os.path.join(os.getcwd(), path)
    found = find(path) or (here if os.path.exists(here) else "")
    if not found:
        raise Unavailable("%s: no such file or directory in files/ of the play, nor as %s" % (path, here))
    return found


def found_by_ansible(action, name):
    """The file of this name in files/ of the role or play of an action plugin; empty where there is none."""
    try:
        return action._find_needle("files", name)
    except AnsibleError:
        return ""


def checkout():
    """The root of the checkout of nhc that this collection is part of; empty where it is not."""
    # COLLECTION is ROOT/playbooks/collections/ansible_collections/nhc/nhc
    root = COLLECTION
    for _level in range(5):
        root = os.path.dirname(root)
    return root if os.path.isfile(root + "/nhc/core/archive/build.py") else ""


def import_nhc(name):
    """A module of nhc, from the checkout where there is one, else as installed. Raises Unavailable."""
    root = checkout()
    if root:
        for path in (root, root + "/adapters"):
            if path not in sys.path:
                sys.path.insert(0, path)
    elif "nhc" not in sys.modules and os.path.isfile(COLLECTION + "/files/nhc.pyz"):
        sys.path.append(unpacked(COLLECTION + "/files/nhc.pyz"))  # last: an installed package comes first
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(
            "%s cannot be imported on the controller (%s): install nhc into %s" % (name, error, sys.executable)
        ) from None


def unpacked(path):
    """A directory with the sources of an archive, made once for each archive. Raises Unavailable."""
    try:
        directory = "%s/source-%s" % (cache(), digest_of(path)[:16])
        if not os.path.isdir(directory):
            made = tempfile.mkdtemp(dir=cache())
            with zipfile.ZipFile(path) as archive:
                with zipfile.ZipFile(io.BytesIO(archive.read("lib/source.zip"))) as sources:
                    sources.extractall(made)
                data = [name for name in archive.namelist() if name.startswith("lib/source/")]
                for name in data:
                    target = "%s/%s" % (made, name[len("lib/source/") :])
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "wb") as file:
                        file.write(archive.read(name))
            try:
                os.rename(made, directory)
            except OSError:
                if not os.path.isdir(directory):  # another play has made it
                    raise
                shutil.rmtree(made, ignore_errors=True)
        return directory
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Unavailable("%s cannot be unpacked on the controller: %s" % (path, error)) from None


def cache():
    """Where the controller keeps what it has built: a directory of this user alone."""
    directory = (os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) + "/nhc-ansible"
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


def find_archive(asked):
    """The path of nhc.pyz on the controller; empty where there is none and none can be made. Raises Unavailable."""
    if asked:
        if not os.path.isfile(asked):
            raise Unavailable("%s: no such archive on the controller" % asked)
        return asked
    if os.environ.get("NHC_PYZ"):
        return find_archive(os.environ["NHC_PYZ"])
    carried = COLLECTION + "/files/nhc.pyz"
    root = checkout()
    if root:
        return built(root)
    return carried if os.path.isfile(carried) else ""


def built(root):
    """An archive built from a checkout, once for each state of its sources."""
    directory = cache()
    path = "%s/nhc-%s.pyz" % (directory, state_of(root))
    if os.path.isfile(path):
        return path
    with open(directory + "/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of fifty forks, one builds
        if os.path.isfile(path):
            return path
        python = builder(root)
        environ = dict(os.environ, PYTHONPATH="%s:%s/adapters" % (root, root))
        ended = subprocess.run(
            [python, "-m", "nhc.core.archive.build", path],
            cwd=root,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise Unavailable("nhc.pyz could not be built: %s" % (ended.stderr.strip().split("\n")[-1]))
        older = sorted(
            (os.lstat(directory + "/" + name).st_mtime, name) for name in os.listdir(directory) if name.endswith(".pyz")
        )
        for _when, name in older[:-4]:
            os.unlink(directory + "/" + name)
    return path


def state_of(root):
    """A short name for what the sources are now: their names, sizes and times."""
    made = hashlib.sha256()
    for top in ("nhc", "adapters/nhc_adapters"):
        for directory, names, files in os.walk(root + "/" + top):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(files):
                found = os.stat(directory + "/" + name)
                made.update(("%s/%s %d %d\n" % (directory, name, found.st_size, found.st_mtime_ns)).encode())
    return made.hexdigest()[:16]


def builder(root):
    """A Python that has what the archive holds besides nhc."""
    for python in (sys.executable, root + "/.venv/bin/python"):
        if not os.access(python, os.X_OK):
            continue
        ended = subprocess.run([python, "-c", "import click, pynvml"], check=False, capture_output=True)
        if ended.returncode == 0:
            return python
    raise Unavailable(
        "nhc.pyz cannot be built: click and nvidia-ml-py are missing. Install them beside Ansible "
        "(%s -m pip install click nvidia-ml-py), or give a finished archive with `archive` or NHC_PYZ" % sys.executable
    )


_versions = {}


def version_of(path):
    """The version of nhc in an archive. Raises Unavailable where the file is not one."""
    if path not in _versions:
        try:
            with zipfile.ZipFile(path) as archive:
                with zipfile.ZipFile(io.BytesIO(archive.read("lib/source.zip"))) as sources:
                    text = sources.read("nhc/__init__.py").decode()
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise Unavailable("%s is not an archive of nhc: %s" % (path, error)) from None
        found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
        _versions[path] = found.group(1) if found else ""
    return _versions[path]


def digest_of(path):
    """SHA-256 of a file, as hexadecimal text."""
    made = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            made.update(block)
    return made.hexdigest()


def pack_site(config, scripts):
    """Configuration and site checks as the bytes of one tar archive, and what each is called in it.

    The same files give the same bytes, so that a digest names them. Raises Unavailable.
    """
    packed = io.BytesIO()
    names = {"config": [], "scripts": []}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for kind, paths in (("config", config), ("scripts", scripts)):
            for number, path in enumerate(paths):
                if not os.path.exists(path):
                    raise Unavailable("%s: no such file or directory on the controller" % path)
                name = "%s%d/%s" % (kind, number, os.path.basename(os.path.abspath(path)))
                names[kind].append(name)
                for inside, source in sorted(_files(path)):
                    _add(archive, name + inside, source)
    return packed.getvalue(), names


def _files(path):
    if not os.path.isdir(path):
        yield "", path
        return
    for directory, _names, files in os.walk(path):
        for file in files:
            source = directory + "/" + file
            if os.path.isfile(source):
                yield source[len(path.rstrip("/")) :], source


def _add(archive, name, source):
    info = tarfile.TarInfo(name)
    with open(source, "rb") as file:
        data = file.read()
    info.size = len(data)
    info.mode = 0o700 if os.access(source, os.X_OK) else 0o600
    archive.addfile(info, io.BytesIO(data))
