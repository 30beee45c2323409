"""The error by which a command says in one line why it cannot be carried out."""

from __future__ import annotations


class CommandError(Exception):
    """Its text is for a person; `status` is the exit status, 3 where it cannot be done now."""

    def __init__(self, why: str, status: int = 3) -> None:
        super().__init__(why)
        self.status = status
