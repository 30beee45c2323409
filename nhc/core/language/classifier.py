"""Which of the lines of a configuration we judge ourselves, which are programs, and which need bash.

The lines are taken in order, for an earlier one decides what a later one means: `* || X=1` sets a
variable, and once a shell line has touched what our checks read, only the shell knows its value.
"""

from __future__ import annotations

import re

from nhc.core import check, check_index
from nhc.core.language import shell_words
from nhc.core.language.shell_words import HELPERS, SETTINGS, Scripts
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.plan import BUILT_IN, COMMAND, SHELL
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

# Patterns that only shell lines need are compiled when there is one: each costs a fraction of a millisecond.
_TOUCHED = rf"(?<![$\w{{])(?:{'|'.join(SETTINGS)})\b"
_STATEFUL = (
    r"(?:^|[\s;&|({])(?:export|declare|typeset|readonly|cd|pushd|popd|ulimit|umask|exec|set|shopt|source|\.|eval|trap|"
    r"hash|unset)(?=\s)|(?<!\S)PATH="
)
_GLOBBING = r"\bset\s+\+f\b|\bset\s+\+o\s+noglob\b"
_CHECK_NAME = r"\bcheck_\w+"
_SCRIPT_NAMES = frozenset(SETTINGS) - {"HOSTNAME", "HOSTNAME_S", "TIMEOUT"}


class LineKind(NamedTuple):
    """What a line is. `kind` is empty for one that only sets variables.

    `error` says what is wrong with a check's arguments, `offset` where in the line.
    """

    kind: str
    name: str = ""
    argv: Tuple[str, ...] = ()
    error: str = ""
    offset: int = 0


