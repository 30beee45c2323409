"""`nhc serve preflight`: the webhook is the adapter's, and what the pods of a gang run together is judged here."""

from __future__ import annotations

from typing import Optional

from nhc.core.command_line import options
from nhc.core.command_line.common_options import service_command
from nhc.deep.gang import GangTests
from nhc.marks.commands.kubernetes import APPLY, PolicyOptions, run_with


class ServePreflightOptions(PolicyOptions):
    apply: Optional[bool] = APPLY
    listen: str = options.text(
        "--listen", "HOST:PORT",
        "Serve /preflight and /gang there, over HTTPS, and /healthz, /readyz and /metrics.", "127.0.0.1:9443",
    )  # fmt: skip
    certificate: str = options.text(
        "--certificate", "DIR", "Where tls.crt and tls.key are, which another program renews. Default: self-made, in a "
        "Secret.",
    )  # fmt: skip


@service_command
def command(args: ServePreflightOptions) -> None:
    """Serve the webhook that adds a preflight to pods with accelerators: a suite in an init container.

    The API server asks about pods of namespaces with the label nhc/preflight=enabled, and of pods with the annotation
    nhc/preflight. A pod whose suite finds its node at fault does not start there. The pods of a gang can run a
    collective as well. Several may run. Ends on SIGTERM.
    """
    listen, certificate = args.listen, args.certificate
    run_with(args, lambda kit, cluster, read: kit.preflight(cluster, read, listen, certificate, GangTests()))
