"""SSH by libssh, a C library: half of paramiko's CPU for a connection, which is most of what a sweep costs.

It carries the plain case alone: a direct connection, a private key from a file, algorithms that are its own. What
is not plain, a server with which it has no algorithm in common and a key that is refused, is `NotPlain`: paramiko
takes it over, and says what it is. Nothing of libssh's own configuration, known_hosts or agent is used.
docs/decisions/0019 says why there are two libraries.
"""

from __future__ import annotations

import base64
import os
from typing import List, Optional

from nhc.core.model import printable
from nhc.fleet.ssh import libssh_calls as calls
from nhc.fleet.ssh import tcp
from nhc.fleet.ssh.config import Route
from nhc.fleet.ssh.host_keys import HostKeys
from nhc.fleet.ssh.known_hosts import Key
from nhc.fleet.ssh.libssh_calls import Channel, LibsshConnection, PrivateKey, SshError
from nhc.fleet.transport import Trouble, left, passed

CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes192-ctr,aes128-ctr"
"""The cheapest safe cipher first, as with paramiko: processors have instructions for it."""
KEPT = 4096
"""Bytes of standard error that are kept."""
_ROUNDED = 0.005
"""Seconds more than are left: libssh counts whole milliseconds, and must not give up before the deadline."""


class NotPlain(Exception):
    """The connection needs more than libssh does here."""


_KINDS = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
"""Private keys that are in their files: libssh reads a token's (sk-*) as well, and cannot sign with it."""


def load(path: str) -> Optional[PrivateKey]:
    """The private key in a file; None where libssh cannot use it as it is."""
    try:
        key = PrivateKey(path)
        return key if _kind(key.public()) in _KINDS else None
    except SshError:
        return None


def connect(route: Route, key: PrivateKey, host_keys: HostKeys, deadline: float) -> LibsshSession:
    """A session that is logged in. Raises Trouble, and NotPlain where paramiko is to do it."""
    known = host_keys.known(route)
    connection = LibsshConnection()
    try:
        sock = tcp.connect(route.host, route.port, deadline)
        try:
            _configure(connection, route, known)
            connection.take(sock.detach())
        finally:
            sock.close()  # where libssh did not take it
        limit(connection, deadline)
        try:
            connection.connect()
        except SshError as error:
            raise _no_handshake(connection, _text(error), deadline) from None
        host_keys.verify(_host_key(connection), known, route)
        _login(connection, route, key, deadline)
    except BaseException:
        connection.close()
        raise
    return LibsshSession(connection)


def _login(connection: LibsshConnection, route: Route, key: PrivateKey, deadline: float) -> None:
    result = calls.LATER
    while result == calls.LATER and not passed(deadline):
        limit(connection, deadline)
        result = connection.login(key)
    if result == calls.LOGGED_IN and not passed(deadline):
        return
    complaint = _text(connection.error())
    if result in (calls.DENIED, calls.PARTIAL):
        raise NotPlain(complaint)
    if passed(deadline):
        raise Trouble("HungLogin", f"{route.user}: the login did not end in time")
    if connection.connected():  # it is libssh that could not go on
        raise NotPlain(complaint)
    raise Trouble("ConnectionLost", f"the login broke off: {complaint}", passing=True)


def _no_handshake(connection: LibsshConnection, complaint: str, deadline: float) -> Exception:
    """Why there is no connection: what went wrong, or that the two sides could not agree, which paramiko may."""
    banner = connection.has_banner()
    if passed(deadline) or "imeout" in complaint:  # libssh's own clock runs while this process is late
        if banner:
            return Trouble("HandshakeTimeout", "the SSH handshake did not end in time")
        return Trouble("NoBanner", "connected, but no SSH banner came")
    if not complaint.startswith("Socket error"):
        return NotPlain(complaint)
    if banner:
        return Trouble("HandshakeFailed", f"the SSH handshake failed: {complaint}", passing=True)
    # sshd drops connections over its MaxStartups this way: that passes.
    return Trouble("ConnectionLost", f"it closed the connection before its banner: {complaint}", passing=True)


