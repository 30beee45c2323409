"""What each reason means and what to do about it: the runbooks of nhc/data/runbooks.txt, for `nhc explain REASON`.

A reason of the kernel log (Xid79, Ext4ReadOnly) has its name, severity and action from the catalogue; the runbook says
the rest. Never loaded on the path of a run.
"""

from __future__ import annotations

import re

from nhc.data.reader import read
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

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
    found: Dict[str, Dict[str, str]] = {}
    text = "\n".join(line for line in read("runbooks.txt").split("\n") if not line.startswith("#"))
    for block in re.split(r"\n{2,}", text.strip()):
        names, *lines = block.split("\n")
        fields = dict(tuple(line.split(": ", 1)) for line in lines)
        if tuple(fields) != FIELDS:
            raise ValueError(f"{names[:60]}: expected {', '.join(FIELDS)}")
        for word in names.split():
            name, _, action = word.partition("=")
            if name in found:
                raise ValueError(f"{name} has two runbooks")
            found[name] = {**fields, "action": action or fields["action"]}
    return found


def find(asked: str) -> Optional[Runbook]:
    """The runbook of a reason, upper or lower case; None where there is no such reason."""
    known = blocks()
    name = {one.lower(): one for one in known if ":" not in one}.get(asked.lower(), asked)
    code = re.fullmatch(r"(?i)(s?xid)[ _-]?(\d+)", name)
    if code:
        kind = "SXid" if code[1].lower() == "sxid" else "Xid"
        return _numbered(kind, code[2], known)
    if name.startswith("NeuronHasError_"):
        return _neuron(name, known)
    if name not in known:
        return None
    title, severity, action = _catalogue().get(name, ("", "", ""))
    made = Runbook(name, **known[name], title=title, severity=severity)
    return made._replace(action=action) if action else made


def reasons() -> List[str]:
    """Every reason that has a runbook, those of the kernel log's numbered catalogues included."""
    from nhc.data.reader import table

    named = [name for name in blocks() if ":" not in name]
    numbered = [f"{kind}{row[0]}" for kind, file in (("Xid", "xid.tsv"), ("SXid", "sxid.tsv")) for row in table(file)]
    return sorted({*named, *numbered, *(f"NeuronHasError_{code}" for code in _neuron_codes())})


def _numbered(kind: str, code: str, known: Dict[str, Dict[str, str]]) -> Optional[Runbook]:
    from nhc.data.reader import table

    rows = {row[0]: row for row in table("xid.tsv" if kind == "Xid" else "sxid.tsv")}
    row = rows.get(code)
    if row is None:
        return None
    name, severity, action = row[1:4]
    decision = row[4] if kind == "Xid" else row[5]
    fields = known.get(f"{kind}{code}") or known[f"{kind}:{action or 'none'}"]
    made = Runbook(f"{kind}{code}", **fields, title=name, severity=severity, decision=decision)
    return made._replace(action=action or "none")


def _neuron(name: str, known: Dict[str, Dict[str, str]]) -> Optional[Runbook]:
    found = _neuron_codes().get(name.partition("_")[2])
    if found is None:
        return None
    severity, action, meaning = found
    return Runbook(name, **known[f"Neuron:{action}"], title=meaning, severity=severity)._replace(action=action)


def _neuron_codes() -> Dict[str, Tuple[str, str, str]]:
    from nhc.kernlog.xid import NEURON

    return {code: (severity, action.value, meaning) for code, (severity, action, meaning) in NEURON.items()}


def _catalogue() -> Dict[str, Tuple[str, str, str]]:
    """What the kernel log's catalogue says of its reasons: a message, a severity, an action."""
    from nhc.checks.kmsg import reason_of
    from nhc.data.reader import table

    found: Dict[str, Tuple[str, str, str]] = {}
    for row in table("kernel.tsv"):
        if row[1] and row[2]:
            found.setdefault(reason_of(row[0], row[1]), (row[7], row[2], row[3]))
    return found
