"""Real sshd on loopback, with host keys, users' keys and a client configuration of its own.

Every address of 127.0.0.0/8 answers, so one server stands for as many hosts as a test wants. The server runs in
a mount namespace where root's shell profile is empty: a slow profile would be measured with every command.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, List, Optional, Sequence, Tuple

from tests.support.ports import free_port
from tests.support.require import missing, need
from tests.support.waiting import until

if TYPE_CHECKING:
    from nhc.fleet.ssh.transport_ssh import Ssh

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if os.path.exists("/usr/sbin/sshd") else None)

# Of each option the first value counts: a test's own come first.
_CONFIG = """\
{more}
Port {port}
ListenAddress {listen}
HostKey {host_key}
PidFile none
AuthorizedKeysFile {authorized}
AllowUsers *@127.0.0.0/8 *@10.99.0.0/16
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
MaxStartups 2000
MaxSessions 100
LogLevel ERROR
PrintMotd no
Subsystem sftp internal-sftp
"""


def need_libssh() -> None:
    """Go on only where the distribution has libssh."""
    try:
        importlib.import_module("nhc.fleet.ssh.libssh")
    except ImportError as error:
        missing("libssh", f"package libssh-4: {error}")


def by_libssh(config: Path, accept_new: bool = False) -> Ssh:
    """The transport that has libssh for plain connections."""
    need_libssh()
    from nhc.fleet.ssh.config import SshConfig
    from nhc.fleet.ssh.known_hosts import HostKeys
    from nhc.fleet.ssh.transport_ssh import Ssh

    return Ssh(SshConfig(str(config)), HostKeys(accept_new))


class Server:
    """One sshd: where it listens, and the client's files to reach it with."""

    def __init__(self, directory: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.directory, self.port, self.process, self.log = directory, port, process, log
        self.identity = directory / "identity"
        self.known_hosts = directory / "known_hosts"
        self.config = directory / "ssh_config"

    def answers(self, address: str) -> bool:
        """Whether it greets. Raises RuntimeError where it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"sshd ended: {self.log.read_text()}")
        return answers(address, self.port)

    @property
    def public_host_key(self) -> str:
        return " ".join((self.directory / "host_key.pub").read_text().split()[:2])

    def trust(self, names: Sequence[str], key: Optional[str] = None) -> None:
        """Add names (addresses) with this server's host key to known_hosts."""
        with self.known_hosts.open("a") as file:
            file.writelines(f"[{name}]:{self.port} {key or self.public_host_key}\n" for name in names)


def keygen(path: Path, kind: str = "ed25519") -> Path:
    """A key pair at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)
    return path


@contextlib.contextmanager
def sshd(
    directory: Path, *, more: str = "", listen: str = "0.0.0.0", port: int = 0, prepare: Sequence[str] = ()
) -> Iterator[Server]:
    """A running sshd that lets this user in with `directory/identity`.

    `prepare` are shell commands in the server's own mount namespace before it starts (as root).
    """
    need("sshd", SSHD)
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "host_key").exists():
        keygen(directory / "host_key")
    if not (directory / "identity").exists():
        keygen(directory / "identity")
    shutil.copy(directory / "identity.pub", directory / "authorized_keys")
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own privilege separation directory
    port = port or free_port()
    config = directory / "sshd_config"
    config.write_text(
        _CONFIG.format(port=port, listen=listen, host_key=directory / "host_key",
                       authorized=directory / "authorized_keys", more=more)
    )  # fmt: skip
    log = directory / "sshd.log"
    argv = [*private_mounts(prepare), str(SSHD), "-D", "-e", "-f", str(config)]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    server = Server(directory, port, process, log)
    server.known_hosts.touch()
    server.config.write_text(
        f"Host *\n  User {user()}\n  Port {port}\n  IdentityFile {server.identity}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {server.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    try:
        until(lambda: server.answers("127.0.0.1" if listen == "0.0.0.0" else listen), what="sshd")
        yield server
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def agent(socket_path: Path, identity: Path) -> Iterator[Path]:
    """The socket of an ssh-agent that holds an identity."""
    need("ssh-agent", shutil.which("ssh-agent"))
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        until(socket_path.exists, what="agent")
        environ = {**os.environ, "SSH_AUTH_SOCK": str(socket_path)}
        subprocess.run(["ssh-add", "-q", str(identity)], check=True, env=environ, capture_output=True)
        yield socket_path
    finally:
        process.terminate()
        process.wait()


def user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def private_mounts(prepare: Sequence[str] = ()) -> List[str]:
    """Run what follows in a mount namespace where this user's shell profile is empty, if that can be done (as root)."""
    profiles = [path for path in (Path.home() / ".bashrc", Path("/etc/bash.bashrc")) if path.exists()]
    commands = [*(f"mount --bind /dev/null {path}" for path in profiles), *prepare]
    if os.geteuid() != 0 or not commands:
        return []
    return ["unshare", "-m", "--propagation", "private", "sh", "-ec", f'{"; ".join(commands)}; exec "$@"', "sh"]


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def addresses(count: int, first: int = 1) -> List[str]:
    """Loopback addresses that stand for as many hosts."""
    return [f"127.{1 + number // 62500}.{number % 62500 // 250}.{number % 250 + 1}"
            for number in range(first, first + count)]  # fmt: skip


@contextlib.contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[Tuple[str, int]]:
    """A TCP server whose every connection goes to `serve` in a thread; closed at the end."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", 0))
        server.listen(1000)
        kept: List[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield "127.0.0.1", server.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            for connection in kept:
                connection.close()


def silent(connection: socket.socket) -> None:
    """Accept and never say a word: no banner."""
    with contextlib.suppress(OSError):
        while connection.recv(4096):
            pass
