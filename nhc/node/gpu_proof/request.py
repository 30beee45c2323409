"""Requests a proof: runs the launcher as a separate program, so that a hung driver does not hang the caller."""

from __future__ import annotations

import json

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.system import process
from nhc.core.system.process import own_program

if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional


LAUNCHING = 10.0
"""Seconds for the launcher besides the proofs: its start, and the ends of processes that hang."""


def carry_out(asked: Mapping[str, Any], environ: Mapping[str, str], watch: Optional[process.Watcher]) -> Dict[str, Any]:
    """The launcher's answer to a request (`nhc.node.gpu_proof.launcher.carry_out`), with the request's seed.

    A seed below 0 is drawn here. `failed` says in one line why there is no answer. Raises OSError if the program
    cannot be started.
    """
    from random import SystemRandom

    seed = asked["seed"] if asked["seed"] >= 0 else SystemRandom().getrandbits(31)
    # Twice: the GPUs by themselves, then the copies between them.
    timeout, env = asked["timeout"] * 2 + LAUNCHING, {**environ, "PATH": process.PATH}
    argv = own_program("nhc.node.gpu_proof.launcher", "main")
    done = process.run(argv, timeout=timeout, env=env, stdin=json.dumps({**asked, "seed": seed}), watch=watch)
    if done.timed_out:
        return {"failed": "it did not end in time"}
    if done.status:
        lines = done.stderr.strip().splitlines()
        return {"failed": printable(lines[-1], 300) if lines else f"it ended with status {done.status}"}
    try:
        return {**json.loads(done.stdout), "seed": seed}
    except ValueError:
        return {"failed": "its answer was cut off"}
