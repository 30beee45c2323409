"""A collective of the pods of one gang before they start: what is known of each pod, how it is run, and what runs it.

A pod asks repeatedly. The answer is to wait, to run its part of a test, or the final result.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Protocol, Tuple

TIMED_OUT = 124
"""The exit status of a tool that was ended at its limit, as of timeout(1)."""

PAIR_ROUNDS = 3
"""Rounds of pairs after a collective that failed: each pod is in one test of a round."""

SLACK = 15.0
"""Seconds after a tool's limit in which a pod sends the result."""


class GangRules(NamedTuple):
    """How a gang is tested. `argv` is run once a pod.

    Its pods wait for one another for `wait` seconds, and a test has `limit` seconds. `size` (bytes) is the row of the
    table that counts, `floor` its least figure in GB/s, 0 for none; with `fabric` the data must travel by the fabric.
    Rank 0 listens at `port`, or just above it.
    """

    argv: Tuple[str, ...]
    wait: float
    limit: float
    size: int
    floor: float = 0.0
    fabric: bool = True
    port: int = 29500

    @property
    def longest(self) -> float:
        """Seconds that all may take: the wait, the collective, the rounds of pairs."""
        return self.wait + (1 + PAIR_ROUNDS) * (self.limit + SLACK)


class GangMember(NamedTuple):
    """A pod, as the API server knows it. `uid` is its own, `gang` and `pods` (how many) are the gang's."""

    gang: str
    pods: int
    uid: str
    name: str
    node: str
    address: str
    host: str
    tasks: int


class Gangs(Protocol):
    """Coordinates the tests of all gangs. Called from several threads."""

    def step(self, member: GangMember, rules: GangRules, said: Mapping[str, Any]) -> Dict[str, Any]:
        """What a pod is to do, from the message it sent.

        The pod sends nothing, {"test", "status", "output"} of a test that it ran, or {"withdrawn": why}. The answer is
        {"do": "wait", "seconds"}, {"do": "run", "test", "argv", "env", "seconds"}, or {"do": "end", "verdict",
        "message"} with the verdict OK, CRIT (its node is at fault) or UNKNOWN.
        """
