"""The kinds of parts that nhc looks up by name: ours in a table each, and what other packages offer by entry points.

nhc never names an adapter in an import: it looks one up here, when it is asked for. Only a name that is in no table
is looked for among the installed packages, so only a stranger's part pays for that search.
"""

from __future__ import annotations

import os
import sys

from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.system.foreign_module import BrokenPart, attribute_of, one_line

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from typing_extensions import TypeAlias

    from nhc.model import Report
    from nhc.ports.adapter import MakeAdapter, NodeSource
    from nhc.ports.gates import LifecycleHook, MakeGatekeeper
    from nhc.ports.group_launch import Launcher
    from nhc.ports.jobs import MakeJobController
    from nhc.ports.repair import MakeRepairer
    from nhc.ports.sinks import Sink
    from nhc.ports.spares import MakeSparePool
    from nhc.ports.suites import MakeSuiteRunner

    MakeSink: TypeAlias = "Callable[[Mapping[str, object], str, Callable[[str], None]], Sink]"
    """Called with the sink's own table, the node's name, and a function to complain to."""
    Stamp: TypeAlias = "List[Tuple[str, int]]"
    """Directories, each with when it was changed (nanoseconds)."""

CHECKS = "nhc.checks"
"""Entry points of checks: `check_name = "module:function"`, the function declared with `nhc.check.check`."""


class Offer(NamedTuple):
    """One entry point. `where` is `module:attribute`, `distribution` the package's name and version.

    `files` change when the package is upgraded in place; where it comes or goes, `directories` do.
    """

    name: str
    where: str
    distribution: str
    files: Tuple[str, ...]


class NoAdapter(Exception):
    """There is no such adapter, or it cannot be loaded. One line for a person."""


_searched: Dict[str, Tuple[Stamp, Dict[str, Offer]]] = {}
_unreadable: Dict[str, List[str]] = {}


def directories() -> Tuple[str, ...]:
    """The directories that change when a package is installed or removed."""
    return tuple(path for path in dict.fromkeys(sys.path) if os.path.isabs(path) and os.path.isdir(path))


def offers(group: str) -> Dict[str, Offer]:
    """What installed packages offer in a group, by name; the first package on Python's path wins.

    Asked again only when a directory has changed that packages are installed in.
    """
    stamp = [(path, os.stat(path).st_mtime_ns) for path in directories()]
    kept = _searched.get(group)
    if kept is None or kept[0] != stamp:
        kept = _searched[group] = (stamp, _search(group))
    return kept[1]


def unreadable(group: str) -> List[str]:
    """A line for each installed package whose entry points in this group cannot be read."""
    offers(group)
    return _unreadable.get(group, [])


def _search(group: str) -> Dict[str, Offer]:
    from importlib import metadata

    by_name: Dict[str, Offer] = {}
    wrong = _unreadable[group] = []
    for package in metadata.distributions():
        directory = str(getattr(package, "_path", None) or "")
        files = [os.path.join(directory, file) for file in ("METADATA", "entry_points.txt")] if directory else []
        try:
            text = package.read_text("entry_points.txt") or ""
            if group not in text:  # most packages offer nothing, and parsing costs
                continue
            about: Any = package.metadata
            name = f"{about['Name']} {about['Version']}" if about["Name"] else os.path.basename(directory)
            entries = [(entry.name, entry.value.strip()) for entry in package.entry_points if entry.group == group]
        except Exception as error:  # what a package's files hold is anything
            wrong.append(f"{files[-1] if files else package} cannot be read: {one_line(error)}")
            continue
        for entry, value in entries:
            by_name.setdefault(entry, Offer(entry, value, name, tuple(files)))
    return by_name


