"""Run the nhc command as its user does: a process of its own, its exit status, what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Optional

ROOT = Path(__file__).resolve().parents[2]


def nhc(
    *words: object, state: Optional[Path] = None, env: Optional[Mapping[str, str]] = None, stdin: str = "",
    module: str = "nhc", timeout: float = 60,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`nhc WORDS`; `module` runs another entry point (`nhc.hooks.commands.healthcheck`)."""
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'adapters'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": os.environ.get("HOME", "/"),
        **({"NHC_STATE_DIR": str(state)} if state else {}),
        **(env or {}),
    }
    argv = [sys.executable, "-m", module] if module == "nhc" else [
        sys.executable, "-c", f"import sys; from {module} import main; sys.exit(main())"]  # fmt: skip
    return subprocess.run(
        [*argv, *map(str, words)],
        check=False, env=environ, input=stdin, capture_output=True, text=True, timeout=timeout, cwd="/",
    )  # fmt: skip
