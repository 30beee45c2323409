"""What each reason means and what to do about it, for `nhc explain REASON`.

The runbooks stand in nhc/core/data/runbooks.txt. A module of checks, ours or of an installed package, may bring those
of its own reasons in the same form, as the text RUNBOOKS.

A reason of the kernel log (Xid79, Ext4ReadOnly) has its name, severity and action from the catalogue; the runbook says
the rest. Never loaded on the path of a run.
"""

from __future__ import annotations

import re

from nhc.core.data.reader import read
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Scope
from nhc.node.facts.fault_scope import scope_of

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_SPEAKS_OF = {
    Scope.DEVICE: "one accelerator, where it is known which; else the node",
    Scope.LINK: "a link between two accelerators",
    Scope.BOARD: "the board that the accelerators share",
    Scope.NODE: "the node",
}
_CODE = re.compile(r"(?ai)(?:(s?xid)[ :_-]*)?(\d{1,9})")
FIELDS = ("means", "causes", "do", "confirm", "action", "source")


class Runbook(NamedTuple):
    """One reason's runbook. `title`, `severity` and `decision` are the catalogue's, where it is in one."""

    reason: str
    means: str
    causes: str
    do: str
    confirm: str
    action: str
    source: str
    title: str = ""
    severity: str = ""
    decision: str = ""


def blocks() -> Dict[str, Dict[str, str]]:
    """The blocks of the file by their reasons. Raises ValueError for a block that cannot be read."""
    return _parse(read("runbooks.txt"))


class Brought(NamedTuple):
    """The blocks that modules of checks bring, by their reasons, and which modules' texts cannot be read."""

    blocks: Dict[str, Dict[str, str]]
    problems: Tuple[str, ...]


def brought() -> Brought:
    """The runbooks that modules of checks bring; of two for one reason ours counts. Imports every such module."""
    import sys

    from nhc.core.check import find_all

    blocks_by_reason: Dict[str, Dict[str, str]] = {}
    problems: List[str] = []
    checks = sorted(find_all(), key=lambda check: bool(check.distribution))
    for module in dict.fromkeys(check.run.__module__ for check in checks):
        text = getattr(sys.modules.get(module), "RUNBOOKS", "")
        try:
            blocks_by_reason.update(
                (name, fields) for name, fields in _parse(text).items() if name not in blocks_by_reason
            )
        except (AttributeError, ValueError) as error:
            problems.append(f"RUNBOOKS of {module}: {error}")  # the others' are not lost for it
    return Brought(blocks_by_reason, tuple(problems))


def _parse(whole: str) -> Dict[str, Dict[str, str]]:
    blocks_by_reason: Dict[str, Dict[str, str]] = {}
    text = "\n".join(line for line in whole.split("\n") if not line.startswith("#"))
    for block in re.split(r"\n{2,}", text.strip()) if text.strip() else ():
        names, *lines = block.split("\n")
        fields = dict((*line.split(": ", 1), "")[:2] for line in lines)
        if tuple(fields) != FIELDS:
            raise ValueError(f"{names[:60]}: expected {', '.join(FIELDS)}")
        for entry in names.split():
            name, _, action = entry.partition("=")
            if name in blocks_by_reason:
                raise ValueError(f"{name} has two runbooks")
            blocks_by_reason[name] = {**fields, "action": action or fields["action"]}
    return blocks_by_reason


def find(asked: str) -> Optional[Runbook]:
    """The runbook of a reason, upper or lower case; None if there is none."""
    return _find(asked, blocks()) or _find(asked, brought().blocks)


def is_code(asked: str) -> bool:
    """Whether a text reads as the number of an Xid or SXid: `79`, `Xid 79`, `SXid: 12028`."""
    return _CODE.fullmatch(asked) is not None


def unknown_xid(asked: str) -> str:
    """Why a number of an Xid has no runbook; "" for a name that is no Xid's."""
    from nhc.core.data.reader import table

    code = _CODE.fullmatch(asked)
    if code is None or (code[1] or "xid").lower() != "xid":
        return ""
    last = max(int(row[0]) for row in table("xid.tsv"))
    number = int(code[2])
    if number > last:
        return f"Xid {number} is newer than this catalogue, which ends at {last}: NVIDIA's own says what it means"
    return f"Xid {number} is not in this catalogue, which ends at {last}"


