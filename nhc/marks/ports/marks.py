"""The rules of marks: what a report asks for, what an adapter must leave alone, and how a mark reads as text.

`may_mark` and `may_clear` are the one place that says when a node's state is not nhc's to change, so that every
adapter respects an operator in the same way. A mark's text is
"NHC: [node] check_fs_free: / is full [action: reboot] [since: 2025-01-31T08:15:00Z]". The class comes before the words,
for those who read `sinfo -R`: whether the node is at fault, or what a user left on it (soperator's `[node_problem]` and
`[user_problem]`). The tag stays the first word: by it LBNL NHC's node-mark-online tells its own marks.
"""

from __future__ import annotations

import re
from typing import Collection, Container, List, Optional, Sequence, Tuple

from nhc.core.model import DRASTIC, Action, CheckResult, Report, Verdict, describe, printable
from nhc.core.timestamps import from_utc, utc
from nhc.marks.ports.adapter import OURS, OWNER, REMEDY_OWNER, SCHEDULER, Effect, Mark, NodeState

TAG = "NHC:"
"""The first word of marks of OWNER; LBNL NHC's, so that marks it left are ours to clear."""

GATE_TAG = "NHC-GATE:"
"""The first word of a gate's mark if a scheduler stores a reason. Not TAG, which a health check resumes."""

TAGS = {OWNER: TAG, REMEDY_OWNER: "NHC-REMEDY:"}
"""The first word of every mark that is ours, by its owner."""

NODE, USER = "node", "user"
"""The classes of marks; in doubt, NODE."""

_OF_USERS = frozenset(("GpuProcessesLeft", "LeftoversFound", "UnauthorisedProcess", "RogueProcess"))
"""Reasons that a user's processes and files are. Not LeftoversRemain: what cannot be killed needs a reboot."""

_FULL = ("FilesystemFull", "InodesExhausted", "InodesLow", "NoSpace")
_USERS_PLACES = ("tmp", "shm", "scratch", "home", "user", "users")
"""Parts of the path of a file system that users fill (FHS 3.0: /tmp, /var/tmp, /dev/shm, /run/user, /home)."""

WHY_LIMIT = 240
"""Characters kept of a mark's explanation. Slurm, PBS and LSF all take more; people read less."""


def mark_of(report: Report) -> Optional[Mark]:
    """The mark that a report asks for: its worst failure, how many more, and the most drastic repair suggested.

    The worst is the failure with that repair, so that text and repair belong to one fault. A failure of the node comes
    before a user's; otherwise a dead GPU would be marked `[user]` for a full /tmp. None if nothing is CRIT: an UNKNOWN
    verdict never takes a node out.
    """
    failures = report.failures()
    if not failures:
        return None
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    worst = most_drastic([one for one in failures if class_of(cause_of(one)) != USER] or failures)
    cause = cause_of(worst)
    why = printable(grouping_text(describe(worst), cause), WHY_LIMIT - len(more)) + more
    return Mark(why, most_drastic(failures).outcome.action, report.started, cause=cause)


def grouping_text(text: str, cause: str) -> str:
    """A failure's description as a mark shows it: the same on each node with this fault, so that marks can be grouped.

    What the node measured is in its report. The text of a site's own script, and of a person, stays as it is.
    """
    _check, reason, target = (*cause.split("|", 2), "", "")[:3]
    if not class_of(cause) or reason in _OF_SITES:
        return text
    return without_figures(text, {*re.findall(r"\d+", reason), *target.split()})


_OF_SITES = ("CheckFailed", "CommandFailed")
"""Reasons of failures that a site's line or script puts into words: its author decides what a mark says."""


def most_drastic(failures: Sequence[CheckResult]) -> CheckResult:
    """The failure that suggests the most drastic repair, the first of several. Raises ValueError for none."""
    return max(failures, key=lambda failure: DRASTIC.index(failure.outcome.action))


def cause_of(result: CheckResult) -> str:
    """What a failure is about: the check, the reason's key and the target."""
    return cause_text(result.check, result.outcome.reason, result.outcome.target)


def cause_text(check: str, reason: str, target: str) -> str:
    """The same from a stored failure: marks, faults and episodes are recognised by this text."""
    return printable(f"{check}|{reason}|{target}", WHY_LIMIT)


