"""The settings for restarting jobs, read from jobs.toml (conf/jobs.toml.example). Nothing is enabled by default."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Mapping, NamedTuple, Optional, Tuple

from nhc.core.limits import Mode, Rate, read_rate
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.jobs.failure_cause import EvidenceRules
from nhc.jobs.owner_mail import DOMAIN
from nhc.marks.plugins import JOB_CONTROLLERS
from nhc.marks.ports.part_settings import PartTable, check
from nhc.store import location

PATH = "/etc/nhc/jobs.toml"
RESEND = 60.0
"""Seconds after which a call that shows no effect is sent again: twice what a controller's `timeout` lets it take."""

MODES = {mode.value: mode for mode in Mode}
HEAD = """
What `nhc job` may do by itself: /etc/nhc/jobs.toml. Every key may be left out but the controllers; what stands here
behind # is the default, save for names. docs/jobs.md explains how to enable it step by step.
"""
INTROS = {
    "actions": 'Each action apart: "on"; "dry-run" says what it would do and does not; "off" looks and says nothing.',
    "owners": "The owner of a watched job gets the three lines of `nhc job why` by mail where a node failed his run, "
    "or another cause is sure. Only addresses in these domains get any; a user's name alone is one of the first. "
    "`nhc serve notices` sends it (owners in its [jobs]).",
}
OWN = """
partitions = "train,gpu"               # restart every batch job of these partitions, whether it asked for it or not
path = "/opt/slurm/bin"
conf = "/etc/slurm/slurm.conf"
""".strip()


def _domain(text: str) -> str:
    """A mail domain. Raises ValueError."""
    if not DOMAIN.fullmatch(text.lower()):
        raise ValueError(f"{text!r} is not a domain such as example.org")
    return text.lower()


@declared.settings
class JobControllerSettings(NamedTuple):
    """One job controller: `type` as `nhc.marks.plugins` knows it, and the settings that it alone reads."""

    name: str
    type: str = declared.text("type", "", "who runs the jobs, where that is not the table's name", shown='"slurm"')
    timeout: float = declared.seconds("timeout", 30.0, "of one call", least=1.0, most=RESEND / 2)
    settings: Mapping[str, str] = declared.rest(shown=OWN)

    def checked(self, _table: Table) -> JobControllerSettings:
        """The same with its type."""
        return self if self.type else self._replace(type=self.name)


@declared.settings
class RestartLimits(NamedTuple):
    """How often jobs are restarted. Times in seconds.

    `max_restarts` is for a job whose user names none, and the most that a user may name is `most`. `avoid` is on how
    many nodes that failed it a job is kept off. `pairs` is how long a node counts as having failed a job. A restart
    fails if the job cannot be held within `hold_timeout`. A wait of more than `stalled` is reported.
    """

    max_restarts: int = declared.count("max-restarts", 3, "for a job whose user names no number")
    most: int = declared.count("most", 20, "the most that a user may name")
    cooldown: float = declared.seconds("cooldown", 60.0, "between two restarts of one job")
    rate: Rate = declared.converted("rate", read_rate, Rate(20, 3600.0), "of all jobs together", show=Rate.written)
    avoid: int = declared.count("avoid", 8, "on how many of the nodes that failed it a job is kept off")
    pairs: float = declared.seconds("pairs", 7 * 86400.0, "how long a node counts as having failed a job")
    hold_timeout: float = declared.seconds(
        "patience", 900.0, "how long a job may refuse to be held until its restart fails", least=60.0
    )
    stalled: float = declared.seconds("stalled", 3600.0, "after how long a wait is said to be too long", least=1.0)

    def checked(self, table: Table) -> RestartLimits:
        """The same, where a job without a number gets no more than a user may name. Raises SettingsError."""
        if self.max_restarts <= self.most:
            return self
        if "max-restarts" in table:
            raise table.wrong("max-restarts", f"{self.most} or less, which is the most that a user may name")
        return self._replace(max_restarts=self.most)


@declared.settings
class RestartSettings(NamedTuple):
    """All of it. `ignore` are checks whose problems never count as the infrastructure's; `every` is between rounds.

    `mail_domains`: the owner of a job gets mail where their address is in one of them; none: nobody gets any.
    """

    path: str = PATH
    store: str = declared.secret(
        "store", location.DEFAULT,
        "Where reports, problems, jobs and the audit are kept: the same store as that of `nhc serve remedy` and `nhc "
        "serve server`. Default: $NHC_STORE, else store.toml's.", absent=location.url,
    )  # fmt: skip
    every: float = declared.seconds(
        "every", 15.0, "The pause between two rounds. Slurm forgets a job MinJobAge (300 s) after its end.", least=1.0
    )
    restart: Mode = declared.choice("actions.restart", MODES, Mode.DRY_RUN)
    anew: Mode = declared.choice(
        "actions.make-anew", MODES, Mode.OFF,
        "A job that ended for good (a failed Job in Kubernetes) is deleted and made anew, under its name. Its pods' "
        "logs go.",
    )  # fmt: skip
    limits: RestartLimits = declared.part("limits", RestartLimits)
    rules: EvidenceRules = declared.part("evidence", EvidenceRules)
    ignore: Tuple[str, ...] = declared.texts(
        "evidence.ignore", (), "checks whose problems jobs cause themselves: they never count",
        shown='["check_ps_*", "check_fs_*"]',
    )  # fmt: skip
    controllers: Tuple[JobControllerSettings, ...] = declared.tables(
        "controllers", JobControllerSettings, "Who runs the jobs.", sample="slurm", live=True
    )
    mail_domains: Tuple[str, ...] = declared.texts("owners.mail-domains", (), each=_domain, shown='["example.org"]')

    def checked(self, table: Table) -> RestartSettings:
        """The same. Raises SettingsError if no controller runs the jobs."""
        if not self.controllers:
            raise SettingsError(
                f"{table.path}: controllers: missing: who runs the jobs? [controllers.slurm], for example"
            )
        return self

    def counts(self, check: str) -> bool:
        """Whether a critical problem from this check counts as an infrastructure fault."""
        return not any(fnmatchcase(check, pattern) for pattern in self.ignore)

    def allowed(self, asked: Optional[int]) -> int:
        """How many restarts a job gets whose user asked for so many."""
        return self.limits.max_restarts if asked is None else max(0, min(asked, self.limits.most))


def parts(settings: RestartSettings, file: Table) -> None:
    """Judge what belongs to who runs the jobs. Raises SettingsError."""
    check(file, (PartTable(f"controllers.{one.name}", JOB_CONTROLLERS, one.type, one.settings)
                 for one in settings.controllers))  # fmt: skip


FILE = declared.SettingsFile(RestartSettings, PATH, HEAD, intros=INTROS, also=parts)
load, parse = FILE.load, FILE.parse
