"""Sockets: what /proc/net lists, and which processes hold them.

The same files that netstat(8) reads; no other program is needed, and reading them takes a millisecond.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

# States by number: enum in include/net/tcp_states.h, names as netstat prints them.
TCP_STATES = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT", 7: "CLOSE",
    8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING", 12: "SYN_RECV",
}  # fmt: skip

# Types of Unix sockets: enum sock_type in include/linux/net.h.
UNIX_TYPES = {1: "STREAM", 2: "DGRAM", 3: "RAW", 4: "RDM", 5: "SEQPACKET", 10: "PACKET"}

# socket_state in include/uapi/linux/net.h: 1 is not connected, so it has no name of its own.
UNIX_STATES = {0: "FREE", 2: "CONNECTING", 3: "CONNECTED", 4: "DISCONNECTING"}

ACCEPTING = 0x10000
"""__SO_ACCEPTCON in a Unix socket's flags: it listens."""

INTERNET = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6")


class Socket(NamedTuple):
    """One socket. Each text is a tuple of the forms that netstat and ss write it in; `uid` is None for Unix sockets."""

    protocol: Tuple[str, ...]
    local: Tuple[str, ...]
    remote: Tuple[str, ...]
    state: str
    type: str
    uid: Optional[int]
    inode: int


def _address(text: str) -> Tuple[str, ...]:
    """An address as the kernel prints it (hexadecimal, each 32-bit word in the machine's order) in its usual forms."""
    import _socket  # the wrapper around it, `socket`, costs 12 ms to import
    import sys

    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    number = str(int(port, 16) or "*")
    packed = b"".join(words)
    if len(packed) == 4:
        return (f"{_socket.inet_ntop(_socket.AF_INET, packed)}:{number}",)
    address = _socket.inet_ntop(_socket.AF_INET6, packed)
    forms = [f"{address}:{number}", f"[{address}]:{number}"]
    if not any(packed):
        forms.append(f"*:{number}")  # ss writes a socket so that takes both families
    return tuple(forms)


def parse_internet(protocol: str, text: str) -> List[Socket]:
    """The sockets in one of /proc/net's files of Internet protocols (proc_pid_net(5))."""
    family = protocol.rstrip("6")
    names = (protocol,) if protocol == family else (protocol, family)
    listed = []
    known: Dict[str, Tuple[str, ...]] = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10:
            continue
        for address in fields[1:3]:
            if address not in known:
                known[address] = _address(address)
        number = int(fields[3], 16)
        if family == "tcp":
            state = TCP_STATES.get(number, str(number))
        elif family == "raw":
            state = str(number)
        else:
            state = "ESTABLISHED" if number == 1 else ""
        listed.append(Socket(names, known[fields[1]], known[fields[2]], state, "", int(fields[7]), int(fields[9])))
    return listed


def parse_unix(text: str) -> List[Socket]:
    """The sockets in /proc/net/unix. A name begins with @ where it is an abstract one; it may hold blanks."""
    listed = []
    for line in text.splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) < 7:
            continue
        flags, kind, state = (int(fields[at], 16) for at in (3, 4, 5))
        state_name = "LISTENING" if flags & ACCEPTING and state == 1 else UNIX_STATES.get(state, "")
        name = (fields[7] if len(fields) > 7 else "",)
        listed.append(Socket(("unix",), name, ("",), state_name, UNIX_TYPES.get(kind, "UNKNOWN"), None, int(fields[6])))
    return listed


def sockets(host: Host) -> List[Socket]:
    """Every socket of this network namespace. Raises OSError if /proc/net cannot be read, ValueError where odd."""
    listed = []
    for protocol in INTERNET:
        try:
            listed += parse_internet(protocol, host.read(f"/proc/net/{protocol}"))
        except FileNotFoundError:  # a kernel without IPv6, or without that protocol
            if protocol == "tcp":
                raise
    try:
        listed += parse_unix(host.read("/proc/net/unix"))
    except FileNotFoundError:
        pass
    return listed


_LINK = re.compile(r"socket:\[(\d+)\]")


def parse_link(target: str) -> Optional[int]:
    """The inode that a descriptor's link names, None if it is no socket."""
    match = _LINK.fullmatch(target)
    return int(match[1]) if match else None


def inodes_of(host: Host, pids: Iterable[int]) -> Tuple[FrozenSet[int], bool]:
    """The sockets that these processes hold, and whether all of them could be read."""
    inodes: Set[int] = set()
    complete = True
    for pid in pids:
        try:
            descriptors = host.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            complete = False
            continue
        except OSError:  # it ended in between
            continue
        for descriptor in descriptors:
            try:
                inode = parse_link(host.readlink(f"/proc/{pid}/fd/{descriptor}"))
            except PermissionError:
                complete = False
                continue
            except OSError:
                continue
            if inode is not None:
                inodes.add(inode)
    return frozenset(inodes), complete
