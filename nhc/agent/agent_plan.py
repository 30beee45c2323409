"""Which checks the agent runs: the configuration's, as `nhc check local` reads it, and the kernel log's own."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set

from nhc.agent.check_round import allowance, key_of
from nhc.agent.problems import Board, ProblemChange
from nhc.agent.schedule import CheckTimes, Schedule
from nhc.agent.settings import AgentSettings, ProofSettings
from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.plan import BUILT_IN, Item, Plan
from nhc.core.state.store import State
from nhc.node.kernlog.source import JOURNAL
from nhc.node.planning.local import Question, load_plan, select
from nhc.node.planning.profiles import NoProfile

CONTEXT = "agent"
EVERY = 60.0
"""Cadence of a line that is not a check of ours and sets no cadence itself."""
KERNEL_LOG = Item(BUILT_IN, "check_kmsg", "check_kmsg", "the agent", ("check_kmsg",))
"""The kernel-log check that the agent runs if the configuration has none."""
PROOF = "check_gpu_proof_beside"
"""The check that the agent runs if its settings have the table [proof] and the configuration has no line for it."""
KERNEL_CHECKS = ("check_kmsg", "check_gpu_xid", "check_gpu_sxid", "check_neuron_errors")
"""Checks of findings that end by evidence alone: one good run is enough."""


class BadConfig(Exception):
    """A configuration that cannot be used: its problems, one line each."""

    def __init__(self, problems: List[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def load(settings: AgentSettings, node: str, host: Host, state: State, strict: bool) -> Plan:
    """The node's plan. With `strict`, a wrong line is an error, too. Raises BadConfig."""
    from nhc.core.language.loader import ConfigError
    from nhc.core.language.loader import load as load_config

    asked = Question(settings.config, settings.scripts, settings.profile, CONTEXT)
    try:
        if strict:
            site = site_settings()
            paths, scripts = site.paths(settings.config), site.scripts_directories(settings.scripts)
            if paths:
                load_config(paths, node, site.settings, scripts_dirs=scripts, strict=True)
    except ConfigError as error:
        raise BadConfig([problem.show() for problem in error.problems]) from None
    try:
        plan = select(load_plan(asked, node, host, state), asked)
    except ConfigError as error:
        print("\n".join(problem.show() for problem in error.problems), file=sys.stderr)
        raise BadConfig([f"{', '.join(settings.config) or site_settings().config} cannot be used"]) from None
    except NoProfile as error:
        raise BadConfig([f"profile: {error}"]) from None
    except OSError as error:
        raise BadConfig([f"profile: {settings.profile}: {error.strerror}"]) from None
    if settings.kernel_log and not any(item.name == KERNEL_LOG.name for item in plan.items):
        plan = plan._replace(items=(*plan.items, KERNEL_LOG._replace(settings=plan.settings)))
    if settings.proof and not any(item.name == PROOF for item in plan.items):
        plan = plan._replace(items=(*plan.items, _proof(settings.proof, plan)))
    if not plan.items:
        raise BadConfig([f"the configuration has no check for {node}"])
    return plan


def _proof(settings: ProofSettings, plan: Plan) -> Item:
    """The line that proves GPUs beside jobs."""
    argv = (PROOF, "-t", f"{settings.time}s", "-m", str(settings.memory))
    return Item(BUILT_IN, PROOF, " ".join(argv), "the agent", argv, plan.settings, every=settings.every)


def entries(plan: Plan) -> Dict[str, CheckTimes]:
    """Each item with its cadence: the line's, else the check's own. Imports the checks, so that rounds need not."""
    return {key_of(item): CheckTimes(key_of(item), _every(item), allowance(item, plan)) for item in plan.items}


def _every(item: Item) -> float:
    try:
        check = find(item.argv[0]) if item.kind == BUILT_IN and not item.every else None
    except ImportError:
        check = None
    return item.every or (check.every if check is not None else EVERY)


