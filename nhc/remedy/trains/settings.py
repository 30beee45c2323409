"""A train's file (conf/train.toml.example): the work, the nodes, the waves, and when the train stops.

Bounds, quiet hours, protected nodes and approvals are those of remedy.toml: a train cannot loosen them.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import NamedTuple, Optional, Tuple

from nhc.core.limits import Limit, Mode, read_limit
from nhc.core.settings import declared, settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.policy.bounds import ACTIONS, RUNGS
from nhc.marks.ports.repair import Rung
from nhc.remedy.settings import DrainSettings, RemedySettings, VerifySettings, Work

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


HEAD = """
A maintenance train: the same work on many nodes, wave by wave. `nhc train plan FILE` shows the waves; `nhc train run
FILE` shows what it would do; `--apply` does it. docs/maintenance.md explains it. Who marks, who repairs, and the bounds
are those of remedy.toml.
"""
INTROS = {
    "verify": "A node is put back when a report newer than the work is healthy and stays so.",
    "stop": "The train stops when more nodes than this have failed; a person resumes or aborts it.",
}
WORK = """
The work on each node, in this order. A rung is a repairer's: reboot, power-cycle, reload-driver, reset-device,
restart-app. A command runs as root on the node, by a repairer that runs commands ([repairers.node] in remedy.toml); it
must not reboot the node itself. It goes by the bounds, quiet hours and approvals of the rung that it counts as.
"""
REBOOT = """
[[work]]
rung = "reboot"
takes = "30m"
"""


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise ValueError(f"{text!r} is not a name of letters, digits, '.', '_' and '-', at most 63")
    return text


def _group(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*=.+", text):
        raise ValueError(f"{text!r} is no group such as rack=r12")
    return text


def _command(table: Table, key: str, _usual: object) -> Tuple[str, ...]:
    argv = table.texts(key)
    if argv and not argv[0].startswith("/"):
        raise table.error(key, f"{argv[0]!r}: the program is named by its whole path, as /usr/sbin/fwupdate")
    if any("\0" in argument for argument in argv):
        raise table.error(key, "no program takes an argument with a zero byte in it")
    return argv


@declared.settings
class WorkSettings(NamedTuple):
    """A [[work]]: a rung, or a command and the rung that it counts as."""

    command: Tuple[str, ...] = declared.own(
        "command", (), _command, form="list of texts", shown='["/usr/local/sbin/install-kernel", "6.12"]', live=True
    )
    counts_as: Rung = declared.choice("counts-as", RUNGS, Rung.REBOOT)
    rung: Optional[Rung] = declared.choice("rung", RUNGS, None, "in place of a command", shown='"reboot"')
    takes: float = declared.seconds("takes", 1800.0, "how long it may take", least=1.0)

    def checked(self, table: Table) -> WorkSettings:
        """The same. Raises SettingsError if a train cannot do this work."""
        if bool(self.command) == (self.rung is not None):
            raise table.error("command" if self.command else "rung", "a [[work]] has either a rung or a command")
        if not self.command and "counts-as" in table:
            raise table.error("counts-as", "is for a command: a rung counts as itself")
        if self.work.rung is Rung.REPLACE:
            raise table.error("rung", "a train does not replace nodes: give them to the remedy loop")
        return self

    @property
    def work(self) -> Work:
        """What is done."""
        return Work(self.counts_as if self.command else self.rung or Rung.REBOOT, self.command, self.takes)


@declared.settings
class Waves(NamedTuple):
    """How nodes are put in waves.

    `first` nodes are the first wave, in which no node may fail. `size` bounds the others, `per` the nodes of one wave
    in one blast radius (its kind and a limit). `pause` seconds lie between two waves.
    """

    first: int = declared.count("first", 1, "the first wave; if a node of it fails, the train stops; 0: no such wave")
    size: Limit = declared.converted(
        "size", read_limit, Limit(share=0.05, least=4), "of the others", show=Limit.written
    )
    per: Tuple[Tuple[str, Limit], ...] = declared.entries(
        "per", lambda table, kind: table.converted(kind, read_limit, Limit(1)),
        "How many of one blast radius may be in one wave.", form="limit", shown='rack = "2"',
        made=lambda found: tuple(found.items()),
    )  # fmt: skip
    pause: float = declared.seconds("pause", 600.0, "between two waves")


@declared.settings
class TrainPlan(NamedTuple):
    """All of a train's file. `proof` says when a node counts as healthy afterwards: its suite's newest verdict must be
    healthy and newer than the work. A node that cannot begin, or be marked, for `wait_limit` seconds is skipped.
    """

    name: str = declared.converted(
        "name", _name, declared.NEEDED, "used once: what was done to a node under it is never done again",
        shown='"kernel-6.12"',
    )  # fmt: skip
    why: str = declared.text("why", declared.NEEDED, shown='"kernel 6.12 with the new GPU driver"')
    nodes: Tuple[str, ...] = declared.texts(
        "nodes", (), "names and ranges, or patterns over the cluster's nodes", one=True, shown='["gpu[001-128]"]',
        live=True,
    )  # fmt: skip
    groups: Tuple[str, ...] = declared.texts("groups", (), 'of the store, as "rack=r12"', one=True, each=_group)
    without: Tuple[str, ...] = declared.texts("without", (), 'what is left out, as "gpu007"', one=True)
    works: Tuple[WorkSettings, ...] = declared.tables_in_order("work", WorkSettings, WORK, live=True, more=REBOOT)
    waves: Waves = declared.part("waves", Waves)
    failures: Limit = declared.converted("stop.failures", read_limit, Limit(share=0.05), show=Limit.written)
    drain: DrainSettings = declared.part(
        "drain", DrainSettings, only=("deadline", "force", "evict"), force=declared.choice(
            "then", {"skip": False, "force": True}, False, 'then: "skip" the node, or "force" the work on a busy node'
        ),
    )  # fmt: skip
    proof: VerifySettings = declared.part("verify", VerifySettings, only=("healthy_for", "deadline", "grace", "suite"))
    command: Tuple[str, ...] = declared.own(
        "verify.command", (), _command, "a command on the node that must end with 0", form="list of texts",
        shown='["/usr/bin/nhc", "check", "local"]',
    )  # fmt: skip
    command_takes: float = declared.seconds("verify.command-takes", 1800.0, "how long it may take", least=1.0)
    wait_limit: float = declared.seconds(
        "patience", 86400.0, "a node that cannot begin for so long is skipped", least=1.0
    )
    every: float = declared.seconds("every", 15.0, "the pause between two rounds", least=0.2)
    path: str = ""
    digest: str = ""
    text: str = ""

    def checked(self, table: Table) -> TrainPlan:
        """The same. Raises SettingsError if there is no node, or nothing to do."""
        if not self.works:
            raise SettingsError(f"{self.path}: work: empty: name at least one [[work]]")
        if not self.nodes and not self.groups:
            raise SettingsError(f"{self.path}: nodes: missing: name nodes, or groups such as rack=r12")
        return self

    @property
    def work(self) -> Tuple[Work, ...]:
        """The work on each node, with the command that proves it at the end."""
        proof = [Work(Rung.RESTART_APP, self.command, self.command_takes, True)] if self.command else []
        return (*(one.work for one in self.works), *proof)

    def over(self, site: RemedySettings) -> RemedySettings:
        """The site's settings with the plan's drain and proof. Bounds, hours, breaker, sources and repairers are the
        site's. The site's modes, approvals and alarms apply only to what the loop does by itself.
        """
        return site._replace(
            modes=dict.fromkeys(ACTIONS, Mode.ON), bounds=site.bounds._replace(approvals={}), drain=self.drain,
            verify=self.proof, wait_limit=self.wait_limit, not_now=self.wait_limit, stalled=math.inf,
            silence=site.silence._replace(move_work=False),
        )  # fmt: skip


FILE = declared.SettingsFile(TrainPlan, "train.toml", HEAD, intros=INTROS)


def load(path: str) -> TrainPlan:
    """Read a file. Raises SettingsError."""
    return parse(settings_file.text_of(path), path)


def parse(text: str, path: str) -> TrainPlan:
    """The plan in a text. Raises SettingsError."""
    return FILE.read(settings_file.parse(text, path), text=text, digest=hashlib.sha256(text.encode()).hexdigest())
