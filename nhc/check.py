"""Checks: how one is declared, how its arguments are read, how it is found by name.

A check is a function of a Host that returns an Outcome (or several, one a target):

    @check("check_hw_mem_free", arg("min", size_kb, "least memory that must be free"), timeout=1)
    def check_hw_mem_free(host: Host, min: int) -> Outcome:
        '''Free memory, caches included, stays above a floor. ...'''

Its parameters are declared once and serve the parser, `nhc config check`, `nhc explain` and
completion. A check's family, and so its module in `nhc.checks`, is the first part of its name.
"""

from __future__ import annotations

import sys

from nhc import check_index
from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.model import Outcome

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

Convert: TypeAlias = "Callable[[str], Any]"
Run: TypeAlias = "Callable[..., Union[Outcome, Iterable[Outcome]]]"


class BadArguments(ValueError):
    """A check's arguments do not fit its declaration. `index` is the offending word's place, 0 the first argument."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class Param(NamedTuple):
    """One option or argument of a check.

    `flags` is empty for a positional argument. `convert` is None for a switch, which is True when
    given (LBNL NHC's switches only ever turn on). `many` collects every value
    into a list; `required` asks for at least one. `changes` says that the node may not be the same once the check
    has run with it: it names a command, or asks for a restart or a kill.
    """

    name: str
    flags: Tuple[str, ...]
    convert: Optional[Convert]
    help: str
    default: Any = None
    required: bool = False
    many: bool = False
    changes: bool = False


def opt(
    flags: str, name: str, convert: Convert, help: str, default: Any = None, many: bool = False, changes: bool = False
) -> Param:
    """An option with a value: `opt("-t --timeout", "timeout", seconds, "...", 5.0)`. `many` lets it repeat."""
    default = [] if many and default is None else default
    return Param(name, tuple(flags.split()), convert, help, default, False, many, changes)


def flag(flags: str, name: str, help: str, changes: bool = False) -> Param:
    """An option without a value."""
    return Param(name, tuple(flags.split()), None, help, False, changes=changes)


def arg(name: str, convert: Convert, help: str, default: Any = None, required: bool = False) -> Param:
    """A positional argument. One given as an empty word keeps its default, as in LBNL NHC."""
    return Param(name, (), convert, help, default, required)


def rest(name: str, convert: Convert, help: str, required: bool = False, changes: bool = False) -> Param:
    """All remaining arguments, as a list."""
    return Param(name, (), convert, help, [], required, True, changes)


class Check(NamedTuple):
    """A check as declared.

    `timeout` is its own deadline in seconds. `on_timeout` is "crit" where the hang is itself the
    fault, as for a mount, else "unknown". `every` is its cadence in the agent, in seconds. `needs` are
    commands without which it is UNKNOWN. `tags` select it (`--tag`). `changes` says that it may change something
    whatever its arguments are, as a check that runs a command of the site's does: it begins when every line above it
    has ended.
    """

    name: str
    run: Run
    params: Tuple[Param, ...]
    timeout: float
    on_timeout: str
    every: float
    needs: Tuple[str, ...]
    tags: Tuple[str, ...]
    changes: bool = False

    @property
    def doc(self) -> str:
        """The whole docstring; its first line is the summary."""
        return self.run.__doc__ or ""

    @property
    def summary(self) -> str:
        return self.doc.strip().split("\n", 1)[0]

    def parse(self, argv: Sequence[str]) -> Dict[str, Any]:
        """The function's keyword arguments from the configuration's words, options first as getopts has it.

        Raises BadArguments naming the word and what was expected.
        """
        return _parse(self.params, argv)


REGISTRY: Dict[str, Check] = {}


def check(
    name: str,
    *params: Param,
    timeout: float = 10.0,
    on_timeout: str = "unknown",
    every: float = 60.0,
    needs: Tuple[str, ...] = (),
    tags: Tuple[str, ...] = (),
    changes: bool = False,
) -> Callable[[Run], Run]:
    """Register the decorated function as the check `name`. The family is always among its tags."""

    def register(run: Run) -> Run:
        all_tags = tuple(dict.fromkeys((name.split("_")[1], *tags)))
        REGISTRY[name] = Check(name, run, params, timeout, on_timeout, every, needs, all_tags, changes)
        return run

    return register


def module_of(name: str) -> str:
    """The module that would define the check `name`, whether or not it does."""
    parts = name.split("_")[1:]
    for end in range(len(parts), 0, -1):
        module = check_index.MODULES.get("_".join(parts[:end]))
        if module:
            return f"nhc.checks.{module}"
    return f"nhc.checks.{parts[0] if parts else ''}"


def find(name: str) -> Optional[Check]:
    """The check called `name`, its family's module imported on the way; None where there is none."""
    if name in REGISTRY:
        return REGISTRY[name]
    if not name.startswith("check_") or not name.isidentifier() or not name.isascii():
        return None
    module = module_of(name)
    if module in sys.modules:
        return None
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None
    return REGISTRY.get(name)


def find_all() -> List[Check]:
    """Every built-in check, by name. Imports every family: for listings, never on the path of a run."""
    for family in check_index.FAMILIES:
        __import__(f"nhc.checks.{family}")
    return [REGISTRY[name] for name in sorted(REGISTRY)]


def _parse(params: Sequence[Param], argv: Sequence[str]) -> Dict[str, Any]:
    by_flag = {name: param for param in params for name in param.flags}
    values: Dict[str, Any] = {p.name: list(p.default) if p.many else p.default for p in params}
    at = _parse_options(by_flag, argv, values)
    positional = [param for param in params if not param.flags]
    given = 0
    for param in positional:
        if param.many:
            while at < len(argv):
                values[param.name].append(_convert(param, argv[at], at))
                at, given = at + 1, given + 1
        elif at < len(argv):
            if argv[at] != "":
                values[param.name] = _convert(param, argv[at], at)
            at, given = at + 1, given + 1
        if param.required and values[param.name] in (None, []):
            raise BadArguments(f"needs {param.name}: {param.help}", len(argv))
    _in_order(params, values, argv)
    if at < len(argv):
        expected = f"at most {len(positional)} argument(s)" if positional else "no arguments"
        raise BadArguments(f"unexpected argument {argv[at]!r} (takes {expected})", at)
    return values


def _in_order(params: Sequence[Param], values: Dict[str, Any], argv: Sequence[str]) -> None:
    """Raises BadArguments for a least value above the greatest: no node could pass. A greatest of 0 is no limit."""
    for low, high in (("min", "max"), ("least", "most")):
        if low in values and high in values:
            least, most = values[low], values[high]
            if isinstance(least, (int, float)) and isinstance(most, (int, float)) and 0 < most < least:
                raise BadArguments(f"{low} is above {high}: nothing can be both", max(len(argv) - 1, 0))


def _parse_options(by_flag: Dict[str, Param], argv: Sequence[str], values: Dict[str, Any]) -> int:
    """Read leading options into `values`, getopts' way (`-abc`, `-t5`, `--`); return where they end."""
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return at + 1
        if len(word) < 2 or word[0] != "-" or (word[1].isdigit() and word[:2] not in by_flag):
            return at
        if word.startswith("--"):
            name, has_value, attached = word.partition("=")
            letters, value = [name], attached if has_value else None
        else:
            letters, value = _cluster(by_flag, word)
        for name in letters:
            param = by_flag.get(name)
            if param is None:
                raise BadArguments(f"Invalid option:  {name}", at)
            if param.convert is None:
                if value is not None and name == letters[-1]:
                    raise BadArguments(f"Option {name} takes no value.", at)
                values[param.name] = True
                continue
            if value is None:
                at += 1
                if at >= len(argv):
                    raise BadArguments(f"Option {name} requires an argument.", at - 1)
                value = argv[at]
            converted = _convert(param, value, at)
            if param.many:
                values[param.name].append(converted)
            else:
                values[param.name] = converted
        at += 1
    return at


def _cluster(by_flag: Dict[str, Param], word: str) -> Tuple[List[str], Optional[str]]:
    """Split `-ab5` into its letters and the value attached to the last of them."""
    names: List[str] = []
    for place in range(1, len(word)):
        name = f"-{word[place]}"
        names.append(name)
        param = by_flag.get(name)
        if param is not None and param.convert is not None:
            return names, word[place + 1 :] or None
    return names, None


def _convert(param: Param, value: str, at: int) -> Any:
    assert param.convert is not None
    try:
        return param.convert(value)
    except ValueError as error:
        raise BadArguments(f"{param.flags[0] if param.flags else param.name}: {error}", at) from None
