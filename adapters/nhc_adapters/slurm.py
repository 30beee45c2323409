"""Slurm through its own commands: `scontrol` and `sinfo` by argv. Standard library only: the hooks run this.

Reading all nodes is one controller call, and so is each distinct reason to drain, each resume of any number
of nodes: see `mark` and `clear`. What an update did is read back where Slurm reported an error, since
slurmctld carries out an update of several nodes as far as it can.
"""

from __future__ import annotations

import json
import re
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.model import Action
from nhc.ports import TAG, AdapterError, Applied, Deed, Effect, Mark, NodeState, mark_text
from nhc_adapters._command import Commands, Runner, chunks, complaint, run_command, sort_clears, sort_marks
from nhc_adapters._slurm_states import HYPERPOD_OWNER, SINFO, parse_json_nodes, parse_show, parse_sinfo, read_reason

FEW = 8
"""Up to this many nodes are asked for by name: that is a light request, while sinfo fetches every node."""

JSON_SINCE = (23, 2)
"""The release whose scontrol has --json."""


class Slurm:
    """`settings`: NHC_RM_PATH (where Slurm's commands are), NHC_HYPERPOD=1 (write SageMaker HyperPod's reasons)."""

    keeps_time = True
    """Slurm keeps a reason's time itself."""

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
        run: Runner = run_command,
    ) -> None:
        self.command = Commands(settings, environ, timeout, run)
        self.command.env["SLURM_TIME_FORMAT"] = "%s"
        self.hyperpod = self.command.setting("NHC_HYPERPOD") in ("1", "yes", "true")
        self._version: Optional[Tuple[int, int]] = None

    # Reading.

    def version(self) -> Tuple[int, int]:
        """The release of the commands, (0, 0) where they do not say."""
        if self._version is None:
            match = re.search(r"(\d+)\.(\d+)", self.command("scontrol", "--version").stdout)
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        if names is not None and len(names) <= FEW:
            return self._some(names)
        states = self._all()
        wanted = None if names is None else set(names)
        return [state for state in states if wanted is None or state.name in wanted]

    def _some(self, names: Sequence[str]) -> List[NodeState]:
        if not names:
            return []
        for name in names:
            _plain(name)
        done = self.command("scontrol", "-a", "show", "node", ",".join(names))
        # For an unknown node scontrol says "Node x not found", on stdout, and shows the others.
        if done.status and "not found" not in done.stdout + done.stderr:
            raise AdapterError(f"scontrol show node: {complaint(done)}")
        shown = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("Node "))
        return sorted(_parsed(parse_show, shown), key=lambda state: state.name)

    def _all(self) -> List[NodeState]:
        if self.version() >= JSON_SINCE:
            done = self.command("scontrol", "-a", "--json", "show", "nodes")
            try:
                if done.status == 0:
                    return parse_json_nodes(json.loads(done.stdout))
            except ValueError:
                pass  # a build without the JSON serializer, or an answer too long: sinfo's lines say the same
        return _parsed(parse_sinfo, self.command.ask(*SINFO))

    # Marking.

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._states(list(marks), seen)
        todo, done = sort_marks(marks, states)
        by_text: Dict[Tuple[str, str], List[str]] = {}
        for node, (mark, _note) in todo.items():
            text, state = self._text(mark)
            if states[node].mark is not None and not states[node].available:
                state = ""  # already out: only the reason is new
            by_text.setdefault((text, state), []).append(node)
        failures: Dict[str, str] = {}
        for (text, state), nodes in sorted(by_text.items()):
            change = [*([f"State={state}"] if state else []), f"Reason={text}"]
            failures.update(self._update(nodes, change))
        wanted = {node: read_reason(self._text(mark)[0]) for node, (mark, _note) in todo.items()}
        kept = self._kept(failures, lambda node, now: _same(now.mark, wanted[node]) and not now.available)
        for node, (_mark, note) in todo.items():
            done.append(_outcome(node, failures, kept, note))
        return _in_order(marks, done)

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        todo, done = sort_clears(names, self._states(names, seen))
        failures = self._update(todo, ["State=RESUME"])
        kept = self._kept(failures, lambda _node, now: now.available)
        done.extend(_outcome(node, failures, kept, "") for node in todo)
        return _in_order(names, done)

    def _states(self, names: Sequence[str], seen: Optional[Iterable[NodeState]]) -> Dict[str, NodeState]:
        found = self.nodes(names) if seen is None else seen
        return {state.name: state for state in found}

    def _text(self, mark: Mark) -> Tuple[str, str]:
        """A mark's reason and the state that goes with it."""
        if self.hyperpod and mark.action in (Action.REBOOT, Action.REPLACE):
            return f"Action:{mark.action.value.capitalize()}", "FAIL"
        return mark_text(mark), "DRAIN"

    def _update(self, nodes: Sequence[str], change: Sequence[str]) -> Dict[str, str]:
        """Change nodes in as few calls as they fit; the nodes of a call that failed, with the complaint."""
        failures: Dict[str, str] = {}
        for some, folded in chunks(nodes):
            try:
                done = self.command("scontrol", "update", f"NodeName={folded}", *change)
                said = complaint(done) if done.status else ""
            except AdapterError as error:
                said = str(error)
            if said:
                failures.update(dict.fromkeys(some, said))
        return failures

    def _kept(self, failures: Mapping[str, str], holds: Callable[[str, NodeState], bool]) -> FrozenSet[str]:
        """Of the nodes whose update failed, those that it reached all the same."""
        if not failures:
            return frozenset()
        try:
            return frozenset(state.name for state in self.nodes(list(failures)) if holds(state.name, state))
        except AdapterError:
            return frozenset()

    # Power.

    def repairs(self) -> FrozenSet[Deed]:
        """Slurm reboots through its RebootProgram; replacing is HyperPod's."""
        return frozenset({Deed.REBOOT, Deed.REPLACE} if self.hyperpod else {Deed.REBOOT})

    def repair(self, deed: Deed, names: Sequence[str], because: str) -> List[Applied]:
        """Have nodes rebooted once idle; they come back drained, and the next healthy report resumes them."""
        if deed not in self.repairs():
            raise AdapterError(f"Slurm cannot {deed.value} a node")
        if self.hyperpod:
            failures = self._update(names, ["State=FAIL", f"Reason=Action:{deed.value.capitalize()}"])
        else:
            failures = {}
            reason = mark_text(Mark(because, Action.REBOOT))
            for some, folded in chunks(names):
                done = self.command("scontrol", "reboot", "ASAP", f"reason={reason}", folded)
                if done.status:
                    failures.update(dict.fromkeys(some, complaint(done)))
        return [_outcome(node, failures, frozenset(), "") for node in names]

    # What hooks tell people.

    def comment(self, name: str, text: str) -> bool:
        """Leave a note on a node, "" to take it away; False where somebody else's comment is there and stays."""
        shown = self.command.ask("scontrol", "-a", "show", "node", _plain(name))
        found = re.search(r"^   Comment=(.*)", shown, re.MULTILINE)
        if found and found[1].strip() and not found[1].startswith(TAG):
            return False
        if text or found:
            self.command.ask("scontrol", "update", f"NodeName={name}", f"Comment={text}")
        return True

    def tell_job(self, job: str, text: str) -> None:
        """Put why a job did not start where its user sees it: the job's AdminComment, and its srun or salloc.

        Raises AdapterError when neither works.
        """
        noted = self.command("scontrol", "update", f"JobId={_plain(job)}", f"AdminComment={text}")
        told = self.command("scontrol", "notify", job, text)
        if noted.status and told.status:
            raise AdapterError(f"scontrol notify {job}: {complaint(told)}")

    def other_jobs(self, node: str, user: str, job: str) -> List[str]:
        """The user's jobs on a node, other than one."""
        shown = self.command.ask("squeue", "-h", "-a", "-o", "%A", "-w", _plain(node), "-u", _plain(user))
        return [number for number in shown.split() if number != job]


def _plain(name: str) -> str:
    """A name that Slurm cannot take for an option or a list."""
    if not name or name[0] == "-" or not all(c.isalnum() or c in "._-" for c in name):
        raise AdapterError(f"{name!r} is not a name")
    return name


def _parsed(parse: Callable[[str], List[NodeState]], text: str) -> List[NodeState]:
    try:
        return parse(text)
    except ValueError as error:
        raise AdapterError(f"Slurm's answer cannot be understood: {error}") from None


def _same(found: Optional[Mark], wanted: Optional[Mark]) -> bool:
    if found is None or wanted is None:
        return False
    return (found.why, found.action) == (wanted.why, wanted.action) and (found.ours or found.owner == HYPERPOD_OWNER)


def _outcome(node: str, failures: Mapping[str, str], kept: FrozenSet[str], note: str) -> Applied:
    if node in failures and node not in kept:
        return Applied(node, Effect.FAILED, failures[node])
    return Applied(node, Effect.CHANGED, note)


def _in_order(names: Iterable[str], done: Iterable[Applied]) -> List[Applied]:
    by_node = {applied.node: applied for applied in done}
    return [by_node[name] for name in dict.fromkeys(names)]
