"""Reads remedy.toml (conf/remedy.toml.example) into `nhc.remedy.settings.RemedySettings`.

Nothing is enabled unless the file says so, action by action. Every mistake is one line with the file, the line and the
key (`nhc.core.settings`).
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from nhc.core.limits import Mode, read_limit
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.plugins import SUITE_RUNNERS
from nhc.marks.policy import policy_file
from nhc.marks.policy.bounds import ACTIONS, FLEET, MARK, REPAIRS, Bounds
from nhc.marks.policy.bounds_file import OWN, read_bounds
from nhc.marks.policy.breaker import BreakerSettings
from nhc.marks.policy.devices import read_devices
from nhc.marks.ports.repair import EvidenceBudget, Rung
from nhc.remedy.drill_settings import read as read_drill
from nhc.remedy.reasons import DEFAULTS, ReasonSettings
from nhc.remedy.settings import (
    HOUR,
    DrainSettings,
    EffectTimeouts,
    LeaderSettings,
    MachineSettings,
    RemedySettings,
    RepairerSettings,
    Sources,
    VerifySettings,
)
from nhc.remedy.silence import SilenceSettings
from nhc.store import where

PATH = "/etc/nhc/remedy.toml"
IGNORE = "ignore"
"""In `[reasons.NAME] begin`: such a fault counts for nothing."""


def load(path: str) -> RemedySettings:
    """Read a file. Raises SettingsError."""
    return parse(settings_file.text_of(path), path)


def evidence_of_store(url: str) -> str:
    """The directory of evidence of the loop that uses this store, "" where this machine has no such loop's settings."""
    settings = load(PATH) if os.path.exists(PATH) else None
    return settings.evidence_directory if settings is not None and settings.store == url else ""


