"""SSH by paramiko, in this process: no process for each node, a quarter of their CPU.

What ssh_config, identities, agents, jump hosts and known_hosts mean follows OpenSSH, as Fabric has it, with one
difference: a host key is verified, always. The cheapest safe key exchange goes first, since key exchange is most
of what a connection costs; `KexAlgorithms` in ssh_config changes that.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import paramiko  # type: ignore[import-not-found,import-untyped,unused-ignore]
from paramiko.ssh_exception import (  # type: ignore[import-not-found,import-untyped,unused-ignore]  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AuthenticationException,
    BadAuthenticationType,
    ChannelException,
    IncompatiblePeer,
    PasswordRequiredException,
    SSHException,
)

from nhc.core.model import printable
from nhc.core.system.bounded_read import read_text
from nhc.fleet.ssh.config import Route, SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.transport import Node, OutOfResources, Trouble, connect_tcp, is_scarce, left, passed, wait_for

# paramiko's connections, as a sweep needs them: no call without a deadline, no work that nobody looks at.


KEX_FIRST = ("curve25519-sha256", "curve25519-sha256@libssh.org")
"""One key exchange under two names: the standard's (RFC 8731) and the one it had before, which paramiko knows."""
_KEX: Dict[str, Any] = dict(paramiko.Transport._kex_info)
if KEX_FIRST[1] in _KEX:
    _KEX.setdefault(KEX_FIRST[0], _KEX[KEX_FIRST[1]])
CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
KEPT = 4096

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what goes wrong is raised


class Buffered:
    """A socket that is read ahead: paramiko asks for each packet's first bytes and then for its rest."""

    def __init__(self, sock: Any, process: Optional[subprocess.Popen[bytes]] = None) -> None:
        self.sock, self.waiting, self.process = sock, b"", process
        self.send, self.settimeout = sock.send, sock.settimeout

    def recv(self, size: int) -> bytes:
        if not self.waiting:
            self.waiting = self.sock.recv(65536)
        data, self.waiting = self.waiting[:size], self.waiting[size:]
        return data

    def close(self) -> None:
        end(self.sock)

    def end(self) -> None:
        """Wake whoever reads, with the end of file; the number of a real socket stays taken."""
        if isinstance(self.sock, socket.socket):
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side has ended it
        else:
            end(self.sock)  # a channel of a jump host
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def proxy(command: str) -> Buffered:
    """A ProxyCommand, on one end of a socket pair: with pipes, paramiko's own would wait for each byte asked for."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise OutOfResources(f"ProxyCommand: {error.strerror}") from None
    with theirs:
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"], stdin=theirs.fileno(), stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            if is_scarce(error):
                raise OutOfResources(f"ProxyCommand: {error.strerror}") from None
            raise Trouble("ConnectFailed", f"ProxyCommand: {error.strerror}") from None
    return Buffered(ours, process)


class QuietTransport(paramiko.Transport):  # type: ignore[misc,unused-ignore]
    """Without the log lines of every packet, which nobody reads and which cost a fifth of a connection's CPU."""

    _active_check_timeout = 30.0  # closing wakes its thread (see _close): it need not look up every 0.1 s
    _kex_info = _KEX
    _preferred_kex = (
        *(kex for kex in KEX_FIRST if kex in _KEX),
        *(kex for kex in paramiko.Transport._preferred_kex if kex not in KEX_FIRST),
    )
    _preferred_ciphers = (
        *(cipher for cipher in CIPHERS_FIRST if cipher in paramiko.Transport._preferred_ciphers),
        *(cipher for cipher in paramiko.Transport._preferred_ciphers if cipher not in CIPHERS_FIRST),
    )

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        # A thread for each handshake's timer: `start_client` has a deadline already.
        self.packetizer.start_handshake = lambda timeout: None

    def _log(self, level: int, msg: Any, *args: Any) -> None:
        """Say nothing."""

    def _parse_debug(self, m: Any) -> None:
        """Formatting sshd's debug messages for the log took 6% of a connection."""

    def _filter_algorithm(self, type_: str) -> Tuple[str, ...]:
        chosen: Tuple[str, ...] = getattr(self, f"_preferred_{type_}")
        return chosen


