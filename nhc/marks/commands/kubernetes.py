"""`nhc kubernetes ...`: the options of its commands. What they do is the adapter's (`commands`), loaded on use."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable, Optional, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command, person, service_command
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import adapter

POLICY = "What takes a node out, and what that is called"


class ClusterOptions(options.CommandOptions):
    """Which cluster."""

    kubeconfig: str = options.text(
        "--kubeconfig", "FILE", "Default: $KUBECONFIG, this pod's, ~/.kube/config.", heading="Cluster"
    )
    context: str = options.text("--context", "NAME", "A context of the kubeconfig. Default: its current one.")


class PolicyOptions(ClusterOptions):
    """Which settings, and what is said of them for one call."""

    settings: str = options.settings_file("kubernetes.toml", heading=POLICY)
    given: Tuple[str, ...] = options.texts(
        "--set", "KEY=VALUE", "A key of that file for this call, such as vocabularies=hyperpod, "
        "faults=GpuCount=True,10m, max-marked=10%, selector=pool=gpu (repeatable).",
    )  # fmt: skip


APPLY = options.flag("--apply/--dry-run", "Carry it out, or only show it (the default).", None,
                     heading="What is done and shown")  # fmt: skip
DRAIN = options.flag("--drain/--no-drain", "Evict the pods of marked nodes, too.", None, heading="Evicting pods")
NODES = options.arguments("NODE...", needed=True)


class FormattedPolicyOptions(PolicyOptions, options.Formatted):
    pass


class KubernetesSyncOptions(FormattedPolicyOptions):
    apply: Optional[bool] = APPLY
    drain: Optional[bool] = DRAIN


@click_command
def sync_command(args: KubernetesSyncOptions) -> None:
    """Bring all nodes in line with their conditions, once.

    A node with a bad condition is cordoned, tainted and labelled (and drained, where told) under the policy's
    ceilings; one that nhc marked and that has recovered is put back. What somebody else did to a node stands.
    Exit status: 0 done, 1 something failed, 2 wrong usage, 3 the cluster cannot be used or another nhc acts.
    """
    from nhc.marks.commands.sync import carry_out
    from nhc.marks.policy.reconcile import NAMES

    def work(show: Any) -> bool:
        made: Any = adapter("kubernetes")
        kit = made.commands()
        # What drains say as they go on is no part of a JSON document.
        beside = {"out": sys.stderr} if args.form == "json" else {}
        cluster = kit.Cluster(args.kubeconfig, args.context, command="nhc sync kubernetes", **beside)
        return bool(kit.sync(cluster, _read(kit, args)(drain=args.drain), show))

    raise SystemExit(carry_out("nhc sync kubernetes", work, NAMES, args.form))


class ControllerOptions(PolicyOptions):
    settings: str = options.settings_file("kubernetes.toml", checked=True, heading=POLICY)
    apply: Optional[bool] = APPLY
    drain: Optional[bool] = DRAIN
    listen: str = options.text(
        "--listen", "HOST:PORT", "Serve /healthz, /readyz and /metrics there.", heading="What is done and shown"
    )


@service_command
def controller_command(args: ControllerOptions) -> None:
    """Keep all nodes in line with their conditions, as they change.

    Several may run; the holder of the Lease acts, the others stand by. Settings and policy are read again when their
    files change, or on SIGHUP; bad ones are refused. Ends on SIGTERM, giving the Lease up.
    """
    run_with(args, lambda kit, cluster, read: kit.controller(cluster, lambda: read(drain=args.drain), args.listen))


@click_command
def status_command(args: FormattedPolicyOptions) -> None:
    """Show which nodes are sick and why, since when, which are marked, by whom, and what withholds a mark."""
    run_with(args, lambda kit, cluster, read: kit.status(cluster, read(), args.form))


@click_command
def doctor_command(args: FormattedPolicyOptions) -> None:
    """Look at an installation for what would keep it from working; change nothing.

    Rights of the controller and the agents, the labels that choose nodes, agents expected and present, the runtime
    class, clocks, settings and policy, the controller's Lease and network, and conditions that node-problem-detector
    writes as well. Exit status: 0 no problem, 1 a problem, 3 the cluster cannot be used.
    """
    run_with(args, lambda kit, cluster, read: kit.doctor(cluster, read(), args.form))


class DrainOptions(ClusterOptions):
    grace: Optional[float] = options.duration(
        "--grace", "Longest grace period for a pod (30s). Default: the pod's own.", heading="Evicting pods"
    )
    deadline: float = options.duration("--deadline", "When to give a drain up.", "30m")
    force: bool = options.flag("--force", "Evict pods that nothing would start again.")
    empty_dir: bool = options.flag("--delete-emptydir-data", "Evict pods that keep data in an emptyDir.")
    pod_selector: str = options.text("--pod-selector", "LABELS", "Only pods with these labels.")
    apply: bool = options.flag("--apply/--dry-run", "Carry it out, or only show it (the default).", heading="Other")
    reason: str = options.text("--reason", "TEXT", "Why, for the node's mark.")
    by: str = options.BY
    lasting: Optional[float] = options.duration(
        "--for", "When it ends by itself: 4h. Default: when uncordoned.", heading="Other"
    )
    nodes: Tuple[str, ...] = NODES


@click_command
def drain_command(args: DrainOptions) -> None:
    """Mark nodes and evict their pods, within disruption budgets, showing how far it has come.

    The mark is yours: no controller takes it back before its end. A node that is held is not drained.

    Exit status: 0 every pod that had to go is gone, 1 some are left, 3 the cluster cannot be used.
    """

    def work(kit: Any, cluster: Any, _read: Any) -> int:
        rules = kit.DrainRules(
            grace=None if args.grace is None else int(args.grace),
            deadline=args.deadline,
            force=args.force,
            empty_dir=args.empty_dir,
            selector=args.pod_selector,
        )
        status: int = kit.drain(
            cluster,
            args.nodes,
            rules,
            apply=args.apply,
            why=args.reason,
            by=person(args.by),
            lasting=args.lasting,
        )
        return status

    run_with(args, work)


class UncordonOptions(ClusterOptions):
    by: str = options.BY
    nodes: Tuple[str, ...] = NODES


@click_command
def uncordon_command(args: UncordonOptions) -> None:
    """Put nodes back in service: nhc's marks go, whatever their conditions say.

    The faults that stand are overruled: they take the node out again only once they have ended. Another fault does
    at once. What somebody else set, a cordon included, stays.
    """
    run_with(args, lambda kit, cluster, read: kit.uncordon(cluster, args.nodes, person(args.by)))


class ReleaseDeviceOptions(ClusterOptions):
    by: str = options.BY
    node: str = options.argument("NODE", needed=True)
    devices: Tuple[str, ...] = options.arguments("DEVICE...", needed=True)


@click_command
def release_device_command(args: ReleaseDeviceOptions) -> None:
    """Put devices of a node back in service, whatever its conditions say of them.

    DEVICE is a PCI address, a UUID, or a name in the node's ResourceSlice. The fault that stands takes the device out
    again only once it has ended; another fault does at once.
    """
    by = person(args.by)
    run_with(args, lambda kit, cluster, read: kit.release_device(cluster, args.node, args.devices, by))


class PublishOptions(ClusterOptions):
    vocabularies: Tuple[str, ...] = options.texts(
        "--vocabulary", "NAME", "In whose words: nhc, hyperpod ... Repeatable.", default=("nhc",), heading="Other"
    )
    node: str = options.text("-n --node", "NAME", "Whose conditions these are. Default: the report's host.")
    reports: Tuple[str, ...] = options.texts("-r --report", "FILE", "JSON; - is standard input.", default=("-",))


@click_command
def publish_command(args: PublishOptions) -> None:
    """Write reports as conditions of their nodes, without an agent.

    nhc check local --format json | nhc kubernetes publish --node "$NODE_NAME"
    """

    def work(kit: Any, cluster: Any, _read: Any) -> int:
        from nhc.marks.commands.sync import read_report_files

        files = read_report_files("nhc kubernetes publish", args.reports)
        if args.node and len(files.reports) != 1:
            raise click.UsageError("--node names one node, so it goes with one report")
        status: int = kit.publish(cluster, files.reports, args.vocabularies, args.node)
        return status or int(bool(files.problems))

    run_with(args, work)


class StateOptions(PolicyOptions):
    state: str = options.argument("STATE", needed=True)
    nodes: Tuple[str, ...] = NODES


@click_command
def state_command(args: StateOptions) -> None:
    """Put nodes in a state of the vocabulary: checking, passed, failed (HyperPod's deep checks)."""
    run_with(args, lambda kit, cluster, read: kit.state(cluster, args.nodes, args.state, read()))


class KubernetesAckOptions(ClusterOptions):
    types: Tuple[str, ...] = options.texts(
        "--condition", "TYPE", "Which. Default: those the controller finds.", heading="Other"
    )
    by: str = options.BY
    nodes: Tuple[str, ...] = NODES


@click_command
def ack_command(args: KubernetesAckOptions) -> None:
    """End conditions that nothing shows to be gone: device errors in pod logs, kernel lines from Loki."""
    run_with(args, lambda kit, cluster, read: kit.ack(cluster, args.nodes, args.types, person(args.by)))


def run_with(args: ClusterOptions, work: Callable[[Any, Any, Any], int]) -> None:
    """Load the adapter, run the command, and exit with its status."""
    from nhc.marks.policy.reconcile import BadReports

    try:
        made: Any = adapter("kubernetes")  # with the commands, which nhc knows by this name alone
        kit = made.commands()
        cluster = kit.Cluster(args.kubeconfig, args.context)
        status = kit.guarded(cluster, lambda: work(kit, cluster, _read(kit, args)))
    except (NoAdapter, BadReports, ValueError) as error:
        print(f"nhc kubernetes: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    raise SystemExit(status)


def _read(kit: Any, args: ClusterOptions) -> Any:
    """What reads the settings, with what the command line says of them."""
    if not isinstance(args, PolicyOptions):
        return None  # a command that reads none
    return partial(kit.read, args.settings, args.given, apply=getattr(args, "apply", None))
