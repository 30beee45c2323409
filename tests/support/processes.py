"""A FakeHost with processes in its /proc."""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.host import Stat
from nhc.lab.testing.fake_host import FakeHost

TICKS, PAGE = 100, 4096
UPTIME = 100_000

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
rpc:x:32:32:Rpcbind Daemon:/var/cache/rpcbind:/sbin/nologin
ntp:x:38:38::/etc/ntp:/sbin/nologin
carol:x:1777:1777::/home/carol:/bin/bash
alice:x:12345:12345:A User:/home/alice:/bin/bash
"""


class Process(NamedTuple):
    """`age` and `cpu` in seconds, `vsize` and `rss` in kB. Without `args` it is a kernel thread or a zombie."""

    pid: int
    args: str = ""
    uid: int = 0
    parent: int = 1
    name: str = ""
    state: str = "S"
    cpu: int = 0
    age: int = 1000
    vsize: int = 4096
    rss: int = 1024

    @property
    def stat(self) -> str:
        name = self.name or self.args.split()[0].rpartition("/")[2][:15]
        flags = 0 if self.args or self.state == "Z" else 0x208040
        started = (UPTIME - self.age) * TICKS
        return (
            f"{self.pid} ({name}) {self.state} {self.parent} {self.pid} {self.pid} 0 -1 {flags} 1 2 3 4 "
            f"{self.cpu * TICKS} 0 7 8 20 0 1 0 {started} {self.vsize * 1024} {self.rss * 1024 // PAGE} 0 0\n"
        )


def node(*processes: Process, commands=None, settings=None, files=None) -> FakeHost:
    """A node of 16 GB where just these run."""
    host = FakeHost(
        {
            "/proc/uptime": f"{UPTIME}.50 1.00\n",
            "/proc/meminfo": "MemTotal:       16777216 kB\nMemFree:  1 kB\n",
            "/proc/sys/": "",
            "/etc/passwd": PASSWD,
            "/etc/login.defs": "UID_MIN 1000\n",
            **(files or {}),
        },
        {"sh": "", **(commands or {})},
        settings,
    )
    for process in processes:
        host.write(f"/proc/{process.pid}/stat", process.stat)
        host.write(f"/proc/{process.pid}/comm", process.stat.partition("(")[2].partition(")")[0][:15] + "\n")
        host.write(f"/proc/{process.pid}/cmdline", process.args.replace(" ", "\0") + ("\0" if process.args else ""))
        host.system.stats[f"/proc/{process.pid}"] = Stat(0o40555, process.uid, 0, 0, 0.0, 0.0, 0.0, 0, 0, 9, 0)
    return host


INIT = Process(1, "/sbin/init")
KTHREADD = Process(2, name="kthreadd", parent=0)
KSWAPD0 = Process(138, name="kswapd0", parent=2, cpu=66)
KSWAPD1 = Process(139, name="kswapd1", parent=2, cpu=23)
SSHD = Process(1351, "/usr/sbin/sshd -D")
SSHD_TITLE = Process(1352, "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", name="sshd")
NTPD = Process(1373, "ntpd -u ntp:ntp -p /var/run/ntpd.pid -g", uid=38)
MOM = Process(1408, "pbs_mom -d /var/spool/torque/cluster/n0018 -q", cpu=34 * 60 + 32)
SHELL = Process(19197, "-bash", uid=12345, parent=1408, name="bash", rss=16 << 20, vsize=20 << 20)
MPIRUN = Process(19233, "mpirun -np 96 ./wrf.exe", uid=12345, parent=19197)
WRF = Process(19234, "./wrf.exe", uid=12345, parent=19233, cpu=940, rss=304128, vsize=557288)
WRF2 = Process(19235, "./wrf.exe", uid=12345, parent=19233, cpu=988, rss=292072, vsize=546040)
NODE = (INIT, KTHREADD, KSWAPD0, KSWAPD1, SSHD, NTPD, MOM, SHELL, MPIRUN, WRF, WRF2)
