"""`python -m nhc_docs OUT`: the documents as a site of static pages, with reference pages made from the code.

Nothing in the pages comes from another host. A link or an anchor that leads nowhere fails the build.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from nhc_docs import reference, staging

ROOT = Path(__file__).resolve().parents[2]


def build(out: Path) -> int:
    """Make the site in `out`. Returns mkdocs' exit status: 0, or 1 where a page has a fault, which it has named."""
    with tempfile.TemporaryDirectory(prefix="nhc-docs-") as scratch:
        source, config = Path(scratch, "source"), Path(scratch, "mkdocs.yml")
        generated = reference.pages(ROOT)
        staging.stage(ROOT, source, generated)
        config.write_text(staging.config(ROOT, source, out.resolve(), generated))
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--quiet",
            "--strict",
            "--clean",
            "--config-file",
            str(config),
        ]
        # Material's own note that mkdocs 2 will be another program: pyproject.toml keeps to mkdocs 1.
        return subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: python -m nhc_docs DIRECTORY\n")
        return 2
    try:
        return build(Path(sys.argv[1]))
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