class ParamikoStream:
    """A command in a channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.complaints = b""

    def send(self, data: bytes, deadline: float) -> None:
        try:
            self.channel.settimeout(left(deadline))
            self.channel.sendall(data)
        except socket.timeout:
            raise Trouble("Timeout", "the deadline passed") from None
        except (OSError, EOFError, SSHException):
            return  # it has ended: what it said is still to be read

    def receive(self, deadline: float) -> bytes:
        while True:
            try:
                self.channel.settimeout(left(deadline))
                data: bytes = self.channel.recv(65536)
            except socket.timeout:
                continue  # `left` says whether that was the deadline
            except (OSError, EOFError, SSHException) as error:
                raise Trouble("ConnectionLost", f"the connection broke: {error}", passing=True) from None
            return data

    def complaint(self) -> str:
        try:
            while self.channel.recv_stderr_ready():
                self.complaints = (self.complaints + self.channel.recv_stderr(KEPT))[-KEPT:]
        except (OSError, EOFError, SSHException):
            pass
        return self.complaints.decode(errors="replace")

    def close(self) -> None:
        end(self.channel)


class ParamikoSession:
    """A connection that is logged in. Commands share it."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport

    def start(self, command: str, deadline: float) -> ParamikoStream:
        try:
            channel = self.transport.open_session(timeout=left(deadline))
            # Channel.exec_command would wait for the server's reply without a deadline. None is asked for here: a
            # server that refuses closes the channel.
            message = paramiko.Message()
            message.add_byte(bytes((98,)))  # SSH_MSG_CHANNEL_REQUEST, RFC 4254 section 5.4
            message.add_int(channel.remote_chanid)
            message.add_string("exec")
            message.add_boolean(False)
            message.add_string(command)
            self.transport._send_user_message(message)
        except ChannelException as error:
            raise Trouble("SessionRefused", f"the server opens no session: {error}") from None
        except (OSError, EOFError, SSHException) as error:
            if passed(deadline):
                raise Trouble("HungLogin", "logged in, but the server opens no session") from None
            raise Trouble("ConnectionLost", f"the connection broke: {error}", passing=True) from None
        return ParamikoStream(channel)

    def close(self) -> None:
        close_connection(self.transport)


def end(channel: Any) -> None:
    """Close a channel, or a socket. The other side is told, and may be gone: what it said has been read."""
    try:
        channel.close()
    except (OSError, EOFError, SSHException):
        pass


def close_connection(transport: Any) -> None:
    """End a connection, and wait for paramiko's thread to leave the socket before its number is free again.

    A thread that was about to wait on a socket closed under it would wait on the next connection's, which has the
    same number, and take its bytes.
    """
    transport.sock.end()
    if transport.is_alive():
        transport.join(5)
    transport.close()


# The keys to offer a host: files, agents, and which goes first.


TRIES = 6
"""Keys offered at most: sshd's MaxAuthTries."""


class _Agent(paramiko.Agent):  # type: ignore[misc,unused-ignore]
    """One agent for all threads: a question and its answer are not torn apart."""

    def __init__(self) -> None:
        self.asking = threading.Lock()
        super().__init__()

    def _send_message(self, msg: Any) -> Any:
        with self.asking:
            return super()._send_message(msg)


