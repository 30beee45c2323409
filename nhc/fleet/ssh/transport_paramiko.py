"""SSH by paramiko, in this process: no process for each node, a quarter of their CPU.

What ssh_config, identities, agents, jump hosts and known_hosts mean follows OpenSSH, as Fabric has it, with one
difference: a host key is verified, always. The cheapest safe key exchange goes first, since key exchange is most
of what a connection costs; `KexAlgorithms` in ssh_config changes that.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from paramiko.ssh_exception import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AuthenticationException,
    BadAuthenticationType,
    ChannelException,
    IncompatiblePeer,
    SSHException,
)

from nhc.core.model import printable
from nhc.fleet.ssh import tcp
from nhc.fleet.ssh.config import Route, SshConfig
from nhc.fleet.ssh.connection import Buffered, ParamikoSession, QuietTransport, close, proxy
from nhc.fleet.ssh.host_keys import HostKeys
from nhc.fleet.ssh.keys import Keys
from nhc.fleet.transport import Node, OutOfResources, Trouble, is_scarce, left, passed, wait_for


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
            close(transport)
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
                close(transport)
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
        return Buffered(tcp.connect(route.host, route.port, deadline))

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
