"""Arguments for OpenSSH's client wherever nhc runs it: a node gets a command, and nothing of the person who sends it.

A broken or hostile node that gets the operator's agent can log in wherever the operator may, for as long as the check
lasts. So an ssh_config that asks for it for every host (`ForwardAgent yes`) is overruled here, as are commands that it
runs on this machine and forwardings of ports.
"""

from __future__ import annotations

FIRST = (
    "-T", "-x", "-o", "BatchMode=yes", "-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none",
    "-o", "ClearAllForwardings=yes", "-o", "Tunnel=no",
)  # fmt: skip
"""Before every other argument: of an option the first value counts (ssh_config(5))."""
LAST = ("-a", "-k")
"""After every other argument: no agent and no Kerberos ticket is forwarded, whatever `-A` or `-K` came before."""
