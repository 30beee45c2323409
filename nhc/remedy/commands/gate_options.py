"""What the commands of `nhc gate` share: the settings, who holds nodes, and the audit."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Callable, List, Mapping, NamedTuple, Optional

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.model import printable
from nhc.core.state.store import State
from nhc.core.system.node_name import scheduler_name
from nhc.marks.plugins import gatekeeper, lifecycle_hook
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.gates import Gatekeeper, LifecycleHook
from nhc.node.planning import suites
from nhc.remedy.gates.gate import Tell
from nhc.remedy.gates.settings import GateRules, GateSettings


class GateOptions(options.CommandOptions):
    """Which settings."""

    settings: str = options.settings_file("gate.toml", needed=True, heading="Where")


NODE = options.text("-n --node", "NAME", "The node's name. Default: as hooks find it.", heading="Where")
APPLY = options.flag("--apply/--dry-run", "Do it, or only show it (the default).", heading="What is done")
WHY = options.text("--why", "TEXT", "Why; kept with the order.", needed=True, heading="Who")


class Here(NamedTuple):
    """A node and its gate's rules."""

    node: str
    rules: GateRules
    host: Host


def here(settings: GateSettings, node: str) -> Optional[Here]:
    """The node that this runs on, None where it is in no group."""
    host = Host(memory=State())
    name = node or scheduler_name(os.environ, site_settings().settings, host.system.hostname(), host.read_or)
    rules = settings.rules(name)
    return Here(name, rules, host) if rules is not None else None


def suite_text(rules: GateRules, host: Host) -> str:
    """The text of a suite of the site's own, "" for one that comes with nhc. Raises CommandError, OSError."""
    if rules.suite == suites.OWN:
        return suites.OWN
    try:
        suite = suites.find(rules.suite, host)
    except suites.NoSuite as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    return "" if suite.shipped else suite.text


def keeper_of(settings: GateSettings) -> Optional[Gatekeeper]:
    """The gatekeeper, None if the settings name none. Raises NoAdapter, AdapterError."""
    if not settings.scheduler:
        return None
    made: Gatekeeper = gatekeeper(settings.scheduler)(settings.adapter, os.environ)
    return made


def needed_keeper(settings: GateSettings) -> Gatekeeper:
    """The gatekeeper. Raises CommandError if the settings name none, and what `keeper_of` raises."""
    keeper = keeper_of(settings)
    if keeper is None:
        raise CommandError(f'{settings.path}: scheduler = "none": there is nobody who holds nodes', EXIT_USAGE)
    return keeper


def hook_of(rules: GateRules) -> Optional[LifecycleHook]:
    """The group's lifecycle hook, None where it has none. Raises NoAdapter, AdapterError."""
    if rules.hook is None:
        return None
    try:
        made: LifecycleHook = lifecycle_hook(rules.hook.kind)(rules.hook.settings, os.environ)
    except AdapterError as error:
        raise CommandError(f"groups.{rules.name}.{error}", EXIT_USAGE) from None
    return made


def audit(settings: GateSettings, by: str, say: Callable[[str], None]) -> Tell:
    """The function that writes each change into the audit log of the store, if the settings name one."""
    if not settings.store:
        return lambda what, node, detail: None
    failed: List[str] = []

    def tell(what: str, node: str, detail: Mapping[str, object]) -> None:
        from nhc.store import audit as log
        from nhc.store.errors import StoreError
        from nhc.store.settings import fleet_store

        try:
            with closing(fleet_store(settings.store)) as store, store.write() as connection:
                log.append(connection, time.time(), by, what, node=node, detail=detail)
        except StoreError as error:
            if str(error) not in failed:
                failed.append(str(error))
                say(f"not in the audit log: {printable(str(error))}")

    return tell


def results(settings: GateSettings, suite: str, say: Callable[[str], None]) -> Callable[[str], None]:
    """Stores the report of each run: in the store if the settings name one, as for any other run of a suite.

    So one rule (`nhc.store.deep.last_conclusive`) judges the verdicts of gates, sweeps, repairs and runs by hand.
    """
    if not settings.store:
        return lambda report: None

    def keep(report: str) -> None:
        from nhc.core.render.json import parse
        from nhc.core.state.reports import suite_name
        from nhc.store.deep_delivery import to_store

        try:
            problem = to_store([parse(report)], suite_name(suite), settings.store)
        except ValueError as error:
            problem = f"the suite's report cannot be read: {error}: it is not in the store"
        if problem:
            say(printable(problem))

    return keep
