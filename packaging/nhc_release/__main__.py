"""Builds a release: `make packages` (what is here now), `make release` (a version, from a clean checkout).

    python -m nhc_release packages [--out DIR] [--work DIR] [--python PATH]
    python -m nhc_release deb|rpm|image|chart [--out DIR] ...      one form alone, with its own tools
    python -m nhc_release release [--key KEY] [--allowed-signers FILE] [--once] ...
    python -m nhc_release verify [--allowed-signers FILE] [--out DIR]

Exit status: 0 done, 1 something could not be built or is not right, 2 wrong usage or a checkout that is not released.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import List, Optional

from nhc_release import artifacts, signing, source
from nhc_release.commands import BuildError
from nhc_release.source import Source


def main(words: Optional[List[str]] = None) -> int:
    asked = _options().parse_args(words)
    try:
        return int(asked.carry_out(asked))
    except BuildError as error:
        print(f"nhc_release: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"nhc_release: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nhc_release", description="Build, verify and sign a release.")
    inner = parser.add_subparsers(dest="command", required=True)
    for name, carry_out, said in (
        ("packages", packages, "build and verify everything from the checkout as it is"),
        ("release", release, "the same twice, from a clean checkout with a changelog entry; then sign it"),
        ("verify", verify, "check what was built, and its signature"),
        *((form, one_form, f"build and verify the {form} alone") for form in artifacts.FORMS),
    ):
        one = inner.add_parser(name, help=said, description=said)
        one.set_defaults(carry_out=carry_out)
        one.add_argument("--out", default="dist", help="where the files are (dist)")
        one.add_argument("--allowed-signers", metavar="FILE", help="who may sign: ssh-keygen's ALLOWED SIGNERS")
        if name != "verify":
            one.add_argument("--work", help="where to build; a temporary directory otherwise")
            one.add_argument(
                "--python", default="/usr/bin/python3", help="what the libraries are for (/usr/bin/python3)"
            )
        if name == "release":
            one.add_argument("--key", help="the key to sign with: ssh-keygen -Y sign -f KEY")
            one.add_argument("--once", action="store_true", help="do not build a second time to compare")
    return parser


def packages(asked: argparse.Namespace) -> int:
    """Build and verify once."""
    found = source.read()
    with _workplace(asked.work) as work:
        _build(found, asked, work / "first", Path(asked.out))
    return 0


def one_form(asked: argparse.Namespace) -> int:
    """Build and verify one form; what else lies in the directory stays."""
    with _workplace(asked.work) as work:
        made = artifacts.build_one(
            source.read(), asked.command, asked.python, work, Path(asked.out), _sayer(f"{asked.command}: ")
        )
    print("\n".join(map(str, made)))
    return 0


def release(asked: argparse.Namespace) -> int:
    """Refuse, or build twice, compare, verify, sign."""
    found = source.read()
    refused = source.refusals(found)
    if refused:
        for line in refused:
            print(f"nhc_release: {line}", file=sys.stderr)
        return 2
    out = Path(asked.out)
    with _workplace(asked.work) as work:
        _build(found, asked, work / "first", out)
        if not asked.once:
            second = work / "again"
            second.mkdir()
            mask = os.umask(0o077)  # it must decide nothing, nor where the work is done
            try:
                artifacts.build(found, asked.python, _made(work / "second"), second, _sayer("again: "))
            finally:
                os.umask(mask)
            unlike = artifacts.differences(out, second)
            if unlike:
                raise BuildError(f"a second build made other bytes: {', '.join(unlike)}")
            print("a second build made the same bytes")
    if asked.key:
        signing.sign(out, asked.key)
        print(f"signed: {out / signing.SIGNATURE}")
        if asked.allowed_signers:
            signing.verify(out, Path(asked.allowed_signers))
    else:
        print("not signed: --key names the key")
    return 0


def verify(asked: argparse.Namespace) -> int:
    """Check the directory."""
    found, out = source.read(), Path(asked.out)
    missing = artifacts.complete(found, out)
    if missing:
        raise BuildError(f"{out}: missing: {', '.join(missing)}")
    if asked.allowed_signers:
        signing.verify(out, Path(asked.allowed_signers))
    with _workplace(None) as work:
        artifacts.verify(found, out, work, _sayer("verify: "))
    return 0


def _build(found: Source, asked: argparse.Namespace, work: Path, out: Path) -> None:
    """Build into `out`, which keeps nothing of an earlier build, and verify."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    artifacts.build(found, asked.python, _made(work), out, _sayer("build: "))
    missing = artifacts.complete(found, out)
    if missing:
        raise BuildError(f"missing: {', '.join(missing)}")
    artifacts.verify(found, out, work, _sayer("verify: "))
    total = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: nodehealth {found.version}, {len(list(out.iterdir()))} files, {total // 2**20} MiB")


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _sayer(what: str) -> artifacts.Say:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}{text}", flush=True)

    return say


class _workplace:  # noqa: N801 (a context manager that is used as a function)
    """A directory to build in: the one that was named, which stays, or a temporary one."""

    def __init__(self, named: Optional[str]) -> None:
        self.named = named

    def __enter__(self) -> Path:
        if self.named:
            self.path = Path(self.named).resolve()
            if self.path.exists() and os.listdir(self.path):
                raise BuildError(f"{self.path} is not empty")
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            self.path = Path(tempfile.mkdtemp(prefix="nhc-release-", dir="/var/tmp"))
        return self.path

    def __exit__(self, *_: object) -> None:
        if not self.named:
            shutil.rmtree(self.path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