def _configure(connection: LibsshConnection, route: Route, known: List[Key]) -> None:
    try:
        connection.set(calls.PROCESS_CONFIG, b"\0")  # ssh_config is read by us, for all libraries alike
        for files in (calls.KNOWN_HOSTS, calls.GLOBAL_KNOWN_HOSTS):
            connection.set(files, os.devnull)  # it would read them for every host
        connection.set(calls.SSH_DIR, "/")  # nor ask the system for a home directory
        connection.set(calls.HOST, route.host)
        connection.set(calls.USER, route.user)
        connection.set(calls.CIPHERS_OUT, route.ciphers or CIPHERS)
        connection.set(calls.CIPHERS_IN, route.ciphers or CIPHERS)
        if route.kex:
            connection.set(calls.KEY_EXCHANGE, route.kex)
        if known:
            connection.set(calls.HOST_KEYS, ",".join(_algorithms(known)))
    except SshError as error:
        raise NotPlain(_text(error)) from None


def _algorithms(known: List[Key]) -> List[str]:
    """The signatures that the keys on record can make: an RSA key's are named after its digest (RFC 8332)."""
    kinds = dict.fromkeys(kind for kind, _text in known)
    return [name for kind in kinds for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))]


def _host_key(connection: LibsshConnection) -> Key:
    text = connection.host_key()
    return _kind(text), text


def _kind(text: str) -> str:
    """The type of a key, by its base64: the first string of its blob (RFC 4253 section 6.6)."""
    blob = base64.b64decode(text)
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")


def limit(connection: LibsshConnection, deadline: float) -> None:
    """Have the connection's next call end by the deadline. Raises Trouble where that has passed."""
    connection.limit(left(deadline) + _ROUNDED)


class LibsshStream:
    """A command in a channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel: Optional[Channel] = channel
        self.complaints = b""

    def send(self, data: bytes, deadline: float) -> None:
        try:
            while data and self.channel is not None:
                limit(self.channel.connection, deadline)
                data = data[self.channel.write(data) :]
        except SshError:
            return  # it has ended: what it said is still to be read

    def receive(self, deadline: float) -> bytes:
        while self.channel is not None:
            try:
                data = self.channel.read(65536, 1 + int(left(deadline) * 1000))
            except SshError as error:
                raise Trouble("ConnectionLost", f"the connection broke: {_text(error)}", passing=True) from None
            if data:
                return data
            self.complaint()  # where it waits to be read, libssh does not call this the end
            if self.channel.ended():
                return b""
        return b""

    def complaint(self) -> str:
        try:
            while self.channel is not None:
                data = self.channel.read_complaints(KEPT)
                if not data:
                    break
                self.complaints = (self.complaints + data)[-KEPT:]
        except SshError:
            pass
        return self.complaints.decode(errors="replace")

    def close(self) -> None:
        """Let libssh free the channel: before its session, which would free it too."""
        if self.channel is not None:
            self.complaint()
            self.channel = None


class LibsshSession:
    """A connection that is logged in. Commands share it."""

    def __init__(self, connection: LibsshConnection) -> None:
        self._connection: Optional[LibsshConnection] = connection
        self._streams: List[LibsshStream] = []

    def start(self, command: str, deadline: float) -> LibsshStream:
        connection = self._connection
        if connection is None:
            raise Trouble("ConnectionLost", "the session is closed")
        limit(connection, deadline)
        try:
            channel = Channel(connection)
            channel.open()
            limit(connection, deadline)
            channel.start(command)
        except SshError as error:
            if passed(deadline):
                raise Trouble("HungLogin", "logged in, but the server opens no session") from None
            if connection.connected():
                raise Trouble("SessionRefused", f"the server opens no session: {_text(error)}") from None
            raise Trouble("ConnectionLost", f"the connection broke: {_text(error)}", passing=True) from None
        if passed(deadline):
            raise Trouble("HungLogin", "logged in, but the server opens no session")
        stream = LibsshStream(channel)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """End the connection. libssh does so, and closes the socket, when nothing refers to it any more."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self._connection = None


def _text(error: SshError) -> str:
    return printable(str(error), 200)
