"""What acts on nodes and jobs, by name: our adapters, repairers, sinks and others, and those of other packages.

nhc never names an adapter in an import: it looks one up here, when it is asked for (`nhc.core.plugins`).
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.plugins import NoAdapter, PartKind

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Tuple

    from typing_extensions import TypeAlias

    from nhc.marks.ports.adapter import MakeAdapter, NodeSource
    from nhc.marks.ports.gates import LifecycleHook, MakeGatekeeper
    from nhc.marks.ports.job_control import MakeJobController
    from nhc.marks.ports.repair import MakeRepairer
    from nhc.marks.ports.runner import Launcher, MakeRunner
    from nhc.marks.ports.sinks import Sink
    from nhc.marks.ports.spares import MakeSparePool

    MakeSink: TypeAlias = "Callable[[Mapping[str, object], str, Callable[[str], None]], Sink]"
    """Called with the sink's own table, the node's name, and a function to complain to."""

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
        "store": "nhc.store.node_source:StoreNodes",
    },
)
"""nhc.marks.ports.adapter.MakeAdapter: who knows nodes, and marks them."""
SINKS = PartKind(
    "sink",
    "nhc.sinks",
    {
        "kubernetes": "nhc_adapters.kubernetes.sink:sink",
        "cloudwatch": "nhc_adapters.cloud.aws.cloudwatch:sink",
        "server": "nhc.agent.server_sink:sink",
    },
    ("otel",),
)
"""nhc.marks.ports.sinks.Sink: where the agent's reports and events go."""
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
"""nhc.marks.ports.repair.MakeRepairer: repairs of the remedy loop."""
JOB_CONTROLLERS = PartKind(
    "job controller",
    "nhc.job_controllers",
    {
        "kubernetes": "nhc_adapters.kubernetes.jobs.controller:KubernetesJobController",
        "slurm": "nhc_adapters.slurm.job_controller:SlurmJobs",
    },
)
"""nhc.marks.ports.job_control.MakeJobController: jobs that are restarted."""
LAUNCHERS = PartKind(
    "launcher",
    "nhc.launchers",
    {
        "slurm": "nhc_adapters.slurm.deep_launch:SlurmLauncher",
        "kubernetes": "nhc_adapters.kubernetes.deep_launch:KubernetesLauncher",
        "ssh": "nhc.deep.ssh_launch:SshLauncher",
    },
)
"""nhc.marks.ports.runner.Launcher: the tests of a sweep."""
SPARE_POOLS = PartKind(
    "keeper of spares",
    "nhc.spare_pools",
    {
        "hyperpod": "nhc_adapters.cloud.aws.capacity:HyperPodCapacity",
        "kubernetes": "nhc_adapters.kubernetes.spares:KubernetesSpares",
        "slurm": "nhc_adapters.slurm.spares:SlurmSpares",
    },
)
"""nhc.marks.ports.spares.MakeSparePool: spare nodes, or what adds them."""
GATEKEEPERS = PartKind(
    "gatekeeper",
    "nhc.gatekeepers",
    {"slurm": "nhc_adapters.slurm.gate:SlurmGate", "kubernetes": "nhc_adapters.kubernetes.gates:KubernetesGate"},
)
"""nhc.marks.ports.gates.MakeGatekeeper: who keeps a node closed."""
LIFECYCLE_HOOKS = PartKind(
    "lifecycle hook", "nhc.lifecycle_hooks", {"aws": "nhc_adapters.cloud.aws.lifecycle:AwsLifecycleHook"}
)
"""nhc.marks.ports.gates.LifecycleHook: a cloud waits for a gate."""
RUNNERS = PartKind(
    "runner",
    "nhc.runners",
    {
        "ssh": "nhc_adapters.node.runner:SshRunner",
        "job": "nhc_adapters.kubernetes.repair.job_runner:JobRunner",
        "ssm": "nhc_adapters.cloud.aws.runner:SsmRunner",
    },
)
"""nhc.marks.ports.runner.MakeRunner: programs on other nodes, such as deep suites."""
CANDIDATES = PartKind(
    "candidate for the lead",
    "nhc.candidates",
    {"kubernetes-lease": "nhc_adapters.kubernetes.api.candidate:LeaseCandidate"},
)
"""nhc.store.rounds.leader.Candidate: who leads a store."""
KINDS: Tuple[PartKind, ...] = (
    ADAPTERS, SINKS, REPAIRERS, JOB_CONTROLLERS, LAUNCHERS, SPARE_POOLS, GATEKEEPERS, LIFECYCLE_HOOKS, RUNNERS,
    CANDIDATES,
)  # fmt: skip

adapter: Callable[[str], MakeAdapter] = ADAPTERS.open
sink: Callable[[str], MakeSink] = SINKS.open
repairer: Callable[[str], MakeRepairer] = REPAIRERS.open
job_controller: Callable[[str], MakeJobController] = JOB_CONTROLLERS.open
launcher: Callable[[str], Callable[..., Launcher]] = LAUNCHERS.open
spare_pool: Callable[[str], MakeSparePool] = SPARE_POOLS.open
gatekeeper: Callable[[str], MakeGatekeeper] = GATEKEEPERS.open
lifecycle_hook: Callable[[str], Callable[..., LifecycleHook]] = LIFECYCLE_HOOKS.open
runner: Callable[[str], MakeRunner] = RUNNERS.open
candidate: Callable[[str], Callable[..., Any]] = CANDIDATES.open


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
