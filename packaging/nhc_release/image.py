"""The container image, as an OCI layout in a tar: made without a daemon, a registry or another image.

Two layers: a Debian of Python and util-linux (mmdebstrap), and nhc with its libraries as the packages have them. umoci
writes the layout. See docs/decisions/0021-packages.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import List, NamedTuple

from nhc_release import archives, python
from nhc_release.commands import BuildError, environment, need, run
from nhc_release.source import Source
from nhc_release.stage import Stage

INCLUDED = (
    "python3,base-files,bash,dash,coreutils,grep,sed,util-linux,usr-is-merged,ca-certificates,openssh-client,libssh-4,"
    "ipmitool"
)
"""What nhc starts in a container: shells for lines that need one, nsenter and chroot into the node, ssh and ipmitool
for repairs, libssh for sweeps; certificates for what it asks by HTTPS. usr-is-merged stands for usrmerge, which would
bring Perl.
"""
_NOTE_PACKAGES = """set -e; mkdir -p "$1/var/lib/dpkg/status.d"
for deb in "$1"/var/cache/apt/archives/*.deb; do
    dpkg-deb -f "$deb" >"$1/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"
done"""
"""A file a package, where scanners of images look that no dpkg has installed: nothing else says what is in it."""
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
"""/bin and /lib are links into /usr, as in every Debian: mmdebstrap's own way to it."""
USER = "65532:65532"


class Image(NamedTuple):
    """The tar of the layout, and the image's digest: sha256:..."""

    path: Path
    digest: str


def base_tar(epoch: int, work: Path, suite: str = "bookworm") -> Path:
    """The base layer, uncompressed. Maintainer scripts do not run: nothing of this machine gets in.

    Its bytes are the archive's of today: the same packages give the same layer, and the SBOM names them.
    """
    need("mmdebstrap", "mmdebstrap")
    top = work / "base"
    words = [
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        "--format=directory",
        f"--hook-dir={_MERGED}",
        f"--include={INCLUDED}",
    ]
    run([*words, f"--extract-hook={_NOTE_PACKAGES}", suite, top], epoch)
    _certificates(top)
    for path in ("etc/hostname", "etc/resolv.conf", "etc/machine-id"):
        (top / path).unlink(missing_ok=True)
    for directory in ("var/cache/apt", "var/lib/apt", "var/log", "dev", "usr/share/doc-base"):
        shutil.rmtree(top / directory, ignore_errors=True)
        if directory != "usr/share/doc-base":
            (top / directory).mkdir(parents=True)
    for name in ("doc", "man", "locale", "info", "lintian"):
        _without(top / "usr/share" / name)
    (top / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnhc:x:65532:65532:nhc:/nonexistent:/usr/sbin/nologin\n"
    )
    (top / "etc/group").write_text("root:x:0:\nnhc:x:65532:\n")
    for accounts in (top / "etc/passwd", top / "etc/group"):
        accounts.chmod(0o644)
    target = work / "base.tar"
    archives.write_tar(target, archives.files_below(top), epoch)
    return target


def _without(top: Path) -> None:
    """Empty a directory of documentation, save for the licences."""
    for path in sorted(top.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.name != "copyright":
            path.unlink()


def _certificates(top: Path) -> None:
    """What the maintainer script of ca-certificates would do: one file of all authorities."""
    found = sorted((top / "usr/share/ca-certificates").rglob("*.crt"))
    if not found:
        raise BuildError("the base layer has no certificates")
    target = top / "etc/ssl/certs/ca-certificates.crt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in found))


def build(source: Source, tree: Path, stage: Stage, work: Path, target: Path) -> Image:
    """Write the image to `target`. Raises BuildError."""
    need("umoci", "umoci")
    layers = [base_tar(source.epoch, work), _own_layer(source, tree, stage, work)]
    layout = work / "layout"
    run(["umoci", "init", "--layout", layout])
    name = f"{layout}:{source.version}"
    run(["umoci", "new", "--image", name])
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(source.epoch))
    for layer, what in zip(layers, (f"mmdebstrap {INCLUDED}", f"nodehealth {source.version}")):
        run(
            ["umoci", "raw", "add-layer", "--image", name, "--history.author", "nodehealth", "--history.created", stamp,
             "--history.created_by", what, layer],
            source.epoch,
        )  # fmt: skip
    run(["umoci", "config", "--image", name, "--no-history", "--created", stamp, "--author", "nodehealth",
         "--architecture", _architecture(), "--os", "linux", "--config.user", USER,
         "--config.entrypoint", "/usr/bin/nhc", "--config.env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
         "--config.env", "PYTHONDONTWRITEBYTECODE=1",
         *_labels(source)], source.epoch)  # fmt: skip
    run(["umoci", "gc", "--layout", layout])
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    digest = str(index["manifests"][0]["digest"])
    entries = [(name, path) for name, path in archives.files_below(layout)]
    archives.write_tar(target, entries, source.epoch)
    return Image(target, digest)


def _labels(source: Source) -> List[str]:
    labels = {
        "org.opencontainers.image.title": "nodehealth",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.description": "Node health checks: agent, controller, server, console",
    }
    return [word for name, value in sorted(labels.items()) for word in ("--config.label", f"{name}={value}")]


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _own_layer(source: Source, tree: Path, stage: Stage, work: Path) -> Path:
    """Nhc as the packages install it, with bytecode: a container's file system is read-only or thrown away.

    Bytecode is bound to the sources' digests, so that it holds whatever time a runtime gives the files.
    """
    top = work / "own"
    for package in ("nodehealth", "nodehealth-libs", "nodehealth-hooks"):
        shutil.copytree(stage.tree(package), top, dirs_exist_ok=True, symlinks=True)
    for unneeded in (
        "usr/share/man",
        "usr/lib/systemd",
        "usr/share/bash-completion",
        "usr/share/zsh",
        "usr/share/fish",
    ):
        shutil.rmtree(top / unneeded, ignore_errors=True)
    words = [stage.python, "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    for place in (python.NODE, python.LIBRARIES):
        # -s: what code says of where it lies is its place in the image, not in this build.
        done = subprocess.run(
            [*words, "-s", str(top), "-p", "/", str(top / place)],
            env=environment(source.epoch), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode and "SyntaxError" not in done.stdout:
            raise BuildError(f"compileall: status {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    target = work / "own.tar"
    archives.write_tar(target, archives.files_below(top), source.epoch)
    return target
