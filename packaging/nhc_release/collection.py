"""The Ansible collection nhc.nhc, by ansible-galaxy, of the version that is released."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from nhc_release import archives
from nhc_release.commands import BuildError, need, run
from nhc_release.source import Source

COLLECTION = "playbooks/collections/ansible_collections/nhc/nhc"


def build(source: Source, tree: Path, pyz: Path, work: Path, out: Path) -> Path:
    """nhc-nhc-VERSION.tar.gz, with the very nhc.pyz that is released. Raises BuildError."""
    need("ansible-galaxy", "ansible-core")
    top = work / "collection"
    shutil.copytree(tree / COLLECTION, top)
    hooks = top / "roles/nhc_slurm_hooks"
    shutil.copytree(tree / "playbooks/roles/nhc_slurm_hooks", hooks)
    (hooks / "files").mkdir(exist_ok=True)
    for script in sorted((tree / "adapters/slurm").glob("*.sh")):
        shutil.copy2(script, hooks / "files" / script.name)
    defaults = hooks / "defaults/main.yml"
    text = defaults.read_text(encoding="utf-8")
    there = "{{ role_path }}/../../../adapters/slurm"
    if there not in text:
        raise BuildError(f"{defaults.name} of nhc_slurm_hooks does not name {there}")
    defaults.write_text(text.replace(there, "{{ role_path }}/files"), encoding="utf-8")
    (top / "files").mkdir(exist_ok=True)
    shutil.copyfile(pyz, top / "files/nhc.pyz")
    galaxy = top / "galaxy.yml"
    said = re.sub(
        r"^version: .*$", f"version: {source.version}", galaxy.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    galaxy.write_text(said, encoding="utf-8")
    run(["ansible-galaxy", "collection", "build", "--force", "--output-path", work, top], source.epoch)
    made = work / f"nhc-nhc-{source.version}.tar.gz"
    archives.repack(made, source.epoch, lambda name: ({"MANIFEST.json": 0, "FILES.json": 1}.get(name, 2), name))
    target = out / made.name
    shutil.move(str(made), target)
    verify(source, target)
    return target


def verify(source: Source, collection: Path) -> None:
    """Every file has the digest that its list says, and ansible-galaxy installs it. Raises BuildError."""
    with tarfile.open(collection) as archive:
        listed = json.loads(archive.extractfile("FILES.json").read())["files"]  # type: ignore[union-attr]
        for one in listed:
            if one["ftype"] == "file":
                content = archive.extractfile(one["name"]).read()  # type: ignore[union-attr]
                if hashlib.sha256(content).hexdigest() != one["chksum_sha256"]:
                    raise BuildError(f"{collection.name}: {one['name']} is another file than FILES.json says")
    with tempfile.TemporaryDirectory() as where:
        run(["ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", where, collection])
        manifest = json.loads((Path(where) / "ansible_collections/nhc/nhc/MANIFEST.json").read_text(encoding="utf-8"))
        if manifest["collection_info"]["version"] != source.version:
            raise BuildError(f"{collection.name}: not of version {source.version}")
