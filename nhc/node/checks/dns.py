"""Names resolve."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, warn
from nhc.core.units import seconds, show_seconds, text

if TYPE_CHECKING:
    from typing import List, Optional, Sequence


@check(
    "check_dns_resolve",
    opt("-a --address", "address", text, "an address that each name must resolve to"),
    opt("-s --slow", "slow", seconds, "WARN where an answer took this long", 2.0),
    rest("names", text, "host names; the node's own where none is given"),
    timeout=15,
    on_timeout="crit",
)
def check_dns_resolve(
    host: Host, address: Optional[str] = None, slow: float = 2.0, names: Sequence[str] = ()
) -> Judged:
    """Host names resolve, and soon.

    Asks the node's own resolver (getaddrinfo: /etc/hosts, DNS, sssd, as nsswitch.conf has it) for each
    name, as programs do. A name that does not resolve is CRIT, as is a resolver that does not answer within
    the line's `timeout`; a dead first server shows as WARN, as the resolver asks the next after 5 s
    (resolv.conf(5)). Name a host that only DNS knows to test DNS itself.

    Example: * || check_dns_resolve slurmctl.cluster.example
    """
    wanted = list(names) or [host.system.hostname()]
    outcomes: List[Outcome] = []
    slowest = 0.0
    for name in wanted:
        begin = host.monotonic()
        try:
            addresses = host.system.resolve(name)
        except (OSError, UnicodeError) as error:  # a name that is no name at all fails in the IDNA codec
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            outcomes.append(crit("NameUnresolved", f"{name} does not resolve: {why}", target=name))
            continue
        took = host.monotonic() - begin
        slowest = max(slowest, took)
        metrics = (Metric("response_time", took, "s", f"{slow:g}"),)
        if address and address not in addresses:
            message = f"{name} resolves to {', '.join(addresses[:5]) or 'nothing'}, not {address}"
            outcomes.append(crit("NameWrongAddress", message, target=name, metrics=metrics))
        elif took >= slow:
            message = f"{name} took {show_seconds(took)} to resolve"
            outcomes.append(warn("NameSlow", message, target=name, metrics=metrics, action=Action.INSPECT))
    return outcomes or ok(
        f"{', '.join(wanted)} resolved", metrics=(Metric("response_time", slowest, "s", f"{slow:g}"),)
    )
