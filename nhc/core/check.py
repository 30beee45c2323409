"""Checks: how one is declared, how its arguments are read, how it is found by name.

A check is a function of a Host that returns an Outcome (or several, one a target):

    @check("check_hw_mem_free", arg("min", size_kb, "least memory that must be free"), timeout=1)
    def check_hw_mem_free(host: Host, min: int) -> Outcome:
        '''Free memory, caches included, stays above a floor. ...'''

Its parameters are declared once and serve the parser, `nhc config check`, `nhc explain` and
completion. Its module in `nhc.node.checks` is found by its name (`nhc.core.check_index`); the name's first part is its
family.

A check of another package is found by its entry point (`nhc.core.plugins.CHECKS`), for names that are not built in.
"""

from __future__ import annotations

import sys

from nhc.core import check_index
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Outcome, unknown

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

Convert: TypeAlias = "Callable[[str], Any]"
Run: TypeAlias = "Callable[..., Union[Outcome, Iterable[Outcome]]]"
Judged: TypeAlias = "Union[Outcome, List[Outcome]]"
"""What a check says: of the node as a whole, or of each of the things that it judges."""


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

    `timeout` is its own deadline in seconds. `on_timeout` is "crit" where the hang is itself the fault, as for a mount,
    else "unknown". `every` is its cadence in the agent, in seconds. `needs` are commands without which it is UNKNOWN.
    `tags` select it (`--tag`). `changes` says that it may change something whatever its arguments are, as a check that
    runs a command of the site's does: it begins when every line above it has ended. `samples` are reasons that tell of
    one moment: such a failure counts when the next look finds one, too, unless the line has `strikes` of its own.
    `settles` are reasons that a healthy node has, too, in the first minutes of a boot: such a failure counts then when
    the second look finds it as well. `starting` are those that say that something is on its way: they count when these
    minutes are over (`nhc.node.run.boot_window`).
    `source` names what it reads that is slow to begin with: checks of one source share a process, which reads it once.
    `parts` are what it reads of the accelerators (`nhc.node.facts.nvml.PARTS`) besides what is always asked, and
    nothing else is asked unless another check of the run reads it; None for all.
    `lasts` gives the seconds that a line with these arguments may need, where that can be more than `timeout`.
    `distribution` is the installed package that it comes from, with its version, "" for a built-in one; `broken` says
    why that package's check cannot be used, "" where it can.
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
    distribution: str = ""
    broken: str = ""
    samples: Tuple[str, ...] = ()
    source: str = ""
    lasts: Optional[Callable[[Mapping[str, Any]], float]] = None
    parts: Optional[Tuple[str, ...]] = None
    settles: Tuple[str, ...] = ()
    starting: Tuple[str, ...] = ()

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
_DECLARED: Dict[Run, Check] = {}
"""Every declared function with its declaration: an installed package's are found by their function."""


def check(
    name: str,
    *params: Param,
    timeout: float = 10.0,
    on_timeout: str = "unknown",
    every: float = 60.0,
    needs: Tuple[str, ...] = (),
    tags: Tuple[str, ...] = (),
    changes: bool = False,
    samples: Tuple[str, ...] = (),
    source: str = "",
    lasts: Optional[Callable[[Mapping[str, Any]], float]] = None,
    parts: Optional[Tuple[str, ...]] = None,
    settles: Tuple[str, ...] = (),
    starting: Tuple[str, ...] = (),
) -> Callable[[Run], Run]:
    """Register the decorated function as the check `name`. The family is always among its tags."""

    def register(run: Run) -> Run:
        all_tags = tuple(dict.fromkeys((name.split("_")[1], *tags)))
        declared = Check(
            name, run, params, timeout, on_timeout, every, needs, all_tags, changes, samples=samples, source=source,
            lasts=lasts, parts=parts, settles=settles, starting=starting,
        )  # fmt: skip
        REGISTRY[name] = _DECLARED[run] = declared
        return run

    return register


def find(name: str, search: bool = True) -> Optional[Check]:
    """The check called `name`, its module imported on the way; None where there is none.

    One that is not built in may be an installed package's. Without `search` only those count that the plan in force
    was made with (`nhc.core.check_index.OFFERED`). One that cannot be imported is a check too: it says so.
    """
    registered = REGISTRY.get(name)
    if registered is not None and not registered.distribution:
        return registered
    if not name.startswith("check_") or not name.isidentifier() or not name.isascii():
        return None
    return _built_in(name) or _offered(name, search)


def _built_in(name: str) -> Optional[Check]:
    module = check_index.module_of(name)
    if not module or module in sys.modules:
        return None
    __import__(module)
    return REGISTRY.get(name)


