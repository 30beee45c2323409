"""SHA256SUMS of all that is released, and its detached signature by ssh-keygen: every host has it, no service is asked.

The key is named, never read here: a private key's file, or a public key whose private half an agent or a hardware token
holds (`ssh-keygen -Y sign -f KEY`).
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from nhc_release import archives
from nhc_release.commands import BuildError, run

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "nodehealth-release"
"""What the signature is for: one for a Git commit or a login is not taken for it."""
IDENTITY = "releases@nodehealth"


def write_sums(out: Path) -> Path:
    """SHA256SUMS over every other file in the directory, as sha256sum -c reads it."""
    lines = [f"{archives.sha256(path)}  {path.name}\n" for path in _files(out)]
    target = out / SUMS
    target.write_text("".join(lines), encoding="ascii")
    return target


def _files(out: Path) -> List[Path]:
    return [path for path in sorted(out.iterdir()) if path.is_file() and path.name not in (SUMS, SIGNATURE)]


def sign(out: Path, key: str) -> Path:
    """Sign SHA256SUMS. Raises BuildError."""
    target = out / SIGNATURE
    target.unlink(missing_ok=True)
    run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE, out / SUMS])
    return target


def verify(out: Path, allowed_signers: Path) -> None:
    """The signature is of somebody who may sign releases, and each file is as it says. Raises BuildError."""
    if not (out / SIGNATURE).is_file():
        raise BuildError(f"{SIGNATURE} is missing")
    try:
        run(
            ["ssh-keygen", "-Y", "verify", "-f", allowed_signers, "-I", IDENTITY, "-n", NAMESPACE,
             "-s", out / SIGNATURE],
            stdin=(out / SUMS).read_bytes(),
        )  # fmt: skip
    except BuildError as error:
        raise BuildError(
            f"{SUMS}: the signature is not one of {allowed_signers.name}: {str(error).splitlines()[-1]}"
        ) from None
    verify_sums(out)


def verify_sums(out: Path) -> None:
    """Each file is as SHA256SUMS says, and none is missing or stands beside them unnamed. Raises BuildError."""
    named = dict(_sums((out / SUMS).read_text(encoding="ascii").splitlines()))
    there = {path.name for path in _files(out)}
    wrong = [name for name in sorted(there & set(named)) if archives.sha256(out / name) != named[name]]
    for what, names in (
        ("changed", wrong), ("missing", sorted(set(named) - there)), ("not in " + SUMS, sorted(there - set(named))),
    ):  # fmt: skip
        if names:
            raise BuildError(f"{what}: {', '.join(names)}")


def _sums(lines: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(lines, 1):
        digest, gap, name = line.partition("  ")
        if len(digest) != 64 or not gap or not name or "/" in name:
            raise BuildError(f"{SUMS}:{number}: not a digest, two spaces and a file's name")
        found.append((name, digest))
    return found
