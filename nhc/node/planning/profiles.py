"""Profiles: what a node of a type should have, as fragments of the configuration language.

One file a type in conf/profiles; all of them together are nhc/core/data/profiles.conf, so that they travel with the
package and in nhc.pyz (`python -m nhc.node.commands.profile` writes it, a test holds it to the files). A site's own
/etc/nhc/profiles/NAME.conf takes the place of one that comes with nhc, or adds a type.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.plan import AUTO, NONE, UNLESS_NAMED, Item, Plan

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional


SITE = "/etc/nhc/profiles"
BUNDLE = "profiles.conf"
MARK = "#@ "
"""Begins the line that names the profile that follows, in the bundle."""

AROUND_A_JOB = frozenset([
    "check_efa_devices", "check_gpu_count", "check_gpu_ecc", "check_gpu_fabric", "check_gpu_lost",
    "check_gpu_retired_pages", "check_gpu_row_remap", "check_gpu_xgmi", "check_gpu_xid", "check_hw_cpuinfo",
    "check_hw_physmem", "check_ib_ports", "check_ib_state", "check_nvlink_status", "check_nvme_count",
])  # fmt: skip
"""What of a profile a prolog and an epilog run as well: whether the parts are there and sound, by a look at them.

The rest watches something over time (error rates, flapping, throttling), is the site's choice rather than a fault
(swap) or asks a service: it is the health check's and the agent's.
"""
WATCHED = ("healthcheck", "agent")


class NoProfile(ValueError):
    """There is no profile of that name; the text says what there is instead."""


class Profile(NamedTuple):
    """A profile that was chosen.

    `path` is its file, "" for one that comes with nhc; a chosen one without `name` has no lines, only a `note` that
    the node's type is not known. `why` says for a person what it was chosen by.
    """

    name: str
    path: str = ""
    why: str = ""
    note: str = ""


def resolve(name: str, host: Host, ask: bool = False) -> Optional[Profile]:
    """The profile that `--profile NAME` means on this node: a name, a file, `auto` or `none`.

    None for no profile: `none`, or `auto` on a node without accelerators and RDMA devices. With `auto` a cloud's
    metadata service is contacted only with `ask`, and once a boot. Raises NoProfile.
    """
    if name in (NONE, UNLESS_NAMED):
        return None
    if name == AUTO:
        return _automatic(host, ask)
    if "/" in name or name.endswith(".conf"):
        if not host.ours.exists(name):
            raise NoProfile(f"{name}: no such file")
        return Profile(name.rsplit("/", 1)[-1].rsplit(".conf", 1)[0], name, "asked for")
    profile = _find(host, name.lower())
    if profile is None:
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), names(host), 1)
        raise NoProfile(f"there is no profile {name!r}" + (f" (did you mean {near[0]}?)" if near else ""))
    return profile._replace(why="asked for")


def _automatic(host: Host, ask: bool) -> Optional[Profile]:
    if not _worth_a_look(host):
        return None
    from nhc.node.planning import node_type

    if not node_type.worth_a_look(host):
        return None
    node, is_new = node_type.known(host, ask)
    for index, name in enumerate(node.names):
        profile = _find(host, name)
        if profile is not None:
            exact = index == 0 and not node.problem
            return profile._replace(why=node.why, note="" if exact or not is_new else _unknown(node, profile.name))
    return Profile("", note=_unknown(node, "") if is_new else "")


def _worth_a_look(host: Host) -> bool:
    """Whether the node may have an accelerator or an RDMA device; one read where it has none."""
    try:
        if host.listdir("/sys/class/infiniband"):
            return True
    except OSError:
        pass
    try:
        text = host.read("/proc/bus/pci/devices")
    except OSError:
        return True  # no such file in some containers: nhc.node.planning.node_type looks closer
    from nhc.node.facts.pci_index import may_accelerate, parse_index

    return any(map(may_accelerate, parse_index(text)))


def _unknown(node: Any, instead: str) -> str:
    """The note on a node whose type has no profile of its own."""
    what = " ".join(part for part in (node.cloud, node.type) if part) or "this machine"
    because = f" ({node.problem})" if node.problem else ""
    if instead:
        return f"node type: no profile for {what}{because}; {instead} holds for its accelerators"
    return f"node type: no profile for {what}{because}; judged by the configuration alone (see nhc list profiles)"


def _find(host: Host, name: str) -> Optional[Profile]:
    """The profile of that name, a site's own first."""
    if "/" in name:
        return None
    path = f"{SITE}/{name}.conf"
    if host.ours.exists(path):
        return Profile(name, path)
    return Profile(name) if f"\n{MARK}{name}\n" in f"\n{_bundle()}" else None


