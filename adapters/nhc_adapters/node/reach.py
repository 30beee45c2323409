"""How the program is sent to a node and run there: over SSH, or on this machine.

OpenSSH's client is used with the user's own configuration, keys and known hosts; the node gets no agent and no
forwarding of the user's (`nhc.core.system.ssh_client`). A login that asks for input counts as refused. If ssh reports
that it has not logged in, nothing has begun. Any other answer that is not from the program proves nothing.

The program travels as one file, with the line that starts it from standard input: nothing stays on the node.
"""

from __future__ import annotations

import base64
import io
import os
import re
import shlex
import zipfile
from importlib import import_module
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system import process, ssh_client
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.process import Completed
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import NotStarted
from nhc_adapters._command import Runner, complaint, plain

NOT_THERE = (
    "connection refused", "no route to host", "could not resolve", "connection timed out", "network is unreachable",
    "connection closed by remote host", "connection reset by peer", "operation timed out",
)  # fmt: skip
"""Messages of ssh before the login after which a retry may help."""

NOT_ALLOWED = (
    "permission denied", "host key verification failed", "too many authentication failures", "a password is required",
    "a terminal is required", "is not in the sudoers", "not allowed to execute", "bad owner or permissions",
)  # fmt: skip
"""What ssh or sudo says that does not let us in."""

LOGGED_IN = "nhc: logged in"
"""What the node's shell writes before the program starts: after it a broken connection proves nothing."""


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


@declared.settings
class LoginSettings(NamedTuple):
    """The settings in a site's tables. `sudo` is None if the user name decides."""

    user: str = declared.text("user", "root")
    port: Optional[int] = declared.count("port", None, "default: ssh's own", least=1, most=65535)
    identity: str = declared.text("identity", "", "a file with a key; default: ssh's own")
    config: str = declared.text("config", "", "ssh's configuration; default: the user's")
    ssh: str = declared.text("ssh", "ssh", "OpenSSH's client")
    sudo: Optional[bool] = declared.flag("sudo", None, "default: true where user is not root")


class SshLogin(NamedTuple):
    """The login to a node: OpenSSH's client, its options and environment, and the prefix of a command there."""

    program: str
    options: Tuple[str, ...]
    env: Mapping[str, str]
    before: Tuple[str, ...]

    def argv(self, machine: Machine, line: str, *options: str) -> List[str]:
        """What runs a line in the machine's shell. Raises AdapterError for an address that is none."""
        target = machine.address or machine.node
        plain(target.replace(":", "."))  # an IPv6 address is a name too
        return [self.program, *ssh_client.FIRST, *options, *self.options, *ssh_client.LAST, "--", target, line]


def login_of(own: LoginSettings, environ: Optional[Mapping[str, str]]) -> SshLogin:
    """The login; of the environment what ssh needs of its user's."""
    port = "" if own.port is None else str(own.port)
    given = (("-F", own.config), ("-i", own.identity), ("-l", own.user), ("-p", port))
    known = os.environ if environ is None else environ
    env = {name: known[name] for name in ("HOME", "USER", "SSH_AUTH_SOCK") if name in known}
    sudo = own.user != "root" if own.sudo is None else own.sudo
    return SshLogin(
        own.ssh, tuple(part for option, value in given if value for part in (option, value)),
        {**env, "PATH": process.PATH, "LC_ALL": "C.UTF-8"}, ("sudo", "-n", "--") if sudo else (),
    )  # fmt: skip


