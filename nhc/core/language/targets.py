"""Whether a line's target applies to this node, within a bound of time.

Regular expressions and globs backtrack: `/(a+)+$/` on a long name takes longer than a node lives. While checks
run a deadline ends that; a plan is made before there is one. So what looks as if it could backtrack for long is
tried in a process of its own, which is killed when its time is over. What does not look so costs nothing.
"""

from __future__ import annotations

import marshal
import os
import select
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import Undecided, mcheck, needs_library, problem
from nhc.core.system.children import fork, leave_to_end, reap

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Tuple

    from nhc.core.language.unbraced import Unbraced
    from nhc.core.matching.nodeset import External

TIMEOUT = 0.5
"""Seconds given to one target. An ordinary one takes microseconds."""
ALL_TOGETHER = 2.0
"""Seconds given to all the targets of a plan that take long; after these each has only `AT_LEAST`."""
AT_LEAST = 0.05
OUTSIDE = 10.0
"""Seconds given to all commands of a site's own matchers together."""

_LONG_NAME, _LONG_PATTERN = 128, 2000


def may_take_long(pattern: str, name: str) -> bool:
    """Whether matching could backtrack for longer than a moment. It errs on the side of yes, which costs a fork."""
    text = pattern.lstrip("!")
    if len(text) > _LONG_PATTERN:
        return True
    if text[:1] == "{" and text[-1:] == "}":
        return text.count("][") > 2
    if len(text) > 1 and text[0] == "/" and text[-1] == "/":
        repeats = sum(map(text.count, "*+?{"))
        again = any(a in ")*+?}" and b in "*+{" for a, b in zip(text, text[1:]))  # a repetition repeated
        return again or repeats > 3 or text.count("(") > 3 or (repeats > 0 and len(name) > _LONG_NAME)
    stars = text.count("*")
    return stars > 3 or text.count("(") > 1 or "*(" in text or "+(" in text or (stars > 1 and len(name) > _LONG_NAME)


def external_matcher(settings: Mapping[str, str]) -> Optional[External]:
    """The site's own matchers (NHC_MCHECK_DELIM, NHC_MCHECK_COMMAND), None where the settings have none."""
    if not any(name.startswith("NHC_MCHECK_DELIM") for name in settings):
        return None
    from nhc.core.language.external_matcher import matcher_from

    return matcher_from(settings)


def _unbraced(pattern: str) -> Optional[Unbraced]:
    bare = pattern.lstrip("!")
    group = bare[:1] == "@" and bare[1:2] != "("
    if group or (any(char in pattern for char in "[, \t") and bare[:1] not in ("{", "/")):
        from nhc.core.language.unbraced import unbraced

        return unbraced(pattern)
    return None


def _read(pattern: str, name: str) -> Tuple[str, bool]:
    """Why a target cannot be read, "" where it can, and then whether it holds the name."""
    wrong = problem(pattern)
    return (wrong[0], False) if wrong else ("", mcheck(name, pattern))


class Targets:
    """Judges the targets of one plan."""

    def __init__(self) -> None:
        self._left = ALL_TOGETHER
        self._outside = OUTSIDE
        self._library: Any = None

    def problem(self, pattern: str, every: bool = False) -> Optional[Tuple[str, int]]:
        """As `nodeset.problem`, and a list of nodes without braces (`unbraced`). Raises Undecided.

        With `every` also a list that may be meant as the glob that it is.
        """
        if needs_library(pattern):
            mistake = self._resolved("problem", pattern)
        else:
            mistake = self._bounded(lambda: problem(pattern)) if may_take_long(pattern, "") else problem(pattern)
        if mistake is None:
            listed = _unbraced(pattern)
            return (listed.message(), 0) if listed and (listed.certain or every) else None
        wrong: Tuple[str, int] = mistake
        return wrong

    def applies(self, name: str, pattern: str, external: Optional[External] = None) -> bool:
        """As `nodeset.mcheck`. Raises Undecided, also for what cannot be read, and for a list of nodes without braces
        that may hold the name.
        """
        negated = pattern.startswith("!")
        bare = pattern[1:] if negated else pattern
        if external is not None and bare[:1] not in ("{", "/") and external("", bare) is not None:
            return self._asked(external, name, bare) != negated
        if needs_library(pattern):
            return bool(self._resolved("applies", pattern, name))
        listed = _unbraced(pattern)
        if listed is not None:
            from nhc.core.language.unbraced import differs

            if differs(name, pattern, listed):
                raise Undecided(listed.message())
        slow = may_take_long(pattern, name)
        wrong, held = self._bounded(lambda: _read(pattern, name)) if slow else _read(pattern, name)
        if wrong:
            raise Undecided(wrong)
        return bool(held)

    def _resolved(self, what: str, pattern: str, name: str = "") -> Any:
        """What ClusterShell says of a list. Raises Undecided."""
        from nhc.core.language.target_library import Library, ListUnresolved

        if self._library is None:
            self._library = Library()
        try:
            return self._library.ask(what, pattern, name)
        except ListUnresolved as why:
            raise Undecided(str(why)) from None

    def _asked(self, external: External, name: str, bare: str) -> bool:
        """What a site's own matcher says. Raises Undecided, also once all of them together took too long."""
        if self._outside <= 0:
            raise Undecided(f"the site's matchers have had {OUTSIDE:g} s together")
        begun = time.monotonic()
        try:
            return bool(external(name, bare))
        finally:
            self._outside -= time.monotonic() - begun

    def close(self) -> None:
        """All targets are judged: what helped is no longer needed."""
        if self._library is not None:
            self._library.close()

    def _bounded(self, ask: Callable[[], Any]) -> Any:
        """What `ask` returns, from a process that has so much time and no more."""
        timeout = max(min(TIMEOUT, self._left), AT_LEAST)
        begun = time.monotonic()
        try:
            pid, ((reading, writing),) = fork(lambda pipe: os.write(pipe[1], marshal.dumps(ask())))
        except OSError as error:
            raise Undecided(f"no process to decide it in: {error.strerror}") from None
        os.close(writing)
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        answer = os.read(reading, 65536) if poll.poll(int(timeout * 1000)) else b""
        os.close(reading)
        if not answer:
            from signal import SIGKILL

            os.kill(pid, SIGKILL)
        if reap(pid, 0.05) is None:
            leave_to_end(pid)
        self._left -= time.monotonic() - begun
        if not answer:
            raise Undecided(f"not decided within {timeout:g} s")
        return marshal.loads(answer)  # noqa: S302 (from a fork of this very process)


class OwnTargets(Targets):
    """Targets of a configuration that somebody sent: what needs ClusterShell, which runs commands, is left open."""

    def problem(self, pattern: str, every: bool = False) -> Optional[Tuple[str, int]]:
        if needs_library(pattern):
            raise Undecided("it needs ClusterShell, which would run commands for it")
        return super().problem(pattern, every)
