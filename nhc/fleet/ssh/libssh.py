"""SSH by libssh, a C library: half of paramiko's CPU for a connection, which is most of what a sweep costs.

It carries the plain case alone: a direct connection, a private key from a file, algorithms that are its own. What
is not plain, a server with which it has no algorithm in common and a key that is refused, is `NotPlain`: paramiko
takes it over, and says what it is. Nothing of libssh's own configuration, known_hosts or agent is used.
docs/decisions/0019 says why there are two libraries.
"""

from __future__ import annotations

import base64
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_uint32, c_void_p
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple, Union

from nhc.core.model import printable
from nhc.fleet.ssh.config import Route
from nhc.fleet.ssh.known_hosts import HostKeys, Key
from nhc.fleet.transport import Trouble, connect_tcp, left, passed

# The distribution's libssh by ctypes: its functions with their types, and objects that free what it gave.
#
# The functions and numbers are those of libssh/libssh.h since 0.9 (2019); `libssh.so.4` has had one ABI since 0.8.
# Importing this raises ImportError where there is no such library. docs/decisions/0032 says why it is no wheel.


NAME = "libssh.so.4"
OLDEST = (0, 9, 0)
"""The first with SSH_OPTIONS_PROCESS_CONFIG: without it libssh would read ssh_config by itself."""

OK, ERROR, AGAIN, EOF = 0, -1, -2, -127
"""What most functions return."""
LOGGED_IN, DENIED, PARTIAL, LATER = 0, 1, 2, 4
"""What a login returns (SSH_AUTH_*), or ERROR."""

CLOSING = 1.0
"""Seconds in which the end of a channel must have gone out."""

# enum ssh_options_e
HOST, FD, USER, SSH_DIR, KNOWN_HOSTS, TIMEOUT, TIMEOUT_USEC = 0, 3, 4, 5, 8, 9, 10
CIPHERS_OUT, CIPHERS_IN, KEY_EXCHANGE, HOST_KEYS, GLOBAL_KNOWN_HOSTS, PROCESS_CONFIG = 15, 16, 24, 25, 35, 38