class Reach:
    """Runs the program on a machine: over SSH, or (`local`) on this one."""

    def __init__(self, login: SshLogin, local: bool, python: str, arguments: Sequence[str], run: Runner) -> None:
        self.login, self.local, self.python, self.arguments, self._run = login, local, python, tuple(arguments), run

    def ask(self, machine: Machine, arguments: Sequence[str], timeout: float) -> ProgramReply:
        """Run the program; its answer. Raises NotStarted, AdapterError."""
        line = f"echo '{LOGGED_IN}' >&2; {command(self.python, [*self.arguments, *arguments], self.login.before)}"
        connect = f"ConnectTimeout={max(1, int(timeout / 2))}"
        argv = ["/bin/sh", "-c", line]
        if not self.local:
            argv = self.login.argv(machine, line, "-o", connect, "-o", "ServerAliveInterval=5")
        try:
            done = self._run(argv, timeout, self.login.env)
        except FileNotFoundError:
            raise NotStarted(f"{argv[0]} is not installed", False) from None
        except OSError as error:
            raise NotStarted(f"{argv[0]} cannot be run: {error.strerror}", True) from None
        return self._reply(machine, arguments[0], done, timeout)

    def _reply(self, machine: Machine, what: str, done: Completed, timeout: float) -> ProgramReply:
        began, why = LOGGED_IN in done.stderr, complaint(done._replace(stdout="", stderr=_without(done.stderr)))
        where = f"{machine.node}: {what}"
        if done.timed_out:
            if not (self.local or began):
                raise NotStarted(f"{where}: no login within {timeout:g} s", True)
            raise AdapterError(f"{where}: no answer within {timeout:g} s")
        lower = why.lower()
        if done.status and any(part in lower for part in NOT_ALLOWED):
            raise NotStarted(f"{where}: {why}", False, "the login, or sudo")
        if done.status == 255 and not (self.local or began):
            raise NotStarted(f"{where}: {why}", any(part in lower for part in NOT_THERE))
        if done.status in (126, 127) and re.search(r"not found|no such file|permission", lower):
            raise NotStarted(f"{where}: {why}", False)
        try:
            value = parse_json(done.stdout.strip().splitlines()[-1]) if not done.status else None
        except (ValueError, IndexError):
            value = None
        if not isinstance(value, dict):
            raise AdapterError(f"{where}: ended with {done.status}: {why}")
        if "problem" in value:
            raise AdapterError(f"{where}: {printable(str(value['problem']), 900)}")
        return ProgramReply(value)


def _without(stderr: str) -> str:
    return "\n".join(line for line in stderr.splitlines() if LOGGED_IN not in line)


def run_program(argv: Sequence[str], timeout: float, env: Mapping[str, str]) -> Completed:
    """Run it for real, with the program on its standard input."""
    return process.run(argv, timeout=timeout, env=env, stdin=archive())


MODULES = (
    "nhc", "nhc.core", "nhc.core.light", "nhc.core.system", "nhc.core.system.bounded_read", "nhc.core.system.process",
    "nhc.core.system.written_files",
    "nhc_adapters", "nhc_adapters.node", "nhc_adapters.node.hand",
    *(f"nhc_adapters.node.hand.{name}" for name in
      ("carry_out", "evidence", "journal", "look", "nvidia", "plan", "program", "runs", "values")),
)  # fmt: skip
"""What the program consists of."""

START = (
    "import base64,os,sys;fd=os.memfd_create('nhc');os.write(fd,base64.b64decode(sys.stdin.read()));"
    "sys.path.insert(0,'/proc/self/fd/%d'%fd);"
    "from nhc_adapters.node.hand.program import main;sys.exit(main(sys.argv[1:]))"
)
"""Read the archive into memory and run it from there: a file system that is full or read-only is no obstacle."""


def archive() -> str:
    """The sources, packed, in base64; the same text each time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in MODULES:
            module = import_module(name)
            package = hasattr(module, "__path__")
            path = name.replace(".", "/") + ("/__init__.py" if package else ".py")
            loader = module.__loader__
            source = loader.get_source(name) if loader is not None and hasattr(loader, "get_source") else None
            if source is None:
                raise FileNotFoundError(2, "the source of a module that is sent to nodes", name)
            file.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), source, zipfile.ZIP_DEFLATED)
    return base64.b64encode(packed.getvalue()).decode()


def command(python: str, arguments: Sequence[str], before: Sequence[str] = ()) -> str:
    """The line for a node's shell. -I: nothing of the user's own is imported; -S: nor the site's."""
    return shlex.join([*before, python, "-I", "-S", "-c", START, *arguments])
