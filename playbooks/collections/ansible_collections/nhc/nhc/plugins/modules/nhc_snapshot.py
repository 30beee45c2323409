#!/usr/bin/python
# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Keep what an installation changes, so that it can be taken back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nhc_snapshot
short_description: Keep files before an installation changes them, and put them back
version_added: 0.1.0
description:
  - With O(state=begin) before and O(state=settled) after an installation, a node remembers how the paths were before
    the last installation that changed any of them. An installation that changed nothing, or that broke off and was
    run again, does not lose that memory.
  - O(state=restored) puts the paths back. What was there until then becomes the memory, so that a second restoration
    takes the first one back.
options:
  state:
    description: What to do. V(removed) removes the paths, and remembers how they were.
    type: str
    choices: [begin, settled, restored, removed]
    required: true
  paths:
    description: Files, directories and links that the installation may change.
    type: list
    elements: path
    required: true
  directory:
    description: Where the memory is kept, made where it is missing.
    type: path
    default: /opt/nhc/rollback
attributes:
  check_mode:
    description: In check mode nothing is written, the result is what would be.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
author:
  - The nhc authors (@nhc)
"""

EXAMPLES = r"""
- name: Take the last installation back
  nhc.nhc.nhc_snapshot:
    state: restored
    paths: [/etc/nhc, /usr/bin/nhc]
"""

RETURN = r"""
differing:
  description: The paths that are otherwise than they were.
  returned: always
  type: list
  elements: str
  sample: [/etc/nhc/nhc.conf]
"""

import hashlib
import os
import shutil
import tarfile

from ansible.module_utils.basic import AnsibleModule


def everything(paths):
    """Each path that exists, and all that is below the directories among them."""
    for path in paths:
        if not os.path.lexists(path):
            continue
        yield path
        if os.path.isdir(path) and not os.path.islink(path):
            for directory, names, files in os.walk(path):
                for name in sorted(names) + sorted(files):
                    yield os.path.join(directory, name)


def look(paths):
    """How the paths are now: kind, mode and content of each."""
    found = {}
    for path in everything(paths):
        info = os.lstat(path)
        if os.path.islink(path):
            found[path] = ("link", os.readlink(path))
        elif os.path.isdir(path):
            found[path] = ("directory", info.st_mode & 0o7777, info.st_uid, info.st_gid)
        elif os.path.isfile(path):
            with open(path, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            found[path] = ("file", info.st_mode & 0o7777, info.st_uid, info.st_gid, digest)
    return found


def remembered(archive_path):
    """The same of what an archive holds; None where there is no archive."""
    if not os.path.exists(archive_path):
        return None
    found = {}
    with tarfile.open(archive_path) as archive:
        for member in archive.getmembers():
            path = "/" + member.name
            if member.issym():
                found[path] = ("link", member.linkname)
            elif member.isdir():
                found[path] = ("directory", member.mode, member.uid, member.gid)
            else:
                digest = hashlib.sha256(archive.extractfile(member).read()).hexdigest()
                found[path] = ("file", member.mode, member.uid, member.gid, digest)
    return found


def save(paths, archive_path):
    """Write how the paths are into an archive, whole or not at all."""
    temporary = archive_path + ".tmp"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in look(paths):
                archive.add(path, arcname=path.lstrip("/"), recursive=False)
    os.rename(temporary, archive_path)


def restore(paths, archive_path):
    """Make the paths as the archive has them, and nothing else."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    if not archive_path:
        return
    with tarfile.open(archive_path) as archive:
        for member in archive.getmembers():  # directories come before what is in them
            path = "/" + member.name
            if not any(path == top or path.startswith(top + "/") for top in paths):
                continue
            if member.issym():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.symlink(member.linkname, path)
            elif member.isdir():
                os.makedirs(path, exist_ok=True)
                os.chmod(path, member.mode)
                os.chown(path, member.uid, member.gid)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    shutil.copyfileobj(archive.extractfile(member), file)
                os.chmod(path, member.mode)
                os.chown(path, member.uid, member.gid)


def differing(before, now):
    """The paths that two looks tell differently, sorted."""
    return sorted(path for path in set(before) | set(now) if before.get(path) != now.get(path))


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["begin", "settled", "restored", "removed"]},
            "paths": {"type": "list", "elements": "path", "required": True},
            "directory": {"type": "path", "default": "/opt/nhc/rollback"},
        },
        supports_check_mode=True,
    )
    state, directory, dry = module.params["state"], module.params["directory"], module.check_mode
    paths = [os.path.normpath(path) for path in module.params["paths"]]
    pending, previous = directory + "/pending.tar", directory + "/previous.tar"
    try:
        now = look(paths)
        if state == "begin":
            # One that is there already is from an installation that broke off: it knows how things were before it.
            if not dry and not os.path.exists(pending):
                os.makedirs(directory, mode=0o700, exist_ok=True)
                save(paths, pending)
            module.exit_json(changed=False, differing=[])
        if state == "settled":
            before = remembered(pending)
            found = differing(before, now) if before is not None else []
            if not dry and before is not None:
                if found:
                    os.rename(pending, previous)
                else:
                    os.unlink(pending)
            module.exit_json(changed=bool(found), differing=found)
        before = {} if state == "removed" else remembered(previous)
        if before is None:
            module.fail_json(msg="%s: nothing is remembered to go back to" % directory)
        found = differing(before, now)
        if found and not dry:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            save(paths, directory + "/swapped.tar")
            restore(paths, "" if state == "removed" else previous)
            os.rename(directory + "/swapped.tar", previous)
            if os.path.exists(pending):
                os.unlink(pending)
        module.exit_json(changed=bool(found), differing=found)
    except (OSError, tarfile.TarError) as error:
        module.fail_json(msg="%s: %s" % (state, error))


if __name__ == "__main__":
    main()
