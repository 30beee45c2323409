# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""What the controller copies to a node: kept in a private directory, named by its digest, verified before every use."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tarfile
import time

KEPT = 4  # archives and configurations kept in the directory, by last use


class NoRun(Exception):
    """Nhc could not judge this node: a stable reason and one line."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


class Missing(Exception):
    """Bundles that the controller has to copy first."""

    def __init__(self, names):
        super().__init__(", ".join(names))
        self.names = names


def digest_of(path):
    """SHA-256 of a file, as hexadecimal text."""
    made = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            made.update(block)
    return made.hexdigest()


def check_alone(path):
    """Refuse a directory that somebody else could have put files into: each one above it counts."""
    at = ""
    for part in [part for part in path.split("/") if part]:
        at += "/" + part
        info = os.lstat(at)
        if at == path and (not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o77):
            raise NoRun("UnsafeDirectory", "%s is not a directory of this user alone" % at)
        if info.st_uid not in (0, os.geteuid()):
            raise NoRun("UnsafeDirectory", "%s belongs to user %d" % (at, info.st_uid))
        if info.st_mode & 0o22 and not info.st_mode & stat.S_ISVTX:
            raise NoRun("UnsafeDirectory", "%s: others can write to it" % at)


def cache_directory(asked):
    """The private directory for archives, made where it is missing."""
    uid = os.geteuid()
    path = asked or ("/var/cache/nhc-ansible" if uid == 0 else "/var/tmp/nhc-ansible-%d" % uid)
    parent, name = os.path.split(path.rstrip("/"))
    path = os.path.realpath(parent) + "/" + name
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise NoRun("NoDirectory", "%s: %s" % (path, error.strerror))
    check_alone(path)
    return path


def bundle(name, wanted, directory, check_mode):
    """Where the bundle of this name lies on the node, verified. Raises Missing, NoRun."""
    digest, copied = wanted["digest"], wanted.get("copied")
    kept = "%s/%s" % (directory, digest)
    try:
        if os.path.isfile(kept) and digest_of(kept) == digest:
            os.utime(kept)
            return kept
        if not copied:
            raise Missing([name])
        if digest_of(copied) != digest:
            raise NoRun("BadTransfer", "%s came to the node damaged" % name)
        if check_mode:
            return copied
        # Copied, not renamed: Ansible's temporary directory may be on another file system or belong to another user.
        temporary = "%s/.%s.%d" % (directory, digest, os.getpid())
        shutil.copyfile(copied, temporary)
        os.chmod(temporary, 0o600)
        os.rename(temporary, kept)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise NoRun("DiskFull" if full else "NoDirectory", "%s: %s" % (directory, error.strerror))
    prune(directory)
    return kept


def prune(directory):
    """Keep what was used last."""
    found = []
    for name in os.listdir(directory):
        path = "%s/%s" % (directory, name)
        try:
            found.append((os.lstat(path).st_mtime, path))
        except OSError:
            continue
    for when, path in sorted(found)[: -2 * KEPT]:
        if time.time() - when > 3600:  # another task may be running from it now
            os.unlink(path)


def unpack(path, where):
    """Unpack the site's files, of which the controller made an archive of plain files and directories."""
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            target = os.path.normpath(os.path.join(where, member.name))
            if not (member.isfile() or member.isdir()) or not target.startswith(where + "/"):
                raise NoRun("BadTransfer", "the configuration's archive holds %s" % member.name)
            if member.isdir():
                os.makedirs(target, mode=0o700, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            with open(target, "wb") as file:
                shutil.copyfileobj(archive.extractfile(member), file)
            os.chmod(target, 0o700 if member.mode & 0o100 else 0o600)