class Keys:
    """Every key read once, whatever the number of hosts."""

    def __init__(self) -> None:
        self.worked: Dict[str, Any] = {}
        """The key that let each user in last."""
        self._keys: Dict[str, Any] = {}
        self._agents: Dict[str, List[Any]] = {}
        self._lock = threading.Lock()

    def locked(self, route: Route) -> List[str]:
        """Identities that cannot be used as they are: they have a passphrase, or are no keys."""
        return [path for path in route.identities if isinstance(self._keys.get(path), Exception)]

    def candidates(self, route: Route) -> Iterator[Any]:
        """Keys in OpenSSH's order: those on file that the agent holds too, the agent's others, those on file.

        The key that worked last for this user goes first, where it is among them.
        """
        own = [key for key in map(self.load, route.identities) if isinstance(key, paramiko.PKey)]
        agent = [] if route.agent == "none" else self._agent_keys(route.agent)
        blobs = {key.asbytes() for key in own}
        listed = [key for key in agent if key.asbytes() in blobs or _public(key, route)]
        others = [] if route.identities_only else [key for key in agent if key not in listed]
        keys = [*listed, *others, *own]
        last = self.worked.get(route.user)
        if last is not None and any(last is key for key in keys):
            keys = [last, *(key for key in keys if key is not last)]
        seen: Set[bytes] = set()
        for key in keys[: 4 * TRIES]:
            if key.asbytes() not in seen and len(seen) < TRIES:
                seen.add(key.asbytes())
                yield key

    def first_file(self, route: Route) -> str:
        """The file of the key that goes first there, "" where an agent holds that one or there is none."""
        first = next(self.candidates(route), None)
        return next((path for path in route.identities if first is not None and self.load(path) is first), "")

    def load(self, path: str) -> Any:
        """The private key in a file: None where there is none, the exception where it cannot be used."""
        if path not in self._keys:
            try:
                self._keys[path] = paramiko.PKey.from_path(path)
            except OSError as error:
                if is_scarce(error):
                    raise OutOfResources(f"{path}: {error.strerror}") from None
                self._keys[path] = None
            except (PasswordRequiredException, SSHException, ValueError, TypeError) as error:
                self._keys[path] = error
        return self._keys[path]

    def close(self) -> None:
        """End the connections to the agents."""
        for agent in {key.agent for keys in self._agents.values() for key in keys}:
            agent.close()

    def _agent_keys(self, path: str) -> List[Any]:
        with self._lock:
            if path not in self._agents:
                self._agents[path] = _ask_agent(path)
            return self._agents[path]


def _ask_agent(path: str) -> List[Any]:
    try:
        if path:
            before = os.environ.get("SSH_AUTH_SOCK")
            os.environ["SSH_AUTH_SOCK"] = path  # paramiko knows no other way to name a socket
            try:
                return list(_Agent().get_keys())
            finally:
                if before is None:
                    del os.environ["SSH_AUTH_SOCK"]
                else:
                    os.environ["SSH_AUTH_SOCK"] = before
        return list(_Agent().get_keys())
    except (OSError, SSHException) as error:
        if is_scarce(error):
            raise OutOfResources(f"the agent: {error}") from None
        return []


def _public(key: Any, route: Route) -> bool:
    """Whether an agent's key is one of the identities, by the .pub file beside a private key that is not here."""
    for path in route.identities:
        try:
            fields = read_text(path if path.endswith(".pub") else f"{path}.pub", 65536, "replace").split()
        except OSError:
            continue
        if len(fields) > 1 and fields[1] == key.get_base64():
            return True
    return False


