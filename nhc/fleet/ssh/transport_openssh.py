"""SSH through the `ssh` program: for GSSAPI, hardware keys, certificates, ControlMaster and every option it knows.

It costs a process and more CPU for each node (docs/fleet.md has numbers). ssh's own messages become reasons.
"""

from __future__ import annotations

import re
import time
from typing import List, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.system import ssh_client
from nhc.fleet.transport import Node, Trouble
from nhc.fleet.transport_local import ProcessStream

# What ssh says on standard error, the reason for it, and whether it may pass.
_COMPLAINTS: Tuple[Tuple[str, str, bool], ...] = (
    (r"Host key for .* has changed|No .* host key is known", "HostKey", False),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed", "HostKey", False),
    (r"Permission denied \(|Too many authentication failures", "AuthFailed", False),
    (r"Connection refused", "Refused", False),
    (r"Could not resolve hostname.*Temporary failure", "NoAddress", True),
    (r"Could not resolve hostname", "NoAddress", False),
    (r"banner exchange.*timed out|timed out during banner exchange", "NoBanner", False),
    (r"timed out|Timeout, server", "ConnectTimeout", False),
    (r"No route to host|Network is unreachable", "Unreachable", False),
    (r" line \d+: ", "BadSshConfig", False),  # the last line only counts such lines
    (r"Connection (reset|closed)|kex_exchange_identification", "ConnectionLost", True),
)

ROUNDING = 0.7
"""Seconds that ssh has beyond a deadline to say why it failed, where its own timeout ends with ours."""


class OpenSSHStream(ProcessStream):
    """A command over a connection of its own; the end of it is where ssh's complaint is looked at."""

    def receive(self, deadline: float) -> bytes:
        try:
            data = super().receive(deadline)
        except Trouble:
            # ssh counts in whole seconds and may be about to say what it waits for.
            data = super().receive(time.monotonic() + ROUNDING)
            deadline = time.monotonic() + ROUNDING
        if not data and self.finish(deadline) == 255:  # ssh's own failures
            raise self._trouble()
        return data

    def _trouble(self) -> Trouble:
        complaint = self.complaint()
        for pattern, reason, passing in _COMPLAINTS:
            if re.search(pattern, complaint):
                lines = [line for line in complaint.splitlines() if re.search(pattern, line)]
                return Trouble(reason, printable(lines[-1], 300), passing)
        last = printable((complaint.strip().splitlines() or ["it said nothing"])[-1], 300)
        return Trouble("SshFailed", f"ssh: {last}")


class OpenSSHSession:
    """The argument vector of one node."""

    def __init__(self, argv: Sequence[str], target: str) -> None:
        self.argv, self.target = list(argv), target

    def start(self, command: str, deadline: float) -> OpenSSHStream:
        # Less than our own deadline: else a host that says nothing would look like a login that hangs.
        seconds = max(1, int(deadline - time.monotonic() - 0.5))
        return OpenSSHStream([*self.argv, "-o", f"ConnectTimeout={seconds}", "--", self.target, command])

    def close(self) -> None:
        """Each command had a connection of its own, or the user's ControlMaster."""


class OpenSSH:
    """`options` are arguments for ssh before the host, such as `-F FILE`."""

    def __init__(self, options: Sequence[str] = (), accept_new: bool = False, program: str = "ssh") -> None:
        checking = "accept-new" if accept_new else "yes"
        self.argv = [program, *ssh_client.FIRST, *options, "-o", f"StrictHostKeyChecking={checking}"]

    def connect(self, node: Node, deadline: float) -> OpenSSHSession:
        if node.password:
            raise Trouble("AuthFailed", "a password cannot be given to ssh: use keys or transport=ssh")
        argv: List[str] = [*self.argv, *node.arguments]
        if node.user:
            argv += ["-l", node.user]
        if node.port:
            argv += ["-p", str(node.port)]
        if node.identity:
            argv += ["-i", node.identity]
        return OpenSSHSession([*argv, *ssh_client.LAST], node.target)

    def close(self) -> None:
        """Nothing is open."""