def _bundle() -> str:
    from nhc.core.data.reader import read

    return read(BUNDLE)


def names(host: Host) -> List[str]:
    """Every profile there is, the site's own included."""
    shipped = {line[len(MARK) :] for line in _bundle().split("\n") if line.startswith(MARK)}
    try:
        own = {name[: -len(".conf")] for name in host.ours.listdir(SITE) if name.endswith(".conf") and name[0] != "."}
    except OSError:
        own = set()
    return sorted(shipped | own)


def text_of(profile: Profile, host: Host) -> str:
    """A profile's lines. Raises OSError if its file cannot be read."""
    if profile.path:
        return host.ours.read(profile.path)
    _, _, rest = f"\n{_bundle()}".partition(f"\n{MARK}{profile.name}\n")
    return rest.partition(f"\n{MARK}")[0].rstrip("\n") + "\n"


def join(fragments: Dict[str, str]) -> str:
    """The bundle of all profiles by their names."""
    return "".join(f"{MARK}{name}\n{text.rstrip()}\n\n" for name, text in sorted(fragments.items()))


def add(
    plan: Plan, profile: Optional[Profile], host: Host, load: Callable[[str, str], Plan], over: bool = False
) -> Plan:
    """`plan` with a profile's lines that it does not have already, and the profile's variables where it sets none.

    A check that the site has configured for this node is the site's: the profile's line of that name is left
    out. With `over`, for the built-in default configuration, it is the other way round. `load` reads text as
    configuration. Raises OSError if the profile cannot be read.
    """
    if profile is None or not profile.name:
        return plan
    source = profile.path or f"profile {profile.name}"
    extra = load(text_of(profile, host), source)
    ours, theirs = {item.name for item in plan.items}, {item.name for item in extra.items}
    kept = tuple(item for item in plan.items if not over or item.name not in theirs)
    added = tuple(item for item in extra.items if over or item.name not in ours)
    settings = {**extra.settings, **plan.settings}
    inputs = (*plan.inputs, *((profile.path,) if profile.path else ())) if plan.inputs else ()
    if extra.offered and inputs:
        from nhc.core.plugins import watched

        inputs = (*inputs, *watched(extra.offered))
    return plan._replace(
        items=(
            *(_under(item, extra.settings) for item in kept),
            *(_placed(_under(item, plan.settings, last=True)) for item in added),
        ),
        settings=settings,
        notes=(*plan.notes, *extra.notes),
        inputs=inputs,
        offered=tuple(dict.fromkeys((*plan.offered, *extra.offered))),
    )


def _placed(item: Item) -> Item:
    """A profile's line with the contexts it is for, where it does not say so itself."""
    return item if item.contexts or item.name in AROUND_A_JOB else item._replace(contexts=WATCHED)


def _under(item: Item, settings: Any, last: bool = False) -> Item:
    """The item with more variables in force, its own before them unless `last`."""
    if not settings:
        return item
    return item._replace(settings={**item.settings, **settings} if last else {**settings, **item.settings})


def problem_of(value: str) -> str:
    """What is wrong with NHC_PROFILE, for `nhc config check`: a run that cannot find the profile says so itself."""
    if value in ("auto", ""):
        return ""
    try:
        resolve(value, Host())
    except NoProfile as error:
        return f"NHC_PROFILE: {error}"
    return ""
