"""The parts of a site's loop put together from its settings: the store, the adapter that marks, the repairers."""

from __future__ import annotations

import json
import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.core.model import Report, printable
from nhc.core.render.json import to_dict
from nhc.core.system.addresses import answers
from nhc.core.system.bounded_read import read_text
from nhc.marks import plugins
from nhc.marks.plugins import open_adapter
from nhc.marks.policy.devices import DEVICE
from nhc.marks.policy.reconcile import BadReports, load_reports
from nhc.marks.ports.adapter import (
    OWNER,
    OWNER_SETTING,
    REMEDY_OWNER,
    AdapterError,
    ConditionReport,
    ConditionReports,
    Marker,
    SettingError,
)
from nhc.marks.ports.repair import EvidenceBudget, EvidenceSource, Exhibit, Machine
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import Written
from nhc.remedy.counting import FleetGroups
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.gather import Gatherer
from nhc.remedy.proving import SuiteProver
from nhc.remedy.repairers import Repairers, open_repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RemedySettings
from nhc.store import nodes as store_nodes
from nhc.store import reports as store_reports
from nhc.store.database import Fence, Store
from nhc.store.errors import StoreError
from nhc.store.intake import Incoming, Receipt
from nhc.store.nodes import SILENT, StoredNode
from nhc.store.settings import fleet_store, store_to_read

REPORTS = 256 << 20
"""Bytes of one file of reports."""
SOURCE = "reports"
ANSWER = 1.0
"""Seconds that a machine on the cluster's own network may take to answer a TCP connection."""


class KeptReport:
    """The node's newest report as evidence of its state before it was repaired."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The report as JSON. Raises AdapterError if there is none."""
        try:
            with self.store.read() as connection:
                reports = store_nodes.latest(connection, [machine.node])
        except StoreError as error:
            raise AdapterError(str(error)) from None
        if machine.node not in reports:
            raise AdapterError("the store has no report of this node")
        content = json.dumps(to_dict(reports[machine.node]), indent=1).encode()
        yield Exhibit("report.json", "application/json", content[: budget.size], len(content) > budget.size)


class RemedySite:
    """What a site's settings name. Close it at the end."""

    def __init__(self, settings: RemedySettings, store: Store, marker: Marker, repairers: Repairers) -> None:
        self.settings, self.store, self.marker = settings, store, marker
        self.actuators = Actuators(marker, repairers)
        own: List[Tuple[str, EvidenceSource]] = [("nhc", KeptReport(store))]
        self.gatherer = Gatherer(
            store, lambda node: [*own, *repairers.evidence(node)], settings.evidence, settings.evidence_directory,
            settings.evidence_keep,
        )  # fmt: skip

        self.prover = _prover(settings, store)
        self.unread: List[str] = []
        self.notes: List[str] = []
        """Messages for a person about what the last `reports` could not read or store."""

    def controller(self, fence: Optional[Fence], publish: Callable[[Written], None], apply: bool = True) -> EpisodeLoop:
        """The loop over this site."""
        return repair_loop(
            self.store, self.settings, self.actuators, fence=fence, publish=publish, evidence=self.gatherer,
            reports=lambda: self.reports(apply), unread=lambda: self.unread, suite=self.prover, asks=self.answering,
        )  # fmt: skip

    def answering(self, nodes: Sequence[str]) -> Mapping[str, bool]:
        """Which of these nodes answer on the network at the address that the cluster or their report names."""
        port = self.settings.silence.port

        def ask(node: str) -> bool:
            machine = self.actuators.repairers.machine(node)
            return answers(machine.address or machine.shown_address or node, port, ANSWER)

        return dict(zip(nodes, self.actuators.each(ask, nodes)))

    @staticmethod
    def known(connection: Connection, fleet: FleetGroups) -> Dict[str, StoredNode]:
        """The store's data on the fleet's nodes, by the scheduler's names, as repairers need it for a machine."""
        rows = store_nodes.list_nodes(connection)
        return {fleet.names.scheduler_name(row.node): row for row in rows}

    def reports(self, apply: bool) -> Iterable[ConditionReport]:
        """Reports that are not in the store: the cluster's conditions; in a dry run also the files, which are otherwise
        stored.

        `unread` names files that could not be read, `notes` has further remarks on them. Raises AdapterError.
        """
        conditions: List[ConditionReport] = []
        self.unread, self.notes = [], []
        if self.settings.sources.reports:
            try:
                files = load_reports(self.settings.sources.reports, lambda path: read_text(path, REPORTS))
            except BadReports as error:
                raise AdapterError(str(error)) from None
            self.unread += [f"reports cannot be read: {printable(line)}" for line in files.problems]
            self.notes = [printable(line) for line in files.notes]
            if apply:
                self._take_in(files.reports)
            else:
                conditions += [ConditionReport(report) for report in files.reports]
        if isinstance(self.marker, ConditionReports):
            conditions += self.marker.condition_reports()
        return conditions

    def _take_in(self, reports: List[Report]) -> None:
        now = time.time()
        with self.store.write() as connection:
            taken = store_reports.receive(connection, [Incoming(report, SOURCE, now) for report in reports])
        refused = [f"{receipt.node}: {receipt.message}" for receipt in taken if receipt.receipt is Receipt.REFUSED]
        if refused:
            self.unread.append(printable(f"{len(refused)} reports were refused, the first of {refused[0]}"))

    def close(self) -> None:
        """End its threads and connections."""
        self.actuators.close()
        self.store.close()


