"""The nhc.conf language: files, directories and includes to a Plan for one node.

    *          || check_fs_mount_rw -f /scratch
    {gpu[01-16]} |every 5m, timeout 20s, strikes 2| check_gpu_count 8
    include conf.d/*.conf

An nhc.conf of LBNL NHC is read as its administrator meant it (docs/lbnl-compatibility.md); the
language is described in docs/configuration.md.
"""

from __future__ import annotations

import os

from nhc.core.language.classifier import Classifier, LineKind
from nhc.core.language.line_options import LineOptions, with_option
from nhc.core.language.lines import RawLine, parse_line, parse_text
from nhc.core.language.problems import ConfigError, Problem
from nhc.core.language.shell_words import NO_SCRIPTS, SETTINGS, Scripts
from nhc.core.language.targets import Targets, external_matcher
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import Undecided
from nhc.core.plan import COMMAND, DEEP, DEEP_CHECKS, NO_CHECK, SHELL, UNDECIDED, Item, Plan
from nhc.core.system.bounded_read import read_text

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

__all__ = ["SETTINGS", "ConfigError", "Problem", "load", "load_check", "load_text", "parse_text", "validate"]


def load(
    paths: Sequence[str],
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
    targets: Optional[Targets] = None,
    untrusted: Callable[[str], str] = lambda path: "",
) -> Plan:
    """The plan for `hostname` from files and directories of `*.conf` files.

    A line that is wrong is noted in the plan, and no other line suffers; with `strict`, and for a file that
    is missing or includes itself, ConfigError is raised. `targets` decides in place of
    `nhc.core.language.targets.Targets`. `untrusted` says why a file is refused (`nhc.core.language.trust`).
    """
    scripts = _scan(scripts_dirs)
    builder = PlanBuilder(hostname, settings, scripts, explain=strict, targets=targets, untrusted=untrusted)
    for path in paths:
        builder.path(path)
    return builder.plan(strict)


