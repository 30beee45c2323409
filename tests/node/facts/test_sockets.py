# ruff: noqa: E501
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.sockets import inodes_of, parse_internet, parse_link, parse_unix, sockets

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1198 1 0000000014d551e9 100 0 0 10 0
   1: 0403020A:ACFB 0303020A:0016 01 00000000:00000000 02:000A7214 00000000   500        0 4711 2 00000000abcdef01 20 4 30 10 -1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0000000014d551e9 100 0 0 10 0
   1: 0000000000000000FFFF00000403020A:0016 0000000000000000FFFF00000303020A:C000 08 00000000:00000000 00:00000000 00000000     0        0 98 1 0000000014d551e9 100 0 0 10 0
"""
UDP = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  77: 00000000:006F 00000000:0000 07 00000000:00000000 00:00000000 00000000    32        0 55 2 0000000014d551e9 0
"""
UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
000000006917dd73: 00000002 00000000 00010000 0001 01   499 /tmp/.X11-unix/X0
00000000785d984a: 00000003 00000000 00000000 0001 03   498
00000000785d984b: 00000003 00000000 00000000 0002 01   497 @/org/kernel/udev a b
00000000785d984c: 00000003 00000000 00000000 0005 03   496
"""


def test_tcp_sockets_read_as_netstat_shows_them():
    listening, open_ = parse_internet("tcp", TCP)

    assert (listening.local, listening.remote) == (("0.0.0.0:22",), ("0.0.0.0:*",))
    assert (listening.state, listening.uid, listening.inode) == ("LISTEN", 0, 1198)
    assert (open_.local, open_.remote) == (("10.2.3.4:44283",), ("10.2.3.3:22",))
    assert (open_.state, open_.uid) == ("ESTABLISHED", 500)


def test_ipv6_addresses_are_known_in_each_form():
    listening, mapped = parse_internet("tcp6", TCP6)

    assert listening.protocol == ("tcp6", "tcp")
    assert listening.local == (":::80", "[::]:80", "*:80")
    assert mapped.local == ("::ffff:10.2.3.4:22", "[::ffff:10.2.3.4]:22")
    assert mapped.state == "CLOSE_WAIT"


def test_states_of_udp_and_raw():
    (found,) = parse_internet("udp", UDP)

    assert (found.state, found.uid) == ("", 32)
    assert parse_internet("raw", UDP)[0].state == "7"


def test_unix_sockets():
    assert [(one.local[0], one.type, one.state, one.inode) for one in parse_unix(UNIX)] == [
        ("/tmp/.X11-unix/X0", "STREAM", "LISTENING", 499),
        ("", "STREAM", "CONNECTED", 498),
        ("@/org/kernel/udev a b", "DGRAM", "", 497),
        ("", "SEQPACKET", "CONNECTED", 496),
    ]


@given(st.text())
def test_odd_text_is_at_most_a_value_error(text):
    for parse in (parse_unix, lambda said: parse_internet("tcp", said)):
        try:
            parse("header\n" + text)
        except ValueError:
            pass
    parse_link(text)


def test_missing_tables_are_skipped_but_not_tcp():
    assert len(sockets(FakeHost({"/proc/net/tcp": TCP, "/proc/net/unix": UNIX}))) == 6
    with pytest.raises(OSError, match=r"\[Errno 2\]"):
        sockets(FakeHost({"/proc/net/unix": UNIX}))


def test_a_real_listener_is_found_with_its_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (found,) = [one for one in sockets(Host()) if one.local == (address,) and one.state == "LISTEN"]
        held, complete = inodes_of(Host(), [os.getpid()])

    assert found.uid == os.geteuid()
    assert found.inode in held
    assert complete