def _prover(settings: RemedySettings, store: Store) -> Optional[SuiteProver]:
    """The runner of the verify step's suite, None if there is none. Raises NoAdapter, AdapterError."""
    verify = settings.verify
    if not verify.suite and settings.devices.keep != DEVICE:
        return None
    try:
        runner = plugins.runner(verify.runner)(verify.runner_settings, os.environ)
    except SettingError as error:
        raise AdapterError(f"{settings.path}: verify.{verify.runner}.{error}") from None
    return SuiteProver(store, runner, verify.suite_limit)


def open_site(settings: RemedySettings, *, look: bool = False) -> RemedySite:
    """`look`: nothing is changed, and no store is made. Raises StoreError, NoAdapter, AdapterError."""
    marker = open_marker(settings)
    repairers = open_repairers(settings, (marker,), os.environ)
    store = store_to_read(settings.store) if look else fleet_store(settings.store)
    return RemedySite(settings, store, marker, repairers)


def open_marker(settings: RemedySettings) -> Marker:
    """The adapter that knows the nodes and marks them. Raises NoAdapter, AdapterError."""
    given = {name: value for name, value in os.environ.items() if name.startswith("NHC_")}
    given["NHC_STORE"] = settings.store
    name = settings.sources.adapter
    if not name:
        raise AdapterError(f"{settings.path}: sources.adapter: missing: who knows the nodes and marks them?")
    marker = open_adapter(name, {**given, **settings.sources.settings, OWNER_SETTING: REMEDY_OWNER}, os.environ)
    if not isinstance(marker, Marker):
        raise AdapterError(f"{settings.path}: sources.adapter: {name} knows nodes but cannot mark them")
    if getattr(marker, "owner", OWNER) != REMEDY_OWNER:  # the next healthy report would put back what is not proved
        why = (
            f"does not mark as {REMEDY_OWNER}: it must take {OWNER_SETTING} and show it as `owner` (docs/extending.md)"
        )
        raise AdapterError(f"{settings.path}: sources.adapter: {name} {why}")
    return marker


def verdicts_by_cluster(settings: RemedySettings, now: float) -> Dict[str, int]:
    """How many nodes of each verdict the cluster itself shows, in the form of `nhc.store.nodes.counts`: for a fleet
    whose reports are in no store (Kubernetes' conditions). Raises NoAdapter, AdapterError.
    """
    marker = open_marker(settings)
    reports = marker.condition_reports() if isinstance(marker, ConditionReports) else []
    own = {report.report.host: report.report for report in reports}
    counts: Dict[str, int] = {}
    for state in marker.nodes():
        report = own.get(state.name)
        late = report is not None and now - report.started > settings.sources.max_age
        verdict = SILENT if state.silence is not None or late else report.verdict.name if report is not None else ""
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts
