"""What other packages offer to nhc by entry points: checks, adapters, sinks and renderers.

nhc never names an adapter in an import: it looks one up here, when it is asked for. Ours stand in tables; only a
name that is in none is looked for among the installed packages, so only a stranger's part pays for that search.
"""

from __future__ import annotations

import os
import sys

from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

    from typing_extensions import TypeAlias

    from nhc.gate_ports import LifecycleHook, MakeGatekeeper
    from nhc.group_launch import Launcher
    from nhc.job_control import MakeJobController
    from nhc.model import Report
    from nhc.ports import MakeAdapter, NodeSource
    from nhc.repair import MakeRepairer
    from nhc.sinks import Sink
    from nhc.spare_ports import MakeSparePool
    from nhc.suite_ports import MakeSuiteRunner

    MakeSink: TypeAlias = "Callable[[Mapping[str, object], str, Callable[[str], None]], Sink]"
    """Called with the sink's own table, the node's name, and a function to complain to."""
    Stamp: TypeAlias = "List[Tuple[str, int]]"
    """Directories, each with when it was changed (nanoseconds)."""

CHECKS = "nhc.checks"
"""Entry points of checks: `check_name = "module:function"`, the function declared with `nhc.check.check`."""
ADAPTER_GROUP = "nhc.adapters"
"""Entry points of adapters: what is called as `nhc.ports.MakeAdapter` says."""
SINK_GROUP = "nhc.sinks"
"""Entry points of what makes a sink (`nhc.sinks.Sink`): called with the table [sinks.NAME] of agent.toml, the node's
name, and a function to complain to."""
REPAIRER_GROUP = "nhc.repairers"
"""Entry points of repairers: what is called as `nhc.repair.MakeRepairer` says."""
RENDERER_GROUP = "nhc.renderers"
"""Entry points of formats: a function that is given a Report and returns the text of `--format NAME`."""

ADAPTERS: Dict[str, str] = {
    "slurm": "nhc_adapters.slurm.adapter:Slurm",
    "slurm-rest": "nhc_adapters.slurm.rest:SlurmRest",
    "slurm-hyperpod": "nhc_adapters.slurm.requests:SlurmHyperpod",
    "pbs": "nhc_adapters.pbs:Pbs",
    "torque": "nhc_adapters.pbs:Torque",
    "lsf": "nhc_adapters.lsf:Lsf",
    "sge": "nhc_adapters.sge:GridEngine",
    "flux": "nhc_adapters.flux:Flux",
    "kubernetes": "nhc_adapters.kubernetes.plugin:Adapter",
}

SINKS: Dict[str, str] = {
    "kubernetes": "nhc_adapters.kubernetes.sink.sink:sink",
    "cloudwatch": "nhc_adapters.cloud.aws.cloudwatch:sink",
    "server": "nhc.agent.server_sink:sink",
}
"""What makes a sink of the agent (`nhc.sinks.Sink`), given its settings, the node's name and where to complain."""


REPAIRERS: Dict[str, str] = {
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
}
"""What makes a repairer (`nhc.repair.Repairer`) of the remedy loop."""


CANDIDATES: Dict[str, str] = {"kubernetes-lease": "nhc_adapters.kubernetes.api.candidate:LeaseCandidate"}
"""What makes a candidate for the lead of a store (`nhc.store.leader.Candidate`), given settings, environment."""


LAUNCHERS: Dict[str, str] = {
    "slurm": "nhc_adapters.slurm.deep_launch:SlurmLauncher",
    "kubernetes": "nhc_adapters.kubernetes.deep.launcher:KubernetesLauncher",
    "ssh": "nhc.deep.ssh_launch:SshLauncher",
}
"""What makes a launcher (`nhc.group_launch.Launcher`) of the tests of a sweep."""


SPARE_POOLS: Dict[str, str] = {
    "hyperpod": "nhc_adapters.cloud.aws.capacity:HyperPodCapacity",
    "kubernetes": "nhc_adapters.kubernetes.spares:KubernetesSpares",
    "slurm": "nhc_adapters.slurm.spares:SlurmSpares",
}
"""What makes a keeper of spare nodes (`nhc.spare_ports.SparePool`), or what adds them (`CapacityPool`)."""


JOB_CONTROLLER_GROUP = "nhc.job_controllers"
"""Entry points of job controllers: what is called as `nhc.job_control.MakeJobController` says."""
JOB_CONTROLLERS: Dict[str, str] = {
    "kubernetes": "nhc_adapters.kubernetes.jobs.controller:KubernetesJobController",
    "slurm": "nhc_adapters.slurm.jobs:SlurmJobs",
}
"""What makes a job controller (`nhc.job_control.JobController`)."""

GATEKEEPERS: Dict[str, str] = {
    "slurm": "nhc_adapters.slurm.gate:SlurmGate",
    "kubernetes": "nhc_adapters.kubernetes.gates.keeper:KubernetesGate",
}
"""What makes a gatekeeper (`nhc.gate_ports.Gatekeeper`)."""

SUITE_RUNNERS: Dict[str, str] = {
    "ssh": "nhc_adapters.node.suite:NodeSuite",
    "job": "nhc_adapters.kubernetes.repair.suite_runner:SuiteJobs",
}
"""What makes a runner of suites on other nodes (`nhc.suite_ports.SuiteRunner`)."""

LIFECYCLE_HOOKS: Dict[str, str] = {"aws": "nhc_adapters.cloud.aws.lifecycle:AwsLifecycleHook"}
"""What makes a cloud's lifecycle hook (`nhc.gate_ports.LifecycleHook`)."""


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


_found: Dict[str, Tuple[Stamp, Dict[str, Offer]]] = {}


