"""The mail to the owner of a failed job: whether they get one, at which address, and its text. Pure.

It is left in the store's outbox, and `nhc serve notices` sends it (`nhc.console.notices.service`).
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence, Tuple

from nhc.jobs.log_catalogue import NODE, UNKNOWN
from nhc.jobs.why import ESTABLISHED

DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class OwnerMail(NamedTuple):
    """One mail: `lines` are those of `nhc job why`."""

    to: str
    job: str
    run: str
    lines: Tuple[str, ...]
    ended: float


def is_due(cause: str, sure: str) -> bool:
    """Whether the owner gets a mail: for a node's fault, and for any other cause that is sure; not for a guess."""
    return cause != UNKNOWN and (cause == NODE or sure == ESTABLISHED)


def address(asked: str, user: str, domains: Sequence[str]) -> str:
    """The owner's address, "" where there is none in one of the domains: users must not have others written to.

    `asked` is where they have the scheduler write to. A name without a domain is one of the first domain.
    """
    local, at, domain = (asked or user).rpartition("@")
    if not at:
        local, domain = domain, domains[0] if domains else ""
    if domain.lower() not in domains or not _LOCAL.fullmatch(local):
        return ""
    return f"{local}@{domain.lower()}"
