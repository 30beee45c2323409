"""The nhc.conf language: files, directories and includes to a Plan for one node.

    *          || check_fs_mount_rw -f /scratch
    {gpu[01-16]} |every 5m, timeout 20s, strikes 2| check_gpu_count 8
    include conf.d/*.conf

An nhc.conf of LBNL NHC is read as its administrator meant it (docs/lbnl-compatibility.md); the
language is described in docs/configuration.md.
"""

from __future__ import annotations

import os

from nhc import units
from nhc.bounded_read import read_text
from nhc.classify import NO_SCRIPTS, SETTINGS, Classifier, Finding, Scripts
from nhc.lines import CONTEXTS, OPTIONS, RawLine, parse_line, parse_text
from nhc.plan import COMMAND, UNDECIDED, Item, Plan
from nhc.targets import Targets, Undecided
from nhc.values import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.nodeset import External

__all__ = ["SETTINGS", "ConfigError", "Problem", "load", "load_check", "load_text", "parse_text", "validate"]


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


class ConfigError(Exception):
    """A configuration that cannot be used."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.show() for problem in problems))
        self.problems: Tuple[Problem, ...] = tuple(problems)


class _Options(NamedTuple):
    timeout: Optional[float] = None
    every: Optional[float] = None
    on_timeout: Optional[str] = None
    strikes: int = 1
    tags: Tuple[str, ...] = ()
    contexts: Tuple[str, ...] = ()


def load(
    paths: Sequence[str],
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
    targets: Optional[Targets] = None,
) -> Plan:
    """The plan for `hostname` from files and directories of `*.conf` files.

    A line that is wrong is noted in the plan, and no other line suffers; with `strict`, and for a file that
    is missing or includes itself, ConfigError is raised. `targets` decides in place of `nhc.targets.Targets`.
    """
    loader = _Loader(hostname, settings, _scan(scripts_dirs), explain=strict, targets=targets)
    for path in paths:
        loader.path(path)
    return loader.plan(strict)


def load_text(
    text: str,
    name: str,
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
) -> Plan:
    """The plan from a configuration's text; `name` stands for the file in messages."""
    loader = _Loader(hostname, settings, _scan(scripts_dirs), explain=strict)
    loader.text(text, name)
    return loader.plan(strict)


def load_check(
    check: str,
    name: str,
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
) -> Plan:
    """The plan of one check line without a target, taken as it is (LBNL NHC's `-e`)."""
    loader = _Loader(hostname, settings, _scan(scripts_dirs))
    line = parse_line(f"* || {check}", name, 0)
    loader.line(line._replace(check=check.strip(" \t")))
    return loader.plan(False)


class Validation(NamedTuple):
    """What `nhc config check` says: problems, and how many lines and checks were read."""

    problems: Tuple[Problem, ...]
    lines: int
    checks: int


def validate(
    paths: Sequence[str],
    hostname: Optional[str] = None,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
) -> Validation:
    """Read everything and report everything. Without a host name every line is judged, whatever its target."""
    loader = _Loader(hostname, settings, _scan(scripts_dirs), every_line=hostname is None, explain=True)
    for path in paths:
        loader.path(path)
    problems = [*loader.fatal, *loader.problems]
    order = {file: index for index, file in enumerate(loader.files)}
    problems.sort(key=lambda found: (order.get(found.file, -1), found.line, found.column))
    return Validation(tuple(problems), loader.lines, len(loader.items))


def _scan(directories: Sequence[str]) -> Scripts:
    """What the site's scripts define."""
    if not directories:
        return NO_SCRIPTS
    from nhc import scripts

    return scripts.scan(directories)


