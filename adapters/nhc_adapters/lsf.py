"""IBM Spectrum LSF through `bhosts` and `badmin`. Standard library only.

`badmin hclose -C` keeps a comment, which only the long form of `bhosts` shows on every release. LSF keeps no time with
it, so the time is in the text. A host that is closed for another cause (full, busy, locked, a window) counts as in
service: those states end by themselves.
"""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters._command import CommandMarker, Failures, complaint

HELD = {"closed_rc": "the resource connector is taking it back"}
OUT = {"closed_adm", "unavail", "unreach", "closed_ego", "closed_rc"}


class Lsf(CommandMarker):
    """Spectrum LSF."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        done = self.command("bhosts", "-l", *(names or ()))
        if done.status and not done.stdout.strip():
            if names is not None and re.search(r"bad host name|unknown host", complaint(done), re.IGNORECASE):
                return self._one_by_one(names)
            raise AdapterError(f"bhosts: {complaint(done)}")
        return parse_long(done.stdout)

    def _one_by_one(self, names: Sequence[str]) -> List[NodeState]:
        """Ask for each: bhosts shows nothing at all where one of several names is wrong."""
        return [] if len(names) == 1 else [state for name in names for state in self._read([name])]

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        return self.each(states, "badmin", "hclose", "-C", text)

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        return self.each(states, "badmin", "hopen")


def parse_long(text: str) -> List[NodeState]:
    """`bhosts -l`: for each host its name, a table of one row, and the administrator's comments, the newest last."""
    states = []
    for block in re.split(r"^(?=HOST\s)", text, flags=re.MULTILINE):
        name = re.match(r"HOST\s+(\S+)", block)
        table = re.search(r"^STATUS\s[^\n]*\n\s*(\S+)([^\n]*)", block, re.MULTILINE)
        if name is None or table is None:
            continue
        status = table[1].lower()
        # STATUS CPUF JL/U MAX NJOBS RUN ...
        row = table[2].split()
        comments = re.findall(r"ADMIN ACTION COMMENTS?:\s*\"(.*?)\"\s*$", block, re.MULTILINE | re.DOTALL)
        states.append(
            NodeState(
                name=name[1],
                shown=table[1],
                available=status not in OUT,
                busy=len(row) > 3 and row[3].isdigit() and int(row[3]) > 0,
                mark=read_mark_text(" ".join(comments[-1].split()) if comments else ""),
                hold=HELD.get(status, ""),
                flags=frozenset({status.upper()}),
            )
        )
    return states
