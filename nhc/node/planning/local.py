"""The plan for the node this runs on: its configuration, and the profile of its type. One place for every caller.

`nhc check local`, `nhc record`, the agent and the scheduler hooks differ in where their configuration lies and in
which lines they run (`Item.contexts`); what the plan is, is the same for all.
"""

from __future__ import annotations

import os

from nhc.core.language import trust
from nhc.core.language.site_settings import site_settings
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.plan import AUTO, BUILT_IN, DEEP, NONE, UNLESS_NAMED
from nhc.node.planning.cache import cached, directory

if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional, Sequence, Set

    from nhc.core.host import Host
    from nhc.core.language.site_settings import SiteSettings
    from nhc.core.plan import Item, Plan
    from nhc.core.state.store import State
    from nhc.node.planning.profiles import Profile

CONFIG = "/etc/nhc/nhc.conf"
SCRIPTS = "/etc/nhc/scripts"


class Question(NamedTuple):
    """By which configuration a node is judged, and which of its checks run. An empty field: the node's own, or all.

    `config` are files or directories, `scripts` directories of the site's own checks; `profile` is a name, a file,
    `auto` or `none`. `checks` are patterns of names. `context` selects the lines meant for it and those meant for all.
    """

    config: Sequence[str] = ()
    scripts: Sequence[str] = ()
    profile: str = "none"
    context: str = ""
    checks: Sequence[str] = ()
    tags: Sequence[str] = ()


def load_plan(asked: Question, node: str, host: Host, state: State, site: Optional[SiteSettings] = None) -> Plan:
    """All of the node's plan, `select` not yet applied. `site` are the node's settings where they were read just now.

    A run in a scheduler's context, which holds a job up, never asks a cloud's metadata service for the node's type.
    Raises language.loader.ConfigError, planning.profiles.NoProfile, and OSError for a profile's file.
    """
    site = site_settings() if site is None else site
    paths = site.paths(asked.config)
    plan = node_plan(
        state, host, node, paths, settings=site.settings_for(node), scripts=site.scripts_directories(asked.scripts),
        profile=asked.profile, ask=not asked.context, default=default_text, default_path=site.config,
        trust=trust.rule(site.settings, hook=False, named=bool(asked.config or asked.scripts)),
    )  # fmt: skip
    if not paths:
        plan = plan._replace(notes=(f"no {site.config}: running the built-in default checks", *plan.notes))
    return plan._replace(notes=(*plan.notes, site.note)) if site.note else plan


def default_text() -> str:
    """The configuration that suits any Linux node (nhc/core/data/default.conf), read in a way that works in a zip
    file.
    """
    from nhc.core.data import reader

    return reader.read("default.conf")


def select(plan: Plan, asked: Question) -> Plan:
    """The plan with only the items that the question selects by checks, tags and context."""
    names, tags, context = asked.checks, set(asked.tags), asked.context
    items = [item for item in plan.items if _meant(item, context)]
    if names:
        from fnmatch import fnmatchcase

        items = [item for item in items if any(fnmatchcase(item.name, name) for name in names)]
    if tags:
        items = [item for item in items if tags & _tags(item)]
    return plan._replace(items=tuple(items))


def _meant(item: Item, context: str) -> bool:
    """Whether a line is for a run in `context`, "" for a run in none. Deep checks run where they are asked for only."""
    if context == DEEP:
        return DEEP in item.contexts
    if not context:
        return item.contexts != (DEEP,)
    return not item.contexts or context in item.contexts


def _tags(item: Item) -> Set[str]:
    from nhc.core.check import find

    check = find(item.argv[0]) if item.kind == BUILT_IN else None
    return {*item.tags, *(check.tags if check else ())}


PROFILE = "NHC_PROFILE"
"""The variable by which a configuration, or the sysconfig file of a hook, names the profile: as `--profile` does."""


def node_plan(
    state: State,
    host: Host,
    node: str,
    paths: Sequence[str],
    *,
    scripts: Sequence[str] = (),
    settings: Mapping[str, str] = {},
    profile: str = AUTO,
    ask: bool = False,
    default: Optional[Callable[[], str]] = None,
    default_path: str = "",
    trust: str = "",
) -> Plan:
    """The plan of `node` by the configuration at `paths`, kept from run to run (`nhc.node.planning.cache`).

    `profile` is a name, a file, `auto` or `none`. With `auto`, and with UNLESS_NAMED where none is the default, the
    configuration or `settings` may name another one (PROFILE).
    `ask` lets a cloud's metadata service be asked what the node is, once a boot. Without paths `default` gives
    the text, until `default_path` is there. `trust` is the rule for who may write to the files
    (`nhc.core.language.trust`). Raises ConfigError, NoProfile, and OSError for a profile's file.
    """
    scripts = [path for path in scripts if os.path.isdir(path)]
    chosen = _resolved(profile, host, ask)

    def read() -> Plan:
        from nhc.core.language import loader
        from nhc.core.language.trust import judge_of
        from nhc.node.planning import profiles

        if paths or default is None:
            plan = loader.load(paths, node, settings, scripts_dirs=scripts, untrusted=judge_of(trust))
        else:
            plan = loader.load_text(default(), "the built-in default", node, settings, scripts_dirs=scripts)
            plan = plan._replace(inputs=(*plan.inputs, default_path))
        own = plan.settings.get(PROFILE, "") if profile in (AUTO, UNLESS_NAMED) else ""
        wanted = _resolved(own, host, ask) if own else chosen
        if own and plan.inputs:  # a file of the site's takes its place when it appears
            plan = plan._replace(inputs=(*plan.inputs, f"{profiles.SITE}/{own}.conf"))
        why = judge_of(trust)(wanted.path) if wanted and wanted.path else ""
        if why:
            raise loader.ConfigError([loader.Problem(wanted.path if wanted else "", 0, 0, why)])
        return profiles.add(
            plan, wanted, host, lambda text, source: loader.load_text(text, source, node, settings), not paths
        )

    where = directory([*paths, *scripts, chosen.path if chosen else ""])
    question = ("node", where, list(paths), node, list(scripts), sorted(settings.items()), chosen and chosen[:2], trust)
    plan = cached(state, question, read)
    if chosen and chosen.note and plan.settings.get(PROFILE, AUTO) == AUTO:
        return plan._replace(notes=(*plan.notes, chosen.note))
    return plan


def _resolved(name: str, host: Host, ask: bool) -> Optional[Profile]:
    if name in (NONE, UNLESS_NAMED):
        return None
    from nhc.node.planning.profiles import resolve

    return resolve(name, host, ask)
