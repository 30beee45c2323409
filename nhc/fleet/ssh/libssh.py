"""SSH by libssh, a C library: half of paramiko's CPU for a connection, which is most of what a sweep costs.

It carries the plain case alone: a direct connection, a private key from a file, algorithms that are its own. What
is not plain, a server with which it has no algorithm in common and a key that is refused, is `NotPlain`: paramiko
takes it over, and says what it is. Nothing of libssh's own configuration, known_hosts or agent is used.
docs/decisions/0019 says why there are two libraries.
"""

from __future__ import annotations

import base64
import os
import struct
from typing import List, Optional

import ssh.key  # type: ignore[import-not-found,import-untyped,unused-ignore]
import ssh.options as options  # type: ignore[import-not-found,import-untyped,unused-ignore]
from ssh.channel import Channel  # type: ignore[import-not-found,import-untyped,unused-ignore]
from ssh.exceptions import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    EOF,
    AuthenticationDenied,
    AuthenticationPartial,
    BaseSSHError,
)
from ssh.key import SSHKey  # type: ignore[import-not-found,import-untyped,unused-ignore]
from ssh.session import Session  # type: ignore[import-not-found,import-untyped,unused-ignore]

from nhc.core.model import printable
from nhc.fleet.ssh import tcp
from nhc.fleet.ssh.config import Route
from nhc.fleet.ssh.host_keys import HostKeys
from nhc.fleet.ssh.known_hosts import Key
from nhc.fleet.transport import Trouble, left, passed

CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes192-ctr,aes128-ctr"
"""The cheapest safe cipher first, as with paramiko: processors have instructions for it."""
KEPT = 4096
"""Bytes of standard error that are kept."""
_LONG = struct.Struct("l")
"""Numbers as `ssh_options_set` reads them from memory: ssh-python's own way to set one passes an int for a long."""

_ROUNDED = 0.005
"""Seconds more than are left: libssh counts whole milliseconds, and must not give up before the deadline."""


class NotPlain(Exception):
    """The connection needs more than libssh does here."""


def load(path: str) -> Optional[SSHKey]:
    """The private key in a file; None where libssh cannot use it as it is."""
    try:
        return ssh.key.import_privkey_file(path)
    except BaseSSHError:
        return None


def connect(route: Route, key: SSHKey, host_keys: HostKeys, deadline: float) -> LibsshSession:
    """A session that is logged in. Raises Trouble, and NotPlain where paramiko is to do it."""
    known = host_keys.known(route)
    sock = tcp.connect(route.host, route.port, deadline)
    session = Session()
    session.set_socket(sock.detach())  # libssh closes it
    _configure(session, route, known)
    limit(session, deadline)
    try:
        session.connect()
    except BaseSSHError as error:
        raise _no_handshake(session, _text(error), deadline) from None
    host_keys.verify(_host_key(session), known, route)
    limit(session, deadline)
    try:
        session.userauth_publickey(key)
    except (AuthenticationDenied, AuthenticationPartial) as error:
        raise NotPlain(_text(error)) from None
    except BaseSSHError as error:
        if not passed(deadline):
            raise Trouble("ConnectionLost", f"the login broke off: {_text(error)}", passing=True) from None
    if passed(deadline):
        raise Trouble("HungLogin", f"{route.user}: the login did not end in time")
    return LibsshSession(session)


def _no_handshake(session: Session, complaint: str, deadline: float) -> Exception:
    """Why there is no connection: what went wrong, or that the two sides could not agree, which paramiko may."""
    banner = session.get_serverbanner() is not None
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


def _configure(session: Session, route: Route, known: List[Key]) -> None:
    try:
        session.options_set(options.PROCESS_CONFIG, b"\0")  # ssh_config is read by us, for all libraries alike
        for files in (options.KNOWNHOSTS, options.GLOBAL_KNOWNHOSTS):
            session.options_set(files, os.devnull)  # it would read them for every host
        session.options_set(options.SSH_DIR, "/")  # nor ask the system for a home directory
        session.options_set(options.HOST, route.host)
        session.options_set(options.USER, route.user)
        session.options_set(options.CIPHERS_C_S, route.ciphers or CIPHERS)
        session.options_set(options.CIPHERS_S_C, route.ciphers or CIPHERS)
        if route.kex:
            session.options_set(options.KEY_EXCHANGE, route.kex)
        if known:
            session.options_set(options.HOSTKEYS, ",".join(_algorithms(known)))
    except BaseSSHError as error:
        raise NotPlain(_text(error)) from None


