"""What a node is to be judged by: its configuration, and the profile of its type. One place for every caller.

`nhc check local`, `nhc record`, the agent and the scheduler hooks differ in where their configuration lies and in
which lines they run (`Item.contexts`); what the plan is, is the same for all.
"""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING
from nhc.core.plan import AUTO, NONE, UNLESS_NAMED
from nhc.node.planning.cache import cached, directory

if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional, Sequence

    from nhc.core.host import Host
    from nhc.core.plan import Plan
    from nhc.core.state.store import State
    from nhc.node.planning.profiles import Profile

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