def class_of(cause: str) -> str:
    """NODE or USER for a failure's cause; "" for no cause, and for one that is no failure, such as a person's
    request.
    """
    check, _, rest = cause.partition("|")
    reason, _, target = rest.partition("|")
    if not reason or check in _ASKED:
        return ""
    full = reason in _FULL and any(part.rstrip("0123456789") in _USERS_PLACES for part in target.split("/"))
    return USER if reason in _OF_USERS or full else NODE


_ASKED = ("request", "mark", "train")
"""What replaces the check's name if the cause is a request, a mark that someone set, or planned maintenance."""


def cause_in_words(cause: str) -> str:
    """Such a text for a person: its parts with commas between, without the empty ones."""
    return ", ".join(filter(None, cause.split("|")))


def out_by_nhc(state: NodeState) -> bool:
    """Whether nhc keeps a node out of service, by a mark or by a gate: what ceilings count."""
    mark = state.mark
    return not state.available and mark is not None and (mark.ours or mark.why.startswith(GATE_TAG))


def healthy(report: Report) -> bool:
    """Whether a report says that a node is fit for work. UNKNOWN does not: it leaves a node as it is."""
    return report.verdict in (Verdict.OK, Verdict.WARN)


def may_change(mark: Mark, owner: str = OWNER) -> bool:
    """Whether the part of nhc that acts as `owner` may replace or clear a mark: its own; REMEDY_OWNER also OWNER's."""
    return mark.owner == owner or (owner == REMEDY_OWNER and mark.owner == OWNER)


def may_mark(state: Optional[NodeState], mark: Mark) -> Tuple[Effect, str]:
    """Whether to set `mark` on a node: CHANGED says yes.

    The rules: a node that is unknown or on hold stays as it is. A node that someone else took out keeps their reason,
    even if they gave none. A mark that waits for a proof is replaced by its owner only. Our own mark is refreshed when
    its cause is new, not when a figure in its text is.
    """
    if state is None:
        return Effect.FAILED, "not a node that the scheduler knows"
    if state.hold:
        return Effect.REFUSED, left_alone(state)
    if state.available:
        note = state.mark.why if state.mark and not state.mark.ours else ""
        return Effect.CHANGED, f"replaces the note {note!r}" if note else ""
    if mark.owner == REMEDY_OWNER and unheard(state):
        return Effect.CHANGED, f"the scheduler does not hear it: {state.shown}"
    if state.mark is None:
        return Effect.REFUSED, f"already {state.shown}, with no reason given: somebody else's"
    if not may_change(state.mark, mark.owner):
        by = state.mark.owner or "somebody else"
        return Effect.REFUSED, f"already {state.shown} by {by}: {printable(state.mark.why, 120)}"
    if same_cause(state.mark, mark):
        return Effect.UNCHANGED, "already so"
    return Effect.CHANGED, "reason refreshed"


def in_place_of(state: NodeState, mark: Mark) -> Mark:
    """`mark` as it is set on a node: if it replaces a mark of ours, it keeps that mark's time, also for a new reason,
    and its class if its own cause gives none (a person's request, a mark that was set by hand).
    """
    standing = state.mark
    if standing is None or not standing.ours or (state.available and not state.undone):
        return mark
    kind = mark.kind or class_of(mark.cause) or standing.kind
    return mark._replace(since=standing.since or mark.since, kind=kind)


def unheard(state: NodeState) -> bool:
    """Whether a node is out only because it does not answer its scheduler: that is a fault, not a decision."""
    return state.silence is not None and state.mark is not None and state.mark.owner == SCHEDULER


def may_clear(state: Optional[NodeState], owner: str = OWNER) -> Tuple[Effect, str]:
    """Whether to put a node back into service: only if a mark that `owner` may change took it out."""
    if state is None:
        return Effect.FAILED, "not a node that the scheduler knows"
    if state.mark is None or not may_change(state.mark, owner):
        if state.available:
            return Effect.UNCHANGED, "carries no mark of ours"
        by = state.mark.owner or "somebody else" if state.mark else "somebody else, with no reason given"
        return Effect.REFUSED, f"{state.shown} by {by}{f': {printable(state.mark.why, 120)}' if state.mark else ''}"
    if state.hold:
        return Effect.REFUSED, left_alone(state)
    return Effect.CHANGED, ""


def left_alone(state: NodeState) -> str:
    """Why nothing may be done to a node that is on hold."""
    return f"left alone: {state.hold}"


def work_on_machine(state: NodeState) -> str:
    """The work that an act on the node's machine would end, "" for none: its own, or that of the other nodes on it.
    One of them in service may be given work at any moment.
    """
    if state.busy:
        return "work still runs on it"
    busy = next((mate.name for mate in state.mates if mate.busy), "")
    return f"work still runs on {busy}, on the same machine" if busy else in_service_beside(state)


