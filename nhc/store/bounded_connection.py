"""A connection to PostgreSQL that waits for an answer only for a limited time.

A server that is stopped (SIGSTOP), or whose disk hangs, keeps its connections: the kernel acknowledges what it is sent,
so neither TCP's timeouts nor the server's own statement_timeout end the wait.
"""

from __future__ import annotations

import time
from typing import Any, Generator, TypeVar

import psycopg

RV = TypeVar("RV")


class _Late(Exception):
    pass


class BoundedConnection(psycopg.Connection[Any]):
    """`patience`: seconds for one exchange with the server, after which the connection is closed."""

    patience = 10.0

    def wait_at_most(self, seconds: float) -> None:
        """The patience from now on."""
        self.patience = seconds

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """See psycopg. Raises psycopg.OperationalError if the server does not answer in time."""
        try:
            return super().wait(_until(gen, time.monotonic() + self.patience), *args, **kwargs)
        except _Late:
            self.close()  # what the server does with the statement is not known: nothing may follow it
            raise psycopg.OperationalError(f"the database has not answered for {self.patience:g} s") from None


def _until(gen: Generator[Any, Any, RV], deadline: float) -> Generator[Any, Any, RV]:
    """The same exchange; psycopg goes through it ten times a second while nothing comes."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                gen.close()
                raise _Late
            wanted = gen.send(ready)
    except StopIteration as end:
        result: RV = end.value
        return result
