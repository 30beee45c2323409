"""Whether bash can parse a line at all: `bash -n`, which runs nothing of it."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence

    from nhc.core.system.process import Completed

    Run = Callable[[Sequence[str]], Completed]

ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
"""What the question is asked with: bash tells in the caller's language otherwise."""


def problem(line: str, run: Optional[Run] = None) -> str:
    """What bash says against a line's syntax, "" where nothing, or where there is no bash to ask.

    `run` runs a command by argv; without it, this node's bash is asked.
    """
    # extglob, as nhc's own shell has it. `nhc` is what bash calls itself in its message.
    argv = ("bash", "--norc", "--noprofile", "-O", "extglob", "-n", "-c", line, "nhc")
    try:
        done = run(argv) if run else _run(argv)
    except (OSError, ValueError):
        return ""
    if done.timed_out:
        return ""
    for complaint in done.stderr.splitlines():
        # Some errors in [[ ]] leave the status 0.
        text = complaint.partition("line ")[2].partition(": ")[2] or complaint.partition(": ")[2]
        if done.status or "syntax error" in text:
            return text.strip()
    return ""


def _run(argv: Sequence[str]) -> Completed:
    from nhc.core.system import process

    return process.run(argv, timeout=5.0, env=ENVIRONMENT)
