"""`nhc doctor remedy`: find what would prevent the loop from working."""

from __future__ import annotations

import os
import time
from typing import List, NamedTuple, Optional, Sequence

from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show, show_table, when
from nhc.core.language.loader import without_lines
from nhc.core.language.site_settings import site_settings
from nhc.core.limits import Mode
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.marks.policy.bounds import MARK, REPAIRS
from nhc.marks.policy.devices import DEVICE
from nhc.marks.policy.reconcile import where_from
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import HasRights
from nhc.remedy import counting
from nhc.remedy.commands.remedy_options import ShownRemedyOptions, candidate, site_of
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.repairers import RepairerEntry
from nhc.remedy.settings import RemedySettings
from nhc.store import holds, nodes
from nhc.store.errors import StoreError
from nhc.store.reports import INTO_THE_STORE

WALKED = 3
"""How many nodes of a repairer are tried until it would act on one."""


class Examined(NamedTuple):
    """One thing that was checked. `ok` is None if it cannot be tried without doing it."""

    what: str
    ok: Optional[bool]
    message: str


@click_command
def command(args: ShownRemedyOptions) -> int:
    """Try the store, the adapter, every repairer's rights, and each repairer on one real node up to its call.

    Nothing is changed.

    Exit status: 0 nothing is amiss, 1 something is, 2 wrong usage or settings, 3 the store cannot be used.
    """
    with site_of(args.settings, look=True) as site:
        examined = examine(site, site.settings)
    if args.form == "json":
        show([row._asdict() for row in examined])
    else:
        outcomes = {True: "ok", False: "FAILED", None: "not tried"}
        show_table([[outcomes[row.ok], printable(row.what), printable(row.message)] for row in examined])
    return 1 if any(row.ok is False for row in examined) else 0


def examine(site: RemedySite, settings: RemedySettings) -> List[Examined]:
    """Everything that is checked."""
    examined = [
        _store(site),
        _adapter(site),
        *_adapter_rights(site),
        *_leader_rights(settings),
        *_groups(site),
        *_lines(site),
        *_reports(site, settings),
    ]
    for name, rights, error in site.actuators.repairers.rights():
        if error:
            examined.append(Examined(f"repairer {name}", False, error))
        examined += [Examined(f"repairer {name}: {right.name}", right.granted, right.message) for right in rights]
    examined += _walks(site)
    examined += _suite_rights(site, settings)
    examined += _devices(site)
    served = {rung for entry in site.actuators.repairers.entries for rung in entry.settings.rungs}
    for rung in REPAIRS:
        mode = settings.mode(rung.value)
        if mode is Mode.ON and rung not in served:
            examined.append(Examined(f"rung {rung.value}", False, "enabled, but no repairer is set up for it"))
    if settings.mode(MARK) is not Mode.ON:
        examined.append(Examined("actions", None, "marking is not enabled: nothing will be done (dry run)"))
    examined.append(_evidence(settings))
    return examined


def _devices(site: RemedySite) -> List[Examined]:
    """Whether single devices can be taken out and proved, if the settings want that."""
    if site.settings.devices.keep != DEVICE:
        return []
    examined = []
    try:
        count = len(site.actuators.device_states())
        examined.append(Examined("devices", bool(count), f"{count} can be taken out alone; else their nodes are"))
    except AdapterError as error:
        examined.append(Examined("devices", False, str(error)))
    return examined


def _store(site: RemedySite) -> Examined:
    if site.store.stands_in is not None:
        file = site.store.name.partition("sqlite:///")[2]
        place = _above(os.path.dirname(file))
        if file and not os.access(place, os.W_OK):
            return Examined("store", False, f"{site.store.name} is not there yet, and {place} cannot be written to")
        return Examined(
            "store", None, f"{site.store.name} is not there yet: nhc serve remedy and nhc store migrate make it"
        )
    try:
        with site.store.write():
            pass
    except StoreError as error:
        return Examined("store", False, str(error))
    return Examined("store", True, site.store.name)


def _adapter(site: RemedySite) -> Examined:
    name = f"adapter {site.settings.sources.adapter}"
    try:
        nodes = site.marker.nodes()
    except AdapterError as error:
        return Examined(name, False, str(error))
    return Examined(name, bool(nodes), f"knows {len(nodes)} nodes")


def _walks(site: RemedySite) -> List[Examined]:
    """Each repairer on one real node, as far as right before its call."""
    try:
        states = site.marker.nodes()
        site.actuators.repairers.learn_machines()
        with site.store.read() as connection:
            fleet = counting.fleet(connection, states)
            rows = nodes.list_nodes(connection, sorted(fleet.names.stored(state.name) for state in states))
    except (AdapterError, StoreError):
        return []  # which is said of the adapter and the store
    site.actuators.repairers.learn({fleet.names.scheduler_name(row.node): row for row in rows})
    return [_walk(site, entry, [state.name for state in states]) for entry in site.actuators.repairers.entries]


