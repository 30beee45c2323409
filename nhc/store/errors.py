"""The errors of the store: each is one line for a person."""

from __future__ import annotations

from nhc.core.exit_status import EXIT_UNKNOWN, EXIT_USAGE, ExpectedError


class StoreError(ExpectedError):
    """The store cannot be used, or not now: not there, another schema, locked, full, its server away.

    Nothing of the transaction was written, or (if a connection was lost during its commit) that is not known:
    `ambiguous`. `refused` says that the database does not accept this data, now or ever; `held` that another
    transaction holds a row that this one needed, and the store answers others.
    """

    def __init__(self, message: str, ambiguous: bool = False, refused: bool = False, held: bool = False) -> None:
        super().__init__(message)
        self.ambiguous, self.refused, self.held = ambiguous, refused, held


class NoStore(StoreError):
    """There is no store under that name yet: no file, or a database without a table."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}: run nhc store migrate to make the store")
        self.name = name


class Conflict(StoreError):
    """Another writer has changed the row since it was read: read it again and decide again."""


class LeadershipLost(StoreError):
    """Another process leads now: nothing was written, and nothing may be done."""


class RequestRefused(ExpectedError):
    """A person's request cannot be carried out; one line that says why."""

    status = EXIT_USAGE


class RoundRefused(ExpectedError):
    """Rounds do not begin: another process leads, or the address of the metrics cannot be used (`wrong_use`: it is no
    address).
    """

    def __init__(self, why: str, wrong_use: bool = False) -> None:
        super().__init__(why)
        self.status = EXIT_USAGE if wrong_use else EXIT_UNKNOWN
