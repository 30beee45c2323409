"""paramiko's connections, as a sweep needs them: no call without a deadline, no work that nobody looks at."""

from __future__ import annotations

import logging
import socket
import subprocess
from typing import Any, Dict, Optional, Tuple

import paramiko  # type: ignore[import-not-found,import-untyped,unused-ignore]
from paramiko.ssh_exception import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    ChannelException,
    SSHException,
)

from nhc.fleet.transport import OutOfResources, Trouble, is_scarce, left, passed

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
        close(self.transport)


def end(channel: Any) -> None:
    """Close a channel, or a socket. The other side is told, and may be gone: what it said has been read."""
    try:
        channel.close()
    except (OSError, EOFError, SSHException):
        pass


def close(transport: Any) -> None:
    """End a connection, and wait for paramiko's thread to leave the socket before its number is free again.

    A thread that was about to wait on a socket closed under it would wait on the next connection's, which has the
    same number, and take its bytes.
    """
    transport.sock.end()
    if transport.is_alive():
        transport.join(5)
    transport.close()
