"""The settings for restarting jobs, read from jobs.toml (conf/jobs.toml.example). Nothing is enabled by default."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Mapping, NamedTuple, Optional, Tuple

from nhc.core.limits import Mode, Rate, read_rate
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.jobs.judge import EvidenceRules
from nhc.jobs.owner_mail import DOMAIN
from nhc.store import where

PATH = "/etc/nhc/jobs.toml"
RESEND = 60.0
"""Seconds after which a call that shows no effect is sent again: twice what a controller's `timeout` lets it take."""


class JobControllerSettings(NamedTuple):
    """One job controller: `type` as `nhc.marks.plugins` knows it, and the settings that it alone reads."""

    name: str
    type: str
    timeout: float
    settings: Mapping[str, str]


class RestartLimits(NamedTuple):
    """How often jobs are restarted. Times in seconds.

    `max_restarts` is for a job whose user names none, and the most that a user may name is `most`. `avoid` is on how
    many nodes that failed it a job is kept off. `pairs` is how long a node counts as having failed a job. A restart
    fails if the job cannot be held within `hold_timeout`. A wait of more than `stalled` is reported.
    """

    max_restarts: int = 3
    most: int = 20
    cooldown: float = 60.0
    rate: Rate = Rate(20, 3600.0)
    avoid: int = 8
    pairs: float = 7 * 86400.0
    hold_timeout: float = 900.0
    stalled: float = 3600.0


class RestartSettings(NamedTuple):
    """All of it. `ignore` are checks whose problems never count as the infrastructure's; `every` is between rounds.

    `mail_domains`: the owner of a job gets mail where their address is in one of them; none: nobody gets any.
    """

    path: str = PATH
    store: str = where.DEFAULT
    every: float = 15.0
    restart: Mode = Mode.DRY_RUN
    anew: Mode = Mode.OFF
    limits: RestartLimits = RestartLimits()
    rules: EvidenceRules = EvidenceRules()
    ignore: Tuple[str, ...] = ()
    controllers: Tuple[JobControllerSettings, ...] = ()
    mail_domains: Tuple[str, ...] = ()

    def counts(self, check: str) -> bool:
        """Whether a critical problem from this check counts as an infrastructure fault."""
        return not any(fnmatchcase(check, pattern) for pattern in self.ignore)

    def allowed(self, asked: Optional[int]) -> int:
        """How many restarts a job gets whose user asked for so many."""
        return self.limits.max_restarts if asked is None else max(0, min(asked, self.limits.most))


def load(path: str) -> RestartSettings:
    """Read a file. Raises SettingsError."""
    return _read(settings_file.load(path))


def parse(text: str, path: str = "jobs.toml") -> RestartSettings:
    """The settings in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: Table) -> RestartSettings:
    default = RestartSettings()
    actions = file.table("actions")
    modes = {mode.value: mode for mode in Mode}
    evidence = file.table("evidence")
    settings = RestartSettings(
        path=file.path,
        store=file.secret("store", where.url()),
        every=file.seconds("every", default.every, least=1.0),
        restart=actions.choice("restart", modes, default.restart),
        anew=actions.choice("make-anew", modes, default.anew),
        limits=_limits(file.table("limits")),
        rules=_rules(evidence),
        ignore=evidence.texts("ignore"),
        mail_domains=_domains(file.table("owners")),
        controllers=tuple(_controller(name, table) for name, table in file.table("controllers").tables().items()),
    )
    file.finish()
    if not settings.controllers:
        raise SettingsError(f"{file.path}: controllers: missing: who runs the jobs? [controllers.slurm], for example")
    return settings


def _domains(table: Table) -> Tuple[str, ...]:
    domains = tuple(text.lower() for text in table.texts("mail-domains"))
    for domain in domains:
        if not DOMAIN.fullmatch(domain):
            raise table.wrong("mail-domains", "domains such as example.org")
    return domains


def _limits(table: Table) -> RestartLimits:
    default = RestartLimits()
    most = table.count("most", default.most)
    return RestartLimits(
        table.count("max-restarts", min(default.max_restarts, most), most=most),
        most,
        table.seconds("cooldown", default.cooldown),
        table.converted("rate", read_rate, default.rate),
        table.count("avoid", default.avoid),
        table.seconds("pairs", default.pairs),
        table.seconds("patience", default.hold_timeout, least=60.0),
        table.seconds("stalled", default.stalled, least=1.0),
    )


def _rules(table: Table) -> EvidenceRules:
    default = EvidenceRules()
    running = table.seconds("running", 0.0, least=1.0) if "running" in table else None
    return EvidenceRules(
        table.seconds("window", default.window, least=1.0), table.seconds("settle", default.settle), running
    )


def _controller(name: str, table: Table) -> JobControllerSettings:
    known = {"type", "timeout"}
    return JobControllerSettings(
        name,
        table.text("type", name),
        table.seconds("timeout", 30.0, least=1.0, most=RESEND / 2),
        {key: table.converted(key, str, "") for key in table.names() if key not in known},
    )