class Classifier:
    """Takes the lines of one configuration in their order."""

    def __init__(self, hostname: str, settings: Mapping[str, str], scripts: Scripts) -> None:
        self.scripts = scripts
        self.settings: Dict[str, str] = {**settings}
        """The variables in force. Replaced, never changed, so that items can share it."""
        self.just_set: Tuple[Tuple[str, str], ...] = ()
        """The variables that the last line set, where it did nothing else."""
        computed: FrozenSet[str] = frozenset()
        if scripts.assignments:
            from nhc.core.language.site_scripts import defaults

            values, computed = defaults(scripts, self.settings, _SCRIPT_NAMES)
            self.settings.update(values)
        self._names = {"HOSTNAME": hostname, "HOSTNAME_S": hostname.split(".", 1)[0], "PATH": process.PATH}
        self._functions = scripts.functions | HELPERS
        self._shell_lines: List[str] = []
        self._tainted = bool(computed)
        self._commands_in_shell = False
        self._globs_in_shell = False
        self._scripts_called = False
        self.sought: Dict[str, Optional[check.Check]] = {}
        """The names of checks that are not built in, with what an installed package has under each."""

    @property
    def functions(self) -> FrozenSet[str]:
        """What the shell knows by now: the site's functions, those of earlier lines, our helpers."""
        return self._functions

    def classify(self, line: str) -> LineKind:
        self.just_set = ()
        split = shell_words.split(line, self.value_of)
        if split is None:
            return self._shell(line)
        if not split:
            return LineKind("")
        assigned = self._assignments(split)
        if assigned is not None:
            if any(self._shell_knows(name) for name, _value in assigned):
                return self._shell(line)
            self._assign(assigned)
            return LineKind("")
        first = split[0]
        name = first.text
        if not name or shell_words.assignment(first) or name in self._functions or name in shell_words.BUILTINS:
            return self._shell(line)
        if self._globs_in_shell and any(word.glob for word in split):
            return self._shell(line)
        argv = tuple(word.text for word in split)
        declared = self._declared(name)
        if declared is not None:
            return self._built_in(line, declared, split, argv)
        if self._commands_in_shell and not name.startswith("check_"):
            return self._shell(line)
        return LineKind(COMMAND, name.rstrip("/").rsplit("/", 1)[-1] or name, argv)

    def _built_in(
        self, line: str, declared: check.Check, split: List[shell_words.Word], argv: Tuple[str, ...]
    ) -> LineKind:
        error, offset, named = declared.broken, 0, ""
        try:
            given = declared.parse(argv[1:])
            if given.get("variable"):  # one of the shell's, for the lines that follow
                return self._shell(line)
            named = given.get("name") or "" if declared.name.startswith("check_cmd_") else ""
        except check.BadArguments as bad:
            place = min(bad.index + 1, len(split) - 1)
            error, offset = str(bad), split[place].offset
        if self._tainted and not error:
            return self._shell(line)
        return LineKind(BUILT_IN, named or argv[0], argv, error, offset)

    def _declared(self, name: str) -> Optional[check.Check]:
        declared = check.find(name)
        if name.startswith("check_") and (declared is None or declared.distribution):
            self.sought[name] = declared
        return declared

    def value_of(self, name: str) -> Optional[str]:
        """A variable's value where no shell line before can have changed it."""
        value = self.settings.get(name)
        if value is None:
            value = self._names.get(name)
        if value is None:
            return None
        return None if self._shell_knows(name) else value

    def _shell_knows(self, name: str) -> bool:
        """Whether a line or script that bash has run by then may have given the variable a value of its own."""
        mention = re.compile(rf"(?<![$\w{{]){name}\b")
        if any(mention.search(line) for line in self._shell_lines):
            return True
        return self._scripts_called and mention.search(self.scripts.text) is not None

    def _assignments(self, split: List[shell_words.Word]) -> Optional[List[Tuple[str, str]]]:
        """The variables that the words set, where they do nothing else."""
        exported = split[0].text == "export" and split[0].literal == 6
        rest = split[1:] if exported else split
        if not rest:
            return None
        pairs = [shell_words.assignment(word) for word in rest]
        if exported:  # `export NAME` of a setting changes nothing: every setting reaches commands
            known = [word.text in self.settings and not self._shell_knows(word.text) for word in rest]
            if not all(pair or name for pair, name in zip(pairs, known)):
                return None
            return [pair for pair in pairs if pair]
        return None if None in pairs else [pair for pair in pairs if pair]

    def _assign(self, pairs: List[Tuple[str, str]]) -> None:
        self.just_set = tuple(pairs)
        self.settings = {**self.settings, **dict(pairs)}

    def _shell(self, line: str) -> LineKind:
        """A line for bash, and what it may change for the lines that follow."""
        self._shell_lines.append(line)
        if not self._scripts_called and any(
            name in self.scripts.functions for name in re.findall(r"[^\s()|&;<>$`'\"]+", line)
        ):
            self._scripts_called = True
            self._note_changes(self.scripts.text, called=True)
        self._note_changes(line, called=False)
        if "(" in line or "function" in line:
            from nhc.core.language.site_scripts import functions_in

            self._functions |= functions_in(line)
        for name in re.findall(_CHECK_NAME, line):
            # Those that may be built in are left to the shell, so that no family is imported here.
            if name not in self._functions and not check_index.module_of(name):
                self._declared(name)
        named = self._shell_name(line)
        return LineKind(SHELL, named)

    def _note_changes(self, text: str, called: bool) -> None:
        if called:
            # At the left margin they are defaults, which were read beforehand.
            self._tainted = self._tainted or any(
                f"{name}=" in text and re.search(rf"^[ \t]+(?:.*[^$\w{{])?{name}=", text, re.MULTILINE)
                for name in _SCRIPT_NAMES
            )
        else:
            self._tainted = self._tainted or bool(re.search(_TOUCHED, text))
            self._globs_in_shell = self._globs_in_shell or bool(re.search(_GLOBBING, text))
        self._commands_in_shell = self._commands_in_shell or bool(re.search(_STATEFUL, text))

    def _shell_name(self, line: str) -> str:
        first = line.replace("\t", " ").split(" ", 1)[0]
        if first in self.scripts.functions or first in self._functions - HELPERS:
            return first
        match = re.search(_CHECK_NAME, line)
        return match[0] if match else "shell"
