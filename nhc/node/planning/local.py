"""The plan for the node this runs on: what `nhc check local`, `nhc record` and the agent ask for."""

from __future__ import annotations

from nhc.core.language import trust
from nhc.core.language.site_settings import site_settings
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.plan import BUILT_IN, DEEP
from nhc.node.planning.node_plan import node_plan

if TYPE_CHECKING:
    from typing import Optional, Sequence, Set

    from nhc.core.host import Host
    from nhc.core.language.site_settings import SiteSettings
    from nhc.core.plan import Item, Plan
    from nhc.core.state.store import State

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
        state, host, node, paths, settings=site.of_node(node), scripts=site.scripts_directories(asked.scripts),
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
