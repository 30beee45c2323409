"""Parts that nhc looks up by name: ours in a table for each kind, and those that other packages offer by entry points.

A room has the tables of its own kinds: checks and formats are here, what acts on nodes is in `nhc.marks.plugins`. nhc
searches the installed packages only for a name that is in no table, so only a part of another package pays for that.

What a package's module prints as it is imported is no output of ours, and what it raises is one line.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

from nhc.core.exit_status import EXIT_USAGE, ExpectedError
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

    from typing_extensions import TypeAlias

    from nhc.core.model import Report

    Stamp: TypeAlias = "List[Tuple[str, int]]"
    """Directories, each with when it was changed (nanoseconds)."""

CHECKS = "nhc.checks"
"""Entry points of checks: `check_name = "module:function"`, the function declared with `nhc.core.check.check`."""


class Offer(NamedTuple):
    """One entry point. `where` is `module:attribute`, `distribution` the package's name and version.

    `files` change when the package is upgraded in place; where it comes or goes, `directories` do.
    """

    name: str
    where: str
    distribution: str
    files: Tuple[str, ...]


class NoAdapter(ExpectedError):
    """There is no such adapter, or it cannot be loaded. One line for a person."""

    status = EXIT_USAGE


_searched: Dict[str, Tuple[Stamp, Dict[str, Offer]]] = {}
_unreadable: Dict[str, List[str]] = {}


def directories() -> Tuple[str, ...]:
    """The directories that change when a package is installed or removed."""
    import_site()
    return tuple(path for path in dict.fromkeys(sys.path) if os.path.isabs(path) and os.path.isdir(path))


def offers(group: str) -> Dict[str, Offer]:
    """What installed packages offer in a group, by name; the first package on Python's path wins.

    Asked again only when a directory has changed that packages are installed in.
    """
    stamp = [(path, os.stat(path).st_mtime_ns) for path in directories()]
    kept = _searched.get(group)
    if kept is None or kept[0] != stamp:
        kept = _searched[group] = (stamp, _search(group))
    return kept[1]


def unreadable(group: str) -> List[str]:
    """A line for each installed package whose entry points in this group cannot be read."""
    offers(group)
    return _unreadable.get(group, [])


def _search(group: str) -> Dict[str, Offer]:
    from importlib import metadata

    by_name: Dict[str, Offer] = {}
    wrong = _unreadable[group] = []
    for package in metadata.distributions():
        directory = str(getattr(package, "_path", None) or "")
        files = [os.path.join(directory, file) for file in ("METADATA", "entry_points.txt")] if directory else []
        try:
            text = package.read_text("entry_points.txt") or ""
            if group not in text:  # most packages offer nothing, and parsing costs
                continue
            about: Any = package.metadata
            name = f"{about['Name']} {about['Version']}" if about["Name"] else os.path.basename(directory)
            entries = [(entry.name, entry.value.strip()) for entry in package.entry_points if entry.group == group]
        except Exception as error:  # what a package's files hold is anything
            wrong.append(f"{files[-1] if files else package} cannot be read: {one_line(error)}")
            continue
        for entry, value in entries:
            by_name.setdefault(entry, Offer(entry, value, name, tuple(files)))
    return by_name


class PartKind:
    """One kind of parts: what a person calls it, the entry points' group of other packages' parts, and our own parts.

    `others` are known by these names and opened elsewhere.
    """

    def __init__(self, noun: str, group: str, ours: Mapping[str, str], others: Tuple[str, ...] = ()) -> None:
        self.noun, self.group, self.ours, self.others = noun, group, dict(ours), others

    def names(self) -> List[str]:
        """Ours and those of installed packages."""
        return sorted({*self.ours, *self.others, *offers(self.group)})

    def open(self, name: str) -> Any:
        """What makes the part called `name`. Raises NoAdapter."""
        where = self.ours.get(name)
        if where is None:
            offer = offers(self.group).get(name)
            if offer is None:
                raise NoAdapter(f"there is no {self.noun} called {name!r}: {self._hint(name)}")
            return self._theirs(name, offer)
        return _load(where, name, self.noun)

    def _theirs(self, name: str, offer: Offer) -> Any:
        try:
            return attribute_of(offer.where)
        except BrokenPart as error:
            raise NoAdapter(f"{self.noun} {name} of {offer.distribution}: {error}") from None

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        known = self.names()
        near = get_close_matches(name, known, 1)
        if near:
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"known are {', '.join(known)}" if known else "no installed package offers one"
        return "; ".join((hint, *unreadable(self.group)))


RENDERERS = PartKind("format", "nhc.renderers", {})
"""A function that is given a Report and returns the text of `--format NAME`."""
renderer: Callable[[str], Callable[[Report], str]] = RENDERERS.open


def watched(offered: Sequence[Tuple[str, str, str]]) -> Tuple[str, ...]:
    """The files and directories that change when a package of these checks does, or when another is installed.

    Of each check its name, `module:attribute` and distribution, as `nhc.core.plan.Plan.offered` has them.
    """
    there = offers(CHECKS)
    files = (path for name, _where, _distribution in offered if name in there for path in there[name].files)
    return tuple(dict.fromkeys((*directories(), *files)))


def _load(where: str, name: str, kind: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == "nhc_adapters":
            raise NoAdapter(
                f"{kind} {name}: {module} is not installed (in a source checkout set PYTHONPATH=adapters)"
            ) from None
        from nhc.core.extras import how_to_install

        raise NoAdapter(f"{kind} {name} needs the Python package {package}: {how_to_install(package, name)}") from None
    except AttributeError:
        raise NoAdapter(f"{kind} {name}: {module} has no {attribute}") from None


class BrokenPart(Exception):
    """A package's part cannot be imported. One line that names the module."""


def import_site() -> None:
    """Import `site`, which adds the directories of installed packages to the path, unless that has been done.

    A local run starts without it (`nhc.core.launch`): it is a tenth of the run.
    """
    if "site" not in sys.modules:
        import site

        site.main()


def attribute_of(where: str) -> Any:
    """The object that an entry point names, `module:attribute`. Raises BrokenPart, also where the module would exit."""
    module, _, attribute = where.partition(":")
    try:
        with redirect_stdout(sys.stderr):
            return getattr(__import__(module, fromlist=[attribute]), attribute)
    except (Exception, SystemExit) as error:
        raise BrokenPart(f"{module} cannot be imported: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An exception of a package's code, with its kind, in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")
