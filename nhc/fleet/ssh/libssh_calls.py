"""The distribution's libssh by ctypes: its functions with their types, and objects that free what it gave.

The functions and numbers are those of libssh/libssh.h since 0.9 (2019); `libssh.so.4` has had one ABI since 0.8.
Importing this raises ImportError where there is no such library. docs/decisions/0032 says why it is no wheel.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_uint32, c_void_p
from types import SimpleNamespace
from typing import Any, Dict, Optional, Tuple, Union

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
