"""The words of sbatch for a job that is to be restarted: requeued, its wish in the comment, its spare nodes. Pure."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.jobs import Wish


def wished_words(words: Sequence[str], wish: Wish, spares: int) -> List[str]:
    """The words of sbatch with what was wished for. Raises AdapterError where they do not say how many nodes."""
    comment, rest = _taken(words, "--comment")
    wanted = "nhc-restart" if wish.max_restarts is None else f"nhc-restart={wish.max_restarts}"
    wanted += f" nhc-checkpoint={wish.checkpoint}" if wish.checkpoint else ""
    own = ["--requeue", f"--comment={comment} {wanted}" if comment else f"--comment={wanted}"]
    if spares:
        count, rest = _taken(rest, "--nodes", "-N")
        if not count.isdigit():
            raise AdapterError("--spares: say among the words how many nodes the job needs: --nodes=4")
        own += ["--no-kill", f"--nodes={int(count) + spares}"]
    return [*own, *rest]


def _taken(words: Sequence[str], name: str, short: str = "") -> Tuple[str, List[str]]:
    """The value of an option, "" if it is not there, and the words without it; what follows the script is its own."""
    rest = list(words)
    for at, word in enumerate(rest):
        if word in (name, short) and at + 1 < len(rest):
            return rest[at + 1], [*rest[:at], *rest[at + 2 :]]
        match = re.fullmatch(rf"{name}=(.*)", word, re.DOTALL) or (
            re.fullmatch(rf"{short}(\d+)", word) if short else None
        )
        if match:
            return match[1], [*rest[:at], *rest[at + 1 :]]
        if not word.startswith("-") and (at == 0 or not rest[at - 1].startswith("-") or "=" in rest[at - 1]):
            break
    return "", rest
