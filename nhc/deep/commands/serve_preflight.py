"""`nhc serve preflight`: the webhook is the adapter's, and what the pods of a gang run together is judged here."""

from __future__ import annotations

from typing import Any

import click

from nhc.core.command_line.common_options import GroupedCommand, service_log
from nhc.deep.gang import GangTests
from nhc.marks.commands.kubernetes import APPLY, CLUSTER, POLICY, acting, run_with


@click.command("preflight", cls=GroupedCommand)
@service_log
@CLUSTER
@POLICY
@APPLY
@acting(
    "--listen",
    default="127.0.0.1:9443",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve /preflight and /gang there, over HTTPS, and /healthz, /readyz and /metrics.",
)
@acting(
    "--certificate",
    default="",
    metavar="DIR",
    help="Where tls.crt and tls.key are, which another program renews. Default: self-made, in a Secret.",
)
def command(**given: Any) -> None:
    """Serve the webhook that adds a preflight to pods with accelerators: a suite in an init container.

    The API server asks about pods of namespaces with the label nhc/preflight=enabled, and of pods with the annotation
    nhc/preflight. A pod whose suite finds its node at fault does not start there. The pods of a gang can run a
    collective as well. Several may run. Ends on SIGTERM.
    """
    listen, certificate = given["listen"], given["certificate"]
    run_with(given, lambda kit, cluster, read: kit.preflight(cluster, read, listen, certificate, GangTests()))
