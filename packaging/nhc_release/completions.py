"""Completion scripts, as `nhc completion SHELL` prints them, under the names that each shell looks for."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

PLACES = {
    "bash": "usr/share/bash-completion/completions/nhc",
    "zsh": "usr/share/zsh/vendor-completions/_nhc",
    "fish": "usr/share/fish/vendor_completions.d/nhc.fish",
}
RPM_ZSH = "usr/share/zsh/site-functions/_nhc"
"""Where zsh of Fedora, Enterprise Linux and SUSE looks; Debian's looks in vendor-completions."""


def write(scripts: Mapping[str, str], into: Path) -> None:
    """Write each shell's script below a root."""
    for shell, place in PLACES.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(scripts[shell].strip("\n") + "\n", encoding="utf-8")