def parse(text: str, path: str = "remedy.toml") -> RemedySettings:
    """The settings in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: Table) -> RemedySettings:
    default = RemedySettings()
    evidence = file.table("evidence")
    limits = file.table("limits")
    approval = file.table("approval")
    settings = default._replace(
        path=file.path,
        store=file.text("store", where.url()),
        every=file.seconds("every", default.every, least=1.0),
        modes=_modes(file.table("actions")),
        bounds=_bounds(file, limits, approval),
        breaker=_breaker(file.table("breaker")),
        sources=_sources(file.table("sources")),
        reasons=_reasons(file.table("reasons")),
        silence=_silence(file.table("silence")),
        drain=_drain(file.table("drain")),
        effect=_effect(file.table("effect")),
        verify=_verify(file.table("verify")),
        evidence=EvidenceBudget(
            evidence.size("size", default.evidence.size, least=1),
            evidence.seconds("time", default.evidence.seconds, least=1.0),
        ),
        evidence_directory=evidence.text("directory", default.evidence_directory),
        evidence_keep=evidence.seconds("keep", default.evidence_keep, least=HOUR),
        evidence_first=evidence.flag("before-mark", default.evidence_first),
        leave_alone=limits.seconds("leave-alone", default.leave_alone),
        stalled=limits.seconds("stalled", default.stalled, least=1.0),
        wait_limit=limits.seconds("patience", default.wait_limit, least=1.0),
        not_now=limits.seconds("not-now", default.not_now, least=1.0),
        approval_expires=approval.seconds("expires", default.approval_expires, least=60.0),
        repairers=_repairers(file.table("repairers")),
        machines=_machines(file.list_of_tables("machines")),
        leader=_leader(file.table("leader")),
        drill=read_drill(file.table("drill")),
        devices=read_devices(file),
    )
    file.finish()
    return settings


def _modes(table: Table) -> Dict[str, Mode]:
    modes = {mode.value: mode for mode in Mode}
    allowed = {action: table.choice(action, modes, Mode.DRY_RUN) for action in ACTIONS}
    if allowed[MARK] is not Mode.ON and Mode.ON in allowed.values():
        enabled = next(action for action, mode in allowed.items() if mode is Mode.ON)
        raise table.error(enabled, 'a repair needs a marked node: mark = "on" as well')
    return allowed


def _bounds(file: Table, limits: Table, approval: Table) -> Bounds:
    default = Bounds()
    if "policy" in file:
        path = os.path.join(os.path.dirname(file.path), file.text("policy"))
        for table, key in [*((file, key) for key in OWN), (limits, "attempts"), (limits, "window")]:
            if key in table:
                raise table.error(key, f"is read from {path}, which `policy` names: write it there")
        bounds, source = policy_file.load(path, default).policy.bounds, path
    else:
        bounds, source = read_bounds(file, default), file.path
    if bounds.radii[FLEET].out is None:
        raise SettingsError(f"{source}: bounds.fleet.out: a fleet without a bound on nodes out is refused")
    return bounds._replace(
        first_run=limits.converted("first-run", read_limit, default.first_run),
        first_run_for=limits.seconds("first-run-for", default.first_run_for),
        approvals={rung: approval.count(rung.value, default.approvals.get(rung, 0), most=2) for rung in REPAIRS},
    )


def _breaker(table: Table) -> BreakerSettings:
    default = BreakerSettings()
    return BreakerSettings(
        table.converted("faults", read_limit, default.faults),
        table.seconds("within", default.within, least=1.0),
        table.count("failures", default.failures),
        table.converted("blind", read_limit, default.blind),
    )


def _sources(table: Table) -> Sources:
    default = Sources()
    settings = table.table("settings")
    return Sources(
        table.text("adapter"),
        {name: settings.text(name) for name in settings.names()},
        table.text_or_texts("reports"),
        table.seconds("max-age", default.max_age, least=1.0),
        table.seconds("settle", default.settle),
    )


def _reasons(table: Table) -> Tuple[ReasonSettings, ...]:
    default = {reason.pattern: reason for reason in DEFAULTS}
    rungs: Dict[str, Optional[Rung]] = {rung.value: rung for rung in Rung}
    reasons = []
    for pattern, section in table.tables().items():
        before = default.pop(pattern, ReasonSettings(pattern))
        begin = section.choice("begin", {**rungs, IGNORE: None}, before.begin)
        ignored = "begin" in section and begin is None
        settle = section.seconds("settle", 0.0) if "settle" in section else before.settle
        reasons.append(ReasonSettings(pattern, settle, begin, ignored))
    return (*reasons, *default.values())


def _silence(table: Table) -> SilenceSettings:
    default = SilenceSettings()
    return SilenceSettings(
        table.converted("together", read_limit, default.limit),
        table.share("share", default.share),
        table.seconds("within", default.within, least=1.0),
        table.flag("power-on", default.power_on),
        table.flag("move-work", default.move_work),
        table.count("port", default.port, 0, 65535),
    )


def _drain(table: Table) -> DrainSettings:
    default = DrainSettings()
    idle = table.choices("idle", {rung.value: rung for rung in REPAIRS}, sorted(default.rungs))
    return DrainSettings(
        table.seconds("deadline", default.deadline),
        table.choice("then", {"escalate": False, "force": True}, default.force),
        table.flag("evict", default.evict),
        frozenset(idle),
    )


def _effect(table: Table) -> EffectTimeouts:
    default = EffectTimeouts().seconds
    return EffectTimeouts({rung: table.seconds(rung.value, default[rung], least=1.0) for rung in REPAIRS})


def _verify(table: Table) -> VerifySettings:
    default = VerifySettings()
    runners = [name for name in SUITE_RUNNERS.names() if name in table]
    if len(runners) > 1:
        raise table.error(runners[0], f"stands beside verify.{runners[1]}: a suite is run by one of them, not by both")
    runner = runners[0] if runners else "ssh"
    own = table.table(runner)
    settings = VerifySettings(
        table.seconds("healthy-for", default.healthy_for),
        table.seconds("deadline", default.deadline, least=1.0),
        table.seconds("grace", default.grace),
        table.text("suite"),
        table.seconds("suite-limit", default.suite_limit, least=1.0),
        runner,
        {key: own.converted(key, str, "") for key in own.names()},
    )
    if settings.suite and settings.suite_limit > settings.deadline:
        raise table.error("suite-limit", "is longer than verify.deadline, which gives the suite up")
    return settings


def _repairers(table: Table) -> Tuple[RepairerSettings, ...]:
    repairers = []
    for name, section in table.tables().items():
        own = {"type", "nodes", "rungs", "timeout"}
        given = [key for key in section.names() if key not in own]
        repairers.append(
            RepairerSettings(
                name,
                section.text("type", name),
                section.text_or_texts("nodes", ("*",)),
                frozenset(section.choices("rungs", {rung.value: rung for rung in REPAIRS}, REPAIRS)),
                section.seconds("timeout", 30.0, least=1.0),
                {key: section.converted(key, str, "") for key in given},
                {key: section.place(key) for key in ("type", *given)},
            )
        )
    return tuple(repairers)


def _leader(table: Table) -> LeaderSettings:
    own = {name: table.text(name) for name in table.names() if name != "by"}
    by = table.text("by", "store")
    if by == "store" and own:
        raise table.error(next(iter(own)), "no such setting where the store decides")
    return LeaderSettings(by, own)


def _machines(tables: List[Table]) -> Tuple[MachineSettings, ...]:
    machines = []
    for section in tables:
        section.require("nodes")
        nodes = section.text_or_texts("nodes")
        machines.append(MachineSettings(nodes, {key: section.text(key) for key in section.names() if key != "nodes"}))
    return tuple(machines)