def _algorithms(known: List[Key]) -> List[str]:
    """The signatures that the keys on record can make: an RSA key's are named after its digest (RFC 8332)."""
    kinds = dict.fromkeys(kind for kind, _text in known)
    return [name for kind in kinds for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))]


def _host_key(session: Session) -> Key:
    """The server's key: its type is the first string of its blob (RFC 4253 section 6.6)."""
    text: str = session.get_server_publickey().export_pubkey_base64().decode()
    blob = base64.b64decode(text)
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace"), text


def limit(session: Session, deadline: float) -> None:
    """Have the session's next call end by the deadline. Raises Trouble where that has passed."""
    seconds = left(deadline) + _ROUNDED
    whole = int(seconds)
    session.options_set(options.TIMEOUT, _LONG.pack(whole))
    session.options_set(options.TIMEOUT_USEC, _LONG.pack(int((seconds - whole) * 1e6)))


class LibsshStream:
    """A command in a channel."""

    def __init__(self, session: Session, channel: Channel) -> None:
        self.session: Optional[Session] = session
        self.channel: Optional[Channel] = channel
        self.complaints = b""

    def send(self, data: bytes, deadline: float) -> None:
        try:
            while data and self.channel is not None:
                limit(self.session, deadline)
                _status, written = self.channel.write(data)
                data = data[written:]
        except BaseSSHError:
            return  # it has ended: what it said is still to be read

    def receive(self, deadline: float) -> bytes:
        while self.channel is not None:
            try:
                _size, data = self.channel.read_timeout(1 + int(left(deadline) * 1000), 65536)
            except EOF:
                return b""
            except BaseSSHError as error:
                raise Trouble("ConnectionLost", f"the connection broke: {_text(error)}", passing=True) from None
            if data:
                return bytes(data)
            self.complaint()  # where it waits to be read, libssh does not call this the end
            if self.channel.is_eof() or self.channel.is_closed():
                return b""
        return b""

    def complaint(self) -> str:
        try:
            while self.channel is not None:
                _size, data = self.channel.read_nonblocking(KEPT, True)
                if not data:
                    break
                self.complaints = (self.complaints + data)[-KEPT:]
        except BaseSSHError:
            pass
        return self.complaints.decode(errors="replace")

    def close(self) -> None:
        """Let libssh free the channel: before its session, which would free it too."""
        if self.channel is not None:
            self.complaint()
            self.channel = self.session = None


class LibsshSession:
    """A connection that is logged in. Commands share it."""

    def __init__(self, session: Session) -> None:
        self._session: Optional[Session] = session
        self._streams: List[LibsshStream] = []

    def start(self, command: str, deadline: float) -> LibsshStream:
        session = self._session
        if session is None:
            raise Trouble("ConnectionLost", "the session is closed")
        limit(session, deadline)
        try:
            channel = session.channel_new()
            channel.open_session()
            limit(session, deadline)
            channel.request_exec(command)
        except BaseSSHError as error:
            if passed(deadline):
                raise Trouble("HungLogin", "logged in, but the server opens no session") from None
            if session.is_connected():
                raise Trouble("SessionRefused", f"the server opens no session: {_text(error)}") from None
            raise Trouble("ConnectionLost", f"the connection broke: {_text(error)}", passing=True) from None
        if passed(deadline):
            raise Trouble("HungLogin", "logged in, but the server opens no session")
        stream = LibsshStream(session, channel)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """End the connection. libssh does so, and closes the socket, when nothing refers to it any more."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self._session = None


def _text(error: BaseException) -> str:
    """What libssh said: the last of what its exceptions carry."""
    text = error.args[-1] if error.args else ""
    return printable(text.decode(errors="replace") if isinstance(text, bytes) else str(text), 200)
