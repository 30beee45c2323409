"""How the program gets to the node and is run there: over SSH, or on this very machine.

OpenSSH's client is used with the user's own configuration, keys and known hosts, and shares nothing of the user's
(`nhc.system.ssh_client`). A login that asks for
anything is a refusal. If ssh reports that it has not logged in, nothing has begun. Any other answer that is not
the program's proves nothing.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.model import printable
from nhc.ports.adapter import AdapterError
from nhc.ports.repair import Answer, Machine, Sent
from nhc.system import process, ssh_client
from nhc.system.bounded_read import parse_json
from nhc.system.process import Completed
from nhc_adapters._command import Runner, complaint, plain
from nhc_adapters.node.package import archive, command

NOT_THERE = (
    "connection refused", "no route to host", "could not resolve", "connection timed out", "network is unreachable",
    "connection closed by remote host", "connection reset by peer", "operation timed out",
)  # fmt: skip
"""What ssh says before it has logged in, where asking again later may help."""

NOT_ALLOWED = (
    "permission denied", "host key verification failed", "too many authentication failures", "a password is required",
    "a terminal is required", "is not in the sudoers", "not allowed to execute", "bad owner or permissions",
)  # fmt: skip
"""What ssh or sudo says that does not let us in."""

LATER = 30.0
"""Seconds after which a node that did not answer is asked again."""

LOGGED_IN = "nhc: logged in"
"""What the node's shell writes before the program starts: after it a broken connection proves nothing."""


class NotBegun(AdapterError):
    """Proof that the program was not started. `later`: it may be asked again. `right`: what is not allowed to us."""

    def __init__(self, message: str, later: bool, right: str = "") -> None:
        super().__init__(message)
        self.later, self.right = later, right

    def sent(self, before: str = "") -> Sent:
        """The same as the answer to an order. A node on which nobody can log in stands in the way of itself."""
        again = LATER if self.later else 0.0
        return Sent(Answer.REFUSED, f"{before}{self}", retry_after=again, by_machine=self.later, right=self.right)


class ProgramReply(NamedTuple):
    """What the program answered."""

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        return printable(str(self.values.get(name, "")), 900)

    def text_of(self, name: str) -> str:
        """A text as it came."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> float:
        value = self.values.get(name)
        return float(value) if isinstance(value, (int, float)) else 0.0


class Reach:
    """Runs the program on a machine. `ssh` is OpenSSH's client, "" for this machine itself."""

    def __init__(
        self, ssh: str, options: Sequence[str], python: str, before: Sequence[str], words: Sequence[str], run: Runner
    ) -> None:
        self.ssh, self.options, self.python = ssh, tuple(options), python
        self.before, self.words, self._run = tuple(before), tuple(words), run
        self._env: Dict[str, str] = {"PATH": process.PATH, "LC_ALL": "C.UTF-8"}

    def learn_environment(self, environ: Mapping[str, str]) -> None:
        """What ssh needs of its user's: where its configuration and its agent are."""
        self._env.update({name: environ[name] for name in ("HOME", "USER", "SSH_AUTH_SOCK") if name in environ})

    def ask(self, machine: Machine, words: Sequence[str], timeout: float) -> ProgramReply:
        """Run the program; its answer. Raises NotBegun, AdapterError."""
        line = command(self.python, [*self.words, *words], self.before)
        argv = self._argv(machine, f"echo '{LOGGED_IN}' >&2; {line}", timeout)
        try:
            done = self._run(argv, timeout, self._env)
        except FileNotFoundError:
            raise NotBegun(f"{argv[0]} is not installed", False) from None
        except OSError as error:
            raise NotBegun(f"{argv[0]} cannot be run: {error.strerror}", True) from None
        return self._reply(machine, words[0], done, timeout)

    def _argv(self, machine: Machine, line: str, timeout: float) -> List[str]:
        if not self.ssh:
            return ["/bin/sh", "-c", line]
        target = machine.address or machine.node
        plain(target.replace(":", "."))  # an IPv6 address is a name too
        connect = max(1, int(timeout / 2))
        own = ("-o", f"ConnectTimeout={connect}", "-o", "ServerAliveInterval=5")
        return [self.ssh, *ssh_client.FIRST, *own, *self.options, *ssh_client.LAST, "--", target, line]

    def _reply(self, machine: Machine, what: str, done: Completed, timeout: float) -> ProgramReply:
        began, said = LOGGED_IN in done.stderr, complaint(done._replace(stdout="", stderr=_without(done.stderr)))
        where = f"{machine.node}: {what}"
        if done.timed_out:
            if self.ssh and not began:
                raise NotBegun(f"{where}: no login within {timeout:g} s", True)
            raise AdapterError(f"{where}: no answer within {timeout:g} s")
        lower = said.lower()
        if done.status and any(words in lower for words in NOT_ALLOWED):
            raise NotBegun(f"{where}: {said}", False, "the login, or sudo")
        if self.ssh and done.status == 255 and not began:
            raise NotBegun(f"{where}: {said}", any(words in lower for words in NOT_THERE))
        if done.status in (126, 127) and re.search(r"not found|no such file|permission", lower):
            raise NotBegun(f"{where}: {said}", False)
        try:
            value = parse_json(done.stdout.strip().splitlines()[-1]) if not done.status else None
        except (ValueError, IndexError):
            value = None
        if not isinstance(value, dict):
            raise AdapterError(f"{where}: ended with {done.status}: {said}")
        if "problem" in value:
            raise AdapterError(f"{where}: {printable(str(value['problem']), 900)}")
        return ProgramReply(value)


def _without(stderr: str) -> str:
    return "\n".join(line for line in stderr.splitlines() if LOGGED_IN not in line)


def run_program(argv: Sequence[str], timeout: float, env: Mapping[str, str]) -> Completed:
    """Run it for real, with the program on its standard input."""
    return process.run(argv, timeout=timeout, env=env, stdin=archive())


def options_of(user: str, port: str, config: str, identity: str) -> Tuple[str, ...]:
    """Ssh's options for these settings."""
    found: List[str] = []
    for option, value in (("-F", config), ("-i", identity), ("-l", user), ("-p", port)):
        found += [option, value] if value else []
    return tuple(found)