def in_service_beside(state: NodeState) -> str:
    """Which other node of its machine takes new work, "" for none: no policy lets its jobs be ended."""
    open_one = next((mate.name for mate in state.mates if mate.available), "")
    return f"{open_one}, on the same machine, takes new work: drain it too" if open_one else ""


def machine_held(state: NodeState, repaired: Container[str] = ()) -> str:
    """Why nothing may be done to the node's machine now, "" if it may: it, or another node of the machine, is on hold,
    someone else has taken that one out, or it is among those that are being `repaired`.
    """
    if state.hold:
        return left_alone(state)
    for mate in state.mates:
        where = f"{mate.name}, on the same machine,"
        if mate.name in repaired:
            return f"{where} is being repaired"
        if mate.hold:
            return f"{where} is left alone: {mate.hold}"
        if not mate.out_by_us and not mate.available and not unheard(mate):
            by = (mate.mark.owner if mate.mark is not None else "") or "somebody else"
            return f"{where} is {mate.shown} by {by}"
    return ""


def same_cause(standing: Mark, wanted: Mark) -> bool:
    """Whether our mark on a node says the same as the wanted one: cause and repair are the same.

    If the cause of the mark on the node is not known (it was read back from a scheduler), its text is compared without
    figures.
    """
    nothing = (Action.NONE, Action.INSPECT)  # no text tells these two apart
    if standing.action is not wanted.action and not (standing.action in nothing and wanted.action in nothing):
        return False
    if standing.owner != wanted.owner:
        return False
    if mark_text(standing) == mark_text(wanted):
        return True
    if standing.cause and wanted.cause:
        return standing.cause == wanted.cause
    _check, reason, target = (*wanted.cause.split("|", 2), "", "")[:3]
    names = {*re.findall(r"\d+", reason), *target.split()}  # Xid 79 is another error than Xid 48, CPU 24 than CPU 30
    return same_words(_plain_why(standing), _plain_why(wanted), names)


_TAIL = re.compile(r"\s*\[(action|since): ([^\[\]]+)\]$")


def _plain_why(mark: Mark) -> str:
    """Why, as a mark's text has it: on one line, and without what looks like our own annotation."""
    why = printable(mark.why, WHY_LIMIT).strip() or "unhealthy"
    while _TAIL.search(why):  # it must not be read back as one
        why = _TAIL.sub("", why).strip() or "unhealthy"
    return why


def mark_text(mark: Mark, with_since: bool = False) -> str:
    """A mark of ours as text. The time is put in if the other side stores none itself."""
    kind = mark.kind or class_of(mark.cause)
    text = f"{TAGS.get(mark.owner, TAG)} {f'[{kind}] ' if kind else ''}{_plain_why(mark)}"
    if mark.action not in (Action.NONE, Action.INSPECT):  # that somebody should look is what every mark says
        text += f" [action: {mark.action.value}]"
    if with_since and mark.since is not None:
        text += f" [since: {utc(mark.since)}]"
    return text


def read_mark_text(text: str, owner: str = "", since: Optional[float] = None) -> Optional[Mark]:
    """The mark in a reason's text, ours if it begins with one of the tags; None for an empty reason."""
    text = printable(text).strip()
    if not text:
        return None
    ours = next((known for known, tag in TAGS.items() if f"{text} ".startswith(f"{tag} ")), "")
    if not ours:
        return Mark(text, since=since, owner="" if owner in OURS else owner)
    why, action = text[len(TAGS[ours]) :].strip(), Action.NONE
    tail = _TAIL.search(why)
    while tail:
        if tail[1] == "action" and tail[2] in {known.value for known in Action}:
            action = Action(tail[2])
        elif tail[1] == "since":
            written = from_utc(tail[2], -1.0)
            if written < 0 or utc(written) != tail[2]:
                break
            since = written
        else:
            break
        why = why[: tail.start()]
        tail = _TAIL.search(why)
    kind, _, said = why.partition(" ")
    if said and kind in (f"[{NODE}]", f"[{USER}]"):
        return Mark(said.lstrip(), action, since, ours, kind=kind[1:-1])
    return Mark(why, action, since, ours)