def _walk(site: RemedySite, entry: RepairerEntry, names: Sequence[str]) -> Examined:
    """Whether a repairer would act on one of its nodes, and on which; if not, what is missing on the first."""
    what = f"repairer {entry.name} on a node"
    rungs = [
        rung for rung in REPAIRS if rung in entry.settings.rungs and site.settings.mode(rung.value) is not Mode.OFF
    ]
    first = ""
    for node in [name for name in names if entry.serves(name)][:WALKED]:
        machine = site.actuators.repairers.machine(node)
        abilities = [(rung.value, entry.ability(machine, rung).why) for rung in rungs]
        able = ", ".join(rung for rung, why in abilities if not why)
        missing = "; ".join(dict.fromkeys(why for _rung, why in abilities if why))
        if able:
            looked = site.actuators.look_by(entry, node)
            if looked.sighting is not None:
                seen = " ".join(filter(None, (looked.sighting.instance, looked.sighting.power)))
                return Examined(what, True, f"{node} ({seen}): would {able}")
            missing = f"would {able}, but {looked.unseen or f'somebody else acts on it: {looked.claims}'}"
        first = first or f"{node}: {missing}"
    return Examined(what, False, first or "none of the cluster's nodes is one that it is set up for (nodes)")


def _groups(site: RemedySite) -> List[Examined]:
    """Bounds and holds of groups without nodes."""
    try:
        states = site.marker.nodes()
        with site.store.read() as connection:
            in_force = holds.in_force(connection, time.time())
            lines = counting.unmatched(site.settings.bounds, in_force, counting.fleet(connection, states))
    except (AdapterError, StoreError):
        return []  # which is said of the adapter and the store
    return [Examined("groups", False, line) for line in lines]


def _lines(site: RemedySite) -> List[Examined]:
    """Nodes that no line of this machine's nhc.conf matches, if it has one: the nodes may have another file."""
    own = site_settings()
    paths = own.paths(())
    try:
        names = [state.name for state in site.marker.nodes()] if paths else []
    except AdapterError:
        return []  # which is said of the adapter
    if not names:
        return []
    missing = without_lines(paths, names, own.settings, own.scripts_directories(()))
    if not missing:
        return [Examined("checks", True, f"{own.config} has a line for each node")]
    nodes = printable(fold(missing), 300)
    return [Examined("checks", None, f"no line of this machine's {own.config} is for {nodes}")]


def _where_from(settings: RemedySettings) -> str:
    """By which ways the loop gets reports."""
    files = [where_from(settings.sources.reports)] if settings.sources.reports else []
    return ", ".join([INTO_THE_STORE, *files, f"the adapter {settings.sources.adapter}"])


def _reports(site: RemedySite, settings: RemedySettings) -> List[Examined]:
    """Nodes that report under a name that the adapter does not know: nothing is ever done for them. A store may serve
    several clusters, so this is certainly wrong only if no node of this cluster reports.
    """
    since = time.time() - site.settings.sources.max_age
    try:
        states = site.marker.nodes()
        told = {report.host for report, *_ in site.reports(False) if report.started > since}
        unread = [Examined("reports", False, line) for line in site.unread]
        unread += [Examined("reports", None, line) for line in site.notes if told]
        with site.store.read() as connection:
            names = counting.fleet(connection, states).names
            rows = nodes.list_nodes(connection)
    except (AdapterError, StoreError):
        return []  # which is said of the adapter and the store
    told |= {row.node for row in rows if row.reported_at is not None and row.reported_at > since}
    if not told:
        newest = max((row.reported_at for row in rows if row.reported_at is not None), default=None)
        heard = f"the newest report is from {when(newest)}" if newest is not None else "No node has reported yet"
        return [*unread, Examined("reports", None, f"{heard}; reports come from {_where_from(settings)}")]
    known, reporting = {state.name for state in states}, {names.scheduler_name(name) for name in told}
    strange = sorted(reporting - known)
    if not strange:
        return unread
    message = f"nothing is done for {printable(fold(strange), 300)}: {site.settings.sources.adapter} has no such node"
    return [*unread, Examined("reports", None if reporting & known else False, message)]


def _suite_rights(site: RemedySite, settings: RemedySettings) -> List[Examined]:
    name = f"verify.{settings.verify.runner}"
    try:
        rights = site.prover.rights() if site.prover is not None else ()
    except AdapterError as error:
        return [Examined(name, False, str(error))]
    return [Examined(f"{name}: {right.name}", right.granted, right.message) for right in rights]


def _adapter_rights(site: RemedySite) -> List[Examined]:
    """The permissions that an adapter knows of; none where it does not say."""
    name, marker = f"adapter {site.settings.sources.adapter}", site.marker
    if not isinstance(marker, HasRights):
        return []
    try:
        return [Examined(f"{name}: {right.name}", right.granted, right.message) for right in marker.rights()]
    except AdapterError as error:
        return [Examined(f"{name}: rights", False, str(error))]


def _leader_rights(settings: RemedySettings) -> List[Examined]:
    """The permissions that it takes to lead; none where the store's own lock decides."""
    name = f"leader {settings.leader.by}"
    made = candidate(settings.leader, "")
    if made is None:
        return []
    try:
        rights = made.rights() if isinstance(made, HasRights) else ()
        return [Examined(f"{name}: {right.name}", right.granted, right.message) for right in rights]
    except AdapterError as error:
        return [Examined(f"{name}: rights", False, str(error))]
    finally:
        made.release()


def _above(path: str) -> str:
    """A directory, or the nearest one above it that is there."""
    while path not in ("", "/") and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path or "/"


def _evidence(settings: RemedySettings) -> Examined:
    """The directory, or the nearest one above it, can be written to."""
    path = _above(settings.evidence_directory)
    writable = os.access(path, os.W_OK)
    return Examined("evidence", writable, settings.evidence_directory if writable else f"{path}: cannot be written to")
