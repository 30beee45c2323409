"""A train's file (conf/train.toml.example): what is done, to which nodes, in which waves, and when it stops.

Bounds, quiet hours, protected nodes and approvals are those of remedy.toml: a train cannot loosen them.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import NamedTuple, Tuple

from nhc.core.limits import Limit, Mode, read_limit
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.policy.bounds import ACTIONS, REPAIRS
from nhc.marks.ports.repair import Rung
from nhc.remedy.settings import DrainSettings, RemedySettings, VerifySettings, Work

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


class Waves(NamedTuple):
    """How nodes are put in waves.

    `first` nodes are the first wave; of it not one may fail. `size` bounds the others, `per` the nodes of one wave in
    one blast radius (its kind and a limit). `pause` seconds lie between two waves.
    """

    first: int = 1
    size: Limit = Limit(share=0.05, least=4)
    per: Tuple[Tuple[str, Limit], ...] = ()
    pause: float = 600.0


class TrainPlan(NamedTuple):
    """All of a train's file. `proof` says when a node counts as healthy afterwards: its suite's newest verdict must be
    healthy and newer than the work. A node that cannot begin, or be marked, for `wait_limit` seconds is skipped.
    """

    path: str
    digest: str
    text: str
    name: str
    why: str
    nodes: Tuple[str, ...]
    groups: Tuple[str, ...]
    without: Tuple[str, ...]
    work: Tuple[Work, ...]
    waves: Waves = Waves()
    failures: Limit = Limit(share=0.05)
    drain: DrainSettings = DrainSettings()
    proof: VerifySettings = VerifySettings()
    wait_limit: float = 86400.0
    every: float = 15.0

    def over(self, site: RemedySettings) -> RemedySettings:
        """The site's settings with what the plan says of drain and proof. Bounds, hours, breaker, sources and
        repairers are the site's. Its modes and approvals are for what the loop does by itself, and its alarms too.
        """
        return site._replace(
            modes=dict.fromkeys(ACTIONS, Mode.ON), bounds=site.bounds._replace(approvals={}), drain=self.drain,
            verify=self.proof, wait_limit=self.wait_limit, not_now=self.wait_limit, stalled=math.inf,
            silence=site.silence._replace(move_work=False),
        )  # fmt: skip


def load(path: str) -> TrainPlan:
    """Read a file. Raises SettingsError."""
    return parse(settings_file.text_of(path), path)


def parse(text: str, path: str) -> TrainPlan:
    """The plan in a text. Raises SettingsError."""
    file = settings_file.parse(text, path)
    file.require("name", "why", "work")
    name = file.text("name")
    if not re.fullmatch(NAME, name):
        raise file.wrong("name", "a name of letters, digits, '.', '_' and '-', at most 63")
    proof = file.table("verify")
    plan = TrainPlan(
        path, hashlib.sha256(text.encode()).hexdigest(), text, name, file.text("why"),
        file.text_or_texts("nodes"), file.text_or_texts("groups"), file.text_or_texts("without"),
        (*_works(file), *_verifying(proof)), _waves(file.table("waves")),
        file.table("stop").converted("failures", read_limit, Limit(share=0.05)),
        _drain(file.table("drain")), _proof(proof), file.seconds("patience", 86400.0, least=1.0),
        file.seconds("every", 15.0, least=0.2),
    )  # fmt: skip
    file.finish()
    if not plan.nodes and not plan.groups:
        raise SettingsError(f"{path}: nodes: missing: name nodes, or groups such as rack=r12")
    for group in plan.groups:
        if not re.fullmatch(r"[a-z][a-z0-9_]*=.+", group):
            raise file.error("groups", f"{group!r} is no group such as rack=r12")
    return plan


def _works(file: Table) -> Tuple[Work, ...]:
    rungs = {rung.value: rung for rung in REPAIRS}
    works = []
    for table in file.list_of_tables("work"):
        argv = _command(table)
        if bool(argv) == ("rung" in table):
            raise table.error("command" if argv else "rung", "a [[work]] has either a rung or a command")
        rung = table.choice("counts-as", rungs, Rung.REBOOT) if argv else table.choice("rung", rungs, Rung.REBOOT)
        if rung is Rung.REPLACE:
            raise table.error("rung", "a train does not replace nodes: give them to the remedy loop")
        works.append(Work(rung, argv, table.seconds("takes", 1800.0, least=1.0)))
    if not works:
        raise SettingsError(f"{file.path}: work: empty: name at least one [[work]]")
    return tuple(works)


def _command(table: Table) -> Tuple[str, ...]:
    argv = table.texts("command")
    if argv and not argv[0].startswith("/"):
        raise table.error("command", f"{argv[0]!r}: the program is named by its whole path, as /usr/sbin/fwupdate")
    if any("\0" in argument for argument in argv):
        raise table.error("command", "no program takes an argument with a zero byte in it")
    return argv


def _verifying(table: Table) -> Tuple[Work, ...]:
    argv, takes = _command(table), table.seconds("command-takes", 1800.0, least=1.0)
    return (Work(Rung.RESTART_APP, argv, takes, True),) if argv else ()


def _waves(table: Table) -> Waves:
    default = Waves()
    per = tuple((kind, table.table("per").converted(kind, read_limit, Limit(1))) for kind in table.table("per").names())
    return Waves(
        table.count("first", default.first), table.converted("size", read_limit, default.size), per,
        table.seconds("pause", default.pause),
    )  # fmt: skip


def _drain(table: Table) -> DrainSettings:
    default = DrainSettings()
    return DrainSettings(
        table.seconds("deadline", default.deadline), table.choice("then", {"skip": False, "force": True}, False),
        table.flag("evict", default.evict),
    )  # fmt: skip


def _proof(table: Table) -> VerifySettings:
    default = VerifySettings()
    return VerifySettings(
        table.seconds("healthy-for", default.healthy_for), table.seconds("deadline", default.deadline, least=1.0),
        table.seconds("grace", default.grace), table.text("suite"),
    )  # fmt: skip