def load_text(
    text: str,
    name: str,
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
) -> Plan:
    """The plan from a configuration's text; `name` stands for the file in messages."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs), explain=strict)
    builder.text(text, name)
    return builder.plan(strict)


def load_check(
    check: str, name: str, hostname: str, settings: Mapping[str, str] = {}, scripts_dirs: Sequence[str] = ()
) -> Plan:
    """The plan of one check line without a target, taken as it is (LBNL NHC's `-e`)."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs))
    line = parse_line(f"* || {check}", name, 0)
    builder.line(line._replace(check=check.strip(" \t")))
    return builder.plan(False)


class Validation(NamedTuple):
    """What `nhc config check` says: problems, how many lines and checks were read, and notes."""

    problems: Tuple[Problem, ...]
    lines: int
    checks: int
    notes: Tuple[str, ...] = ()


def validate(
    paths: Sequence[str],
    hostname: Optional[str] = None,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    profile_problem: Callable[[str], str] = lambda name: "",
    untrusted: Callable[[str], str] = lambda path: "",
) -> Validation:
    """Read everything and report everything. Without a host name every line is judged, whatever its target.

    `profile_problem` says what is wrong with a value of NHC_PROFILE, empty where nothing is.
    """
    builder = PlanBuilder(
        hostname, settings, _scan(scripts_dirs), hostname is None, explain=True, profile_problem=profile_problem,
        untrusted=untrusted,
    )  # fmt: skip
    for path in paths:
        builder.path(path)
    problems = [*builder.fatal, *builder.problems]
    order = {file: index for index, file in enumerate(builder.files)}
    problems.sort(key=lambda problem: (order.get(problem.file, -1), problem.line, problem.column))
    return Validation(tuple(problems), builder.lines, len(builder.items), (*builder.scripts.notes, *builder.notes))


def without_lines(
    paths: Sequence[str], nodes: Sequence[str], settings: Mapping[str, str] = {}, scripts_dirs: Sequence[str] = ()
) -> List[str]:
    """Those of the nodes that no line with a check is for: hooks never check them. Each file is read once."""
    from functools import lru_cache

    scripts, targets, lines_of = _scan(scripts_dirs), Targets(), lru_cache(None)(lines_of_file)
    missing = []
    for node in nodes:
        builder = PlanBuilder(node, settings, scripts, targets=targets, lines_of=lines_of)
        for path in paths:
            builder.path(path)
        if not builder.items:
            missing.append(node)
    targets.close()
    return missing


def origins(
    paths: Sequence[str], hostname: str, scripts_dirs: Sequence[str] = (), settings: Mapping[str, str] = {}
) -> Dict[str, Tuple[str, int]]:
    """File and line of what sets each variable last on `hostname`; those that only a shell line sets are left out."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs))
    for path in paths:
        builder.path(path)
    return builder.origins


def validate_lines(lines: Sequence[RawLine], scripts_dirs: Sequence[str] = ()) -> Tuple[List[Problem], List[Item]]:
    """What is wrong with lines that have been read already, none of them an include, and what the others ask for."""
    builder = PlanBuilder(None, {}, _scan(scripts_dirs), every_line=True, explain=True)
    for line in lines:
        builder.line(line)
    return [*builder.fatal, *builder.problems], builder.items


def _scan(directories: Sequence[str]) -> Scripts:
    """What the site's scripts define."""
    if not directories:
        return NO_SCRIPTS
    from nhc.core.language import site_scripts

    return site_scripts.scan(directories)


_RULED = ("TIMEOUT", "NHC_", "MARK_OFFLINE", "MAX_SYS_UID", "MCELOG_MAX")
"""Parts of the names whose values `nhc.core.language.setting_rules` judges."""


class PlanBuilder:
    """What the lines come to for one node, line by line: its items, and what is wrong.

    `every_line` takes lines whatever their target, `explain` notes more mistakes, as `nhc config check` names them;
    `profile_problem` says what is wrong with a value of NHC_PROFILE, `untrusted` who else can write to a file; both are
    empty where nothing is wrong. `lines_of` reads a file in place of `lines_of_file`.
    """

    def __init__(
        self,
        hostname: Optional[str],
        settings: Mapping[str, str],
        scripts: Scripts,
        every_line: bool = False,
        explain: bool = False,
        targets: Optional[Targets] = None,
        profile_problem: Callable[[str], str] = lambda name: "",
        untrusted: Callable[[str], str] = lambda path: "",
        lines_of: Optional[Callable[[str], Sequence[RawLine]]] = None,
    ) -> None:
        self.hostname = hostname or ""
        self.every_line = every_line
        self.explain = explain
        self._profile_problem, self._untrusted = profile_problem, untrusted
        self._lines_of = lines_of or lines_of_file
        self.scripts = scripts
        self.classifier = Classifier(self.hostname, settings, scripts)
        self.external = external_matcher(settings)
        self.items: List[Item] = []
        self.problems: List[Problem] = []
        self.notes: List[str] = []
        self.fatal = [Problem(path, 0, 0, why) for path in scripts.paths for why in (untrusted(path),) if why]
        self.files: Dict[str, str] = {}
        self.inputs: List[str] = []
        self.lines = 0
        self.origins: Dict[str, Tuple[str, int]] = {}
        """Where each variable was last set: file and line."""
        self._open: List[str] = []
        self._judge = targets or Targets()
        self._targets: Dict[str, bool] = {}
        self._undecided: Dict[str, str] = {}

    def plan(self, strict: bool) -> Plan:
        self._judge.close()
        if self.fatal or (strict and self.problems):
            raise ConfigError([*self.fatal, *self.problems])
        notes = (*self.scripts.notes, *self.notes, *(problem.show() for problem in self.problems))
        asked = self.external is not None or self._undecided or any("@" in target for target in self._targets)
        # Site scripts take defaults from the environment, so they decide too.
        inputs = () if asked or self.scripts.paths else (*self.inputs, *self.scripts.directories)
        plan = Plan(tuple(self.items), self.classifier.settings, self.scripts.paths, notes, inputs)
        if not self.classifier.sought:
            return plan
        from nhc.core.plugins import CHECKS, offers, watched

        there = offers(CHECKS)  # of installed packages: those that lines name
        used = [there[name] for name, check in self.classifier.sought.items() if check is not None and name in there]
        offered = tuple((offer.name, offer.where, offer.distribution) for offer in used)
        inputs = (*inputs, *watched(offered)) if inputs else ()  # without any it is not to be kept
        return plan._replace(inputs=inputs, offered=offered)

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
        if included and real in self._open:
            self.fatal.append(_problem(included, f"{path} includes itself"))
            return
        if real in self.files.values():
            again = f"{path} has been read already: not read again"
            self.problems.append(_problem(included, again) if included else Problem(path, 0, 0, again))
            return
        why = self._untrusted(path)
        if why:
            self.fatal.append(_unusable(path, included, why))
            return
        try:
            lines = self._lines_of(path)
        except OSError as error:
            self.fatal.append(_unusable(path, included, error.strerror or str(error)))
            return
        self.files[path] = real
        self.inputs.append(path)
        self._open.append(real)
        for line in lines:
            self.line(line)
        self._open.pop()

    def text(self, text: str, name: str) -> None:
        for line in parse_text(text, name):
            self.line(line)

    def line(self, line: RawLine) -> None:
        self.lines += 1
        if line.odd and self._odd(line):
            return
        if not self._applies(line):
            if line.target in self._undecided:
                self._leave_open(line)
            return
        if line.check.startswith(("include ", "include\t")) or line.check == "include":
            self._include(line)
            return
        options = self._options(line)
        meaning = self.classifier.classify(line.check)
        if meaning.error:
            self._wrong(line, f"{meaning.name}: {meaning.error}", line.check_offset + meaning.offset)
        elif self.explain:
            self._explain(line, meaning)
        if not meaning.kind:
            self.origins.update((name, (line.file, line.line)) for name, _value in self.classifier.just_set)
        if not meaning.kind and "=" in line.check and any(sign in line.check for sign in _RULED):
            self._settings(line)
        if meaning.kind:
            self.items.append(self._item(line, meaning, options))

    def _odd(self, line: RawLine) -> bool:
        """Note what is odd about a line as it is written; whether it says so little that nothing is left to read."""
        from nhc.core.language import mistakes

        if line.trouble and line.text.lstrip().startswith("#"):
            self._wrong(line, line.trouble, line.target_offset)  # it leaves nothing out
            return True
        mistake: Optional[mistakes.Mistake] = None
        if line.trouble:
            mistake = line.trouble, line.target_offset
        elif not line.check:
            mistake = mistakes.without_check(line.text)
        else:
            bars = mistakes.bars_in_target(line.target)
            mistake = (bars[0], bars[1] + line.target_offset) if bars else None
        if mistake:
            self._unread(line, *mistake)
            return True
        mistake = mistakes.odd_character(line.text)
        if mistake and mistake[1] < line.check_offset:  # in the target, which would then match no node
            self._unread(line, *mistake)
            return True
        if mistake:
            self._wrong(line, *mistake)
        return bool(mistake) and self.explain

    def _unread(self, line: RawLine, message: str, offset: int) -> None:
        """A line that says too little to run or leave out: its own result in a run, which so is not healthy."""
        if self.explain:
            self._wrong(line, message, offset)
            return
        place = ":".join(map(str, (line.file, *line.position(offset))))
        names = [name for name in line.text.split() if name.startswith("check_")]
        meaning = LineKind(
            UNDECIDED, (names or [NO_CHECK])[0], ("BadLine", f"{place}: {message}; the line was not run")
        )
        self.items.append(self._item(line._replace(check=line.check or line.text.strip()), meaning, LineOptions()))

    def _explain(self, line: RawLine, meaning: LineKind) -> None:
        """Note what a run says by an UNKNOWN of the line: for `nhc config check`, which runs nothing."""
        from nhc.core.language import mistakes

        if meaning.kind == COMMAND and meaning.argv[0] == meaning.name:
            wrong = mistakes.misspelt_program(meaning.name)
            if meaning.name.startswith("check_"):
                wrong = mistakes.unknown_check(meaning.name, self.scripts.functions)
            if wrong:
                self._wrong(line, wrong, line.check_offset)
        elif meaning.kind == SHELL:
            lookup, known = self.classifier.value_of, self.classifier.functions
            for wrong, at in mistakes.in_shell(line.check, known, lookup):
                self._wrong(line, wrong, line.check_offset + at)

    def _settings(self, line: RawLine) -> None:
        """Note values that cannot be meant: a run goes on with the default."""
        from nhc.core.language.setting_rules import problem

        for name, value in self.classifier.just_set:
            wrong = self._profile_problem(value) if name == "NHC_PROFILE" else problem(name, value)
            if wrong:
                self._wrong(line, wrong, line.check_offset)

    def _item(self, line: RawLine, meaning: LineKind, options: LineOptions) -> Item:
        return Item(
            meaning.kind,
            meaning.name,
            line.check,
            line.source if line.line else line.file,
            meaning.argv,
            self.classifier.settings,
            options.timeout,
            options.every,
            options.on_timeout,
            options.strikes,
            options.tags,
            (DEEP,) if meaning.name.startswith(DEEP_CHECKS) else options.contexts or line.contexts,
            options.of,
            options.warn_only,
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
        wrong = self._judge.problem(target, self.every_line)
        if wrong and self.external and self.external("", target.lstrip("!")) is not None:
            wrong = None
        if wrong and self.explain:
            self._wrong(line, f"target {wrong[0]}", line.target_offset + wrong[1])
        applies = self.every_line or self._judge.applies(self.hostname, target, self.external)
        if wrong and not self.explain:
            self._wrong(line, f"target {wrong[0]}", line.target_offset + wrong[1])
        return applies

    def _leave_open(self, line: RawLine) -> None:
        """A line of which nobody knows whether it is meant for this node: its own result, and no other line's."""
        node, why = self.hostname or "a node", self._undecided[line.target]
        noted = any(why in problem.message for problem in self.problems)
        why = f"whether the target {line.target!r} is meant for {node}: {why}"
        if self.explain and not noted:
            self._wrong(line, why, line.target_offset)
        message = f"{line.source}: {why}; the line was not run"
        meaning = LineKind(UNDECIDED, line.check.split(None, 1)[0], ("TargetUndecided", message))
        self.items.append(self._item(line, meaning, self._options(line)))

    def _include(self, line: RawLine) -> None:
        pattern = line.check[len("include") :].strip(" \t")
        if line.options:
            self._wrong(line, "include takes no options between bars", line.options_offset)
        if not pattern:
            self._unread(line, "include what? Expected a file", line.check_offset)
            return
        path = os.path.join(os.path.dirname(line.file), pattern.strip("\"'"))
        if not any(char in path for char in "*?["):
            self.file(path, line)
            return
        from glob import glob

        self.inputs.append(os.path.dirname(path))
        found = sorted(glob(path))
        for included in found:
            self.file(included, line)
        if not found:
            self._included_nothing(line, path)

    def _included_nothing(self, line: RawLine, path: str) -> None:
        """A pattern that no file matches: a directory may be empty, one that is not there is a mistake."""
        directory = os.path.dirname(path)
        while any(char in directory for char in "*?["):
            directory = os.path.dirname(directory)
        if os.path.isdir(directory or "."):
            self.notes.append(f"{line.source}: no file matches {path}: nothing is included")
            return
        self._unread(line, f"there is no directory {directory}: nothing is included", line.check_offset)

    def _options(self, line: RawLine) -> LineOptions:
        options = LineOptions()
        at = line.options_offset
        for text in line.options.split(",") if line.options else ():
            offset = at + len(text) - len(text.lstrip())
            at += len(text) + 1
            key, _blank, value = text.strip().partition(" ")
            try:
                options = with_option(options, key, value.strip())
            except ValueError as error:
                self._wrong(line, str(error), offset)
        return options

    def _wrong(self, line: RawLine, message: str, offset: int) -> None:
        where = line.position(offset) if line.line else (0, 0)
        self.problems.append(Problem(line.file, *where, message))


def lines_of_file(path: str) -> List[RawLine]:
    """The lines of a configuration file. Raises OSError."""
    text = read_text(path, errors="replace")
    if "\0" in text[:4096]:
        from nhc.core.language.mistakes import refuse_binary

        refuse_binary(text)
    return parse_text(text, path)


def _problem(line: RawLine, message: str) -> Problem:
    return Problem(line.file, *line.position(line.check_offset), message)


def _unusable(path: str, included: Optional[RawLine], why: str) -> Problem:
    """A file that cannot be read: the problem is at the line that includes it, if one does."""
    return _problem(included, f"{path}: {why}") if included else Problem(path, 0, 0, why)