class _Loader:
    def __init__(
        self,
        hostname: Optional[str],
        settings: Mapping[str, str],
        scripts: Scripts,
        every_line: bool = False,
        explain: bool = False,
        targets: Optional[Targets] = None,
    ) -> None:
        self.hostname = hostname or ""
        self.every_line = every_line
        self.explain = explain
        self.scripts = scripts
        self.classifier = Classifier(self.hostname, settings, scripts)
        self.external = _external(settings)
        self.items: List[Item] = []
        self.problems: List[Problem] = []
        self.fatal: List[Problem] = []
        self.files: Dict[str, str] = {}
        self.inputs: List[str] = []
        self.lines = 0
        self._open: List[str] = []
        self._judge = targets or Targets()
        self._targets: Dict[str, bool] = {}
        self._undecided: Dict[str, str] = {}

    def plan(self, strict: bool) -> Plan:
        if self.fatal or (strict and self.problems):
            raise ConfigError([*self.fatal, *self.problems])
        notes = (*self.scripts.notes, *(found.show() for found in self.problems))
        asked = self.external is not None or self._undecided or any("@" in target for target in self._targets)
        # Site scripts take defaults from the environment, so they decide too.
        inputs = () if asked or self.scripts.paths else (*self.inputs, *self.scripts.directories)
        return Plan(tuple(self.items), self.classifier.settings, self.scripts.paths, notes, inputs)

    def path(self, path: str) -> None:
        """Read a file, or the `*.conf` files of a directory."""
        if not os.path.isdir(path):
            self.file(path)
            return
        self.inputs.append(path)
        try:
            names = sorted(name for name in os.listdir(path) if name.endswith(".conf") and name[0] != ".")
        except OSError as error:
            self.fatal.append(Problem(path, 0, 0, f"{error.strerror}"))
            return
        if not names:
            self.fatal.append(Problem(path, 0, 0, "no *.conf file in this directory"))
        for name in names:
            self.file(f"{path.rstrip('/')}/{name}")

    def file(self, path: str, included: Optional[RawLine] = None) -> None:
        real = os.path.realpath(path)
        if real in self._open:
            self.fatal.append(
                _problem(included, f"{path} includes itself") if included else Problem(path, 0, 0, "twice")
            )
            return
        if real in self.files.values():
            again = f"{path} has been read already: not read again"
            self.problems.append(_problem(included, again) if included else Problem(path, 0, 0, again))
            return
        try:
            text = read_text(path, errors="replace")
        except OSError as error:
            message = error.strerror or str(error)
            self.fatal.append(_problem(included, f"{path}: {message}") if included else Problem(path, 0, 0, message))
            return
        self.files[path] = real
        self.inputs.append(path)
        self._open.append(real)
        self.text(text, path)
        self._open.pop()

    def text(self, text: str, name: str) -> None:
        for line in parse_text(text, name):
            self.line(line)

    def line(self, line: RawLine) -> None:
        self.lines += 1
        if not line.check:
            self._wrong(line, "no `||`: expected TARGET || CHECK", line.target_offset)
            return
        if not self._applies(line):
            if line.target in self._undecided:
                self._leave_open(line)
            return
        if line.check.startswith(("include ", "include\t")) or line.check == "include":
            self._include(line)
            return
        options = self._options(line)
        found = self.classifier.classify(line.check)
        if found.error:
            self._wrong(line, f"{found.name}: {found.error}", line.check_offset + found.offset)
        elif self.explain and found.kind == COMMAND and found.name.startswith("check_") and found.argv[0] == found.name:
            self._wrong(line, _unknown(found.name, self.scripts), line.check_offset)
        if found.kind:
            self.items.append(self._item(line, found, options))

    def _item(self, line: RawLine, found: Finding, options: _Options) -> Item:
        return Item(
            found.kind,
            found.name,
            line.check,
            line.source if line.line else line.file,
            found.argv,
            self.classifier.settings,
            options.timeout,
            options.every,
            options.on_timeout,
            options.strikes,
            options.tags,
            options.contexts or line.contexts,
        )

    def _applies(self, line: RawLine) -> bool:
        target = line.target
        applies = self._targets.get(target)
        if applies is None:
            try:
                applies = target == "*" or self._decide(line)
            except Undecided as why:
                applies = False
                self._undecided[target] = str(why)
            self._targets[target] = applies
        return applies

    def _decide(self, line: RawLine) -> bool:
        target = line.target
        wrong = self._judge.problem(target)
        if wrong and not (self.external and self.external("", target.lstrip("!")) is not None):
            self._wrong(line, f"target {wrong[0]}", line.target_offset + wrong[1])
        return self.every_line or self._judge.applies(self.hostname, target, self.external)

    def _leave_open(self, line: RawLine) -> None:
        """A line of which nobody knows whether it is meant for this node: its own result, and no other line's."""
        node, why = self.hostname or "a node", self._undecided[line.target]
        why = f"whether the target {line.target!r} is meant for {node}: {why}"
        if self.explain:
            self._wrong(line, why, line.target_offset)
        found = Finding(UNDECIDED, line.check.split(None, 1)[0], (f"{line.source}: {why}; the line was not run",))
        self.items.append(self._item(line, found, self._options(line)))

    def _include(self, line: RawLine) -> None:
        pattern = line.check[len("include") :].strip(" \t")
        if line.options:
            self._wrong(line, "include takes no options between bars", line.options_offset)
        if not pattern:
            self._wrong(line, "include what? Expected a file", line.check_offset)
            return
        path = os.path.join(os.path.dirname(line.file), pattern.strip("\"'"))
        if not any(char in path for char in "*?["):
            self.file(path, line)
            return
        from glob import glob

        self.inputs.append(os.path.dirname(path))
        for found in sorted(glob(path)):
            self.file(found, line)

    def _options(self, line: RawLine) -> _Options:
        options = _Options()
        at = line.options_offset
        for text in line.options.split(",") if line.options else ():
            offset = at + len(text) - len(text.lstrip())
            at += len(text) + 1
            key, _blank, value = text.strip().partition(" ")
            try:
                options = _with_option(options, key, value.strip())
            except ValueError as error:
                self._wrong(line, str(error), offset)
        return options

    def _wrong(self, line: RawLine, message: str, offset: int) -> None:
        where = line.position(offset) if line.line else (0, 0)
        self.problems.append(Problem(line.file, *where, message))