def directories() -> Tuple[str, ...]:
    """The directories that change when a package is installed or removed."""
    return tuple(path for path in dict.fromkeys(sys.path) if os.path.isabs(path) and os.path.isdir(path))


def offers(group: str) -> Dict[str, Offer]:
    """What installed packages offer in a group, by name; the first package on Python's path wins.

    Asked again only when a directory has changed that packages are installed in.
    """
    stamp = [(path, os.stat(path).st_mtime_ns) for path in directories()]
    kept = _found.get(group)
    if kept is None or kept[0] != stamp:
        kept = _found[group] = (stamp, _search(group))
    return kept[1]


def _search(group: str) -> Dict[str, Offer]:
    from importlib import metadata

    found: Dict[str, Offer] = {}
    for package in metadata.distributions():
        text = package.read_text("entry_points.txt") or ""
        if group not in text:  # most packages offer nothing, and parsing costs
            continue
        about: Any = package.metadata
        name = f"{about['Name']} {about['Version']}"
        directory = getattr(package, "_path", None)
        files = [os.path.join(str(directory), file) for file in ("METADATA", "entry_points.txt")] if directory else []
        for entry in package.entry_points:
            if entry.group == group:
                found.setdefault(entry.name, Offer(entry.name, entry.value.strip(), name, tuple(files)))
    return found


def open_adapter(
    name: str,
    settings: Optional[Mapping[str, str]] = None,
    environ: Optional[Mapping[str, str]] = None,
    timeout: float = 30.0,
) -> NodeSource:
    """An adapter, constructed as `nhc.ports.MakeAdapter` says. Raises NoAdapter and what its constructor raises."""
    make = adapter(name)
    try:
        return make(settings, environ, timeout)
    except TypeError as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is not None:
            raise  # a bug inside the adapter
        raise NoAdapter(f"the adapter {name} is not made as nhc makes one (settings, environment, timeout)") from None


def renderer(name: str) -> Callable[[Report], str]:
    """What an installed package makes of a report for `--format NAME`. Raises NoAdapter."""
    where = _offered(name, RENDERER_GROUP)
    if where is None:
        raise NoAdapter(f"no installed package offers the format {name!r}")
    found: Callable[[Report], str] = _load(where, name, "format")
    return found


def adapter(name: str) -> MakeAdapter:
    """What makes the adapter (`open_adapter` calls it). Raises NoAdapter."""
    where = ADAPTERS.get(name) or _offered(name, ADAPTER_GROUP)
    if where is None:
        from difflib import get_close_matches

        known = [*ADAPTERS, *offers(ADAPTER_GROUP)]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
        raise NoAdapter(f"there is no adapter called {name!r}: {hint}")
    found: MakeAdapter = _load(where, name, "adapter")
    return found


def sink(name: str) -> MakeSink:
    """What makes the sink called `name`. Raises NoAdapter."""
    found: MakeSink = _ours_or_offered(SINKS, SINK_GROUP, name, "sink", ("otel",))
    return found


def repairer(name: str) -> MakeRepairer:
    """What makes the repairer called `name`. Raises NoAdapter."""
    found: MakeRepairer = _ours_or_offered(REPAIRERS, REPAIRER_GROUP, name, "repairer")
    return found


def job_controller(name: str) -> MakeJobController:
    """What makes the job controller called `name`. Raises NoAdapter."""
    found: MakeJobController = _ours_or_offered(JOB_CONTROLLERS, JOB_CONTROLLER_GROUP, name, "job controller")
    return found


def _ours_or_offered(table: Mapping[str, str], group: str, name: str, kind: str, others: Sequence[str] = ()) -> Any:
    """Ours, or an installed package's; `others` are known by these names and opened elsewhere. Raises NoAdapter."""
    where = table.get(name) or _offered(name, group)
    if where is None:
        known = sorted([*table, *others, *offers(group)])
        raise NoAdapter(f"there is no {kind} called {name!r}: known are {', '.join(known)}")
    return _load(where, name, kind)


def launcher(name: str) -> Callable[..., Launcher]:
    """What makes the launcher called `name`. Raises NoAdapter."""
    found: Callable[..., Launcher] = _of(LAUNCHERS, name, "launcher")
    return found


def spare_pool(name: str) -> MakeSparePool:
    """What makes the keeper of spare nodes called `name`. Raises NoAdapter."""
    found: MakeSparePool = _of(SPARE_POOLS, name, "keeper of spares")
    return found


def gatekeeper(name: str) -> MakeGatekeeper:
    """What makes the gatekeeper called `name`. Raises NoAdapter."""
    found: MakeGatekeeper = _of(GATEKEEPERS, name, "gatekeeper")
    return found


def suite_runner(name: str) -> MakeSuiteRunner:
    """What makes the runner of suites called `name`. Raises NoAdapter."""
    found: MakeSuiteRunner = _of(SUITE_RUNNERS, name, "runner of suites")
    return found


def lifecycle_hook(name: str) -> Callable[..., LifecycleHook]:
    """What makes the lifecycle hook of the cloud called `name`. Raises NoAdapter."""
    found: Callable[..., LifecycleHook] = _of(LIFECYCLE_HOOKS, name, "lifecycle hook")
    return found


def _of(table: Mapping[str, str], name: str, kind: str) -> Any:
    if name not in table:
        raise NoAdapter(f"there is no {kind} called {name!r}: known are {', '.join(sorted(table))}")
    return _load(table[name], name, kind)


def candidate(name: str) -> Any:
    """What makes the candidate for the lead called `name`. Raises NoAdapter."""
    return _of(CANDIDATES, name, "candidate for the lead")


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


def _offered(name: str, group: str) -> Optional[str]:
    offer = offers(group).get(name)
    return offer.where if offer else None