_STAMP = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
_MORE = re.compile(r"\s*\(and \d+ more\)$")
_TIME = re.compile(rf"{_STAMP}|(?<![\w:.])\d+:\d\d(?::\d\d)?(?![\w:.])")
_TOKEN = re.compile(r"[^\s()\[\]{}<>=,;\"'|~]+")
_UNIT = (
    r"(?:[kKMGTPE]?(?:i?[bB](?:it|ytes?)?)?(?:/s)?|%|[mnu\u00b5]?s(?:ec|econds?)?|m(?:in)?|h|d|w|\u00b0?C|[mk]?[WVA]|"
    r"[kMG]?Hz|GT/s|rpm|x)"
)
_FIGURE = re.compile(
    rf"[-+]?\d+(?:\.\d+)?{_UNIT}(?:/\d+(?:\.\d+)?{_UNIT})*|(?:\d+[wdhms]){{2,}}|0x[0-9a-fA-F]+", re.ASCII
)
_ASIDE = re.compile(r"\s*\([^()]*\)|\s+\[[^\[\]]*\]")
_NAMED = (
    "limit", "minimum", "maximum", "threshold", "least", "most", "default", "see", "found", "status", "signal", "error",
    "errno", "code", "answers", "returned", "severity", "cpu", "node", "socket", "bank", "generation", "level", "slot",
    "port", "lane", "channel", "link", "nvlink", "nvswitch",
)  # fmt: skip
"""Words after which a number is no measurement: a limit, or the name of something. A number after any other word is
left out of a mark; the report has it."""

_BETWEEN = ("is", "of", "at", "are")
LEFT_OUT = "\u2026"
_RUN = re.compile(rf"{LEFT_OUT}(?:[ ,]+(?:and )?{LEFT_OUT})+")


def without_figures(text: str, kept: Collection[str] = ()) -> str:
    """What every node with this fault says: `text` without what one node measured.

    A text in parentheses or brackets is left out if it has a figure, any other figure becomes `\u2026`. What stays:
    figures in names (`gpu3`), limits, numbers that are names (`status 9`, and those `kept`: an error's, a target's),
    and what there is of what there should be (`100 of 200 Gb/s`, `an MTU of 1500, 9000 expected`), which is the same on
    all nodes of a kind.
    """
    return _RUN.sub(LEFT_OUT, _masked(_ASIDE.sub(lambda aside: "" if _figures(aside[0]) else aside[0], text), kept))


def _figures(text: str) -> bool:
    return LEFT_OUT in _masked(text, ())


def _masked(text: str, kept: Collection[str]) -> str:
    text = _TIME.sub(LEFT_OUT, text)
    tokens = list(_TOKEN.finditer(text))
    words = [token[0].rstrip(".:!?\u2026") for token in tokens]
    figures = [at for at, word in enumerate(words) if _FIGURE.fullmatch(word)]
    staying = set()
    for number, at in enumerate(figures):
        before = at - 1
        while before > 0 and words[before] in _BETWEEN:
            before -= 1
        following = words[at + 1] if at + 1 < len(words) else ""
        asked = number and following == "expected"
        share = number and figures[number - 1] == at - 2 and words[at - 1] == "of"
        if words[at] in kept or (before >= 0 and words[before].lower() in _NAMED) or following == "returned":
            staying.add(at)
        if asked or share:
            staying |= {figures[number - 1], at}
    for at in reversed(figures):
        if at not in staying:
            text = text[: tokens[at].start()] + LEFT_OUT + text[tokens[at].start() + len(words[at]) :]
    return text


def same_words(text: str, other: str, kept: Collection[str] = ()) -> bool:
    """Whether two explanations of a mark say the same but for their figures.

    A reason such as `check_fs_free: / has only 93848 kB free` is a new text at every run while nothing new has
    happened. Setting it each time would cost a call to the scheduler, and `sinfo -R` would forget since when the node
    is out. `kept` are numbers that are names: a device's, an error's.
    """
    first, second = _words(text, kept), _words(other, kept)
    if text.endswith("\u2026") or other.endswith("\u2026") or "\u2026 (and" in text or "\u2026 (and" in other:
        shorter = min(len(first), len(second)) - 1  # cut where the figures before it left no more room: in a word
        first, second = first[:shorter], second[:shorter]
    return bool(first) and first == second


def _words(text: str, kept: Collection[str]) -> List[str]:
    text = without_figures(_MORE.sub("", text), kept)  # one that stands may be of a version that wrote them
    words = (word.rstrip(".:!?\u2026") or word for word in _TOKEN.findall(text))
    return ["0" if word not in kept and _FIGURE.fullmatch(word) else word for word in words]
