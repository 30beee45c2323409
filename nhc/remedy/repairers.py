"""The repairers of a site: which one does a rung on a node, and the machine data that each needs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.system.service_log import failure
from nhc.marks.ports.adapter import AdapterError, SettingError
from nhc.marks.ports.repair import (
    AskLater,
    Claim,
    EvidenceSource,
    KnowsMachines,
    Machine,
    NodeRequests,
    OtherActors,
    Repairer,
    Request,
    Requests,
    Right,
    RightMissing,
    Rung,
    RunsCommands,
)
from nhc.remedy.ladder import Ability
from nhc.remedy.settings import MachineSettings, RemedySettings, RepairerSettings
from nhc.store.nodes import StoredNode
from nhc.store.rounds.service import one_item

ASK_AGAIN = 30.0
"""Seconds after which a repairer is asked again if it could not be asked and gives no time itself."""


class RepairerEntry(NamedTuple):
    """One repairer with its settings."""

    settings: RepairerSettings
    repairer: Repairer

    @property
    def name(self) -> str:
        return self.settings.name

    def serves(self, node: str, rung: Optional[Rung] = None) -> bool:
        """Whether the settings let it work on a node, at a rung."""
        if rung is not None and rung not in self.settings.rungs:
            return False
        return any(fnmatchcase(node, pattern) for pattern in self.settings.nodes)

    def ability(self, machine: Machine, rung: Rung, device: str = "", argv: Sequence[str] = ()) -> Ability:
        """Whether it can do a rung, or run a command, on a machine, in any form of its answer."""
        try:
            if argv:
                runs: object = self.repairer
                return Ability(runs.can_run(machine) if isinstance(runs, RunsCommands) else "it runs no commands")
            return Ability(self.repairer.can(machine, rung, device))
        except RightMissing as error:
            return Ability(printable(str(error)), right=error.right)
        except AskLater as error:
            return Ability(printable(str(error)), again=max(error.retry_after, 1.0))
        except Exception as error:
            return Ability(failure(error), again=ASK_AGAIN)


class Repairers:
    """All repairers, in the order of the settings: the first that can do a rung on a node does it.

    `others` are further parts that know the nodes (the adapter that marks them): who else acts, which machine has a
    name, what persons request.
    """

    def __init__(
        self, entries: Sequence[RepairerEntry], machines: Sequence[MachineSettings] = (), others: Sequence[object] = ()
    ) -> None:
        self.entries = list(entries)
        self.machines = tuple(machines)
        self.others: List[Tuple[str, OtherActors]] = [
            *((entry.name, entry.repairer) for entry in self.entries if isinstance(entry.repairer, OtherActors)),
            *(("adapter", other) for other in others if isinstance(other, OtherActors)),
        ]
        self._clusters: List[KnowsMachines] = [other for other in others if isinstance(other, KnowsMachines)]
        self._asked: List[NodeRequests] = [other for other in others if isinstance(other, NodeRequests)]
        self._known: Mapping[str, StoredNode] = {}
        self._there: Dict[str, Machine] = {}

    def learn(self, known: Mapping[str, StoredNode]) -> None:
        """The store's data on the nodes of this round, by their names."""
        self._known = known
        self.learn_machines()

    def learn_machines(self) -> None:
        """The cluster's data on the machines of the nodes that it has just shown."""
        for cluster in self._clusters:
            self._there.update(cluster.machines())

    def machine(self, node: str, boot: str = "") -> Machine:
        """The machine of a node, by the node's reports and by the cluster."""
        row, there = self._known.get(node), self._there.get(node, Machine(node))
        settings: Dict[str, str] = {}
        for machine in self.machines:
            if any(fnmatchcase(node, pattern) for pattern in machine.nodes):
                settings.update({key: value.replace("{node}", node) for key, value in machine.settings.items()})
        if row is None:
            return there._replace(boot_id=boot or there.boot_id, settings=settings)
        return Machine(
            node, _fuller(there.provider_id, row.provider_id), there.address, row.uuid or there.uuid,
            boot or row.boot_id or there.boot_id, {**row.labels, **there.labels}, settings,
            row.address or there.shown_address,
        )  # fmt: skip

    def boot(self, node: str) -> str:
        """The current boot id of a machine by the cluster; if it gives none, that of the newest report."""
        row = self._known.get(node)
        return self._there.get(node, Machine(node)).boot_id or (row.boot_id if row is not None else "")

    def node_of(self, machine: str, nodes: Collection[str], rows: Iterable[Tuple[str, StoredNode]]) -> List[str]:
        """Which of these nodes has the machine of that name: by the cluster, or by the nodes' reports.

        A provider's name is an instance's id or name, an address, or a whole provider id.
        """
        names = [name for name in nodes if name.lower() == machine.lower()]
        names += [known.node for known in self._there.values() if _is_machine(known, machine)]
        reported = (Machine(name, row.provider_id, row.address, row.uuid) for name, row in rows)
        names += [known.node for known in reported if _is_machine(known, machine)]
        return sorted({name for name in names if name in nodes})

    def requests(self, nodes: Sequence[str]) -> Tuple[Dict[str, Request], List[str]]:
        """Persons' requests on these nodes, and the requests there that make no sense.

        If the cluster reads and answers requests, it decides for its nodes; else the repairers read the labels.
        """
        requests: Dict[str, Request] = {}
        problems: List[str] = []
        for cluster in self._asked:
            asked, wrong = cluster.requests()
            requests.update(asked)
            problems += wrong
        readers = [(entry, entry.repairer) for entry in self.entries if isinstance(entry.repairer, Requests)]
        labelled = [node for node in nodes if self.machine(node).labels] if readers and not self._asked else []
        for entry, repairer in readers:
            for node in labelled:
                if node not in requests and entry.serves(node):
                    request = repairer.requested(self.machine(node))
                    if request is not None:
                        requests[node] = request
        here = set(nodes)
        return {node: request for node, request in requests.items() if node in here}, problems

    def answer(self, node: str, request: Request, text: str, returned: bool) -> str:
        """Write the outcome of a request to the cluster. Returns "", or why that failed."""
        problems: List[str] = []
        replies = []
        for cluster in self._asked:
            with one_item("the cluster", problems):
                replies.append(cluster.answer(node, request, text, returned))
        return "; ".join(answer for answer in (*replies, *problems) if answer)

    def entry(self, name: str) -> Optional[RepairerEntry]:
        """The repairer of that name, None if the settings no longer have it."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def can(self, node: str, rung: Rung, device: str, argv: Sequence[str] = ()) -> Ability:
        """Whether any repairer can do a rung, or run a command, on a node, and which one does it.

        If one repairer cannot be asked and none of the others can do it, its answer counts: it may be the one that can.
        """
        machine, refusals, unasked = self.machine(node), [], Ability()
        for entry in self.entries:
            if not entry.serves(node, None if argv else rung) or (
                argv and not isinstance(entry.repairer, RunsCommands)
            ):
                continue
            ability = entry.ability(machine, rung, device, argv)
            if not ability.why:
                return ability._replace(by=entry.name)
            refusals.append(f"{entry.name}: {ability.why}")
            unasked = unasked if unasked.again or unasked.right else ability
        nobody = "no repairer that runs commands on this node is set up (type node)" if argv else ""
        return unasked._replace(
            why="; ".join(refusals) or nobody or f"no repairer is set up for {rung.value} on this node"
        )

    def claims(self, node: str) -> str:
        """Who else acts on a node or has announced it, "" for nobody. If that cannot be asked, it counts as a claim:
        two actors on one machine are worse than a repair that waits.
        """
        machine = self.machine(node)
        lines: List[str] = []
        for name, other in self.others:
            entry = self.entry(name)
            if entry is not None and not entry.serves(node):
                continue
            try:
                claims: Sequence[Claim] = other.claims(machine)
            except Exception as error:
                return f"{name} cannot say who else repairs this node: {failure(error)}"
            lines += [f"{claim.actor}: {claim.doing} ({claim.source})" for claim in claims]
        return "; ".join(dict.fromkeys(lines))

    def evidence(self, node: str) -> List[Tuple[str, EvidenceSource]]:
        """The repairers that can collect evidence of the machine."""
        return [
            (entry.name, entry.repairer) for entry in self.entries
            if entry.serves(node) and isinstance(entry.repairer, EvidenceSource)
        ]  # fmt: skip

    def rights(self) -> List[Tuple[str, Sequence[Right], str]]:
        """The permissions of each repairer; and why it cannot be asked at all, if so."""
        rights: List[Tuple[str, Sequence[Right], str]] = []
        for entry in self.entries:
            try:
                rights.append((entry.name, list(entry.repairer.rights()), ""))
            except AdapterError as error:
                rights.append((entry.name, (), str(error)))
        return rights


def _fuller(by_cluster: str, reported: str) -> str:
    """The provider id by the cluster, or the one of the node's report if that has the same and more: Slurm's InstanceId
    is i-0abc, and aws:///us-east-1a/i-0abc has the zone as well.
    """
    return reported if reported.endswith(by_cluster) else by_cluster


def _is_machine(machine: Machine, name: str) -> bool:
    wanted, provider = name.lower(), machine.provider_id.lower()
    # HyperPod writes hyperpod-CLUSTER-INSTANCE behind the last slash.
    last = provider.rpartition("/")[2]
    known = (provider, last, machine.address.lower(), machine.shown_address.lower(), machine.uuid.lower())
    return wanted in known or last.endswith(f"-{wanted}")


def open_repairers(
    settings: RemedySettings, others: Sequence[object] = (), environ: Optional[Mapping[str, str]] = None
) -> Repairers:
    """The repairers of the settings, constructed; none is reached yet. Raises NoAdapter, AdapterError."""
    from nhc.core.plugins import NoAdapter
    from nhc.marks import plugins

    entries = []
    for repairer in settings.repairers:
        try:
            make = plugins.repairer(repairer.type)
        except NoAdapter as error:
            raise NoAdapter(f"{repairer.places['type']}repairers.{repairer.name}.type: {error}") from None
        try:
            entries.append(RepairerEntry(repairer, make(repairer.settings, environ, repairer.timeout)))
        except SettingError as error:
            place = repairer.places.get(error.key, repairer.places["type"])
            raise AdapterError(f"{place}repairers.{repairer.name}.{error}") from None
        except AdapterError as error:
            raise AdapterError(f"{repairer.places['type']}repairers.{repairer.name}: {error}") from None
    return Repairers(entries, settings.machines, others)
