"""What is wrong with a configuration. Apart from the loader, which a run that has its plan never imports."""

from __future__ import annotations

from nhc.core.exit_status import EXIT_USAGE, ExpectedError
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Sequence, Tuple


class Problem(NamedTuple):
    """Something wrong with a configuration, and where: lines and columns count from 1, 0 is the file as a whole."""

    file: str
    line: int
    column: int
    message: str

    def show(self) -> str:
        """`file:line:col: message`, the place left out as far as it is not known."""
        where = "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{self.file}{where}: {self.message}"


class ConfigError(ExpectedError):
    """A configuration that cannot be used."""

    status = EXIT_USAGE

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.show() for problem in problems))
        self.problems: Tuple[Problem, ...] = tuple(problems)
