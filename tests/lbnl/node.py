"""The machine on which LBNL NHC's verdicts were recorded, and on which ours are compared with them.

`record.py` shows it to LBNL NHC as files and commands, `test_recorded.py` to our checks as a FakeHost; lines
that judge files or run commands see a real directory, `@D@` in the table.
"""

import os
from pathlib import Path

from nhc.core.host import Filesystem, Host
from nhc.lab.testing.fake_host import FakeHost
from tests.support.processes import Process, node

HOSTNAME = "n0042.cluster"

MEMINFO = """\
MemTotal:       65843212 kB
MemFree:        51200000 kB
MemAvailable:   60000000 kB
Buffers:          120000 kB
Cached:          9000000 kB
SwapCached:            0 kB
SwapTotal:       8388604 kB
SwapFree:        8000000 kB
"""

LOADAVG = "3.42 7.08 12.99 2/345 6789\n"

NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier zip
    lo:  100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0: 2000      20    0    0    0     0          0         0     2000      20    0    0    0     0       0          0
enp3s0f1:3000      30    0    0    0     0          0         0     3000      30    0    0    0     0       0          0
"""

MODULES = "ext4 1000000 2 - Live 0x0\nmlx5_core 2000000 1 - Live 0x0\n"

MOUNTS = """\
/dev/mapper/vg0-root / ext4 rw,relatime,data=ordered 0 0
proc /proc proc rw,nosuid,nodev,noexec 0 0
devpts /dev/pts devpts rw,nosuid,gid=5,mode=620 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0
/dev/sda1 /boot xfs ro,relatime 0 0
nas1:/export/home /home nfs4 rw,hard,vers=4.2,proto=tcp,addr=10.1.1.9 0 0
10.1.1.9@o2ib:/lfs /scratch lustre rw,flock,lazystatfs 0 0
tmpfs /tmp tmpfs rw,nosuid,size=4194304k 0 0
"""

KB = 1024
USAGE = {  # total, used and available kB; inodes, used
    "/": (51474912, 40000000, 8834512, 3276800, 412345),
    "/dev/shm": (32921604, 0, 32921604, 8230401, 1),
    "/boot": (1038336, 214408, 823928, 524288, 37),
    "/home": (1048576000, 996147200, 52428800, 67108864, 60000000),
    "/scratch": (107374182400, 53687091200, 53687091200, 400000000, 1000000),
    "/tmp": (4194304, 1234, 4193070, 1000, 990),
}

USERS = {"root": 0, "svc": 450, "alice": 1011, "bob": 1012}

PROCESSES = (
    Process(
        1, "/usr/lib/systemd/systemd --switched-root --system", parent=0, rss=9000, vsize=170000, cpu=90, age=90000
    ),
    Process(700, "/usr/sbin/crond -n", rss=3000, vsize=25000, cpu=8, age=80000),
    Process(701, "/usr/sbin/rsyslogd -n", rss=8000, vsize=220000, cpu=170, age=80000),
    Process(702, "/usr/sbin/slurmd -D -s", rss=12000, vsize=300000, cpu=601, age=80000),
    Process(703, "/opt/svc/bin/agentd --config /etc/agent.conf", 450, rss=40000, vsize=900000, cpu=4000, age=80000),
    Process(704, "/sbin/agetty -o -p -- tty1 linux", rss=2000, vsize=9000),
    Process(2000, "slurmstepd: [4242.batch]", rss=5000, vsize=270000, parent=702),
    Process(2001, "/bin/bash /var/spool/slurmd/job04242/slurm_script", 1011, 2000, rss=4000, vsize=12000),
    Process(2002, "python3 train.py --epochs 10", 1011, 2001, rss=31457280, vsize=62914560, cpu=7000, age=2000),
    Process(2003, "/home/alice/bin/a.out 1 2 3", 1011, 2001, rss=2097152, vsize=4194304, cpu=1990, age=2000),
    Process(2100, "matlab -nodisplay", 1012, rss=524288, vsize=1048576, cpu=45, age=3000),
)

DMI = """\
# dmidecode 3.3
Getting SMBIOS data from sysfs.
SMBIOS 3.2.1 present.
Table at 0x000E0000.

Handle 0x0000, DMI type 0, 26 bytes
BIOS Information
	Vendor: Example Firmware
	Version: 2.11.0
	Release Date: 04/01/2021
	Characteristics:
		PCI is supported
		UEFI is supported
	BIOS Revision: 2.11

Handle 0x0100, DMI type 1, 27 bytes
System Information
	Manufacturer: Example Computers
	Product Name: Compute 6420
	Serial Number: ABC1234

Handle 0x1100, DMI type 17, 84 bytes
Memory Device
	Size: 32 GB
	Locator: A1
	Speed: 2933 MT/s
	Configured Memory Speed: 2666 MT/s

Handle 0x1101, DMI type 17, 84 bytes
Memory Device
	Size: 32 GB
	Locator: A2
	Speed: 2933 MT/s
	Configured Memory Speed: 2666 MT/s

"""

PASSWD = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in USERS.items())
LOGIN_DEFS = "UID_MIN 1000\nSYS_UID_MAX 999\n"

FILES = {
    "plain": "line1\nline2\n  indented line\nkey = value\n# comment\n\nPermitRootLogin no\nlast line\n",
    "pbs": "$pbsserver master.node\n$usecp *:/global /global\n$loglevel 3\n",
    "empty": "",
    "one": "x\n",
}


def make_files(directory: Path) -> None:
    """The directory `@D@`: files of every kind that an ordinary user can make."""
    for name, text in FILES.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o644)
    (directory / "exe").write_text("#!/bin/sh\nexit 0\n")
    (directory / "exe").chmod(0o755)
    (directory / "one").chmod(0o600)
    (directory / "dir").mkdir()
    (directory / "dir").chmod(0o1777)
    (directory / "link").symlink_to("plain")
    (directory / "dangling").symlink_to("missing")
    os.mkfifo(directory / "fifo", 0o644)
    os.utime(directory / "one", (1_500_000_000, 1_500_000_000))


def fake_host() -> FakeHost:
    """The machine as our checks see it."""
    files = {
        "/proc/meminfo": MEMINFO, "/proc/loadavg": LOADAVG, "/proc/net/dev": NET_DEV, "/proc/modules": MODULES,
        "/proc/mounts": MOUNTS, "/etc/passwd": PASSWD, "/etc/login.defs": LOGIN_DEFS,
        "/sys/firmware/dmi/tables/DMI": "x",
    }  # fmt: skip
    host = node(*PROCESSES, commands={"dmidecode": DMI}, settings={"NHC_RM": "none"}, files=files)
    host.system.users = dict(USERS)
    for point, (total, used, free, inodes, inodes_used) in USAGE.items():
        left = inodes - inodes_used
        host.system.filesystems[point] = Filesystem(
            total * KB, (total - used) * KB, free * KB, inodes, left, left, False
        )
    return host


def host_for(family: str) -> Host:
    """What lines of a family are judged on."""
    return Host() if family in ("file", "cmd") else fake_host()