def _offered(name: str, search: bool) -> Optional[Check]:
    """An installed package's check. Modules of another version of the package are unloaded first."""
    known = check_index.OFFERED.get(name)
    if known is None and search:
        from nhc.core.plugins import CHECKS, offers

        offer = offers(CHECKS).get(name)
        known = (offer.where, offer.distribution) if offer else None
    loaded = REGISTRY.get(name)
    if loaded is not None and known is not None and loaded.distribution == known[1] and not loaded.broken:
        return loaded
    if loaded is not None and (search or known is not None):
        _unload(name)
    return _load(name, *known) if known else None


def _unload(name: str) -> None:
    """Forget a package's check, and its modules, so that the next import reads what is installed now."""
    top = REGISTRY.pop(name).run.__module__.partition(".")[0]
    if top not in ("nhc", "nhc_adapters"):
        for module in [loaded for loaded in sys.modules if loaded.partition(".")[0] == top]:
            del sys.modules[module]


def _load(name: str, where: str, distribution: str) -> Check:
    """Import an installed package's check. Whatever else its module declares is found by its own entry point."""
    from nhc.core.plugins import BrokenPart, attribute_of

    before = dict(REGISTRY)
    try:
        run = attribute_of(where)
        declared = _DECLARED.get(run) if callable(run) else None
        why = (
            "" if declared and declared.name == name else f"{where} is not declared as {name} with nhc.core.check.check"
        )
    except BrokenPart as error:
        declared, why = None, str(error)
    for key in REGISTRY.keys() - before.keys():
        if not REGISTRY[key].run.__module__.startswith("nhc.node.checks."):
            del REGISTRY[key]  # no package's module takes a name that is not its entry point's
    REGISTRY.update(before)
    if declared is None or why:
        declared = _broken(name, f"offered by {distribution}: {why}")
    REGISTRY[name] = declared._replace(distribution=distribution)
    return REGISTRY[name]


def _broken(name: str, why: str) -> Check:
    """What stands for a package's check that cannot be loaded: it takes any arguments, and is UNKNOWN."""

    def run(host: Any, words: List[str]) -> Outcome:
        return unknown("CheckBroken", f"{name} cannot be loaded: {why}")

    run.__doc__ = f"Cannot be loaded: {why}."
    tags = tuple(name.split("_")[1:2])
    return Check(name, run, (rest("words", str, "any"),), 10.0, "unknown", 60.0, (), tags, broken=why)


def find_all() -> List[Check]:
    """Every check, by name, those of installed packages among them.

    Imports every module that has one: for listings, never on the path of a run.
    """
    from nhc.core.plugins import CHECKS, offers

    for family in check_index.families():
        __import__(f"nhc.node.checks.{family}")
    there = set(REGISTRY)
    for name in offers(CHECKS):
        if find(name) is not None:
            there.add(name)
    return [REGISTRY[name] for name in sorted(there) if name in REGISTRY]


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
    _in_order(values, argv)
    if at < len(argv):
        plural = "" if len(positional) == 1 else "s"
        expected = f"at most {len(positional)} argument{plural}" if positional else "no arguments"
        raise BadArguments(f"unexpected argument {argv[at]!r} (takes {expected})", at)
    return values


def _in_order(values: Mapping[str, Any], argv: Sequence[str]) -> None:
    """Raises BadArguments for a least value above the greatest, which no node could pass. A greatest of 0 is none."""
    for low, high in (("min", "max"), ("least", "most")):
        if low in values and high in values:
            least, most = values[low], values[high]
            if isinstance(least, (int, float)) and isinstance(most, (int, float)) and 0 < most < least:
                raise BadArguments(f"{low} is above {high}: nothing can be both", max(len(argv) - 1, 0))


def _parse_options(by_flag: Dict[str, Param], argv: Sequence[str], values: Dict[str, Any]) -> int:
    """Read leading options into `values`, getopts' way (`-abc`, `-t5`, `--`); return where they end."""
    at = 0
    while at < len(argv):
        argument = argv[at]
        if argument == "--":
            return at + 1
        if len(argument) < 2 or argument[0] != "-" or (argument[1].isdigit() and argument[:2] not in by_flag):
            return at
        if argument.startswith("--"):
            name, has_value, attached = argument.partition("=")
            letters, value = [name], attached if has_value else None
        else:
            letters, value = _cluster(by_flag, argument)
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
            values[param.name] = [*values[param.name], converted] if param.many else converted
        at += 1
    return at


def _cluster(by_flag: Dict[str, Param], argument: str) -> Tuple[List[str], Optional[str]]:
    """Split `-ab5` into its letters and the value attached to the last of them."""
    names: List[str] = []
    for place in range(1, len(argument)):
        name = f"-{argument[place]}"
        names.append(name)
        param = by_flag.get(name)
        if param is not None and param.convert is not None:
            return names, argument[place + 1 :] or None
    return names, None


def _convert(param: Param, value: str, at: int) -> Any:
    assert param.convert is not None
    try:
        return param.convert(value)
    except ValueError as error:
        raise BadArguments(f"{param.flags[0] if param.flags else param.name}: {error}", at) from None