def sections(runbook: Runbook) -> List[Tuple[str, str]]:
    """A runbook as headings with their texts, in the order in which they are read; the first heading is its title."""
    about = ", ".join(item for item in (runbook.title, runbook.severity) if item)
    parts = (("What it means", runbook.means), ("Likely causes", runbook.causes), ("What to do", runbook.do),
             ("How to confirm the repair", runbook.confirm), ("Suggested action", runbook.action),
             ("What it speaks of", _SPEAKS_OF[scope_of(runbook.reason)]),
             ("Why nhc judges so", runbook.decision), ("Sources", runbook.source))  # fmt: skip
    return [(f"{runbook.reason}{f': {about}' if about else ''}", ""), *(part for part in parts if part[1])]


def explanation(name: str) -> List[Tuple[str, str]]:
    """The `sections` of a reason; of a check, what it judges; empty for any other name."""
    import inspect

    from nhc.core.check import find as find_check

    runbook = find(name)
    if runbook is not None:
        return sections(runbook)
    check = find_check(name)
    return [(check.name, ""), ("What it judges", inspect.cleandoc(check.doc))] if check is not None else []


def _find(asked: str, known: Dict[str, Dict[str, str]]) -> Optional[Runbook]:
    name = {reason.lower(): reason for reason in known if ":" not in reason}.get(asked.lower(), asked)
    code = _CODE.fullmatch(name)
    if code:
        kind = "SXid" if (code[1] or "").lower() == "sxid" else "Xid"
        return _numbered(kind, code[2].lstrip("0"), known)
    if name.startswith("NeuronHasError_"):
        return _neuron(name, known)
    if name not in known:
        return None
    title, severity, action = _catalogue().get(name, ("", "", ""))
    runbook = Runbook(name, **known[name], title=title, severity=severity)
    return runbook._replace(action=action) if action else runbook


def reasons() -> List[str]:
    """Every reason that has a runbook, those of the kernel log's numbered catalogues included."""
    from nhc.core.data.reader import table

    named = [name for name in (*blocks(), *brought().blocks) if ":" not in name]
    numbered = [f"{kind}{row[0]}" for kind, file in (("Xid", "xid.tsv"), ("SXid", "sxid.tsv")) for row in table(file)]
    return sorted({*named, *numbered, *(f"NeuronHasError_{code}" for code in _neuron_codes())})


def _numbered(kind: str, code: str, known: Dict[str, Dict[str, str]]) -> Optional[Runbook]:
    from nhc.core.data.reader import table

    rows = {row[0]: row for row in table("xid.tsv" if kind == "Xid" else "sxid.tsv")}
    row = rows.get(code)
    if row is None:
        return None
    name, severity, action = row[1:4]
    decision = row[4] if kind == "Xid" else row[5]
    fields = known.get(f"{kind}{code}") or known.get(f"{kind}:{action or 'none'}")
    if fields is None:
        return None
    runbook = Runbook(f"{kind}{code}", **fields, title=name, severity=severity, decision=decision)
    return runbook._replace(action=action or "none")


def _neuron(name: str, known: Dict[str, Dict[str, str]]) -> Optional[Runbook]:
    entry = _neuron_codes().get(name.partition("_")[2])
    if entry is None or f"Neuron:{entry[1]}" not in known:
        return None
    severity, action, meaning = entry
    return Runbook(name, **known[f"Neuron:{action}"], title=meaning, severity=severity)._replace(action=action)


def _neuron_codes() -> Dict[str, Tuple[str, str, str]]:
    from nhc.node.kernlog.xid import NEURON

    return {code: (severity, action.value, meaning) for code, (severity, action, meaning) in NEURON.items()}


def _catalogue() -> Dict[str, Tuple[str, str, str]]:
    """What the kernel log's catalogue says of its reasons: a message, a severity, an action."""
    from nhc.core.data.reader import table
    from nhc.node.checks.kmsg import reason_of

    entries: Dict[str, Tuple[str, str, str]] = {}
    for row in table("kernel.tsv"):
        if row[1] and row[2]:
            entries.setdefault(reason_of(row[0], row[1]), (row[7], row[2], row[3]))
    return entries