def _problem(line: RawLine, message: str) -> Problem:
    return Problem(line.file, *line.position(line.check_offset), message)


def _with_option(options: _Options, key: str, value: str) -> _Options:
    """The options with one more read. Raises ValueError saying what was expected."""
    if key in ("every", "timeout"):
        number = _named(key, units.seconds, value)
        if number <= 0:
            raise ValueError(f"{key}: expected a duration above 0, as in {key} 10s")
        return options._replace(every=number) if key == "every" else options._replace(timeout=number)
    if key == "strikes":
        count = _named(key, units.integer, value)
        if count < 1:
            raise ValueError(f"strikes: expected a whole number of failures in a row, 1 or more, not {value!r}")
        return options._replace(strikes=int(count))
    if key == "on-timeout":
        if value not in ("crit", "unknown"):
            raise ValueError(f"on-timeout: expected crit or unknown, not {value!r}")
        return options._replace(on_timeout=value)
    if key in ("tags", "context"):
        words = tuple(value.split())
        if not words:
            raise ValueError(f"{key}: expected one or more names")
        if key == "tags":
            return options._replace(tags=words)
        strange = [word for word in words if word not in CONTEXTS]
        if strange:
            raise ValueError(f"context: expected some of {', '.join(CONTEXTS)}, not {strange[0]!r}")
        return options._replace(contexts=words)
    raise ValueError(f"no such line option: {key!r} (there are {', '.join(OPTIONS)})")


def _named(key: str, convert: Callable[[str], float], value: str) -> float:
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _unknown(name: str, scripts: Scripts) -> str:
    """What to say of a check that nothing defines. Imports every family, so only once something is wrong."""
    from difflib import get_close_matches

    from nhc.check import find_all

    try:
        known = [declared.name for declared in find_all()]
    except ImportError:
        known = []
    known += [function for function in scripts.functions if function.startswith("check_")]
    near = get_close_matches(name, known, 1)
    return f"no such check: {name}" + (f" (did you mean {near[0]}?)" if near else "")


def _external(settings: Mapping[str, str]) -> Optional[External]:
    if not any(name.startswith("NHC_MCHECK_DELIM") for name in settings):
        return None
    from nhc.external import matcher_from

    return matcher_from(settings)
