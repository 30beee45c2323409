"""`nhc kubernetes ...`: the options of its commands. What they do is the adapter's (`commands`), loaded on use."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable, Dict

import click

from nhc.core.command_line.common_options import (
    BY,
    DURATION,
    FORMAT,
    GroupedCommand,
    check_settings,
    person,
    service_log,
    under,
)
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import adapter

SETTINGS = "/etc/nhc/kubernetes.toml"
Command = Callable[..., Any]


def options(*added: Command) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(added):
            command = option(command)
        return command

    return decorate


_cluster, _policy = under("Cluster"), under("What takes a node out, and what that is called")
_evicting, acting = under("Evicting pods"), under("What is done and shown")
CLUSTER = options(
    _cluster("--kubeconfig", default="", metavar="FILE", help="Default: $KUBECONFIG, this pod's, ~/.kube/config."),
    _cluster("--context", default="", metavar="NAME", help="A context of the kubeconfig. Default: its current one."),
)
POLICY = options(
    _policy("-s", "--settings", "path", metavar="FILE", help=f"Settings (TOML). Default: {SETTINGS}, if any."),
    _policy(
        "--set",
        "given",
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of that file for this call, such as vocabularies=hyperpod, faults=GpuCount=True,10m, "
        "max-marked=10%, selector=pool=gpu (repeatable).",
    ),
)
APPLY = acting("--apply/--dry-run", "apply", default=None, help="Carry it out, or only show it (the default).")
DRAINING = options(
    _evicting(
        "--grace", type=DURATION, metavar="TIME", help="Longest grace period for a pod (30s). Default: the pod's own."
    ),
    _evicting(
        "--deadline", type=DURATION, default="30m", show_default=True, metavar="TIME", help="When to give a drain up."
    ),
    _evicting("--force", is_flag=True, help="Evict pods that nothing would start again."),
    _evicting("--delete-emptydir-data", "empty_dir", is_flag=True, help="Evict pods that keep data in an emptyDir."),
    _evicting("--pod-selector", default="", metavar="LABELS", help="Only pods with these labels."),
)
NODES = click.argument("nodes", nargs=-1, required=True, metavar="NODE...")


@click.command("sync", cls=GroupedCommand)
@CLUSTER
@POLICY
@APPLY
@_evicting("--drain/--no-drain", "drain", default=None, help="Evict the pods of marked nodes, too.")
@FORMAT
def sync_command(**given: Any) -> None:
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
        beside = {"out": sys.stderr} if given["form"] == "json" else {}
        cluster = kit.Cluster(given["kubeconfig"], given["context"], command="nhc sync kubernetes", **beside)
        return bool(kit.sync(cluster, _read(kit, given)(drain=given["drain"]), show))

    raise SystemExit(carry_out("nhc sync kubernetes", work, NAMES, given["form"]))


@click.command("controller", cls=GroupedCommand)
@service_log
@check_settings("kubernetes.toml", heading="What is done and shown")
@CLUSTER
@POLICY
@APPLY
@_evicting("--drain/--no-drain", "drain", default=None, help="Evict the pods of marked nodes, too.")
@acting("--listen", default="", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics there.")
def controller_command(**given: Any) -> None:
    """Keep all nodes in line with their conditions, as they change.

    Several may run; the holder of the Lease acts, the others stand by. Settings and policy are read again when their
    files change, or on SIGHUP; bad ones are refused. Ends on SIGTERM, giving the Lease up.
    """
    run_with(
        given, lambda kit, cluster, read: kit.controller(cluster, lambda: read(drain=given["drain"]), given["listen"])
    )


@click.command("status", cls=GroupedCommand)
@CLUSTER
@POLICY
@FORMAT
def status_command(**given: Any) -> None:
    """Show which nodes are sick and why, since when, which are marked, by whom, and what withholds a mark."""
    run_with(given, lambda kit, cluster, read: kit.status(cluster, read(), given["form"]))


@click.command("doctor", cls=GroupedCommand)
@CLUSTER
@POLICY
@FORMAT
def doctor_command(**given: Any) -> None:
    """Look at an installation for what would keep it from working; change nothing.

    Rights of the controller and the agents, the labels that choose nodes, agents expected and present, the runtime
    class, clocks, settings and policy, the controller's Lease and network, and conditions that node-problem-detector
    writes as well. Exit status: 0 no problem, 1 a problem, 3 the cluster cannot be used.
    """
    run_with(given, lambda kit, cluster, read: kit.doctor(cluster, read(), given["form"]))


@click.command("drain", cls=GroupedCommand)
@CLUSTER
@DRAINING
@click.option("--apply/--dry-run", "apply", default=False, help="Carry it out, or only show it (the default).")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the node's mark.")
@BY
@click.option(
    "--for", "lasting", type=DURATION, metavar="TIME", help="When it ends by itself: 4h. Default: when uncordoned."
)
@NODES
def drain_command(**given: Any) -> None:
    """Mark nodes and evict their pods, within disruption budgets, showing how far it has come.

    The mark is yours: no controller takes it back before its end. A node that is held is not drained.

    Exit status: 0 every pod that had to go is gone, 1 some are left, 3 the cluster cannot be used.
    """

    def work(kit: Any, cluster: Any, _read: Any) -> int:
        rules = kit.DrainRules(
            grace=None if given["grace"] is None else int(given["grace"]),
            deadline=given["deadline"],
            force=given["force"],
            empty_dir=given["empty_dir"],
            selector=given["pod_selector"],
        )
        status: int = kit.drain(
            cluster,
            given["nodes"],
            rules,
            apply=given["apply"],
            why=given["reason"],
            by=person(given["by"]),
            lasting=given["lasting"],
        )
        return status

    run_with(given, work)


@click.command("uncordon")
@CLUSTER
@BY
@NODES
def uncordon_command(**given: Any) -> None:
    """Put nodes back in service: nhc's marks go, whatever their conditions say.

    The faults that stand are overruled: they take the node out again only once they have ended. Another fault does
    at once. What somebody else set, a cordon included, stays.
    """
    run_with(given, lambda kit, cluster, read: kit.uncordon(cluster, given["nodes"], person(given["by"])))


@click.command("release-device")
@CLUSTER
@BY
@click.argument("node")
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
def release_device_command(**given: Any) -> None:
    """Put devices of a node back in service, whatever its conditions say of them.

    DEVICE is a PCI address, a UUID, or a name in the node's ResourceSlice. The fault that stands takes the device out
    again only once it has ended; another fault does at once.
    """
    by = person(given["by"])
    run_with(given, lambda kit, cluster, read: kit.release_device(cluster, given["node"], given["devices"], by))


@click.command("publish", cls=GroupedCommand)
@CLUSTER
@click.option("--vocabulary", "vocabularies", multiple=True, default=["nhc"], show_default=True, metavar="NAME")
@click.option(
    "-n", "--node", default="", metavar="NAME", help="Whose conditions these are. Default: the report's host."
)
@click.option(
    "-r", "--report", "reports", multiple=True, default=["-"], metavar="FILE", help="JSON; - is stdin (default)."
)
def publish_command(**given: Any) -> None:
    """Write reports as conditions of their nodes, without an agent.

    nhc check local --format json | nhc kubernetes publish --node "$NODE_NAME"
    """

    def work(kit: Any, cluster: Any, _read: Any) -> int:
        from nhc.marks.commands.sync import read_report_files

        files = read_report_files("nhc kubernetes publish", given["reports"])
        if given["node"] and len(files.reports) != 1:
            raise click.UsageError("--node names one node, so it goes with one report")
        status: int = kit.publish(cluster, files.reports, given["vocabularies"], given["node"])
        return status or int(bool(files.problems))

    run_with(given, work)


@click.command("state")
@CLUSTER
@POLICY
@click.argument("state")
@NODES
def state_command(**given: Any) -> None:
    """Put nodes in a state of the vocabulary: checking, passed, failed (HyperPod's deep checks)."""
    run_with(given, lambda kit, cluster, read: kit.state(cluster, given["nodes"], given["state"], read()))


@click.command("ack")
@CLUSTER
@click.option("--condition", "types", multiple=True, metavar="TYPE", help="Which. Default: those the controller finds.")
@BY
@NODES
def ack_command(**given: Any) -> None:
    """End conditions that nothing shows to be gone: device errors in pod logs, kernel lines from Loki."""
    run_with(given, lambda kit, cluster, read: kit.ack(cluster, given["nodes"], given["types"], person(given["by"])))


def run_with(given: Dict[str, Any], work: Callable[[Any, Any, Any], int]) -> None:
    """Load the adapter, run the command, and exit with its status."""
    from nhc.marks.policy.reconcile import BadReports

    try:
        made: Any = adapter("kubernetes")  # with the commands, which nhc knows by this name alone
        kit = made.commands()
        cluster = kit.Cluster(given["kubeconfig"], given["context"])
        status = kit.guarded(cluster, lambda: work(kit, cluster, _read(kit, given)))
    except (NoAdapter, BadReports, ValueError) as error:
        print(f"nhc kubernetes: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    raise SystemExit(status)


def _read(kit: Any, given: Dict[str, Any]) -> Any:
    """What reads the settings, with what the command line says of them."""
    return partial(kit.read, given.get("path") or "", given.get("given", ()), apply=given.get("apply"))