class PartKind:
    """One kind of parts: what a person calls it, the entry points' group of other packages' parts, and our own parts.

    `others` are known by these names and opened elsewhere.
    """

    def __init__(self, noun: str, group: str, ours: Mapping[str, str], others: Tuple[str, ...] = ()) -> None:
        self.noun, self.group, self.ours, self.others = noun, group, dict(ours), others

    def names(self) -> List[str]:
        """Ours and those of installed packages."""
        return sorted({*self.ours, *self.others, *offers(self.group)})

    def open(self, name: str) -> Any:
        """What makes the part called `name`. Raises NoAdapter."""
        where = self.ours.get(name)
        if where is None:
            offer = offers(self.group).get(name)
            if offer is None:
                raise NoAdapter(f"there is no {self.noun} called {name!r}: {self._hint(name)}")
            return self._theirs(name, offer)
        return _load(where, name, self.noun)

    def _theirs(self, name: str, offer: Offer) -> Any:
        try:
            return attribute_of(offer.where)
        except BrokenPart as error:
            raise NoAdapter(f"{self.noun} {name} of {offer.distribution}: {error}") from None

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        known = self.names()
        near = get_close_matches(name, known, 1)
        if near:
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"known are {', '.join(known)}" if known else "no installed package offers one"
        return "; ".join((hint, *unreadable(self.group)))


ADAPTERS = PartKind(
    "adapter",
    "nhc.adapters",
    {
        "slurm": "nhc_adapters.slurm.adapter:Slurm",
        "slurm-rest": "nhc_adapters.slurm.rest:SlurmRest",
        "slurm-hyperpod": "nhc_adapters.slurm.requests:SlurmHyperpod",
        "pbs": "nhc_adapters.pbs:Pbs",
        "torque": "nhc_adapters.pbs:Torque",
        "lsf": "nhc_adapters.lsf:Lsf",
        "sge": "nhc_adapters.sge:GridEngine",
        "flux": "nhc_adapters.flux:Flux",
        "kubernetes": "nhc_adapters.kubernetes.plugin:Adapter",
    },
)
"""nhc.ports.adapter.MakeAdapter: who knows nodes, and marks them."""
SINKS = PartKind(
    "sink",
    "nhc.sinks",
    {
        "kubernetes": "nhc_adapters.kubernetes.sink.sink:sink",
        "cloudwatch": "nhc_adapters.cloud.aws.cloudwatch:sink",
        "server": "nhc.agent.server_sink:sink",
    },
    ("otel",),
)
"""nhc.ports.sinks.Sink: where the agent's reports and events go."""
REPAIRERS = PartKind(
    "repairer",
    "nhc.repairers",
    {
        "aws": "nhc_adapters.cloud.aws.repairer:AwsRepairer",
        "ipmi": "nhc_adapters.bmc.ipmi:Ipmi",
        "kubernetes": "nhc_adapters.kubernetes.repair.repairer:KubernetesJobs",
        "kubernetes-handoff": "nhc_adapters.kubernetes.repair.handoff:KubernetesHandoff",
        "node": "nhc_adapters.node.repairer:NodeHand",
        "redfish": "nhc_adapters.bmc.redfish:Redfish",
        "slurm": "nhc_adapters.slurm.power:SlurmPower",
        "azure": "nhc_adapters.cloud.azure.repairer:AzureRepairer",
        "google": "nhc_adapters.cloud.google.repairer:GoogleRepairer",
        "oracle": "nhc_adapters.cloud.oracle.repairer:OracleRepairer",
    },
)
"""nhc.ports.repair.MakeRepairer: repairs of the remedy loop."""
JOB_CONTROLLERS = PartKind(
    "job controller",
    "nhc.job_controllers",
    {
        "kubernetes": "nhc_adapters.kubernetes.jobs.controller:KubernetesJobController",
        "slurm": "nhc_adapters.slurm.jobs:SlurmJobs",
    },
)
"""nhc.ports.jobs.MakeJobController: jobs that are restarted."""
LAUNCHERS = PartKind(
    "launcher",
    "nhc.launchers",
    {
        "slurm": "nhc_adapters.slurm.deep_launch:SlurmLauncher",
        "kubernetes": "nhc_adapters.kubernetes.deep.launcher:KubernetesLauncher",
        "ssh": "nhc.deep.ssh_launch:SshLauncher",
    },
)
"""nhc.ports.group_launch.Launcher: the tests of a sweep."""
SPARE_POOLS = PartKind(
    "keeper of spares",
    "nhc.spare_pools",
    {
        "hyperpod": "nhc_adapters.cloud.aws.capacity:HyperPodCapacity",
        "kubernetes": "nhc_adapters.kubernetes.spares:KubernetesSpares",
        "slurm": "nhc_adapters.slurm.spares:SlurmSpares",
    },
)
"""nhc.ports.spares.MakeSparePool: spare nodes, or what adds them."""
GATEKEEPERS = PartKind(
    "gatekeeper",
    "nhc.gatekeepers",
    {"slurm": "nhc_adapters.slurm.gate:SlurmGate", "kubernetes": "nhc_adapters.kubernetes.gates.keeper:KubernetesGate"},
)
"""nhc.ports.gates.MakeGatekeeper: who keeps a node closed."""
LIFECYCLE_HOOKS = PartKind(
    "lifecycle hook", "nhc.lifecycle_hooks", {"aws": "nhc_adapters.cloud.aws.lifecycle:AwsLifecycleHook"}
)
"""nhc.ports.gates.LifecycleHook: a cloud waits for a gate."""
SUITE_RUNNERS = PartKind(
    "runner of suites",
    "nhc.suite_runners",
    {
        "ssh": "nhc_adapters.node.suite:NodeSuite",
        "job": "nhc_adapters.kubernetes.repair.suite_runner:SuiteJobs",
        "ssm": "nhc_adapters.cloud.aws.suite_runner:SsmSuite",
    },
)
"""nhc.ports.suites.MakeSuiteRunner: deep suites on other nodes."""
CANDIDATES = PartKind(
    "candidate for the lead",
    "nhc.candidates",
    {"kubernetes-lease": "nhc_adapters.kubernetes.api.candidate:LeaseCandidate"},
)
"""nhc.rounds.leader.Candidate: who leads a store."""
RENDERERS = PartKind("format", "nhc.renderers", {})
"""A function that is given a Report and returns the text of `--format NAME`."""
KINDS: Tuple[PartKind, ...] = (
    ADAPTERS, SINKS, REPAIRERS, JOB_CONTROLLERS, LAUNCHERS, SPARE_POOLS, GATEKEEPERS, LIFECYCLE_HOOKS, SUITE_RUNNERS,
    CANDIDATES, RENDERERS,
)  # fmt: skip

