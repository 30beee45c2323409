"""What can go wrong with the store: each is one line for a person."""

from __future__ import annotations

from nhc.core.exit_status import EXIT_UNKNOWN, EXIT_USAGE, ExpectedError


class StoreError(ExpectedError):
    """The store cannot be used, or not now: not there, another schema, locked, full, its server away.

    Nothing of the transaction was written, or (where a connection was lost in its commit) nobody knows: `ambiguous`.
    `refused` says that the database does not take this data, now or ever; `held` that another transaction holds a row
    that this one needed, and the store answers others.
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
    """Somebody else has changed the row since it was read: read it again and decide again."""


class LeadershipLost(StoreError):
    """Another leads now: nothing was written, and nothing may be done."""


class RequestRefused(ExpectedError):
    """What a person asked for cannot be done; one line that says why."""

    status = EXIT_USAGE


class RoundRefused(ExpectedError):
    """Rounds do not begin: another leads, or the address of the metrics cannot be had (`wrong_use`: it is no
    address).
    """

    def __init__(self, why: str, wrong_use: bool = False) -> None:
        super().__init__(why)
        self.status = EXIT_USAGE if wrong_use else EXIT_UNKNOWN