def is_kernel_log(item: Item) -> bool:
    return item.kind == BUILT_IN and item.argv[0] in KERNEL_CHECKS


def waits_for_boot(item: Item, settings: AgentSettings, uptime: float) -> bool:
    """Whether it is too early after boot to trust this check; the kernel log can be trusted at any time."""
    early = uptime < settings.boot_window and not is_kernel_log(item)
    return early and not any(fnmatchcase(item.name, pattern) for pattern in settings.boot_window_except)


def named(items: Mapping[str, Item], names: Sequence[str]) -> Set[str]:
    """The keys of the items that match the patterns; of all items if there is no pattern."""
    return {key for key, item in items.items() if not names or any(fnmatchcase(item.name, name) for name in names)}


def is_kernel_reason(reason: str) -> bool:
    """Whether only the kernel log reports it: then a passing check does not prove that it is gone."""
    from nhc.node.checks.kmsg import reason_of
    from nhc.node.kernlog.catalogue import rows
    from nhc.node.kernlog.match import NO_ROW

    if reason.startswith(("Xid", "SXid", "NeuronHasError_")):
        return True
    known = [*((row.kind, row.code) for row in rows() if row.code), *NO_ROW]
    return reason in {reason_of(kind, code) for kind, code in known}


def follows(item: Item) -> bool:
    """Whether the live kernel log gives this item's results: a check_kmsg of the default source, without rules."""
    if item.kind != BUILT_IN or item.argv[0] != "check_kmsg":
        return False
    options = arguments(item)
    if options.get("npd_rules") or options.get("since_boot"):
        return False
    where = options.get("where")
    return where is None or where.kind in ("", "kmsg")


def reads_journal(item: Item, host: Host, kmsg: bool) -> bool:
    """Whether this check reads journald for the kernel's messages. `kmsg` says whether /dev/kmsg can be read."""
    if not is_kernel_log(item) or arguments(item).get("since_boot"):
        return False
    where = arguments(item).get("where")
    if where is not None:
        return bool(where.kind == JOURNAL)
    return not kmsg and host.which("journalctl") is not None


def needles(items: Sequence[Item]) -> List[str]:
    """For each rule of the files that checks name, a text without which it does not match; "" if none is known."""
    from nhc.node.kernlog.npd_rules import load_file, needle
    from nhc.node.kernlog.source import BadRules

    texts: List[str] = []
    for path in {path for item in items for path in arguments(item).get("npd_rules", ())}:
        try:
            texts += [needle(rule.pattern.pattern[:-2]) for rule in load_file(path).rules]
        except BadRules:
            continue  # the check reports it
    return texts


def arguments(item: Item) -> Dict[str, Any]:
    """A check's arguments, empty if they do not fit."""
    check = find(item.argv[0])
    try:
        return check.parse(item.argv[1:]) if check else {}
    except BadArguments:
        return {}


class Checks:
    """The node's checks: the `plan` in force, its `items` by key, when each runs, what each found."""

    def __init__(self, schedule: Schedule, board: Board) -> None:
        self.plan = Plan(())
        self.items: Dict[str, Item] = {}
        self.schedule = schedule
        self.board = board

    def adopt(self, plan: Plan, now: float, wall: float) -> List[ProblemChange]:
        """Run this plan from now on. Returns the problems that end because their checks are gone."""
        self.plan = plan
        self.items = {key_of(item): item for item in plan.items}
        gone = self.schedule.set(entries(plan), now)
        return self.board.remove([key for key in self.board.rows if key in gone], wall)

    def complete(self) -> bool:
        """Whether every check has been judged since this start of the agent or, within this boot, the last one."""
        return all(key in self.board.rows for key in self.items)

    def hurry(self, keys: Iterable[str], when: float) -> None:
        """Run these by `when`, regardless of their cadence."""
        for key in keys:
            self.schedule.hurry(key, when)