_SIGNATURES: Dict[str, Tuple[Any, ...]] = {  # what it returns, then what it takes
    "ssh_version": (c_char_p, c_int),
    "ssh_new": (c_void_p,),
    "ssh_free": (None, c_void_p),
    "ssh_options_set": (c_int, c_void_p, c_int, c_void_p),
    "ssh_connect": (c_int, c_void_p),
    "ssh_is_connected": (c_int, c_void_p),
    "ssh_get_error": (c_char_p, c_void_p),
    "ssh_get_serverbanner": (c_char_p, c_void_p),
    "ssh_get_server_publickey": (c_int, c_void_p, POINTER(c_void_p)),
    "ssh_userauth_publickey": (c_int, c_void_p, c_char_p, c_void_p),
    "ssh_pki_import_privkey_file": (c_int, c_char_p, c_char_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "ssh_pki_export_pubkey_base64": (c_int, c_void_p, POINTER(c_void_p)),
    "ssh_string_free_char": (None, c_void_p),
    "ssh_key_free": (None, c_void_p),
    "ssh_channel_new": (c_void_p, c_void_p),
    "ssh_channel_free": (None, c_void_p),
    "ssh_channel_open_session": (c_int, c_void_p),
    "ssh_channel_request_exec": (c_int, c_void_p, c_char_p),
    "ssh_channel_write": (c_int, c_void_p, c_char_p, c_uint32),
    "ssh_channel_read_timeout": (c_int, c_void_p, c_void_p, c_uint32, c_int, c_int),
    "ssh_channel_read_nonblocking": (c_int, c_void_p, c_void_p, c_uint32, c_int),
    "ssh_channel_is_eof": (c_int, c_void_p),
    "ssh_channel_is_closed": (c_int, c_void_p),
}


def _load() -> SimpleNamespace:
    """The functions by their names. Each call lets other threads go on. Raises ImportError."""
    try:
        cdll = ctypes.CDLL(NAME)
        library = SimpleNamespace(
            **{name: ctypes.CFUNCTYPE(returns, *takes)((name, cdll)) for name, (returns, *takes) in _SIGNATURES.items()}
        )
    except (OSError, AttributeError) as error:
        raise ImportError(f"{NAME}: {error}") from None
    if library.ssh_version(OLDEST[0] << 16 | OLDEST[1] << 8 | OLDEST[2]) is None:
        raise ImportError(f"{NAME} is older than {'.'.join(map(str, OLDEST))}")
    return library


_lib = _load()


class SshError(Exception):
    """libssh says that a call failed, and why."""


class PrivateKey:
    """A private key that libssh holds."""

    def __init__(self, path: str) -> None:
        """Read one from a file. Raises SshError where libssh cannot use it without a passphrase."""
        self.pointer = c_void_p()
        # An empty passphrase: without any, OpenSSL would ask the terminal for one.
        if _lib.ssh_pki_import_privkey_file(_encoded(path), b"", None, None, byref(self.pointer)) != OK:
            raise SshError(f"{path} cannot be used")

    def __del__(self) -> None:
        if self.pointer.value:
            _lib.ssh_key_free(self.pointer)

    def public(self) -> str:
        """The public key's blob, in base64. Raises SshError."""
        return _public(self.pointer)


class LibsshConnection:
    """A session of libssh: freed, and its socket closed, by `close` or when nothing refers to it any more."""

    def __init__(self) -> None:
        self.pointer: Optional[int] = _lib.ssh_new()
        if self.pointer is None:
            raise MemoryError("libssh has no memory for a session")

    def close(self) -> None:
        """End the connection. Nothing else may use it, nor a channel of it, at the time or later."""
        pointer, self.pointer = self.pointer, None
        if pointer is not None:
            _lib.ssh_free(pointer)  # ssh_disconnect would leave a socket open that it was given

    def __del__(self) -> None:
        self.close()

    def set(self, option: int, value: Union[str, bytes]) -> None:
        """Give one option, a text or the memory of a number. Raises SshError."""
        self._set(option, _encoded(value) if isinstance(value, str) else value)

    def take(self, descriptor: int) -> None:
        """Speak over this socket, and close it in the end. Raises SshError."""
        self._set(FD, byref(c_int(descriptor)))

    def limit(self, seconds: float) -> None:
        """Have each of the next calls end after so many seconds."""
        whole = int(seconds)
        self._set(TIMEOUT, byref(c_long(whole)))
        self._set(TIMEOUT_USEC, byref(c_long(int((seconds - whole) * 1e6))))

    def _set(self, option: int, value: object) -> None:
        if _lib.ssh_options_set(self.pointer, option, value) != OK:
            raise self.error()

    def connect(self) -> None:
        """Exchange banners and keys. Raises SshError."""
        if _lib.ssh_connect(self.pointer) != OK:
            raise self.error()

    def connected(self) -> bool:
        return bool(_lib.ssh_is_connected(self.pointer))

    def has_banner(self) -> bool:
        """Whether the server has said what it is."""
        return _lib.ssh_get_serverbanner(self.pointer) is not None

    def host_key(self) -> str:
        """The blob of the key that the server has proved to have, in base64. Raises SshError."""
        key = c_void_p()
        if _lib.ssh_get_server_publickey(self.pointer, byref(key)) != OK:
            raise self.error()
        try:
            return _public(key)
        finally:
            _lib.ssh_key_free(key)

    def login(self, key: PrivateKey) -> int:
        """Offer a key: LOGGED_IN, DENIED, PARTIAL, LATER where the time of `limit` is over, or ERROR."""
        return int(_lib.ssh_userauth_publickey(self.pointer, None, key.pointer))

    def error(self) -> SshError:
        """What libssh says of its last failure."""
        said = _lib.ssh_get_error(self.pointer)
        return SshError((said or b"").decode(errors="replace"))


class Channel:
    """A command's channel. It holds its connection, which is freed after it."""

    def __init__(self, connection: LibsshConnection) -> None:
        """Make one that is not open yet. Raises SshError."""
        self.connection = connection
        self.pointer: Optional[int] = _lib.ssh_channel_new(connection.pointer)
        if self.pointer is None:
            raise connection.error()

    def __del__(self) -> None:
        if self.pointer is not None and self.connection.pointer is not None:  # a session frees its channels
            self.connection.limit(CLOSING)
            _lib.ssh_channel_free(self.pointer)

    def start(self, command: str) -> None:
        """Run a command in an open channel. Raises SshError."""
        self._succeed(_lib.ssh_channel_request_exec(self.pointer, _encoded(command)))

    def open(self) -> None:
        """Raises SshError."""
        self._succeed(_lib.ssh_channel_open_session(self.pointer))

    def write(self, data: bytes) -> int:
        """How many bytes went out. Raises SshError."""
        return self._counted(_lib.ssh_channel_write(self.pointer, data, len(data)))

    def read(self, size: int, milliseconds: int) -> bytes:
        """What comes of its output within a time: b"" where nothing did, or never will. Raises SshError."""
        buffer = ctypes.create_string_buffer(size)
        got = _lib.ssh_channel_read_timeout(self.pointer, buffer, size, 0, milliseconds)
        return ctypes.string_at(buffer, self._counted(got))

    def read_complaints(self, size: int) -> bytes:
        """What lies here of its standard error. Raises SshError."""
        buffer = ctypes.create_string_buffer(size)
        got = _lib.ssh_channel_read_nonblocking(self.pointer, buffer, size, 1)
        return ctypes.string_at(buffer, self._counted(got))

    def ended(self) -> bool:
        """Whether nothing more comes."""
        return bool(_lib.ssh_channel_is_eof(self.pointer) or _lib.ssh_channel_is_closed(self.pointer))

    def _succeed(self, result: int) -> None:
        if result != OK:
            raise self.connection.error()

    def _counted(self, result: int) -> int:
        if result == ERROR:
            raise self.connection.error()
        return max(0, result)  # 0.11 says AGAIN, and EOF, where others say 0


def _public(key: c_void_p) -> str:
    text = c_void_p()
    if _lib.ssh_pki_export_pubkey_base64(key, byref(text)) != OK:
        raise SshError("libssh cannot write a public key")
    try:
        return ctypes.string_at(text).decode("ascii") if text.value else ""
    finally:
        _lib.ssh_string_free_char(text)


def _encoded(text: str) -> bytes:
    """A text as C has it. Raises SshError for one that C would end in the middle."""
    if "\0" in text:
        raise SshError("a zero byte in a text")
    return text.encode(errors="surrogateescape")


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
        sock = connect_tcp(route.host, route.port, deadline)
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
    result = LATER
    while result == LATER and not passed(deadline):
        limit(connection, deadline)
        result = connection.login(key)
    if result == LOGGED_IN and not passed(deadline):
        return
    complaint = _text(connection.error())
    if result in (DENIED, PARTIAL):
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
        connection.set(PROCESS_CONFIG, b"\0")  # ssh_config is read by us, for all libraries alike
        for files in (KNOWN_HOSTS, GLOBAL_KNOWN_HOSTS):
            connection.set(files, os.devnull)  # it would read them for every host
        connection.set(SSH_DIR, "/")  # nor ask the system for a home directory
        connection.set(HOST, route.host)
        connection.set(USER, route.user)
        connection.set(CIPHERS_OUT, route.ciphers or CIPHERS)
        connection.set(CIPHERS_IN, route.ciphers or CIPHERS)
        if route.kex:
            connection.set(KEY_EXCHANGE, route.kex)
        if known:
            connection.set(HOST_KEYS, ",".join(_algorithms(known)))
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