adapter: Callable[[str], MakeAdapter] = ADAPTERS.open
sink: Callable[[str], MakeSink] = SINKS.open
repairer: Callable[[str], MakeRepairer] = REPAIRERS.open
job_controller: Callable[[str], MakeJobController] = JOB_CONTROLLERS.open
launcher: Callable[[str], Callable[..., Launcher]] = LAUNCHERS.open
spare_pool: Callable[[str], MakeSparePool] = SPARE_POOLS.open
gatekeeper: Callable[[str], MakeGatekeeper] = GATEKEEPERS.open
lifecycle_hook: Callable[[str], Callable[..., LifecycleHook]] = LIFECYCLE_HOOKS.open
suite_runner: Callable[[str], MakeSuiteRunner] = SUITE_RUNNERS.open
candidate: Callable[[str], Callable[..., Any]] = CANDIDATES.open
renderer: Callable[[str], Callable[[Report], str]] = RENDERERS.open


def open_adapter(
    name: str,
    settings: Optional[Mapping[str, str]] = None,
    environ: Optional[Mapping[str, str]] = None,
    timeout: float = 30.0,
) -> NodeSource:
    """An adapter, constructed as `MakeAdapter` says. Raises NoAdapter and what its constructor raises."""
    make = adapter(name)
    try:
        return make(settings, environ, timeout)
    except TypeError as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is not None:
            raise  # a bug inside the adapter
        raise NoAdapter(f"the adapter {name} is not made as nhc makes one (settings, environment, timeout)") from None


def _load(where: str, name: str, kind: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(__import__(module, fromlist=[attribute]), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == "nhc_adapters":
            raise NoAdapter(
                f"{kind} {name}: {module} is not installed (in a source checkout set PYTHONPATH=adapters)"
            ) from None
        from nhc.extras import how_to_install

        raise NoAdapter(f"{kind} {name} needs the Python package {package}: {how_to_install(package, name)}") from None
    except AttributeError:
        raise NoAdapter(f"{kind} {name}: {module} has no {attribute}") from None
