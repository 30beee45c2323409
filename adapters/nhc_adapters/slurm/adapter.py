"""Slurm through its own commands: `scontrol` and `sinfo` by argv. Standard library only: the hooks run this.

Reading all nodes is one controller call, and reading their work another. Each distinct drain reason is one call, and so
is each resume of any number of nodes: see `mark` and `clear`. If Slurm reports an error of an update, the nodes are
read back, because slurmctld carries out an update of several nodes as far as it can.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from nhc.core.json_values import parse_object
from nhc.core.model import Action
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Mark, NodeState, Operation
from nhc.marks.ports.marks import TAG, mark_text
from nhc_adapters._command import Failures, Hosts, complaint, machines_of, plain, understood
from nhc_adapters.slurm.marker import (
    HOSTS,
    SQUEUE,
    TOPOLOGY,
    Places,
    SlurmMarker,
    Work,
    parse_hosts,
    parse_squeue,
    parse_topology,
)
from nhc_adapters.slurm.states import (
    SINFO,
    Identity,
    json_identities,
    names_unknown_node,
    parse_config,
    parse_json_nodes,
    parse_show,
    parse_sinfo,
    show_identities,
)

if TYPE_CHECKING:
    from nhc.marks.ports.job_control import WorkList
    from nhc.marks.ports.repair import Machine

FEW = 8
"""Up to this many nodes are asked for by name. scontrol fetches every node all the same (scontrol_print_node_list,
src/scontrol/info_node.c), and prints these alone: the text of thousands is not made and read for a few.
"""

JSON_SINCE = (23, 2)
"""The release whose scontrol has --json."""

COMMENTS = ("sinfo", "-a", "-h", "-N", "-O", "NodeList:|,Comment:|")

TOPOLOGY_EVERY = 600.0
"""Seconds for which the topology is remembered."""


class Slurm(SlurmMarker):
    """`settings`: NHC_RM_PATH (where Slurm's commands are), and those of `SlurmMarker`."""

    def _prepare(self) -> None:
        super()._prepare()
        self.command.env["SLURM_TIME_FORMAT"] = "%s"
        self._version: Optional[Tuple[int, int]] = None
        self._identities: Dict[str, Identity] = {}
        self._places: Places = {}
        self._topology_read = float("-inf")

    # Reading.

    def version(self) -> Tuple[int, int]:
        """The release of the commands, (0, 0) where they do not say."""
        if self._version is None:
            match = re.search(r"(\d+)\.(\d+)", self.command("scontrol", "--version").stdout)
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version

    def _work(self) -> Work:
        return understood("Slurm's", parse_squeue, self.command.ask(*SQUEUE))

    def _read_hosts(self) -> Hosts:
        return understood("Slurm's", parse_hosts, self.command.ask(*HOSTS))

    def _states_of(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        if names is None and not self.in_hook:
            places = self._topology()
            return [state._replace(placed=places.get(state.name, ())) for state in self._all()]
        if names is None or len(names) > FEW:
            return self._all()
        done = self.command("scontrol", "-a", "show", "node", ",".join(names))
        if done.status and not names_unknown_node(done):
            raise AdapterError(f"scontrol show node: {complaint(done)}")
        output = "".join(line for line in done.stdout.splitlines(True) if line[:5] != "Node ")
        self._identities.update(show_identities(output))
        return understood("Slurm's", parse_show, output)

    def _all(self) -> List[NodeState]:
        if self.version() >= JSON_SINCE:
            done = self.command("scontrol", "-a", "--json", "show", "nodes")
            try:
                if done.status == 0:
                    value = parse_object(done.stdout)
                    states = parse_json_nodes(value)
                    self._identities = json_identities(value)
                    return states
            except ValueError:
                pass  # a build without the JSON serializer, or an answer too long: sinfo's lines say the same
        return understood("Slurm's", parse_sinfo, self.command.ask(*SINFO))

    def _topology(self) -> Places:
        """Which leaf switch or block each node is in, read now and then; nothing if slurmctld has no topology."""
        now = time.monotonic()
        if now - self._topology_read > TOPOLOGY_EVERY:
            done = self.command(*TOPOLOGY)  # without one it fails, in words of each release's own
            self._places = understood("Slurm's", parse_topology, done.stdout if done.status == 0 else "")
            self._topology_read = now
        return self._places

    def machines(self) -> Mapping[str, Machine]:
        """Which machines stand behind the nodes that were read last, by InstanceId and NodeAddr."""
        from nhc.marks.ports.repair import Machine  # not on the path of a hook

        return {
            name: Machine(name, provider_id=instance, shown_address=address)
            for name, (instance, address) in self._identities.items()
        }

    # Marking.

    def _update(self, nodes: Sequence[str], state: str, reason: str) -> Failures:
        """In as few calls as they fit."""
        change = [*([f"State={state}"] if state else []), *([f"Reason={reason}"] if reason else [])]
        return self.try_lists(nodes, lambda folded: ("scontrol", "update", f"NodeName={folded}", *change))

    # Power.

    def repairs(self) -> FrozenSet[Operation]:
        """Slurm reboots through its RebootProgram; replacing is HyperPod's."""
        return frozenset({Operation.REBOOT, Operation.REPLACE} if self.hyperpod else {Operation.REBOOT})

    def repair(self, operation: Operation, names: Sequence[str], because: str) -> List[Applied]:
        """Have nodes rebooted once idle; drained ones come back drained, and the next healthy report resumes them.

        Not `reboot ASAP`: that drains by itself, and takes every drain away when the node is back, ours too.
        """
        if operation not in self.repairs():
            raise AdapterError(f"Slurm cannot {operation.value} a node")
        if self.hyperpod:
            failures = self._update(names, "FAIL", f"Action:{operation.value.capitalize()}")
        else:
            reason = mark_text(Mark(because, Action.REBOOT, owner=self.owner))
            failures = self.try_lists(names, lambda folded: ("scontrol", "reboot", f"reason={reason}", folded))
        return [
            Applied(node, Effect.FAILED, failures[node]) if node in failures else Applied(node, Effect.CHANGED)
            for node in dict.fromkeys(names)
        ]

    # What hooks tell people.

    def comment(self, name: str, text: str) -> bool:
        """Leave a note on a node, "" to take it away; False if another comment is there; it stays."""
        standing = self.comment_of(name)
        if standing and not standing.startswith(TAG):
            return False
        if text or standing:
            self.command.ask("scontrol", "update", f"NodeName={name}", f"Comment={text}")
        return True

    def comments(self) -> Dict[str, str]:
        """The comments of all nodes that have one. Raises AdapterError."""
        rows = (line.partition("|") for line in self.command.ask(*COMMENTS).splitlines())
        said = {name.strip(): text.strip().rstrip("|").strip() for name, _bar, text in rows}
        return {name: text for name, text in said.items() if text not in ("", "(null)")}

    def comment_of(self, name: str) -> str:
        """The comment of a node, "" for none. Raises AdapterError."""
        output = self.command.ask("scontrol", "-a", "show", "node", plain(name))
        match = re.search(r"^   Comment=(.*)", output, re.MULTILINE)
        return match[1].strip() if match else ""

    def tell_job(self, job: str, text: str) -> None:
        """Put why a job did not start where its user sees it: the job's AdminComment, and its srun or salloc.

        Raises AdapterError when neither works.
        """
        # A task of an array has a number of its own, but the last one has the array's, and with it all tasks are meant.
        output = self.command("scontrol", "show", "job", plain(job)).stdout
        task = re.search(rf"^JobId={re.escape(job)} ArrayJobId=(\d+) ArrayTaskId=(\d+) ", output, re.MULTILINE)
        name = f"{task[1]}_{task[2]}" if task else job
        noted = self.command("scontrol", "update", f"JobId={name}", f"AdminComment={text}")
        notified = self.command("scontrol", "notify", name, text)
        if noted.status and notified.status:
            raise AdapterError(f"scontrol notify {job}: {complaint(notified)}")

    def other_jobs(self, node: str, user: str, job: str) -> List[str]:
        """The user's jobs on a node's machine, everybody's where none is named, other than one."""
        whose = ("-u", plain(user)) if user else ("-t", "R,CG,S")
        nodes = ",".join(machines_of(self._read_hosts()).get(node, (plain(node),)))
        output = self.command.ask("squeue", "-h", "-a", "-o", "%A", "-w", nodes, *whose)
        return list(dict.fromkeys(number for number in output.split() if number != job))

    def work_on(self, node: str) -> WorkList:
        """The jobs on a node; as `nhc.marks.ports.job_control.ListsWork`."""
        from nhc.marks.ports import job_control  # not on the path of a hook
        from nhc_adapters.slurm import job_states

        before = os.urandom(8).hex()
        output = self.command.ask(*job_states.squeue_words(plain(node), before))
        jobs = understood("Slurm's", job_states.parse_squeue_jobs, output, before)
        return job_control.WorkList(tuple(jobs), job_states.hidden_jobs(self.config(), os.geteuid()))

    def config(self) -> Mapping[str, str]:
        """slurm.conf as slurmctld has it. Raises AdapterError."""
        return parse_config(self.command.ask("scontrol", "show", "config"))
