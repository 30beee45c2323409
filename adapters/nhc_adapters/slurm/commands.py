"""Slurm's commands for changes: where they are, and the meaning of slurmctld's answers."""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Sent
from nhc_adapters._command import Commands, NotEnded, complaint

NOT_BEGUN = (
    "invalid node name",
    "invalid node state",
    "not supported",
    "disabled",
    "requested operation",
    "unspecified error",
)
"""What slurmctld answers when it has refused a request (src/common/slurm_errno.c)."""

NOT_ALLOWED = ("permission denied", "access/permission", "invalid user id")
"""What slurmctld answers to a user who may not (ESLURM_ACCESS_DENIED, ESLURM_USER_ID_MISSING)."""

NOT_REACHED = ("connect failure", "connection refused", "unable to contact slurm controller", "could not establish")
"""The message of a command that could not reach slurmctld."""


@declared.settings
class SlurmPlace(NamedTuple):
    """The paths of Slurm on this machine."""

    path: str = declared.text("path", "", "the folder of Slurm's commands; default: where they are found")
    conf: str = declared.text("conf", "", "slurm.conf; default: Slurm's own")

    def variables(self) -> Dict[str, str]:
        """What `nhc_adapters._command.Commands` takes for them."""
        return {"NHC_RM_PATH": self.path, **({"SLURM_CONF": self.conf} if self.conf else {})}


def sent_by(command: Commands, argv: Sequence[str]) -> Sent:
    """Run one command that changes something, once; what came of it. Never raises."""
    try:
        done = command(*argv)
    except AdapterError as error:
        lost = isinstance(error, NotEnded)
        return Sent(Answer.AMBIGUOUS if lost else Answer.REFUSED, str(error), retry_after=0.0 if lost else 60.0)
    answer = complaint(done)
    if not done.status:
        return Sent(Answer.ACCEPTED, "slurmctld has taken it")
    if _any_of(NOT_REACHED, answer):
        return Sent(Answer.REFUSED, answer, retry_after=30.0)
    if not_allowed(answer):
        return Sent(Answer.REFUSED, answer, right="AdminLevel=Administrator")
    return Sent(Answer.REFUSED if _any_of(NOT_BEGUN, answer) else Answer.AMBIGUOUS, answer)


def not_allowed(answer: str) -> bool:
    """Whether slurmctld's answer is that this user may not."""
    return _any_of(NOT_ALLOWED, answer)


def _any_of(answers: Sequence[str], answer: str) -> bool:
    return any(text in answer.lower() for text in answers)
