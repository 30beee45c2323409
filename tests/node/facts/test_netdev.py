from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.netdev import interfaces, parse_net_dev

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1404  16    0    0    0     0          0         0     1404      16    0    0    0     0       0          0
  eth0:98765432101 881 3 4 0 0 0 0 123 45 6 7 0 0 0 0
eth0:1: 5 1 0 0 0 0 0 0 6 2 0 0 0 0 0 0
"""


def test_names():
    assert interfaces(FakeHost({"/proc/net/dev": NET_DEV})) == ("lo", "eth0", "eth0:1")


@given(st.text())
def test_junk_never_raises(text):
    parse_net_dev(text)