class Paramiko:
    """`config` and `host_keys` are shared with the transport that has libssh for the plain case."""

    def __init__(self, config: SshConfig, host_keys: HostKeys) -> None:
        self.config, self.host_keys = config, host_keys
        self.keys = Keys()
        self._gateways: Dict[Tuple[str, ...], Any] = {}
        self._gateway_locks: Dict[Tuple[str, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def warm(self, routes: Sequence[Route]) -> None:
        """Read the keys that these routes need, before the shards are forked: once instead of once in each."""
        for route in routes:
            for path in route.identities:
                self.keys.load(path)

    def connect(self, node: Node, deadline: float) -> ParamikoSession:
        return self.open(self.config.lookup(node), deadline, node.password)

    def open(self, route: Route, deadline: float, password: str = "") -> ParamikoSession:
        """A session by a route that is known already. Raises Trouble."""
        return ParamikoSession(self._connect(route, deadline, password))

    def close(self) -> None:
        for transport in self._gateways.values():
            close_connection(transport)
        self.keys.close()

    # Connecting.

    def _connect(self, route: Route, deadline: float, password: str = "") -> Any:
        sock = self._socket(route, deadline)
        transport: Any = None
        try:
            transport = self._handshake(sock, route, deadline)
            self._login(transport, route, deadline, password)
        except BaseException:
            if transport is not None:
                close_connection(transport)
            else:
                sock.end()
                sock.close()
            raise
        return transport

    def _socket(self, route: Route, deadline: float) -> Buffered:
        if route.jumps:
            return Buffered(self._through(route, deadline))
        if route.proxy_command:
            return proxy(route.proxy_command)
        return Buffered(connect_tcp(route.host, route.port, deadline))

    def _through(self, route: Route, deadline: float) -> Any:
        """A channel to the host through its jump hosts; the connection to those serves all hosts behind them."""
        gateway = self._gateway(route.jumps, deadline)
        try:
            return gateway.open_channel(
                "direct-tcpip", (route.host, route.port), ("127.0.0.1", 0), timeout=left(deadline)
            )
        except ChannelException as error:
            # RFC 4254 section 5.1: 1 is prohibited, 2 is connect failed.
            reason = "GatewayRefused" if error.code == 1 else "Refused"
            raise Trouble(reason, f"{route.jumps[-1]} gets no connection to {route.host}: {error.text}") from None
        except (OSError, EOFError, SSHException) as error:
            if passed(deadline):
                raise Trouble("ConnectTimeout", f"{route.host} through {route.jumps[-1]}: no answer") from None
            raise Trouble("ConnectionLost", f"{route.jumps[-1]}: {error}", passing=True) from None

    def _gateway(self, jumps: Tuple[str, ...], deadline: float) -> Any:
        with self._lock:
            lock = self._gateway_locks.setdefault(jumps, threading.Lock())
        if not lock.acquire(timeout=left(deadline)):
            raise Trouble("GatewayFailed", f"{jumps[-1]}: no connection yet")
        try:
            gateway = self._gateways.get(jumps)
            if gateway is None or not gateway.is_active():
                hop = self.config.hop(jumps[-1])
                if len(jumps) > 1:
                    hop = hop._replace(jumps=jumps[:-1])
                try:
                    gateway = self._gateways[jumps] = self._connect(hop, deadline)
                except Trouble as trouble:
                    raise Trouble(
                        "GatewayFailed", f"jump host {jumps[-1]}: {trouble.message}", trouble.passing
                    ) from None
            return gateway
        finally:
            lock.release()

    def _handshake(self, sock: Any, route: Route, deadline: float) -> Any:
        known = self.host_keys.known(route)
        transport = QuietTransport(sock)
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left(deadline)
        if route.kex:
            transport._preferred_kex = _chosen(route.kex, transport._preferred_kex)
        if route.ciphers:
            transport._preferred_ciphers = _chosen(route.ciphers, transport._preferred_ciphers)
        if known:
            types = {kind for kind, _text in known}
            transport._preferred_keys = tuple(
                kind for kind in transport._preferred_keys
                if kind in types or (kind.startswith("rsa-sha2") and "ssh-rsa" in types)
            )  # fmt: skip
        try:
            done = threading.Event()
            try:
                transport.start_client(event=done)  # with a timeout instead it would look ten times a second
            except RuntimeError as error:
                if is_scarce(error):
                    raise OutOfResources(str(error)) from None
                raise
            wait_for(done, deadline)
            if not transport.is_active():
                raise transport.get_exception() or SSHException("negotiation failed")
            key = transport.get_remote_server_key()
        except IncompatiblePeer as error:
            if known and "host key" in str(error):
                raise Trouble("HostKey", f"{route.known_as}: offers no host key of a type that is known") from None
            raise Trouble("NoCommonAlgorithm", str(error)) from None
        except (OSError, EOFError, SSHException) as error:
            raise _handshake_trouble(error, transport, deadline) from None
        self.host_keys.verify((key.get_name(), key.get_base64()), known, route)
        return transport

    # Logging in.

    def _login(self, transport: Any, route: Route, deadline: float, password: str) -> None:
        refusals: List[str] = []
        allowed: Optional[List[str]] = None
        try:
            for key in self.keys.candidates(route):
                if allowed is not None and "publickey" not in allowed:
                    break
                transport.auth_timeout = left(deadline)
                try:
                    more = _offer(transport, route.user, key, deadline)
                except BadAuthenticationType as error:
                    allowed = error.allowed_types
                    continue
                except AuthenticationException as error:
                    if not transport.is_active() or "timeout" in str(error).lower():
                        raise
                    refusals.append(key.get_name())
                    continue
                self.keys.worked[route.user] = key
                if not more:
                    return
                allowed = more
            if password:
                transport.auth_timeout = left(deadline)
                if not transport.auth_password(route.user, password):
                    return
        except (OSError, EOFError, SSHException) as error:
            if passed(deadline) or "timeout" in str(error).lower():
                raise Trouble("HungLogin", f"{route.user}: the login did not end in time") from None
            if not isinstance(error, AuthenticationException):
                raise Trouble("ConnectionLost", f"the login broke off: {error}", passing=True) from None
        tried = f"{len(refusals)} keys refused" if refusals else "no key to offer"
        locked = self.keys.locked(route)
        hint = f"; {locked[0]} needs a passphrase: use an agent" if locked else ""
        wants = f"; the server wants {', '.join(allowed)}" if allowed else ""
        raise Trouble("AuthFailed", f"{route.user}: {tried}{', and the password' if password else ''}{wants}{hint}")


def _offer(transport: Any, user: str, key: Any, deadline: float) -> List[str]:
    """Offer a key; what the server wants besides."""
    done = threading.Event()
    transport.auth_publickey(user, key, event=done)
    wait_for(done, deadline)
    more: List[str] = transport.auth_handler.wait_for_response(done)
    return more


def _chosen(wish: str, offered: Tuple[str, ...]) -> Tuple[str, ...]:
    """Algorithms as ssh_config lists them (`a,b`, `+a`, `-a`, `^a`), of those there are; all where none is left."""
    from fnmatch import fnmatchcase

    sign, names = (wish[0], wish[1:]) if wish[0] in "+-^" else ("", wish)
    patterns = names.split(",")
    picked = tuple(kind for pattern in patterns for kind in offered if fnmatchcase(kind, pattern))
    rest = tuple(kind for kind in offered if kind not in picked)
    chosen = {"": picked, "+": (*offered,), "-": rest, "^": (*picked, *rest)}[sign]
    return chosen or offered


def _handshake_trouble(error: Exception, transport: Any, deadline: float) -> Trouble:
    complaint = printable(str(error) or type(error).__name__, 200)
    if not transport.remote_version and (passed(deadline, 0.05) or "timed out" in complaint.lower()):
        return Trouble("NoBanner", "connected, but no SSH banner came")
    if passed(deadline, 0.05) or "timeout" in complaint.lower() or "No existing session" in complaint:
        return Trouble("HandshakeTimeout", "the SSH handshake did not end in time")
    if not transport.remote_version and "Invalid packet" not in complaint and "banner" in complaint.lower():
        # sshd drops connections over its MaxStartups this way: that passes.
        return Trouble("ConnectionLost", f"it closed the connection before its banner: {complaint}", passing=True)
    return Trouble(
        "HandshakeFailed", f"the SSH handshake failed: {complaint}", passing=isinstance(error, (OSError, EOFError))
    )
