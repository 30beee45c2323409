"""Two leaf switches with real hosts behind them: network namespaces, addresses, and a kernel that answers on each.

Needs root. The thread that opens them is in the network of the loop's host until they are closed, and so is each thread
that it starts; the machine's own network is not touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from typing import Dict, Iterator, List

from tests.support.require import need

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET (linux/sched.h)."""
PORT = 22


class Leaves:
    """`addresses` are the hosts' by leaf: "s1" and "s2"."""

    def __init__(self, hosts: int) -> None:
        self.addresses = {name: [f"10.77.{leaf}.{one}" for one in range(1, hosts + 1)]
                          for leaf, name in enumerate(("s1", "s2"), 1)}  # fmt: skip
        self._networks: Dict[str, int] = {}
        self._listening: List[socket.socket] = []

    def open(self) -> None:
        self._networks["home"] = _here()
        _called("unshare", NEW_NETWORK)
        self._networks["loop"] = _here()
        for name, addresses in self.addresses.items():
            _called("unshare", NEW_NETWORK)
            self._networks[name] = _here()
            loop = f"/proc/{os.getpid()}/fd/{self._networks['loop']}"
            _ip(f"link add uplink type veth peer name {name} netns {loop}", "link set lo up", "link set uplink up",
                *(f"addr add {one}/24 dev uplink" for one in addresses))  # fmt: skip
            self._listening.append(socket.create_server(("", PORT), backlog=1024))
            self._enter("loop")
            _ip(f"addr add {self._switch(name)}/24 dev {name}", f"link set {name} up")

    def close(self) -> None:
        for one in self._listening:
            one.close()
        if "home" in self._networks:
            self._enter("home")
        for network in self._networks.values():
            os.close(network)  # a network ends with the last that holds it

    def lose_packets(self, name: str) -> None:
        """What the leaf's hosts send is lost."""
        self._within(name, f"route add blackhole {self._switch(name)}")

    def carry_packets(self, name: str) -> None:
        self._within(name, f"route del blackhole {self._switch(name)}")

    def unplug(self, name: str) -> None:
        """The leaf's uplink has no carrier."""
        self._within(name, "link set uplink down")

    def _switch(self, name: str) -> str:
        return self.addresses[name][0].rpartition(".")[0] + ".254"

    def _within(self, name: str, command: str) -> None:
        self._enter(name)
        try:
            _ip(command)
        finally:
            self._enter("loop")

    def _enter(self, name: str) -> None:
        _called("setns", self._networks[name], NEW_NETWORK)


@contextlib.contextmanager
def leaves(hosts: int) -> Iterator[Leaves]:
    """Both leaves, with so many hosts each."""
    need("root", os.geteuid() == 0, "leaves are made of network namespaces")
    need("ip", shutil.which("ip"))
    made = Leaves(hosts)
    try:
        made.open()
        yield made
    finally:
        made.close()


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _called(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def _ip(*commands: str) -> None:
    text = "".join(f"{one}\n" for one in commands)
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True, timeout=60, capture_output=True)
